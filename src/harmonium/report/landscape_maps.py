"""Pictures of mean-field solutions: their free energies, and maps of where they lie."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium.meanfield import Landscape
from harmonium.report.plots import new_figure, save_figure

_NEIGHBOURS = 10  # of a point in its map: with few of them it falls apart, with many it leaves the surface
_NUMBERED = 30  # solutions whose number of starts is written beside them
_FITTED = 1500  # points that a map is fitted to: geodesics take time and memory like their square


def embedding(fitted: Tensor, *others: Tensor) -> list[NDArray[np.float64]]:
    """Returns points in the plane, by an Isomap fitted to the first of them (Tenenbaum et al. 2000).

    Args:
        fitted: (points, columns), at least one; of more than 1500 the map is fitted to that many, evenly
            spaced. Up to four have their principal components.
        *others: further points, (any, columns), for the same map.

    Returns:
        For every argument (points, 2). Two points, or points on a line, lie on the first axis; a single one,
        or points that are all alike, at the origin.

    Raises:
        ValueError: points of other columns or not finite.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import Isomap

    arrays = [x.detach().cpu().double().numpy() for x in (fitted, *others)]
    few = arrays[0][_spread(len(fitted), _FITTED)]
    axes = min(2, len(few) - 1, few.shape[1])
    if axes == 0 or not few.std(0).any():
        return [np.zeros((len(x), 2)) for x in arrays]
    neighbours = min(_NEIGHBOURS, len(few) - 1)
    chosen: Any = PCA(axes) if len(few) <= 4 else Isomap(n_neighbors=neighbours, n_components=axes)
    chosen.fit(few)
    mapped = [np.asarray(chosen.transform(x), dtype=np.float64) for x in arrays]
    return [np.pad(x, ((0, 0), (0, 2 - axes))) for x in mapped]


def free_energy_bands(landscapes: Mapping[str, Landscape], path: str | os.PathLike[str]) -> None:
    """Draws free energies of all solutions over the course of training (Tramel et al. 2018, Fig. 5).

    Above: every solution a dot, their mean as a line, the number of solutions as another. Below: histograms
    of up to four of the landscapes, a solution counted once.

    Args:
        landscapes: Landscapes by name, such as the epoch, in their order.
        path: PNG file; one that is there is replaced in one step.

    Raises:
        ImportError: the ``plot`` extra is not installed.
        ValueError: no landscape.
    """
    _require_some(landscapes)
    figure = new_figure("free_energy_bands", (7.0, 6.0))
    upper, lower = figure.subplots(2, 1)
    names = list(landscapes)
    energies = [landscape.free_energies.cpu().numpy() for landscape in landscapes.values()]
    for x, values in enumerate(energies):
        upper.plot(np.full(len(values), x), values, ".", color="tab:blue", alpha=0.4, markersize=6)
    means = [values.mean() for values in energies]
    (mean,) = upper.plot(means, color="tab:red", marker="_", label="their mean free energy")
    upper.set_xticks(range(len(names)), names)
    upper.set(ylabel="TAP free energy", xlim=(-0.5, len(names) - 0.5))
    upper.set_title("Solutions, each a dot, in the course of training" if len(names) > 1 else "Solutions")
    numbers = upper.twinx()
    counts = [len(values) for values in energies]
    (count,) = numbers.plot(counts, color="tab:green", marker="+", label="number of different solutions")
    numbers.set(ylabel="different solutions", ylim=(0, 1.15 * max(counts)))
    numbers.yaxis.get_major_locator().set_params(integer=True)
    upper.legend([mean, count], [mean.get_label(), count.get_label()], fontsize="small")
    drawn = {names[i]: energies[i] for i in _spread(len(names), 4)}
    edges = np.histogram_bin_edges(np.concatenate([*drawn.values()]), 60)
    for name, values in drawn.items():
        shares = np.full(len(values), 1 / len(values))
        lower.hist(values, bins=edges, weights=shares, alpha=0.5, label=name)
    lower.legend(fontsize="small")
    lower.set(xlabel="TAP free energy", ylabel="share of the solutions")
    save_figure(figure, path)


