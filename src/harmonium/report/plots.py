"""Figures of training, temperatures, directions and trees, by matplotlib without anything global."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium._storage import replace_file
from harmonium.chains import Thermodynamics
from harmonium.coupled import Meetings, mixing_bound, mixing_limit
from harmonium.meanfield import Node
from harmonium.training import RESERVED

_SWEEPS = 500  # a curve over more sweeps is drawn at so many of them
_DIRECTIONS = 10  # singular values that are drawn: matplotlib has as many colours
_CURVES = 5  # overlap distributions that are drawn, from the coldest to the hottest


def new_figure(asking: str, size: tuple[float, float]) -> Any:
    """Returns an empty figure for a public function, so many inches wide and high.

    Raises:
        ImportError: the ``plot`` extra is not installed; the message names the function.
    """
    require_figures(asking)
    # Without pyplot nothing global is touched, neither the backend nor a list of open figures.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def has_figures() -> bool:
    """Returns whether figures can be drawn: the ``plot`` extra is installed."""
    try:
        require_figures("figures")
    except ImportError:
        return False
    return True


def require_figures(asking: str) -> None:
    """Refuses what will need a figure, before any work is done for it.

    Raises:
        ImportError: the ``plot`` extra is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError(f"{asking}: needs matplotlib; pip install 'harmonium[plot]'") from error


def save_figure(figure: Any, path: str | os.PathLike[str], dpi: int = 110) -> None:
    """Writes a figure as a PNG file; one that is there is replaced in one step."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    replace_file(Path(path), buffer.getvalue())


def learning_curve(
    history: Sequence[Mapping[str, Any]],
    path: str | os.PathLike[str],
    *,
    references: Mapping[str, float] | None = None,
) -> None:
    """Draws the numbers of a run above its gradient norm, over the updates.

    These are all that the history holds beside step, seconds, learning rate and gradient norm.

    Args:
        history: ``TrainingRun.history``.
        path: PNG file; one that is there is replaced in one step.
        references: levels to mark beside the metrics, by their names.

    Raises:
        ImportError: the ``plot`` extra is not installed.
        ValueError: an empty history.
    """
    figure = new_figure("learning_curve", (6.4, 5.6))
    if not history:
        raise ValueError("history: expected at least one record, received none")
    known = dict.fromkeys(name for record in history for name in record)
    names = [name for name in known if name not in RESERVED]
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    for name in names:
        points = [(record["step"], record[name]) for record in history if name in record]
        upper.plot(*zip(*points, strict=True), marker=".", label=name.replace("_", " "))
    for name, level in (references or {}).items():
        upper.axhline(level, linestyle="--", color="0.4", linewidth=1)
        upper.annotate(name, (1, level), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    if names:
        upper.legend(loc="best", fontsize="small")
        nats = all("likelihood" in name or "bound" in name for name in names)
        upper.set(ylabel="nats" if nats else names[0].replace("_", " ") if len(names) == 1 else "metrics")
    upper.set_title("Learning curve")
    norms = [(record["step"], record["gradient_norm"]) for record in history if "gradient_norm" in record]
    lower.plot([step for step, _ in norms], [norm for _, norm in norms], color="0.3")
    lower.set(xlabel="update", ylabel="gradient norm")
    save_figure(figure, path)


def mixing_heights(meetings: Meetings) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns sweeps, the bound on the total variation there, and its upper 95 % limit.

    With capped pairs the fraction of pairs still apart, and None.
    """
    times, capped = meetings.times, meetings.capped
    bounded = not bool(capped.any())
    last = int(times.max()) - (meetings.lag if bounded else 0)
    steps = torch.linspace(0, last, min(last + 1, _SWEEPS), dtype=torch.float64).round().long()
    if bounded:
        return steps, mixing_bound(meetings, steps).cpu(), mixing_limit(meetings, steps).cpu()
    apart = (times > steps.to(times.device).unsqueeze(-1)) | capped
    return steps, apart.double().mean(-1).cpu(), None


