"""Sweeps of units with two values that are joined within their layer. Needs numba.

Chains lie side by side, one bit each: a word has one unit in a lot of up to 64 chains. The field of a unit is
a sum of its couplings, each added in the chains whose bit is set, so that a neighbour costs one load and one
masked addition for 16 chains. Fields of units of one colour follow each other without gaps in a tile of
``TILE`` entries, however few the chains are; noise, exponentials and decisions run over tiles.

A tile has noise of its own, by key, lot and place: results do not depend on the number of threads, nor on
whether these share lots or the units of a colour.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, Final, Literal, final

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray
from torch import Tensor

from harmonium.backends.calls import over
from harmonium.backends.noise import fill, jit, seed
from harmonium.backends.per_unit import decay, exponential_within
from harmonium.backends.sparsity import RowsInTurn

TILE: Final = 512  # three arrays of so many floats stay in the first level of cache, beside the states
TILES_A_THREAD: Final = 32  # about 20 µs, ten times what it takes to start torch's threads
_LANES: Final = 16  # entries of the widest vectors, of AVX-512
_SLACK: Final = 64  # entries behind a tile, as whole words are read and written
_BLOCK: Final = 1024  # units of a lot that are packed at once: their words stay in the first level of cache
_code: Any = cgutils  # which has no types


@final
@dataclass(frozen=True, eq=False)
class EdgeCouplings:
    """The couplings within a layer in log-odds of its units; ``join_edges`` makes it.

    Attributes:
        rows: The graph.
        offset: The log-odds of the upper value where all neighbours have their lower value, float32 (units,).
        weight: What a neighbour with its upper value adds, float32, for every entry of the rows.
        low: The lower value.
        gain: The difference of the two values.
    """

    rows: RowsInTurn
    offset: NDArray[np.float32]
    weight: NDArray[np.float32]
    low: np.float32
    gain: np.float32


def join_edges(values: Tensor, rows: RowsInTurn, two_values: tuple[float, float]) -> EdgeCouplings:
    """Returns what sweeps read of the couplings within a layer; it serves until these change.

    Args:
        values: J: the coupling of every pair, (pairs,), or a matrix.
        rows: The graph, of ``Graph.rows_in_turn``.
        two_values: The lower and the upper value of a unit.
    """
    low, high = np.array(two_values, np.float32)
    units = len(rows.order)
    offset, weight = np.empty(units, np.float32), np.empty(len(rows.positions), np.float32)
    over(
        _join,
        units,
        values.reshape(-1),
        rows.starts,
        rows.positions,
        low,
        high - low,
        offset,
        weight,
        least=1 << 14,
    )
    return EdgeCouplings(rows, offset, weight, low, high - low)


def sweep_edges(
    states: Tensor, bias: Tensor, couplings: EdgeCouplings, keys: NDArray[np.uint64], *,
    beta: Tensor | float = 1.0, kernel: Literal["gibbs", "metropolis"] = "gibbs",
    outside: Tensor | None = None, held: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Draws the units of a layer colour by colour, each given its neighbours.

    The density is proportional to exp(Σ_i (bias_i + outside_i) x_i + β Σ_ij J_ij x_i x_j), where every pair
    counts once.

    Args:
        states: States to start from, (chains, units), of the two values.
        bias: (units,).
        couplings: The couplings within the layer, of ``join_edges``.
        keys: Keys of the noise, one for each sweep; equal keys give equal bits on any number of threads.
        beta: Inverse temperature of the couplings, one for all chains or (chains,) or (chains, 1).
        kernel: "gibbs" draws every unit from its conditional distribution; "metropolis" proposes one of the
            two values at random and accepts it or not, as ``chains.Metropolis``.
        outside: What other layers add to the field, β included, (chains, units); None: nothing.
        held: Units that stay as they are, booleans (chains, units); None: none.

    Returns:
        States, (chains, units).
    """
    words = pack_states(states, float(couplings.low + couplings.gain / 2))
    betas = np.empty(len(states), np.float32)
    betas[:] = beta.detach().numpy().reshape(-1) if isinstance(beta, Tensor) else beta
    outside = states.new_empty(0, 0) if outside is None else outside.contiguous()
    marks = words[:0] if held is None else pack_states(held.view(torch.uint8), 0)
    rows, lots = couplings.rows, len(words)
    graph = rows.order, rows.starts, rows.others, couplings.offset, couplings.weight
    rest = bias.contiguous(), betas, outside, marks, couplings.gain, kernel == "metropolis"
    tile, n_colours = TILE // -(-len(betas) // lots), len(rows.colour_starts) - 1
    if lots >= torch.get_num_threads() or len(rows.order) < n_colours * TILES_A_THREAD * tile:
        over(_sweep_lots, lots, words, rows.colour_starts, *graph, *rest, keys)
    else:  # threads share the units of a colour
        for key, (begin, end) in product(keys, pairwise(rows.colour_starts.tolist())):
            shares = -(-(end - begin) // tile)
            for lot in range(lots):
                span = words, lot, begin, end
                over(_sweep_tiles, shares, *span, *graph, *rest, key, least=TILES_A_THREAD)
    drawn = torch.empty_like(states, memory_format=torch.contiguous_format)
    low, high = couplings.low, couplings.low + couplings.gain
    over(_unpack, len(words), words, drawn, low, high)
    return drawn


def pair_energies(states: Tensor, couplings: EdgeCouplings) -> Tensor | None:
    """Returns Σ_ij J_ij x_i x_j over the pairs within a layer, summed in float64: (chains,).

    Args:
        states: (chains, units); None is returned where they have other values than the two of the units.
        couplings: The couplings within the layer, of ``join_edges``.
    """
    chains, rows = len(states), couplings.rows
    low, high = couplings.low, couplings.low + couplings.gain
    others = np.zeros(chains, np.int64)
    states = states.contiguous()
    over(_count_others, chains, states, low, high, others, least=16)
    if others.any():
        return None
    words, totals = pack_states(states, float(low + couplings.gain / 2)), np.empty(chains)
    graph = rows.order, rows.starts, rows.others, couplings.offset, couplings.weight
    over(_sum_energies, len(words), words, *graph, low, couplings.gain, totals)
    return torch.from_numpy(totals)


def pack_states(states: Tensor, threshold: float) -> Any:
    """Packs states above a threshold into words: (lots, units) of 8, 16, 32 or 64 bits."""
    chains, units = states.shape
    bits = next(width for width in (8, 16, 32, 64) if chains <= width or width == 64)
    words = np.zeros((-(-chains // bits), units), f"uint{bits}")
    rows = states.detach().contiguous().numpy()
    over(_pack, len(words), rows, rows.dtype.type(threshold), words)
    return words


@jit
def _sweep_lots(
    first: int, last: int, words: Any, colour_starts: Any, order: Any, starts: Any, others: Any,
    offset: Any, weight: Any, bias: Any, betas: Any, outside: Any, held: Any, gain: Any,
    metropolis: bool, keys: Any,
) -> None:  # fmt: skip
    """Makes all sweeps of some lots."""
    tile = TILE // -(-len(betas) // len(words))
    for lot in range(first, last):
        for key in keys:
            for colour in range(len(colour_starts) - 1):
                begin, end = colour_starts[colour], colour_starts[colour + 1]
                _sweep_tiles(
                    0, -(-(end - begin) // tile), words, lot, begin, end, order, starts, others,
                    offset, weight, bias, betas, outside, held, gain, metropolis, key,
                )  # fmt: skip


@jit
def _sweep_tiles(
    first: int, last: int, words: Any, lot: int, begin: int, end: int, order: Any, starts: Any,
    others: Any, offset: Any, weight: Any, bias: Any, betas: Any, outside: Any, held: Any, gain: Any,
    metropolis: bool, key: Any,
) -> None:  # fmt: skip
    """Draws some tiles of a colour, the places from ``begin`` to ``end`` of the order, in one lot."""
    tile = TILE // -(-len(betas) // len(words))
    start, count = _chains_of(lot, len(words), len(betas))
    states, full = words[lot], words.dtype.type(~np.uint64(0) >> np.uint64(64 - count))
    field, noise = np.zeros(TILE + _SLACK, np.float32), np.zeros(TILE + _SLACK, np.float32)
    limit, beta = np.ones(TILE + _SLACK, np.float32), np.zeros(_SLACK, np.float32)
    stream = np.empty(1, np.uint64)
    for c in range(count):
        beta[c] = betas[start + c]
    for number in range(first, last):
        top = begin + number * tile
        bottom = min(end, top + tile)
        size = (bottom - top) * count
        for p in range(top, bottom):
            shift = gain * bias[order[p]]
            add_weights(
                states, others, weight, starts[p], starts[p + 1], offset[p], beta, shift, field,
                (p - top) * count,
            )  # fmt: skip
        if outside.size > 0:
            _add_outside(outside, gain, order, top, bottom, start, count, field)
        seed(stream, key, lot * len(order) + top)
        fill(noise[: (size + 1) // 2 * 2], stream)
        if metropolis:
            _compare_changes(size, field, noise, limit)
        else:
            _compare_states(size, field, noise)
        for p in range(top, bottom):
            i, entry = order[p], (p - top) * count
            free = full if held.size == 0 else full & ~held[lot, i]
            up = below(field, noise, entry, states)
            if metropolis:
                up = (up & states[i]) | (~below(limit, noise, entry, states) & ~states[i])
            states[i] = (up & free) | (states[i] & ~free)


@jit
def _chains_of(lot: int, lots: int, chains: int) -> Any:
    """Returns the first chain of a lot and how many it has; lots differ by at most one."""
    start = chains * lot // lots
    return start, chains * (lot + 1) // lots - start


@jit
def _compare_states(size: int, field: Any, noise: Any) -> None:
    """Turns log-odds s and variates u into u e^-s and 1 - u; the first is less with probability σ(s)."""
    for c in range(size):
        field[c] = noise[c] * exponential_within(-field[c])
        noise[c] = np.float32(1) - noise[c]


@jit
def _compare_changes(size: int, field: Any, noise: Any, limit: Any) -> None:
    """Turns log-odds s and variates u into min(1, e^-s) and 2u, and sets ``limit`` to min(1, e^s).

    A proposal is the present value in half of the cases, in which 2u is more than 1: nothing changes.
    """
    for c in range(size):
        falls, change = field[c] < 0, decay(field[c])
        field[c] = np.float32(1) if falls else change
        limit[c] = change if falls else np.float32(1)
        noise[c] += noise[c]


@jit
def _add_outside(
    outside: Any, gain: Any, order: Any, top: int, bottom: int, start: int, count: int, field: Any
) -> None:
    """Adds the fields of other layers, (chains, units), to a tile."""
    for c in range(count):
        for p in range(top, bottom):
            field[(p - top) * count + c] += gain * outside[start + c, order[p]]


@jit
def _join(
    first: int,
    last: int,
    values: Any,
    starts: Any,
    positions: Any,
    low: Any,
    gain: Any,
    offset: Any,
    weight: Any,
) -> None:
    """Sets ``EdgeCouplings`` of some places of the order."""
    for p in range(first, last):
        total = 0.0
        for k in range(starts[p], starts[p + 1]):
            total += np.float64(values[positions[k]])
            weight[k] = gain * gain * values[positions[k]]
        offset[p] = gain * low * total


@jit
def _sum_energies(
    first: int, last: int, words: Any, order: Any, starts: Any, others: Any, offset: Any, weight: Any,
    low: Any, gain: Any, totals: Any,
) -> None:  # fmt: skip
    """Sets the ``pair_energies`` of some lots: half of the sum of each unit times its field."""
    field, ones, sums = np.zeros(_SLACK, np.float32), np.ones(_SLACK, np.float32), np.empty(_SLACK)
    for lot in range(first, last):
        start, count = _chains_of(lot, len(words), len(totals))
        states = words[lot]
        for c in range(count):
            sums[c] = 0
        for p in range(len(order)):
            add_weights(
                states, others, weight, starts[p], starts[p + 1], offset[p], ones, np.float32(0), field, 0
            )
            word = np.uint64(states[order[p]])
            for c in range(count):
                value = low + gain * np.float32(word >> np.uint64(c) & np.uint64(1))
                sums[c] += np.float64(value) * np.float64(field[c])
        for c in range(count):
            totals[start + c] = sums[c] / (2 * np.float64(gain))


@jit
def _count_others(first: int, last: int, states: Any, low: Any, high: Any, others: Any) -> None:
    """Counts the entries of some rows that are neither of two values."""
    for row in range(first, last):
        x, count = states[row], 0
        for i in range(len(x)):
            count += (x[i] != low) & (x[i] != high)
        others[row] = count


@jit
def _pack(first: int, last: int, states: Any, threshold: Any, words: Any) -> None:
    """Sets the words, zero before, of some lots."""
    for lot in range(first, last):
        start, count = _chains_of(lot, len(words), len(states))
        for begin in range(0, states.shape[1], _BLOCK):
            end = min(states.shape[1], begin + _BLOCK)
            for c in range(count):
                _set_bits(states[start + c, begin:end], threshold, c, words[lot, begin:end])


@jit
def _unpack(first: int, last: int, words: Any, states: Any, low: Any, high: Any) -> None:
    """Sets the states, (chains, units), of some lots of words."""
    for lot in range(first, last):
        start, count = _chains_of(lot, len(words), len(states))
        for begin in range(0, states.shape[1], _BLOCK):
            end = min(states.shape[1], begin + _BLOCK)
            for c in range(count):
                _get_values(words[lot, begin:end], c, low, high, states[start + c, begin:end])


@jit
def _set_bits(x: Any, threshold: Any, c: int, words: Any) -> None:
    """Sets bit c of words where x is above a threshold."""
    one, none = words.dtype.type(np.uint64(1) << np.uint64(c)), words.dtype.type(0)
    for i in range(len(x)):
        words[i] |= one if x[i] > threshold else none


@jit
def _get_values(words: Any, c: int, low: Any, high: Any, x: Any) -> None:
    """Sets x by bit c of words."""
    one, none = words.dtype.type(np.uint64(1) << np.uint64(c)), words.dtype.type(0)
    for i in range(len(x)):
        x[i] = low if words[i] & one == none else high


def _cut_word(bits: int) -> tuple[int, int]:
    """Returns how many vectors the bits of a word mask, and of how many entries."""
    return -(-bits // _LANES), min(bits, _LANES)


def _make_add_weights(
    _: Any, words: Any, others: Any, weight: Any, first: Any, last: Any, offset: Any, beta: Any, shift: Any,
    field: Any, start: Any,
) -> Any:  # fmt: skip
    """Generates the instructions of ``add_weights``."""
    parts, lanes = _cut_word(words.dtype.bitwidth)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def data(k: int) -> Any:
            return context.make_array(signature.args[k])(context, builder, arguments[k]).data

        single, mask, long = ir.FloatType(), ir.IntType(lanes), ir.IntType(64)
        vector, flags = ir.VectorType(single, lanes), ir.VectorType(ir.IntType(1), lanes)
        nothing, zeros = ir.Constant(vector, ir.Undefined), ir.VectorType(ir.IntType(32), lanes)

        def spread(value: Any) -> Any:
            one = builder.insert_element(nothing, value, ir.IntType(32)(0))
            return builder.shuffle_vector(one, nothing, ir.Constant(zeros, None))

        def vectors(k: int, start: Any) -> list[Any]:
            to = builder.bitcast(builder.gep(data(k), [start]), vector.as_pointer())
            return [builder.gep(to, [long(part)]) for part in range(parts)]

        states, neighbours, weights = data(0), data(1), data(2)
        totals = [_code.alloca_once_value(builder, spread(arguments[5])) for _ in range(parts)]
        with _code.for_range_slice(builder, arguments[3], arguments[4], long(1), long) as (k, _count):
            j = builder.sext(builder.load(builder.gep(neighbours, [k])), long)
            amount = spread(builder.load(builder.gep(weights, [k])))
            word = builder.bitcast(builder.gep(states, [j]), mask.as_pointer())
            for part, total in enumerate(totals):
                bits = builder.bitcast(builder.load(builder.gep(word, [long(part)])), flags)
                before = builder.load(total)
                builder.store(builder.select(bits, builder.fadd(before, amount), before), total)
        more, betas, to = spread(arguments[7]), vectors(6, long(0)), vectors(8, arguments[9])
        for total, target, factor in zip(totals, to, betas, strict=True):
            scale = builder.load(factor)
            scale.align = 4
            value = builder.fadd(builder.fmul(builder.load(total), scale), more)
            builder.store(value, target).align = 4
        return context.get_dummy_value()

    whole, real = types.int64, types.float32
    arguments = (words, others, weight, whole, whole, real, beta, real, field, whole)
    return types.void(*arguments), generate


add_weights: Any = intrinsic(_make_add_weights)
"""Sets field[start:] to beta · (offset + Σ_k weight[k] · bit of words[others[k]]) + shift, k from first to
last, where field and beta have an entry a bit of a word; nothing is checked: (words, others, weight, first,
last, offset, beta, shift, field, start)."""


def _make_below(_: Any, x: Any, y: Any, start: Any, words: Any) -> Any:
    """Generates the instructions of ``below``."""
    parts, lanes = _cut_word(words.dtype.bitwidth)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector, long = ir.VectorType(ir.FloatType(), lanes), ir.IntType(64)
        word = ir.IntType(words.dtype.bitwidth)

        def read(k: int, part: int) -> Any:
            start = context.make_array(signature.args[k])(context, builder, arguments[k]).data
            entry = builder.gep(start, [builder.add(arguments[2], long(part * lanes))])
            loaded = builder.load(builder.bitcast(entry, vector.as_pointer()))
            loaded.align = 4
            return loaded

        word_below = word(0)
        for part in range(parts):
            flags = builder.fcmp_ordered("<", read(0, part), read(1, part))
            bits = builder.bitcast(flags, ir.IntType(lanes))
            if parts > 1:
                bits = builder.shl(builder.zext(bits, word), word(part * lanes))
            word_below = builder.or_(word_below, bits)
        return word_below

    return words.dtype(x, y, types.int64, words), generate


below: Any = intrinsic(_make_below)
"""Returns a word whose bits tell where x[start:] is less than y[start:], of the type of an array of words;
nothing is checked: (x, y, start, words)."""
