"""Pairs of chains that run until they meet, and the signed statistics on their way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, final
from weakref import ref

import torch
from torch import Tensor

from harmonium import _checks, _device, _html, _random
from harmonium._checks import Numbers
from harmonium.backends import replays, runs
from harmonium.chains import initial_states, replay_under
from harmonium.coupled.kernels import (
    ChainState,
    CoupledSweep,
    Gibbs,
    PairKernel,
    differ,
    join_states,
    mark_differences,
)
from harmonium.distributed import Distributed, as_group
from harmonium.machine import (
    BoltzmannMachine,
    ClampLike,
    Hamiltonian,
    States,
    Statistics,
    require_distribution,
)

# Statistics are added in lots of 512 rows: one product for many small lots takes a quarter off UCD with 100
# pairs (docs/decisions/0006).
_ROWS = 512

SWEEPS = 8
"""Sweeps between two looks. A pair that has met takes four more on average, and a look stalls a GPU for about
as long as a recorded sweep takes. Other numbers were not tried on a GPU."""
_FEWER = 4  # A recording has all pairs, a fourth of them, ...: each costs memory for all its sweeps,
_LEAST = 64  # and so few take a GPU as long as one pair does.


@final
@dataclass(frozen=True)
class Meetings:
    """The meetings of pairs of chains (X_t, Y_{t-lag}), and their cost.

    Attributes:
        times: (pairs,), the meeting time τ, the first t ≥ lag with X_t = Y_{t-lag}; for capped pairs the cap.
        capped: (pairs,), true where the pair was given up before it met.
        tries: (pairs,), proposals of rejection sampling in all sweeps.
        cost: (pairs,), sweeps of a single chain that the pair took, a coupled sweep counted twice.
        flip_rate: the fraction of even-layer units that changed in a sweep of the first chain: beside
            meeting times near the lag it distinguishes mixing chains from frozen ones.
        lag: the lag.
        states: for each layer (pairs, width_l), X at the horizon (at the lag in ``meet``): where to go on
            from.
    """

    times: Tensor
    capped: Tensor
    tries: Tensor
    cost: Tensor
    flip_rate: float
    lag: int
    states: States

    def _repr_html_(self) -> str:
        met = self.times[~self.capped]
        rows: list[tuple[str, object]] = [
            ("met", f"{len(met):,} of {len(self.times):,} pairs"),
            (
                "meeting time",
                f"{met.double().mean():.1f} on average, at most {int(met.max())}" if len(met) else "none",
            ),
            ("units changed by a sweep", f"{self.flip_rate:.1%}"),
            ("sweeps", f"{int(self.cost.sum()):,}"),
        ]
        return _html.table(f"Pairs with a lag of {self.lag}", rows)


def join_meetings(parts: Sequence[Meetings]) -> Meetings:
    """Joins the pairs of several meetings with the same lag."""
    if len(parts) == 1:
        return parts[0]
    sweeps = [int(part.times.sum()) for part in parts]  # each counts the units of one first chain once
    changed = sum(part.flip_rate * number for part, number in zip(parts, sweeps, strict=True))
    return Meetings(
        times=torch.cat([part.times for part in parts]),
        capped=torch.cat([part.capped for part in parts]),
        tries=torch.cat([part.tries for part in parts]),
        cost=torch.cat([part.cost for part in parts]),
        flip_rate=changed / max(sum(sweeps), 1),
        lag=parts[0].lag,
        states=[torch.cat(x) for x in zip(*(part.states for part in parts), strict=True)],
    )


@torch.no_grad()
def meet(
    machine: BoltzmannMachine,
    pair_kernel: PairKernel,
    start: Numbers | Sequence[Numbers],
    lag: int = 1,
    max_sweeps: int | None = None,
    *,
    clamp: ClampLike = None,
    seed: int | torch.Generator,
    distributed: Distributed = None,
) -> Meetings:
    """Runs pairs of chains from a common start until they meet (Jacob et al. 2020; Biswas et al. 2019).

    Args:
        machine: the machine.
        pair_kernel: ``coupled.Gibbs`` or ``coupled.Metropolis``.
        start: visible states (pairs, visible_width), from which hidden layers are drawn, or one tensor for
            each layer.
        lag: how far X runs ahead of Y, at least 1.
        max_sweeps: give up after so many sweeps of X; None never gives up. Capped pairs are marked.
        clamp: entries to hold, see ``chains.run``.
        seed: source of all noise: an int, or a generator to advance.
        distributed: processes that share the pairs, as in ``chains.run``; all get the result.

    Raises:
        TypeError: another kind of coupling, no seed, or states that are not real numbers.
        ValueError: shapes, support or numbers out of range.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
        >>> start = machine.random_states(50, seed=0)
        >>> met = hm.coupled.meet(machine, hm.coupled.Gibbs(), start, seed=1)
        >>> met.times.shape, bool((met.times >= met.lag).all())
        (torch.Size([50]), True)
    """
    _checks.instance(pair_kernel, "pair_kernel", PairKernel, "a pair kernel such as coupled.Gibbs()")
    generator = _random.as_generator(seed, machine.device)
    lag = _checks.positive_int(lag, "lag")
    max_sweeps = None if max_sweeps is None else _checks.positive_int(max_sweeps, "max_sweeps", minimum=lag)
    hamiltonian = machine.hamiltonian()
    require_distribution(hamiltonian)
    begun = initial_states(machine, hamiltonian, start, generator)
    hamiltonian = hamiltonian.clamp(clamp, len(begun[0]))

    group = as_group(distributed)
    rows, generator = group.rows(len(begun[0]), "start"), group.own_noise(generator)
    if group.size > 1:
        hamiltonian, begun = hamiltonian.select_rows(rows), [x[rows] for x in begun]
    met = run_pairs(
        hamiltonian, pair_kernel, begun, k=lag, m=lag, lag=lag, max_sweeps=max_sweeps, generator=generator
    )
    return join_meetings(group.all_gather(met))


def run_pairs(
    hamiltonian: Hamiltonian,
    pair_kernel: PairKernel,
    start: States,
    *,
    k: int,
    m: int,
    lag: int,
    max_sweeps: int | None,
    generator: torch.Generator,
    into: Statistics | None = None,
    weight: float = 1.0,
    row_weights: Tensor | None = None,
    fields: Mapping[int, Tensor] = MappingProxyType({}),
) -> Meetings:
    """Runs ``meet`` and adds weight · H_{k:m} of every pair to ``into`` (FORMULAS §3).

    H_{k:m} = 1/(m-k+1) Σ_{t=k}^m f(X_t) + Σ_{t=k+lag}^{τ-1} w_t (f(X_t) - f(Y_{t-lag})) with f = E[S |
    the layers outside ``graph.summed``], has expectation E[S] if no pair is capped. Nothing but the current
    states of the pairs still needed is kept.

    ``start`` has for each layer (pairs, width_l), ``row_weights`` is (pairs,). ``fields`` has the fields of
    some layers at the start, (pairs, width_l), where they are known.

    Raises:
        ValueError: m below k, or a cap below m or the lag.
    """
    _checks.positive_int(m, "m", minimum=_checks.positive_int(k, "k", minimum=0))
    if max_sweeps is not None:
        _checks.positive_int(max_sweeps, "max_sweeps", minimum=max(m, lag))
    hidden_by_noise = pair_kernel.ends_by_noise if isinstance(pair_kernel, Gibbs) else None
    plain = row_weights is None and (into is None or into.readings is None)
    if plain and hidden_by_noise is not None:
        ran = runs.run(
            "pairs", hamiltonian, start, generator, k=k, m=m, lag=lag, max_sweeps=max_sweeps,
            into=into, weight=weight, hidden_by_noise=hidden_by_noise,
        )  # fmt: skip
        if ran is not None:
            return Meetings(**ran, lag=lag)
    sums = SignedAccumulator(hamiltonian, into, row_weights)
    chain = pair_kernel.chain_layers(hamiltonian)
    # Which layers f reads: with several readings also some that do not decide a meeting.
    read = chain if into is None or into.readings is None else tuple(range(len(start)))
    drawn_anew = tuple(l for l in sums.unread if l not in chain)
    layers = Layers(chain, read, drawn_anew)
    loop = MeetingLoop(
        hamiltonian, pair_kernel, layers, Horizon(k, m, lag, weight), sums, generator, max_sweeps,
        sweeps_ahead=SWEEPS if pair_kernel.is_steady and replays(hamiltonian) else None,
    )  # fmt: skip
    return loop.run(ChainState(hamiltonian.clamp_states(start), dict(fields)))


class Layers(NamedTuple):
    """Layers of pairs.

    Attributes:
        chain: those on which the next sweep depends: pairs have met where they are equal.
        read: those that statistics read.
        drawn_anew: those that the next sweep draws before it reads them.
    """

    chain: tuple[int, ...]
    read: tuple[int, ...]
    drawn_anew: tuple[int, ...]

    def mark_apart(self, both: ChainState) -> tuple[Tensor, Tensor]:
        """Marks the pairs that have not met, and those that differ in a layer read, (pairs,)."""

        def mark(layers: tuple[int, ...]) -> Tensor:
            marks = [differ(*both.states[l].chunk(2)) for l in layers]
            return marks[0] if len(marks) == 1 else torch.stack(marks).any(0)

        apart = mark(self.chain)
        return apart, apart if self.read == self.chain else apart | mark(self.read)


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
        # t = l + j lag of every averaged l in k..m, with j from ⌈max(lag, t - m) / lag⌉ to ⌊(t - k) / lag⌋.
        if t < k + lag:
            return 0.0
        return self.weight * (((t - k) // lag - -(-max(lag, t - m) // lag) + 1) / (m - k + 1))


@final
@dataclass
class MeetingLoop:
    """Moves pairs of chains until all have met, or are given up, and have passed the horizon m.

    A pair has three stages: X alone for ``lag`` sweeps, both chains until X_t = Y_{t-lag}, and X alone again
    up to m, since a pair that has met stays together. H_{k:m} (FORMULAS §3; Jacob, O'Leary & Atchadé 2020) is
    the mean of f(X_t) over k..m, added as states come, and the weighted differences f(X_t) - f(Y_{t-lag}),
    which are 0 from the meeting on.

    Args:
        hamiltonian: the machine, with what is held.
        kernel: what moves the pairs.
        layers: what is looked at.
        horizon: which sweeps have which weights.
        sums: takes averages and differences.
        generator: source of noise.
        max_sweeps: the sweep at which pairs are given up, or None.
        ahead: sweeps between two looks at who has met, as one recording, of one of a few numbers of pairs, so
            that the runs of a training find their recordings again: a pair that has met goes on until the
            next look, as two equal chains, whose difference is 0. None: a look after every sweep, and who has
            met leaves the batch.
    """

    hamiltonian: Hamiltonian
    kernel: PairKernel
    layers: Layers
    horizon: Horizon
    sums: SignedAccumulator
    generator: torch.Generator
    max_sweeps: int | None
    sweeps_ahead: int | None

    def run(self, start: ChainState) -> Meetings:
        """Runs pairs from a start, (pairs, width_l) for each layer; see ``run_pairs``."""
        kernel, generator, (_, m, lag, _) = self.kernel, self.generator, self.horizon
        self.by_row = self.hamiltonian.select_rows(slice(0, 0)) is not self.hamiltonian
        x = y = kernel.prepare(self.hamiltonian, start, copies=1)
        # The host counts: what it reads at a look is all that it needs for it.
        self.pair = torch.arange(len(x.states[0]), device="cpu")
        self.live = torch.ones_like(self.pair, dtype=torch.bool)  # pairs whose chains are apart
        self.times, self.tries, capped = torch.zeros(3, len(self.pair), dtype=torch.int64, device="cpu")
        self.capped, self.flipped = capped.bool(), 0
        self.at_horizon = list(x.states)
        self._add_averages([x], self.pair, 0)
        for t in range(1, lag + 1):  # nobody can meet before Y sets out
            before = x
            x = kernel.single(self.hamiltonian, before, generator)
            x = kernel.prepare(self.hamiltonian, x, copies=1)
            self._count_flips(before, x)
            if t < lag:
                self._add_averages([x], self.pair, t)
        # Rows of X, then rows of Y: a half-step of both is one product.
        both = join_states(x, y)
        # Pairs that met before the horizon, and where their X are.
        self.together, self.alone = self.pair[:0], both.select_rows(slice(0, 0))
        self.alone = self.alone.without(self.layers.drawn_anew)
        self._look([both], self._read(self._send(self.tries), both), lag)
        t = lag
        while len(self.pair) or len(self.together):
            trajectory = list[ChainState]()
            # Before the pairs: whoever meets at this look stands at its end, and moves alone from then on.
            if len(self.together):
                trajectory = self._move_alone()
                self._add_averages(trajectory, self.together, t + len(trajectory))
                self.together = self.together[: 0 if t + len(trajectory) >= m else None]
            if len(self.pair):
                trajectory, read = self._move_pairs(t)
                self._look(trajectory, read, t + len(trajectory))
            t += len(trajectory)
        self.sums.flush()
        counts = torch.stack((self.times, self.capped, self.tries))
        times, capped, tries = _device.to_device(counts, self.hamiltonian.device)
        cost = 2 * times - lag + (m - times).clamp(min=0)  # of X, of Y lag later, of X alone up to m
        units = sum(x.states[l].shape[1] for l in self.hamiltonian.graph.unsummed)
        flip_rate = int(self.flipped) / max(int(self.times.sum()) * units, 1)
        return Meetings(times, capped.bool(), tries, cost, flip_rate, lag, self.at_horizon)

    def _look(self, trajectory: list[ChainState], read: Tensor, t: int) -> None:
        """Adds what sweeps of pairs tell, and decides who goes on.

        Args:
            trajectory: where the chains are after each of the sweeps up to t, 2 · pairs rows.
            read: proposals of each pair, 1 where it is apart, and where it differs in a layer read, on the
                host: (sweeps, 3 · pairs).
            t: sweeps so far, at least the lag.
        """
        pair, m = self.pair, self.horizon.m
        tries, apart, differ = read.chunk(3, 1)
        apart, differ = apart.bool(), differ.bool()
        self.tries.index_add_(0, pair, tries.sum(0))
        self._add_averages(trajectory, pair, t)
        goes_on = self.live & apart[-1]
        ends = self.live & ~goes_on
        # The correction of these is cut here, which biases H: they are counted, and never dropped.
        if t == self.max_sweeps:
            self.capped[pair[goes_on]] = True
            goes_on, ends = goes_on & False, self.live
        if bool(ends.any()):
            # Apart after s of these sweeps, a pair met in the next one; one that never did is given up at t.
            self.times[pair[ends]] = (t - len(trajectory) + 1 + apart.sum(0))[ends].clamp(max=t)
        both = trajectory[-1].without(self.layers.drawn_anew)
        if self.sweeps_ahead is None:
            if t < m:
                self._leave(both, ends)
            # The others' f(X) and f(Y) may differ yet: where f reads layers that decide no meeting.
            pair, both, goes_on = _drop(~differ[0], pair, both, goes_on)
            both = self.kernel.prepare(self._select(pair, 2), both, copies=2)
            self.sums.add_difference(both, self._send(pair), self.horizon.correction(t))
            self.pair, both, self.live = _drop(~goes_on, pair, both, goes_on)
        else:
            self._add_differences(trajectory, self.live & differ, t)
            self.live = goes_on
            if not bool(goes_on.any()):
                if t < m:
                    self._leave(both, ~goes_on)
                self.pair = pair[:0]
            else:
                both = self._choose(both, t)
        self.both = both

    def _leave(self, both: ChainState, met: Tensor) -> None:
        """Lets first chains of pairs that met, marked on the host, go on alone up to the horizon."""
        if bool(met.any()):
            self.together = torch.cat((self.together, self.pair[met]))
            met_rows = _device.selected_indices(met, self.hamiltonian.device)
            self.alone = join_states(self.alone, both.select_rows(met_rows))

    def _choose(self, both: ChainState, t: int) -> ChainState:
        """Chooses the pairs of the next recording: all up to the horizon, then those that are apart.

        These are filled up to one of a few numbers with pairs that have met or are there twice.
        """
        rows, number, lag = len(self.pair), int(self.live.sum()), self.horizon.lag
        # Pairs that are apart come first, in their order, so that ``live`` is a count.
        order, size = (~self.live).byte().argsort(stable=True), rows
        if t >= self.horizon.m:
            size = len(self.times)
            while size // _FEWER >= max(number, _LEAST):
                size //= _FEWER
            order = order[: number if t == lag else size]
        if size == rows and (t > lag or number == rows):
            return both
        order = torch.cat((order, order[:1].expand(size - len(order))))
        # Y of a pair that met is X to the bit, with its fields, or rounding could part them.
        second = torch.where(self.live[order], order + rows, order)
        self.pair, self.live = self.pair[order], torch.arange(size, device="cpu") < number
        return both.select_rows(self._send(torch.cat((order, second))))

    def _move_alone(self) -> list[ChainState]:
        """Moves X of pairs that met; returns where they are after each sweep up to the next look."""
        trajectory: list[ChainState] = self._replay(self._select(self.together, 1), (self.alone,))
        self.alone = trajectory[-1].without(self.layers.drawn_anew)
        return trajectory

    def _move_pairs(self, t: int) -> tuple[list[ChainState], Tensor]:
        """Moves pairs that have made t sweeps up to the next look; returns ``trajectory``, ``read`` of it."""
        hamiltonian, both = self._select(self.pair, 2), self.both
        if self.sweeps_ahead is None:
            after, tries = self.kernel.coupled(hamiltonian, both, self.generator)
            if self.horizon.average(t + 1):
                after = self.kernel.prepare(hamiltonian, after, copies=2)
            self._count_flips(both, after)
            return [after], self._read(tries, after)
        most = self.sweeps_ahead if self.max_sweeps is None else min(self.sweeps_ahead, self.max_sweeps - t)
        settings = self.kernel, self.layers, self.generator
        live, rows = self._send(self.live), len(self.pair)
        if most == self.sweeps_ahead:
            trajectory, sweeps, seen = self._replay(hamiltonian, (both, live))
        else:
            trajectory, sweeps, seen = _sweep_ahead(hamiltonian, both, live, most, *settings)
        read = seen.cpu()  # the one wait
        late = read[:, 0].nonzero()
        if len(late):
            # This sweep goes on from its draws, as rejection sampling has no cap: one made anew would forget
            # that its proposals were rejected. What was made from there is made anew.
            s = int(late[0])
            before = trajectory[s - 1] if s else both
            apart = seen[s - 1, 2 + rows : 2 + 2 * rows].bool() if s else live
            done = self.kernel.finish(hamiltonian, before, sweeps[s], self.generator)
            last, _, seen = _sweep_ahead(hamiltonian, before, apart, 1, *settings, done)
            trajectory, read = [*trajectory[:s], *last], torch.cat((read[:s], seen.cpu()))
        self.flipped = int(read[:, 1].sum()) + self.flipped
        return trajectory, read[:, 2:]

    def _replay(self, hamiltonian: Hamiltonian, inputs: tuple[Any, ...]) -> Any:
        """Makes sweeps of pairs, or of chains alone, by a recording that earlier runs may have made."""
        layers, generator, sweeps = self.layers, self.generator, self.sweeps_ahead or 1
        kernel_of = ref(self.kernel)  # a recording that held the kernel would keep it, and so itself, alive

        def step(at: Hamiltonian, inputs: tuple[Any, ...]) -> Any:
            kernel = kernel_of()
            assert kernel is not None
            if len(inputs) == 1:
                return _sweep_alone(at, *inputs, sweeps, kernel, generator)
            both, live = inputs
            return _sweep_ahead(at, both, live, sweeps, kernel, layers, generator)

        if self.sweeps_ahead is None:
            return step(hamiltonian, inputs)
        return replay_under(
            hamiltonian, self.kernel, (layers, len(inputs), sweeps), step, inputs, [generator]
        )

    def _read(self, tries: Tensor, both: ChainState) -> Tensor:
        """Returns what a look reads of one sweep, (1, 3 · pairs): on a GPU, the wait of the sweep."""
        return torch.cat((tries, *self.layers.mark_apart(both))).unsqueeze(0).cpu()

    def _add_averages(self, trajectory: Sequence[ChainState], pair: Tensor, t: int) -> None:
        """Adds f(X) of pairs after each of the sweeps up to t, and takes their states at the horizon."""
        begun, m, rows = t - len(trajectory), self.horizon.m, slice(0, len(pair))
        averaged = [
            chain_state.select_rows(rows)
            for sweep, chain_state in enumerate(trajectory, begun + 1)
            if self.horizon.average(sweep)
        ]
        if averaged:
            x = averaged[0] if self.sweeps_ahead is None else self._copy(averaged)
            self.sums.add(x, self._send(pair.repeat(len(averaged))), self.horizon.average(m))
        if begun < m <= t:
            for l, states in enumerate(trajectory[m - begun - 1].states):
                self.at_horizon[l] = self.at_horizon[l].index_copy(0, self._send(pair), states[rows])

    def _add_differences(self, trajectory: list[ChainState], differ: Tensor, t: int) -> None:
        """Adds differences of pairs after each of the sweeps up to t, those of one weight together.

        ``differ`` marks those that are not 0, (sweeps, pairs) on the host.
        """
        rows = len(self.pair)
        weights = [self.horizon.correction(t - len(trajectory) + 1 + s) for s in range(len(trajectory))]
        for weight in sorted(set(weights) - {0.0}):
            some = [s for s, other in enumerate(weights) if other == weight]
            s, column = differ[some].nonzero().unbind(-1)
            if len(s):
                x = 2 * rows * s + column
                sent = self._send(torch.cat((x, x + rows, self.pair[column])))
                moved = self._copy([trajectory[s] for s in some]).select_rows(sent[: 2 * len(s)])
                self.sums.add_difference(moved, sent[2 * len(s) :], weight)

    def _copy(self, trajectory: Sequence[ChainState]) -> ChainState:
        """Returns the rows of places of a recording, which writes over these, without what is not read."""
        return join_states(*(chain_state.without(self.layers.drawn_anew) for chain_state in trajectory))

    def _count_flips(self, before: ChainState, after: ChainState) -> None:
        """Counts the units that a sweep changed in first chains; ``before`` may have second ones besides."""
        for l in self.hamiltonian.graph.unsummed:
            rows = slice(0, len(self.pair))
            self.flipped = (
                mark_differences(before.states[l][rows], after.states[l][rows]).sum() + self.flipped
            )

    def _select(self, pair: Tensor, copies: int) -> Hamiltonian:
        """Returns the distribution of chains of some pairs."""
        if not self.by_row:
            return self.hamiltonian
        return self.hamiltonian.select_rows(self._send(pair.repeat(copies)))

    def _send(self, x: Tensor) -> Tensor:
        return _device.to_device(x, self.hamiltonian.device)


def _sweep_ahead(
    hamiltonian: Hamiltonian,
    both: ChainState,
    live: Tensor,
    number: int,
    kernel: PairKernel,
    layers: Layers,
    generator: torch.Generator,
    done: CoupledSweep | None = None,
) -> tuple[list[ChainState], list[CoupledSweep], Tensor]:
    """Makes sweeps without a look; ``live`` marks the pairs that are apart, (pairs,). One may be done.

    Returns:
        Where the chains are after every sweep, the sweeps, and what a look reads of each, (sweeps, 2 + 3 ·
        pairs): 1 for one that is not done; changed units of the first chains of pairs that were apart;
        proposals of such pairs; 1 for pairs apart after it; and for those that differ in a layer read.
    """
    rows, trajectory, sweeps = len(live), [both], list[CoupledSweep]()
    marks, differ, changed = [live], list[Tensor](), list[Tensor]()
    for _ in range(number):
        before, apart = trajectory[-1].states, marks[-1]
        sweep = done or kernel.begin(hamiltonian, trajectory[-1], generator)
        state = sweep.state
        flips = [(before[l][:rows] != state.states[l][:rows]).sum(-1) for l in hamiltonian.graph.unsummed]
        # Equal chains may get fields that differ by rounding, which would part a pair that has met.
        for l, x in enumerate(state.states):
            if l not in layers.drawn_anew:
                _repeat_first(x, apart)
        apart, different = layers.mark_apart(state)
        chain_state = kernel.prepare(hamiltonian, state, 2)
        for x in chain_state.fields.values():
            _repeat_first(x, apart)
        trajectory.append(chain_state)
        sweeps.append(sweep)
        marks.append(apart)
        differ.append(different)
        changed.append(sum(flips[1:], flips[0]))
    apart = torch.stack(marks)
    waits = [wait for sweep in sweeps for wait in sweep.waits.values()]
    late = torch.stack(waits).view(number, -1).any(1) if waits else apart.new_zeros(number)
    tries = torch.stack([sweep.tries for sweep in sweeps]) * apart[:-1]
    flipped = (torch.stack(changed) * apart[:-1]).sum(1)
    different = apart[1:] if layers.read == layers.chain else torch.stack(differ)
    read = torch.cat((late.unsqueeze(-1), flipped.unsqueeze(-1), tries, apart[1:], different), -1)
    return trajectory[1:], sweeps, read


def _sweep_alone(
    hamiltonian: Hamiltonian, chains: ChainState, number: int, kernel: PairKernel, generator: torch.Generator
) -> list[ChainState]:
    """Makes sweeps of chains alone, and returns where they are after every one."""
    trajectory = list[ChainState]()
    for _ in range(number):
        chains = kernel.prepare(hamiltonian, kernel.single(hamiltonian, chains, generator), copies=1)
        trajectory.append(chains)
    return trajectory


def _repeat_first(x: Tensor, apart: Tensor) -> None:
    """Sets the second chains of pairs, (2 · pairs, ...), to the first but where these are apart, in place."""
    first, second = x.chunk(2)
    torch.where(apart.unsqueeze(-1), second, first, out=second)


@final
class SignedAccumulator:
    """Adds weighted states to statistics; small lots wait, so that a long tail costs few products.

    Args:
        hamiltonian: the machine.
        into: the sums; None keeps none.
        row_weights: Weights of the pairs, (pairs,), beside that of an entry; None means uniform.

    Attributes:
        unread: layers whose states are not read.
    """

    def __init__(
        self, hamiltonian: Hamiltonian, into: Statistics | None, row_weights: Tensor | None = None
    ) -> None:
        self._hamiltonian = hamiltonian
        self._into = into
        self._summed = tuple(l for l in hamiltonian.graph.summed if not hamiltonian.is_clamped(l))
        self.unread = self._summed if into is None or into.readings is None else ()
        self._row_weights = row_weights
        self._lots: list[tuple[ChainState, Tensor, Tensor]] = []
        self._magnitude = 0.0

    def add(self, state: ChainState, pairs: Tensor, weight: float) -> None:
        """Adds weight · f of some pairs' rows, f = E[S | the layers that are not summed]."""
        self._enter(state, pairs, weight, len(pairs))

    def add_difference(self, both: ChainState, pairs: Tensor, weight: float) -> None:
        """Adds weight · (f(x) - f(y)), with x the first half of the rows and y the second."""
        self._enter(both, pairs.repeat(2), weight, len(pairs))

    def flush(self) -> None:
        """Adds what waits."""
        if self._into is None or not self._lots:
            return
        trajectory, all_pairs, all_signs = zip(*self._lots, strict=True)
        state, pairs, signs = join_states(*trajectory), torch.cat(all_pairs), torch.cat(all_signs)
        self._lots = []
        machine, states, fields = self._hamiltonian.select_rows(pairs), state.states, state.fields
        weights = self._magnitude * signs.to(states[0])
        self._into.add(machine, states, weights, self._summed, fields)

    def _enter(self, state: ChainState, pairs: Tensor, weight: float, added: int) -> None:
        """Adds f of the first rows, so many, and takes away that of the others."""
        if self._into is None or weight == 0 or len(pairs) == 0:
            return
        row_weights = self._row_weights
        signs = torch.ones(len(pairs), device=pairs.device) if row_weights is None else row_weights[pairs]
        signs[added:].neg_()
        # Lots of one magnitude wait together, whatever their signs: X and Y are one product.
        if abs(weight) != self._magnitude:
            self.flush()
            self._magnitude = abs(weight)
        self._lots.append((state.without(self.unread), pairs, signs if weight > 0 else -signs))
        if sum(len(lot[1]) for lot in self._lots) >= _ROWS:
            self.flush()


def _drop(gone: Tensor, pair: Tensor, both: ChainState, live: Tensor) -> tuple[Tensor, ChainState, Tensor]:
    """Drops the pairs that are gone; all but ``both`` is on the host."""
    if not bool(gone.any()):
        return pair, both, live
    rest = _device.selected_indices(~gone, both.states[0].device)
    return pair[~gone], both.select_rows(torch.cat((rest, rest + len(gone)))), live[~gone]
