"""Unbiased expectations from coupled chains."""

from __future__ import annotations

from math import ceil
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._states import record
from harmonium.chains import KernelState, check_chains
from harmonium.coupled import Gibbs, Meetings, PairKernel, run_pairs
from harmonium.learning.expectation import Expectation, ExpectationRequest, Outcome, Start, begin
from harmonium.machine import Hamiltonian, States

_MUCH = 0.05  # of the pairs given up: at half of it most caps would warn, at double much bias stays silent


@record
class PairState(NamedTuple):
    """Holds what pairs of one call hand to the next.

    Attributes:
        k: first sweep that is averaged.
        states: where they go on, for each layer (pairs, width_l); None where they begin again.
    """

    k: int
    states: States | None


@final
class CoupledChains(Expectation):
    """H_{k:m} of pairs of chains that run until they meet (Qiu et al. 2020; Jacob et al. 2020; FORMULAS §3).

    Its expectation is E[S], free or clamped, whatever the start, if no pair is capped. The other settings are
    those of ``rules.ucd``. Persistent pairs go on from where the last call's first chains were at m; a first
    call may be handed the chains of PCD as its state. With ``quantile`` m - k stays, and as no start depends
    on the meeting of its own pair, nothing is biased. Antithetic pairs come in twos that start alike, and
    their first chains mirror each other's noise until the second chains set out; in the free phase only.

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
        quantile: float | None = None,
        antithetic: bool = False,
        clamped: bool = False,
    ) -> None:
        if pair_kernel is not None:
            _checks.instance(
                pair_kernel, "pair_kernel", PairKernel, "coupled.Gibbs, coupled.Metropolis or None"
            )
        _checks.instance(antithetic, "antithetic", bool, "True or False")
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
        self.quantile = None if quantile is None else _checks.real(quantile, "quantile", 0.0, 1.0)
        self.antithetic = antithetic and not clamped
        if self.antithetic and self.chains is not None and self.chains % 2:
            raise ValueError(f"chains: expected an even number of antithetic pairs, received {chains}")
        self.clamped = clamped

    def add(self, request: ExpectationRequest) -> Outcome:
        if self.clamped and (exact := request.add_exact()):
            return exact
        hamiltonian, v, generator = request.hamiltonian, request.v, request.generator
        state = self._pair_state(request.state)
        alike = 1 + self.antithetic  # pairs that start alike, which no split parts
        chains = None if self.clamped or self.chains is None else self.chains // alike
        pairs = alike * request.own_chains(chains, "chains")
        k = self.k if state is None else max(self.k, state.k)
        m = k + self.m - self.k
        if self.max_sweeps is not None:
            m = min(m, self.max_sweeps)
            k = min(k, m)
        if state is not None and state.states is not None and self.start == "persistent":
            start = KernelState(state.states, 0)
        else:
            start = self._begin(hamiltonian, v, pairs, generator)
        pairs = len(start.states[0])  # persistent chains keep their number, whatever the batch
        meetings = run_pairs(
            hamiltonian.clamp(v if self.clamped else None, pairs, request.complete),
            self.pair_kernel,
            start.states,
            fields=start.fields,
            k=k,
            m=m,
            lag=self.lag,
            max_sweeps=self.max_sweeps,
            generator=generator,
            into=request.into,
            weight=request.weight / pairs,
            row_weights=request.row_weights if self.clamped else None,
            antithetic=self.antithetic,
        )
        going_on = self.start == "persistent" and not self.clamped
        late = self.k if self.quantile is None else meetings.times.double().quantile(self.quantile)
        pair_state = PairState(ceil(late), meetings.states if going_on else None)
        keeps = self.quantile is not None or going_on
        diagnostics = diagnose_pairs(meetings, self._prefix, self.max_sweeps)
        return Outcome(pair_state if keeps else None, {**diagnostics, f"{self._prefix}burn_in": float(k)})

    def check_state(self, hamiltonian: Hamiltonian, state: Any) -> None:
        state = self._pair_state(state)
        if state is None:
            return
        _checks.positive_int(state.k, "state.k", minimum=0)
        if self.start == "persistent":
            check_chains(hamiltonian, state.states)
            if self.antithetic and len(state.states[0]) % 2:
                raise ValueError("state: expected an even number of antithetic pairs")

    def _begin(
        self, hamiltonian: Hamiltonian, v: Tensor, pairs: int, generator: torch.Generator
    ) -> KernelState:
        start = "data" if self.clamped else self.start
        alike = 2 if self.antithetic else 1
        fresh = pairs // alike
        rows = v[torch.arange(fresh, device=v.device) % len(v)] if start == "data" else v
        state = begin(hamiltonian, rows, fresh, start, generator)
        if alike == 1:
            return state
        fields = {l: field.repeat(alike, 1) for l, field in state.fields.items()}
        return KernelState([x.repeat(alike, 1) for x in state.states], 0, fields=fields)

    @property
    def _prefix(self) -> str:
        return "clamped_" if self.clamped else ""

    def _pair_state(self, state: Any) -> PairState | None:
        """Returns the state that ``add`` keeps; pairs begin at the chains of another rule."""
        if state is None or isinstance(state, PairState):
            return state
        if self.start != "persistent":
            raise ValueError(
                f'state: expected None with start={self.start!r}; start="persistent" takes chains'
            )
        return PairState(self.k, state.states if isinstance(state, KernelState) else state)


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
