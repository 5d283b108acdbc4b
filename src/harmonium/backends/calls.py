"""Calls of compiled code with tensors. Needs no numba to be loaded; ``choice`` decides whether it serves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

Values = tuple[float, float] | None
"""The lower and upper value of a kind of unit; None: it has others."""

SHARES = 32
"""Sums that chains of small machines are dealt into, whatever the number of threads: so the bits stay."""
LOT = 64
"""Rows that ``potts`` draws together, whatever the number of threads: four vectors of 16 floats."""
WORTH_A_THREAD = {"per_row": 16, "potts": 2, "bit_matmul": 4}
"""Shares that are worth a thread, by file: rows, lots of rows, columns of tables; fewer take less by one."""
_NAMES = {
    "per_row": ("climb", "count_differences", "couple", "draw", "rise", "uniform"),
    "potts": ("draw_categorical", "sweep_categorical", "sweep_two_valued"),
    "bit_matmul": ("bits_of_columns", "bits_of_rows", "multiply"),
}


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
    gain, low = _gain_and_low((len(bias),), (values,))
    over("draw", len(field), field.contiguous(), bias.contiguous(), gain, low, key, mirrored_from, x)
    return x


def draw_categorical(field: Tensor, bias: Tensor, units: int, key: np.uint64) -> Tensor:
    """A draw of categorical units given their field, (rows, width), of its shape; bias is (width,)."""
    x = field.new_empty(field.shape)
    q = field.shape[1] // units
    over("draw_categorical", -(-len(x) // LOT), field.contiguous(), q, bias.contiguous(), key, x)
    return x


def draw_in_turn(
    law: Any,
    layer: int,
    states: Sequence[Tensor],
    key: np.uint64,
    noise: Tensor | None = None,
) -> Tensor:
    """Draws the units of a layer one after the other, each given the present states of all others.

    The transition is that of ``Hamiltonian.draw`` for all parts of the layer, in the order of a sweep.

    Args:
        law: the ``Hamiltonian``; clamped units stay.
        layer: one with inner edges, of categorical units or of units with two values.
        states: for each layer (batch, width_m).
        key: of the noise.
        noise: uniform variates in its place, (n_units, batch).

    Returns:
        The state of the layer, (batch, width_l), a new tensor.
    """
    kind, bias = law.layers[layer], law.thetas[layer][0].contiguous()
    J = law.J[law.graph.inner[layer]].contiguous()
    x, mask = law.apply_clamp(layer, states[layer]).contiguous(), law.mask(layer)
    drawn, nothing = torch.empty_like(x), x.new_empty(0, 0)
    others = {joint.other for joint in law.graph.joints[layer]} - {layer}
    outside = law.field(layer, states, others).contiguous() if others else nothing
    held = np.empty((0, 0), np.uint8)
    if mask is not None:
        held = kind.by_unit(mask)[..., 0].contiguous().numpy().view(np.uint8)
    rest = (
        *(outside, law.beta_times(x.new_ones(len(x))), held, *law.graph.in_turn[layer]),
        *(key, nothing if noise is None else noise, drawn),
    )
    if kind.one_hot:
        over("sweep_categorical", -(-len(x) // LOT), x, kind.n_states, J, bias, *rest)
    else:
        low, high = np.array(kind.two_values, dtype=x.numpy().dtype)
        over("sweep_two_valued", -(-len(x) // LOT), x, J, bias, low, high, *rest)
    return drawn


@final
class HalfSteps:
    """Half-steps of some units under one law after another, as ``half_step`` supports them.

    Args:
        bias: of the units, (width,), under one of the laws.
        values: theirs.
    """

    def __init__(self, bias: Tensor, values: Values) -> None:
        self._gain, self._low = _gain_and_low((len(bias),), (values,))

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
            over("rise", len(field), field, betas, biases, self._gain, self._low, rise)
        over("draw", len(field), field.mul_(beta), bias, self._gain, self._low, key, 0, x)
        return x, rise


_PROCESS = os.getpid()


def forked() -> bool:
    """Returns whether this process was forked after harmonium was loaded: it then lacks torch's threads."""
    return os.getpid() != _PROCESS


def over(work: Any, shares: int, *arguments: Any, least: int = 1) -> None:
    """Runs a compiled function(first, last, *arguments) over all shares, cut among torch's threads.

    Args:
        work: the name of a function of these files, or a function of any module, where it is found by its
            name; it returns nothing.
        shares: how many there are: rows, lots of ``LOT`` rows, or columns of tables.
        arguments: arrays, numbers, None, tuples of these, and tensors, of which it gets the arrays.
        least: of a function, how many shares are worth a thread.
    """
    arrays = [x.detach().numpy() if isinstance(x, Tensor) else x for x in arguments]
    function, least = _compiled(work) if isinstance(work, str) else (work, least)
    threads = min(torch.get_num_threads(), shares // least)
    if threads > 1:
        _threads()(function, threads, shares, arrays)
    else:
        function(0, shares, *arrays)


@cache
def _compiled(name: str) -> tuple[Any, int]:
    """Returns a function of this folder, which compiles at its first call, and what is worth a thread."""
    file = next(file for file, names in _NAMES.items() if name in names)
    return getattr(import_module(f"harmonium.backends.{file}"), name), WORTH_A_THREAD[file]


@cache
def _threads() -> Any:
    from harmonium.backends.parallel import run  # needs numba

    return run
