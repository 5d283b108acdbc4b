"""Chains on a ladder of machines, from independent units to the machine itself, that exchange states."""

from __future__ import annotations

import copy
import os
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._states import record, require_alike
from harmonium._storage import FORMAT, OtherVersion, check_free, pack, replace_file, unpack
from harmonium.chains import Gibbs, Info, Kernel, KernelState, Tempering, check_chains, run_kernel
from harmonium.ladder.rungs import (
    Pilots,
    Rung,
    as_rung,
    complete,
    fill_rungs,
    hamiltonians_of,
    require_bottom,
    space_rungs,
)
from harmonium.ladder.stretches import Stretch, cut_rungs, join_rungs
from harmonium.machine import BoltzmannMachine, Hamiltonian, States

_FORM, _VERSION = f"{FORMAT} ladder", 2  # of the files of ladders
_LEAST = 0.15  # acceptance below which a given gap is filled: a gap made for 0.5 is measured at 0.3 and more


@record
@dataclass(frozen=True)
class LadderState:
    """Holds what a ladder keeps beside the chains at its top.

    Attributes:
        rungs: the natural parameters of every machine below the top, each (width_l,) or (width_l, width_m).
        factors: for every stretch of rungs how many times the couplings of its first each of them has.
        states: those of all rungs below the top, one rung after the other, for each layer
            (rungs · chains, width_l).
        births: the round in which the state at a rung was drawn at rung 0, or 0, (rungs + 1, chains).
        from_bottom: 1 where a state was at the bottom after it was last at the top, (rungs + 1, chains).
        climbs: number of passages from the bottom to the top so far, of all chains.
        accepted: sums of accepted exchanges of neighbours over the rounds, as parts of the chains, (rungs,).
        memories: what the inner kernel keeps at every stretch of rungs above the first.
    """

    rungs: list[Rung]
    factors: list[list[float]]
    states: States
    births: Tensor
    from_bottom: Tensor
    climbs: Tensor
    accepted: Tensor
    memories: list[Any]


class Traffic(NamedTuple):
    """Exchanges along a ladder since its chains began.

    Attributes:
        acceptance: Acceptance of every pair of neighbours from the bottom, (rungs,); NaN before the
            first.
        ages: rounds since every state was born at rung 0, or since the start if it was there before,
            (rungs + 1, chains).
        renewed: Fraction of all states that were drawn afresh at rung 0 since the start, or come from such.
        round_trips: Observed passages from the bottom to the top, for each chain and round.
        expected: The same rate predicted from the acceptances a alone, as if successive exchanges of a state
            were independent: 1 / (2 + 2 Σ (1 - a) / a) (Syed et al. 2022). If ``round_trips`` is far below
            it, chains do not mix inside some rung.
    """

    acceptance: Tensor
    ages: Tensor
    renewed: float
    round_trips: float
    expected: float

    def __str__(self) -> str:
        low, high = float(self.acceptance.min()), float(self.acceptance.max())
        return (
            f"acceptance {low:.2f} to {high:.2f} of {len(self.acceptance)} pairs; {self.renewed:.0%} of the "
            f"states renewed; {self.round_trips:.3g} round trips for each chain and round, "
            f"{self.expected:.3g} expected"
        )

    def __repr__(self) -> str:
        return f"Traffic({self})"


