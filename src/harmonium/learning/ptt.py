"""Training in equilibrium: chains that exchange with samples of the machine as it last was frozen."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import require_alike
from harmonium.chains import Gibbs, KernelState, check_chains, run_kernel
from harmonium.ladder import Ladder, bennett_ratio
from harmonium.ladder.equilibrium import LEAST, Exchange, Population, equilibrate, successive
from harmonium.ladder.rungs import (
    as_rung,
    climb,
    draw_bottom,
    law_of,
    laws_of,
    log_partition_of_bottom,
    require_bottom,
)
from harmonium.ladder.spacing import space_rungs
from harmonium.learning.expectation import Expectation, ExpectationRequest, Outcome, StepControl
from harmonium.learning.expectations import ClampedChains, begin
from harmonium.learning.rule import Rule
from harmonium.machine import BoltzmannMachine, Hamiltonian

_FIRST_GAPS = 0.5  # acceptance on the way from independent units to the machine of the start
_SOON = 0.3  # acceptance in the first update after a freeze, below which a step was too long
_PATIENCE = 30  # rejections in a row
_BEGUN = {"since": 0, "rejections": 0, "rate": 1.0, "restart": 0, "cause": "", "stop": ""}
_DICT = ("chains", "sweeps", "own")


@final
class LadderChains(Expectation):
    """E[S] of the free machine by chains that are kept in equilibrium (Béreux et al. 2026; FORMULAS §8).

    Beside the chains there are samples of a *frozen* machine: the machine as it was some updates ago, drawn
    from its law. At every update chains and members of a copy of the samples, the reservoir, offer to change
    places. The acceptance, weighted for the last step of the parameters, decides before anything moves:

    - at least ``freeze``: they exchange, and the chains take their sweeps;
    - below it: the machine is frozen. Its chains are brought to equilibrium with the samples of the last
      frozen one, then new samples are taken, and ln Z is found by Bennett's ratio;
    - below 0.1, or below 0.3 in the first update after a freeze, or with weights of an effective sample
      size below 0.1: the step was too long. Parameters, chains and reservoir go back to the frozen
      machine's, learning rates are halved for good, the optimiser forgets its momenta. After 30 rejections in
      a row the run is stopped, with the cause.

    The frozen machines are a ladder, from independent units on: see ``ladder_of``.

    Args:
        sweeps: Gibbs sweeps of every update, at least 1.
        chains: how many; None is as many as the first batch has rows.
        freeze: acceptance below which a machine is frozen, in (0.1, 1).
        samples: of a frozen machine, as a multiple of the chains.
        offers: chains that offer to change places at an update, others at the next; None: all. The decision
            rests on so many, and an update costs less where they are few.
        max_rungs: frozen machines, after which the run is stopped.
    """

    controls = True

    def __init__(
        self,
        sweeps: int = 1,
        *,
        chains: int | None = None,
        freeze: float = 0.3,
        samples: int = 10,
        offers: int | None = None,
        max_rungs: int = 200,
    ) -> None:
        self.sweeps = _checks.positive_int(sweeps, "k")
        self.chains = None if chains is None else _checks.positive_int(chains, "chains", minimum=2)
        self.freeze = _checks.real(freeze, "freeze", LEAST, 1.0)
        self.samples = _checks.positive_int(samples, "samples")
        self.offers = None if offers is None else _checks.positive_int(offers, "offers", minimum=2)
        self.max_rungs = _checks.positive_int(max_rungs, "max_rungs", minimum=2)

    def add(self, request: ExpectationRequest) -> Outcome:
        if request.shards is not None:
            raise ValueError("rule: expected another one than ptt with distributed, which has one reservoir")
        law, generator = request.hamiltonian, request.generator
        if request.state is None:
            state, seen = self._begin(request), {"acceptance": 1.0, "sample_size": 1.0, "frozen": 1.0}
        else:
            state, seen = self._go_on(law, request.state, request.parameters or {}, generator)
        own = state["own"]
        if not own["restart"]:
            weight = request.weight / len(state["chains"][0])
            request.into.add(law, state["chains"], weight, summed=law.graph.summed)
        seen |= {
            "rejected": float(own["restart"]),
            "rungs": float(len(own["rungs"])),
            "rate_factor": own["rate"],
            "log_partition": float(own["log_partitions"][-1]),
        }
        return Outcome(state, seen, True)

    def control(self, state: Any) -> StepControl:
        own = state["own"]
        back = own["parameters"] if own["restart"] and own["parameters"] else None
        return StepControl(own["rate"], back, own["stop"] or None)

    def _go_on(
        self, law: Hamiltonian, state: Any, parameters: Any, generator: torch.Generator
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """Returns the state after an update, and diagnostics."""
        own, chains = dict(state["own"]), state["chains"]
        own["restart"] = 0
        rung = law_of(law, own["rungs"][-1])
        reservoir = Population(own["reservoir"]["states"], own["reservoir"]["energies"])
        rows = own["offering"]
        offering = [x[rows] for x in chains]
        offered = Exchange.offer(law, rung, offering, reservoir, generator)
        weights = (own["energies"] - offered.energies[0]).softmax(0)
        size = float(1 / weights.square().sum() / len(weights))
        rate = float((weights * offered.gain.clamp(max=0).exp()).sum())
        seen = {"acceptance": rate, "sample_size": size, "frozen": 0.0}
        sweeps = state["sweeps"] + self.sweeps
        least = min(self.freeze, _SOON) if own["since"] == 0 else LEAST
        if not (size >= LEAST and rate >= least):  # also where they are no numbers
            cause = f"acceptance {rate:.3g} and effective sample size {size:.3g} after a step"
            return self._reject(law, own, sweeps, cause, generator), seen
        if rate < self.freeze:
            frozen = self._freeze(law, own, chains, parameters, generator)
            if frozen is None:
                return self._reject(law, own, sweeps, own["cause"], generator), seen
            return {"chains": frozen, "sweeps": sweeps, "own": own}, {**seen, "frozen": 1.0}
        offering, reservoir = offered.accept(law, offering, reservoir, generator)
        chains = [x.index_copy(0, rows, y) for x, y in zip(chains, offering, strict=True)]
        moved = run_kernel(law, Gibbs(), KernelState(chains, 0), self.sweeps, generator)
        rows = self._choose(len(chains[0]), generator)
        fields = {l: moved.fields[l][rows] for l in law.graph.summed}
        energies = law.free_energy([x[rows] for x in moved.states], law.graph.summed, fields)
        own |= {"offering": rows, "energies": energies, "reservoir": reservoir._asdict()}
        if own["since"] >= 0:  # a step has been taken, and it was not too long
            own["rejections"] = 0
        own["since"] += 1
        return {"chains": list(moved.states), "sweeps": sweeps, "own": own}, seen

    def _choose(self, chains: int, generator: torch.Generator) -> Tensor:
        """Draws the rows of the chains that offer at the next update, (offers,)."""
        return successive(min(self.offers or chains, chains), chains, generator)

    def _reject(
        self, law: Hamiltonian, own: dict[str, Any], sweeps: int, cause: str, generator: torch.Generator
    ) -> dict[str, Any]:
        """Returns the state at the last frozen machine."""
        rung = law_of(law, own["rungs"][-1])
        samples = Population(own["samples"]["states"], own["samples"]["energies"])
        number = len(own["populations"][0][rung.graph.kept[0]])
        drawn = samples.take(_random.permutation(len(samples.energies), generator)[:number])
        rows = self._choose(number, generator)
        own |= {
            "reservoir": own["samples"],
            "offering": rows,
            "energies": drawn.energies[rows],
            "since": -1,  # the next update finds the machine as it was frozen
            "rejections": own["rejections"] + 1,
            "rate": own["rate"] / 2,
            "restart": 1,
            "cause": cause,
        }
        if own["rejections"] >= _PATIENCE:
            own["stop"] = (
                f"{_PATIENCE} steps in a row have led out of reach of equilibrium; the last: {cause}"
            )
        return {"chains": drawn.whole(rung, generator), "sweeps": sweeps, "own": own}

    def _freeze(
        self,
        law: Hamiltonian,
        own: dict[str, Any],
        chains: list[Tensor],
        parameters: Any,
        generator: torch.Generator,
    ) -> list[Tensor] | None:
        """Adds the machine to the frozen ones; returns its chains, or None where that failed."""
        rung = law_of(law, own["rungs"][-1])
        samples = Population(own["samples"]["states"], own["samples"]["energies"])
        found = equilibrate(law, rung, chains, samples, self.sweeps, generator)
        if found.cause:
            own["cause"] = found.cause
            return None
        under = rung.free_energy(found.samples.states, law.graph.summed)
        gap = law.free_energy(samples.states, law.graph.summed) - samples.energies
        ratio = bennett_ratio(gap, found.samples.energies - under)
        values, variances = own["log_partitions"], own["variances"]
        number = len(chains[0])
        rows = self._choose(number, generator)
        now = Population.of(law, [x[rows] for x in found.chains])
        own |= {
            "rungs": [*own["rungs"], [x.clone() for x in as_rung(law)]],
            "populations": [*own["populations"], found.samples.take(slice(number)).states],
            "log_partitions": torch.cat((values, values[-1:] + ratio.value)),
            "variances": torch.cat((variances, variances[-1:] + ratio.standard_error**2)),
            "samples": found.samples._asdict(),
            "reservoir": found.samples._asdict(),
            "offering": rows,
            "energies": now.energies,
            "parameters": {name: p.detach().clone() for name, p in parameters.items()},
            "since": 0,
            "rejections": 0,
        }
        if len(own["rungs"]) >= self.max_rungs:
            own["stop"] = f"{self.max_rungs} machines are frozen, which is max_rungs"
        return found.chains

    def _begin(self, request: ExpectationRequest) -> dict[str, Any]:
        """Returns the state with the first frozen machines: independent units, and the machine as it is."""
        law, generator = request.hamiltonian, request.generator
        number = self.chains or max(2, len(request.v))
        rungs = space_rungs(law, generator, _FIRST_GAPS, self.max_rungs - 1)
        laws = laws_of(law, rungs[1:])
        foot = law_of(law, rungs[0])
        samples = Population.of(foot, draw_bottom(foot, number * self.samples, generator))
        bottom = torch.tensor([log_partition_of_bottom(foot)], dtype=torch.float64, device=law.device)
        own: dict[str, Any] = {
            "rungs": rungs[:1],
            "populations": [samples.take(slice(number)).states],
            "log_partitions": bottom,
            "variances": torch.zeros_like(bottom),
            "samples": samples._asdict(),
            "reservoir": samples._asdict(),
            "offering": torch.arange(number, device=law.device),
            "energies": samples.energies[:number],
            "parameters": {},
            **_BEGUN,
        }
        chains = begin(law, request.v, number, "persistent", generator).states
        for each in laws:
            chains = climb([foot, each], number, generator)[-1]
            parameters = request.parameters if each is law else None
            frozen = self._freeze(each, own, chains, parameters or {}, generator)
            if frozen is None:
                raise ValueError(
                    "machine: expected one that chains from independent units reach; received "
                    f"{own['cause']} on the way, at rung {len(own['rungs'])} of {len(laws)}. Begin with "
                    "weaker couplings"
                )
            chains = frozen
        return {"chains": chains, "sweeps": 0, "own": own}

    def check_state(self, hamiltonian: Hamiltonian, state: Any) -> None:
        if state is None:
            return
        if not isinstance(state, dict) or set(state) != set(_DICT) or not isinstance(state["own"], dict):
            raise ValueError(
                f"state: expected what ptt keeps, a dict of {', '.join(_DICT)}, received another"
            )
        check_chains(hamiltonian, state["chains"])
        _checks.positive_int(state["sweeps"], "state['sweeps']", minimum=0)
        own, kept = state["own"], hamiltonian.graph.kept
        rungs, chains = own.get("rungs"), state["chains"]
        if not isinstance(rungs, list) or not rungs:
            raise ValueError("state['own']['rungs']: expected frozen machines, received none")
        empty, number = chains[0].new_empty(0, 0), len(chains[0])

        def rows(count: int) -> list[Tensor]:
            return [x.new_empty(count, x.shape[1]) if l in kept else empty for l, x in enumerate(chains)]

        offers = min(self.offers or number, number)
        each = torch.zeros(len(rungs), dtype=torch.float64)
        many = torch.zeros(number * self.samples, dtype=torch.float64)
        population = {"states": [torch.zeros_like(x) for x in rows(len(many))], "energies": many}
        expected = {
            "rungs": [as_rung(hamiltonian)] * len(rungs),
            "populations": [[torch.zeros_like(x) for x in rows(number)]] * len(rungs),
            "log_partitions": each,
            "variances": each,
            "samples": population,
            "reservoir": population,
            "offering": torch.zeros(offers, dtype=torch.int64),
            "energies": many[:offers],
            "parameters": own.get("parameters"),
            **_BEGUN,
        }
        require_alike(own, expected, "state['own']")
        require_bottom(hamiltonian, rungs)
        for name in ("samples", "reservoir"):
            for l in kept:
                hamiltonian.layers[l].check_rows(own[name]["states"][l], f"state['own'][{name!r}][{l}]")


@torch.no_grad()
def ladder_of(machine: BoltzmannMachine, state: Any, *, seed: int | torch.Generator = 0) -> KernelState:
    """Returns the ladder that a training by ``rules.ptt`` has left, with states of all its machines.

    ``chains.run(machine, ladder.Ladder(), state, ...)`` goes on with it, and ``ladder.log_partitions(machine,
    state=state)`` finds ln Z of all its machines.

    Args:
        machine: the trained machine, which is the top.
        state: ``TrainingRun.rule_state``.
        seed: of the layers that are summed out: an int or a generator.

    Returns:
        The chains of a ``ladder.Ladder``, for each layer (chains, width_l).

    Raises:
        ValueError: the state of another rule or machine.
    """
    if not isinstance(state, dict) or "populations" not in (state.get("own") or {}):
        raise ValueError("state: expected the rule_state of a training by ptt, received another")
    law, generator = machine.hamiltonian(), _random.as_generator(seed, machine.device)
    own = state["own"]
    require_bottom(law, own["rungs"])
    below = []
    for rung, kept in zip(own["rungs"], own["populations"], strict=True):
        frozen = law_of(law, rung)
        below.append(Population.of(frozen, kept).whole(frozen, generator))
    return Ladder().begin(law, state["chains"], own["rungs"], below, generator)


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
    the law of the machine although they take few sweeps, so that rates can be high that lead persistent
    chains astray; the frozen machines have ln Z, and are a ladder for samples (``learning.ladder_of``).
    ``learning.LadderChains`` has the rule by which a machine is frozen or a step is taken back.

    Args:
        k: Gibbs sweeps of every update, at least 1.
        chains: how many; None is as many as the first batch has rows. The samples are only as good as their
            number: some hundreds serve.
        freeze: acceptance below which the machine is frozen, in (0.1, 1); a higher one makes more rungs.
        samples: of a frozen machine, as a multiple of the chains.
        offers: chains that offer to change places at an update; None: all. With a quarter of 1,000 an update
            costs half as much.
        max_rungs: frozen machines, after which the run is stopped with a warning.

    Examples:
        >>> import harmonium as hm
        >>> hm.rules.ptt(chains=500).bias
        'asymptotic'
    """
    free = LadderChains(k, chains=chains, freeze=freeze, samples=samples, offers=offers, max_rungs=max_rungs)
    few = "" if offers is None else f", offers={offers}"
    name = f"ptt({k}, chains={chains}, freeze={free.freeze:g}, samples={samples}{few}, max_rungs={max_rungs})"
    return Rule(name, ClampedChains(k), free, "asymptotic")
