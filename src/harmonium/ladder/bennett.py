"""ln Z of every machine of a ladder by Bennett's acceptance ratio."""

from __future__ import annotations

from math import inf, log
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium._progress import show_progress
from harmonium.backends import Recording
from harmonium.chains import Gibbs, KernelState, fill_hidden, run_kernel
from harmonium.ladder.kernel import Ladder, Traffic, traffic
from harmonium.ladder.rungs import hamiltonian_of, space_rungs
from harmonium.likelihood import WITHOUT_DATA, LogPartition
from harmonium.machine import BoltzmannMachine, Hamiltonian, require_distribution

RENEWED = 0.99
"""The part of a ladder's states that has to come from rung 0 before it counts as in equilibrium."""
_OVERLAP = 0.03  # below it hardly any state of one machine is one of the other's, and errors are too small
_START_SWEEPS = 100  # of chains that begin at data, to leave single rows for the modes that they lie in


class BennettRatio(NamedTuple):
    """ln Z_b - ln Z_a of two machines.

    Attributes:
        value: the difference.
        influence: Influence of every state of a, then of b, on the value, (n_a + n_b,): the value errs
            by their sum, to first order. Their squares add up to its variance where states are independent;
            where they are chains, sum those of each chain first.
        standard_error: Standard error of the value, if all states are independent.
        overlap: Overlap of the two distributions, 1 where they are equal: the mean of 4 σ(u) σ(-u) over the
            states. Below a few hundredths the value rests on hardly any state, and its error cannot be
            trusted.
    """

    value: float
    influence: Tensor
    standard_error: float
    overlap: float


