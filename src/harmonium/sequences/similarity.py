"""Sequences that are alike: how much each counts, and a split that keeps them together.

Families are sampled unevenly, as relatives of a few organisms fill the databases. The usual remedy counts a
sequence as 1/n where n sequences, itself one of them, agree with it in at least 80 % of the columns.
"""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium import _checks, _random
from harmonium.backends import runs

_BLOCK = 512  # rows that are compared at a time without numba


def similarity_weights(codes: Any, threshold: float = 0.8) -> Tensor:
    """Returns 1/n of every sequence, n the number of sequences that agree with it; their sum is M_eff.

    The time is that of all pairs: 3,000 sequences of 140 columns take a tenth of a second, 30,000 of 112
    columns 4 seconds of one thread.

    Args:
        codes: (sequences, sites), such as ``Alignment.codes``. A gap is a letter like others.
        threshold: share of the columns that agree, in (0, 1]; 1 counts equal sequences once.

    Returns:
        (sequences,), float64, in (0, 1]; ``weights`` of ``hm.train``, ``sample_weight`` of estimators.

    Raises:
        ValueError: codes of another shape, or a threshold out of range.

    Examples:
        >>> import harmonium as hm
        >>> hm.sequences.similarity_weights([[1, 2, 0, 3], [1, 2, 0, 3], [2, 0, 3, 1]])
        tensor([0.5000, 0.5000, 1.0000], dtype=torch.float64)
    """
    rows, fewest_equal = _read(codes, threshold)
    alike = runs.count_alike(rows, fewest_equal)
    if alike is None:
        alike = np.concatenate([_agree(rows, part, fewest_equal).sum(1) for part in _parts(len(rows))])
    weights = 1 / torch.from_numpy(alike).double()
    if threshold < 0.5 and weights.sum() < len(rows) / 2:
        _checks.warn(
            f"reweight: {len(rows)} rows count as {weights.sum():.3g}, as rows that agree in {threshold:g} "
            f"of their columns are one. plmc and EVcouplings are given the distance instead: their "
            f"{threshold:g} is {1 - threshold:g} here"
        )
    return weights


def split_by_similarity(
    codes: Any, fraction: float = 0.2, threshold: float = 0.8, *, seed: int | torch.Generator = 0
) -> tuple[Tensor, Tensor]:
    """Splits sequences so that none held out is like one to learn from: a random split flatters.

    Sequences that agree, directly or through others, form clusters; clusters are held out one after another,
    in a random order, as long as they fit.

    Args:
        codes: (sequences, sites).
        fraction: Share of the sequences to hold out, in (0, 1); less where a large cluster does not fit.
        threshold: share of the columns from which on two are alike, in (0, 1].
        seed: an int or a generator.

    Returns:
        Numbers of the sequences to learn from, and of those held out, each rising, int64.

    Raises:
        ValueError: one cluster alone, or arguments out of range.

    Examples:
        >>> import harmonium as hm
        >>> codes = [[1, 2, 0, 3], [1, 2, 0, 3], [2, 0, 3, 1], [0, 0, 0, 0]]
        >>> [x.tolist() for x in hm.sequences.split_by_similarity(codes, 0.5, seed=0)]
        [[0, 1], [2, 3]]
    """
    rows, fewest_equal = _read(codes, threshold)
    fraction = _checks.real(fraction, "fraction", low=1e-9, high=1 - 1e-9)
    group = runs.join_alike(rows, fewest_equal)
    if group is None:
        group = _join(rows, fewest_equal)
    first, which, sizes = np.unique(group, return_inverse=True, return_counts=True)
    room, out = round(fraction * len(rows)), np.zeros(len(first), bool)
    for cluster in _random.permutation(len(first), _random.as_generator(seed)).tolist():
        if sizes[cluster] <= room:
            out[cluster], room = True, room - int(sizes[cluster])
    if not out.any():
        raise ValueError(
            f"codes: expected clusters of sequences of which one has at most {fraction:.0%} of all, received "
            f"{len(first)}, the smallest of {sizes.min()} of {len(rows)}; raise threshold or fraction"
        )
    held = torch.from_numpy(out[which])
    return (~held).nonzero().flatten(), held.nonzero().flatten()


def _read(codes: Any, threshold: float) -> tuple[NDArray[np.uint8], int]:
    """Returns codes as bytes, and how many columns of two rows have to agree."""
    values = np.asarray(codes)
    if values.ndim != 2 or 0 in values.shape or values.dtype.kind not in "iuf":
        raise ValueError(
            f"codes: expected (sequences, sites) of numbers, received {values.dtype} of shape {values.shape}"
        )
    if not ((values == np.round(values)) & (values >= -1) & (values < 255)).all():
        raise ValueError("codes: expected whole numbers from -1 to 254")
    threshold = _checks.real(threshold, "threshold", low=1e-9, high=1.0)
    fewest_equal = ceil(threshold * values.shape[1] - 1e-9)
    return np.ascontiguousarray(values.astype(np.int16) % 256).astype(np.uint8), fewest_equal


def _parts(rows: int) -> list[slice]:
    return [slice(start, min(start + _BLOCK, rows)) for start in range(0, rows, _BLOCK)]


def _agree(rows: NDArray[np.uint8], part: slice, fewest_equal: int) -> NDArray[np.bool_]:
    """Returns which of all rows agree with some, (some, rows)."""
    alike = np.zeros((part.stop - part.start, len(rows)), np.int32)
    for column in rows.T:
        alike += column[part, None] == column[None, :]
    return alike >= fewest_equal


def _join(rows: NDArray[np.uint8], fewest_equal: int) -> NDArray[np.int64]:
    """Returns the smallest row that is joined to each."""
    group = np.arange(len(rows))
    while True:
        before = group.copy()
        for part in _parts(len(rows)):
            agree = _agree(rows, part, fewest_equal)
            group[part] = np.where(agree, group[None, :], len(rows)).min(1)
        group = group[group]
        if (group == before).all():
            return group
