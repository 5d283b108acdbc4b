"""Triton kernels: fields, draws and statistics by products on matrix units that are as accurate as float32's.

States of discrete units are whole numbers of 8 bits, and a float32 number is a sum of three numbers that a
matrix unit multiplies. Small products cut the factors in registers into three bfloat16 numbers, whose sum
they are to the last bit, as each takes 8 of the 24. Large ones have them in fixed point, as whole numbers of
a unit for every column, written as three digits of 8 bits: sums of their products are exact, and take half of
the time. So a product of states with float32 couplings is the sum of three products, which a GPU makes in a
fifth to a tenth of the time of one in float32.

Arrays are (rows, width) with contiguous rows, or have the strides that are given. Needs Triton;
``tensor_cores`` calls what stands here.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def parts_of(a):
    """Returns three bfloat16 numbers whose sum is a float32 number, the largest first."""
    first = a.to(tl.bfloat16)
    rest = a - first.to(tl.float32)
    second = rest.to(tl.bfloat16)
    third = (rest - second.to(tl.float32)).to(tl.bfloat16)
    return first, second, third


@triton.jit
def add_product(
    total, a1, a2, a3, b1, b2, b3,
    A_PARTS: tl.constexpr, B_PARTS: tl.constexpr, APART: tl.constexpr,
):  # fmt: skip
    """Returns total + a @ b, with factors of one, two or three parts; the smallest terms are summed first.

    Terms that are below the last bit of float32 are left out: those of parts i and j with i + j > 4 where
    both factors have three. With ``APART`` the terms of this share of the sum are summed by themselves: the
    matrix units cut their sums where float32 rounds them, which adds up over long sums in one direction, and
    the sum of shares is rounded.
    """
    LAST: tl.constexpr = max(A_PARTS, B_PARTS) + 1
    share = total
    if APART:
        share = tl.zeros_like(total)
    if A_PARTS >= 3:
        share = tl.dot(a3, b1, share)
    if B_PARTS >= 3:
        share = tl.dot(a1, b3, share)
    if A_PARTS >= 2 and B_PARTS >= 2 and LAST >= 4:
        share = tl.dot(a2, b2, share)
    if A_PARTS >= 2:
        share = tl.dot(a2, b1, share)
    if B_PARTS >= 2:
        share = tl.dot(a1, b2, share)
    share = tl.dot(a1, b1, share)
    if APART:
        share = total + share
    return share


@triton.jit
def _bits(key, rows, quads, stream, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Returns random bits, uint32 (ROWS, COLUMNS), which depend on the key, the stream and the place alone.

    Philox makes four words from a counter, here those of four neighbouring columns.
    """
    row = tl.broadcast_to(rows[:, None], (ROWS, COLUMNS // 4)).to(tl.uint32)
    quad = tl.broadcast_to(quads[None, :], (ROWS, COLUMNS // 4)).to(tl.uint32)
    zero = row * 0
    a, b, c, d = tl.philox(key, quad, row, zero + stream.to(tl.uint32), zero)
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (ROWS, COLUMNS))


@triton.jit
def _conclude(
    field, theta_ptr, key_ptr, beta_ptr, addend_ptr, state_ptr, field_ptr, mean_ptr, short_ptr,
    first, start, rows, n, beta, beta_row, low, gain, stream, mirrored_from, short_row,
    STATE: tl.constexpr, FIELD: tl.constexpr, MEAN: tl.constexpr, SHORT: tl.constexpr,
    BETA: tl.constexpr, ADDEND: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Writes field, mean and state of a tile of units of two values, low and low + gain, given x @ W.

    A unit has its upper value if u < σ(gain (θ + field)). Of u and of 1 - u the smaller has all of its 31
    bits, and is compared with the smaller of the two probabilities: no cancellation on either side.
    """
    row, column = first + tl.arange(0, ROWS), start + tl.arange(0, COLUMNS)
    inside = (row[:, None] < rows) & (column[None, :] < n)
    place = row[:, None].to(tl.int64) * n + column[None, :]
    if ADDEND:
        field += tl.load(addend_ptr + place, mask=inside, other=0.0)
    field *= beta
    if BETA:
        field *= tl.load(beta_ptr + row * beta_row, mask=row < rows, other=0.0)[:, None].to(tl.float32)
    if FIELD:
        tl.store(field_ptr + place, field, mask=inside)
    if STATE or MEAN:
        theta = tl.load(theta_ptr + column, mask=column < n, other=0.0)
        s = gain * (theta[None, :] + field)
        decay = tl.exp(-tl.abs(s))
        likely = 1.0 / (1.0 + decay)
        rare = decay * likely
        rises = s >= 0
        if MEAN:
            tl.store(mean_ptr + place, low + gain * tl.where(rises, likely, rare), mask=inside)
        if STATE:
            mirrored = (mirrored_from > 0) & (row >= mirrored_from)
            source = tl.where(mirrored, row - mirrored_from, row)
            quads = start // 4 + tl.arange(0, COLUMNS // 4)
            bits = _bits(tl.load(key_ptr), source, quads, stream, ROWS, COLUMNS)
            bits = tl.where(mirrored[:, None], bits ^ 0xFFFFFFFF, bits)
            upper = bits >= 0x80000000
            steps = tl.where(upper, bits ^ 0xFFFFFFFF, bits).to(tl.int32).to(tl.float32)
            distance = (steps + 0.5) * 2.3283064365386963e-10  # 2^-32
            # s >= 0: low if u is above, s < 0: high if u is below, by less than the rarer probability.
            unlikely = (distance < rare) & (upper == rises)
            up = rises != unlikely
            x = low + gain * up.to(tl.float32)
            tl.store(state_ptr + place, x, mask=inside)
            if SHORT:
                at = short_ptr + row[:, None].to(tl.int64) * short_row + column[None, :]
                tl.store(at, x.to(tl.int8), mask=inside)


@triton.jit
def _end(
    field, partial_ptr, theta_ptr, key_ptr, beta_ptr, addend_ptr, state_ptr, field_ptr, mean_ptr, short_ptr,
    first, start, split, rows, n, beta, beta_row, low, gain, stream, mirrored_from, short_row,
    STATE: tl.constexpr, FIELD: tl.constexpr, MEAN: tl.constexpr, SHORT: tl.constexpr,
    BETA: tl.constexpr, ADDEND: tl.constexpr, SPLITS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Concludes a half-step, or writes one of ``SPLITS`` parts of the field, (splits, rows, n)."""
    if SPLITS > 1:
        row, column = first + tl.arange(0, ROWS), start + tl.arange(0, COLUMNS)
        place = (split.to(tl.int64) * rows + row[:, None]) * n + column[None, :]
        tl.store(partial_ptr + place, field, mask=(row[:, None] < rows) & (column[None, :] < n))
    else:
        _conclude(
            field, theta_ptr, key_ptr, beta_ptr, addend_ptr, state_ptr, field_ptr, mean_ptr, short_ptr,
            first, start, rows, n, beta, beta_row, low, gain, stream, mirrored_from, short_row,
            STATE, FIELD, MEAN, SHORT, BETA, ADDEND, ROWS, COLUMNS,
        )  # fmt: skip


@triton.jit(do_not_specialize=["rows", "share", "beta", "beta_row", "stream", "mirrored_from"])
def half_step(
    x_ptr, w_ptr, partial_ptr, theta_ptr, key_ptr, beta_ptr, addend_ptr,
    state_ptr, field_ptr, mean_ptr, short_ptr,
    rows, share, inner, width, x_row, w_k, w_n,
    beta, beta_row, low, gain, stream, mirrored_from, short_row,
    X_PARTS: tl.constexpr, W_PARTS: tl.constexpr, TRANSPOSED: tl.constexpr,
    STATE: tl.constexpr, FIELD: tl.constexpr, MEAN: tl.constexpr, SHORT: tl.constexpr,
    BETA: tl.constexpr, ADDEND: tl.constexpr, SPLITS: tl.constexpr, VECTOR: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    TERMS: tl.constexpr,
):  # fmt: skip
    """Computes β (x @ W + addend), (rows, n), and what is asked for of it: field, mean, state.

    x is (rows, k), W (k, n) in float32. k, n and the larger strides come divided by ``VECTOR``, so that the
    compiler knows that accesses of so many are aligned. ``DEPTH`` terms are loaded at a time and ``TERMS``
    of them summed by themselves. Each of ``SPLITS`` takes ``share`` times so many.
    """
    k, n = inner * VECTOR, width * VECTOR
    tiles = tl.cdiv(n, COLUMNS)
    tile, split = tl.program_id(0), tl.program_id(1)
    first, start = (tile // tiles) * ROWS, (tile % tiles) * COLUMNS
    row, column, depth = first + tl.arange(0, ROWS), start + tl.arange(0, COLUMNS), tl.arange(0, TERMS)
    row_inside, column_inside = row[:, None] < rows, column[None, :] < n
    begin = split * share * DEPTH
    end = tl.minimum(begin + share * DEPTH, k)
    x_at = x_ptr + row[:, None].to(tl.int64) * (x_row * VECTOR) + depth[None, :] + begin
    if TRANSPOSED:
        w_at = w_ptr + depth[:, None] + column[None, :].to(tl.int64) * (w_n * VECTOR)
        w_step = 1
    else:
        w_at = w_ptr + depth[:, None].to(tl.int64) * (w_k * VECTOR) + column[None, :] * w_n
        w_step = w_k * VECTOR
    w_at += begin.to(tl.int64) * w_step
    field = tl.zeros((ROWS, COLUMNS), tl.float32)
    for done in range(begin, end, DEPTH):
        for part in tl.static_range(DEPTH // TERMS):
            left = k - done - part * TERMS
            x = tl.load(x_at + part * TERMS, mask=row_inside & (depth[None, :] < left), other=0.0)
            w = tl.load(w_at + part * TERMS * w_step, mask=column_inside & (depth[:, None] < left), other=0.0)
            w1, w2, w3 = parts_of(w)
            x1, x2, x3 = parts_of(x)
            field = add_product(field, x1, x2, x3, w1, w2, w3, X_PARTS, W_PARTS, APART)
        x_at += DEPTH
        w_at += w_step * DEPTH
    _end(
        field, partial_ptr, theta_ptr, key_ptr, beta_ptr, addend_ptr, state_ptr, field_ptr, mean_ptr,
        short_ptr, first, start, split, rows, n, beta, beta_row, low, gain, stream, mirrored_from, short_row,
        STATE, FIELD, MEAN, SHORT, BETA, ADDEND, SPLITS, ROWS, COLUMNS,
    )  # fmt: skip


@triton.jit
def digits_of(whole, PARTS: tl.constexpr):
    """Returns whole numbers, rounded float32 below 2^23, as one, two or three digits of 8 bits, the first the
    highest."""
    whole = (whole + tl.where(whole < 0, -0.5, 0.5)).to(tl.int32)
    second, third = whole, whole
    if PARTS >= 3:
        third = ((whole + 128) & 255) - 128
        whole = (whole - third) >> 8
    if PARTS >= 2:
        second = ((whole + 128) & 255) - 128
        whole = (whole - second) >> 8
    return whole.to(tl.int8), second.to(tl.int8), third.to(tl.int8)


@triton.jit
def whole_of(x, unit):
    """Returns x as a multiple of a unit, which is 0 where all such x are."""
    return tl.where(unit > 0, tl.div_rn(x, tl.where(unit > 0, unit, 1.0)), 0.0)


@triton.jit(do_not_specialize=["rows", "share", "beta", "beta_row", "stream", "mirrored_from"])
def half_step_of_digits(
    x_at, w_at, x_largest_ptr, w_largest_ptr, partial_ptr, theta_ptr, key_ptr, beta_ptr, addend_ptr,
    state_ptr, field_ptr, mean_ptr, short_ptr,
    rows, share, k, width, unit_of_one,
    beta, beta_row, low, gain, stream, mirrored_from, short_row,
    X_PARTS: tl.constexpr, PARTS: tl.constexpr, STATE: tl.constexpr, FIELD: tl.constexpr,
    MEAN: tl.constexpr, SHORT: tl.constexpr, BETA: tl.constexpr, ADDEND: tl.constexpr, SPLITS: tl.constexpr,
    VECTOR: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Computes what ``half_step`` does from digits of x and of W, which the copy engine brings.

    x_at describes states x, (rows, k), and w_at the digits of Wᵀ one below the other, each (n, k), in the
    units of its rows, ``w_largest``, (n,), times ``unit_of_one``. Or x has three digits as well, as
    ``share_out`` writes them, and W is in the units that it takes. Beyond k both are read as 0.
    """
    n = width * VECTOR
    tiles = tl.cdiv(n, COLUMNS)
    tile, split = tl.program_id(0), tl.program_id(1)
    first, start = (tile // tiles) * ROWS, (tile % tiles) * COLUMNS
    begin = split * share * DEPTH
    end = tl.minimum(begin + share * DEPTH, k)
    high = tl.zeros((ROWS, COLUMNS), tl.int32)
    middle, small = high, high
    for done in range(begin, end, DEPTH):
        x1, w1 = x_at.load([first, done]), tl.trans(w_at.load([start, done]))
        high = tl.dot(x1, w1, high, out_dtype=tl.int32)
        if PARTS >= 2:
            w2 = tl.trans(w_at.load([n + start, done]))
            middle = tl.dot(x1, w2, middle, out_dtype=tl.int32)
        if PARTS >= 3:
            small = tl.dot(x1, tl.trans(w_at.load([2 * n + start, done])), small, out_dtype=tl.int32)
        if X_PARTS == 3:
            x2 = x_at.load([rows + first, done])
            middle = tl.dot(x2, w1, middle, out_dtype=tl.int32)
            small = tl.dot(x2, w2, small, out_dtype=tl.int32)
            small = tl.dot(x_at.load([2 * rows + first, done]), w1, small, out_dtype=tl.int32)
    field = sum_digits(high, middle, small, PARTS)
    if X_PARTS == 3:
        row = first + tl.arange(0, ROWS)
        unit = tl.load(x_largest_ptr + row, mask=row < rows, other=0.0) * (
            unit_of_one * 65536.0 * unit_of_one
        )
        field *= unit[:, None]
    else:
        column = start + tl.arange(0, COLUMNS)
        field *= (tl.load(w_largest_ptr + column, mask=column < n, other=0.0) * unit_of_one)[None, :]
    # One half after the other, so that the registers suffice.
    halves = tl.split(tl.permute(tl.reshape(field, (ROWS, 2, COLUMNS // 2)), (0, 2, 1)))
    for half in tl.static_range(2):
        _end(
            halves[half], partial_ptr, theta_ptr, key_ptr, beta_ptr, addend_ptr, state_ptr, field_ptr,
            mean_ptr, short_ptr, first, start + half * (COLUMNS // 2), split, rows, n, beta, beta_row, low,
            gain, stream, mirrored_from, short_row, STATE, FIELD, MEAN, SHORT, BETA, ADDEND, SPLITS, ROWS,
            COLUMNS // 2,
        )  # fmt: skip


@triton.jit
def sum_digits(high, middle, small, PARTS: tl.constexpr):
    """Returns the sum that digits stand for, in float32."""
    total = high.to(tl.float32)
    if PARTS == 2:
        total = total * 256.0 + middle.to(tl.float32)
    if PARTS >= 3:
        total = total * 65536.0 + (middle.to(tl.float32) * 256.0 + small.to(tl.float32))
    return total


@triton.jit(do_not_specialize=["rows", "beta", "beta_row", "stream", "mirrored_from"])
def conclude(
    partial_ptr, theta_ptr, key_ptr, beta_ptr, addend_ptr, state_ptr, field_ptr, mean_ptr, short_ptr,
    rows, width, beta, beta_row, low, gain, stream, mirrored_from, short_row,
    STATE: tl.constexpr, FIELD: tl.constexpr, MEAN: tl.constexpr, SHORT: tl.constexpr,
    BETA: tl.constexpr, ADDEND: tl.constexpr, SPLITS: tl.constexpr, VECTOR: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Concludes a half-step given x @ W, or given the parts of it that ``SPLITS`` programs summed."""
    n = width * VECTOR
    tiles = tl.cdiv(n, COLUMNS)
    tile = tl.program_id(0)
    first, start = (tile // tiles) * ROWS, (tile % tiles) * COLUMNS
    row, column = first + tl.arange(0, ROWS), start + tl.arange(0, COLUMNS)
    inside = (row[:, None] < rows) & (column[None, :] < n)
    at = partial_ptr + row[:, None].to(tl.int64) * n + column[None, :]
    field = tl.load(at, mask=inside, other=0.0)
    for _ in tl.static_range(1, SPLITS):
        at += rows.to(tl.int64) * n
        field += tl.load(at, mask=inside, other=0.0)
    _conclude(
        field, theta_ptr, key_ptr, beta_ptr, addend_ptr, state_ptr, field_ptr, mean_ptr, short_ptr,
        first, start, rows, n, beta, beta_row, low, gain, stream, mirrored_from, short_row,
        STATE, FIELD, MEAN, SHORT, BETA, ADDEND, ROWS, COLUMNS,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows", "stream"])
def draw_one_hot(
    field_ptr, theta_ptr, key_ptr, state_ptr, mean_ptr, rows, units, stream,
    Q: tl.constexpr, STATE: tl.constexpr, MEAN: tl.constexpr, UNITS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Writes one-hot states and probabilities of units with Q states, given fields (rows, units · Q).

    A program takes ``UNITS`` of all rows' units; ``WIDTH`` is Q, rounded up to a power of two. A unit has
    its first state whose cumulated weight exceeds u times the sum of all, with u of 32 bits.
    """
    unit = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    state = tl.arange(0, WIDTH)
    row, place = unit // units, unit % units
    inside = (row[:, None] < rows) & (state[None, :] < Q)
    at = unit[:, None].to(tl.int64) * Q + state[None, :]
    weight = tl.load(field_ptr + at, mask=inside, other=float("-inf"))
    weight += tl.load(theta_ptr + place[:, None] * Q + state[None, :], mask=inside, other=0.0)
    weight = tl.exp(weight - tl.max(tl.where(state[None, :] < Q, weight, float("-inf")), 1)[:, None])
    weight = tl.where(inside, weight, 0.0)
    total = tl.sum(weight, 1)
    if MEAN:
        tl.store(mean_ptr + at, weight / total[:, None], mask=inside)
    if STATE:
        zero = unit.to(tl.uint32) * 0
        bits, _, _, _ = tl.philox(
            tl.load(key_ptr), place.to(tl.uint32), row.to(tl.uint32), zero + stream.to(tl.uint32), zero + 1
        )
        half = (bits >> 1).to(tl.int32).to(tl.float32)
        u = (half + 0.5) * 4.656612873077393e-10  # 2^-31; rounds to 1 at the most
        # How many of the first Q - 1 cumulated weights lie at or below u: the sum of all is then no bound.
        cumulated = tl.cumsum(weight, 1)
        below = (cumulated <= (u * total)[:, None]) & (state[None, :] < Q - 1)
        drawn = tl.sum(below.to(tl.int32), 1)
        tl.store(state_ptr + at, (state[None, :] == drawn[:, None]).to(tl.float32), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def shorten(
    x_ptr, short_ptr, rows, width, x_row, short_row, VECTOR: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Writes states in 8 bits, with rows of another length in memory, ``short_row`` times 16."""
    n = width * VECTOR
    tiles = tl.cdiv(n, COLUMNS)
    tile = tl.program_id(0)
    row = (tile // tiles) * ROWS + tl.arange(0, ROWS)
    column = (tile % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row[:, None] < rows) & (column[None, :] < n)
    x = tl.load(
        x_ptr + row[:, None].to(tl.int64) * (x_row * VECTOR) + column[None, :], mask=inside, other=0.0
    )
    tl.store(
        short_ptr + row[:, None].to(tl.int64) * (short_row * 16) + column[None, :], x.to(tl.int8), mask=inside
    )


@triton.jit(do_not_specialize=["rows"])
def share_out(
    x_ptr, by_ptr, digits_ptr, largest_ptr, rows, width, x_row, digits_row, unit_of_one,
    VECTOR: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Writes three digits of x · by, (3, rows, 16 · digits_row), in units of its rows.

    They are ``largest``, which is filled, times ``unit_of_one``.

    ``by``, (n,), is the largest coupling of each unit: what is written is the largest share of a field that
    comes from it. ``WIDTH`` is n, rounded up to a power of two.
    """
    n = width * VECTOR
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row[:, None] < rows) & (column[None, :] < n)
    x = tl.load(
        x_ptr + row[:, None].to(tl.int64) * (x_row * VECTOR) + column[None, :], mask=inside, other=0.0
    )
    x *= tl.load(by_ptr + column, mask=column < n, other=0.0)[None, :]
    bits = tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 1)  # NaN is the largest
    largest = bits.to(tl.float32, bitcast=True)
    tl.store(largest_ptr + row, largest, mask=row < rows)
    first, second, third = digits_of(whole_of(x, (largest * unit_of_one)[:, None] + tl.zeros_like(x)), 3)
    length = digits_row * 16
    at = digits_ptr + row[:, None].to(tl.int64) * length + column[None, :]
    part = rows.to(tl.int64) * length
    inside = (row[:, None] < rows) & (column[None, :] < length)
    tl.store(at, first, mask=inside)
    tl.store(at + part, second, mask=inside)
    tl.store(at + 2 * part, third, mask=inside)


@triton.jit
def find_largest(
    x_ptr, of_rows_ptr, of_columns_ptr, rows, width, x_row, x_column,
    OF_ROWS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Raises numbers, from 0 on, to the largest magnitude of each column and, if asked, of each row of x.

    Their bits are compared, which rise with what is not negative, to infinity and NaN: in any order the
    results are the same.
    """
    tiles = tl.cdiv(width, COLUMNS)
    tile = tl.program_id(0)
    row, column = (
        (tile // tiles) * ROWS + tl.arange(0, ROWS),
        (tile % tiles) * COLUMNS + tl.arange(0, COLUMNS),
    )
    inside = (row[:, None] < rows) & (column[None, :] < width)
    at = x_ptr + row[:, None].to(tl.int64) * x_row + column[None, :].to(tl.int64) * x_column
    bits = tl.load(at, mask=inside, other=0.0).to(tl.int32, bitcast=True) & 0x7FFFFFFF
    tl.atomic_max(of_columns_ptr + column, tl.max(bits, 0), mask=column < width, sem="relaxed")
    if OF_ROWS:
        tl.atomic_max(of_rows_ptr + row, tl.max(bits, 1), mask=row < rows, sem="relaxed")


@triton.jit
def cut(
    w_ptr, of_columns_ptr, of_rows_ptr, across_ptr, down_ptr, inner, width, w_k, w_n,
    across_row, down_row, unit_of_one, PARTS: tl.constexpr, SHARES: tl.constexpr,
    K: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Writes the digits of W, (k, n) with strides, for products with W and with Wᵀ.

    ``across`` is (parts, n, 16 · across_row), in units of columns of W, and ``down`` (parts, k, 16 ·
    down_row), in units of rows: their largest magnitudes, (n,) and (k,), times ``unit_of_one``. ``SHARES``
    are in the units of rows in ``across``, and of columns in ``down``.
    """
    tiles = tl.cdiv(width, N)
    tile = tl.program_id(0)
    i, j = (tile // tiles) * K + tl.arange(0, K), (tile % tiles) * N + tl.arange(0, N)
    inside = (i[:, None] < inner) & (j[None, :] < width)
    w = tl.load(w_ptr + i[:, None].to(tl.int64) * w_k + j[None, :].to(tl.int64) * w_n, mask=inside, other=0.0)
    of_columns = tl.load(of_columns_ptr + j, mask=j < width, other=0.0)[None, :] + tl.zeros_like(w)
    of_rows = tl.load(of_rows_ptr + i, mask=i < inner, other=0.0)[:, None] + tl.zeros_like(w)
    if SHARES:
        of_columns, of_rows = of_rows, of_columns
    first, second, third = digits_of(whole_of(w, of_columns * unit_of_one), PARTS)
    at = across_ptr + j[None, :].to(tl.int64) * (across_row * 16) + i[:, None]
    part = width.to(tl.int64) * (across_row * 16)
    inside = (i[:, None] < across_row * 16) & (j[None, :] < width)
    tl.store(at, first, mask=inside)
    if PARTS >= 2:
        tl.store(at + part, second, mask=inside)
    if PARTS >= 3:
        tl.store(at + 2 * part, third, mask=inside)
    first, second, third = digits_of(whole_of(w, of_rows * unit_of_one), PARTS)
    at = down_ptr + i[:, None].to(tl.int64) * (down_row * 16) + j[None, :]
    part = inner.to(tl.int64) * (down_row * 16)
    inside = (i[:, None] < inner) & (j[None, :] < down_row * 16)
    tl.store(at, first, mask=inside)
    if PARTS >= 2:
        tl.store(at + part, second, mask=inside)
    if PARTS >= 3:
        tl.store(at + 2 * part, third, mask=inside)
