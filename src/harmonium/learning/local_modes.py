"""Expectations from chains that start near local modes."""

from __future__ import annotations

from typing import final

from harmonium import _checks, _device
from harmonium.chains import Gibbs, search
from harmonium.coupled import PairKernel, run_pairs
from harmonium.learning.coupled import diagnose_pairs
from harmonium.learning.expectation import Expectation, ExpectationRequest, Outcome


@final
class LocalModes(Expectation):
    """States one Gibbs sweep from a local mode, corrected by coupled chains (Taniguchi et al. 2023; FORMULAS
    §4).

    Chains start from noise, climb to a local mode and take one Gibbs sweep to X_0 = Y_0. With a coupling the
    estimate is f(X_0) + Σ_{t=1}^{τ-1} [f(X_t) - f(Y_{t-1})], whose expectation is E[S], free or clamped, if
    no pair is capped. Without one it is f(X_0): biased, and most often the same number, as Metropolis pairs
    of a large machine meet in their first step unless the rare event happens that carries the correction.

    The other settings are those of ``rules.ucd_lmi``; with ``marginalise`` f is the mean of E[S | one colour]
    and E[S | the other] (Taniguchi, Eq. 27), else S itself.

    Args:
        clamped: whether the visible layer is clamped to the data, with a chain for each row; with one hidden
            layer that is exact.
    """

    def __init__(
        self,
        pair_kernel: PairKernel | None = None,
        *,
        chains: int | None = None,
        max_sweeps: int | None = None,
        marginalise: bool = True,
        clamped: bool = False,
    ) -> None:
        self.pair_kernel = pair_kernel
        _checks.instance(pair_kernel, "pair_kernel", PairKernel | None, "a pair kernel or None")
        self.chains = None if chains is None else _checks.positive_int(chains, "chains")
        self.max_sweeps = None if max_sweeps is None else _checks.positive_int(max_sweeps, "max_sweeps")
        self.marginalise = marginalise
        self.clamped = clamped

    def add(self, request: ExpectationRequest) -> Outcome:
        if self.clamped and (exact := request.add_exact()):
            return exact
        generator = request.generator
        chains = request.own_chains(None if self.clamped else self.chains, "chains")
        hamiltonian = request.hamiltonian.clamp(request.v if self.clamped else None, chains, request.complete)
        row_weights = request.row_weights if self.clamped else None
        noise = [hamiltonian.pure_noise(l, chains, generator) for l in range(len(hamiltonian.layers))]
        modes, sweeps = search(hamiltonian, noise, generator, owner=self)
        start, _ = Gibbs().step(hamiltonian, modes, generator)
        name = "clamped_" if self.clamped else ""
        mean, longest = _device.to_floats([sweeps.double().mean(), sweeps.max().double()])
        diagnostics = {f"{name}search_sweeps": mean, f"{name}longest_search": longest}
        free = [
            tuple(l for l in layers if not hamiltonian.is_clamped(l))
            for layers in hamiltonian.graph.sides("local modes")
        ]
        sums = request.into.in_readings(free if self.marginalise else [()])
        begun = None
        if self.pair_kernel is None:
            weight = request.weight / chains
            sums.add(hamiltonian, start.states, weight if row_weights is None else weight * row_weights)
        else:
            begun = [x.mean(0) for x in start.states]
            meetings = run_pairs(
                hamiltonian,
                self.pair_kernel,
                start.states,
                fields=start.fields,
                k=0,
                m=0,
                lag=1,
                max_sweeps=self.max_sweeps,
                generator=generator,
                into=sums,
                weight=request.weight / chains,
                row_weights=row_weights,
            )
            diagnostics |= diagnose_pairs(meetings, name, self.max_sweeps)
        return Outcome(None, diagnostics, self.pair_kernel is None, begun)
