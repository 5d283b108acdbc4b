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
ALIGNED = 16  # bytes that the copy engine's rows are a multiple of
_HOPPER = (9, 0)  # the first of NVIDIA's GPUs with a copy engine for tiles
# Where one way to cut the work becomes faster than another: between the shapes that were measured.
FEW = 256  # rows up to which a product is too small to cut its factors first
_MOST_TERMS = 1 << 16  # of a half-step, of which float32 holds each digit's sum
_MOST_WIDTH = 1 << 13  # of rows that one program cuts into digits
_LONG = 2048  # terms of a sum from which on programs share them
SMALL = 1 << 20  # entries of a result up to which small tiles are better, so that all processors have one
PROGRAMS = 128  # that keep an H100 or H200 busy, which has 132 processors
_SHORT: MutableMapping[Tensor, tuple[int, Tensor]] = WeakTensorKeyDictionary()
_RECORDING = [0, 0]  # whether a graph is recorded, and how often that changed
Values = tuple[float, float]


class Drawn(NamedTuple):
    """The results of a half-step: state, mean and field, each (rows, n), and the state in 8 bits."""

    state: Tensor | None
    mean: Tensor | None
    field: Tensor | None
    short: Tensor | None = None


class Digits(NamedTuple):
    """A matrix in fixed point, as whole numbers of a unit with digits of 8 bits.

    Attributes:
        digits: (parts · n, k), int8: the highest of all numbers, then the next.
        largest: the largest magnitude of every row, (n,), float32, of which the unit is a share; or of every
            column, (k,).
    """

    digits: Tensor
    largest: Tensor


