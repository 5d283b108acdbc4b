"""Calls of compiled code with tensors. Needs no numba to be loaded; ``choice`` decides whether it serves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PROCESS = os.getpid()
"""The process that loaded harmonium; ``parallel`` is loaded later, possibly by a forked child."""
Values = tuple[float, float] | None
"""The lower and upper value of a kind of unit; None: it has others."""

SHARES = 32
"""Sums that chains of small machines are dealt into, whatever the number of threads: so the bits stay.

More threads would find nothing to do, and more sums would take more memory and time to add.
"""
LOT = 64
"""Rows that ``potts`` draws together, whatever the number of threads: four vectors of 16 floats."""
WORTH_A_THREAD = {"per_row": 16, "potts": 2, "bit_matmul": 4}
"""Shares that are worth a thread, by file: rows, lots of rows, columns of tables; fewer take less by one."""


def key(generator: torch.Generator) -> np.uint64:
    """Draws a key of 62 bits, from which compiled code derives its streams of noise."""
    return np.uint64(torch.randint(1 << 62, (), generator=generator, device=generator.device).item())


def device_key(generator: torch.Generator) -> Tensor:
    """Draws a key, (1,) int64, that stays on the generator's device, for kernels that make noise there."""
    return torch.randint(1 << 62, (1,), generator=generator, device=generator.device)


def keys(count: int, generator: torch.Generator) -> NDArray[np.uint64]:
    """Draws so many keys, (count,), on the CPU: those of as many calls of ``key``."""
    drawn: NDArray[np.int64] = torch.randint(1 << 62, (count,), generator=generator).numpy()
    return drawn.astype(np.uint64)


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


