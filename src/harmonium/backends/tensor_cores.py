"""Calls of Triton kernels with tensors on a GPU: fields, draws and statistics on its matrix units.

Needs no Triton to be loaded; ``choice.tensor_cores`` decides whether they serve. No call waits for the
device or depends on a value there, and all memory is torch's, so that CUDA graphs record them: β, keys and
weights of rows may be tensors that change between replays. Results are the same to the bit at every run on
one kind of device.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

_TERMS = 64  # terms of a sum that matrix units add up by themselves, which they cut where float32 rounds
_ALIGNED = 8  # numbers of two bytes that the copy engine's rows are a multiple of
_HOPPER = (9, 0)  # the first of NVIDIA's GPUs with a copy engine for tiles
# Where one way to cut the work becomes faster than another: between the shapes that were measured.
_FEW = 256  # rows up to which a product is too small to cut its factors first
_MANY = 1 << 13  # rows of a sum from which on more programs share them
_LONG = 2048  # terms of a sum from which on programs share them
_SMALL = 1 << 20  # entries of a result up to which small tiles are better, so that all processors have one
_PROGRAMS = 132  # processors of an H100 or H200
_SHORT: MutableMapping[Tensor, tuple[int, Tensor]] = WeakTensorKeyDictionary()
_RECORDING = [0, 0]  # whether a graph is recorded, and how often that changed
Values = tuple[float, float]


class Drawn(NamedTuple):
    """The results of a half-step: state, mean and field, each (rows, n), and the state in bfloat16."""

    state: Tensor | None
    mean: Tensor | None
    field: Tensor | None
    short: Tensor | None = None


@final
class Couplings:
    """Couplings W, (k, n), and the bfloat16 numbers whose sum they are, made when they are first asked for.

    They are made again where W has changed, and in every recording of a graph that asks for them.
    """

    def __init__(self, W: Tensor, parts: int = 3) -> None:
        self.W, self.count = W, parts
        self._made: tuple[int, int, Tensor] | None = None

    @property
    def parts(self) -> Tensor:
        """The parts one below the other, (parts · k, n), the largest first."""
        W = self.W
        state = -1 if W.is_inference() else W._version, _recording(W)
        if self._made is None or self._made[:2] != state:
            k, n = W.shape
            row = -(-n // _ALIGNED) * _ALIGNED
            made = torch.empty(self.count * k, row, dtype=torch.bfloat16, device=W.device)[:, :n]
            with _on(W):
                _kernels().cut[(-(-k // 32) * -(-n // 64),)](
                    W, made, k, n, *W.stride(), row, k * row, PARTS=self.count, K=32, N=64, num_warps=4
                )
            self._made = *state, made
        return self._made[2]


class Pair(NamedTuple):
    """States or means of two layers, whose products are summed over rows.

    Attributes:
        x: (rows, k), float32 or bfloat16, its columns side by side in memory.
        y: (rows, n), likewise.
        weight: a number; or a tensor (rows,) or (1,).
        x_exact: whether x is exact in bfloat16.
        y_exact: whether y is.
    """

    x: Tensor
    y: Tensor
    weight: float | Tensor = 1.0
    x_exact: bool = True
    y_exact: bool = False


class Sums(NamedTuple):
    """Sums over rows: of x ⊗ y, (k, n), of x, (k,), and of y, (n,)."""

    products: Tensor
    x: Tensor
    y: Tensor


class Tile(NamedTuple):
    """The work of one program of a product.

    Attributes:
        rows: rows of the result, a power of two from 16 on.
        columns: columns of it, likewise.
        depth: terms of the sum that are loaded at a time, likewise.
        warps: groups of 32 threads.
        stages: loads under way at a time.
        splits: programs that share the terms of a sum.
        apart: whether every 64 terms are summed by themselves.
        cut: whether the factors are written in bfloat16 beforehand, for the copy engine to bring.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    splits: int = 1
    apart: bool = True
    cut: bool = False


