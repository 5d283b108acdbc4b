"""Chains that stay in equilibrium with a machine that learns: they exchange with samples of frozen ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, isfinite
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._states import record, require_alike
from harmonium.chains import (
    Gibbs,
    KernelState,
    check_chains,
    convergence,
    replay_under,
    run_kernel,
    swap_where,
)
from harmonium.ladder.bennett import bennett_ratio
from harmonium.ladder.kernel import Ladder
from harmonium.ladder.rungs import (
    Rung,
    as_rung,
    complete,
    fields_of,
    fill_rungs,
    hamiltonian_of,
    hamiltonians_of,
    require_bottom,
    space_rungs,
)
from harmonium.machine import BoltzmannMachine, Hamiltonian, States

LEAST = 0.1
"""The acceptance of exchanges below which a machine counts as out of reach."""
_FIRST_GAPS = 0.5  # acceptance on the way from independent units to the machine of the start
_SOON = 0.3  # acceptance in the first update after a freeze, below which a step was too long
_PATIENCE = 30  # rejections in a row: rates are then 1e-9 of what they were
_TIMES = 20  # autocorrelation times of a run, of which the time is known to about a third
_FIRST, _MOST = 40, 20_480  # rounds of the first stage and of the longest
_TOGETHER = 8  # rounds of one recording; its powers of two are four, and a rule keeps eight recordings
_WATCHED = 200  # chains whose autocorrelation is measured


def successive(count: int, total: int, generator: torch.Generator) -> Tensor:
    """Draws so many distinct rows of a total: successive ones, cyclically, from one that is drawn, (count,).

    Which rows meet is independent of what they hold, as with a permutation, which takes longer than all else.
    """
    start = _random.integers(total, (1,), generator)
    return (start + torch.arange(count, device=start.device)) % total


@record
class Population(NamedTuple):
    """States of a machine, those of the layers that are summed out left empty.

    Attributes:
        states: for each layer (rows, width_l), or (0, 0) for a layer that is summed out.
        energies: their free energies, (rows,) float64.
    """

    states: States
    energies: Tensor

    @classmethod
    def of(cls, hamiltonian: Hamiltonian, states: Sequence[Tensor]) -> Population:
        """Returns states, for each layer (rows, width_l), with their free energies."""
        empty = states[0].new_empty(0, 0)
        unsummed_states = [empty if l in hamiltonian.graph.summed else x for l, x in enumerate(states)]
        return cls(
            unsummed_states,
            hamiltonian.free_energy(
                unsummed_states, hamiltonian.graph.summed, fields_of(hamiltonian, unsummed_states)
            ),
        )

    def take(self, rows: Tensor | slice) -> Population:
        """Returns some of the states."""
        return Population([x[rows] if x.numel() else x for x in self.states], self.energies[rows])

    def put(self, rows: Tensor, states: Sequence[Tensor], energies: Tensor) -> Population:
        """Returns the population with the states of some rows replaced, for each layer (rows, width_l)."""
        pairs = zip(self.states, states, strict=True)
        new = [x.index_copy(0, rows, y) if x.numel() else x for x, y in pairs]
        return Population(new, self.energies.index_copy(0, rows, energies))

    def whole(self, hamiltonian: Hamiltonian, generator: torch.Generator) -> States:
        """Returns the states with every layer, (rows, width_l), those summed out drawn given the others."""
        return complete(hamiltonian, self.states, fields_of(hamiltonian, self.states), generator)


@record
class Exchange(NamedTuple):
    """An offer of chains of a distribution and ``members`` of a rung's population to change places.

    ``gain`` is the log of the ratio of probabilities after and before. ``energies`` and ``fields``, by layer
    (chains, width_l), are those of chains and members under the distribution, ``under_rung`` are energies of
    the chains under the rung; (chains,) but for the fields and ``chains``. ``rows`` are the members'.
    """

    chains: States
    rows: Tensor
    members: Population
    gain: Tensor
    energies: tuple[Tensor, Tensor]
    fields: tuple[dict[int, Tensor], dict[int, Tensor]]
    under_rung: Tensor

    @classmethod
    def offer(
        cls,
        hamiltonian: Hamiltonian,
        rung: Hamiltonian,
        chains: Sequence[Tensor],
        reservoir: Population,
        generator: torch.Generator,
    ) -> Exchange:
        """Draws distinct members for all chains, (chains, width_l) for each layer, and judges the change."""
        summed = hamiltonian.graph.summed
        rows = successive(len(chains[0]), len(reservoir.energies), generator)
        members = reservoir.take(rows)
        fields = fields_of(hamiltonian, chains), fields_of(hamiltonian, members.states)
        x = hamiltonian.free_energy(chains, summed, fields[0])
        y = hamiltonian.free_energy(members.states, summed, fields[1])
        under = rung.free_energy(chains, summed, fields_of(rung, chains))
        gain = (x - under) - (y - members.energies)
        return cls(list(chains), rows, members, gain, (x, y), fields, under)

    def accept(
        self, hamiltonian: Hamiltonian, reservoir: Population, generator: torch.Generator
    ) -> tuple[States, Population]:
        """Exchanges with Metropolis's probability; summed layers of the chains are drawn again.

        Returns:
            The chains, for each layer (chains, width_l), and the reservoir.
        """
        swap = _random.accept(self.gain, generator)
        chosen, moved, returned = swap.unsqueeze(-1), list(self.chains), list(self.members.states)
        for l in hamiltonian.graph.unsummed:
            moved[l], returned[l] = swap_where(chosen, self.chains[l], self.members.states[l])
        energies = torch.where(swap, self.under_rung, self.members.energies)
        fields = {l: torch.where(chosen, self.fields[1][l], ours) for l, ours in self.fields[0].items()}
        return complete(hamiltonian, moved, fields, generator), reservoir.put(self.rows, returned, energies)


class Frozen(NamedTuple):
    """Samples of a machine and its chains after some rounds, or why an attempt to freeze it failed."""

    cause: str
    samples: Population
    chains: States
    rounds: int


def equilibrate(
    hamiltonian: Hamiltonian,
    rung: Rung,
    chains: States,
    samples: Population,
    sweeps: int,
    generator: torch.Generator,
    owner: object = None,
) -> Frozen:
    """Brings chains to equilibrium by exchanges with samples of a rung nearby, and collects as many samples.

    A stage begins at the samples as they are, as members that chains have left there lag behind. It is long
    enough at 20 autocorrelation times of F_law - F_rung along the chains; otherwise another one, as long as
    all before, goes on. New samples are taken every two times. It fails at an acceptance below 0.1 over the
    second half of a stage, and after 20,480 rounds, each of an exchange and ``sweeps`` Gibbs sweeps.
    """
    rounds = 0

    def advance(hamiltonian: Hamiltonian, inputs: tuple[Rung, States, Population], count: int) -> Any:
        (rung, chains, reservoir), gaps, accepted = inputs, list[Tensor](), list[Tensor]()
        for _ in range(count):
            offered = Exchange.offer(
                hamiltonian, hamiltonian_of(hamiltonian, rung), chains, reservoir, generator
            )
            gaps.append((offered.energies[0] - offered.under_rung)[:_WATCHED])
            accepted.append(offered.gain.clamp(max=0).exp().mean())
            chains, reservoir = offered.accept(hamiltonian, reservoir, generator)
            chains = [*run_kernel(hamiltonian, Gibbs(), KernelState(chains, 0), sweeps, generator).states]
        return chains, reservoir, torch.stack(gaps), torch.stack(accepted)

    def run(chains: States, count: int) -> tuple[States, Tensor, Tensor]:
        reservoir, gaps, accepted = samples, list[Tensor](), list[Tensor]()
        while count:
            several = min(_TOGETHER, 1 << count.bit_length() - 1)
            key, step = ("rounds", sweeps, several), partial(advance, count=several)
            inputs = rung, chains, reservoir
            chains, reservoir, *seen = replay_under(hamiltonian, owner, key, step, inputs, [generator], True)
            gaps.append(seen[0])
            accepted.append(seen[1])
            count -= several
        return chains, torch.cat(gaps), torch.cat(accepted)

    while True:
        stage = max(_FIRST, rounds)
        chains, gaps, accepted = run(chains, stage)
        rounds += stage
        rate = float(accepted[stage // 2 :].mean())
        if not rate >= LEAST:
            return Frozen(f"acceptance {rate:.3g} in a run", samples, chains, rounds)
        draws = gaps.t()
        size = convergence(draws).ess_bulk
        time = max(1.0, draws.numel() / size) if isfinite(size) and size > 0 else 1.0
        if stage >= _TIMES * time:
            break
        if stage >= _MOST:
            cause = f"an autocorrelation time of {time:.3g} rounds in a run of {rounds}"
            return Frozen(cause, samples, chains, rounds)
    collected: list[States] = []
    for _ in range(len(samples.energies) // len(chains[0])):
        chains, *_ = run(chains, ceil(2 * time))
        collected.append(chains)
    rounds += len(collected) * ceil(2 * time)
    together = [torch.cat(parts) for parts in zip(*collected, strict=True)]
    return Frozen("", Population.of(hamiltonian, together), chains, rounds)


@record
@dataclass(frozen=True)
class PttState:
    """Holds what a training in equilibrium keeps from update to update.

    Attributes:
        chains: States of the machine, for each layer (chains, width_l), after so many ``sweeps``.
        rungs: the natural parameters of the frozen machines, from independent units on.
        populations: a sample of every frozen machine for each chain, as in ``Population.states``.
        log_partitions, variances: ln Z of the frozen machines, and of its errors, (rungs,) float64.
        samples: Samples of the machine that was frozen last, a multiple of the chains.
        reservoir: a copy of the samples that chains exchange with.
        offering, energies: rows of the chains that offer to exchange at the next update, and their free
            energies under the machine before its last step, (offers,).
        parameters: learnable parameters of the machine that was frozen last, by name.
        since: updates since then; -1: a step was taken back, so many in a row as ``rejections``.
        rate: factor of all learning rates.
        restart: 1: go back to ``parameters`` in place of a step.
        cause: why a step was taken back last; ``stop``: why the run is to end; empty: nothing.
    """

    chains: States
    sweeps: int
    rungs: list[Rung]
    populations: list[States]
    log_partitions: Tensor
    variances: Tensor
    samples: Population
    reservoir: Population
    offering: Tensor
    energies: Tensor
    parameters: dict[str, Tensor]
    since: int = 0
    rejections: int = 0
    rate: float = 1.0
    restart: int = 0
    cause: str = ""
    stop: str = ""


@final
@dataclass(frozen=True)
class EquilibriumTraining:
    """Settings of ``rules.ptt``, whose k is ``sweeps`` here.

    Chains stay in equilibrium while the machine trains: they exchange states with stored samples of an
    earlier, frozen copy of it.

    Raises:
        ValueError: a setting out of range.
    """

    sweeps: int
    chains: int | None
    freeze: float
    samples: int
    offers: int | None
    max_rungs: int

    def __post_init__(self) -> None:
        _checks.positive_int(self.sweeps, "k")
        _checks.real(self.freeze, "freeze", LEAST, 1.0)
        _checks.positive_int(self.samples, "samples")
        _checks.positive_int(self.max_rungs, "max_rungs", minimum=2)
        for name in ("chains", "offers"):
            if getattr(self, name) is not None:
                _checks.positive_int(getattr(self, name), name, minimum=2)

    def begin(
        self,
        hamiltonian: Hamiltonian,
        rows: int,
        parameters: Mapping[str, Tensor],
        generator: torch.Generator,
    ) -> PttState:
        """Returns the state with the first frozen machines: independent units, and the machine as it is.

        There are as many chains, (chains, width_l), as ``rows`` where their number is not set.

        Raises:
            ValueError: a machine that chains from independent units do not reach.
        """
        number = self.chains or max(2, rows)
        rungs = space_rungs(hamiltonian, generator, _FIRST_GAPS, self.max_rungs - 1)
        foot = hamiltonian_of(hamiltonian, rungs[0])
        samples = Population.of(foot, foot.draw_independent(number * self.samples, generator))
        bottom = torch.tensor(
            [foot.log_partition_of_independent()], dtype=torch.float64, device=hamiltonian.device
        )
        state = PttState(
            hamiltonian.draw_independent(number, generator),
            0,
            rungs[:1],
            [samples.take(slice(number)).states],
            bottom,
            torch.zeros_like(bottom),
            samples,
            samples,
            torch.arange(number, device=hamiltonian.device),
            samples.energies[:number],
            {},
        )
        hamiltonians = hamiltonians_of(hamiltonian, rungs[1:])
        for at in hamiltonians:
            state = replace(state, chains=fill_rungs([foot, at], number, generator)[-1])
            state = self._freeze(at, state, parameters if at is hamiltonian else {}, generator)
            if state.restart:
                raise ValueError(
                    "machine: expected one that chains from independent units reach; received "
                    f"{state.cause} on the way, at rung {len(state.rungs)} of {len(hamiltonians)}. "
                    "Begin with weaker couplings"
                )
        return state

    def advance(
        self,
        hamiltonian: Hamiltonian,
        state: PttState,
        parameters: Mapping[str, Tensor],
        generator: torch.Generator,
    ) -> tuple[PttState, dict[str, float]]:
        """Returns the state after an update of the parameters (by name, of their shapes), and diagnostics."""
        state = replace(state, restart=0, sweeps=state.sweeps + self.sweeps)
        rung, reservoir = state.rungs[-1], state.reservoir

        def judge(hamiltonian: Hamiltonian, inputs: Any) -> tuple[Exchange, Tensor]:
            rung, chains, rows, before, reservoir = inputs
            frozen = hamiltonian_of(hamiltonian, rung)
            offered = Exchange.offer(hamiltonian, frozen, [x[rows] for x in chains], reservoir, generator)
            weights = (before - offered.energies[0]).softmax(0)  # of the step of the parameters
            size = 1 / weights.square().sum() / len(weights)
            rate = (weights * offered.gain.clamp(max=0).exp()).sum()
            return offered, torch.stack((size, rate.to(size.dtype)))

        def move(hamiltonian: Hamiltonian, inputs: Any) -> tuple[States, Population, Tensor, Tensor]:
            return settings.move(hamiltonian, generator, *inputs)

        settings = replace(self)  # a recording that held its owner would keep it alive
        inputs: Any = rung, state.chains, state.offering, state.energies, reservoir
        offered, numbers = replay_under(hamiltonian, self, ("judge",), judge, inputs, [generator], True)
        size, rate = numbers.tolist()
        seen = {"acceptance": rate, "sample_size": size, "frozen": 0.0}
        least = min(self.freeze, _SOON) if state.since == 0 else LEAST
        if not (size >= LEAST and rate >= least):  # also where they are no numbers
            cause = f"acceptance {rate:.3g} and effective sample size {size:.3g} after a step"
            return self._reject(hamiltonian, state, cause, generator), seen
        if rate < self.freeze:
            state = self._freeze(hamiltonian, state, parameters, generator)
            return state, {**seen, "frozen": float(not state.restart)}
        inputs = offered, state.offering, state.chains, reservoir
        chains, reservoir, offering, energies = replay_under(
            hamiltonian, self, ("move",), move, inputs, [generator], True
        )
        after = replace(
            state,
            chains=chains,
            reservoir=reservoir,
            offering=offering,
            energies=energies,
            rejections=0 if state.since >= 0 else state.rejections,  # a step was taken, not too long a one
            since=state.since + 1,
        )
        return after, seen

    def move(
        self,
        hamiltonian: Hamiltonian,
        generator: torch.Generator,
        offered: Exchange,
        rows: Tensor,
        chains: States,
        reservoir: Population,
    ) -> tuple[States, Population, Tensor, Tensor]:
        """Lets chains of some rows exchange as offered, and moves all, each layer (chains, width_l).

        Returns:
            ``chains``, ``reservoir``, ``offering`` and ``energies`` of a ``PttState``.
        """
        offering, reservoir = offered.accept(hamiltonian, reservoir, generator)
        chains = [x.index_copy(0, rows, y) for x, y in zip(chains, offering, strict=True)]
        moved = run_kernel(hamiltonian, Gibbs(), KernelState(chains, 0), self.sweeps, generator)
        rows = self._choose(len(chains[0]), generator)
        fields = {l: moved.fields[l][rows] for l in hamiltonian.graph.summed}
        energies = hamiltonian.free_energy([x[rows] for x in moved.states], hamiltonian.graph.summed, fields)
        return list(moved.states), reservoir, rows, energies

    def _choose(self, chains: int, generator: torch.Generator) -> Tensor:
        """Draws the rows of the chains that offer at the next update, (offers,)."""
        return successive(min(self.offers or chains, chains), chains, generator)

    def _reject(
        self, hamiltonian: Hamiltonian, state: PttState, cause: str, generator: torch.Generator
    ) -> PttState:
        """Returns the state at the last frozen machine."""
        rung, samples = hamiltonian_of(hamiltonian, state.rungs[-1]), state.samples
        number = len(state.chains[0])
        drawn = samples.take(_random.permutation(len(samples.energies), generator)[:number])
        rows, rejections, stop = self._choose(number, generator), state.rejections + 1, state.stop
        if rejections >= _PATIENCE:
            stop = f"{_PATIENCE} steps in a row have led out of reach of equilibrium; the last: {cause}"
        return replace(
            state,
            chains=drawn.whole(rung, generator),
            reservoir=samples,
            offering=rows,
            energies=drawn.energies[rows],
            since=-1,  # the next update finds the machine as it was frozen
            rejections=rejections,
            rate=state.rate / 2,
            restart=1,
            cause=cause,
            stop=stop,
        )

    def _freeze(
        self,
        hamiltonian: Hamiltonian,
        state: PttState,
        parameters: Mapping[str, Tensor],
        generator: torch.Generator,
    ) -> PttState:
        """Returns the state with the machine among the frozen ones, or at the last one where that failed."""
        rung, samples = hamiltonian_of(hamiltonian, state.rungs[-1]), state.samples
        frozen = equilibrate(
            hamiltonian, state.rungs[-1], state.chains, samples, self.sweeps, generator, self
        )
        if frozen.cause:
            return self._reject(hamiltonian, state, frozen.cause, generator)
        under = rung.free_energy(frozen.samples.states, hamiltonian.graph.summed)
        gap = hamiltonian.free_energy(samples.states, hamiltonian.graph.summed) - samples.energies
        ratio = bennett_ratio(gap, frozen.samples.energies - under)
        values, variances, number = state.log_partitions, state.variances, len(state.chains[0])
        rows, stop = self._choose(number, generator), state.stop
        if len(state.rungs) + 1 >= self.max_rungs:
            stop = f"{self.max_rungs} machines are frozen, which is max_rungs"
        return replace(
            state,
            chains=frozen.chains,
            rungs=[*state.rungs, [x.clone() for x in as_rung(hamiltonian)]],
            populations=[*state.populations, frozen.samples.take(slice(number)).states],
            log_partitions=torch.cat((values, values[-1:] + ratio.value)),
            variances=torch.cat((variances, variances[-1:] + ratio.standard_error**2)),
            samples=frozen.samples,
            reservoir=frozen.samples,
            offering=rows,
            energies=Population.of(hamiltonian, [x[rows] for x in frozen.chains]).energies,
            parameters={name: p.detach().clone() for name, p in parameters.items()},
            since=0,
            rejections=0,
            stop=stop,
        )

    def check(self, hamiltonian: Hamiltonian, state: Any) -> None:
        """Refuses a state, read from a file, that ``advance`` could not have returned for this machine.

        Raises:
            TypeError, ValueError: naming what is wrong with it.
        """
        if not isinstance(state, PttState):
            raise ValueError(f"state: expected a PttState, as ptt keeps it, received {type(state).__name__}")
        check_chains(hamiltonian, state.chains)
        _checks.positive_int(state.sweeps, "state.sweeps", minimum=0)
        if not isinstance(state.rungs, list) or not state.rungs:
            raise ValueError("state.rungs: expected frozen machines, received none")
        number, unsummed = len(state.chains[0]), hamiltonian.graph.unsummed

        def rows(count: int) -> States:
            shapes = [(count, x.shape[1]) if l in unsummed else (0, 0) for l, x in enumerate(state.chains)]
            return [x.new_zeros(shape) for x, shape in zip(state.chains, shapes, strict=True)]

        by_rung = torch.zeros(len(state.rungs), dtype=torch.float64)
        by_sample = torch.zeros(number * self.samples, dtype=torch.float64)
        population, offers = Population(rows(len(by_sample)), by_sample), min(self.offers or number, number)
        expected = PttState(
            state.chains,
            0,
            [as_rung(hamiltonian)] * len(state.rungs),
            [rows(number)] * len(state.rungs),
            by_rung,
            by_rung,
            population,
            population,
            torch.zeros(offers, dtype=torch.int64),
            by_sample[:offers],
            state.parameters if isinstance(state.parameters, dict) else {},
        )
        require_alike(state, expected, "state")
        require_bottom(hamiltonian, state.rungs)
        for name in ("samples", "reservoir"):
            for l in unsummed:
                hamiltonian.layers[l].check_rows(getattr(state, name).states[l], f"state.{name}.states[{l}]")


@torch.no_grad()
def ladder_of(machine: BoltzmannMachine, state: Any, *, seed: int | torch.Generator = 0) -> KernelState:
    """Returns the ladder that a training by ``rules.ptt`` has left, with states of all its machines.

    ``chains.run(machine, ladder.Ladder(), state, ...)`` goes on with it, and ``ladder.log_partitions(machine,
    state=state)`` finds ln Z of all its machines.

    Args:
        machine: the trained machine, which is the top.
        state: ``TrainingRun.rule_state``.
        seed: Source of noise for the layers that are summed out: an int or a generator.

    Returns:
        The chains of a ``ladder.Ladder``, for each layer (chains, width_l).

    Raises:
        ValueError: the state of another rule or machine.
    """
    if not isinstance(state, PttState):
        raise ValueError("state: expected the rule_state of a training by ptt, received another")
    hamiltonian, generator = machine.hamiltonian(), _random.as_generator(seed, machine.device)
    require_bottom(hamiltonian, state.rungs)
    below = []
    for rung, population in zip(state.rungs, state.populations, strict=True):
        frozen = hamiltonian_of(hamiltonian, rung)
        below.append(Population.of(frozen, population).whole(frozen, generator))
    return Ladder().init(hamiltonian, state.chains, generator, rungs=state.rungs, below=below)
