"""Rows in and out of a task: their shape, averages over chains of them, and states nearest to means."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._checks import Numbers
from harmonium.chains import Gibbs, Info, KernelState, fill_hidden, run_kernel
from harmonium.layers import Layer
from harmonium.machine import BoltzmannMachine, Hamiltonian, States


def read_rows(machine: BoltzmannMachine, X: Numbers, name: str, dtype: torch.dtype | None = None) -> Tensor:
    """Returns visible states, (batch, visible_width), whose support is not looked at yet.

    Raises:
        TypeError, ValueError: no numbers, or another shape.
    """
    x = _checks.tensor(X, name, dtype or machine.dtype, machine.device)
    if x.dim() != 2 or x.shape[1] != machine.visible_width or len(x) == 0:
        raise ValueError(
            f"{name}: expected (batch, {machine.visible_width}) with at least one row, "
            f"received {tuple(x.shape)}"
        )
    return x


@final
class SecondHalf:
    """An observer of chains that sums a function of their states over the second half of the sweeps.

    Args:
        sweeps: Sweeps of the run, at least 2.
        function: Function of the states, for each layer (chains, width_l).

    Attributes:
        count: sweeps in the sum.
        total: the sum.
    """

    total: Tensor

    def __init__(self, sweeps: int, function: Callable[[States], Tensor]) -> None:
        self._first, self.count, self._function = sweeps // 2 + 1, sweeps - sweeps // 2, function

    def __call__(self, number: int, state: KernelState, info: Info) -> None:
        if number >= self._first:
            value = self._function(state.states)
            self.total = value if number == self._first else self.total.add_(value)


def average_chains(
    hamiltonian: Hamiltonian,
    v: Tensor,
    sweeps: int,
    function: Callable[[States], Tensor],
    generator: torch.Generator,
) -> Tensor:
    """Returns the mean of a function of states over the second half of Gibbs chains from visible states v."""
    averaged = SecondHalf(sweeps, function)
    start = KernelState(fill_hidden(hamiltonian, v, generator).states, 0)
    run_kernel(hamiltonian, Gibbs(), start, sweeps, generator, averaged)
    return averaged.total.div_(averaged.count)


def nearest_state(layer: Layer, mean: Tensor) -> Tensor:
    """Returns the nearest state of discrete units with these means, (..., width); of real units the mean.

    Of two-valued and one-hot units that is the most probable state. Of two as near it is the upper.
    """
    if not layer.discrete:
        return mean
    values = layer.values().to(mean)
    if layer.width == layer.n_units:
        middles = (values[1:, 0] + values[:-1, 0]) / 2
        return layer.from_digits(torch.bucketize(mean.contiguous(), middles, right=True)).to(mean)
    closeness = layer.by_unit(mean) @ values.t() - 0.5 * values.square().sum(-1)
    return layer.from_digits(len(values) - 1 - closeness.flip(-1).argmax(-1)).to(mean)