@final
class Ladder(Kernel):
    """Parallel trajectory tempering: chains at all rungs of a ladder of machines (Béreux et al. 2024).

    Rung 0 has no couplings and is drawn exactly; the others are machines frozen along a training, or on the
    way from rung 0 to the machine; the top is the machine itself. A round moves every rung by ``sweeps`` of
    the inner kernel. Then neighbours exchange their states x and y, even pairs and odd pairs in turn, with
    probability min(1, exp(F_a(x) + F_b(y) - F_a(y) - F_b(x))). F has the layers of ``graph.summed`` summed
    out (none where none can be), and these are drawn anew afterwards. In turn, states are carried straight up
    and down (Syed et al. 2022).

    Every chain has a ladder of its own, independent of the others. The chains of a ``KernelState`` are those
    at the top. Its ``memory``, a ``LadderState``, has the rest. A ladder is of the machine that it leads to.
    Below one that learns, the highest exchanges cease in time; ``rules.ptt`` adds rungs.

    Args:
        rungs: machines below the top from rung 0 on, at least one. None: ``init`` makes them along the
            couplings of its distribution. ``ladder.lead_to`` adds some where exchanges fail.
        kernel: moves the states of every rung but the first; Gibbs by default.
        sweeps: Sweeps of the inner kernel in a round, at least 1.
        acceptance: Acceptance of exchanges, in (0, 1), which decides how many rungs are made.
        max_rungs: most rungs, at least 1.
        ages: updates of a training after which the given rungs stood, one for each, not falling; None: they
            are of no training.

    Raises:
        ValueError: a rung 0 with couplings, rungs that are not of one graph, or ages that are not theirs.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
        >>> start = machine.random_states(200, seed=0)
        >>> states = hm.chains.run(machine, hm.ladder.Ladder(), start, sweeps=10, seed=1)
        >>> bool(0.4 < states[0].mean() < 0.6)
        True
    """

    kind = "ladder"

    def __init__(
        self,
        rungs: Sequence[BoltzmannMachine | Hamiltonian | Rung] | None = None,
        *,
        kernel: Kernel | None = None,
        sweeps: int = 1,
        acceptance: float = 0.5,
        max_rungs: int = 200,
        ages: Sequence[float] | None = None,
    ) -> None:
        self.rungs: tuple[Rung, ...] | None = None
        if rungs is not None:
            _checks.instance(rungs, "rungs", Sequence, "machines from rung 0 on")
            self.rungs = tuple(
                rung if isinstance(rung, list) else as_rung(rung, f"rungs[{r}]")
                for r, rung in enumerate(rungs)
            )
            require_bottom(None, self.rungs)
        self.kernel = Gibbs() if kernel is None else kernel
        _checks.instance(self.kernel, "kernel", Kernel, "a kernel")
        if isinstance(self.kernel, Ladder | Tempering):
            raise ValueError(f"kernel: expected one without replicas of its own, received {kernel!r}")
        self.sweeps = _checks.positive_int(sweeps, "sweeps")
        self.acceptance = _checks.real(acceptance, "acceptance", 0.01, 0.99)
        self.max_rungs = _checks.positive_int(max_rungs, "max_rungs")
        self.ages = None if ages is None else tuple(_checks.reals(ages, "ages"))
        if self.ages is not None and (
            len(self.ages) != len(self.rungs or ()) or list(self.ages) != sorted(self.ages)
        ):
            raise ValueError(
                f"ages: expected one for each of {len(self.rungs or ())} rungs, not falling, received "
                f"{reprlib.repr(ages)}"
            )

    @property
    def invariant(self) -> bool:
        return self.kernel.invariant

    @property
    def period(self) -> int | None:
        return None if self.kernel.period is None else 2  # even and odd exchanges

    def with_rungs(self, rungs: Sequence[Rung], ages: Sequence[float] | None = None) -> Ladder:
        """Returns a ladder with these settings and other rungs, from the bottom, of some ages."""
        other = copy.copy(self)
        other.rungs, other.ages = tuple(rungs), None if ages is None else tuple(ages)
        return other

    def init(
        self,
        hamiltonian: Hamiltonian,
        states: Sequence[Tensor],
        generator: torch.Generator,
        planned: int | None = None,
        *,
        rungs: Sequence[Rung] | None = None,
        below: Sequence[States] | None = None,
    ) -> KernelState:
        """Returns chains that have taken no sweep yet, as ``Kernel.init`` does; none count as born at rung 0.

        The given states are those of the top. Below it they are drawn from rung 0 and moved up rung by rung,
        where they are not given.

        Args:
            hamiltonian: the machine in natural parameters, with what is held.
            states: for each layer (chains, width_l).
            generator: source of noise.
            planned: rounds of the run, or None.
            rungs: Rungs as in ``LadderState``; None: those of the ladder, or made for the distribution.
            below: states at the rungs, for each layer (chains, width_l).

        Raises:
            ValueError: more than ``max_rungs`` would be needed.
        """
        chains = len(states[0])
        if rungs is None and self.rungs is None:
            free = hamiltonian if hamiltonian.held is None else hamiltonian.clamp(None, chains)
            rungs = space_rungs(free, generator, self.acceptance, self.max_rungs)
        elif rungs is None:
            require_bottom(hamiltonian, self.rungs or ())
            rungs = [[x.to(hamiltonian.device, hamiltonian.dtype) for x in rung] for rung in self.rungs or ()]
        if below is None:
            below = fill_rungs(hamiltonians_of(hamiltonian, rungs)[:-1], chains, generator)
        replicas = [torch.cat(same) for same in zip(*below, states, strict=True)]
        factors = cut_rungs(hamiltonian, rungs)
        memories = [
            self.kernel.init(at.hamiltonian, [x[at.rows] for x in replicas], generator, planned).memory
            for at in join_rungs(hamiltonian, rungs, factors, chains)[1:]
        ]
        rounds = torch.zeros(len(rungs) + 1, chains, dtype=torch.int64, device=hamiltonian.device)
        memory = LadderState(
            [list(rung) for rung in rungs],
            factors,
            [x[: len(rungs) * chains] for x in replicas],
            rounds,
            rounds.clone(),
            rounds[0, 0].clone(),
            torch.zeros(len(rungs), dtype=torch.float64, device=hamiltonian.device),
            memories,
        )
        return KernelState(list(states), 0, memory)

    def step(
        self, hamiltonian: Hamiltonian, state: KernelState, generator: torch.Generator
    ) -> tuple[KernelState, Info]:
        before: LadderState = state.memory
        chains, top, odd = len(state.states[0]), len(before.rungs), state.sweeps % 2
        stretches: list[Stretch] = (
            join_rungs(hamiltonian, before.rungs, before.factors, chains)
            if state.cache is None
            else state.cache.stretches
        )
        moved, memories = [stretches[0].hamiltonian.draw_independent(chains, generator)], list[Any]()
        fields: list[Mapping[int, Tensor]] = [{}]
        for at, memory in zip(stretches[1:], before.memories, strict=True):
            # At the top the state's own chains, which may be others than the last round left.
            x = state.states if at is stretches[-1] else [x[at.rows] for x in before.states]
            after = KernelState(at.hamiltonian.clamp_states(x), state.sweeps * self.sweeps, memory)
            after = run_kernel(at.hamiltonian, self.kernel, after, self.sweeps, generator)
            moved.append(after.states)
            memories.append(after.memory)
            fields.append(after.fields)
        states = [torch.cat(same) for same in zip(*moved, strict=True)]

        # Even pairs in even rounds and odd ones in odd rounds, not by chance: a state that is accepted goes
        # on in its direction, and climbs in rounds in proportion to the rungs, not to their square (Syed et
        # al. 2022). A rung at an end that has no partner is its own.
        low, high = slice(odd, top, 2), slice(odd + 1, top + 1, 2)
        index = torch.arange((top + 1) * chains, device=hamiltonian.device)
        partners = index.clone()
        by_rung = index.view(top + 1, chains)
        partners.view(top + 1, chains)[low], partners.view(top + 1, chains)[high] = (
            by_rung[high],
            by_rung[low],
        )
        kept = hamiltonian.graph.unsummed
        offered = [x.index_select(0, partners) if l in kept else x for l, x in enumerate(states)]
        own_weights, other_weights = (
            [at.weigh([x[at.rows] for x in rows], known) for at, known in zip(stretches, seen, strict=True)]
            for rows, seen in ((states, fields), (offered, [{}] * len(stretches)))
        )
        # ln of the ratio is F_a(x) + F_b(y) - F_a(y) - F_b(x) (FORMULAS §8).
        F_own, F_other = (
            torch.cat([F for F, _ in weights]).view(top + 1, chains)
            for weights in (own_weights, other_weights)
        )
        gaps = torch.stack((F_other[high] - F_own[low], F_own[high] - F_other[low]))
        swap = _random.accept(gaps[1] - gaps[0], generator)
        swapped = torch.zeros(top + 1, chains, dtype=torch.bool, device=hamiltonian.device)
        swapped[low], swapped[high] = swap, swap
        order = torch.where(swapped.flatten(), partners, index)
        births, from_bottom = before.births.clone(), before.from_bottom.clone()
        births[0] = before.births.amax(0) + 1  # the number of this round, in which rung 0 is drawn
        from_bottom[0].fill_(1)
        births, from_bottom = (x.flatten()[order].view_as(x) for x in (births, from_bottom))
        climbs = before.climbs + from_bottom[top].sum()
        from_bottom[top] = 0

        # Summed layers have no part in the exchange: they are drawn again given what a rung then holds, which
        # keeps the distribution of all rungs.
        states = [x.index_select(0, order) if l in kept else x for l, x in enumerate(states)]
        known, drawn = dict[int, Tensor](), list[States]()  # in the end the fields at the top
        for at, (_, ours), (_, theirs) in zip(stretches, own_weights, other_weights, strict=True):
            chosen = swapped.flatten()[at.rows].unsqueeze(-1)
            known = {l: torch.where(chosen, theirs[l], field) for l, field in ours.items()}
            drawn.append(complete(at.hamiltonian, [x[at.rows] for x in states], known, generator))
        below = [torch.cat(same) for same in zip(*drawn[:-1], strict=True)]
        accepted = before.accepted.clone()
        accepted[low] += swap.double().mean(1)
        memory = LadderState(
            before.rungs, before.factors, below, births, from_bottom, climbs, accepted, memories
        )
        info = {"exchange_rate": swap.sum() / max(swap.numel(), 1), "renewed": (births > 0).double().mean()}
        return KernelState(drawn[-1], state.sweeps + 1, memory, known, Round(stretches, gaps)), info

    def check(self, hamiltonian: Hamiltonian, state: KernelState) -> None:
        check_chains(hamiltonian, state.states)
        _checks.positive_int(state.sweeps, "state.sweeps", minimum=0)
        name, memory = "state.memory", state.memory
        if not isinstance(memory, LadderState) or not isinstance(memory.rungs, list) or not memory.rungs:
            raise ValueError(f"{name}: expected a LadderState with rungs, as a Ladder keeps it")
        for r, rung in enumerate(memory.rungs):
            require_alike(rung, as_rung(hamiltonian), f"{name}.rungs[{r}]")
        require_bottom(hamiltonian, memory.rungs)
        generator, below = _random.as_generator(0, hamiltonian.device), [[*state.states]] * len(memory.rungs)
        fresh = self.init(hamiltonian, state.states, generator, 1, rungs=memory.rungs, below=below)
        require_alike(memory, fresh.memory, name)
        if memory.factors != fresh.memory.factors:
            expected = f"expected {fresh.memory.factors}, as its rungs have them"
            raise ValueError(f"{name}.factors: {expected}, received {memory.factors}")
        check_chains(hamiltonian, memory.states)

    def __repr__(self) -> str:
        rungs = None if self.rungs is None else f"<{len(self.rungs)} machines>"
        return (
            f"Ladder({rungs}, kernel={self.kernel!r}, sweeps={self.sweeps}, acceptance={self.acceptance:g}, "
            f"max_rungs={self.max_rungs})"
        )