def half_step(
    x: Tensor,
    W: Tensor | Couplings,
    theta: Tensor,
    values: Values,
    key: Tensor,
    stream: int = 0,
    *,
    transposed: bool = False,
    beta: float | Tensor = 1.0,
    addend: Tensor | None = None,
    mirrored_from: int = 0,
    exact: bool = True,
    parts: int = 3,
    field: bool = False,
    mean: bool = False,
    tile: Tile | None = None,
) -> Drawn:
    """Draws units of two values given the states of others, in one kernel, or two where the sum is shared.

    Args:
        x: states, (rows, k), float32.
        W: couplings, (k, n) float32 of any strides; or ``Couplings``, which are cut into bfloat16 once for
            all products with them, where that is faster.
        theta: (n,).
        values: the lower and the upper value of the units.
        key: of the noise, (1,) int64 on the device; a unit's bits depend on it, on the stream, on row and
            column, and on nothing else.
        stream: numbers the half-steps that share a key, from 0 on.
        transposed: whether x is multiplied by Wᵀ instead: W is (n, k).
        beta: inverse temperature: a number, or a tensor (1,), () or (rows, 1).
        addend: what other layers add to x @ W, (rows, n); β multiplies both.
        mirrored_from: if not 0, row mirrored_from + i mirrors the noise of row i.
        exact: whether x is exact in bfloat16; if not, it is cut into parts as W is.
        parts: of W in bfloat16: 3 for the accuracy of float32, 2 for 16 bits, 1 for 8.
        field: whether the field is returned.
        mean: whether E[units | field] is.
        tile: how the work is cut; None: ``tile_of`` decides by the shape.
    """
    units = theta, values, key, stream, mirrored_from
    return _multiply(x, W, transposed, units, (True, mean, field), beta, addend, exact, parts, tile)


def mean(
    x: Tensor,
    W: Tensor | Couplings,
    theta: Tensor,
    values: Values,
    *,
    transposed: bool = False,
    beta: float | Tensor = 1.0,
    addend: Tensor | None = None,
    exact: bool = True,
    parts: int = 3,
    tile: Tile | None = None,
) -> Tensor:
    """Returns the means of units of two values given the states of others, (rows, n); as ``half_step``."""
    units, asked = (theta, values, None, 0, 0), (False, True, False)
    made = _multiply(x, W, transposed, units, asked, beta, addend, exact, parts, tile).mean
    assert made is not None
    return made


def field(
    x: Tensor,
    W: Tensor | Couplings,
    *,
    transposed: bool = False,
    beta: float | Tensor = 1.0,
    addend: Tensor | None = None,
    exact: bool = True,
    parts: int = 3,
    tile: Tile | None = None,
) -> Tensor:
    """Returns β (x @ W + addend), (rows, n); as ``half_step``."""
    units, asked = (None, (0.0, 1.0), None, 0, 0), (False, False, True)
    made = _multiply(x, W, transposed, units, asked, beta, addend, exact, parts, tile).field
    assert made is not None
    return made


def draw(
    field: Tensor,
    theta: Tensor,
    values: Values,
    key: Tensor,
    stream: int = 0,
    *,
    mirrored_from: int = 0,
    mean: bool = False,
) -> Drawn:
    """Draws units of two values given their field, (rows, n): what ``half_step`` draws from such a field."""
    field = field.contiguous()
    units = theta, values, key, stream, mirrored_from
    made = _conclude(field, 1, field.shape, units, (True, mean, False), 1.0, None)
    return made._replace(field=field)


def mean_of_field(field: Tensor, theta: Tensor, values: Values) -> Tensor:
    """Returns the means of units of two values given their field, (rows, n)."""
    units, asked = (theta, values, None, 0, 0), (False, True, False)
    made = _conclude(field.contiguous(), 1, field.shape, units, asked, 1.0, None).mean
    assert made is not None
    return made


