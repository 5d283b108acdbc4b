"""Sweeps of units with two values that are joined by the edges of a sparse graph. Needs numba.

Chains lie side by side, one bit each: a word has one unit in a lot of up to 64 chains. The field of a unit is
a sum of its couplings, each added in the chains whose bit is set, so that a neighbour costs one load and one
masked addition for 16 chains. Fields of units of one colour follow each other without gaps in a tile of
``TILE`` entries, however few the chains are; noise, exponentials and decisions run over tiles.

A tile has noise of its own, by sweep, lot and place: results do not depend on the number of threads, nor on
whether these share lots or the units of a colour.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
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
from harmonium.backends.compressed_rows import CompressedRows
from harmonium.backends.noise import fill, jit, seed
from harmonium.backends.per_unit import decay, exponential_within

TILE: Final = 512  # three arrays of so many floats stay in the first level of cache, beside the states
TILES_A_THREAD: Final = 32  # about 20 µs, ten times what it takes to start torch's threads
_LANES: Final = 16  # entries of the widest vectors, of AVX-512
_SLACK: Final = 64  # entries behind a tile, as whole words are read and written
_BLOCK: Final = 1024  # units of a lot that are packed at once: their words stay in the first level of cache
_code: Any = cgutils  # which has no types


@final
@dataclass(frozen=True, eq=False)
class EdgeCouplings:
    """The log-odds of a layer's units, in the order of a sweep; ``join_edges`` makes it.

    Attributes:
        rows: The graph.
        offset: The log-odds of the upper value where all neighbours have their lower value, float32 (units,).
        weight: What a neighbour with its upper value adds, float32, for every entry of the rows.
        low: The lower value.
        gain: The difference of the two values.
    """

    rows: CompressedRows
    offset: NDArray[np.float32]
    weight: NDArray[np.float32]
    low: np.float32
    gain: np.float32


def join_edges(
    bias: Tensor, values: Tensor, rows: CompressedRows, two_values: tuple[float, float]
) -> EdgeCouplings:
    """Returns what sweeps read of a layer; it serves as long as the parameters do not change.

    Args:
        bias: (units,), and
        values: the coupling J of every edge, (edges,), of one dtype.
        rows: The graph, of ``compress_rows``.
        two_values: The lower and the upper value of a unit.
    """
    low, high = np.array(two_values, np.float32)
    offset, weight = np.empty(rows.n_nodes, np.float32), np.empty(len(rows.edge), np.float32)
    graph = rows.order, rows.row_start, rows.edge
    over(_join, rows.n_nodes, bias, values, *graph, low, high - low, offset, weight, least=1 << 14)
    return EdgeCouplings(rows, offset, weight, low, high - low)


def sweep_edges(
    states: Tensor, couplings: EdgeCouplings, key: np.uint64, *, sweeps: int = 1, beta: Tensor | float = 1.0,
    kernel: Literal["gibbs", "metropolis"] = "gibbs", outside: Tensor | None = None,
    held: Tensor | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Draws the units of a layer colour by colour, each given its neighbours.

    The density is proportional to exp(β Σ_i bias_i x_i + β Σ_ij J_ij x_i x_j + Σ_i outside_i x_i), the sum
    over pairs taken once for every edge.

    Args:
        states: States to start from, (chains, units), of the two values.
        couplings: The layer, of ``join_edges``.
        key: Key of the noise; equal keys give equal bits, whatever the number of threads.
        sweeps: Sweeps to make, at least 0.
        beta: Inverse temperature, one for all chains or (chains,) or (chains, 1).
        kernel: "gibbs" draws every unit from its conditional distribution; "metropolis" proposes one of the
            two values at random and accepts it or not, as ``chains.Metropolis``.
        outside: What other layers add to the field, β included, (chains, units); None: nothing.
        held: Units that stay as they are, booleans (chains, units); None: none.
        out: Where to put the states, contiguous; may be ``states``. None: into a new tensor.

    Returns:
        States, (chains, units).
    """
    words = pack_states(states, float(couplings.low + couplings.gain / 2))
    betas = np.empty(len(states), np.float32)
    betas[:] = beta.detach().numpy().reshape(-1) if isinstance(beta, Tensor) else beta
    outside = states.new_empty(0, 0) if outside is None else outside.contiguous()
    marks = words[:0] if held is None else pack_states(held.view(torch.uint8), 0)
    sweep_words(words, couplings, betas, key, sweeps, kernel == "metropolis", outside, marks)
    drawn = torch.empty_like(states, memory_format=torch.contiguous_format) if out is None else out
    low, high = couplings.low, couplings.low + couplings.gain
    over(_unpack, len(words), words, drawn, low, high)
    return drawn


