"""Calls of Triton kernels with tensors on a GPU: sums of products over rows on its matrix units.

As ``tensor_cores``, it needs no Triton to be loaded and never waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harmonium.backends.cuda.tensor_cores import (
    ALIGNED,
    FEW,
    PROGRAMS,
    SMALL,
    Tile,
    copies,
    described,
    find_largest,
    find_short,
    lie_side_by_side,
    on_device,
    room_in_8_bits,
    unit_of,
    vector_of,
)

_MANY = 1 << 13  # rows of a sum from which on more programs share them
_LOT = 1 << 15  # rows of whose digits, three products at a time, 32 bits hold the sum


class Pair(NamedTuple):
    """States or means of two layers, whose products are summed over rows.

    Attributes:
        x: (rows, k), float32.
        y: (rows, n), likewise.
        weight: a number; or a tensor (rows,) or (1,).
        x_exact: whether x is one of -1, 0 and 1 throughout; where it is not, sums in digits are NaN.
        y_exact: whether y is.
        x_bounded: whether x is between -1 and 1 throughout; likewise.
        y_bounded: whether y is.
    """

    x: Tensor
    y: Tensor
    weight: float | Tensor = 1.0
    x_exact: bool = True
    y_exact: bool = False
    x_bounded: bool = True
    y_bounded: bool = True


class Sums(NamedTuple):
    """Sums over rows: of x ⊗ y, (k, n), of x, (k,), and of y, (n,)."""

    products: Tensor
    x: Tensor
    y: Tensor


def statistics(pairs: Sequence[Pair], *, tile: Tile | None = None) -> Sums:
    """Sums weight · x ⊗ y, weight · x and weight · y over the rows of one or two pairs.

    Args:
        pairs: of the same two layers, for instance the data's with a weight 1/rows and the chains' with
            -1/chains.
        tile: how the work is cut, its rows and columns those of the result and its depth rows of x and y;
            None: ``statistics_tile`` decides by the shape.
    """
    if len(pairs) not in (1, 2):
        raise ValueError(f"pairs: expected one or two, received {len(pairs)}")
    pairs = [pair._replace(x=lie_side_by_side(pair.x), y=lie_side_by_side(pair.y)) for pair in pairs]
    first = pairs[0]
    k, n = first.x.shape[1], first.y.shape[1]
    out = Sums(*(first.x.new_empty(size, dtype=torch.float32) for size in ((k, n), (k,), (n,))))
    by_row = any(isinstance(pair.weight, Tensor) and pair.weight.numel() > 1 for pair in pairs)
    if tile is None:
        may_cut = copies(first.x) and not by_row
        tile = statistics_tile([len(pair.x) for pair in pairs], k, n, may_cut)
    if tile.cut and not by_row:
        _sum_digits(pairs, out, tile)
    else:
        _sum_in_bfloat16(pairs, out, tile)
    return out


def _sum_in_bfloat16(pairs: Sequence[Pair], out: Sums, tile: Tile) -> None:
    """Computes ``statistics`` of factors that are cut into bfloat16 in registers."""
    first, second = pairs[0], pairs[-1]
    k, n = first.x.shape[1], first.y.shape[1]
    tiles, row, size = _cover(k, n, tile)
    partial = None
    if tile.splits > 1:
        partial = torch.empty(tile.splits, size, dtype=torch.float32, device=first.x.device)
    vector = vector_of(k, n, *(side.stride(0) for pair in pairs for side in (pair.x, pair.y)))
    pointers, rows, strides, scales, options = [], [], [], [], {}
    for suffix, pair in (("", first), ("_2", second)):
        weights = pair.weight if isinstance(pair.weight, Tensor) else None
        pointers += [pair.x, pair.y, weights]
        lots = -(-len(pair.x) // tile.depth)
        rows += [len(pair.x), -(-lots // tile.splits) * tile.depth]
        by_row = weights is not None and weights.numel() > 1
        strides += [pair.x.stride(0) // vector, pair.y.stride(0) // vector]
        strides += [weights.stride(0) if weights is not None and by_row else 0]
        scales += [1.0 if isinstance(pair.weight, Tensor) else float(pair.weight)]
        options["X_PARTS" + suffix] = 1 if pair.x_exact else 3
        # Weights of rows leave no y exact.
        options["Y_PARTS" + suffix] = 1 if pair.y_exact and weights is None else 3
        options["WEIGHTS" + suffix] = weights is not None
    with on_device(first.x):
        _kernels().statistics[(tiles, tile.splits)](
            *pointers, *out, partial, *rows, k // vector, n // vector, *strides, *scales, row, size,
            **options, PAIRS=len(pairs), SPLITS=tile.splits, VECTOR=vector, APART=tile.apart,
            BELOW=tile.rows, ABOVE=tile.columns, ROWS=tile.depth, num_warps=tile.warps,
            num_stages=tile.stages,
        )  # fmt: skip
    if partial is not None:
        _add_partial(partial, out, row, size)


def _sum_digits(pairs: Sequence[Pair], out: Sums, tile: Tile) -> None:
    """Computes ``statistics`` of factors that are written in digits, one pair after the other.

    Where programs share the rows, what they sum of all pairs is added up at the end; else each pair is added
    to the result.
    """
    first = pairs[0]
    k, n = first.x.shape[1], first.y.shape[1]
    splits = max(tile.splits, *(-(-len(pair.x) // _LOT) for pair in pairs))
    tiles, row, size = _cover(k, n, tile)
    partial = None
    if splits > 1:
        partial = torch.empty(splits * len(pairs), size, dtype=torch.float32, device=first.x.device)
    vector = vector_of(k, n)
    wrong = torch.zeros(1, device=first.x.device)  # NaN from where a number is out of its bounds
    for number, pair in enumerate(pairs):
        rows = len(pair.x)
        lots = -(-rows // tile.depth)
        share = -(-lots // splits) * tile.depth
        x = turn(pair.x, pair.x_exact, pair.x_bounded, wrong)
        y = turn(pair.y, pair.y_exact, pair.y_bounded, wrong)
        weight, scale = pair.weight if isinstance(pair.weight, Tensor) else None, 1.0
        if not isinstance(pair.weight, Tensor):
            scale = float(pair.weight)
        x_at = described(x.digits, [tile.rows, tile.depth])
        y_at = described(y.digits, [tile.columns, tile.depth])
        with on_device(first.x):
            _kernels().statistics_of_digits[(tiles, splits)](
                x_at, y_at, x.largest, y.largest, weight, wrong, *out,
                None if partial is None else partial[number * splits :], rows, share, k // vector,
                n // vector, scale, x.unit, y.unit, row, size, X_PARTS=x.parts, Y_PARTS=y.parts,
                X_UNITS=x.largest is not None, Y_UNITS=y.largest is not None, WEIGHT=weight is not None,
                SPLITS=splits, GROW=number > 0, VECTOR=vector, BELOW=tile.rows, ABOVE=tile.columns,
                ROWS=tile.depth, num_warps=tile.warps,
                num_stages=tile.stages if x.parts == 1 or y.parts == 1 else 2,  # as there is room for
            )  # fmt: skip
        del x, y, x_at, y_at  # their memory serves the next pair
    if partial is not None:
        _add_partial(partial, out, row, size)


def _cover(k: int, n: int, tile: Tile) -> tuple[int, int, int]:
    """Returns the tiles of a result with its edges, the length of a row of them, and the size of all."""
    across, down = -(-(n + 1) // tile.columns), -(-(k + 1) // tile.rows)
    return across * down, across * tile.columns, down * tile.rows * across * tile.columns


def _add_partial(partial: Tensor, out: Sums, row: int, size: int) -> None:
    """Adds the sums of several splits up, in their order."""
    k, n = out.products.shape
    vector = vector_of(k, n)
    with on_device(partial):
        _kernels().add_partial[(-(-(k + 1) // 16) * -(-(n + 1) // 64),)](
            partial, *out, k // vector, n // vector, row, size, SPLITS=len(partial), VECTOR=vector, BELOW=16,
            ABOVE=64, num_warps=4,
        )  # fmt: skip


class _Turned(NamedTuple):
    """Numbers in digits, transposed, each row with a 1 below it.

    Attributes:
        digits: (parts · (n + 1), rows), int8.
        parts: digits of a number.
        largest: of every column, (n,), which its unit is a share of; None: all are between -1 and 1.
        unit: what the lowest digit counts of 1.
    """

    digits: Tensor
    parts: int
    largest: Tensor | None
    unit: float


def turn(x: Tensor, exact: bool, bounded: bool, wrong: Tensor) -> _Turned:
    """Writes states as one digit, or numbers as three; ``bounded``: they are between -1 and 1.

    Those that are not, or NaN, make ``wrong``, (1,), NaN; in digits nothing is left of it.
    """
    rows, n = x.shape
    parts = 1 if exact else 3
    digits = room_in_8_bits(parts * (n + 1), rows, x.device)
    largest: Tensor | None = None
    short = find_short(x) if exact else None
    source = x if short is None else short
    unit = 1.0 if exact else unit_of(parts)
    if not exact and not bounded:
        largest = find_largest(x)[0]
    vector = vector_of(n, source.stride(0))
    with on_device(x):
        _kernels().turn[(-(-rows // 64) * -(-(n + 1) // 64),)](
            source, largest, digits, wrong, rows, n // vector, source.stride(0) // vector,
            digits.stride(0) // ALIGNED, unit, 1 / unit, PARTS=parts, UNITS=largest is not None,
            VECTOR=vector, ROWS=64, COLUMNS=64, num_warps=4,
        )  # fmt: skip
    return _Turned(digits, parts, largest, unit)


def statistics_tile(rows: Sequence[int], k: int, n: int, cut: bool) -> Tile:
    """Returns how sums over the rows of one or two pairs are cut, by their shape; see ``tile_of``."""
    large = k * n > SMALL  # as many tiles as keep the device busy without a share of the rows each
    if sum(rows) <= 2 * FEW:
        return Tile(64, 32, 64, 4, 2)
    if not cut or (not large and sum(rows) <= _MANY):
        splits = 4 if sum(rows) <= _MANY else 9
        return Tile(128, 128, 32, 8, 4) if large else Tile(128, 128, 32, 8, 3, splits=splits)
    splits = max(1, PROGRAMS // (-(-(k + 1) // 128) * -(-(n + 1) // 128)))
    return Tile(128, 128, 128, 8, 3, splits=min(splits, -(-max(rows) // 128)), cut=True)


@cache
def _kernels() -> Any:
    return import_module("harmonium.backends.cuda.tensor_core_sum_kernels")
