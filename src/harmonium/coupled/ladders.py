"""Pairs of ladders that meet: unbiased estimates and mixing bounds where pairs of Gibbs chains never meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium.chains import KernelState, Ladder
from harmonium.coupled.meetings import Meetings
from harmonium.machine import BoltzmannMachine, States


class LadderMeetings(NamedTuple):
    """Meetings of pairs of ladders.

    Attributes:
        meetings: times in rounds; ``tries`` is 0 and ``flip_rate`` NaN, which ladders do not count.
        estimates: of the statistic, one for each pair, independent of each other, (pairs, ...); None without.
            Their mean is unbiased if no pair is capped.
    """

    meetings: Meetings
    estimates: Tensor | None


@torch.no_grad()
def meet_ladders(
    machine: BoltzmannMachine,
    ladder: Ladder | None = None,
    *,
    pairs: int = 100,
    lag: int = 2,
    after: int = 0,
    max_rounds: int = 10_000,
    statistic: Callable[[States], Tensor] | None = None,
    seed: int | torch.Generator,
) -> LadderMeetings:
    """Runs pairs of ladders with common noise until they agree at all rungs (Jacob et al. 2020).

    Both ladders of a pair draw rung 0 alike, and so what comes from there is the same in both once it has
    been swept and exchanged by the same numbers: pairs meet about as fast as states of rung 0 take the ladder
    over. Each ladder alone follows the law of ``chains.Ladder``.

    Args:
        machine: at the top.
        ladder: the kernel, such as ``TrainingRun.ladder``; None: ``chains.Ladder()``.
        pairs: how many, at least 2. All ladders start at noise.
        lag: rounds that the first of a pair runs ahead, even: pairs of rungs exchange in turn, the same ones
            in both ladders.
        after: rounds before the estimate, at least 0; best about as many as pairs need to meet.
        max_rounds: after which pairs are given up and marked as capped, at least ``after + lag``.
        statistic: a function of states of the machine, for each layer (rows, width_l), with a value for every
            row, (rows, ...); None: no estimate.
        seed: an int or a generator.

    Returns:
        Meetings, for ``mixing_bound`` in rounds, and estimates
        H = f(X_after) + Σ_j f(X_{after + j lag}) - f(Y_{after + (j - 1) lag}) (FORMULAS §3).

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=0)
        >>> bool(hm.coupled.meet_ladders(machine, pairs=20, seed=0).meetings.capped.any())
        False
    """
    kernel = Ladder() if ladder is None else ladder
    _checks.instance(kernel, "ladder", Ladder, "a chains.Ladder")
    pairs, lag = _checks.positive_int(pairs, "pairs", minimum=2), _checks.positive_int(lag, "lag")
    if lag % 2:
        raise ValueError(f"lag: expected an even number, received {lag}")
    after = _checks.positive_int(after, "after", minimum=0)
    max_rounds = _checks.positive_int(max_rounds, "max_rounds", minimum=after + lag)
    law, generator = machine.hamiltonian(), _random.as_generator(seed, machine.device)

    def begin(kernel: Ladder) -> KernelState:
        return kernel.init(law, machine.random_states(pairs, seed=generator), generator)

    x = begin(kernel)
    kernel = kernel.with_rungs(x.own["rungs"])
    y = begin(kernel)
    times, total = torch.zeros(pairs, dtype=torch.int64, device=law.device), None
    if statistic is not None and after == 0:
        total = statistic(x.states).double()
    t = 0
    while t < max_rounds and (t < max(after, lag) or not bool(times.all())):
        t += 1
        key = int(_random.integers(1 << 62, (), generator))
        x, _ = kernel.step(law, x, torch.Generator(law.device).manual_seed(key))
        if t > lag:
            y, _ = kernel.step(law, y, torch.Generator(law.device).manual_seed(key))
        apart = times == 0
        if t >= lag:
            apart &= ~_agree(x, y)
            times[(times == 0) & ~apart] = t
        if statistic is not None:
            if t == after:
                total = statistic(x.states).double()
            elif t > after and (t - after) % lag == 0 and total is not None:
                change = statistic(x.states).double() - statistic(y.states).double()
                total = total + change * apart.view(-1, *[1] * (change.dim() - 1))
    capped = times == 0
    times = torch.where(capped, t, times)
    cost = lag + 2 * (times - lag)
    met = Meetings(times, capped, torch.zeros_like(times), cost, float("nan"), lag, list(x.states))
    return LadderMeetings(met, total)


def _agree(x: KernelState, y: KernelState) -> Tensor:
    """Returns which ladders of two have the same states at all rungs above the first, (rows,)."""
    both = zip([*x.own["states"][1:], x.states], [*y.own["states"][1:], y.states], strict=True)
    return torch.stack([(a == b).all(1) for p, q in both for a, b in zip(p, q, strict=True)]).all(0)