def observables_by_temperature(
    thermodynamics: Thermodynamics,
    path: str | os.PathLike[str],
    *,
    references: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
) -> None:
    """Draws energy, heat capacity and order parameters over β, and P(q) at five temperatures, with errors.

    Args:
        thermodynamics: from ``chains.thermodynamics``.
        path: PNG file; one that is there is replaced in one step.
        references: known curves by the name of the observable, such as "heat capacity": β and values.

    Raises:
        ImportError: the ``plot`` extra is not installed.
        TypeError: not ``Thermodynamics``.
        ValueError: a reference to an observable that is not there.
        OSError: it cannot be written; a file already there stays as it was.
    """
    _checks.instance(thermodynamics, "thermodynamics", Thermodynamics, "observables by temperature")
    known = dict(references or {})
    for name in known:
        _checks.one_of(name, "references", tuple(thermodynamics.values))
    names: list[str] = [
        name for name in ("energy", "heat capacity", "|m|", "q²") if name in thermodynamics.values
    ]
    names += [name for name in known if name not in names]
    figure = new_figure("observables_by_temperature", (3.4 * (len(names) + 1), 3.2))
    *axes, last = figure.subplots(1, len(names) + 1)
    betas = thermodynamics.betas.cpu()
    for name, axis in zip(names, axes, strict=True):
        value, error = (x.cpu() for x in thermodynamics.values[name])
        axis.errorbar(betas, value, error, fmt=".", markersize=4, capsize=2)
        if name in known:
            axis.plot(*known[name], color="0.4", linewidth=1, zorder=0)
        axis.set(xlabel="inverse temperature β", title=name)
    middles, widths = (
        (thermodynamics.edges[1:] + thermodynamics.edges[:-1]).cpu() / 2,
        thermodynamics.edges.diff().cpu(),
    )
    for i in np.unique(np.linspace(0, len(betas) - 1, _CURVES).round().astype(int)):
        density, error = (x[i].cpu() for x in thermodynamics.overlap_density)
        last.errorbar(middles, density, error, linewidth=1, label=f"β = {float(betas[i]):.3g}")
    last.set(xlabel="overlap q", title="P(q)", xlim=(float(middles[0] - widths[0]), 1 + float(widths[-1])))
    last.legend(fontsize="x-small")
    save_figure(figure, path)


def draw_directions(
    ages: Sequence[float], values: Sequence[Tensor], rows: Mapping[str, Tensor], path: Path
) -> None:
    """Draws singular values over the ages of a training, and rows along the two leading directions.

    Args:
        ages: Ages of the machines, in updates.
        values: Singular values at every age, each (k,).
        rows: Rows along the directions, (rows, at least 2), by the name of their set.
        path: PNG file to write.
    """
    figure = new_figure("draw_directions", (9.0, 4.0))
    left, right = figure.subplots(1, 2)
    for a in range(min(_DIRECTIONS, len(values[0]))):
        left.plot(ages, [float(x[a]) for x in values], marker=".", linewidth=1)
    left.set(xlabel="updates", ylabel="singular value of the couplings")
    for name, points in rows.items():
        right.scatter(points[:, 0], points[:, 1], s=4, alpha=0.4, label=name, linewidths=0)
    right.set(xlabel="first direction", ylabel="second direction")
    right.legend(fontsize="small")
    save_figure(figure, path)


def draw_tree(root: Node, path: Path) -> None:
    """Draws a tree of solutions from left, the first age, to right, as a PNG file."""
    figure = new_figure("draw_tree", (8.0, 5.0))
    axis, leaves = figure.subplots(), count()

    def draw(node: Node) -> float:
        """Draws what hangs on a node and returns its height."""
        if not node.children:
            y = float(next(leaves))
            axis.text(node.age, y, f" {node.rows}", va="center", fontsize="small")
            return y
        heights = [draw(child) for child in node.children]
        for child, y in zip(node.children, heights, strict=True):
            axis.plot([node.age, child.age], [y, y], color="0.3", linewidth=1)
        axis.plot([node.age, node.age], [min(heights), max(heights)], color="0.3", linewidth=1)
        return sum(heights) / len(heights)

    draw(root)
    axis.set(xlabel="updates", yticks=[])
    save_figure(figure, path)
