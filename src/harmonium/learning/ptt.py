"""Training in equilibrium: chains that exchange with samples of the machine as it last was frozen."""

from __future__ import annotations

from typing import Any, final

from harmonium.ladder import EquilibriumTraining, PttState
from harmonium.learning.expectation import (
    ClampedChains,
    Expectation,
    ExpectationRequest,
    Outcome,
    StepControl,
)
from harmonium.learning.rule import Rule, recipe
from harmonium.machine import Hamiltonian


@final
class LadderChains(Expectation):
    """E[S] of the free machine by chains that are kept in equilibrium (Béreux et al. 2026; FORMULAS §8).

    Beside the chains there are samples of a *frozen* machine: the machine as it was some updates ago, drawn
    from its distribution. At every update chains and members of a copy of the samples, the reservoir, offer
    to change places. The acceptance, weighted for the last step of the parameters, decides before anything
    moves:

    - at least ``freeze``: they exchange, and the chains take their sweeps;
    - below it: the machine is frozen. Its chains are brought to equilibrium with the samples of the last
      frozen one, then new samples are taken, and ln Z is found by Bennett's ratio;
    - below 0.1, or below 0.3 in the first update after a freeze, or with weights of an effective sample
      size below 0.1: the step was too long. Parameters, chains and reservoir go back to the frozen
      machine's, learning rates are halved for good, the optimiser forgets its momenta. After 30 rejections in
      a row the run is stopped, with the cause.

    The frozen machines are a ladder, from independent units on: see ``ladder.ladder_of``. The state is a
    ``ladder.PttState``.

    Args:
        follower: the settings, as ``rules.ptt`` describes them.
    """

    controls = True

    def __init__(self, follower: EquilibriumTraining) -> None:
        self.follower = follower

    def add(self, request: ExpectationRequest) -> Outcome:
        hamiltonian, parameters, generator = request.hamiltonian, request.parameters or {}, request.generator
        if request.state is None:
            state = self.follower.begin(hamiltonian, len(request.v), parameters, generator)
            diagnostics = {"acceptance": 1.0, "sample_size": 1.0, "frozen": 1.0}
        else:
            state, diagnostics = self.follower.advance(hamiltonian, request.state, parameters, generator)
        if not state.restart:
            weight = request.weight / len(state.chains[0])
            request.into.add(hamiltonian, state.chains, weight, summed=hamiltonian.graph.summed)
        diagnostics |= {
            "rejected": float(state.restart),
            "rungs": float(len(state.rungs)),
            "rate_factor": state.rate,
            "log_partition": float(state.log_partitions[-1]),
        }
        return Outcome(state, diagnostics, True)

    def control(self, state: PttState) -> StepControl:
        back = state.parameters if state.restart and state.parameters else None
        return StepControl(state.rate, back, state.stop or None)

    def check_state(self, hamiltonian: Hamiltonian, state: Any) -> None:
        if state is not None:
            self.follower.check(hamiltonian, state)


@recipe
def ptt(
    k: int = 1,
    chains: int | None = None,
    *,
    freeze: float = 0.3,
    samples: int = 10,
    offers: int | None = None,
    max_rungs: int = 200,
) -> Rule:
    """Equilibrium training: chains that exchange with samples of the machine as it last was frozen.

    Parallel trajectory tempering along the training (Béreux et al. 2026; FORMULAS §8). The chains stay in
    the distribution of the machine although they take few sweeps, so that rates can be high that lead
    persistent chains astray; the frozen machines have ln Z, and are a ladder for samples
    (``ladder.ladder_of``). ``learning.LadderChains`` has the rule by which a machine is frozen or a step is
    taken back.

    Args:
        k: Gibbs sweeps of every update, at least 1.
        chains: how many; None is as many as the first batch has rows. The samples are only as good as their
            number: some hundreds serve.
        freeze: acceptance below which the machine is frozen, in (0.1, 1); a higher one makes more rungs.
        samples: Samples of a frozen machine, as a multiple of the chains.
        offers: chains that offer to change places at an update, others at the next; None: all. The decision
            rests on so many; with a quarter of 1,000 an update costs half as much.
        max_rungs: frozen machines, after which the run is stopped with a warning.

    Examples:
        >>> import harmonium as hm
        >>> hm.rules.ptt(chains=500).bias
        'asymptotic'
    """
    free = LadderChains(EquilibriumTraining(k, chains, freeze, samples, offers, max_rungs))
    return Rule("ptt", ClampedChains(k), free, "asymptotic")
