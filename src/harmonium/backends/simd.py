"""Whole vectors at a time, where loops would not become what the processor can do. Needs numba.

Each is ``WIDTH`` entries of a contiguous array (n,), of 32 bits each, from an index on, which nothing checks.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from harmonium.compiled import TABLES, UNITS, WIDTH
from harmonium.compiled.noise import jit

HALF: Final = TABLES // 2
"""Tables that ``add_half`` picks from."""
TABLE: Final = WIDTH << UNITS
"""Entries of a table."""

_WORD, _NUMBER = ir.IntType(64), ir.IntType(32)
_NUMBERS, _REALS = ir.VectorType(_NUMBER, WIDTH), ir.VectorType(ir.FloatType(), WIDTH)


def _instructions(generator: Any) -> Any:
    """A function of compiled code, from what generates its instructions."""
    return intrinsic(generator)


@jit
def room(size: int) -> Any:
    """An array of int32 that starts where a line of the cache does."""
    numbers = np.empty(size + 16, np.int32)
    start = (-(numbers.ctypes.data // 4)) % 16
    return numbers[start : start + size]


@_instructions
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

        def fill(place: int, sum_: Any, rest: int) -> None:  # in an order in which few sums are kept
            if rest == 0:
                _store(builder, sum_, builder.gep(first, [_WORD(place)]))
                return
            fill(place, sum_, rest - 1)
            fill(place + (1 << (rest - 1)), builder.add(sum_, steps[rest - 1]), rest - 1)

        fill(0, builder.mul(sum_, _same(builder, arguments[2], _NUMBERS)), UNITS)
        return context.get_dummy_value()

    return types.void(rows, types.int64, types.int32, table, types.int64), generate


def _adding(count: int) -> Any:
    """Compiled code that picks from so many tables, which follow each other."""

    def add(_: Any, x: Any, i: Any, tables: Any, word: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word, place = arguments[3], _pointer(context, builder, signature, arguments, 0, _NUMBERS)
            start = context.make_array(signature.args[2])(context, builder, arguments[2]).data
            sum_ = _load(builder, place)
            for table in range(count):
                up = UNITS * table - (WIDTH.bit_length() - 1)
                moved = builder.lshr(word, _WORD(up)) if up > 0 else builder.shl(word, _WORD(-up))
                row = builder.gep(start, [builder.and_(moved, _WORD(TABLE - WIDTH))])
                sum_ = builder.add(sum_, _load(builder, builder.bitcast(row, _NUMBERS.as_pointer())))
                start = builder.gep(start, [_WORD(TABLE)])
            _store(builder, sum_, place)
            return context.get_dummy_value()

        return types.void(x, types.int64, tables, types.uint64), generate

    return _instructions(add)


add_entries = _adding(TABLES)
"""x[i:] += the sum that the next ``UNITS`` bits of a word pick of each table: (x, i, tables, word)."""
add_half = _adding(HALF)
"""``add_entries`` of the first ``HALF`` tables."""


@_instructions
def put(_: Any, x: Any, i: Any, units: Any, j: Any, before: Any, k: Any, out: Any, o: Any) -> Any:
    """out[o:] = before[k:] + x[i:] · units[j:], of whole numbers x and real numbers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x = _load(builder, _pointer(context, builder, signature, arguments, 0, _NUMBERS))
        units, before, out = (_pointer(context, builder, signature, arguments, k, _REALS) for k in (2, 4, 6))
        value = builder.fmul(builder.sitofp(x, _REALS), _load(builder, units))
        _store(builder, builder.fadd(_load(builder, before), value), out)
        return context.get_dummy_value()

    return types.void(x, types.int64, units, types.int64, before, types.int64, out, types.int64), generate


@_instructions
def add_magnitudes(_: Any, sums: Any, o: Any, x: Any, i: Any, by: Any) -> Any:
    """sums[o:] += |x[i:] · by|, of real numbers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums, x = (_pointer(context, builder, signature, arguments, k, _REALS) for k in (0, 2))
        value = builder.fmul(_load(builder, x), _same(builder, arguments[4], _REALS))
        without_sign = builder.and_(builder.bitcast(value, _NUMBERS), _NUMBERS([0x7FFFFFFF] * WIDTH))
        _store(builder, builder.fadd(_load(builder, sums), builder.bitcast(without_sign, _REALS)), sums)
        return context.get_dummy_value()

    return types.void(sums, types.int64, x, types.int64, types.float32), generate


@_instructions
def put_whole(_: Any, x: Any, i: Any, by: Any, units: Any, j: Any, out: Any, o: Any) -> Any:
    """out[o:] = x[i:] · by · units[j:], of real numbers, to the nearest whole number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, units = (_pointer(context, builder, signature, arguments, k, _REALS) for k in (0, 3))
        by = _same(builder, arguments[2], _REALS)
        value = builder.fmul(builder.fmul(_load(builder, x), by), _load(builder, units))
        name, law = f"llvm.rint.v{WIDTH}f32", ir.FunctionType(_REALS, [_REALS])
        nearest = builder.module.globals.get(name) or ir.Function(builder.module, law, name)
        whole = builder.fptosi(builder.call(nearest, [value]), _NUMBERS)
        _store(builder, whole, _pointer(context, builder, signature, arguments, 5, _NUMBERS))
        return context.get_dummy_value()

    return types.void(x, types.int64, types.float32, units, types.int64, out, types.int64), generate


@_instructions
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
