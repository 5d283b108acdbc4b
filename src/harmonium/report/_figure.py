"""Figures: matplotlib without anything global."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from harmonium.machine.storage import replace_file


def new_figure(asking: str, size: tuple[float, float]) -> Any:
    """An empty figure.

    Args:
        asking: name of the public function that draws, for the message.
        size: width and height in inches.

    Raises:
        ImportError: the ``plot`` extra is not installed.
    """
    require_figures(asking)
    # Without pyplot nothing global is touched, neither the backend nor a list of open figures.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def require_figures(asking: str) -> None:
    """Refuse what will need a figure, before any work is done for it.

    Raises:
        ImportError: the ``plot`` extra is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError(f"{asking}: needs matplotlib; pip install 'harmonium[plot]'") from error


def save_figure(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure as a PNG file; one that is there is replaced in one step."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    replace_file(Path(path), buffer.getvalue())