@final
class Couplings:
    """Couplings W, (k, n), and their digits, made when they are first asked for.

    They are made again where W has changed, and in every recording of a graph that asks for them.
    """

    def __init__(self, W: Tensor, parts: int = 3) -> None:
        self.W, self.count = W, parts
        self._made: dict[bool, tuple[tuple[int, int], tuple[Digits, Digits]]] = {}

    def forget(self) -> None:
        """Gives the memory of the digits back."""
        self._made.clear()

    def digits(self, transposed: bool, shares: bool = False) -> Digits:
        """Returns Wᵀ, whose rows are the columns that x is multiplied by; with ``transposed``, W.

        ``shares``: for an x in digits, in units of columns of what is returned instead of rows.
        """
        W = self.W
        state = 0 if W.is_inference() else W._version, _recording(W)
        if shares not in self._made or self._made[shares][0] != state or W.is_inference():
            k, n = W.shape
            made = []
            for largest, columns in zip(find_largest(W, of_rows=True), (k, n), strict=True):
                made.append(Digits(room_in_8_bits(self.count * len(largest), columns, W.device), largest))
            across, down = made
            with on_device(W):
                _kernels().cut[(-(-k // 32) * -(-n // 64),)](
                    W, across.largest, down.largest, across.digits, down.digits, k, n, *W.stride(),
                    *(side.digits.stride(0) // ALIGNED for side in made), unit_of(self.count),
                    PARTS=self.count, SHARES=shares, K=32, N=64, num_warps=4,
                )  # fmt: skip
            if shares:
                across, down = across._replace(largest=down.largest), down._replace(largest=across.largest)
            self._made[shares] = state, (across, down)
        return self._made[shares][1][transposed]


class Tile(NamedTuple):
    """The work of one program of a product.

    Attributes:
        rows: rows of the result, a power of two from 16 on.
        columns: columns of it, likewise.
        depth: terms of the sum that are loaded at a time, likewise.
        warps: groups of 32 threads.
        stages: loads under way at a time.
        splits: programs that share the terms of a sum.
        apart: whether every 64 terms are summed by themselves, of products in bfloat16.
        cut: whether the factors are written in digits beforehand, for the copy engine to bring.
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
        W: couplings, (k, n) float32 of any strides; or ``Couplings``, which are cut into digits once for
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
        exact: whether x is one of -1, 0 and 1 throughout; if not, it is cut into parts as W is.
        parts: of W, of 8 bits each: 3 for the accuracy of float32.
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
    with on_device(field):
        _kernels().draw_one_hot[(-(-rows * (n // n_states) // count),)](
            field, theta, key, *made, rows, n // n_states, stream,
            Q=n_states, STATE=state, MEAN=mean, UNITS=count, WIDTH=width, num_warps=4,
        )  # fmt: skip
    return made[0], made[1]


def tile_of(rows: int, k: int, n: int, cut: bool, exact: bool = True) -> Tile:
    """Returns how a product (rows, k) @ (k, n) is cut, by its shape alone; ``cut``: whether it may be.

    These were the fastest that experiments/gpu_kernels.py tried on an H200, at 100 to 10,000 rows and 500 to
    4,096 units, but where as fast a one keeps all in registers that also writes the field.
    """
    if rows <= FEW:
        return Tile(16, 32, 128, 4, 3)
    if cut and not exact and k <= _MOST_WIDTH and -(-rows // 128) * -(-n // 128) >= PROGRAMS // 2:
        return Tile(128, 128, 128, 8, 2, cut=True)
    if cut and exact and k <= _MOST_TERMS:
        if -(-rows // 256) * -(-n // 64) >= PROGRAMS:
            return Tile(256, 64, 128, 8, 3, cut=True)
        splits = 2 if k >= _LONG else 1
        return Tile(64, 64, 128, 4, 3, splits=splits, cut=True)
    small = rows * n <= SMALL
    if k >= _LONG and small:
        return Tile(64, 64, 64, 4, 3, splits=3)
    return Tile(64, 32, 64, 4, 4) if small else Tile(128, 64, 64, 8, 3)


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
    x = lie_side_by_side(x)
    (rows, k), n = x.shape, matrix.shape[1]
    may_cut = couplings is not None and couplings.count == parts and copies(x)
    tile = tile_of(rows, k, n, may_cut, exact) if tile is None else tile
    cut = tile.cut and couplings is not None
    kernels, splits = _kernels(), tile.splits
    partial = torch.empty(splits, rows, n, dtype=torch.float32, device=x.device) if splits > 1 else None
    depth = tile.depth
    chunks = -(-k // depth)
    share = -(-chunks // splits)
    grid = (-(-rows // tile.rows) * -(-n // tile.columns), splits)
    now = asked if splits == 1 else (False, False, False)
    out, tensors, numbers, flags = _ends(x, n, units, now, beta, addend, cut)
    flags |= {"SPLITS": splits, "ROWS": tile.rows, "COLUMNS": tile.columns}
    flags |= {"DEPTH": depth, "num_warps": tile.warps, "num_stages": tile.stages}
    with on_device(x):
        if cut and couplings is not None:
            vector, W_digits = vector_of(n), couplings.digits(transposed, shares=not exact)
            x_digits = Digits(short_of(x), x) if exact else _share_out(x, W_digits.largest)
            kernels.half_step_of_digits[grid](
                described(x_digits.digits, [tile.rows, depth]),
                described(W_digits.digits, [tile.columns, depth]), x_digits.largest, W_digits.largest,
                partial, *tensors, rows, share, k, n // vector, unit_of(parts), *numbers,
                X_PARTS=1 if exact else 3, PARTS=parts, VECTOR=vector, **flags,
            )  # fmt: skip
        else:
            w_k, w_n = matrix.stride()
            across = w_k == 1 and w_n != 1
            vector = vector_of(k, n, x.stride(0), w_n if across else w_k)
            if not across and w_n != 1:
                vector = 1
            kernels.half_step[grid](
                x, matrix, partial, *tensors,
                rows, share, k // vector, n // vector, x.stride(0) // vector,
                w_k if across else w_k // vector, w_n // vector if across else w_n, *numbers,
                X_PARTS=1 if exact else parts, W_PARTS=parts, TRANSPOSED=across, VECTOR=vector,
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
    vector = vector_of(n)
    with on_device(partial):
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
    """Returns what a half-step fills, and the tensors, numbers and flags of its end.

    ``short``: whether the state is also kept in 8 bits, for the next product and its statistics.
    """
    theta, (low, high), key, stream, mirrored_from = units
    rows = len(like) if rows is None else rows
    made = [
        torch.empty(rows, n, dtype=torch.float32, device=like.device) if is_asked else None
        for is_asked in asked
    ]
    state, beside = made[0], None
    if short and state is not None:
        beside = room_in_8_bits(rows, n, like.device)
        keep_short(state, beside)
    short_row = 0 if beside is None else beside.stride(0)
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


def short_of(x: Tensor) -> Tensor:
    """Returns states in 8 bits, in rows that the copy engine reads: those that a draw kept beside them."""
    kept = find_short(x)
    if kept is not None:
        return kept
    rows, n = x.shape
    made, vector = room_in_8_bits(rows, n, x.device), vector_of(n, x.stride(0))
    with on_device(x):
        _kernels().shorten[(-(-rows // 32) * -(-n // 128),)](
            x, made, rows, n // vector, x.stride(0) // vector, made.stride(0) // ALIGNED, VECTOR=vector,
            ROWS=32, COLUMNS=128, num_warps=4,
        )  # fmt: skip
    keep_short(x, made)
    return made


def _share_out(x: Tensor, by: Tensor) -> Digits:
    """Returns x · by in three digits, (3 · rows, k), and the largest magnitude of every row, (rows,)."""
    rows, k = x.shape
    digits = room_in_8_bits(3 * rows, k, x.device)
    largest, vector = torch.empty(rows, device=x.device), vector_of(k, x.stride(0))
    width = 1 << (k - 1).bit_length()
    count = max(1, 4096 // width)
    with on_device(x):
        _kernels().share_out[(-(-rows // count),)](
            x, by, digits, largest, rows, k // vector, x.stride(0) // vector, digits.stride(0) // ALIGNED,
            unit_of(3), VECTOR=vector, ROWS=count, WIDTH=width, num_warps=8,
        )  # fmt: skip
    return Digits(digits, largest)


def room_in_8_bits(rows: int, columns: int, device: torch.device) -> Tensor:
    """Returns unset numbers of 8 bits, (rows, columns), in rows that the copy engine reads."""
    return torch.empty(rows, -(-columns // ALIGNED) * ALIGNED, dtype=torch.int8, device=device)[:, :columns]


def lie_side_by_side(x: Tensor) -> Tensor:
    """Returns x with its columns side by side in memory."""
    return x if x.stride(1) == 1 else x.contiguous()


def find_short(x: Tensor) -> Tensor | None:
    """Returns the states in 8 bits that are kept beside x."""
    kept = _kept(x).get(x)
    return kept[1] if kept is not None and not x.is_inference() and kept[0] == x._version else None


def keep_short(state: Tensor, short: Tensor) -> None:
    """Keeps a state in 8 bits beside it, until its values change."""
    if not state.is_inference():
        _kept(state)[state] = state._version, short


def _kept(like: Tensor) -> MutableMapping[Tensor, tuple[int, Tensor]]:
    """Returns what ``keep_short`` kept, by state, with its version."""
    _recording(like)
    return _SHORT


def forget() -> None:
    """Forgets states in 8 bits and couplings in digits: to be called where the recording of a graph begins.

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


def find_largest(x: Tensor, of_rows: bool = False) -> tuple[Tensor, ...]:
    """Returns the largest magnitude of each column of x, (n,), and of each row, if asked, (rows,)."""
    rows, n = x.shape
    bits = torch.zeros(n + rows if of_rows else n, dtype=torch.int32, device=x.device)
    columns, others = bits[:n], bits[n:] if of_rows else None
    with on_device(x):
        _kernels().find_largest[(-(-rows // 64) * -(-n // 64),)](
            x, others, columns, rows, n, *x.stride(), OF_ROWS=of_rows, ROWS=64, COLUMNS=64, num_warps=4
        )
    made = bits.view(torch.float32)
    return (made[:n], made[n:]) if of_rows else (made,)


def unit_of(parts: int) -> float:
    """Returns the unit of numbers between -1 and 1 with so many digits, of which the highest is up to 127."""
    return 1.0 / (127 << 8 * (parts - 1))


def described(x: Tensor, block: list[int]) -> Any:
    """Describes a matrix to the copy engine, which brings blocks of it and zeros beyond its edges."""
    descriptor = import_module("triton.tools.tensor_descriptor").TensorDescriptor
    return descriptor(x, list(x.shape), list(x.stride()), block)


def copies(x: Tensor) -> bool:
    """Returns whether the device has a copy engine for tiles."""
    return x.is_cuda and _capability(x.device) >= _HOPPER


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def vector_of(*sizes: int) -> int:
    """Returns 4 where all sizes are multiples of it, so that 16 bytes are read at a time, else 1."""
    return 1 if any(size % 4 for size in sizes) else 4


def on_device(x: Tensor) -> AbstractContextManager[Any]:
    """Makes the device of a tensor current, where Triton starts kernels."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


@cache
def _kernels() -> Any:
    return import_module("harmonium.backends.cuda.tensor_core_kernels")
