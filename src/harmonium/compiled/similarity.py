"""Counts of sequences that agree with each other. Needs numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from harmonium.compiled.noise import jit


@jit
def count_alike(first: int, last: int, codes: Any, least: int, counts: Any) -> None:
    """Adds to every row's count those that agree with it in enough columns.

    Args:
        first, last: shares of the rows: row i is in share i modulo their number, the length of ``counts``.
        codes: (rows, columns), bytes.
        least: columns that have to agree.
        counts: (shares, rows), int64; a share adds to its own.
    """
    rows, columns = codes.shape
    shares = len(counts)
    for share in range(first, last):
        for i in range(share, rows, shares):
            for j in range(i):
                agree = np.int32(0)
                for k in range(columns):
                    agree += np.int32(codes[i, k] == codes[j, k])
                if agree >= least:
                    counts[share, i] += 1
                    counts[share, j] += 1


@jit
def join_alike(codes: Any, least: int, group: Any) -> None:
    """Fills the smallest row that is joined to each, by rows that agree in enough columns.

    Args:
        codes: (rows, columns), bytes.
        least: columns that have to agree.
        group: (rows,), int64.
    """
    rows, columns = codes.shape
    for i in range(rows):
        group[i] = i
    for i in range(rows):
        for j in range(i):
            a, b = i, j
            while group[a] != a:
                group[a] = group[group[a]]
                a = group[a]
            while group[b] != b:
                group[b] = group[group[b]]
                b = group[b]
            if a == b:
                continue
            agree = np.int32(0)
            for k in range(columns):
                agree += np.int32(codes[i, k] == codes[j, k])
            if agree >= least:
                group[max(a, b)] = min(a, b)
    for i in range(rows):
        a = i
        while group[a] != a:
            a = group[a]
        group[i] = a
