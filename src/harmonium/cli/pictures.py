"""Pictures that commands draw: the range of their greys and words for their titles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from harmonium.cli.coding import source_of
from harmonium.data.dataset import dense
from harmonium.tables import Codec

Limits = tuple[float, float]


def data_range(coding: Codec, *rows: NDArray[Any] | None) -> Limits | None:
    """The smallest and largest number of the data, which are to be black and white.

    Real units go beyond the data's numbers, and a single pixel far off would turn all others grey.

    Returns:
        None where units are discrete, whose states say what is black and white, or no data are known.
    """
    machine = coding.machine
    if all(machine.layers[l].discrete for l in machine.visible):
        return None
    known = next((x for x in rows if x is not None), None)
    if known is None:
        try:
            source, _ = source_of(machine)
            known = None if source is None else dense(coding.read(source).samples)
        except (ValueError, OSError, ImportError):  # moved since, or of another kind
            return None
    if known is None or known.dtype.kind not in "biuf":
        return None
    low, high = float(np.nanmin(known)), float(np.nanmax(known))
    return (low, high) if low < high else None


def in_words(limits: Limits | None) -> str:
    """Describes the range of the greys, for the end of a title; empty without limits."""
    return "" if limits is None else f"; black and white are the data's range, {limits[0]:g} to {limits[1]:g}"


def images_of(coding: Codec, states: Tensor) -> NDArray[Any]:
    """Visible states as rows in the units of the data, NaN where a state is NaN."""
    rows = coding.decode(states.nan_to_num())[0]
    return np.asarray(rows if isinstance(rows, np.ndarray) else rows.numbers())
