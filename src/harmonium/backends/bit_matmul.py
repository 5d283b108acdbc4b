"""Sums of the rows that two-valued states pick, from tables of all sums of six rows. Needs numba.

Whole vectors of ``WIDTH`` entries of a contiguous array (n,), of 32 bits each, are taken at a time, from an
index on which nothing checks, where loops would not become what the processor can do.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from harmonium.backends.bits import LOT, PER_WORD, STEP, TABLES, UNITS, WIDTH
from harmonium.backends.noise import jit

assert STEP <= 24  # a float32 has so many bits

HALF: Final = TABLES // 2
"""Tables that ``add_half`` picks from."""
TABLE: Final = WIDTH << UNITS
"""Entries of a table."""


def _instruction(generator: Any) -> Any:
    """A function of compiled code, from what generates its instructions; ``intrinsic`` has no types."""
    return intrinsic(generator)


_WORD, _NUMBER = ir.IntType(64), ir.IntType(32)
_NUMBERS, _REALS = ir.VectorType(_NUMBER, WIDTH), ir.VectorType(ir.FloatType(), WIDTH)


@jit
def room(size: int) -> Any:
    """An array of int32 that starts where a line of the cache does."""
    numbers = np.empty(size + 16, np.int32)
    start = (-(numbers.ctypes.data // 4)) % 16
    return numbers[start : start + size]


@_instruction
def fill_table(_: Any, rows: Any, i: Any, low: Any, table: Any, o: Any) -> Any:
    """Fills table[o:] with sums of UNITS rows, one vector after the other from rows[i:].

    A place has the sum of all rows times 1 where its bit is set, and times ``low``, 0 or -1, elsewhere.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, first = (_pointer(context, builder, signature, arguments, k, _NUMBERS) for k in (0, 3))
        rows = [_load(builder, builder.gep(start, [_WORD(k)])) for k in range(UNITS)]
        sum_ = rows[0]
        for row in rows[1:]:
            sum_ = builder.add(sum_, row)
        step = _same(builder, builder.sub(_NUMBER(1), arguments[2]), _NUMBERS)
        steps = [builder.mul(row, step) for row in rows]

        def fill(index: int, sum_: Any, rest: int) -> None:  # in an order in which few sums are kept
            if rest == 0:
                _store(builder, sum_, builder.gep(first, [_WORD(index)]))
                return
            fill(index, sum_, rest - 1)
            fill(index + (1 << (rest - 1)), builder.add(sum_, steps[rest - 1]), rest - 1)

        fill(0, builder.mul(sum_, _same(builder, arguments[2], _NUMBERS)), UNITS)
        return context.get_dummy_value()

    return types.void(rows, types.int64, types.int32, table, types.int64), generate