def solution_maps(landscapes: Mapping[str, Landscape], path: str | os.PathLike[str]) -> None:
    """Draws a map of the solutions in the course of training (Tramel et al. 2018, Fig. 6).

    One map for all, fitted to the means of all layers. Colour is the free energy between the least and the
    greatest of its panel, size the number of starts.

    Args:
        landscapes: Landscapes of machines of one shape, by name, in their order.
        path: PNG file; one that is there is replaced in one step.

    Raises:
        ImportError: the ``plot`` extra is not installed.
        ValueError: no landscape.
    """
    _require_some(landscapes)
    clouds = [torch.cat(landscape.solutions.means, -1) for landscape in landscapes.values()]
    # Fitted to all: a map of the last alone has no place for two earlier solutions where it has one itself.
    _, *maps = embedding(torch.cat(clouds), *clouds)
    figure = new_figure("solution_maps", (max(4.4, 3.2 * len(maps)), 3.8))
    panels = np.atleast_1d(figure.subplots(1, len(maps), sharex=True, sharey=True))
    for panel, points, (name, landscape) in zip(panels, maps, landscapes.items(), strict=True):
        sizes = 30 + 120 * (landscape.counts / landscape.counts.sum()).sqrt().cpu().numpy()
        energies = landscape.free_energies.cpu().numpy()
        dots = panel.scatter(*points.T, c=energies, s=sizes, cmap="viridis", alpha=0.8, edgecolors="white")
        panel.set_title(f"{name}: {_number(len(points), 'solution')}", fontsize="small")
        _unmark(panel)
        if np.ptp(energies) > 1e-3:
            figure.colorbar(dots, ax=panel, label="TAP free energy")
    panels[0].margins(0.15)
    figure.suptitle("Mean-field solutions; larger ones have more starts", fontsize="medium")
    save_figure(figure, path)


def basin_map(
    X: Tensor,
    landscape: Landscape,
    path: str | os.PathLike[str],
    *,
    labels: Tensor | None = None,
) -> None:
    """Draws the starts, and on the same map the solutions that they flow to (Tramel et al. 2018, Fig. 7).

    A line joins each start with its solution; starts that belong to none, as they did not converge, are
    crosses.

    Args:
        X: visible states that the landscape started from, (starts, visible_width).
        landscape: Landscape from these starts.
        path: PNG file; one that is there is replaced in one step.
        labels: Labels of the starts, (starts,), for their colours; None: a colour is a basin.

    Raises:
        ImportError: the ``plot`` extra is not installed.
        ValueError: another number of starts or labels.
    """
    if len(X) != len(landscape.basin) or (labels is not None and len(labels) != len(X)):
        raise ValueError(
            f"X: expected the {len(landscape.basin)} starts of the landscape and a label for each, received "
            f"{len(X)}" + (f" and {len(labels)} labels" if labels is not None else "")
        )
    means = landscape.solutions.means[0].to(X)
    _, starts, solutions = embedding(torch.cat([means, X]), X, means)
    figure = new_figure("basin_map", (6.4, 6.2))
    from matplotlib.collections import LineCollection  # an extra, which the line above has asked for

    axis = figure.subplots()
    basin = landscape.basin.cpu().numpy()
    settled = basin >= 0
    colours = (landscape.basin if labels is None else labels).cpu().numpy() % 20
    lines = np.stack([starts[settled], solutions[basin[settled]]], 1)
    axis.add_collection(LineCollection(list(lines), colors="0.6", linewidths=0.4, alpha=0.4, zorder=1))
    what, palette, count = ("label", "tab10", 10) if labels is not None else ("its solution", "tab20", 20)
    dots = axis.scatter(
        *starts[settled].T, c=colours[settled], s=14, cmap=palette, vmin=-0.5, vmax=count - 0.5, zorder=2,
        label=f"a start, coloured by {what}",
    )  # fmt: skip
    if not settled.all():
        axis.scatter(*starts[~settled].T, c="0.5", s=14, marker="x", label="a start that did not converge")
    axis.scatter(
        *solutions.T, c="black", s=130, marker="*", edgecolors="white", zorder=3,
        label="a solution, with its number of starts",
    )  # fmt: skip
    for point, number in list(zip(solutions, landscape.counts.tolist(), strict=True))[:_NUMBERED]:
        axis.annotate(str(number), point, (6, 6), textcoords="offset points", fontsize="small", zorder=4)
    if labels is not None:
        figure.colorbar(dots, label="label")
    axis.set_title(
        f"Basins: {_number(len(X), 'start')} and the {_number(len(solutions), 'solution')} they flow to",
        fontsize="medium",
    )
    figure.legend(loc="outside lower center", ncols=2, fontsize="small")
    _unmark(axis)
    save_figure(figure, path)


def _unmark(axis: Any) -> None:
    """Takes the marks off the axes of a map: distances mean something, coordinates do not."""
    axis.set(xlabel="first coordinate (isomap)", ylabel="second coordinate", xticks=[], yticks=[])
    axis.xaxis.label.set_size("small")
    axis.yaxis.label.set_size("small")


def _spread(count: int, most: int) -> NDArray[np.int64]:
    """Returns at most so many indices, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def _number(count: int, what: str) -> str:
    """Returns a number of things in words."""
    return f"{count} {what}" + ("" if count == 1 else "s")


def _require_some(landscapes: Mapping[str, Landscape]) -> None:
    """Refuses an empty mapping."""
    if not landscapes:
        raise ValueError("landscapes: expected at least one, received none")