def pack_states(states: Tensor, threshold: float) -> Any:
    """Packs states above a threshold into words: (lots, units) of 8, 16, 32 or 64 bits."""
    chains, units = states.shape
    bits = next(width for width in (8, 16, 32, 64) if chains <= width or width == 64)
    words = np.zeros((-(-chains // bits), units), f"uint{bits}")
    rows = states.detach().contiguous().numpy()
    over(_pack, len(words), rows, rows.dtype.type(threshold), words)
    return words


def sweep_words(
    words: Any, couplings: EdgeCouplings, betas: Any, key: np.uint64, sweeps: int, metropolis: bool,
    outside: Any, held: Any,
) -> None:  # fmt: skip
    """Moves packed states by some sweeps, in place; arguments as for ``sweep_edges``.

    Threads share the lots, and, where these are fewer, the units of a colour.
    """
    rows, lots = couplings.rows, len(words)
    graph = rows.order, rows.row_start, rows.neighbour, couplings.offset, couplings.weight
    rest = betas, outside, held, couplings.gain, metropolis, key
    tile = TILE // -(-len(betas) // lots)
    if lots >= torch.get_num_threads() or len(rows.order) < rows.n_colours * TILES_A_THREAD * tile:
        over(_sweep_lots, lots, words, sweeps, rows.colour_start, *graph, *rest)
        return
    for sweep in range(sweeps):
        for begin, end in pairwise(rows.colour_start.tolist()):
            for lot in range(lots):
                place = words, lot, sweep, begin, end
                over(_sweep_tiles, -(-(end - begin) // tile), *place, *graph, *rest, least=TILES_A_THREAD)


@jit
def _sweep_lots(
    first: int, last: int, words: Any, sweeps: int, colour_start: Any, order: Any, row_start: Any,
    neighbour: Any, offset: Any, weight: Any, betas: Any, outside: Any, held: Any, gain: Any,
    metropolis: bool, key: Any,
) -> None:  # fmt: skip
    """Makes all sweeps of some lots."""
    tile = TILE // -(-len(betas) // len(words))
    for lot in range(first, last):
        for sweep in range(sweeps):
            for colour in range(len(colour_start) - 1):
                begin, end = colour_start[colour], colour_start[colour + 1]
                _sweep_tiles(
                    0, -(-(end - begin) // tile), words, lot, sweep, begin, end, order, row_start, neighbour,
                    offset, weight, betas, outside, held, gain, metropolis, key,
                )  # fmt: skip


@jit
def _sweep_tiles(
    first: int, last: int, words: Any, lot: int, sweep: int, begin: int, end: int, order: Any, row_start: Any,
    neighbour: Any, offset: Any, weight: Any, betas: Any, outside: Any, held: Any, gain: Any,
    metropolis: bool, key: Any,
) -> None:  # fmt: skip
    """Draws some tiles of a colour, the places from ``begin`` to ``end`` of the order, in one lot."""
    tile = TILE // -(-len(betas) // len(words))
    start, count = _chains_of(lot, len(words), len(betas))
    states, full = words[lot], words.dtype.type(~np.uint64(0) >> np.uint64(64 - count))
    field, noise = np.zeros(TILE + _SLACK, np.float32), np.zeros(TILE + _SLACK, np.float32)
    limit, beta = np.ones(TILE + _SLACK, np.float32), np.empty(TILE, np.float32)
    stream = np.empty(1, np.uint64)
    for c in range(tile * count):
        beta[c] = betas[start + c % count]
    for number in range(first, last):
        top = begin + number * tile
        bottom = min(end, top + tile)
        size = (bottom - top) * count
        for p in range(top, bottom):
            place = (p - top) * count
            add_weights(states, neighbour, weight, row_start[p], row_start[p + 1], offset[p], field, place)
        for c in range(size):
            field[c] *= beta[c]
        if outside.size > 0:
            _add_outside(outside, gain, order, top, bottom, start, count, field)
        seed(stream, key, (sweep * len(words) + lot) * len(order) + top)
        fill(noise[: (size + 1) // 2 * 2], stream)
        if metropolis:
            _compare_changes(size, field, noise, limit)
        else:
            _compare_states(size, field, noise)
        for p in range(top, bottom):
            i, place = order[p], (p - top) * count
            free = full if held.size == 0 else full & ~held[lot, i]
            up = below(field, noise, place, states)
            if metropolis:
                up = (up & states[i]) | (~below(limit, noise, place, states) & ~states[i])
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
    first: int, last: int, bias: Any, values: Any, order: Any, row_start: Any, edge: Any, low: Any, gain: Any,
    offset: Any, weight: Any,
) -> None:  # fmt: skip
    """Sets ``EdgeCouplings`` of some places of the order."""
    for p in range(first, last):
        total = 0.0
        for k in range(row_start[p], row_start[p + 1]):
            total += np.float64(values[edge[k]])
            weight[k] = gain * gain * values[edge[k]]
        offset[p] = np.float64(gain) * (bias[order[p]] + low * total)


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
    _: Any,
    words: Any,
    neighbour: Any,
    weight: Any,
    first: Any,
    last: Any,
    offset: Any,
    field: Any,
    place: Any,
) -> Any:
    """Generates the instructions of ``add_weights``."""
    parts, lanes = _cut_word(words.dtype.bitwidth)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def data(k: int) -> Any:
            return context.make_array(signature.args[k])(context, builder, arguments[k]).data

        single, mask, long = ir.FloatType(), ir.IntType(lanes), ir.IntType(64)
        vector, flags = ir.VectorType(single, lanes), ir.VectorType(ir.IntType(1), lanes)

        def spread(value: Any) -> Any:
            one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.IntType(32)(0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), None)
            return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)

        states, others, weights = data(0), data(1), data(2)
        totals = [_code.alloca_once_value(builder, spread(arguments[5])) for _ in range(parts)]
        with _code.for_range_slice(builder, arguments[3], arguments[4], long(1), long) as (k, _count):
            j = builder.sext(builder.load(builder.gep(others, [k])), long)
            amount = spread(builder.load(builder.gep(weights, [k])))
            word = builder.bitcast(builder.gep(states, [j]), mask.as_pointer())
            for part, total in enumerate(totals):
                bits = builder.load(builder.gep(word, [long(part)]))
                before = builder.load(total)
                after = builder.fadd(before, amount)
                builder.store(builder.select(builder.bitcast(bits, flags), after, before), total)
        to = builder.bitcast(builder.gep(data(6), [arguments[7]]), vector.as_pointer())
        for part, total in enumerate(totals):
            builder.store(builder.load(total), builder.gep(to, [long(part)])).align = 4
        return context.get_dummy_value()

    whole = types.int64
    return types.void(words, neighbour, weight, whole, whole, types.float32, field, whole), generate


add_weights: Any = intrinsic(_make_add_weights)
"""Sets field[place:], an entry a bit of a word, to offset + Σ_k weight[k] · bit of words[neighbour[k]] over k
from first to last; nothing is checked: (words, neighbour, weight, first, last, offset, field, place)."""


def _make_below(_: Any, x: Any, y: Any, place: Any, words: Any) -> Any:
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

        found = word(0)
        for part in range(parts):
            flags = builder.fcmp_ordered("<", read(0, part), read(1, part))
            bits = builder.bitcast(flags, ir.IntType(lanes))
            if parts > 1:
                bits = builder.shl(builder.zext(bits, word), word(part * lanes))
            found = builder.or_(found, bits)
        return found

    return words.dtype(x, y, types.int64, words), generate


below: Any = intrinsic(_make_below)
"""Returns a word whose bits tell where x[place:] is less than y[place:], of the type of an array of words;
nothing is checked: (x, y, place, words)."""