def draw_one_hot(
    field: Tensor, theta: Tensor, n_states: int, key: Tensor, stream: int = 0, *, mean: bool = False
) -> Drawn:
    """Draws categorical units given their field.

    Args:
        field: (rows, units · n_states), the states of a unit side by side.
        theta: (units · n_states,).
        n_states: of every unit.
        key: of the noise, (1,) int64 on the device.
        stream: numbers the draws that share a key, from 0 on.
        mean: whether the probabilities are returned, (rows, units · n_states).

    Returns:
        One-hot states of the field's shape.
    """
    state, means = _one_hot(field, theta, n_states, key, stream, True, mean)
    return Drawn(state, means, field)


def probabilities(field: Tensor, theta: Tensor, n_states: int) -> Tensor:
    """Returns the probabilities of the states of categorical units, as ``draw_one_hot`` has them."""
    made = _one_hot(field, theta, n_states, None, 0, False, True)[1]
    assert made is not None
    return made


def _one_hot(
    field: Tensor, theta: Tensor, n_states: int, key: Tensor | None, stream: int, state: bool, mean: bool
) -> tuple[Tensor | None, Tensor | None]:
    field = field.contiguous()
    rows, n = field.shape
    made = [torch.empty_like(field) if asked else None for asked in (state, mean)]
    width = max(2, 1 << (n_states - 1).bit_length())
    count = max(1, 1024 // width)  # units of a program: eight numbers for each of its threads
    with _on(field):
        _kernels().draw_one_hot[(-(-rows * (n // n_states) // count),)](
            field, theta, key, *made, rows, n // n_states, stream,
            Q=n_states, STATE=state, MEAN=mean, UNITS=count, WIDTH=width, num_warps=4,
        )  # fmt: skip
    return made[0], made[1]


def statistics(
    pairs: Sequence[Pair], into: Sums | None = None, *, sums: bool = True, tile: Tile | None = None
) -> Sums:
    """Sums weight · x ⊗ y, weight · x and weight · y over the rows of one or two pairs.

    Args:
        pairs: of the same two layers, for instance the data's with a weight 1/rows and the chains' with
            -1/chains.
        into: contiguous sums that grow in place; None: new ones are returned.
        sums: whether x and y are summed too; if not, their sums are left as they are, or empty.
        tile: how the work is cut, its rows and columns those of the result and its depth rows of x and y;
            None: ``statistics_tile`` decides by the shape.
    """
    if len(pairs) not in (1, 2):
        raise ValueError(f"pairs: expected one or two, received {len(pairs)}")
    first, second = pairs[0], pairs[-1]
    k, n = first.x.shape[1], first.y.shape[1]
    if into is None:
        edges = (k, n) if sums else (0, 0)
        out = Sums(*(first.x.new_empty(size, dtype=torch.float32) for size in ((k, n), *edges)))
    else:
        out = into
    exact = all(pair.x_exact for pair in pairs)
    if tile is None:
        tile = statistics_tile(sum(len(pair.x) for pair in pairs), k, n, exact and _copies(first.x))
    edge = int(sums)
    across, down = -(-(n + edge) // tile.columns), -(-(k + edge) // tile.rows)
    row, size = across * tile.columns, down * tile.rows * across * tile.columns
    partial = None
    if tile.splits > 1:
        partial = torch.empty(tile.splits, size, dtype=torch.float32, device=first.x.device)
    brought = tile.cut and exact
    below = [pair.y.stride(0) if brought else pair.x.stride(0) for pair in pairs]
    vector = _vector(k, n, *below, *(pair.y.stride(0) for pair in pairs))
    block = [tile.depth, tile.rows]
    pointers, rows, strides, scales, options = [], [], [], [], {}
    for suffix, pair in (("", first), ("_2", second)):
        weights = pair.weight if isinstance(pair.weight, Tensor) else None
        pointers += [_described(_short_of(pair.x), block, edge) if brought else pair.x, pair.y, weights]
        lots = -(-len(pair.x) // tile.depth)
        rows += [len(pair.x), -(-lots // tile.splits) * tile.depth]
        by_row = weights is not None and weights.numel() > 1
        strides += [0 if brought else pair.x.stride(0) // vector, pair.y.stride(0) // vector]
        strides += [weights.stride(0) if weights is not None and by_row else 0]
        scales += [1.0 if isinstance(pair.weight, Tensor) else float(pair.weight)]
        options["X_PARTS" + suffix] = 1 if pair.x_exact else 3
        # Weights of rows leave no y exact.
        options["Y_PARTS" + suffix] = 1 if pair.y_exact and weights is None else 3
        options["WEIGHTS" + suffix] = weights is not None
    kernels, grow = _kernels(), into is not None
    with _on(first.x):
        kernels.statistics[(across * down, tile.splits)](
            *pointers, *out, partial, *rows, k // vector, n // vector, *strides, *scales, row, size,
            **options, PAIRS=len(pairs), SPLITS=tile.splits, GROW=grow, SUMS=sums, SHORT=brought,
            VECTOR=vector, APART=tile.apart, BELOW=tile.rows, ABOVE=tile.columns, ROWS=tile.depth,
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
        if partial is not None:
            count = -(-(k + edge) // 16) * -(-(n + edge) // 64)
            kernels.add_partial[(count,)](
                partial, *out, k // vector, n // vector, row, size, SPLITS=tile.splits, GROW=grow,
                SUMS=sums, VECTOR=vector, BELOW=16, ABOVE=64, num_warps=4,
            )  # fmt: skip
    return out


def tile_of(rows: int, k: int, n: int, cut: bool) -> Tile:
    """Returns how a product (rows, k) @ (k, n) is cut, by its shape alone; ``cut``: whether it may be.

    These were the fastest that experiments/gpu_kernels.py tried on an H200, at 100 to 10,000 rows and 500 to
    4,096 units, but where as fast a one keeps all in registers that also writes the field.
    """
    if rows <= _FEW:
        return Tile(16, 32, 128, 4, 3)
    if cut and k >= _LONG:
        splits = min(8, _PROGRAMS // (-(-rows // 256) * -(-n // 64)))
        if splits > 1:
            return Tile(256, 64, 64, 8, 3, splits=splits, cut=True)
    small = rows * n <= _SMALL
    if cut:
        return Tile(64, 64, 64, 4, 4, cut=True) if small else Tile(128, 64, 64, 8, 4, cut=True)
    if k >= _LONG and small:
        return Tile(64, 64, 64, 4, 3, splits=3)
    return Tile(64, 32, 64, 4, 4) if small else Tile(128, 64, 64, 8, 3)


def statistics_tile(rows: int, k: int, n: int, cut: bool) -> Tile:
    """Returns how sums over rows of x ⊗ y are cut, by their shape alone; see ``tile_of``."""
    large = k * n > _SMALL  # as many tiles as keep the device busy without a share of the rows each
    if rows <= 2 * _FEW:
        return Tile(64, 32, 64, 4, 2)
    if not cut:
        return (
            Tile(128, 128, 32, 8, 4) if large else Tile(128, 128, 32, 8, 3, splits=4 if rows <= _MANY else 9)
        )
    if large or rows <= _MANY:
        return Tile(128, 64, 64, 4, 3, splits=1 if large else 4, cut=True)
    return Tile(256, 64, 64, 8, 3, splits=8, cut=True)


def _multiply(
    x: Tensor,
    W: Tensor | Couplings,
    transposed: bool,
    units: tuple[Tensor | None, Values, Tensor | None, int, int],
    asked: tuple[bool, bool, bool],
    beta: float | Tensor,
    addend: Tensor | None,
    exact: bool,
    parts: int,
    tile: Tile | None,
) -> Drawn:
    """Computes what is asked for (state, mean, field) of x @ W, or of x @ Wᵀ."""
    couplings = W if isinstance(W, Couplings) else None
    matrix = W.W if isinstance(W, Couplings) else W
    matrix = matrix.t() if transposed else matrix
    if x.stride(1) != 1:
        x = x.contiguous()
    (rows, k), n = x.shape, matrix.shape[1]
    may_cut = couplings is not None and couplings.count == parts and exact and _copies(x)
    tile = tile_of(rows, k, n, may_cut) if tile is None else tile
    cut = tile.cut and couplings is not None and exact
    kernels, splits = _kernels(), tile.splits
    partial = torch.empty(splits, rows, n, dtype=torch.float32, device=x.device) if splits > 1 else None
    depth = tile.depth
    chunks = -(-k // depth)
    share = -(-chunks // splits)
    grid = (-(-rows // tile.rows) * -(-n // tile.columns), splits)
    now = asked if splits == 1 else (False, False, False)
    out, tensors, numbers, flags = _ends(x, n, units, now, beta, addend, cut)
    flags |= {"W_PARTS": parts, "SPLITS": splits, "ROWS": tile.rows, "COLUMNS": tile.columns}
    flags |= {"DEPTH": depth, "num_warps": tile.warps, "num_stages": tile.stages}
    with _on(x):
        if cut and couplings is not None:
            vector = _vector(n)
            w_block = [tile.columns, depth] if transposed else [depth, tile.columns]
            kernels.half_step_of_cut[grid](
                _described(_short_of(x), [tile.rows, depth]), _described(couplings.parts, w_block), partial,
                *tensors, rows, share, k, n // vector, couplings.W.shape[0], *numbers,
                TRANSPOSED=transposed, VECTOR=vector, APART=tile.apart and parts > 1, **flags,
            )  # fmt: skip
        else:
            w_k, w_n = matrix.stride()
            across = w_k == 1 and w_n != 1
            vector = _vector(k, n, x.stride(0), w_n if across else w_k)
            if not across and w_n != 1:
                vector = 1
            kernels.half_step[grid](
                x, matrix, partial, *tensors,
                rows, share, k // vector, n // vector, x.stride(0) // vector,
                w_k if across else w_k // vector, w_n // vector if across else w_n, *numbers,
                X_PARTS=1 if exact else parts, TRANSPOSED=across, VECTOR=vector,
                APART=tile.apart and not (parts == 1 and exact), TERMS=min(depth, _TERMS), **flags,
            )  # fmt: skip
    if partial is None:
        return out
    return _conclude(partial, splits, (rows, n), units, asked, beta, addend, cut)


def _conclude(
    partial: Tensor,
    splits: int,
    shape: Sequence[int],
    units: tuple[Tensor | None, Values, Tensor | None, int, int],
    asked: tuple[bool, bool, bool],
    beta: float | Tensor,
    addend: Tensor | None,
    short: bool = False,
) -> Drawn:
    """Computes what is asked for (state, mean, field) of a product that is the sum of its parts."""
    rows, n = shape
    out, tensors, numbers, flags = _ends(partial, n, units, asked, beta, addend, short, rows)
    vector = _vector(n)
    with _on(partial):
        _kernels().conclude[(-(-rows // 16) * -(-n // 64),)](
            partial, *tensors, rows, n // vector, *numbers, SPLITS=splits, VECTOR=vector, ROWS=16,
            COLUMNS=64, num_warps=4, **flags,
        )  # fmt: skip
    return out


def _ends(
    like: Tensor,
    n: int,
    units: tuple[Tensor | None, Values, Tensor | None, int, int],
    asked: tuple[bool, bool, bool],
    beta: float | Tensor,
    addend: Tensor | None,
    short: bool,
    rows: int | None = None,
) -> tuple[Drawn, list[Any], list[Any], dict[str, Any]]:
    """Returns what a half-step fills, and the tensors, numbers and flags that say how it concludes.

    ``short``: whether the state is also kept in bfloat16, for the next product and its statistics.
    """
    theta, (low, high), key, stream, mirrored_from = units
    rows = len(like) if rows is None else rows
    made = [
        torch.empty(rows, n, dtype=torch.float32, device=like.device) if is_asked else None
        for is_asked in asked
    ]
    state, short_row = made[0], _short_row(n)
    beside = None
    if short and state is not None:
        beside = torch.empty(rows, short_row, dtype=torch.bfloat16, device=like.device)[:, :n]
        _keep_short(state, beside)
    by_tensor = beta if isinstance(beta, Tensor) else None
    by_row = by_tensor is not None and by_tensor.numel() > 1
    more = None if addend is None else addend.contiguous()
    tensors = [theta, key, by_tensor, more, state, made[2], made[1], beside]
    numbers = [1.0 if isinstance(beta, Tensor) else float(beta)]
    numbers += [by_tensor.stride(0) if by_tensor is not None and by_row else 0]
    numbers += [low, high - low, stream, mirrored_from, short_row]
    flags = {"STATE": asked[0], "FIELD": asked[2], "MEAN": asked[1], "SHORT": beside is not None}
    flags |= {"BETA": by_tensor is not None, "ADDEND": more is not None}
    return Drawn(state, made[1], made[2], beside), tensors, numbers, flags


def _short_of(x: Tensor) -> Tensor:
    """Returns states in bfloat16, in rows that the copy engine reads: those that a draw kept beside them."""
    kept = _kept(x).get(x)
    if kept is not None and not x.is_inference() and kept[0] == x._version:
        return kept[1]
    rows, n = x.shape
    row = _short_row(n)
    made = torch.empty(rows, row, dtype=torch.bfloat16, device=x.device)[:, :n]
    vector = _vector(n, x.stride(0), row)
    with _on(x):
        _kernels().shorten[(-(-rows // 32) * -(-n // 128),)](
            x, made, rows, n // vector, x.stride(0) // vector, row // vector, VECTOR=vector,
            ROWS=32, COLUMNS=128, num_warps=4,
        )  # fmt: skip
    return made


def _keep_short(state: Tensor, short: Tensor) -> None:
    """Keeps a state in bfloat16 beside it, until its values change."""
    if not state.is_inference():
        _kept(state)[state] = state._version, short


def _kept(like: Tensor) -> MutableMapping[Tensor, tuple[int, Tensor]]:
    """Returns what ``_keep_short`` kept, by state, with its version."""
    _recording(like)
    return _SHORT


def forget() -> None:
    """Forgets states and couplings in bfloat16: to be called where the recording of a graph begins.

    A graph must not read what was made outside: its replays find other values in the memory of a state,
    which the graph may write itself, and not beside it. Nor is what a graph makes seen outside.
    """
    _RECORDING[1] += 1
    _SHORT.clear()


def _recording(like: Tensor) -> int:
    """Returns the number of the recording that is going on, or of the time between two."""
    recording = like.is_cuda and torch.cuda.is_current_stream_capturing()
    if recording != _RECORDING[0]:
        _RECORDING[0] = recording
        forget()
    return _RECORDING[1]


def _short_row(n: int) -> int:
    """Returns the length in memory of rows of n states in bfloat16 and a 1."""
    return -(-(n + 1) // _ALIGNED) * _ALIGNED


def _described(x: Tensor, block: list[int], more: int = 0) -> Any:
    """Describes a matrix to the copy engine, which brings blocks of it and zeros beyond its edges.

    ``more`` columns that stand in memory beside it count as its own.
    """
    descriptor = import_module("triton.tools.tensor_descriptor").TensorDescriptor
    return descriptor(x, [x.shape[0], x.shape[1] + more], list(x.stride()), block)


def _copies(x: Tensor) -> bool:
    """Returns whether the device has a copy engine for tiles."""
    return x.is_cuda and _capability(x.device) >= _HOPPER


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def _vector(*sizes: int) -> int:
    """Returns 4 where all sizes are multiples of it, so that 16 bytes are read at a time, else 1."""
    return 1 if any(size % 4 for size in sizes) else 4


def _on(x: Tensor) -> AbstractContextManager[Any]:
    """Makes the device of a tensor current, where Triton starts kernels."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


@cache
def _kernels() -> Any:
    return import_module("harmonium.backends.tensor_core_kernels")
