"""The choice between compiled code and torch, and calls of compiled code with tensors. Needs no numba."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, final

import numpy as np
import torch
from torch import Tensor

Values = tuple[float, float] | None
"""The lower and upper value of a kind of unit; None: it has others."""


class Machine(Protocol):
    """The attributes of a ``Hamiltonian`` that the choice depends on."""

    @property
    def layers(self) -> Sequence[Any]: ...
    @property
    def graph(self) -> Any: ...
    @property
    def thetas(self) -> Sequence[Sequence[Tensor]]: ...
    @property
    def J(self) -> Sequence[Tensor]: ...
    @property
    def beta(self) -> object: ...
    @property
    def held(self) -> object: ...
    def mask(self, layer: int) -> Tensor | None: ...


COMPILED = find_spec("numba") is not None
"""True if numba is installed, as it is wherever it has wheels."""
VALUES = frozenset(((0.0, 1.0), (-1.0, 1.0)))
"""The pairs of values of units that compiled code supports."""
SHARES = 32
"""Sums that chains of small machines are dealt into, whatever the number of threads: so the bits stay."""
LOT = 64
"""Rows that ``compiled.potts`` draws together, whatever the number of threads."""

# Where compiled code is the faster way (docs/decisions/0029 to 0031).
SMALL_PAIRS = 1 << 14  # couplings up to which a pair alone is faster than a batch of pairs
SMALL_CHAINS = 1 << 12  # couplings up to which a chain alone is faster than a batch of chains
HALF_STEP = 1 << 13  # units of a batch from which one pass over its rows is faster than torch's five,
NARROW = 8  # unless the rows are narrower
LEAST_UPDATES = 200  # of a run that is worth the time to load what is compiled, half a second
SMALL_UPDATES = 1 << 23  # couplings times rows and sweeps up to which many updates at once are faster
IN_TURN = 1 << 10  # units of a batch from which on it is worth loading numba to draw them one by one
WORTHWHILE = 1 << 20  # multiplications from which on it matters how they are done


def single(like: Tensor) -> bool:
    """Returns whether compiled code supports tensors like this one: float32 on a CPU."""
    return COMPILED and like.device.type == "cpu" and like.dtype is torch.float32


def two_valued(like: Tensor, values: Iterable[Values]) -> bool:
    """Returns whether compiled code supports tensors like this one, of units with these values."""
    return single(like) and VALUES.issuperset(values)


def half_step(field: Tensor, theta: Sequence[Tensor], values: Values, one_hot: bool = False) -> bool:
    """Returns whether compiled code supports a half-step and is faster; all rows must share parameters.

    Args:
        field: B, (rows, width).
        theta: natural parameters.
        values: of units with two values, for ``draw``.
        one_hot: whether the units are categorical, for ``draw_categorical``.
    """
    return (
        COMPILED
        and field.numel() >= HALF_STEP
        and (one_hot or values in VALUES)
        and field.dim() == 2
        and field.shape[1] >= NARROW
        and field.dtype is torch.float32
        and field.device.type == "cpu"
        and theta[0].dim() == 1
    )


def in_turn(machine: Machine, layer: int, rows: int) -> bool:
    """Returns whether compiled code draws the units of a layer with inner edges in turn."""
    kind, theta = machine.layers[layer], machine.thetas[layer]
    return (
        rows * kind.n_units >= IN_TURN
        and single(theta[0])
        and theta[0].dim() == 1
        and (kind.one_hot or kind.two_values in VALUES)
    )


def small_pairs(machine: Machine, jumps: bool) -> bool:
    """Returns whether pairs of Gibbs chains with the default coupling run one by one (``coupled.small``).

    With jumps the first layer has at most 64 units, as a state to jump to is one word of bits.
    """
    return (
        _two_layers(machine, SMALL_PAIRS)
        and two_valued(machine.J[0], [layer.two_values for layer in machine.layers])
        and not (jumps and machine.layers[0].n_units > 64)
    )


def small_chains(machine: Machine) -> bool:
    """Returns whether Gibbs and Langevin chains run one by one (``chains.small``)."""
    return (
        machine.layers[0].gaussian
        and _two_layers(machine, SMALL_CHAINS)
        and two_valued(machine.J[0], [machine.layers[1].two_values])
    )


def small_updates(machine: Machine, rows: int) -> bool:
    """Returns whether updates are made many at once (``compiled.updates``).

    Args:
        machine: of dense couplings, its visible layers of two-valued, one-hot or ``layers.Gaussian`` units.
        rows: of an update, of its batch and of its chains times their sweeps.
    """
    J, last = machine.J, len(machine.layers) - 1
    return (
        machine.graph.edges == tuple((l, last) for l in range(last))
        and machine.graph.visible == tuple(range(last))
        and machine.held is None
        and isinstance(machine.beta, float)
        and sum(each.numel() for each in J) * rows <= SMALL_UPDATES
        and machine.layers[last].two_values in VALUES
        and all(each.device.type == "cpu" for each in J)
        and J[0].dtype in (torch.float32, torch.float64)
    )


def search(machine: Machine, layers: Collection[int]) -> bool:
    """Returns whether a search for local modes of these layers moves chains one by one (``climb``)."""
    return (
        any(l in layers and m in layers for l, m in machine.graph.edges)
        and isinstance(machine.beta, float)
        and all(machine.mask(l) is None and machine.thetas[l][0].dim() == 1 for l in layers)
        and COMPILED
        and machine.thetas[0][0].device.type == "cpu"
        and VALUES.issuperset(machine.layers[l].two_values for l in layers)
    )


def _two_layers(machine: Machine, couplings: int) -> bool:
    """Returns whether the machine is a small chain of two layers at one temperature, with nothing clamped."""
    return (
        len(machine.layers) == 2
        and machine.graph.is_chain
        and machine.held is None
        and isinstance(machine.beta, float)
        and machine.J[0].numel() <= couplings
    )


def units_of(biases: Sequence[Tensor], values: Sequence[Values]) -> tuple[Any, Any, Any]:
    """Bias, gain and lower value of every unit of some layers, side by side."""
    if len(biases) == 1:
        bias = np.ascontiguousarray(biases[0].detach().numpy())
        return bias, *_gain_and_low((len(bias),), (values[0],))
    rows = [bias.detach().numpy() for bias in biases]
    return np.concatenate(rows), *_gain_and_low(tuple(map(len, rows)), tuple(values))


@lru_cache(maxsize=64)
def _gain_and_low(widths: tuple[int, ...], values: tuple[Values, ...]) -> tuple[Any, Any]:
    low, high = np.array([value or (0.0, 1.0) for value in values], np.float32).T
    return np.repeat(high - low, widths), np.repeat(low, widths)


def draw(field: Tensor, bias: Tensor, values: Values, key: np.uint64, mirrored_from: int = 0) -> Tensor:
    """A draw of units given their field, of its shape; row r has noise of its own, whatever the threads.

    Args:
        field: B, (rows, width).
        bias: of the units, (width,).
        values: theirs.
        key: of the noise.
        mirrored_from: if not 0, row mirrored_from + i mirrors the noise of row i.
    """
    x = field.new_empty(field.shape)
    units = units_of([bias], [values])
    over_rows("draw", len(field), field.contiguous(), *units, key, mirrored_from, x)
    return x


def draw_categorical(field: Tensor, bias: Tensor, units: int, key: np.uint64) -> Tensor:
    """A draw of categorical units given their field, (rows, width), of its shape; bias is (width,)."""
    x = field.new_empty(field.shape)
    q = field.shape[1] // units
    over_lots("draw_categorical", len(x), field.contiguous(), q, bias.contiguous(), key, x)
    return x


@final
class HalfSteps:
    """Half-steps of some units under one law after another, as ``half_step`` supports them.

    Args:
        bias: of the units, (width,), under one of the laws.
        values: theirs.
    """

    def __init__(self, bias: Tensor, values: Values) -> None:
        _, self._gain, self._low = units_of([bias], [values])
        self._draw, self._rise = _compiled("per_row", "draw"), _compiled("per_row", "rise")

    def __call__(
        self,
        field: Tensor,
        beta: float,
        bias: Tensor,
        key: np.uint64,
        earlier: tuple[float, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Draws units given β times their field, and finds by how much their ψ has risen.

        Args:
            field: (rows, width), written over.
            beta: of this law.
            bias: under this law, (width,).
            key: of the noise.
            earlier: β and the bias under the law before; None: the rise is not asked for.

        Returns:
            The draw, (rows, width), and Σ ψ less that under the law before, float64, (rows,), or 0.
        """
        field, rise = field.contiguous(), field.new_zeros(len(field), dtype=torch.float64)
        x = torch.empty_like(field)
        if earlier is not None:
            betas, biases = (earlier[0], beta), (earlier[1].detach().numpy(), bias.detach().numpy())
            over(self._rise, len(field), 16, field, betas, biases, self._gain, self._low, rise)
        over(self._draw, len(field), 16, field.mul_(beta), bias, self._gain, self._low, key, 0, x)
        return x, rise


