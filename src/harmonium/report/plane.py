"""Densities and samples in the plane."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium.machine.storage import replace_file

_POINTS = 150
_SHOWN = 8.0  # nats below the maximum at which the colours end


def plane(
    panels: Mapping[str, Callable[[Tensor], Tensor]],
    samples: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    low: Sequence[float],
    high: Sequence[float],
) -> None:
    """Draw log-densities over a rectangle, one panel each, above samples of the same names.

    A machine's own map is ``lambda v: -machine.free_energy(v)``; each panel is shown relative to its maximum,
    so that a log-density needs no normaliser.

    Args:
        panels: caption to a function from points (n, 2), float32, to values (n,).
        samples: caption to points (n, 2); captions without points get an empty panel.
        path: PNG file; one that is there is replaced in one step.
        low: lower left corner.
        high: upper right corner.

    Raises:
        ImportError: the ``plot`` extra is not installed.
        ValueError: no panels, or corners that are no rectangle.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plane: needs matplotlib; pip install 'harmonium[plot]'") from error
    if not panels:
        raise ValueError("panels: expected at least one, received none")
    if len(low) != 2 or len(high) != 2 or not (low[0] < high[0] and low[1] < high[1]):
        raise ValueError(f"low, high: expected the corners of a rectangle, received {low} and {high}")
    axes = [torch.linspace(float(a), float(b), _POINTS, device="cpu") for a, b in zip(low, high, strict=True)]
    x, y = torch.meshgrid(*axes, indexing="xy")
    grid = torch.stack([x.flatten(), y.flatten()], -1)
    extent = (low[0], high[0], low[1], high[1])

    figure = Figure(figsize=(2.1 * len(panels), 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(2, len(panels), squeeze=False)
    for (caption, density), upper, lower in zip(panels.items(), *rows, strict=True):
        with torch.no_grad():
            values = torch.as_tensor(density(grid)).cpu().double().reshape(_POINTS, _POINTS)
        _checks.finite(values, f"panels[{caption!r}]")
        shown = (values - values.max()).clamp(min=-_SHOWN)
        upper.imshow(shown.numpy(), origin="lower", extent=extent, aspect="auto", cmap="viridis")
        upper.set_title(caption, fontsize=8)
        if caption in samples:
            points = samples[caption]
            points = np.asarray(points.detach().cpu() if isinstance(points, Tensor) else points)
            lower.plot(points[:, 0], points[:, 1], ".", markersize=1, color="0.2")
        lower.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        for each in (upper, lower):
            each.tick_params(labelsize=6)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    replace_file(Path(path), buffer.getvalue())