def _adding(count: int) -> Any:
    """Compiled code that picks from so many tables, which follow each other."""

    def add(_: Any, x: Any, i: Any, tables: Any, word: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word, pointer = arguments[3], _pointer(context, builder, signature, arguments, 0, _NUMBERS)
            start = context.make_array(signature.args[2])(context, builder, arguments[2]).data
            sum_ = _load(builder, pointer)
            for table in range(count):
                up = UNITS * table - (WIDTH.bit_length() - 1)
                moved = builder.lshr(word, _WORD(up)) if up > 0 else builder.shl(word, _WORD(-up))
                row = builder.gep(start, [builder.and_(moved, _WORD(TABLE - WIDTH))])
                sum_ = builder.add(sum_, _load(builder, builder.bitcast(row, _NUMBERS.as_pointer())))
                start = builder.gep(start, [_WORD(TABLE)])
            _store(builder, sum_, pointer)
            return context.get_dummy_value()

        return types.void(x, types.int64, tables, types.uint64), generate

    return _instruction(add)


add_entries = _adding(TABLES)
"""x[i:] += the sum that the next ``UNITS`` bits of a word pick of each table: (x, i, tables, word)."""
add_half = _adding(HALF)
"""``add_entries`` of the first ``HALF`` tables."""


@_instruction
def put(_: Any, x: Any, i: Any, units: Any, j: Any, before: Any, k: Any, out: Any, o: Any) -> Any:
    """out[o:] = before[k:] + x[i:] · units[j:], of whole numbers x and real numbers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x = _load(builder, _pointer(context, builder, signature, arguments, 0, _NUMBERS))
        units, before, out = (_pointer(context, builder, signature, arguments, k, _REALS) for k in (2, 4, 6))
        value = builder.fmul(builder.sitofp(x, _REALS), _load(builder, units))
        _store(builder, builder.fadd(_load(builder, before), value), out)
        return context.get_dummy_value()

    return types.void(x, types.int64, units, types.int64, before, types.int64, out, types.int64), generate


@_instruction
def add_magnitudes(_: Any, sums: Any, o: Any, x: Any, i: Any, by: Any) -> Any:
    """sums[o:] += |x[i:] · by|, of real numbers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums, x = (_pointer(context, builder, signature, arguments, k, _REALS) for k in (0, 2))
        value = builder.fmul(_load(builder, x), _same(builder, arguments[4], _REALS))
        without_sign = builder.and_(builder.bitcast(value, _NUMBERS), _NUMBERS([0x7FFFFFFF] * WIDTH))
        _store(builder, builder.fadd(_load(builder, sums), builder.bitcast(without_sign, _REALS)), sums)
        return context.get_dummy_value()

    return types.void(sums, types.int64, x, types.int64, types.float32), generate


@_instruction
def put_whole(_: Any, x: Any, i: Any, by: Any, units: Any, j: Any, out: Any, o: Any) -> Any:
    """out[o:] = x[i:] · by · units[j:], of real numbers, to the nearest whole number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, units = (_pointer(context, builder, signature, arguments, k, _REALS) for k in (0, 3))
        by = _same(builder, arguments[2], _REALS)
        value = builder.fmul(builder.fmul(_load(builder, x), by), _load(builder, units))
        name, rounding = f"llvm.rint.v{WIDTH}f32", ir.FunctionType(_REALS, [_REALS])
        nearest = builder.module.globals.get(name) or ir.Function(builder.module, rounding, name)
        whole = builder.fptosi(builder.call(nearest, [value]), _NUMBERS)
        _store(builder, whole, _pointer(context, builder, signature, arguments, 5, _NUMBERS))
        return context.get_dummy_value()

    return types.void(x, types.int64, types.float32, units, types.int64, out, types.int64), generate


@_instruction
def differing(_: Any, x: Any, i: Any, value: Any) -> Any:
    """A bit for each entry of x[i:], real numbers, the first the lowest: whether it is not the value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entries = _load(builder, _pointer(context, builder, signature, arguments, 0, _REALS))
        other = builder.fcmp_unordered("!=", entries, _same(builder, arguments[2], _REALS))
        return builder.zext(builder.bitcast(other, ir.IntType(WIDTH)), _WORD)

    return types.uint64(x, types.int64, types.float32), generate


def _same(builder: Any, value: Any, vector: Any) -> Any:
    """A vector of one value."""
    nothing = vector(ir.Undefined)
    one = builder.insert_element(nothing, value, _NUMBER(0))
    return builder.shuffle_vector(one, nothing, _NUMBERS([0] * WIDTH))


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any, k: int, vector: Any) -> Any:
    """To the entries of an array from the index that follows it among the arguments."""
    array = context.make_array(signature.args[k])(context, builder, arguments[k])
    return builder.bitcast(builder.gep(array.data, [arguments[k + 1]]), vector.as_pointer())


def _load(builder: Any, pointer: Any) -> Any:
    vector = builder.load(pointer)
    vector.align = 4
    return vector


def _store(builder: Any, vector: Any, pointer: Any) -> None:
    builder.store(vector, pointer).align = 4


