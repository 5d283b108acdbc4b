"""Gibbs sweeps, unit by unit, and half-steps of categorical layers. Needs numba.

A lot of ``LOT`` rows is drawn together, with noise of its own: results do not depend on how lots are dealt to
threads. Each loop is over the rows of a lot, so that it runs in vector registers, but for the fields of a
categorical unit, which are sums of vectors of one entry a state (``add_rows``). Nothing is assigned to
slices, as numba takes two seconds to compile the first such assignment.

Arrays may be float32 or float64, all of one call of one type. Noise is drawn in float32, unless it is given.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from harmonium.backends.calls import LOT
from harmonium.backends.noise import fill, jit, seed
from harmonium.backends.per_unit import exponential

_GROUP: Final = 16  # lots for which a table is made; their states stay in the second level of cache
_LANES: Final = 8  # entries of a vector
_SUMS: Final = 4  # of every fourth row, as an addition waits for the one before
_code: Any = cgutils  # which has no types


@jit
def sweep_categorical(
    first: int, last: int, x: Any, q: int, J: Any, bias: Any, outside: Any, beta: Any, held: Any, order: Any,
    starts: Any, others: Any, key: Any, noise: Any, drawn: Any,
) -> None:  # fmt: skip
    """Draws the units of a categorical layer in turn, each given all others: ``drawn`` from x.

    Shares are lots. x and ``drawn`` are one-hot, (rows, units · q). J is symmetric, and zero within a unit.
    ``outside`` is β times the field of other layers, (rows, units · q), or empty; beta has an entry a row;
    ``held`` marks units that stay, (rows, units) bytes, or is empty. Unit i is joined to
    others[starts[i, 0] : starts[i, 1]]. Noise is uniform variates, (units, rows), or empty.
    """
    rows, n = len(x), len(starts)
    pitch = (q + _LANES - 1) // _LANES * _LANES
    table = np.zeros(n * q * pitch, x.dtype)
    sums, betas = np.zeros(LOT * pitch, x.dtype), np.zeros((_GROUP, LOT), x.dtype)
    logits, u, digits = np.zeros((q, LOT), x.dtype), np.zeros(LOT, x.dtype), np.empty(LOT, np.int32)
    variates, streams = np.empty(LOT, np.float32), np.empty(_GROUP, np.uint64)
    offsets = np.empty((_GROUP * LOT, n), np.int32)  # of the row that a unit's state picks from the table
    for start in range(first, last, _GROUP):
        lots, top = min(_GROUP, last - start), start * LOT
        bottom = min(rows, top + lots * LOT)
        for row in range(top, bottom):
            _read(x[row], q, pitch, offsets[row - top])
            betas[(row - top) // LOT, (row - top) % LOT] = beta[row]
        for lot in range(lots):
            seed(streams[lot : lot + 1], key, start + lot)
        for i in order:
            mine = others[starts[i, 0] : starts[i, 1]]
            _fill_table(J, i, q, pitch, mine, table)
            for lot in range(lots):
                first_row = top + lot * LOT
                count = min(LOT, bottom - first_row)
                for c in range(count):
                    for lane in range(0, pitch, _LANES):
                        add_rows(table, lane, offsets[first_row - top + c], mine, sums, c * pitch + lane)
                for a in range(q):
                    for c in range(LOT):
                        logits[a, c] = bias[i * q + a] + betas[lot, c] * sums[c * pitch + a]
                if outside.size > 0:
                    _add_outside(outside, i * q, first_row, count, logits)
                _uniform(noise, i, first_row, count, variates, streams[lot : lot + 1], u)
                _pick(logits, u, digits)
                for c in range(count):
                    if held.size == 0 or held[first_row + c, i] == 0:
                        offsets[first_row - top + c, i] = (i * q + digits[c]) * pitch
        for row in range(top, bottom):
            for b in range(n * q):
                drawn[row, b] = 0
            for i in range(n):
                drawn[row, offsets[row - top, i] // pitch] = 1


@jit
def draw_categorical(first: int, last: int, fields: Any, q: int, bias: Any, key: Any, drawn: Any) -> None:
    """Draws the units of a categorical layer given their fields, both (rows, units · q), lot by lot."""
    rows, n = len(fields), len(bias) // q
    logits, digits = np.zeros((q, LOT), np.float32), np.empty(LOT, np.int32)
    u, stream = np.empty(LOT, np.float32), np.empty(1, np.uint64)
    for lot in range(first, last):
        first_row = lot * LOT
        count = min(LOT, rows - first_row)
        seed(stream, key, lot)
        for i in range(n):
            for a in range(q):
                for c in range(LOT):
                    logits[a, c] = bias[i * q + a]
            _add_outside(fields, i * q, first_row, count, logits)
            fill(u, stream)
            _pick(logits, u, digits)
            for c in range(count):
                for a in range(q):
                    drawn[first_row + c, i * q + a] = digits[c] == a


@jit
def _read(x: Any, q: int, pitch: int, offsets: Any) -> None:
    """Sets the places of the rows of the table that the one-hot units of a state pick."""
    for i in range(len(offsets)):
        digit = 0
        for a in range(1, q):
            digit = a if x[i * q + a] != 0 else digit
        offsets[i] = (i * q + digit) * pitch


@jit
def _fill_table(J: Any, i: int, q: int, pitch: int, others: Any, table: Any) -> None:
    """Sets rows of the table, ``pitch`` apart, to the columns of J that lead to unit i: its rows of J."""
    for j in others:
        for a in range(q):
            for b in range(j * q, (j + 1) * q):
                table[b * pitch + a] = J[i * q + a, b]


@jit
def _add_outside(outside: Any, column: int, begin: int, count: int, logits: Any) -> None:
    """Adds columns of a matrix, one for each row of ``logits``, (columns, LOT)."""
    for c in range(count):
        for a in range(len(logits)):
            logits[a, c] += outside[begin + c, column + a]


@jit
def _uniform(variates_given: Any, i: int, begin: int, count: int, variates: Any, stream: Any, u: Any) -> None:
    """Sets u to the variates of unit i in some rows: those given, or the next ones of a stream."""
    if variates_given.size > 0:
        for c in range(count):
            u[c] = variates_given[i, begin + c]
    else:
        fill(variates, stream)
        for c in range(LOT):
            u[c] = variates[c]


@jit
def _pick(logits: Any, u: Any, digits: Any) -> None:
    """Draws a state of one unit in every row of a lot; the logits, (states, LOT), are room then.

    As the variates are at most 1 - 2^-24, a share of the total is less than it, and a state whose probability
    is rounded away is never drawn.
    """
    q = len(logits)
    top, total = np.empty(LOT, logits.dtype), np.zeros(LOT, logits.dtype)
    for c in range(LOT):
        top[c] = logits[0, c]
    for a in range(1, q):
        for c in range(LOT):
            top[c] = max(top[c], logits[a, c])
    for a in range(q):
        for c in range(LOT):
            total[c] += exponential(logits[a, c] - top[c])
            logits[a, c] = total[c]
    for c in range(LOT):
        total[c] *= u[c]
        digits[c] = 0
    for a in range(q - 1):
        for c in range(LOT):
            digits[c] += logits[a, c] <= total[c]


def _make_add_rows(_: Any, table: Any, lane: Any, offsets: Any, others: Any, sums: Any, o: Any) -> Any:
    """Generates the instructions of ``add_rows``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def array(k: int) -> Any:
            return context.make_array(signature.args[k])(context, builder, arguments[k])

        vector = ir.VectorType(context.get_value_type(table.dtype), _LANES)
        size, start = table.dtype.bitwidth // 8, builder.gep(array(0).data, [arguments[1]])
        listed, rows, word = array(3), array(2).data, ir.IntType(64)
        count = listed.nitems
        zero = ir.Constant(vector, None)
        totals = [_code.alloca_once_value(builder, zero) for _ in range(_SUMS)]

        def add(k: Any, total: Any) -> None:
            j = builder.sext(builder.load(builder.gep(listed.data, [k])), word)
            offset = builder.sext(builder.load(builder.gep(rows, [j])), word)
            row = builder.load(builder.bitcast(builder.gep(start, [offset]), vector.as_pointer()))
            row.align = size
            builder.store(builder.fadd(builder.load(total), row), total)

        even = builder.and_(count, word(-_SUMS))
        with _code.for_range_slice(builder, word(0), even, word(_SUMS), word) as (k, _count):
            for s, total in enumerate(totals):
                add(builder.add(k, word(s)), total)
        with _code.for_range_slice(builder, even, count, word(1), word) as (k, _count):
            add(k, totals[0])
        a, b, c, d = map(builder.load, totals)
        total = builder.fadd(builder.fadd(a, b), builder.fadd(c, d))
        to = builder.bitcast(builder.gep(array(4).data, [arguments[5]]), vector.as_pointer())
        builder.store(total, to).align = size
        return context.get_dummy_value()

    return types.void(table, types.int64, offsets, others, sums, types.int64), generate


add_rows: Any = intrinsic(_make_add_rows)
"""Sets sums[o:] to Σ_j table[offsets[j] + lane:] over j in others, of ``_LANES`` entries; nothing is checked:
(table, lane, offsets, others, sums, o)."""
