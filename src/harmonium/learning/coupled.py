"""Unbiased expectations from coupled chains."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.chains import KernelState, check_chains
from harmonium.coupled import Gibbs, Meetings, PairKernel, run_pairs
from harmonium.learning.expectation import Expectation, ExpectationRequest, Outcome, Start, begin
from harmonium.machine import Hamiltonian

_MUCH = 0.05  # of the pairs given up: at half of it most caps would warn, at double much bias stays silent


@final
class CoupledChains(Expectation):
    """H_{k:m} of pairs of chains that run until they meet (Qiu et al. 2020; Jacob et al. 2020; FORMULAS §3).

    Its expectation is E[S], free or clamped, whatever the start, if no pair is capped. The other settings are
    those of ``rules.ucd``. Persistent pairs go on from where the last call's first chains were at m; a first
    call may be handed the chains of PCD as its state.

    Args:
        clamped: whether the visible layer is clamped to the data; where no two hidden layers are joined that
            is exact. There are then as many pairs as rows, as there always are from data.
    """

    def __init__(
        self,
        pair_kernel: PairKernel | None = None,
        *,
        k: int = 1,
        m: int | None = None,
        lag: int = 1,
        start: Start = "data",
        chains: int | None = None,
        max_sweeps: int | None = None,
        clamped: bool = False,
    ) -> None:
        if pair_kernel is not None:
            _checks.instance(
                pair_kernel, "pair_kernel", PairKernel, "coupled.Gibbs, coupled.Metropolis or None"
            )
        self.pair_kernel = pair_kernel or Gibbs()
        self.k = _checks.positive_int(k, "k", minimum=0)
        self.m = self.k if m is None else _checks.positive_int(m, "m", minimum=self.k)
        self.lag = _checks.positive_int(lag, "lag")
        self.start = _checks.one_of(start, "start", ("data", "persistent", "noise"))
        self.chains = None if chains is None else _checks.positive_int(chains, "chains")
        minimum = max(self.m, self.lag)
        self.max_sweeps = (
            None if max_sweeps is None else _checks.positive_int(max_sweeps, "max_sweeps", minimum=minimum)
        )
        self.clamped = clamped

    def add(self, request: ExpectationRequest) -> Outcome:
        if self.clamped and (exact := request.add_exact()):
            return exact
        hamiltonian, v, generator = request.hamiltonian, request.v, request.generator
        chains = self._persistent_chains(request.state)
        pairs = request.own_chains(None if self.clamped else self.chains, "chains")
        start = self._begin(hamiltonian, v, pairs, generator) if chains is None else KernelState(chains, 0)
        pairs = len(start.states[0])  # persistent chains keep their number, whatever the batch
        meetings = run_pairs(
            hamiltonian.clamp(v if self.clamped else None, pairs, request.complete),
            self.pair_kernel,
            start.states,
            fields=start.fields,
            k=self.k,
            m=self.m,
            lag=self.lag,
            max_sweeps=self.max_sweeps,
            generator=generator,
            into=request.into,
            weight=request.weight / pairs,
            row_weights=request.row_weights if self.clamped else None,
        )
        going_on = self.start == "persistent" and not self.clamped
        # No sweeps so far, and no memory, as chains of PCD by Gibbs sweeps: these may go on from here.
        state = KernelState(meetings.states, 0, None, {}) if going_on else None
        prefix = "clamped_" if self.clamped else ""
        return Outcome(state, diagnose_pairs(meetings, prefix, self.max_sweeps))

    def check_state(self, hamiltonian: Hamiltonian, state: Any) -> None:
        chains = self._persistent_chains(state)
        if chains is not None:
            check_chains(hamiltonian, chains)

    def _begin(
        self, hamiltonian: Hamiltonian, v: Tensor, pairs: int, generator: torch.Generator
    ) -> KernelState:
        start = "data" if self.clamped else self.start
        rows = v[torch.arange(pairs, device=v.device) % len(v)] if start == "data" else v
        return begin(hamiltonian, rows, pairs, start, generator)

    def _persistent_chains(self, state: Any) -> Any:
        """Returns the chains of a state, its own or another rule's, at which pairs begin; None: none."""
        if state is None:
            return None
        if self.start != "persistent":
            raise ValueError(
                f'state: expected None with start={self.start!r}; start="persistent" takes chains'
            )
        return state.states if isinstance(state, KernelState) else state


def diagnose_pairs(meetings: Meetings, prefix: str, max_sweeps: int | None) -> dict[str, float]:
    """Numbers about pairs, with a warning where many were given up."""
    counts = torch.stack((meetings.capped, meetings.times, meetings.tries, meetings.cost)).double()
    (capped, time, tries, cost), (_, longest, *_) = torch.stack((counts.mean(1), counts.amax(1))).tolist()
    if capped > _MUCH:
        _checks.warn(
            f"{capped:.0%} of the pairs were given up after {max_sweeps} sweeps: the gradient is "
            "biased. Raise max_sweeps, or lower the learning rate",
            RuntimeWarning,
        )
    return {
        f"{prefix}meeting_time": time,
        f"{prefix}longest_meeting_time": longest,
        f"{prefix}capped": capped,
        f"{prefix}rejected": tries,
        f"{prefix}flip_rate": meetings.flip_rate,
        f"{prefix}sweeps": cost,
    }