@jit
def bits_of_rows(first: int, last: int, x: Any, low: float, words: Any, wrong: Any) -> None:
    """Fills words, (k / PER_WORD, m), from x (m, k); ``wrong``, (1,), if one is not ``low`` or 1."""
    k, lower, one = x.shape[1], np.float32(low), np.float32(1)
    rest = np.empty(WIDTH, np.float32)
    for row in range(first, last):
        values, off = x[row], np.uint64(0)
        for w in range(len(words)):
            word = np.uint64(0)
            for part in range(PER_WORD // WIDTH):
                start = PER_WORD * w + WIDTH * part
                if start + WIDTH <= k:
                    up = differing(values, start, lower)
                    off |= up & differing(values, start, one)
                elif start >= k:
                    break
                else:
                    rest[:] = lower
                    for i in range(k - start):
                        rest[i] = values[start + i]
                    up = differing(rest, 0, lower)
                    off |= up & differing(rest, 0, one)
                word |= up << np.uint64(WIDTH * part)
            words[w, row] = word
        if off != 0:
            wrong[0] = 1
            return


@jit
def bits_of_columns(first: int, last: int, x: Any, low: float, words: Any, wrong: Any) -> None:
    """As ``bits_of_rows``, of xᵀ: x is (k, m), and shares are words, of as many of its rows."""
    k, lower, one = x.shape[0], np.float32(low), np.float32(1)
    bits, off = np.empty(x.shape[1], np.float32), np.zeros(x.shape[1], np.float32)
    for w in range(first, last):
        row_words, end = words[w], min(PER_WORD * (w + 1), k)
        row_words[:] = 0
        for start in range(PER_WORD * w, end, STEP):  # so many bits a real number has
            bits[:] = 0
            bit = one / (one - lower)
            for row in range(start, min(start + STEP, end)):
                values = x[row]
                for c in range(len(bits)):
                    above = values[c] - lower
                    bits[c] += above * bit
                    off[c] += abs(above * (values[c] - one))
                bit *= np.float32(2)
            up = np.uint64(start - PER_WORD * w)
            for c in range(len(bits)):
                row_words[c] |= np.uint64(bits[c]) << up
        if off.sum() != 0:
            wrong[0] = 1
            return


@jit
def fix(
    first: int, last: int, y: Any, across: bool, begin: int, weights: Any, numbers: Any, units: Any
) -> None:
    """Writes weights · y, (k, n), as whole numbers of a unit for each column, whose sum 32 bits hold.

    The k rows, at most ``LOT``, are those of y from ``begin`` on; if ``across``, yᵀ is given. Shares are of
    ``WIDTH`` columns; numbers is (n / WIDTH, k, WIDTH), n rounded up to whole shares and k to a multiple of
    ``STEP``, and units (n,), up to whole shares; what stands beyond n is anything. The unit of a column that
    is not finite is NaN.
    """
    k, n = len(weights), y.shape[0] if across else y.shape[1]
    block, per_unit = np.zeros((k, WIDTH), np.float32), np.empty(WIDTH, np.float32)
    rows, entries = numbers.reshape(numbers.size), y.reshape(y.size)
    for share in range(first, last):
        column, sums = share * WIDTH, units[share * WIDTH : (share + 1) * WIDTH]
        values, start, step = entries, begin * n + column, n
        if across or column + WIDTH > n:
            values, start, step = block.reshape(block.size), 0, WIDTH
            for c in range(min(WIDTH, n - column)):
                # By an index that might be negative the loop would take 1.6 times as long.
                source = y[column + c, begin : begin + k] if across else y[begin : begin + k, column + c]
                for i in range(k):
                    block[i, c] = source[i]
        sums[:] = 0
        for i in range(k):
            add_magnitudes(sums, 0, values, start + i * step, weights[i])
        # Less than 2^31 by more than LOT roundings of a sum, and of as many entries.
        sums /= np.float32(2.0**31 * (1 - 2.0**-11))
        for c in range(WIDTH):
            if sums[c] < 2.0**-126:
                sums[c] = 2.0**-126
            elif not sums[c] < np.inf:
                sums[c] = np.nan
            per_unit[c] = np.float32(1) / sums[c]
        numbers[share, k:] = 0
        for i in range(k):
            to = (share * numbers.shape[1] + i) * WIDTH
            put_whole(values, start + i * step, weights[i], per_unit, 0, rows, to)


@jit
def multiply(
    first: int, last: int, words: Any, low: int, y: Any, across: bool, begin: int, weights: Any, known: bool,
    numbers: Any, units: Any, grow: bool, out: Any,
) -> None:  # fmt: skip
    """Fills, or grows, out (m, n) by x @ (weights · y), for states x (m, k) of units that are ``low`` or 1.

    Shares are of ``WIDTH`` columns. From ``y`` to ``units`` the arguments are those of ``fix``; if ``known``
    it has written them before.
    """
    if not known:
        fix(first, last, y, across, begin, weights, numbers, units)
    (m, n), k = out.shape, numbers.shape[1]
    lots = -(-m // LOT)
    lot = -(-m // lots)
    tables, sums, nothing = room(TABLES * TABLE), room(lot * WIDTH), np.zeros(WIDTH, np.float32)
    rows, totals = numbers.reshape(numbers.size), out.reshape(m * n)
    for share in range(first, last):
        column = share * WIDTH
        for start in range(0, m, lot):
            sums[:] = 0
            count = min(lot, m - start)
            for w in range(len(words)):
                several, unit = w * PER_WORD + STEP < k, share * k + w * PER_WORD
                for table in range(TABLES if several else HALF):
                    fill_table(rows, (unit + table * UNITS) * WIDTH, np.int32(low), tables, table * TABLE)
                lot_words = words[w, start : start + count]
                if several:
                    for row in range(count):
                        add_entries(sums, row * WIDTH, tables, lot_words[row])
                else:
                    for row in range(count):
                        add_half(sums, row * WIDTH, tables, lot_words[row])
            for row in range(count):
                entry = (start + row) * n + column
                if column + WIDTH > n:
                    for c in range(n - column):
                        before = totals[entry + c] if grow else np.float32(0)
                        totals[entry + c] = before + np.float32(sums[row * WIDTH + c]) * units[column + c]
                elif grow:
                    put(sums, row * WIDTH, units, column, totals, entry, totals, entry)
                else:
                    put(sums, row * WIDTH, units, column, nothing, 0, totals, entry)
