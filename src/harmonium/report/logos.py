"""Logos: letters site by site, such as those of the directions of a machine of sequences."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from harmonium.machine import BoltzmannMachine
from harmonium.report.plots import new_figure, save_figure

_COLOURS = ("tab:red", "tab:blue", "tab:green", "tab:orange", "tab:purple", "tab:brown", "tab:cyan")


def letters_of(machine: BoltzmannMachine) -> Any:
    """Returns the letters of the sequences that a machine has learned; None: it has learned others."""
    return (machine.metadata.get("encoder") or {}).get("alphabet")


def name_letter(letter: str) -> str:
    """Returns a letter as pictures show it: the gap by its name, as a dash of any size is a block."""
    return "gap" if letter == "-" else letter


def stack_letters(weights: Tensor, alphabet: str) -> Iterator[tuple[int, str, float, float]]:
    """Yields the letters of a logo with heights |w|, above 0 or below, the smaller ones next to it.

    A letter is (site, letter, bottom, top).

    Args:
        weights: (sites, states).
        alphabet: the letters in the order of the states.
    """
    for site, column in enumerate(weights.tolist()):
        ends = {True: 0.0, False: 0.0}
        for height, letter in sorted(zip(column, alphabet, strict=True), key=lambda pair: abs(pair[0])):
            if height:
                start, end = ends[height > 0], ends[height > 0] + height
                ends[height > 0] = end
                yield site, letter, min(start, end), max(start, end)


def draw_logos(weights: Tensor, alphabet: str, path: str | os.PathLike[str], titles: Sequence[str]) -> None:
    """Draws logos below each other, such as those of hidden units or of ``tasks.directions``.

    Args:
        weights: heights of the letters, (logos, sites, states), above the line or below it.
        alphabet: the letters in the order of the states.
        path: PNG file; one that is there is replaced in one step.
        titles: Titles of the logos, in their order.

    Raises:
        ImportError: the ``plot`` extra is not installed.
    """
    logos, sites, _ = weights.shape
    figure = new_figure("draw_logos", (max(6.0, 0.12 * sites), 1.6 * logos))
    from matplotlib.patches import PathPatch
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D

    panels = figure.subplots(logos, 1, squeeze=False)[:, 0]
    for axes, heights, title in zip(panels, weights, titles, strict=True):
        for site, letter, bottom, top in stack_letters(heights, alphabet):
            outline = TextPath((0, 0), name_letter(letter), size=1)
            box = outline.get_extents()
            if box.width and box.height:
                unit = Affine2D().translate(-box.x0, -box.y0).scale(0.9 / box.width, 1 / box.height)
                placed = unit.scale(1, top - bottom).translate(site + 0.55, bottom) + axes.transData
                colour = _COLOURS[alphabet.index(letter) % len(_COLOURS)]
                axes.add_patch(PathPatch(outline, transform=placed, color=colour, lw=0))
        low, high = heights.clamp(max=0).sum(1).min(), heights.clamp(min=0).sum(1).max()
        axes.set(xlim=(0.4, sites + 0.6), ylim=(1.05 * float(low) - 1e-6, 1.05 * float(high) + 1e-6))
        axes.axhline(0, color="0.3", lw=0.5)
        axes.set_ylabel(title)
    save_figure(figure, path)
