"""Sweeps of pairs ahead of the host: on a GPU it is read every few sweeps who has met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final, overload
from weakref import ref

import torch
from torch import Tensor

from harmonium import _device
from harmonium._states import record
from harmonium.backends import choice
from harmonium.chains import replay_under
from harmonium.coupled.kernels import (
    ChainState,
    CoupledSweep,
    PairKernel,
    differ,
    join_states,
    mark_differences,
)
from harmonium.machine import Hamiltonian, States

if TYPE_CHECKING:
    from harmonium.coupled.meeting import SignedAccumulator

SWEEPS = 8
"""Sweeps between two looks. A pair that has met takes four more on average, and a look stalls a GPU for about
as long as a recorded sweep takes. Other numbers were not tried on a GPU."""
_FEWER = 4  # A recording has all pairs, a fourth of them, ...: each costs memory for all its sweeps,
_LEAST = 64  # and so few take a GPU as long as one pair does.


@final
@dataclass
class Tally:
    """Holds the counts of every pair, (pairs,), and of all; see ``Meetings``.

    Attributes:
        flipped: units of ``graph.kept`` that sweeps of first chains changed, of so many as were ``seen``.
    """

    times: Tensor
    tries: Tensor
    cost: Tensor
    capped: Tensor
    flipped: int | Tensor = 0
    seen: int = 0

    @classmethod
    def of(cls, pairs: int, device: torch.device) -> Tally:
        """Returns the tally of pairs that have not set out."""
        zeros = torch.zeros(pairs, dtype=torch.int64, device=device)
        return cls(zeros, zeros.clone(), zeros.clone(), zeros.bool())

    def add_flips(self, before: ChainState, after: ChainState, layers: tuple[int, ...]) -> None:
        """Adds what a sweep changed in first chains, for each layer (rows, width_l)."""
        for l in layers:
            self.flipped = mark_differences(before.states[l], after.states[l]).sum() + self.flipped
            self.seen += after.states[l].numel()


class Layers(NamedTuple):
    """Layers of pairs.

    Attributes:
        chain: those on which the next sweep depends: pairs have met where they are equal.
        read: those that statistics read.
        drawn_anew: those that the next sweep draws before it reads them.
        kept: ``graph.kept``.
    """

    chain: tuple[int, ...]
    read: tuple[int, ...]
    drawn_anew: tuple[int, ...]
    kept: tuple[int, ...]

    def mark_apart(self, both: ChainState) -> tuple[Tensor, Tensor]:
        """Marks the pairs that have not met, and those that differ in a layer read, (pairs,)."""
        apart = _mark_apart(both, self.chain)
        return apart, apart if self.read == self.chain else apart | _mark_apart(both, self.read)


class Horizon(NamedTuple):
    """The weights of sweeps in H_{k:m}, times that of the estimate; see ``run_pairs``."""

    k: int
    m: int
    lag: int
    weight: float

    def average(self, t: int) -> float:
        """Returns the weight of f(X_t)."""
        return self.weight / (self.m - self.k + 1) if self.k <= t <= self.m else 0.0

    def correction(self, t: int) -> float:
        """Returns the weight of f(X_t) - f(Y_{t-lag}), by the number of averaged terms that it corrects."""
        k, m, lag = self.k, self.m, self.lag
        if t < k + lag:
            return 0.0
        return self.weight * (((t - k) // lag - -(-max(lag, t - m) // lag) + 1) / (m - k + 1))


@record
class _Seen(NamedTuple):
    """Some sweeps of the same pairs, on the device.

    Attributes:
        places: where the chains are before the first and after every sweep.
        sweeps: the sweeps themselves.
        read: by sweep, 1 for one that is not done; changed units of the first chains of pairs that were
            apart; proposals of such pairs; 1 for pairs apart after it; and for those that differ in a layer
            read: (sweeps, 2 + 3 · pairs).
    """

    places: list[ChainState]
    sweeps: list[CoupledSweep]
    read: Tensor


@final
class RunAhead:
    """Moves pairs, both of whose chains have set out, until all have met and passed the horizon.

    Where the device records, the sweeps between two looks are one recording, of one of a few numbers of
    pairs, so that the runs of a training find their recordings again. A pair that has met goes on until the
    next look, as two equal chains, whose difference is 0. Elsewhere a sweep takes the host longer than a
    look, and there is one after every sweep.

    Args:
        hamiltonian: the machine, with what is held.
        kernel: what moves the pairs.
        layers: what is looked at.
        generator: source of noise.
        max_sweeps: the sweep at which pairs are given up, or None.
        horizon: which sweeps have which weights.
    """

    def __init__(
        self,
        hamiltonian: Hamiltonian,
        kernel: PairKernel,
        layers: Layers,
        generator: torch.Generator,
        max_sweeps: int | None,
        horizon: Horizon,
    ) -> None:
        self._horizon = horizon
        self._hamiltonian, self._kernel, self._layers = hamiltonian, kernel, layers
        self._generator, self._max_sweeps = generator, max_sweeps
        self._records = (
            choice.records(hamiltonian.device)
            and kernel.is_steady
            and hamiltonian.held is None
            and isinstance(hamiltonian.beta, float)
            and all(p.dim() == 1 for theta in hamiltonian.thetas for p in theta)
        )

    @property
    def least(self) -> int:
        """Returns the sweeps from which on pairs are moved: the lag where sweeps are recorded, else m too."""
        return self._horizon.lag if self._records else max(self._horizon.m, self._horizon.lag)

    def finish(
        self,
        both: ChainState,
        pairs: Tensor,
        met: int,
        t: int,
        tally: Tally,
        accumulator: SignedAccumulator,
        at_horizon: States,
    ) -> None:
        """Moves pairs that have taken t sweeps to their end.

        Args:
            both: where they are, 2 · pairs rows.
            pairs: their numbers, (pairs,); those that have met come last.
            met: how many have.
            t: at least ``least``.
            tally: what is counted, grown in place.
            accumulator: takes averages and differences.
            at_horizon: takes the states of the first chains after m sweeps, for each layer (pairs, width_l).
        """
        device, m, layers = pairs.device, self._horizon.m, self._layers
        # The host counts: what it reads at a look is all that it needs for it.
        pair = torch.arange(len(pairs), device="cpu")
        live = pair < len(pairs) - met
        times, capped, cost, tries = torch.zeros(4, len(pairs), dtype=torch.int64, device="cpu")
        hamiltonian, width = self._select(pairs), sum(both.states[l].shape[1] for l in layers.kept)
        while bool(live.any()) or t < m:
            if not bool(live.any()):  # nothing is asked until the horizon
                first = both.select_rows(slice(0, len(pair)))
                places = self._replay(self._hamiltonian.select_rows(pairs), first)
                cost += min(SWEEPS, m - t)
                self._add_averages(accumulator, places, pairs, t, at_horizon)
                t, both = t + SWEEPS, places[-1]
                continue
            chosen = None
            if t >= m:
                chosen, live = self._choose(live, len(tally.times))
            if chosen is not None:
                at, pair = _device.to_device(chosen, device), pair[chosen]
                both = both.select_rows(torch.cat((at, at + len(both.states[0]) // 2)))
                hamiltonian = self._select(pairs[_device.to_device(pair, device)])
            most = SWEEPS if self._records else 1
            most = most if self._max_sweeps is None else min(most, self._max_sweeps - t)
            seen, read = self._look(hamiltonian, both, _device.to_device(live, device), most)
            number, places, rows = len(read), seen.places[1 : len(read) + 1], len(pair)
            tried, all_apart, different = read[:, 2:].chunk(3, 1)
            all_apart, different = all_apart.bool(), different.bool()
            apart_before = torch.cat((live.unsqueeze(0), live & all_apart[:-1]))
            alone = ~apart_before & (torch.arange(t, t + number, device="cpu") < m).unsqueeze(1)
            tries.index_add_(0, pair, tried.sum(0))
            cost.index_add_(0, pair, 2 * apart_before.sum(0) + alone.sum(0))
            tally.flipped = int(read[:, 1].sum()) + tally.flipped
            tally.seen += int(apart_before.sum()) * width
            if t < m:
                ahead = [place.select_rows(slice(0, rows)) for place in places]
                self._add_averages(accumulator, ahead, pairs, t, at_horizon)
            weights = [self._horizon.correction(t + s + 1) for s in range(number)]
            self._add(accumulator, places, pairs, pair, live & different, weights)
            after = live & all_apart[-1]
            given_up = after & (t + number == self._max_sweeps)
            ends = live & (given_up | ~all_apart[-1])
            when = t + torch.where(given_up, number, 1 + all_apart.sum(0))
            times[pair[ends]], capped[pair[given_up]] = when[ends], 1
            t, live, both = t + number, after & ~given_up, places[-1]
        # Of pairs that had met before, the times stand.
        apart, counts = len(pairs) - met, _device.to_device(torch.stack((times, capped, cost, tries)), device)
        tally.times.index_copy_(0, pairs[:apart], counts[0, :apart])
        tally.capped.index_copy_(0, pairs[:apart], counts[1, :apart].bool())
        tally.cost.index_add_(0, pairs, counts[2])
        tally.tries.index_add_(0, pairs, counts[3])

    def _select(self, pairs: Tensor) -> Hamiltonian:
        """Returns the distribution of both chains of some pairs."""
        return self._hamiltonian.select_rows(torch.cat((pairs, pairs)))

    def _look(
        self, hamiltonian: Hamiltonian, both: ChainState, live: Tensor, most: int
    ) -> tuple[_Seen, Tensor]:
        """Makes sweeps, at most so many, and reads what became of them: all but the last are done at once."""
        both = both.without(self._layers.drawn_anew)
        if self._records and most == SWEEPS:
            seen = self._replay(hamiltonian, both, live)
        else:
            seen = _sweep(hamiltonian, both, live, most, self._kernel, self._layers, self._generator)
        read = seen.read.cpu()  # the one wait
        late = read[:, 0].nonzero()
        if not len(late):
            return seen, read
        s = int(late[0])  # this sweep goes on to its end, and what was made from there is made anew
        rows, before = len(both.states[0]) // 2, seen.places[s]
        apart = live if s == 0 else seen.read[s - 1, rows + 2 : 2 * rows + 2].bool()
        sweep = self._kernel.finish(hamiltonian, before, seen.sweeps[s], self._generator)
        last = _close([_join(hamiltonian, before, sweep, apart, self._kernel, self._layers)], before, apart)
        merged = _Seen(
            [*seen.places[: s + 1], *last.places[1:]],
            [*seen.sweeps[:s], *last.sweeps],
            torch.cat((seen.read[:s], last.read)),
        )
        return merged, torch.cat((read[:s], last.read.cpu()))

    @overload
    def _replay(self, hamiltonian: Hamiltonian, chains: ChainState) -> list[ChainState]: ...
    @overload
    def _replay(self, hamiltonian: Hamiltonian, chains: ChainState, live: Tensor) -> _Seen: ...
    def _replay(self, hamiltonian: Hamiltonian, chains: ChainState, live: Tensor | None = None) -> Any:
        """Makes sweeps of pairs, or of chains alone, by a recording that earlier runs may have made."""
        chains = chains.without(self._layers.drawn_anew)
        # A recording that held the kernel would keep it, and so itself, alive.
        kernel, layers, generator = ref(self._kernel), self._layers, self._generator

        def step(at: Hamiltonian, given: Any) -> Any:
            chains, *live = given
            moved_by = kernel()
            assert moved_by is not None
            if live:
                return _sweep(at, chains, live[0], SWEEPS, moved_by, layers, generator)
            return _sweep_alone(at, chains, moved_by, generator)

        given = (chains, *(() if live is None else (live,)))
        return replay_under(hamiltonian, self._kernel, (layers, live is None), step, given, [generator])

    def _add_averages(
        self,
        accumulator: SignedAccumulator,
        places: Sequence[ChainState],
        pairs: Tensor,
        t: int,
        at_horizon: States,
    ) -> None:
        """Adds averages of first chains after the sweeps that follow t, and takes their states at m."""
        averaged = [s for s in range(len(places)) if self._horizon.average(t + s + 1)]
        if averaged:
            first = self._join([places[s] for s in averaged])
            accumulator.add(first, pairs.repeat(len(averaged)), self._horizon.average(self._horizon.m))
        if self._horizon.m <= t + len(places):
            for l, x in enumerate(places[self._horizon.m - t - 1].states):
                at_horizon[l] = at_horizon[l].index_copy(0, pairs, x)

    def _add(
        self,
        accumulator: SignedAccumulator,
        places: list[ChainState],
        apart: Tensor,
        pair: Tensor,
        differ: Tensor,
        weights: list[float],
    ) -> None:
        """Adds the differences of pairs after some sweeps, (sweeps, pairs), those of one weight together.

        ``pair`` has the places of the pairs among those ``apart``, (pairs,) on the host.
        """
        rows = len(pair)
        for weight in sorted(set(weights) - {0.0}):
            some = [s for s, other in enumerate(weights) if other == weight]
            s, column = differ[some].nonzero().unbind(-1)
            if len(s):
                x = 2 * rows * s + column
                sent = _device.to_device(torch.cat((x, x + rows, pair[column])), apart.device)
                moved = self._join([places[s] for s in some]).select_rows(sent[: 2 * len(s)])
                accumulator.add_difference(moved, apart[sent[2 * len(s) :]], weight)

    def _join(self, places: Sequence[ChainState]) -> ChainState:
        """Returns the rows of several places, in new tensors, without layers that are not read."""
        return join_states(*(place.without(self._layers.drawn_anew) for place in places))

    def _choose(self, live: Tensor, pairs: int) -> tuple[Tensor | None, Tensor]:
        """Returns which pairs go on, None for all, and which of these are live.

        Those alone go on where nothing is recorded. Where it is, they are filled up with pairs that have met
        or are there twice.
        """
        number = int(live.sum())
        size = pairs if self._records else number
        while self._records and size // _FEWER >= max(number, _LEAST):
            size //= _FEWER
        if size == len(live):
            return None, live
        order = (~live).byte().argsort(stable=True)[:size]
        order = torch.cat((order, order[:1].expand(size - len(order))))
        return order, torch.arange(size, device="cpu") < number


class _Joined(NamedTuple):
    """A sweep, and what is read of it.

    Attributes:
        place: where the chains are after it, with the fields for the next one.
        sweep: the sweep.
        apart: true for pairs that have not met, (pairs,).
        different: true for pairs that differ in a layer read, (pairs,).
        changed: units of the first chains that changed, (pairs,).
    """

    place: ChainState
    sweep: CoupledSweep
    apart: Tensor
    different: Tensor
    changed: Tensor


_NOWHERE = ChainState([], {})


def _sweep(
    hamiltonian: Hamiltonian,
    both: ChainState,
    live: Tensor,
    number: int,
    kernel: PairKernel,
    layers: Layers,
    generator: torch.Generator,
) -> _Seen:
    """Makes sweeps without a look; ``live`` marks the pairs that are apart, (pairs,)."""
    made: list[_Joined] = []
    place, apart = both, live
    for _ in range(number):
        made.append(
            _join(hamiltonian, place, kernel.begin(hamiltonian, place, generator), apart, kernel, layers)
        )
        place, apart = made[-1].place, made[-1].apart
    return _close(made, both, live)


def _sweep_alone(
    hamiltonian: Hamiltonian, chains: ChainState, kernel: PairKernel, generator: torch.Generator
) -> list[ChainState]:
    """Makes sweeps of chains alone, and returns where they are after every one."""
    places = list[ChainState]()
    for _ in range(SWEEPS):
        chains = kernel.prepare(hamiltonian, kernel.single(hamiltonian, chains, generator), copies=1)
        places.append(chains)
    return places


def _join(
    hamiltonian: Hamiltonian,
    before: ChainState,
    sweep: CoupledSweep,
    apart: Tensor,
    kernel: PairKernel,
    layers: Layers,
) -> _Joined:
    """Returns a sweep with what is to be read of it; ``apart`` marks pairs that had not met before."""
    state, rows = sweep.state, len(apart)
    changed = [(before.states[l][:rows] != state.states[l][:rows]).sum(-1) for l in layers.kept]
    # Equal chains may get fields that differ by rounding, which would part a pair that has met.
    for l, x in enumerate(state.states):
        if l not in layers.drawn_anew:
            _repeat_first(x, apart)
    apart, different = layers.mark_apart(state)
    both = kernel.prepare(hamiltonian, state, 2)
    for x in both.fields.values():
        _repeat_first(x, apart)
    return _Joined(both, sweep._replace(state=_NOWHERE), apart, different, sum(changed[1:], changed[0]))


def _close(made: Sequence[_Joined], before: ChainState, apart: Tensor) -> _Seen:
    """Puts sweeps together, the first of which began with the pairs ``apart``, (pairs,), at ``before``."""
    sweeps = [one.sweep for one in made]
    marks = torch.stack([apart, *(one.apart for one in made)])
    waits = [wait for sweep in sweeps for wait in sweep.waits.values()]
    late = torch.stack(waits).view(len(made), -1).any(1) if waits else marks.new_zeros(len(made))
    differ = marks[1:] if made[0].different is made[0].apart else torch.stack([one.different for one in made])
    tries = torch.stack([sweep.tries for sweep in sweeps]) * marks[:-1]
    changed = (torch.stack([one.changed for one in made]) * marks[:-1]).sum(1)
    return _Seen(
        [before, *(one.place for one in made)],
        sweeps,
        torch.cat((late.unsqueeze(-1), changed.unsqueeze(-1), tries, marks[1:], differ), -1),
    )


def _repeat_first(x: Tensor, apart: Tensor) -> None:
    """Sets the second chains of pairs, (2 · pairs, ...), to the first but where these are apart, in place."""
    first, second = x.chunk(2)
    torch.where(apart.unsqueeze(-1), second, first, out=second)


def _mark_apart(both: ChainState, layers: tuple[int, ...]) -> Tensor:
    marks = [differ(*both.states[l].chunk(2)) for l in layers]
    return marks[0] if len(marks) == 1 else torch.stack(marks).any(0)
