"""Triton kernels: sums of products over rows on matrix units, of factors as ``tensor_core_kernels`` has them.

Needs Triton; ``tensor_core_sums`` calls what stands here.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from harmonium.backends.cuda.tensor_core_kernels import add_product, digits_of, parts_of, sum_digits, whole_of


@triton.jit(do_not_specialize=["rows"])
def turn(
    x_ptr, largest_ptr, turned_ptr, wrong_ptr, rows, width, x_row, turned_row, unit, most,
    PARTS: tl.constexpr, UNITS: tl.constexpr, VECTOR: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Writes the digits of xᵀ, (parts, n + 1, 16 · turned_row), zeros beyond the rows and a 1 below each row.

    Numbers are multiples of ``unit``, or of it times the ``largest`` of a column; with one digit
    they are whole.
    ``most`` is the 1, as a multiple of ``unit``. ``wrong`` becomes NaN where a number is none of -1, 0 and 1,
    or not between them.
    """
    n = width * VECTOR
    tiles = tl.cdiv(n + 1, COLUMNS)
    tile = tl.program_id(0)
    row = (tile // tiles) * ROWS + tl.arange(0, ROWS)
    column = (tile % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    there = (row[:, None] < rows) & (column[None, :] < n)
    x = tl.load(x_ptr + row[:, None].to(tl.int64) * (x_row * VECTOR) + column[None, :], mask=there, other=0)
    x = x.to(tl.float32)
    if not UNITS:  # what is found to be the largest cannot be exceeded, and NaN is the largest
        inside = tl.abs(x) <= 1.001  # digits reach so far
        if PARTS == 1:
            inside = (x == 0.0) | (tl.abs(x) == 1.0)
        if tl.max(tl.where(inside, 0, 1)) > 0:
            tl.store(wrong_ptr, float("nan"))
    if PARTS > 1:
        by = unit
        if UNITS:
            by = (tl.load(largest_ptr + column, mask=column < n, other=0.0) * unit)[None, :]
        x = whole_of(x, by + tl.zeros_like(x))
    x = tl.where((column[None, :] == n) & (row[:, None] < rows), most, x)
    first, second, third = digits_of(x, PARTS)
    length = turned_row * 16
    at = turned_ptr + column[None, :].to(tl.int64) * length + row[:, None]
    inside = (column[None, :] <= n) & (row[:, None] < length)
    tl.store(at, first, mask=inside)
    if PARTS >= 2:
        tl.store(at + (n + 1).to(tl.int64) * length, second, mask=inside)
    if PARTS >= 3:
        tl.store(at + 2 * (n + 1).to(tl.int64) * length, third, mask=inside)


@triton.jit(do_not_specialize=["rows", "share", "scale", "x_unit", "y_unit"])
def statistics_of_digits(
    x_at, y_at, x_largest_ptr, y_largest_ptr, weight_ptr, wrong_ptr, total_ptr, x_sum_ptr, y_sum_ptr,
    partial_ptr, rows, share, inner, width, scale, x_unit, y_unit, partial_row, partial_size,
    X_PARTS: tl.constexpr, Y_PARTS: tl.constexpr, X_UNITS: tl.constexpr, Y_UNITS: tl.constexpr,
    WEIGHT: tl.constexpr, SPLITS: tl.constexpr, GROW: tl.constexpr, VECTOR: tl.constexpr,
    BELOW: tl.constexpr, ABOVE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Writes scale · weight · Σ x ⊗ y over the rows, or adds it to what is there; shares for ``add_partial``.

    x_at and y_at describe what ``turn`` made of x and y, whose last units are 1 in every row, so that the
    sums of y and of x stand there. Products of digits below the last one are left out.
    """
    k, n = inner * VECTOR, width * VECTOR
    tiles = tl.cdiv(n + 1, ABOVE)
    tile, split = tl.program_id(0), tl.program_id(1)
    start_below, start_above = (tile // tiles) * BELOW, (tile % tiles) * ABOVE
    below, above = start_below + tl.arange(0, BELOW), start_above + tl.arange(0, ABOVE)
    first = split * share
    high = tl.zeros((BELOW, ABOVE), tl.int32)
    middle, small = high, high
    for row in range(first, tl.minimum(first + share, rows), ROWS):
        x1, y1 = x_at.load([start_below, row]), tl.trans(y_at.load([start_above, row]))
        high = tl.dot(x1, y1, high, out_dtype=tl.int32)
        if X_PARTS == 3:
            x2 = x_at.load([k + 1 + start_below, row])
            x3 = x_at.load([2 * (k + 1) + start_below, row])
            middle = tl.dot(x2, y1, middle, out_dtype=tl.int32)
            small = tl.dot(x3, y1, small, out_dtype=tl.int32)
        if Y_PARTS == 3:
            y2 = tl.trans(y_at.load([n + 1 + start_above, row]))
            y3 = tl.trans(y_at.load([2 * (n + 1) + start_above, row]))
            middle = tl.dot(x1, y2, middle, out_dtype=tl.int32)
            small = tl.dot(x1, y3, small, out_dtype=tl.int32)
            if X_PARTS == 3:
                small = tl.dot(x2, y2, small, out_dtype=tl.int32)
    total = sum_digits(high, middle, small, max(X_PARTS, Y_PARTS))
    if X_PARTS == 3 and Y_PARTS == 3:
        total *= 65536.0
    if WEIGHT:
        scale *= tl.load(weight_ptr)
    of_x, of_y = tl.full((BELOW,), 1.0, tl.float32) * x_unit, tl.full((ABOVE,), 1.0, tl.float32) * y_unit
    if X_UNITS:
        of_x = tl.where(below < k, tl.load(x_largest_ptr + below, mask=below < k, other=0.0) * x_unit, of_x)
    if Y_UNITS:
        of_y = tl.where(above < n, tl.load(y_largest_ptr + above, mask=above < n, other=0.0) * y_unit, of_y)
    total = total * of_x[:, None] * of_y[None, :] * scale + tl.load(wrong_ptr)
    if SPLITS == 1:
        _write(total, total_ptr, x_sum_ptr, y_sum_ptr, start_below, start_above, k, n, GROW, BELOW, ABOVE)
    else:
        at = partial_ptr + split.to(tl.int64) * partial_size
        tl.store(at + below[:, None].to(tl.int64) * partial_row + above[None, :], total)


@triton.jit
def _sum_rows(
    x_ptr, y_ptr, weight_ptr, first, last, x_row, y_row, weight_row,
    below, above, k, n, X_PARTS: tl.constexpr, Y_PARTS: tl.constexpr,
    WEIGHTS: tl.constexpr, APART: tl.constexpr, BELOW: tl.constexpr, ABOVE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Returns Σ weight · x ⊗ y over rows first..last for a tile of units below and above.

    x and y have a unit more that is 1 in every row, so that the sums of y and of x stand there.
    """
    total = tl.zeros((BELOW, ABOVE), tl.float32)
    step = tl.arange(0, ROWS)
    x_at = x_ptr + (first + step)[:, None].to(tl.int64) * x_row + below[None, :]
    y_at = y_ptr + (first + step)[:, None].to(tl.int64) * y_row + above[None, :]
    for row in range(first, last, ROWS):
        inside = row + step < last
        y = tl.load(y_at, mask=inside[:, None] & (above[None, :] < n), other=0.0)
        x = tl.load(x_at, mask=inside[:, None] & (below[None, :] < k), other=0.0)
        x = tl.where(below[None, :] == k, 1.0, x.to(tl.float32))
        y = tl.where(above[None, :] == n, 1.0, y.to(tl.float32))
        if WEIGHTS:
            weight = tl.load(weight_ptr + (row + step) * weight_row, mask=inside, other=0.0)
            y = y * weight[:, None]
        y1, y2, y3 = parts_of(y)
        x1, x2, x3 = parts_of(tl.trans(x))
        total = add_product(total, x1, x2, x3, y1, y2, y3, X_PARTS, Y_PARTS, APART)
        x_at += ROWS * x_row
        y_at += ROWS * y_row
    return total


@triton.jit
def _write(
    sums, total_ptr, x_sum_ptr, y_sum_ptr, first, start, k, n,
    GROW: tl.constexpr, BELOW: tl.constexpr, ABOVE: tl.constexpr,
):  # fmt: skip
    """Writes a tile of Σ x ⊗ y, and of Σ x and Σ y beyond its edges, or adds it to what stands there."""
    below, above = first + tl.arange(0, BELOW), start + tl.arange(0, ABOVE)
    place = below[:, None].to(tl.int64) * n + above[None, :]
    inside = (below[:, None] < k) & (above[None, :] < n)
    value = sums
    if GROW:
        value += tl.load(total_ptr + place, mask=inside, other=0.0)
    tl.store(total_ptr + place, value, mask=inside)
    if start + ABOVE > n:  # the last tile of its row, whose column n is Σ x
        of_x = tl.sum(tl.where(above[None, :] == n, sums, 0.0), 1)
        if GROW:
            of_x += tl.load(x_sum_ptr + below, mask=below < k, other=0.0)
        tl.store(x_sum_ptr + below, of_x, mask=below < k)
    if first + BELOW > k:  # the last of its column, whose row k is Σ y
        of_y = tl.sum(tl.where(below[:, None] == k, sums, 0.0), 0)
        if GROW:
            of_y += tl.load(y_sum_ptr + above, mask=above < n, other=0.0)
        tl.store(y_sum_ptr + above, of_y, mask=above < n)


@triton.jit(do_not_specialize=["rows", "share", "rows_2", "share_2", "scale", "scale_2"])
def statistics(
    x_ptr, y_ptr, weight_ptr, x_ptr_2, y_ptr_2, weight_ptr_2,
    total_ptr, x_sum_ptr, y_sum_ptr, partial_ptr,
    rows, share, rows_2, share_2, inner, width,
    x_row, y_row, weight_row, x_row_2, y_row_2, weight_row_2,
    scale, scale_2, partial_row, partial_size,
    X_PARTS: tl.constexpr, Y_PARTS: tl.constexpr, WEIGHTS: tl.constexpr,
    X_PARTS_2: tl.constexpr, Y_PARTS_2: tl.constexpr, WEIGHTS_2: tl.constexpr,
    PAIRS: tl.constexpr, SPLITS: tl.constexpr, VECTOR: tl.constexpr, APART: tl.constexpr,
    BELOW: tl.constexpr, ABOVE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Computes Σ scale · weight · x ⊗ y over the rows of one or two pairs, (k, n), and Σ x and Σ y.

    Several ``SPLITS`` take ``share`` rows each and write their sums to ``partial``, (splits, whole tiles),
    for ``add_partial``: in an order that is fixed, so that the bits stay.
    """
    k, n = inner * VECTOR, width * VECTOR
    tiles = tl.cdiv(n + 1, ABOVE)
    tile, split = tl.program_id(0), tl.program_id(1)
    start_below, start_above = (tile // tiles) * BELOW, (tile % tiles) * ABOVE
    below, above = start_below + tl.arange(0, BELOW), start_above + tl.arange(0, ABOVE)
    first = split * share
    sums = _sum_rows(
        x_ptr, y_ptr, weight_ptr, first, tl.minimum(first + share, rows), x_row * VECTOR, y_row * VECTOR,
        weight_row, below, above, k, n, X_PARTS, Y_PARTS, WEIGHTS, APART, BELOW, ABOVE, ROWS,
    ) * scale  # fmt: skip
    if PAIRS == 2:
        first = split * share_2
        sums += _sum_rows(
            x_ptr_2, y_ptr_2, weight_ptr_2, first, tl.minimum(first + share_2, rows_2), x_row_2 * VECTOR,
            y_row_2 * VECTOR, weight_row_2, below, above, k, n, X_PARTS_2, Y_PARTS_2,
            WEIGHTS_2, APART, BELOW, ABOVE, ROWS,
        ) * scale_2  # fmt: skip
    if SPLITS == 1:
        _write(sums, total_ptr, x_sum_ptr, y_sum_ptr, start_below, start_above, k, n, False, BELOW, ABOVE)
    else:
        at = partial_ptr + split.to(tl.int64) * partial_size
        tl.store(at + below[:, None].to(tl.int64) * partial_row + above[None, :], sums)


@triton.jit
def add_partial(
    partial_ptr, total_ptr, x_sum_ptr, y_sum_ptr, inner, width,
    partial_row, partial_size, SPLITS: tl.constexpr, VECTOR: tl.constexpr,
    BELOW: tl.constexpr, ABOVE: tl.constexpr,
):  # fmt: skip
    """Sums what the splits of ``statistics`` wrote, or ``statistics_of_digits``."""
    k, n = inner * VECTOR, width * VECTOR
    tiles = tl.cdiv(n + 1, ABOVE)
    tile = tl.program_id(0)
    first, start = (tile // tiles) * BELOW, (tile % tiles) * ABOVE
    below, above = first + tl.arange(0, BELOW), start + tl.arange(0, ABOVE)
    at = partial_ptr + below[:, None].to(tl.int64) * partial_row + above[None, :]
    inside = (below[:, None] <= k) & (above[None, :] <= n)
    sums = tl.load(at, mask=inside, other=0.0)
    for _ in tl.static_range(1, SPLITS):
        at += partial_size
        sums += tl.load(at, mask=inside, other=0.0)
    _write(sums, total_ptr, x_sum_ptr, y_sum_ptr, first, start, k, n, False, BELOW, ABOVE)
