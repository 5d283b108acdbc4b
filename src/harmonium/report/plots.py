"""Plots of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from harmonium.report._figure import new_figure, save_figure
from harmonium.training.history import RESERVED


def learning_curve(
    history: Sequence[Mapping[str, Any]],
    path: str | os.PathLike[str],
    *,
    metrics: Sequence[str] | None = None,
    references: Mapping[str, float] | None = None,
) -> None:
    """Draw the metrics of a run above its gradient norm, over the updates.

    Args:
        history: ``TrainingRun.history``.
        path: PNG file; one that is there is replaced in one step.
        metrics: which numbers to draw above; None: all that the history holds beside step, seconds, learning
            rate and gradient norm.
        references: levels to mark beside the metrics, by their names.

    Raises:
        ImportError: the ``plot`` extra is not installed.
        ValueError: an empty history, or a metric that it does not hold.
    """
    figure = new_figure("learning_curve", (6.4, 5.6))
    if not history:
        raise ValueError("history: expected at least one record, received none")
    known = list(dict.fromkeys(name for record in history for name in record))
    names = [name for name in known if name not in RESERVED] if metrics is None else list(metrics)
    for name in names:
        if name not in known:
            raise ValueError(f"metrics: expected some of {', '.join(known)}; received {name!r}")

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
    steps = [record["step"] for record in history]
    lower.plot(steps, [record["gradient_norm"] for record in history], color="0.3")
    lower.set(xlabel="update", ylabel="gradient norm")
    save_figure(figure, path)
