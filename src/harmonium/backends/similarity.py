"""Counts of sequences that agree with each other. Needs numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from harmonium.backends.noise import inlined, jit


@jit
def count_alike(first: int, last: int, codes: Any, least: int, counts: Any) -> None:
    """Adds to every row's count, (shares, rows), those that agree with it in at least ``least`` columns.

    Row i of the codes, (rows, columns) bytes, is in share i modulo their number; a share has its own counts.
    """
    rows, shares = len(codes), len(counts)
    for share in range(first, last):
        for i in range(share, rows, shares):
            for j in range(i):
                if _agree(codes, i, j) >= least:
                    counts[share, i] += 1
                    counts[share, j] += 1


@jit
def join_alike(codes: Any, least: int, group: Any) -> None:
    """Fills the smallest row that is joined to each, (rows,), by rows that agree in ``least`` columns."""
    rows = len(codes)
    for i in range(rows):
        group[i] = i
    for i in range(rows):
        for j in range(i):
            a, b = _first(group, i), _first(group, j)
            if a != b and _agree(codes, i, j) >= least:
                group[max(a, b)] = min(a, b)
    for i in range(rows):
        group[i] = _first(group, i)


@inlined
def _agree(codes: Any, i: int, j: int) -> Any:
    """Returns in how many columns two rows agree."""
    count = np.int32(0)
    for k in range(codes.shape[1]):
        count += np.int32(codes[i, k] == codes[j, k])
    return count


@inlined
def _first(group: Any, i: int) -> Any:
    """Returns the first row of a group, and shortens the way to it."""
    while group[i] != i:
        group[i] = group[group[i]]
        i = group[i]
    return i
