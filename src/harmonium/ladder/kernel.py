"""Chains on a ladder of machines, from independent units to the machine itself, that change places."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import require_alike
from harmonium.chains import Gibbs, Info, Kernel, KernelState, Tempering, check_chains
from harmonium.ladder.rungs import (
    Rung,
    as_rung,
    climb,
    climb_from,
    complete,
    draw_bottom,
    fields_of,
    law_of,
    laws_of,
    mix,
    require_bottom,
)
from harmonium.ladder.spacing import space_rungs
from harmonium.machine import BoltzmannMachine, Hamiltonian, States


class Traffic(NamedTuple):
    """Exchanges along a ladder since its chains began.

    Attributes:
        acceptance: of the exchanges of every pair of neighbours from the bottom, (rungs,); NaN before the
            first.
        ages: rounds since every state was born at rung 0, or since the start if it was there before,
            (rungs + 1, chains).
        renewed: the part of all states that were born since the start.
        round_trips: passages from the bottom to the top for each chain and round.
        expected: round trips for each chain and round, if successive exchanges of a state were independent:
            1 / (2 + 2 Σ (1 - a) / a) over the acceptances a (Syed et al. 2022). Far fewer are the sign of a
            barrier inside a rung, which sweeps there do not cross.
    """

    acceptance: Tensor
    ages: Tensor
    renewed: float
    round_trips: float
    expected: float


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
    at the top. Its ``own`` has the rest: the machines below, their states, and the counts of ``traffic``.
    A ladder is of the machine that it leads to. Below one that learns, the highest exchanges cease in time;
    ``rules.ptt`` adds rungs.

    Args:
        rungs: machines below the top from rung 0 on, at least one. None: ``init`` makes them along the
            couplings of its law. ``ladder.halve`` adds some where exchanges fail.
        kernel: moves the states of every rung but the first; Gibbs by default.
        sweeps: of the inner kernel in a round, at least 1.
        acceptance: of exchanges, which decides how many rungs are made, in (0, 1).
        max_rungs: most rungs, at least 1.
        max_bytes: most memory of all rungs, in bytes.
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
        max_bytes: int = 1 << 30,
        ages: Sequence[float] | None = None,
    ) -> None:
        self.rungs: tuple[Rung, ...] | None = None
        if rungs is not None:
            _checks.instance(rungs, "rungs", Sequence, "machines from rung 0 on")
            self.rungs = tuple(
                each if isinstance(each, list) else as_rung(each, f"rungs[{r}]")
                for r, each in enumerate(rungs)
            )
            require_bottom(None, self.rungs)
        self.kernel = Gibbs() if kernel is None else kernel
        _checks.instance(self.kernel, "kernel", Kernel, "a kernel")
        if isinstance(self.kernel, Ladder | Tempering):
            raise ValueError(f"kernel: expected one without replicas of its own, received {kernel!r}")
        self.sweeps = _checks.positive_int(sweeps, "sweeps")
        self.acceptance = _checks.real(acceptance, "acceptance", 0.01, 0.99)
        self.max_rungs = _checks.positive_int(max_rungs, "max_rungs")
        self.max_bytes = _checks.positive_int(max_bytes, "max_bytes")
        self.ages = None if ages is None else tuple(map(float, ages))
        if self.ages is not None and (
            len(self.ages) != len(self.rungs or ()) or list(self.ages) != sorted(self.ages)
        ):
            raise ValueError(
                f"ages: expected one for each of {len(self.rungs or ())} rungs, not falling, received "
                f"{reprlib.repr(ages)}"
            )

    def most(self, rung: Rung) -> int:
        """Returns the most rungs that ``max_rungs`` and ``max_bytes`` allow, of the size of a rung.

        Raises:
            ValueError: not even two.
        """
        each = sum(x.numel() * x.element_size() for x in rung)
        if 2 * each > self.max_bytes:
            raise ValueError(
                f"max_bytes: expected at least {2 * each}, of two machines of {each} bytes, received "
                f"{self.max_bytes}"
            )
        return min(self.max_rungs, self.max_bytes // each)

    @property
    def invariant(self) -> bool:
        return self.kernel.invariant

    def scaled(self, factor: float) -> Ladder:
        kernel = self.kernel.scaled(factor)
        return self if kernel is self.kernel else self._like(self.rungs, self.ages, kernel)

    def with_rungs(self, rungs: Sequence[Rung], ages: Sequence[float] | None = None) -> Ladder:
        """Returns a ladder with these settings and other rungs, from the bottom, of some ages."""
        return self._like(rungs, ages, self.kernel)

    def _like(self, rungs: Sequence[Rung] | None, ages: Sequence[float] | None, kernel: Kernel) -> Ladder:
        return Ladder(
            rungs,
            kernel=kernel,
            sweeps=self.sweeps,
            acceptance=self.acceptance,
            max_rungs=self.max_rungs,
            max_bytes=self.max_bytes,
            ages=ages,
        )

    def init(
        self,
        law: Hamiltonian,
        states: Sequence[Tensor],
        generator: torch.Generator,
        planned: int | None = None,
    ) -> KernelState:
        """Returns chains that have taken no sweep yet, as ``Kernel.init`` does.

        The given states are those of the top. Below it they are drawn from rung 0 and moved up rung by rung.

        Args:
            law: the machine in natural parameters, with what is held.
            states: for each layer (chains, width_l).
            generator: source of noise.
            planned: rounds of the run, or None.

        Raises:
            ValueError: more than ``max_rungs`` would be needed.
        """
        chains = len(states[0])
        if self.rungs is None:
            free = law if law.held is None else law.clamp(None, chains)
            most = self.most(as_rung(free))
            rungs = space_rungs(free, generator, self.acceptance, most)
        else:
            require_bottom(law, self.rungs)
            rungs = [[x.to(law.device, law.dtype) for x in rung] for rung in self.rungs]
        below = climb([law_of(law, rung) for rung in rungs], chains, generator)
        return self.begin(law, states, rungs, below, generator, planned)

    def begin(
        self,
        law: Hamiltonian,
        states: Sequence[Tensor],
        rungs: Sequence[Sequence[Tensor]],
        below: Sequence[States],
        generator: torch.Generator,
        planned: int | None = None,
    ) -> KernelState:
        """Returns chains whose states at all rungs are given; they count as not born at rung 0.

        Args:
            law: the machine in natural parameters, with what is held.
            states: at the top, for each layer (chains, width_l).
            rungs: the natural parameters of every machine below it, as in ``state.own["rungs"]``.
            below: the states at every rung below the top, for each layer (chains, width_l).
            generator: source of noise.
            planned: rounds of the run, or None.
        """
        chains, number = len(states[0]), len(rungs)
        every = laws_of(law, rungs[1:])
        moved = [*below[1:], list(states)]
        inner = [
            self.kernel.init(each, x, generator, planned).own for each, x in zip(every, moved, strict=True)
        ]
        places = torch.zeros(number + 1, chains, dtype=torch.int64, device=law.device)
        own = {
            "rungs": [list(rung) for rung in rungs],
            "states": [list(each) for each in below],
            "births": places,
            "from_bottom": places.clone(),
            "climbs": places[0, 0].clone(),
            "accepted": torch.zeros(number, dtype=torch.float64, device=law.device),
            "kernel": inner,
        }
        return KernelState(list(states), 0, own)

    def step(
        self, law: Hamiltonian, state: KernelState, generator: torch.Generator
    ) -> tuple[KernelState, Info]:
        own, chains = state.own, len(state.states[0])
        laws: list[Hamiltonian] = state.known or [law_of(law, rung) for rung in own["rungs"]]
        every, number = [*laws, law], len(laws)
        births, from_bottom = own["births"].clone(), own["from_bottom"].clone()
        places = [draw_bottom(laws[0], chains, generator)]
        fields = [fields_of(laws[0], places[0])]
        births[0], from_bottom[0] = state.sweeps + 1, 1
        inner = []
        for r in range(1, number + 1):
            x = own["states"][r] if r < number else state.states
            moved = KernelState(x, state.sweeps * self.sweeps, own["kernel"][r - 1])
            for _ in range(self.sweeps):
                moved, _ = self.kernel.step(every[r], moved, generator)
            places.append(list(moved.states))
            fields.append(fields_of(every[r], moved.states, moved.fields))
            inner.append(moved.own)
        accepted = own["accepted"].clone()
        pairs = range(state.sweeps % 2, number, 2)
        for a in pairs:
            swap = self._exchange(every[a : a + 2], places, fields, a, generator)
            accepted[a] += swap.mean(dtype=torch.float64)
            for each in (births, from_bottom):
                each[a], each[a + 1] = torch.where(swap > 0, each[a : a + 2].flip(0), each[a : a + 2])
        climbs = own["climbs"] + from_bottom[number].sum()
        from_bottom[number] = 0
        after = {
            "rungs": own["rungs"],
            "states": places[:number],
            "births": births,
            "from_bottom": from_bottom,
            "climbs": climbs,
            "accepted": accepted,
            "kernel": inner,
        }
        rate = (accepted - own["accepted"]).sum() / max(len(pairs), 1)
        info = {"exchange_rate": rate, "renewed": (births > 0).double().mean()}
        return KernelState(places[number], state.sweeps + 1, after, fields[number], laws), info

    def _exchange(
        self,
        pair: Sequence[Hamiltonian],
        places: list[States],
        fields: list[dict[int, Tensor]],
        a: int,
        generator: torch.Generator,
    ) -> Tensor:
        """Exchanges states of rungs a and a + 1 in place; returns 1 for every chain that did, (chains,)."""
        summed = pair[0].graph.summed
        across = [fields_of(pair[i], places[a + 1 - i]) for i in (0, 1)]  # the other's states under this law
        gain = torch.zeros((), dtype=torch.float64, device=pair[0].device)
        for i in (0, 1):
            gain = gain + pair[i].free_energy(places[a + i], summed, fields[a + i])
            gain = gain - pair[i].free_energy(places[a + 1 - i], summed, across[i])
        swap = _random.accept(gain, generator)
        chosen = swap.unsqueeze(-1)
        before = [places[a], places[a + 1]]
        for i in (0, 1):
            kept = [torch.where(chosen, y, x) for x, y in zip(before[i], before[1 - i], strict=True)]
            fields[a + i] = {l: torch.where(chosen, across[i][l], fields[a + i][l]) for l in summed}
            places[a + i] = complete(pair[i], kept, fields[a + i], generator)
        return swap.to(pair[0].dtype)

    def check(self, law: Hamiltonian, state: KernelState) -> None:
        check_chains(law, state.states)
        _checks.positive_int(state.sweeps, "state['sweeps']", minimum=0)
        name, own = "state['own']", state.own
        rungs = own.get("rungs") if isinstance(own, dict) else None
        if not isinstance(rungs, list) or not rungs:
            raise ValueError(f"{name}: expected what a Ladder keeps, a dict with 'rungs', received another")
        for r, rung in enumerate(rungs):
            require_alike(rung, as_rung(law), f"{name}['rungs'][{r}]")
        require_bottom(law, rungs)
        generator = _random.as_generator(0, law.device)
        fresh = self.begin(law, state.states, rungs, [list(state.states)] * len(rungs), generator, 1)
        require_alike(own, fresh.own, name)
        for r, x in enumerate(own["states"]):
            check_chains(law_of(law, rungs[r]), x)

    def __repr__(self) -> str:
        rungs = None if self.rungs is None else f"<{len(self.rungs)} machines>"
        return (
            f"Ladder({rungs}, kernel={self.kernel!r}, sweeps={self.sweeps}, acceptance={self.acceptance:g}, "
            f"max_rungs={self.max_rungs})"
        )


def traffic(state: KernelState) -> Traffic:
    """Returns the exchanges along a ladder, the ages of its states, and its round trips.

    Args:
        state: of a ``Ladder``.

    Returns:
        Acceptances (rungs,), ages (rungs + 1, chains), and numbers; see ``Traffic``.

    Raises:
        ValueError: a state of another kernel.
    """
    if not isinstance(state.own, dict) or "births" not in state.own:
        raise ValueError("state: expected that of a Ladder, received another kernel's")
    accepted, births = state.own["accepted"], state.own["births"]
    offers = torch.tensor([(state.sweeps + 1 - a % 2) // 2 for a in range(len(accepted))])
    acceptance = accepted.cpu() / offers
    chains = births.shape[1]
    return Traffic(
        acceptance,
        state.sweeps - births,
        float((births > 0).double().mean()),
        int(state.own["climbs"]) / (chains * max(state.sweeps, 1)),
        1 / (2 + 2 * float(((1 - acceptance) / acceptance).sum())) if bool((acceptance > 0).all()) else 0.0,
    )


@torch.no_grad()
def halve(
    machine: BoltzmannMachine,
    state: KernelState,
    least: float = 0.15,
    *,
    kernel: Ladder | None = None,
    max_rungs: int = 200,
    seed: int | torch.Generator = 0,
) -> KernelState:
    """Puts the mean of two neighbours, in natural parameters, where their exchanges succeed too rarely.

    States of the new rungs are those of the rung below after some sweeps; counts begin anew. Where the
    acceptance is far below ``least`` one call does not do: run some rounds and call again.

    Args:
        machine: at the top.
        state: of a ``Ladder`` after at least 2 rounds, for each layer (chains, width_l).
        least: acceptance below which a gap is halved, in (0, 1).
        kernel: the ladder that goes on; None: ``Ladder()``.
        max_rungs: most rungs below the machine.
        seed: an int or a generator.

    Returns:
        Chains at the old and the new rungs, for each layer (chains, width_l).

    Raises:
        ValueError: more than ``max_rungs``, or exchanges that have not been offered yet.
    """
    least = _checks.real(least, "least", 0.0, 1.0)
    law, generator = machine.hamiltonian(), _random.as_generator(seed, machine.device)
    kernel = Ladder() if kernel is None else kernel
    kernel.check(law, state)
    seen = traffic(state).acceptance
    if state.sweeps < 2:
        raise ValueError(f"state: expected one after at least 2 rounds, received {state.sweeps}")
    old, rungs, below = state.own["rungs"], list[Rung](), list[States]()
    for r, (rung, x) in enumerate(zip(old, state.own["states"], strict=True)):
        rungs.append(rung)
        below.append(x)
        if float(seen[r]) < least:
            rungs.append(mix(rung, old[r + 1] if r + 1 < len(old) else as_rung(law), 0.5))
            below.append(climb_from(law_of(law, rungs[-1]), x, generator))
    if len(rungs) > max_rungs:
        raise ValueError(f"max_rungs: halving makes {len(rungs)} rungs of {len(old)}, more than {max_rungs}")
    return kernel.begin(law, state.states, rungs, below, generator)
