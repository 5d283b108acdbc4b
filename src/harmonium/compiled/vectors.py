"""Whole vectors at a time, where loops would not become what the processor can do. Needs numba.

Each is ``WIDTH`` entries of a contiguous float32 array (n,) from an index on, which nothing checks.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from harmonium.compiled.noise import jit

WIDTH: Final = 32
TABLES: Final = 4
"""Tables that ``add_entries`` picks from."""
UNITS: Final = 6
"""Rows that a table has all sums of, 2^6: four tables fit into the first level of cache."""

_WORD, _NUMBER = ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), WIDTH)


def _instructions(generator: Any) -> Any:
    """A function of compiled code, from what generates its instructions."""
    return intrinsic(generator)


@jit
def room(size: int) -> Any:
    """An array of float32 that starts where a line of the cache does."""
    numbers = np.empty(size + 16, np.float32)
    start = (-(numbers.ctypes.data // 4)) % 16
    return numbers[start : start + size]


@_instructions
def scale(_: Any, x: Any, i: Any, by: Any, out: Any, o: Any) -> Any:
    """out[o:] = by · x[i:]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, out = (_pointer(context, builder, signature, arguments, k) for k in (0, 3))
        _store(builder, builder.fmul(_load(builder, x), _same(builder, arguments[2])), out)
        return context.get_dummy_value()

    return types.void(x, types.int64, types.float32, out, types.int64), generate


@_instructions
def fetch(_: Any, x: Any, i: Any) -> Any:
    """Asks for the line of the cache that has x[i], without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(start, [arguments[1]]), ir.IntType(8).as_pointer())
        what = ir.FunctionType(ir.VoidType(), [place.type, _NUMBER, _NUMBER, _NUMBER])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [place.type], what)
        builder.call(prefetch, [place, _NUMBER(0), _NUMBER(3), _NUMBER(1)])
        return context.get_dummy_value()

    return types.void(x, types.int64), generate


@_instructions
def fill_table(_: Any, rows: Any, i: Any, below: Any, table: Any, o: Any) -> Any:
    """Fills table[o:] with sums of UNITS rows: those of the bits of a place, and ``below`` times all."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, first = (_pointer(context, builder, signature, arguments, k) for k in (0, 3))
        rows = [_load(builder, builder.gep(start, [_WORD(k)])) for k in range(UNITS)]
        all_ = rows[0]
        for row in rows[1:]:
            all_ = builder.fadd(all_, row)

        def fill(place: int, sum_: Any, rest: int) -> None:  # in an order in which few sums are kept
            if rest == 0:
                _store(builder, sum_, builder.gep(first, [_WORD(place)]))
                return
            fill(place, sum_, rest - 1)
            fill(place + (1 << (rest - 1)), builder.fadd(sum_, rows[rest - 1]), rest - 1)

        fill(0, builder.fmul(all_, _same(builder, arguments[2])), UNITS)
        return context.get_dummy_value()

    return types.void(rows, types.int64, types.float32, table, types.int64), generate


@_instructions
def add_entries(_: Any, x: Any, i: Any, tables: Any, size: Any, word: Any) -> Any:
    """x[i:] += Σ_t tables[t · size + the t-th 16 bits of the word:]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, _, size, word = arguments
        start = context.make_array(signature.args[2])(context, builder, arguments[2]).data
        terms = []
        for _ in range(TABLES):
            entry = builder.gep(start, [builder.and_(word, _WORD(0xFFFF))])
            terms.append(_load(builder, builder.bitcast(entry, _VECTOR.as_pointer())))
            word = builder.lshr(word, _WORD(16))
            start = builder.gep(start, [size])
        while len(terms) > 1:  # not one after the other: they wait less for each other, and round less
            terms = [builder.fadd(a, b) for a, b in zip(terms[::2], terms[1::2], strict=True)]
        sum_ = _pointer(context, builder, signature, arguments, 0)
        _store(builder, builder.fadd(_load(builder, sum_), terms[0]), sum_)
        return context.get_dummy_value()

    return types.void(x, types.int64, tables, types.int64, types.uint64), generate


@_instructions
def differing(_: Any, x: Any, i: Any, value: Any) -> Any:
    """A bit for each entry of x[i:], the first the lowest: whether it is not the value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entries = _load(builder, _pointer(context, builder, signature, arguments, 0))
        other = builder.fcmp_unordered("!=", entries, _same(builder, arguments[2]))
        return builder.bitcast(other, _NUMBER)

    return types.uint32(x, types.int64, types.float32), generate


def _same(builder: Any, value: Any) -> Any:
    """A vector of one value."""
    nothing = _VECTOR(ir.Undefined)
    one = builder.insert_element(nothing, value, _NUMBER(0))
    return builder.shuffle_vector(one, nothing, ir.VectorType(_NUMBER, WIDTH)([0] * WIDTH))


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any, k: int) -> Any:
    """To the entries of an array from the index that follows it among the arguments."""
    array = context.make_array(signature.args[k])(context, builder, arguments[k])
    return builder.bitcast(builder.gep(array.data, [arguments[k + 1]]), _VECTOR.as_pointer())


def _load(builder: Any, pointer: Any) -> Any:
    vector = builder.load(pointer)
    vector.align = 4
    return vector


def _store(builder: Any, vector: Any, pointer: Any) -> None:
    builder.store(vector, pointer).align = 4