def draw(kind: Any, bias: Tensor, field: Tensor, key: np.uint64) -> Tensor:
    """Draws units of a kind given their field, (rows, width), and bias, (width,) or one for every row.

    Bits do not depend on threads.
    """
    if bias.dim() > 1:  # which is then a part of the field
        bias, field = bias.new_zeros(bias.shape[1]), field + bias
    field, bias, x = field.contiguous(), bias.contiguous(), field.new_empty(field.shape)
    if kind.one_hot:
        over("potts.draw_categorical", -(-len(x) // LOT), field, kind.columns_per_unit, bias, key, x)
    else:
        gain, low = _gain_and_low((len(bias),), (kind.two_values,))
        over("per_row.draw", len(field), field, bias, gain, low, key, x)
    return x


def _find_outside(hamiltonian: Any, layer: int, states: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """Returns the bias of a layer, (n_units,), and what else adds to the field of its rows; None: nothing."""
    others, bias = {j.other for j in hamiltonian.graph.joints[layer]} - {layer}, hamiltonian.thetas[layer][0]
    outside = hamiltonian.field(layer, states, others) if others else None
    if bias.dim() > 1:
        outside, bias = bias if outside is None else outside + bias, bias.new_zeros(bias.shape[1])
    return bias, outside


def draw_in_turn(
    hamiltonian: Any, layer: int, states: Sequence[Tensor], key: np.uint64, noise: Tensor | None = None
) -> Tensor:
    """Draws the units of a layer one after the other, each given the present states of all others.

    The transition is that of ``Hamiltonian.draw`` for all parts of the layer, in the order of a sweep.
    Clamped units stay. ``noise`` is uniform variates in place of the key, (n_units, batch), for categorical
    units.
    """
    if not hamiltonian.layers[layer].one_hot:
        return sweep_two_valued(hamiltonian, layer, states, np.array([key]))
    kind, (bias, outside) = hamiltonian.layers[layer], _find_outside(hamiltonian, layer, states)
    J = hamiltonian.J[hamiltonian.graph.inner[layer]].contiguous()
    x, mask = hamiltonian.apply_clamp(layer, states[layer]).contiguous(), hamiltonian.mask(layer)
    drawn, nothing = torch.empty_like(x), x.new_empty(0, 0)
    outside, bias = nothing if outside is None else outside.contiguous(), bias.contiguous()
    held = np.empty((0, 0), np.uint8)
    if mask is not None:
        held = kind.by_unit(mask)[..., 0].contiguous().numpy().view(np.uint8)
    rest = (
        *(outside, hamiltonian.beta_times(x.new_ones(len(x))), held, *hamiltonian.graph.in_turn[layer]),
        *(key, nothing if noise is None else noise, drawn),
    )
    over("potts.sweep_categorical", -(-len(x) // LOT), x, kind.n_states, J, bias, *rest)
    return drawn


def sweep_two_valued(
    hamiltonian: Any, layer: int, states: Sequence[Tensor], keys: Any, metropolis: bool = False
) -> Tensor:
    """Draws the units of a layer with an inner edge in turn, sweep after sweep, given all other layers.

    Args:
        hamiltonian: the machine in natural parameters, with what is held.
        layer: one that ``choice.two_valued_in_turn`` returns.
        states: for each layer (batch, width_m).
        keys: Keys of the noise, uint64 (sweeps,).
        metropolis: whether to propose and accept as ``chains.Metropolis`` does, in place of a Gibbs sweep.

    Returns:
        States of the layer, (batch, n_units), a new tensor.
    """
    bias, outside = _find_outside(hamiltonian, layer, states)
    drawn: Tensor = _sparse().sweep_edges(
        hamiltonian.apply_clamp(layer, states[layer]),
        bias,
        edge_couplings(hamiltonian, layer),
        keys,
        beta=hamiltonian.beta,
        kernel="metropolis" if metropolis else "gibbs",
        outside=outside,
        held=hamiltonian.mask(layer),
    )
    return drawn


def edge_couplings(hamiltonian: Any, layer: int) -> Any:
    """Returns the ``EdgeCouplings`` of a layer, which are kept with J."""
    rows, values = hamiltonian.graph.rows_in_turn(layer), hamiltonian.layers[layer].two_values
    join = partial(_sparse().join_edges, rows=rows, two_values=values)
    return hamiltonian.J.in_turn(hamiltonian.graph.inner[layer], join)


def _sparse() -> Any:
    return import_module("harmonium.backends.sparse_sweeps")  # needs numba


def anneal(
    field: Tensor, values: Values, betas: tuple[float, float], biases: tuple[Tensor, Tensor], key: np.uint64,
    summed: bool,
) -> tuple[Tensor, Tensor | float]:  # fmt: skip
    """Draws units after a change of β and of their bias, and finds by how much their Σ ψ has risen by it.

    ``field``, (rows, width), is written over. Returns the draw, (rows, width), and if ``summed`` the rise,
    (rows,) float64, else 0.
    """
    field, (gain, low) = field.contiguous(), _gain_and_low((field.shape[1],), (values,))
    x, rise = torch.empty_like(field), field.new_zeros(len(field) if summed else 0, dtype=torch.float64)
    if summed:
        both = biases[0].detach().numpy(), biases[1].detach().numpy()
        over("per_row.rise", len(field), field, betas, both, gain, low, rise)
    over("per_row.draw", len(field), field.mul_(betas[1]), biases[1], gain, low, key, x)
    return x, rise if summed else 0.0


def over(work: Any, shares: int, *arguments: Any, least: int = 1) -> None:
    """Runs a compiled function(first, last, *arguments) over all shares, cut among torch's threads.

    ``work`` is a function, ``least`` shares of which are worth a thread, or its name and that of its file in
    this folder, "per_row.draw", which is loaded then; it returns nothing. Of tensors it gets the arrays.
    """
    arrays: list[Any] = []
    for x in arguments:
        arrays.append(x.detach().numpy() if isinstance(x, Tensor) else x)
    function, least = _compiled(work) if isinstance(work, str) else (work, least)
    threads = min(torch.get_num_threads(), shares // least)
    if threads > 1:
        import_module("harmonium.backends.parallel").run(function, threads, shares, arrays)  # needs numba
    else:
        function(0, shares, *arrays)


@cache
def _compiled(name: str) -> tuple[Any, int]:
    """Returns a function of this folder, which compiles at its first call, and what is worth a thread."""
    file, _, function = name.partition(".")
    return getattr(import_module(f"harmonium.backends.{file}"), function), WORTH_A_THREAD.get(file, 1)
