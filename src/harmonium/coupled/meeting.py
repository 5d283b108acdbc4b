"""Pairs of chains that run until they meet: the signed statistics on their way, and bounds on mixing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks, _device, _html, _random
from harmonium._checks import Numbers
from harmonium.backends import choice
from harmonium.chains import initial_states
from harmonium.coupled.ahead import Horizon, Layers, RunAhead, Tally
from harmonium.coupled.kernels import ChainState, Gibbs, PairKernel, join_states
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
    begun = initial_states(machine, hamiltonian, start, "start", generator)
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
    antithetic: bool = False,
    fields: Mapping[int, Tensor] = MappingProxyType({}),
) -> Meetings:
    """Runs ``meet`` and adds weight · H_{k:m} of every pair to ``into`` (FORMULAS §3).

    H_{k:m} = 1/(m-k+1) Σ_{t=k}^m f(X_t) + Σ_{t=k+lag}^{τ-1} w_t (f(X_t) - f(Y_{t-lag})) with f = E[S |
    the layers outside ``graph.summed``], has expectation E[S] if no pair is capped. Nothing but the current
    states of the pairs still needed is kept.

    With ``antithetic`` the first chain of pair pairs/2 + i mirrors the noise of that of pair i until the
    second chains set out. Each pair alone has the same distribution; where two such pairs start alike, the
    mean over them varies less.

    ``start`` has for each layer (pairs, width_l), ``row_weights`` is (pairs,). ``fields`` has the fields of
    some layers at the start, (pairs, width_l), where they are known.
    """
    _check(k, m, lag, max_sweeps)
    if antithetic and len(start[0]) % 2:
        raise ValueError(f"start: expected an even number of antithetic pairs, received {len(start[0])} rows")
    if (
        row_weights is None
        and isinstance(pair_kernel, Gibbs)
        and pair_kernel.even is pair_kernel.odd is None
        and choice.small_pairs(hamiltonian, pair_kernel.jumps is not None)
    ):
        from harmonium.backends.pairs import run_small_pairs  # needs numba

        jumps = None if pair_kernel.jumps is None else pair_kernel.jumps.weighed(hamiltonian)
        ran = run_small_pairs(
            hamiltonian, start[0], _random.key(generator), k=k, m=m, lag=lag, max_sweeps=max_sweeps,
            into=into, weight=weight, antithetic=antithetic, jumps=jumps,
        )  # fmt: skip
        return Meetings(**ran | {"lag": lag, "states": [*ran["states"], *start[1:]]})
    pairs, device = len(start[0]), start[0].device
    tally, accumulator = Tally.of(pairs, device), SignedAccumulator(hamiltonian, into, row_weights)
    chain = pair_kernel.chain_layers(hamiltonian)
    # Which layers f reads: with several readings also some that do not decide a meeting.
    read = chain if into is None or into.readings is None else tuple(range(len(start)))
    drawn_anew = tuple(l for l in accumulator.unread if l not in chain)
    layers = Layers(chain, read, drawn_anew, hamiltonian.graph.kept)
    state = pair_kernel.prepare(
        hamiltonian, ChainState(hamiltonian.clamp_states(start), dict(fields)), copies=1
    )
    horizon = list(state.states)
    both = state  # X of the pairs that have not met, and then Y, once these have set out
    apart = torch.arange(pairs, device=device)
    together, alone = apart[:0], state.select_rows(slice(0, 0))  # X of pairs that met before the horizon
    if k == 0:
        accumulator.add(state, apart, weight / (m + 1))
    # A pair has three stages: X alone for ``lag`` sweeps, both until X_t = Y_{t-lag}, and X alone again up to
    # m, since a pair that has met stays together. H_{k:m} (FORMULAS §3; Jacob, O'Leary & Atchadé 2020) is the
    # mean of f(X_t) over k..m, added as states come, and the weighted differences f(X_t) - f(Y_{t-lag}),
    # which are 0 from the meeting on.
    t, weights = 0, Horizon(k, m, lag, weight)
    ahead = RunAhead(hamiltonian, pair_kernel, layers, generator, max_sweeps, weights)
    while len(apart) or len(together):
        if t >= ahead.least and _device.is_async(device):
            if len(together):
                x, y = (both.select_rows(half) for half in (slice(0, len(apart)), slice(len(apart), None)))
                alone = alone.without(drawn_anew)
                both = join_states(x, alone, y, alone)
            pairs_left = torch.cat((apart, together))
            ahead.finish(both, pairs_left, len(together), t, tally, accumulator, horizon)
            break
        t += 1
        average = weights.average(t)
        if len(together):
            selected = hamiltonian.select_rows(together)
            alone = pair_kernel.prepare(selected, pair_kernel.single(selected, alone, generator), copies=1)
            tally.cost[together] += 1
            accumulator.add(alone, together, average)
        if len(apart):
            rows = len(apart)
            before = both.select_rows(slice(0, rows))
            if t <= lag:
                selected = hamiltonian.select_rows(apart)
                x = pair_kernel.prepare(
                    selected, pair_kernel.single(selected, before, generator, antithetic), copies=1
                )
                both = join_states(x, state if t == 1 else both.select_rows(slice(rows, None)))
                tally.cost[apart] += 1
            else:
                selected = hamiltonian.select_rows(torch.cat((apart, apart)))
                both, tried = pair_kernel.coupled(selected, both, generator)
                if average:
                    both = pair_kernel.prepare(selected, both, copies=2)
                tally.tries[apart] += tried
                tally.cost[apart] += 2
            x = both.select_rows(slice(0, rows))
            tally.add_flips(before, x, layers.kept)
            accumulator.add(x, apart, average)
            met = equal = torch.zeros(rows, dtype=torch.bool, device="cpu")
            if t >= lag:
                met, equal = ~torch.stack(layers.mark_apart(both)).cpu()  # on a GPU, the wait of a sweep
            done = torch.ones_like(met) if t == max_sweeps else met
            if bool(done.any()):
                places = _device.selected_indices(done, device)
                tally.times[apart[places]] = t
                tally.capped[apart[_device.selected_indices(done & ~met, device)]] = True
                if t < m:
                    together = torch.cat((together, apart[places]))
                    alone = join_states(alone, x.select_rows(places))
            if t == m:
                _put(horizon, apart, x.states)
            if t >= lag:  # both chains have set out: their next sweep draws these before it reads them
                both = both.without(drawn_anew)
            apart, both, met = _drop(equal, apart, both, met)  # the others' f(X) and f(Y) may differ yet
            both = pair_kernel.prepare(hamiltonian.select_rows(torch.cat((apart, apart))), both, copies=2)
            accumulator.add_difference(both, apart, weights.correction(t))
            apart, both, met = _drop(met, apart, both, met)
            if t == max_sweeps:
                apart, both = apart[:0], both.select_rows(slice(0, 0))
        if t == m:
            _put(horizon, together, alone.states)
            together = together[:0]
    accumulator.flush()
    flip_rate = int(tally.flipped) / max(tally.seen, 1)
    return Meetings(tally.times, tally.capped, tally.tries, tally.cost, flip_rate, lag, horizon)


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
        self,
        hamiltonian: Hamiltonian,
        into: Statistics | None,
        row_weights: Tensor | None = None,
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
        self._enter(state, pairs, self._weigh(pairs), weight)

    def add_difference(self, both: ChainState, pairs: Tensor, weight: float) -> None:
        """Adds weight · (f(x) - f(y)), with x the first half of the rows and y the second."""
        if self._into is None or weight == 0:
            return
        row_weights = self._weigh(pairs)
        self._enter(both, pairs.repeat(2), torch.cat((row_weights, -row_weights)), weight)

    def _weigh(self, pairs: Tensor) -> Tensor:
        if self._row_weights is None:
            return torch.ones(len(pairs), device=pairs.device)
        return self._row_weights[pairs]

    def flush(self) -> None:
        """Adds what waits."""
        if self._into is None or not self._lots:
            return
        state, pairs, signs = self._lots[0]
        if len(self._lots) > 1:
            places, all_pairs, all_signs = zip(*self._lots, strict=True)
            state, pairs, signs = join_states(*places), torch.cat(all_pairs), torch.cat(all_signs)
        self._lots = []
        machine, states, fields = self._hamiltonian.select_rows(pairs), state.states, state.fields
        weights = self._magnitude * signs.to(states[0])
        self._into.add(machine, states, weights, self._summed, fields)

    def _enter(self, state: ChainState, pairs: Tensor, signs: Tensor, weight: float) -> None:
        if self._into is None or weight == 0 or len(signs) == 0:
            return
        if abs(weight) != self._magnitude:
            self.flush()
            self._magnitude = abs(weight)
        self._lots.append((state.without(self.unread), pairs, signs if weight > 0 else -signs))
        if sum(len(lot[1]) for lot in self._lots) >= _ROWS:
            self.flush()


def _drop(gone: Tensor, apart: Tensor, both: ChainState, met: Tensor) -> tuple[Tensor, ChainState, Tensor]:
    """Drops the pairs that are gone; ``gone`` and ``met`` are on the host."""
    if not bool(gone.any()):
        return apart, both, met
    rest = _device.selected_indices(~gone, apart.device)
    return apart[rest], both.select_rows(torch.cat((rest, rest + len(gone)))), met[~gone]


def _put(target: States, rows: Tensor, values: States) -> None:
    for l, value in enumerate(values if len(rows) else ()):
        target[l] = target[l].index_copy(0, rows, value)


def _check(k: int, m: int, lag: int, max_sweeps: int | None) -> None:
    _checks.positive_int(lag, "lag")
    _checks.positive_int(k, "k", minimum=0)
    _checks.positive_int(m, "m", minimum=k)
    if max_sweeps is not None:
        _checks.positive_int(max_sweeps, "max_sweeps", minimum=max(m, lag))


def mixing_bound(meetings: Meetings, sweeps: Tensor | range) -> Tensor:
    """Estimates upper bounds on the total variation between X_t and the machine (Biswas et al. 2019).

    d_TV(t) ≤ E[N_t] with N_t = max(0, ⌈(τ - lag - t)/lag⌉), estimated by the mean over pairs. The chains'
    start is the start of the pairs; a larger lag gives a tighter bound at a higher cost. As an estimate it is
    0 past the longest meeting time, whatever rarer pairs would have done: see ``mixing_limit``.

    Args:
        meetings: from ``coupled.meet``.
        sweeps: numbers t of sweeps, (sweeps,), each at least 0.

    Returns:
        A bound for each t, (sweeps,), float64, at most 1.

    Raises:
        TypeError: not ``Meetings``, or ``sweeps`` that is no tensor or range.
        ValueError: a pair was capped, so that nothing is bounded, or a number below 0.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
        >>> start = machine.random_states(50, seed=0)
        >>> met = hm.coupled.meet(machine, hm.coupled.Gibbs(), start, seed=1)
        >>> bounds = hm.coupled.mixing_bound(met, range(20))
        >>> bool(bounds[0] <= 1), bool(bounds[19] == 0)
        (True, True)
    """
    return _count_lags(meetings, _read_sweeps(meetings, sweeps)).mean(-1).clamp(max=1)


def mixing_limit(meetings: Meetings, sweeps: Tensor | range, confidence: float = 0.95) -> Tensor:
    """Returns upper confidence limits of the bounds that ``mixing_bound`` estimates.

    No limit holds without an assumption: a mode that no pair has found may keep pairs apart for as long as it
    likes. Assumed is a geometric tail: a pair still apart meets within a further lag with a probability h,
    the same after any number of sweeps, or higher from t + lag on. Then E[N_t] ≤ P(τ > t + lag)/h, and the
    limit is the upper limit of P(τ > t + lag), which needs no assumption, over the lower limit of h (both of
    Clopper & Pearson 1934, with half the risk each). Past the longest of n meeting times it is about
    3.7/(n h) at 95 %.

    The limits hold for one t each. They never rise in t, so that the first t with a limit below some distance
    has that distance with the same confidence.

    Args:
        meetings: from ``coupled.meet``, best with a lag near the longest meeting time at lag 1.
        sweeps: numbers t of sweeps, (sweeps,), each at least 0.
        confidence: how often the limit is to be right, above 0 and below 1.

    Returns:
        A limit for each t, (sweeps,), float64, at least ``mixing_bound`` and at most 1. All are 1 where every
        pair met at the lag itself: h is then unknown.

    Raises:
        TypeError, ValueError: as ``mixing_bound``, or a confidence out of range.
    """
    from scipy.special import betaincinv  # slow to import, and only needed here

    risk = (1 - _checks.real(confidence, "confidence", 0.0, 1.0, "neither")) / 2
    t = _read_sweeps(meetings, sweeps)
    lags = _count_lags(meetings, t)
    pairs = lags.shape[-1]
    late = (lags > 0).sum(-1).cpu().numpy()
    # Were all pairs apart, the upper limit would be 1; the formula has no value there.
    apart = np.where(late < pairs, betaincinv(late + 1.0, np.maximum(pairs - late, 1), 1 - risk), 1.0)
    # From the start on: every lag that a pair began apart is a trial, the one in which it met a success.
    begun = _count_lags(meetings, torch.zeros(1, dtype=torch.float64, device=t.device))
    trials, met = float(begun.sum()), float((begun > 0).sum())
    readiness = float(betaincinv(met, trials - met + 1, risk)) if met else 0.0
    limit = torch.from_numpy(apart).to(t.device) / readiness
    return torch.maximum(limit, lags.mean(-1)).clamp(max=1)


class MixingTimes(NamedTuple):
    """Meeting times of pairs of chains from noise, and the sweeps that bring chains near their distribution.

    Attributes:
        pairs: Number of pairs.
        mean_meeting_time: Mean meeting time at lag 1, in sweeps; too small where pairs were given up.
        longest_meeting_time: the longest of these times.
        given_up: Fraction of the pairs that had not met; above 0 nothing is bounded.
        flip_rate: see ``Meetings``.
        lag: Lag of ``meetings``: the longest meeting time where all pairs met, else 1.
        distance: a total variation distance.
        sweeps: Sweeps after which ``mixing_bound`` is at most that distance; None: it is nowhere.
        sweeps_with_confidence: as ``sweeps``, by ``mixing_limit`` at 95 %.
        meetings: the pairs with that lag, for ``mixing_bound``.
    """

    pairs: int
    mean_meeting_time: float
    longest_meeting_time: int
    given_up: float
    flip_rate: float
    lag: int
    distance: float
    sweeps: int | None
    sweeps_with_confidence: int | None
    meetings: Meetings


def mixing_times(
    machine: BoltzmannMachine,
    *,
    pairs: int = 400,
    max_sweeps: int = 10_000,
    distance: float = 0.1,
    seed: int | torch.Generator,
) -> MixingTimes:
    """Finds how many sweeps pairs of Gibbs chains from noise take to meet, and chains to mix.

    A first run with lag 1 gives the lag of a second one, which bounds the total variation distance (Biswas et
    al. 2019). A mode that no pair has found is not seen.

    Args:
        machine: the machine.
        pairs: at least 1; with few the confidence limit is far above the bound.
        max_sweeps: sweeps after which a pair of the first run is given up, at least 1.
        distance: between 0 and 1.
        seed: an int or a generator.

    Raises:
        TypeError, ValueError: arguments out of range.
    """
    _checks.real(distance, "distance", 0.0, 1.0)
    generator = _random.as_generator(seed, machine.device)
    start = machine.random_states(_checks.positive_int(pairs, "pairs"), seed=generator)
    first = met = meet(machine, Gibbs(), start, max_sweeps=max_sweeps, seed=generator)
    longest, capped = int(first.times.max()), float(first.capped.double().mean())
    near = limit = None
    if not capped:
        met = meet(machine, Gibbs(), start, lag=longest, seed=generator)
        sweeps = range(int(met.times.max()) + 1)
        below = [curve <= distance for curve in (mixing_bound(met, sweeps), mixing_limit(met, sweeps))]
        near, limit = (int(each.nonzero()[0]) if bool(each.any()) else None for each in below)
    mean = float(first.times.double().mean())
    return MixingTimes(pairs, mean, longest, capped, first.flip_rate, met.lag, distance, near, limit, met)


def _count_lags(meetings: Meetings, t: Tensor) -> Tensor:
    """Returns N_t of every pair, (sweeps, pairs)."""
    excess = (meetings.times.double() - meetings.lag - t.unsqueeze(-1)) / meetings.lag
    return excess.ceil().clamp(min=0)


def _read_sweeps(meetings: Meetings, sweeps: Tensor | range) -> Tensor:
    """Returns the checked numbers of sweeps, (sweeps,) float64."""
    _checks.instance(meetings, "meetings", Meetings, "the meetings of pairs of chains")
    _checks.instance(sweeps, "sweeps", Tensor | range, "a tensor or a range")
    if bool(meetings.capped.any()):
        raise ValueError(
            f"meetings: expected pairs that all met, received {int(meetings.capped.sum())} of "
            f"{len(meetings.capped)} capped after {int(meetings.times.max())} sweeps, which bound nothing: "
            "chains from this start do not mix within them. A larger max_sweeps helps if pairs still met "
            "near the end; else start nearer to the machine's distribution (data, tempered chains)"
        )
    t = sweeps if isinstance(sweeps, Tensor) else torch.tensor(list(sweeps))
    if t.dim() != 1 or t.is_complex():
        raise ValueError(
            f"sweeps: expected numbers of sweeps, (sweeps,), received {t.dtype} of shape {tuple(t.shape)}"
        )
    t = t.to(meetings.times.device, torch.float64)
    if not bool((t >= 0).all()):
        wrong = t[~(t >= 0)][0]
        raise ValueError(f"sweeps: expected numbers of at least 0, received {float(wrong):g}")
    return t
