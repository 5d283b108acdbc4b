"""Parallel tempering over the strength of the couplings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._states import record
from harmonium.chains.gibbs import Gibbs
from harmonium.chains.kernel import Info, Kernel, KernelState, swap_where
from harmonium.chains.moving import run_kernel
from harmonium.machine import BoltzmannMachine, Hamiltonian, States


@record
@dataclass(frozen=True)
class Replicas:
    """The replicas of all chains, and what the kernel that moves them keeps.

    Attributes:
        states: those of one temperature side by side, for each layer (temperatures · chains, width_l).
        memory: Memory of the inner kernel, or None.
    """

    states: States
    memory: Any


_ROUNDS = (1, 1, 1, 2, 2)  # lengths of the rounds of ``adapt``: each begins nearer to the best temperatures
_SHARE = 5  # sweeps of a run for one of ``adapt``, so that with its start it takes at most a third as long


@final
class Tempering(Kernel):
    """Replicas of every chain at inverse temperatures β of the couplings, with swaps between neighbours.

    A sweep moves every replica by the inner kernel, once or more often, then offers all swaps (1,2), (3,4), …
    and all swaps (2,3), (4,5), …, each accepted with probability min(1, exp((β_i - β_j)(C_j - C_i))),
    C = Σ x_lᵀ J_lm x_m over the edges (½ of it over inner ones). At β = 0 units are independent. The chains
    of a ``KernelState`` are the replicas at β = 1; its ``memory`` has all of them (``Replicas``).

    Args:
        replicas: number of inverse temperatures, evenly spaced from 1 to 0, at least 2.
        betas: the inverse temperatures themselves, from 1 strictly downwards to no less than 0; overrides
            ``replicas``. ``adapt`` finds those at which neighbours swap equally often.
        kernel: what moves each replica; Gibbs by default.
        moves: Sweeps of that kernel between swaps, at least 1. Swaps cost as much as some five Gibbs sweeps
            of a sparse lattice.

    Raises:
        ValueError: betas that do not start at 1 or do not decrease, or a number out of range.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
        >>> start = machine.random_states(200, seed=0)
        >>> kernel = hm.chains.Tempering(replicas=3)
        >>> kernel.betas
        (1.0, 0.5, 0.0)
        >>> states = hm.chains.run(machine, kernel, start, sweeps=10, seed=1)
    """

    kind = "tempered"

    def __init__(
        self,
        replicas: int = 10,
        *,
        betas: Sequence[float] | None = None,
        kernel: Kernel | None = None,
        moves: int = 1,
    ) -> None:
        if betas is None:
            _checks.positive_int(replicas, "replicas", minimum=2)
            betas = torch.linspace(1, 0, replicas, dtype=torch.float64).tolist()
        values = _checks.reals(betas, "betas")
        falling = all(a > b for a, b in pairwise(values))
        if len(values) < 2 or values[0] != 1.0 or values[-1] < 0 or not falling:
            raise ValueError(
                f"betas: expected numbers that start at 1 and decrease to no less than 0, received {values}"
            )
        self.betas = tuple(values)
        self.kernel = Gibbs() if kernel is None else kernel
        self.moves = _checks.positive_int(moves, "moves")
        _checks.instance(self.kernel, "kernel", Kernel, "a kernel")
        if isinstance(self.kernel, Tempering):  # it would take these replicas for its own
            raise ValueError(f"kernel: expected one without replicas of its own, received {kernel!r}")

    @property
    def invariant(self) -> bool:
        return self.kernel.invariant

    def is_steady(self, persistent: bool) -> bool:
        return self.kernel.is_steady(persistent)

    def init(
        self,
        hamiltonian: Hamiltonian,
        states: Sequence[Tensor],
        generator: torch.Generator,
        planned: int | None = None,
    ) -> KernelState:
        replicas = [x.repeat(len(self.betas), 1) for x in states]
        inner = self.kernel.init(self._temper(hamiltonian, len(states[0])), replicas, generator, planned)
        return KernelState(list(states), 0, Replicas(inner.states, inner.memory))

    def step(
        self, hamiltonian: Hamiltonian, state: KernelState, generator: torch.Generator
    ) -> tuple[KernelState, Info]:
        replicas, chains = len(self.betas), len(state.states[0])
        states = state.memory.states
        if state.cache is None:  # another distribution than at the last sweep, and what it holds
            tempered = self._temper(hamiltonian, chains)
            states = tempered.clamp_states(states)
        else:
            tempered = state.cache[0]
        # What the kernel keeps of its own stays with its temperature; states change places.
        inner = KernelState(states, state.sweeps, state.memory.memory)
        inner = run_kernel(tempered, self.kernel, inner, self.moves, generator)

        betas = _place_betas(self.betas, hamiltonian.dtype, hamiltonian.device)
        coupling = hamiltonian.coupling_energy(inner.states).view(replicas, chains)
        order = torch.arange(replicas * chains, device=hamiltonian.device).view(replicas, chains)
        gaps = (betas[:-1] - betas[1:]).double().unsqueeze(-1)
        accepted = torch.zeros((), device=hamiltonian.device)
        for first in (0, 1):
            lower, upper = slice(first, replicas - 1, 2), slice(first + 1, replicas, 2)
            gain = gaps[lower] * (coupling[upper] - coupling[lower])
            swap = _random.accept(gain, generator)
            accepted = accepted + swap.sum()
            for values in (coupling, order):
                values[lower], values[upper] = swap_where(swap, values[lower], values[upper])
        moved = [x[order.view(-1)] for x in inner.states]
        memory = Replicas(moved, inner.memory)
        # Beside the distribution the energies C of all replicas, (temperatures, chains), for who looks on.
        known = tempered, coupling
        after = KernelState([x[:chains] for x in moved], state.sweeps + 1, memory, cache=known)
        return after, {"swap_rate": accepted.double() / ((replicas - 1) * chains)}

    @torch.no_grad()
    def adapt(
        self,
        machine: BoltzmannMachine,
        *,
        chains: int = 32,
        sweeps: int = 1000,
        seed: int | torch.Generator = 0,
    ) -> Tempering:
        """Returns the kernel with as many temperatures, at which all neighbours swap about equally often.

        The shares of refused swaps add up along β to the communication barrier, which is cut into equal parts
        (Syed et al. 2022, Alg. 3) in each of five rounds; replicas go on from round to round. Where
        neighbours hardly ever swap, mean energies tell how far apart they are: d⟨C⟩/dβ is the variance of C,
        and √(Δβ Δ⟨C⟩ / π) the barrier of normally distributed ones. So a few sweeps do. ``ladder.Ladder``
        instead makes as many rungs as an acceptance asks for.

        Args:
            machine: whose distribution is tempered.
            chains: chains of the run that is prepared, at least 1.
            sweeps: Sweeps of the run that is prepared, at least 35, of which a fifth is made here.
            seed: an int or a generator.

        Raises:
            ValueError: a number out of range.

        Examples:
            >>> import harmonium as hm
            >>> machine = hm.BoltzmannMachine([hm.Spin(50)], {(0, 0): hm.Dense()}, seed=None)
            >>> machine.couplings[0].fill_(0.04 * (1 - torch.eye(50)))
            >>> kernel = hm.chains.Tempering(replicas=4).adapt(machine, seed=0)
            >>> len(kernel.betas), kernel.betas[0], kernel.betas[-1]
            (4, 1.0, 0.0)
        """
        _checks.positive_int(chains, "chains")
        _checks.positive_int(sweeps, "sweeps", minimum=_SHARE * sum(_ROUNDS))
        generator = _random.as_generator(seed, machine.device)
        start = machine.random_states(chains, seed=generator)
        return self.spaced(machine.hamiltonian(), start, sweeps, generator)

    def spaced(
        self, hamiltonian: Hamiltonian, start: Sequence[Tensor], sweeps: int, generator: torch.Generator
    ) -> Tempering:
        """Returns the kernel of ``adapt`` for a run from states, (chains, width_l) each, without checks."""
        kernel, state = self, self.init(hamiltonian, start, generator, sweeps)
        for share in _ROUNDS:
            length = sweeps // _SHARE * share // sum(_ROUNDS)
            gaps = -_place_betas(kernel.betas, torch.float64, hamiltonian.device).diff().unsqueeze(-1)
            refused = gain = torch.zeros((), dtype=torch.float64, device=hamiltonian.device)
            for number in range(length):
                state, _ = kernel.step(hamiltonian, state, generator)
                if 2 * number >= length - 1:
                    gains = gaps * state.cache[1].diff(dim=0)
                    refused, gain = refused + 1 - gains.clamp(max=0).exp().mean(1), gain - gains.mean(1)
            # Noise may make a mean gain positive; those between which all is accepted keep apart.
            apart = (gain.clamp(min=0) / (length - length // 2) / np.pi).sqrt().clamp(min=1)
            barrier = np.append(0.0, (refused * apart + 1e-6).cumsum(0).cpu().numpy())
            inner = np.interp(np.linspace(0, barrier[-1], len(barrier))[1:-1], barrier, kernel.betas)
            betas = [1.0, *inner.tolist(), kernel.betas[-1]]
            kernel = Tempering(betas=betas, kernel=self.kernel, moves=self.moves)
            state = state._replace(cache=None)
        return kernel

    def check(self, hamiltonian: Hamiltonian, state: KernelState) -> None:
        super().check(hamiltonian, state)
        inner = KernelState(state.memory.states, state.sweeps, state.memory.memory)
        self.kernel.check(self._temper(hamiltonian, len(state.states[0])), inner)

    def _temper(self, hamiltonian: Hamiltonian, chains: int) -> Hamiltonian:
        """Returns the distribution of all replicas, those of one temperature side by side."""
        betas = (
            _place_betas(self.betas, hamiltonian.dtype, hamiltonian.device)
            .repeat_interleave(chains)
            .unsqueeze(-1)
        )
        rows = torch.arange(chains, device=hamiltonian.device).repeat(len(self.betas))
        return hamiltonian.select_rows(rows).tempered(betas)

    def __repr__(self) -> str:
        moves = f", moves={self.moves}" if self.moves > 1 else ""
        return f"Tempering(betas={self.betas}, kernel={self.kernel!r}{moves})"


@lru_cache(maxsize=16)
def _place_betas(betas: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns the inverse temperatures, (replicas,), on a device; cached, as every sweep needs them."""
    return torch.tensor(betas, dtype=dtype, device=device)
