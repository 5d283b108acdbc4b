"""Logos: letters site by site, such as those that a hidden unit of a machine of sequences looks for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from harmonium import _checks
from harmonium.machine import BoltzmannMachine
from harmonium.report.hidden_units import receptive_fields
from harmonium.report.plots import new_figure, save_figure

_COLOURS = ("tab:red", "tab:blue", "tab:green", "tab:orange", "tab:purple", "tab:brown", "tab:cyan")


class Stacked(NamedTuple):
    """A letter of a logo: it stands at a site from ``bottom`` to ``top``."""

    site: int
    letter: str
    bottom: float
    top: float


def letters_of(machine: BoltzmannMachine) -> Any:
    """Returns the letters of the sequences that a machine has learned; None: it has learned others."""
    return (machine.metadata.get("encoder") or {}).get("alphabet")


def name_letter(letter: str) -> str:
    """Returns a letter as pictures show it: the gap by its name, as a dash of any size is a block."""
    return "gap" if letter == "-" else letter


def stack_letters(weights: Tensor, alphabet: str) -> Iterator[Stacked]:
    """Yields the letters of a logo with heights |w|, above 0 or below, the smaller ones next to it.

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
                yield Stacked(site, letter, min(start, end), max(start, end))


def unit_logos(
    machine: BoltzmannMachine,
    path: str | os.PathLike[str],
    units: Iterable[int] | None = None,
    *,
    alphabet: str | None = None,
) -> None:
    """Draws a logo of some hidden units: their couplings to every letter at every site.

    Couplings are shown less their mean over the letters of a site, as the zero-sum gauge has them (Tubiana et
    al. 2019). A letter above the line turns the unit on, one below turns it off.

    Args:
        machine: categorical visible units beside a hidden layer.
        path: PNG file; one that is there is replaced in one step.
        units: numbers of hidden units; None: the six with the strongest couplings.
        alphabet: the letters in the order of their states; None: those that the machine has learned.

    Raises:
        ImportError: the ``plot`` extra is not installed.
        ValueError: other units, or letters that do not fit.
    """
    layer, hidden = machine.layers[0], machine.hidden
    letters = letters_of(machine) if alphabet is None else alphabet
    if machine.visible != (0,) or not layer.one_hot or not hidden:
        raise ValueError(f"machine: expected categorical units beside hidden ones, received {machine.layers}")
    states = layer.columns_per_unit
    if not isinstance(letters, str) or len(letters) != states:
        raise ValueError(f"alphabet: expected {states} letters, received {letters!r}")
    fields = receptive_fields(machine)[hidden[0]].detach().cpu().view(-1, layer.n_units, states)
    fields = fields - fields.mean(-1, keepdim=True)
    if units is None:
        units = fields.flatten(1).norm(dim=1).argsort(descending=True)[:6].tolist()
    chosen = [_checks.positive_int(unit, "units", minimum=0) for unit in units]
    if not chosen or max(chosen) >= len(fields):
        raise ValueError(f"units: expected some below {len(fields)}, received {chosen}")
    draw_logos(fields[chosen], letters, path, [f"unit {unit}" for unit in chosen])


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
        for stacked in stack_letters(heights, alphabet):
            outline = TextPath((0, 0), name_letter(stacked.letter), size=1)
            box = outline.get_extents()
            if box.width and box.height:
                scale = Affine2D().translate(-box.x0, -box.y0).scale(0.9 / box.width, 1 / box.height)
                placed = scale.scale(1, stacked.top - stacked.bottom).translate(
                    stacked.site + 0.55, stacked.bottom
                )
                colour = _COLOURS[alphabet.index(stacked.letter) % len(_COLOURS)]
                axes.add_patch(PathPatch(outline, transform=placed + axes.transData, color=colour, lw=0))
        top, low = heights.clamp(min=0).sum(1).max(), heights.clamp(max=0).sum(1).min()
        axes.set(xlim=(0.4, sites + 0.6), ylim=(1.05 * float(low) - 1e-6, 1.05 * float(top) + 1e-6))
        axes.axhline(0, color="0.3", lw=0.5)
        axes.set_ylabel(title)
    save_figure(figure, path)
