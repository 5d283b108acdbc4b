"""The foundation's expectations: enumeration and chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, final

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.chains import Gibbs, Kernel, Step, advance, complete
from harmonium.learning.expectation import Expectation, Outcome
from harmonium.likelihood import add_exact_expectation
from harmonium.machine import Clamp, Hamiltonian, States, Statistics

Start = Literal["data", "persistent", "noise"]


@final
class Enumeration(Expectation):
    """The exact expectation, by enumeration; ``likelihood.exact_log_partition`` gives the limits.

    Args:
        clamped: whether the visible layer is clamped to the data.
    """

    def __init__(self, *, clamped: bool) -> None:
        self.clamped = clamped

    def add(
        self,
        hamiltonian: Hamiltonian,
        v: Tensor,
        state: Any,
        generator: torch.Generator,
        into: Statistics,
        weight: float,
    ) -> Outcome:
        if self.clamped:
            add_exact_expectation(hamiltonian, into, weight / len(v), v)
        else:
            add_exact_expectation(hamiltonian, into, weight)
        return Outcome(None, {})


@final
class ClampedChains(Expectation):
    """Gibbs chains with the visible layer clamped, one for each datum, odd layers summed out.

    With one hidden layer nothing is left to sample and the expectation is exact. Deeper, chains start from
    hidden layers drawn upwards.

    Args:
        sweeps: sweeps before the statistics are taken, at least 1.
    """

    def __init__(self, sweeps: int = 1) -> None:
        self.sweeps = _checks.positive_int(sweeps, "sweeps")

    def add(
        self,
        hamiltonian: Hamiltonian,
        v: Tensor,
        state: Any,
        generator: torch.Generator,
        into: Statistics,
        weight: float,
    ) -> Outcome:
        states = [v] * len(hamiltonian.layers)
        if len(hamiltonian.layers) > 2:
            states = complete(hamiltonian, v, generator)
            states = advance(
                hamiltonian, Gibbs(), states, self.sweeps, Clamp(hamiltonian, v, len(v)), generator
            )
        into.add(hamiltonian, states, weight / len(v), summed=hamiltonian.parity("odd"))
        return Outcome(None, {})


@final
class FreeChains(Expectation):
    """The average over chains of the free machine, with the odd layers summed out given the even ones.

    Args:
        kernel: what moves the chains.
        sweeps: sweeps of every call, at least 1.
        start: "data": fresh chains from the batch (CD); "persistent": chains continue from the last call, and
            begin as independent units at the machine's biases (PCD); "noise": fresh chains from uniform or
            standard normal noise.
        chains: how many; None is as many as the batch has rows. Chains from data always are.
        burn_in: sweeps left out of the average, which takes every later sweep; None keeps the last sweep
            only.
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        sweeps: int = 1,
        *,
        start: Start = "persistent",
        chains: int | None = None,
        burn_in: int | None = None,
    ) -> None:
        self.kernel = Gibbs() if kernel is None else kernel
        _checks.instance(self.kernel, "kernel", Kernel, "a kernel")
        self.sweeps = _checks.positive_int(sweeps, "sweeps")
        self.start = _checks.one_of(start, "start", ("data", "persistent", "noise"))
        self.chains = None if chains is None else _checks.positive_int(chains, "chains")
        self.burn_in = (
            self.sweeps - 1 if burn_in is None else _checks.positive_int(burn_in, "burn_in", minimum=0)
        )
        if self.burn_in >= self.sweeps:
            raise ValueError(f"burn_in: expected fewer than the {self.sweeps} sweeps, received {burn_in}")

    def add(
        self,
        hamiltonian: Hamiltonian,
        v: Tensor,
        state: Any,
        generator: torch.Generator,
        into: Statistics,
        weight: float,
    ) -> Outcome:
        chains = len(v) if self.chains is None or self.start == "data" else self.chains
        states = state
        if states is not None:
            check_states(hamiltonian, states)
        else:
            fresh = begin(hamiltonian, v, chains, self.start, generator)
            states = self.kernel.expand(hamiltonian, fresh, generator)
        odd = hamiltonian.parity("odd")
        chains = len(self.kernel.target(states)[0])  # persistent chains keep their number, whatever the batch
        each = weight / (chains * (self.sweeps - self.burn_in))
        diagnostics: dict[str, float] = {}

        def observe(number: int, step: Step) -> None:
            diagnostics.update(step.diagnostics)
            if number > self.burn_in:
                into.add(hamiltonian, self.kernel.target(step.states), each, summed=odd, fields=step.fields)

        free = Clamp(hamiltonian, None, chains)
        states = advance(hamiltonian, self.kernel, states, self.sweeps, free, generator, observe)
        return Outcome(states if self.start == "persistent" else None, diagnostics)


def begin(hamiltonian: Hamiltonian, v: Tensor, chains: int, start: str, generator: torch.Generator) -> States:
    """Where fresh chains begin: at rows of v, at noise, or as independent units at the machine's biases."""
    if start == "data":
        return complete(hamiltonian, v, generator)
    states = []
    for l, layer in enumerate(hamiltonian.layers):
        zero = torch.zeros(chains, layer.width, dtype=hamiltonian.dtype, device=hamiltonian.device)
        theta = layer.reference() if start == "noise" else hamiltonian.thetas[l]
        states.append(layer.sample(zero, hamiltonian.noise(l, chains, generator), theta))
    return states


def check_states(hamiltonian: Hamiltonian, state: Any) -> None:
    """Refuses chains of another machine."""
    _checks.instance(state, "state", Sequence, "what the last call returned, or None")
    received = [tuple(x.shape)[1:] if isinstance(x, Tensor) else type(x).__name__ for x in state]
    expected = [(layer.width,) for layer in hamiltonian.layers]
    if received != expected:
        raise ValueError(f"state: expected chains of width {expected}, received {received}")
