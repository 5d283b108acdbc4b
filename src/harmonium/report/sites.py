"""Pictures of what a machine of sequences tells of its sites: contacts, their precision, mutations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonium.report.logos import name_letter
from harmonium.report.plots import new_figure, save_figure
from harmonium.tasks import APART, TOUCHING, contact_precision, rank_pairs

_A_SITE = 0.16  # inches of a column of the heat map, in which a letter of 7 points has room
_WIDE = 200  # sites that are labelled by their letters; more are numbered alone


def draw_contacts(
    scores: Tensor,
    path: str | os.PathLike[str],
    *,
    distances: Tensor | None = None,
    apart: int = APART,
    touching: float = TOUCHING,
) -> None:
    """Draws the strongest pairs of sites, as many as sites, below the diagonal and known contacts above it.

    Args:
        scores: (sites, sites), such as ``tasks.contacts`` returns.
        path: PNG file; one that is there is replaced in one step.
        distances: (sites, sites) in Å, NaN where unknown (``data.read_distances``); None: no structure is
            known, and the pairs stand on both sides.
        apart: Smallest |i - j| of a pair.
        touching: Distance below which two sites touch.

    Raises:
        ImportError: the ``plot`` extra is not installed.
        ValueError: shapes that do not fit.
    """
    figure = new_figure("draw_contacts", (5.6, 5.6))
    ranked = rank_pairs(scores, apart=apart).sites.cpu()
    i, j = ranked[: len(scores)].t() + 1
    axes = figure.subplots()
    size = max(1.0, 160 / len(scores))
    if distances is None:
        strength = scores[i - 1, j - 1].tolist()
        drawn = axes.scatter(
            [*i, *j], [*j, *i], size**2, [*strength, *strength], marker="s", cmap="viridis_r"
        )
        figure.colorbar(drawn, label="score", shrink=0.8, pad=0.02)
    else:
        distances = distances.cpu()
        near = (distances < touching).triu(apart).nonzero() + 1
        axes.plot(*near.t(), "s", ms=size, color="0.6", label=f"below {touching:g} Å")
        wrong = distances[i - 1, j - 1] >= touching
        axes.plot(j[~wrong], i[~wrong], "s", ms=size, color="tab:blue", label="machine")
        axes.plot(j[wrong], i[wrong], "s", ms=size, color="tab:red", label="machine, further apart")
        axes.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1), ncol=3)
    ends = (0.5, len(scores) + 0.5)
    axes.set(xlabel="site", ylabel="site", aspect="equal", xlim=ends, ylim=ends)
    save_figure(figure, path)


def draw_precision(
    scores: Tensor,
    distances: Tensor,
    path: str | os.PathLike[str],
    *,
    apart: int = APART,
    touching: float = TOUCHING,
) -> None:
    """Draws the share of true contacts among the n strongest pairs over n.

    Args:
        scores: (sites, sites), such as ``tasks.contacts`` returns.
        distances: (sites, sites) in Å, NaN where unknown.
        path: PNG file; one that is there is replaced in one step.
        apart: Smallest |i - j| of a pair.
        touching: Distance below which two sites touch.

    Raises:
        ImportError: the ``plot`` extra is not installed.
        ValueError: shapes that do not fit, or no pair of a known distance.
    """
    figure = new_figure("draw_precision", (5.6, 4.0))
    precision = contact_precision(scores, distances, apart=apart, touching=touching).cpu()
    axes = figure.subplots()
    axes.plot(torch.arange(1, len(precision) + 1), precision)
    axes.axvline(len(scores), color="0.6", lw=0.8)
    axes.axhline(float(precision[-1]), color="0.6", lw=0.8, ls="--")
    axes.text(len(scores), 0.02, " as many as sites", fontsize="small", color="0.4")
    axes.text(1, float(precision[-1]), "any pair", fontsize="small", color="0.4", va="bottom")
    axes.set(
        xscale="log", ylim=(0, 1.02), xlabel="strongest pairs", ylabel=f"share below {touching:g} Å",
        title=f"Contacts, |i - j| ≥ {apart}",
    )  # fmt: skip
    save_figure(figure, path)


def draw_mutations(
    effects: Tensor,
    codes: Any,
    alphabet: str,
    path: str | os.PathLike[str],
    *,
    title: str = "",
    numbers: Sequence[int | None] | None = None,
) -> None:
    """Draws the effect of every single mutation as a heat map, red where a mutant is less likely.

    Args:
        effects: (sites, states), such as ``tasks.mutations`` returns.
        codes: States of the sequence, (sites,), which are marked by a dot.
        alphabet: the letters in the order of their states; the gap is named "gap".
        path: PNG file; one that is there is replaced in one step.
        title: Title of the picture.
        numbers: Number of the residue at each site, None at a gap; sites are numbered from 1 without.

    Raises:
        ImportError: the ``plot`` extra is not installed.
        ValueError: shapes that do not fit.
    """
    codes = np.asarray(torch.as_tensor(codes).cpu())
    if effects.shape != (len(codes), len(alphabet)):
        raise ValueError(
            f"effects: expected ({len(codes)}, {len(alphabet)}) for the sequence and its alphabet, received "
            f"{tuple(effects.shape)}"
        )
    sites, states = effects.shape
    if numbers is not None and len(numbers) != sites:
        raise ValueError(f"numbers: expected one for each of {sites} sites, received {len(numbers)}")
    named = [*range(1, sites + 1)] if numbers is None else numbers
    figure = new_figure("draw_mutations", (max(6.0, _A_SITE * sites), 1.2 + _A_SITE * states))
    axes = figure.subplots()
    reach = float(effects.abs().quantile(0.99)) or 1.0  # a few extreme mutants leave the others their colours
    image = axes.imshow(
        effects.cpu().numpy().T, cmap="RdBu", vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest"
    )
    axes.plot(np.arange(sites), codes, ".", color="black", ms=3)
    axes.set_yticks(range(states), [name_letter(letter) for letter in alphabet])
    if sites <= _WIDE:
        labels = [
            f"{alphabet[state]}\n{number}" if number is not None and number % 10 == 0 else alphabet[state]
            for state, number in zip(codes, named, strict=True)
        ]
        axes.set_xticks(range(sites), labels)
    axes.tick_params(labelsize=7, length=0)
    axes.set(xlabel="site" if numbers is None else "residue", title=title or "ln p(mutant) - ln p(sequence)")
    figure.colorbar(image, pad=0.01)
    save_figure(figure, path)