class Round(NamedTuple):
    """Holds what a round leaves for the next one, and for who looks on.

    Attributes:
        stretches: the rungs as they are moved and weighed.
        gaps: F_b - F_a before the exchange, of states of a and of states of b, for the pairs a and b of
            neighbours that exchanged, (2, pairs, chains).
    """

    stretches: list[Stretch]
    gaps: Tensor


def traffic(state: KernelState) -> Traffic:
    """Returns the exchanges along a ladder, the ages of its states, and its round trips.

    Args:
        state: State of a ``Ladder``.

    Returns:
        Acceptances (rungs,), ages (rungs + 1, chains), and numbers; see ``Traffic``.

    Raises:
        ValueError: a state of another kernel.
    """
    memory = state.memory
    if not isinstance(memory, LadderState):
        raise ValueError("state: expected that of a Ladder, received another kernel's")
    offers = torch.tensor([(state.sweeps + 1 - a % 2) // 2 for a in range(len(memory.accepted))])
    acceptance = memory.accepted.cpu() / offers
    chains = memory.births.shape[1]
    return Traffic(
        acceptance,
        state.sweeps - memory.births,
        float((memory.births > 0).double().mean()),
        int(memory.climbs) / (chains * max(state.sweeps, 1)),
        1 / (2 + 2 * float(((1 - acceptance) / acceptance).sum())) if bool((acceptance > 0).all()) else 0.0,
    )


def hamiltonians_along(machine: BoltzmannMachine, ladder: Ladder) -> list[Hamiltonian]:
    """Returns the distributions of all machines of a ladder from the bottom, the last that of the machine.

    Raises:
        ValueError: rungs of another graph, or none.
    """
    hamiltonian = machine.hamiltonian()
    require_bottom(hamiltonian, ladder.rungs or ())
    return hamiltonians_of(hamiltonian, ladder.rungs or ())


@torch.no_grad()
def lead_to(ladder: Ladder, machine: BoltzmannMachine, *, seed: int | torch.Generator = 0) -> Ladder:
    """Returns a ladder that goes on from its last rung to a machine, with more rungs where exchanges fail.

    They lie on the straight way in natural parameters, and have the age of the rung below. Between the given
    rungs some are added where exchanges would succeed more rarely than in 15 of 100.

    Args:
        ladder: one with rungs, such as those of another training, or of averages.
        machine: its new top, of the same graph.
        seed: an int or a generator.

    Raises:
        ValueError: rungs of another graph, or more than the ladder allows.
    """
    _checks.instance(ladder, "ladder", Ladder, "a ladder.Ladder")
    *hamiltonians, hamiltonian = hamiltonians_along(machine, ladder)
    generator = _random.as_generator(seed, machine.device)
    room, ages = ladder.max_rungs - len(hamiltonians), list(ladder.ages or [0.0] * len(hamiltonians))
    rungs, grown, pilots = list[Rung](), list[float](), Pilots.at_bottom(hamiltonians[0], generator)
    for rung, age, above in zip(
        map(as_rung, hamiltonians), ages, [*hamiltonians[1:], hamiltonian], strict=True
    ):
        added = list[Rung]()
        if above is hamiltonian or pilots.acceptance(above) < _LEAST:
            added, _, pilots = pilots.reach(above, ladder.acceptance, room, generator)
        rungs, grown, room = [*rungs, rung, *added], [*grown, *[age] * (1 + len(added))], room - len(added)
        if above is not hamiltonian:
            pilots = pilots.move_to(above, generator)
    return ladder.with_rungs(rungs, None if ladder.ages is None else grown)


def save_ladder(path: str | os.PathLike[str], ladder: Ladder, *, overwrite: bool = False) -> None:
    """Writes the rungs of a ladder, with their ages and its settings, as a safetensors file.

    Args:
        path: the file.
        ladder: one with rungs.
        overwrite: whether to replace a file that is there.

    Raises:
        ValueError: a ladder without rungs.
        FileExistsError: the file is there.
    """
    path = Path(path)
    if ladder.rungs is None:
        raise ValueError("ladder: expected one with rungs, which nothing but a machine makes, received none")
    check_free(path, overwrite)
    tensors = {str(i): torch.stack(same).cpu() for i, same in enumerate(zip(*ladder.rungs, strict=True))}
    names = ("sweeps", "acceptance", "max_rungs")
    settings = {name: getattr(ladder, name) for name in names}
    settings["ages"] = None if ladder.ages is None else list(ladder.ages)
    replace_file(path, pack(tensors, {"format": _FORM, "version": _VERSION, "settings": settings}))


def load_ladder(path: str | os.PathLike[str], machine: BoltzmannMachine) -> Ladder:
    """Reads the ladder of a machine, such as ``ladder.safetensors`` of a run; its kernel is Gibbs.

    Args:
        path: the file.
        machine: The machine at its top, or another of the same graph.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged file, or rungs of another graph than the machine's.
    """
    path, hamiltonian = Path(path), machine.hamiltonian()
    if not path.is_file():
        raise FileNotFoundError(f"path: {path} is not a file")
    try:
        tensors, header = unpack(path, _FORM, _VERSION)
        stacked = [tensors[str(i)] for i in range(len(tensors))]
        rungs = [[x.clone() for x in rung] for rung in zip(*stacked, strict=True)]
        ladder = Ladder(rungs, **header["settings"])
    except OtherVersion as error:
        raise ValueError(f"path: {path}: {error}") from error
    except Exception as error:  # whatever a damaged file leads to
        raise ValueError(f"path: {path} is damaged, or not a ladder of harmonium ({error})") from error
    try:
        require_bottom(hamiltonian, rungs)
    except ValueError as error:
        raise ValueError(f"path: {path} has the ladder of another machine, {error}") from error
    return ladder.with_rungs(
        [[x.to(hamiltonian.device, hamiltonian.dtype) for x in rung] for rung in rungs], ladder.ages
    )