_PROCESS = os.getpid()


def forked() -> bool:
    """Returns whether this process was forked after harmonium was loaded: it then lacks torch's threads."""
    return os.getpid() != _PROCESS


def over_rows(name: str, rows: int, *arguments: Any) -> None:
    """Runs a function of ``compiled.per_row`` over all rows, cut among torch's threads."""
    over(_compiled("per_row", name), rows, 16, *arguments)


def over_lots(name: str, rows: int, *arguments: Any) -> None:
    """Runs a function of ``compiled.potts`` over all lots of rows, cut among torch's threads."""
    over(_compiled("potts", name), -(-rows // LOT), 2, *arguments)


def over_bits(name: str, shares: int, *arguments: Any) -> None:
    """Runs a function of ``compiled.bit_matmul`` over all shares, cut among torch's threads."""
    over(_compiled("bit_matmul", name), shares, 4, *arguments)


@cache
def _compiled(module: str, name: str) -> Any:
    """A function of this folder: it needs numba, and compiles at its first call."""
    return getattr(import_module(f"harmonium.compiled.{module}"), name)


def over(function: Any, shares: int, least: int, *arguments: Any) -> None:
    """Runs a compiled function(first, last, *arguments) over all shares, cut among torch's threads.

    Args:
        function: of a module, where it is found by its name; it returns nothing.
        shares: how many there are.
        least: how many are worth a thread.
        arguments: arrays, numbers, None, tuples of these, and tensors, of which it gets the arrays.
    """
    arrays: list[Any] = []
    for x in arguments:
        arrays.append(x.detach().numpy() if isinstance(x, Tensor) else x)
    threads = min(torch.get_num_threads(), shares // least)
    if threads > 1:
        _compiled("parallel", "run")(function, threads, shares, arrays)
    else:
        function(0, shares, *arrays)
