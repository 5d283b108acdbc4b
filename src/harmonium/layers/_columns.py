"""Checks of data for kinds of units; unobserved entries (NaN) are ignored."""

from __future__ import annotations

from harmonium.data import Rows

_ROWS = 4096


def first_other(rows: Rows, values: tuple[float, ...]) -> float | None:
    """Returns the first entry that is none of a few values; None where there is none."""
    for chunk in rows.chunks(_ROWS):
        bad = ~chunk.isnan()
        for value in values:
            bad &= chunk != value
        if bool(bad.any()):
            return float(chunk[bad][0])
    return None


def value_range(rows: Rows) -> tuple[float, float]:
    """Returns the smallest and the largest entry."""
    seen = [chunk[~chunk.isnan()] for chunk in rows.chunks(_ROWS)]
    ends = [(float(x.min()), float(x.max())) for x in seen if len(x)]
    return min(low for low, _ in ends), max(high for _, high in ends)


def largest_count(rows: Rows, expected: str, kind: str) -> int:
    """Returns the largest of integers from 0, at least 1.

    Raises:
        ValueError: another entry; the message names what was expected for the kind of units.
    """
    largest = 1.0
    for chunk in rows.chunks(_ROWS):
        bad = (chunk < 0) | ((chunk != chunk.floor()) & ~chunk.isnan())
        if bool(bad.any()):
            raise ValueError(
                f'X: expected {expected} for visible="{kind}", received {float(chunk[bad][0]):g}'
            )
        largest = max(largest, float(chunk.nan_to_num(nan=0.0).max()))
    return int(largest)