def bennett_ratio(gap_a: Tensor, gap_b: Tensor) -> BennettRatio:
    """Solves Σ_{x~a} σ(-(c + Δ + M)) = Σ_{x~b} σ(c + Δ + M) for c = ln Z_b - ln Z_a (Bennett 1976).

    Δ(x) = F_b(x) - F_a(x) and M = ln(n_a / n_b). No estimate from these states has less variance.

    Args:
        gap_a: Δ of states of a, (n_a,).
        gap_b: Δ of states of b, (n_b,).

    Returns:
        The difference with its error and the overlap; see ``BennettRatio`` for the shape of influences.

    Raises:
        ValueError: values that are not finite.
    """
    from scipy.optimize import brentq  # half a second

    x, y = gap_a.double().cpu(), gap_b.double().cpu()
    if not bool(torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise ValueError("machine: expected finite free energies, received others")
    shift = log(len(x) / len(y))

    def sides(c: float) -> tuple[Tensor, Tensor]:
        return logsigmoid(-(c + x + shift)), logsigmoid(c + y + shift)

    def excess(c: float) -> float:
        left, right = sides(c)
        return float(left.logsumexp(0) - right.logsumexp(0))

    # The excess of logarithms, which do not underflow, falls without end as c grows: it has one root. The
    # bracket begins around the places -Δ - M where single terms are ½, and doubles until the root is inside.
    ends = torch.cat((-x, -y)) - shift
    low, high = float(ends.min()) - 1, float(ends.max()) + 1
    while excess(low) < 0:
        low -= high - low
    while excess(high) > 0:
        high += high - low
    c = brentq(excess, low, high, xtol=1e-12)
    left, right = sides(c)
    scale = torch.cat((left, right)).amax()
    left, right = (left - scale).exp(), (right - scale).exp()
    slopes = left * torch.sigmoid(c + x + shift), right * torch.sigmoid(-(c + y + shift))
    slope = torch.cat(slopes).sum()
    # To first order a term that is larger by δ moves the root by δ / slope. Means are taken off, since only
    # what deviates from the expectation under a distribution is an error.
    influence = torch.cat((left - left.mean(), right.mean() - right)) / slope
    sizes = len(x) * len(y) / (len(x) + len(y))
    if not slope > 0:  # as where every state is the likelier under the other machine
        influence = torch.full_like(influence, inf)
    overlap = float(slope * scale.exp() / sizes)
    return BennettRatio(c, influence, float(influence.square().sum().sqrt()), overlap)


class LadderPartition(NamedTuple):
    """ln Z along a ladder.

    Attributes:
        log_partition: ln Z of the machine at the top, which a ladder does not bound: ``lower`` and ``upper``
            are infinite. ``ess`` is the least effective sample size of any rung. Data that took part in
            the run, at the top or along the training, are renewed from rung 0 as all else.
        values: ln Z of every rung from the bottom, (rungs + 1,); that of rung 0 is exact.
        standard_errors: Their standard errors, (rungs + 1,), from the spread over independent chains.
        overlaps: Overlaps of neighbours, (rungs,), from 0 to 1.
        traffic: exchanges, ages and round trips of the run.
        state: the chains at the end of the run, with which a ``Ladder`` goes on.
    """

    log_partition: LogPartition
    values: Tensor
    standard_errors: Tensor
    overlaps: Tensor
    traffic: Traffic
    state: KernelState

    @property
    def value(self) -> float:
        """Returns ln Z of the machine."""
        return self.log_partition.value

    @property
    def standard_error(self) -> float:
        """Returns the standard error of ``value``."""
        return self.log_partition.standard_error

    @property
    def doubts(self) -> tuple[str, ...]:
        """Returns what was found to speak against the value, one sentence each: the RuntimeWarnings."""
        return self.log_partition.doubts

    def __str__(self) -> str:
        return f"{self.log_partition}; {len(self.values)} machines"

    def __repr__(self) -> str:
        return f"LadderPartition({self})"


@torch.no_grad()
def log_partitions(
    machine: BoltzmannMachine,
    kernel: Ladder | None = None,
    *,
    data: Numbers | None = None,
    state: KernelState | None = None,
    chains: int = 100,
    rounds: int = 400,
    warm_up: int = 2000,
    seed: int | torch.Generator = 0,
    progress: bool | None = None,
) -> LadderPartition:
    """Estimates ln Z of a machine and of every rung below it, by chains on a ladder (FORMULAS §8).

    ln Z of rung 0 is known; every gap adds ln Z_b - ln Z_a by Bennett's ratio. Chains are run until 99 % of
    all states have come from rung 0, and from then on counted.

    A ladder along the couplings is made without regard to a training. Where the distribution changes its
    nature on the way (a phase transition of first order, as in the segmentation models of the UAI
    competition), states that come from rung 0 may all miss a mode, and ln Z is too low by what it weighs.
    ``data`` in that mode then stay at the top for ever, which the result says; without data it may go unseen.

    Args:
        machine: the machine.
        kernel: the ladder; None: ``ladder.Ladder()``, whose rungs are made for the machine.
        data: visible states (rows, visible_width) where the chains at the top begin, after 100 Gibbs sweeps.
            Training data serve best.
        state: chains to begin with at all rungs, such as ``ladder.ladder_of(machine, run.rule_state)``;
            ``data`` and ``chains`` are not read then, nor the rungs of ``kernel``.
        chains: each with a ladder of its own, at least 10.
        rounds: rounds that are counted, at least 20; as many as came before where these are more.
        warm_up: most rounds before.
        seed: an int or a generator.
        progress: True shows a line of rounds and the share of states from rung 0 on stderr, False none; None:
            in a terminal or a notebook, as ``train`` does.

    Returns:
        ln Z with its error and overlap for every rung, (rungs + 1,); see ``LadderPartition``.

    Warns:
        RuntimeWarning: states that have not come from rung 0, an overlap that is too small, or no round trip.

    Raises:
        ValueError: arguments out of range, or data and states that do not fit.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], seed=0)
        >>> found = hm.ladder.log_partitions(machine, rounds=50, seed=0)
        >>> abs(found.value - hm.likelihood.exact_log_partition(machine)) < 0.01
        True
    """
    kernel = Ladder() if kernel is None else kernel
    _checks.instance(kernel, "kernel", Ladder, "a ladder.Ladder")
    chains = _checks.positive_int(chains, "chains", minimum=10)
    rounds = _checks.positive_int(rounds, "rounds", minimum=20)
    warm_up = _checks.positive_int(warm_up, "warm_up", minimum=0)
    generator = _random.as_generator(seed, machine.device)
    hamiltonian = machine.hamiltonian()
    require_distribution(hamiltonian)
    if state is None:
        begun = _begin(machine, hamiltonian, kernel, data, chains, generator)
    else:
        kernel.check(hamiltonian, state)
        rungs = state.memory.rungs
        below = [list(x) for x in zip(*(x.chunk(len(rungs)) for x in state.memory.states), strict=True)]
        begun = kernel.init(hamiltonian, state.states, generator, rungs=rungs, below=below)

    def climb(chains: KernelState) -> tuple[KernelState, tuple[Tensor, ...]]:
        """Makes two rounds, with even and odd exchanges, and notes the gaps of each."""
        gaps = list[Tensor]()
        for _ in range(2):
            chains, _ = kernel.step(hamiltonian, chains, generator)
            gaps.append(chains.cache.gaps)
        return chains, tuple(gaps)

    climbing = Recording(
        lambda now: climb(now[0]),
        (begun, ()),
        hamiltonian.device,
        [generator],
        steady=kernel.period is not None,
    )
    made, noted, renewed = 0, list[tuple[Tensor, ...]](), 0.0
    total = warm_up + max(rounds, warm_up)
    with show_progress(total, 0, progress) as show:
        while made + 2 <= warm_up and (renewed := _find_renewed(climbing.state[0])) < RENEWED:
            climbing.advance()
            made += 2
            if show:
                show(made, lambda: {"from_rung_0": renewed})
        counted = -(-max(rounds, made) // 2)
        for pair in range(counted):
            climbing.advance()
            noted.append(tuple(x.clone() for x in climbing.state[1]))
            if show:
                show(total - 2 * (counted - pair - 1), lambda: {"from_rung_0": renewed})
    end = climbing.state[0]
    gaps = torch.empty(len(end.memory.rungs), 2, len(end.states[0]), counted, dtype=torch.float64)
    for odd, several in enumerate(zip(*noted, strict=True)):
        gaps[odd::2] = torch.stack(several, -1).cpu().transpose(0, 1)
    bottom = hamiltonian_of(hamiltonian, end.memory.rungs[0]).log_partition_of_independent()
    values, errors, overlaps, ess = _solve(gaps, bottom)
    seen = traffic(end)
    doubts = _list_doubts(renewed, overlaps, seen)
    for doubt in doubts:
        _checks.warn(doubt, RuntimeWarning)
    if data is None and state is None:
        doubts.append(WITHOUT_DATA)
    partition = LogPartition(float(values[-1]), float(errors[-1]), ess, -inf, inf, tuple(doubts))
    return LadderPartition(partition, values, errors, overlaps, seen, end)


def ages_of(ladder: Ladder) -> list[float]:
    """Returns the updates of all machines of a ladder, or their numbers; the top has the last rung's."""
    assert ladder.rungs is not None
    ages = list(map(float, range(len(ladder.rungs)))) if ladder.ages is None else list(ladder.ages)
    return [*ages, ages[-1]]


def _begin(
    machine: BoltzmannMachine,
    hamiltonian: Hamiltonian,
    kernel: Ladder,
    data: Numbers | None,
    chains: int,
    generator: torch.Generator,
) -> KernelState:
    """Returns chains at all rungs, those at the top from data or noise."""
    if data is None:
        return kernel.init(hamiltonian, machine.random_states(chains, seed=generator), generator)
    rows = machine.visible_rows(data, "data")
    if kernel.rungs is None:
        filled = fill_hidden(hamiltonian, rows, generator).states
        rungs = space_rungs(hamiltonian, generator, kernel.acceptance, kernel.max_rungs, filled)
        kernel = kernel.with_rungs(rungs)
    drawn = rows[_random.integers(len(rows), (chains,), generator)]
    start = fill_hidden(hamiltonian, drawn, generator)
    start = run_kernel(hamiltonian, Gibbs(), start, _START_SWEEPS, generator)
    return kernel.init(hamiltonian, start.states, generator)


def _find_renewed(state: KernelState) -> float:
    """Returns the part of a ladder's states that come from rung 0."""
    return float((state.memory.births > 0).double().mean())


def _solve(gaps: Tensor, bottom: float) -> tuple[Tensor, Tensor, Tensor, float]:
    """Returns values, errors and overlaps of ``LadderPartition``, and the least effective sample size.

    Args:
        gaps: F_b - F_a of states of a and of b, (rungs, 2, chains, rounds).
        bottom: ln Z of rung 0.
    """
    chains, rounds = gaps.shape[-2:]
    ratios = [bennett_ratio(*gap.flatten(1)) for gap in gaps]
    # The influence of whole chains, as their rounds depend on each other.
    influence = torch.stack([ratio.influence.view(2, chains, rounds).sum((0, 2)) for ratio in ratios])
    spread, path = (x.square().sum(1) * chains / (chains - 1) for x in (influence, influence.cumsum(0)))
    independent = torch.tensor([ratio.standard_error for ratio in ratios], dtype=torch.float64).square()
    shares = torch.where(independent.isinf(), 0.0, (independent / spread).nan_to_num(1.0))
    least = float(shares.amin().clamp(max=1.0))
    steps = torch.tensor([0.0, *(ratio.value for ratio in ratios)], dtype=torch.float64)
    return (
        bottom + steps.cumsum(0),
        torch.cat((path.new_zeros(1), path.sqrt())),
        torch.tensor([ratio.overlap for ratio in ratios], dtype=torch.float64),
        chains * rounds * least,
    )


def _list_doubts(renewed: float, overlaps: Tensor, seen: Traffic) -> list[str]:
    least, overlap = int(overlaps.argmin()), float(overlaps.min())
    doubts = {
        f"{1 - renewed:.1%} of the ladder's states have not come from rung 0 before the count began: it may "
        "not be in equilibrium, or states at its top lie in a mode that none from below reaches; allow a "
        "longer warm_up, more sweeps or a higher acceptance, or give rungs that were frozen along the "
        "training": renewed < RENEWED,
        f"rungs {least} and {least + 1} have an overlap of {overlap:.3g}: ln Z above them rests on hardly "
        "any state; ask for a higher acceptance": overlap < _OVERLAP,
        "no state has gone from rung 0 to the machine: what the top counts is where it began; run more "
        "rounds": seen.round_trips == 0,
    }
    return [f"log_partition: {doubt}" for doubt, holds in doubts.items() if holds]
