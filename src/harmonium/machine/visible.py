"""Which visible layer suits data, and how the data become its states."""

from __future__ import annotations

import torch

from harmonium import _checks
from harmonium.data import Encoder, Identity, OneHot, Rows, Standardise
from harmonium.layers import (
    Bernoulli,
    Categorical,
    Gaussian,
    Layer,
    Spin,
    TruncatedGaussBernoulli,
    TruncatedGaussian,
)

_ROWS = 4096
VISIBLE_KINDS = (
    *("auto", "bernoulli", "spin", "categorical", "gaussian"),
    *("truncated_gaussian", "truncated_gauss_bernoulli"),
)


def visible_for(rows: Rows, kind: str = "auto") -> tuple[Layer, Encoder]:
    """A visible layer for data, and the encoder that turns data into its states and samples back.

    Args:
        rows: the data.
        kind: "auto": Bernoulli where every value is 0 or 1, Spin where every value is -1 or +1 (the density
            of such data has no upper bound), else Gaussian. "bernoulli" takes 0 and 1; "spin" takes -1 and
            +1, or 0 and 1 which become them; "categorical" takes integers 0..q-1, with q one more than the
            largest; "gaussian" takes any numbers and standardises the columns; "truncated_gaussian" takes any
            numbers and moves the range of all of them to [0, 1], where it is not within [0, 1] already;
            "truncated_gauss_bernoulli" takes numbers in [0, 1], of which exact zeros are a kind of their own.

    Raises:
        ValueError: an unknown kind, or data that the kind does not take; the message names the value.
    """
    _checks.one_of(kind, "visible", VISIBLE_KINDS)
    if kind == "auto":
        two_valued = {"bernoulli": (0.0, 1.0), "spin": (-1.0, 1.0)}
        kind = next((name for name, pair in two_valued.items() if _outside(rows, pair) is None), "gaussian")
    if kind == "gaussian":
        return Gaussian(rows.width), Standardise.fit(rows)
    if kind.startswith("truncated"):
        low, high = _range(rows)
        inside = low >= 0 and high <= 1
        if kind == "truncated_gaussian":
            encoder = Identity() if inside else Standardise(low, (high - low) or 1.0)
            return TruncatedGaussian(rows.width, 0.0, 1.0), encoder
        if not inside:
            raise ValueError(
                'X: expected values in [0, 1] for visible="truncated_gauss_bernoulli", received '
                f"{low if low < 0 else high:g}; divide grey levels by their largest value"
            )
        return TruncatedGaussBernoulli(rows.width, 0.0, 1.0), Identity()
    if kind == "categorical":
        largest = _largest_integer(rows)
        return Categorical(rows.width, largest + 1), OneHot(largest + 1)
    wrong = _outside(rows, (0.0, 1.0))
    if kind == "spin":
        if wrong is None:
            return Spin(rows.width), Standardise(0.5, 0.5)
        wrong = _outside(rows, (-1.0, 1.0))
        if wrong is None:
            return Spin(rows.width), Identity()
        raise ValueError(
            f'X: expected values in {{-1, 1}} or {{0, 1}} for visible="spin", received {wrong:g}'
        )
    if wrong is not None:
        raise ValueError(
            f'X: expected values in {{0, 1}} for visible="bernoulli", received {wrong:g}; '
            "binarise the data first (harmonium.data.threshold, harmonium.data.bernoulli_binarise)"
        )
    return Bernoulli(rows.width), Identity()


def _outside(rows: Rows, values: tuple[float, float]) -> float | None:
    """The first entry that is neither of the two values."""
    for chunk in rows.chunks(_ROWS):
        bad = (chunk != values[0]) & (chunk != values[1])
        if bool(bad.any()):
            return float(chunk[bad][0])
    return None


def _range(rows: Rows) -> tuple[float, float]:
    """The smallest and the largest entry."""
    ends = [(float(chunk.min()), float(chunk.max())) for chunk in rows.chunks(_ROWS)]
    return min(low for low, _ in ends), max(high for _, high in ends)


def _largest_integer(rows: Rows) -> int:
    largest = 1.0
    for chunk in rows.chunks(_ROWS):
        bad = (chunk < 0) | (chunk != torch.floor(chunk))
        if bool(bad.any()):
            raise ValueError(
                f'X: expected integers 0..q-1 for visible="categorical", received {float(chunk[bad][0]):g}'
            )
        largest = max(largest, float(chunk.max()))
    return int(largest)
