"""Annealed importance sampling."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise, repeat
from math import inf, log
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium._states import join_rows, record
from harmonium.backends import Recording, half_steps, pays
from harmonium.chains import Gibbs, KernelState, Tempering, climb, fill_hidden, run_kernel
from harmonium.distributed import Distributed, as_group
from harmonium.likelihood.log_partition import WITHOUT_DATA, LogPartition
from harmonium.machine import BoltzmannMachine, Hamiltonian, Part, States, fitted_layer, require_distribution

_PILOT_SWEEPS = 100  # a tenth of the default annealing, which they must not outweigh
_REPLICAS = 10  # of tempered chains: the default of ``Tempering``
_BLOCK = 4  # temperatures of a recording, which shares what they read; more of them take longer to record
CLIMB_SWEEPS = 30  # sweeps to a local mode at most; units of two values seldom take ten
_ENOUGH = 0.5  # effective runs of all runs, below which the standard error is too small (docs/decisions/0007)
_MISSED = 0.05  # reverse runs of all runs that may be heavier than every forward run


@torch.no_grad()
def ais(
    machine: BoltzmannMachine,
    chains: int = 100,
    temperatures: int | Sequence[float] = 1000,
    *,
    data: Numbers | None = None,
    weights: Tensor | None = None,
    reverse: bool = True,
    seed: int | torch.Generator = 0,
    distributed: Distributed = None,
) -> LogPartition:
    """Estimates ln Z of any machine by annealing from independent units (Salakhutdinov & Murray 2008).

    The path is geometric: couplings βJ, natural parameters (1-β)θ_base + βθ. The base has no couplings and
    every layer's marginal moments, taken from ``data`` or from a pilot run. The layers of ``graph.summed``
    (the odd ones of a chain) are summed out with ψ at every β, so that a temperature costs one Gibbs sweep,
    two matrix products in a machine with one hidden layer.

    The reverse run anneals from the machine's own distribution to the base and bounds ln Z from the other
    side. It starts from ``data`` after 100 Gibbs sweeps of the machine, and the bound is as good as that
    start.

    Without ``data`` the reverse run has no trusted samples to start from. Two starts are made instead: one
    from the forward chains, resampled by their weights, which shares what these have missed, and one from
    local modes found from forward chains, tempered chains, chains from noise and noise itself. The larger
    upper bound is returned. If more than one reverse run in twenty is heavier than every forward run, the
    forward run has missed a mode, and the result and a warning say so. A mode that no chain found cannot be
    detected. This takes about half as long again as with data.

    Args:
        machine: the machine.
        chains: independent annealing runs, at least 2.
        temperatures: number of evenly spaced β after 0, at least 1; or the β themselves, rising from 0 to 1.
        data: visible states (rows, visible_width) for the base and the reverse start; training data serve
            best. Without them the result's ``doubts`` say so.
        weights: Row weights of ``data``, (rows,), at least 0 and not all 0; None means uniform.
        reverse: whether to run the reverse bound (it doubles the time).
        seed: an int or a generator.
        distributed: processes that share the runs, as in ``chains.run``; all get the result.

    Returns:
        Both bounds, the estimate, its standard error and the effective sample size, with all that speaks
        against them. See ``LogPartition`` for what each of them promises.

    Warns:
        RuntimeWarning: the effective sample size is less than half the number of chains, so that the standard
            error is too small and the value most likely too low; or the bounds contradict each other.

    Raises:
        ValueError: β that do not rise from 0 to 1, too few chains, bad data, or a machine whose weights are
            not finite.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], seed=0)
        >>> estimate = hm.likelihood.ais(machine, chains=50, temperatures=20, seed=0)
        >>> estimate.lower <= hm.likelihood.exact_log_partition(machine) <= estimate.upper
        True
    """
    chains = _checks.positive_int(chains, "chains", minimum=2)
    betas = read_temperatures(temperatures)
    group = as_group(distributed)
    part = group.rows(chains, "chains")
    generator = _random.as_generator(seed, machine.device)
    target = machine.hamiltonian()
    require_distribution(target)
    if data is None:
        if weights is not None:
            raise ValueError("weights: expected None without data, received weights")
        pilot = _mix(target, machine.random_states(chains, seed=generator), generator)
        visible = target.visible_states(pilot)
    else:
        visible = machine.visible_rows(data, "data")
        weights = _checks.weights(weights, "weights", len(visible))
        if weights is not None:
            weights = weights.to(target.device)
            visible, weights = visible[weights > 0], weights[weights > 0]
    # Independent units with the (weighted) marginal moments of the states.
    filled = fill_hidden(target, visible, generator).states
    fitted = [fitted_layer(layer, x, weights) for layer, x in zip(machine.layers, filled, strict=True)]
    base = machine.hamiltonian().with_layers(fitted)
    log_base = base.log_partition_of_independent()

    def anneal(start: States | None = None) -> tuple[Tensor, States]:
        """Anneals all runs from the base, or back to it from states; returns log weights and final states."""
        noise = group.own_noise(generator)
        if start is None:
            states, path = base.draw_independent(part.stop - part.start, noise), betas
        else:
            states, path = _mix(target, [x[part] for x in start], noise), betas[::-1]
        joined: tuple[Tensor, States] = join_rows(
            group.all_gather(anneal_chains(target, base, path, states, noise))
        )
        return joined

    log_weights, ends = anneal()
    value, error, ess = _average_weights(log_weights)
    value += log_base
    starts: list[States] = []
    if reverse and data is None:
        drawn = _random.weighted(log_weights.softmax(0), chains, generator)
        modes = draw_likely_modes(target, [ends, pilot], chains, _PILOT_SWEEPS, generator)
        starts = [[x[drawn] for x in ends], modes]
    elif reverse:
        if weights is None:
            rows = _random.integers(len(visible), (chains,), generator)
        else:
            rows = _random.weighted(weights, chains, generator)
        starts = [fill_hidden(target, visible[rows], generator).states]
    upper, missed = -inf if reverse else inf, 0
    for start in starts:
        log_ratios, _ = anneal(start)
        log_ratio, reverse_error, _ = _average_weights(log_ratios)
        upper = max(upper, log_base - log_ratio + 3 * reverse_error)
        if data is None:
            missed = max(missed, count_heavier(-log_ratios, log_weights))
    estimate = LogPartition(value, error, ess, value - 3 * error, upper)
    doubts = _list_doubts(estimate, chains, missed)
    for doubt in doubts:
        _checks.warn(doubt, RuntimeWarning)
    # An upper end within the error of the value is as good as the value: the interval has to hold it.
    lower, upper = (-inf, inf) if upper < estimate.lower else (estimate.lower, max(upper, value))
    estimate = estimate._replace(lower=lower, upper=upper)
    return estimate._replace(doubts=(*doubts, *([] if data is not None else [WITHOUT_DATA])))


def _list_doubts(estimate: LogPartition, chains: int, missed: int) -> list[str]:
    """Lists what speaks against an estimate; ``missed`` reverse runs were heavier than all forward runs."""
    doubts = []
    if estimate.ess < _ENOUGH * chains:
        doubts.append(
            f"log_partition: few annealing runs carry the estimate, {estimate.ess:.1f} of {chains}: it is "
            "likely too low, by more than its standard error says; quote the lower and upper bounds, or give "
            "more temperatures"
        )
    if estimate.upper < estimate.lower:
        doubts.append(
            f"log_partition: the upper bound, {estimate.upper:.3f}, lies below the lower one, "
            f"{estimate.lower:.3f}: the chains of the reverse run are not mixed, and nothing is bounded"
        )
    if missed > max(1, _MISSED * chains):
        doubts.append(
            f"log_partition: the forward run missed a mode of the machine: {missed} of {chains} reverse runs "
            "are heavier than all of its own, so that the estimate is too low and both bounds may be; give "
            "data= from the machine's distribution (training data, or long tempered chains)"
        )
    return doubts


def anneal_chains(
    target: Hamiltonian,
    base: Hamiltonian | Sequence[Tensor],
    betas: Sequence[float],
    states: States,
    generator: torch.Generator,
    clamped: Collection[int] = (),
) -> tuple[Tensor, States]:
    """Returns Σ ln p̃_next(x) - ln p̃_now(x) over every change of β, (chains,), and where the chains end.

    After each change a Gibbs sweep moves x, under a distribution of its own. Unlike that of ``chains.Gibbs``
    it draws the layers first that are summed out, from the fields that the weight has asked for. Serves both
    directions: the given states follow the distribution at the first of the betas. The ``base`` is
    independent units, or fields of those of ``target``, for each layer (chains, width_l); ``clamped`` layers
    stay.
    """
    graph = target.graph
    joined = any(l in graph.unsummed and m in graph.unsummed for l, m in graph.edges)
    free = [l for l in graph.unsummed if l not in clamped]
    cold, fields = (base, None) if isinstance(base, Hamiltonian) else (target, base)
    parts = [part for part in graph.backwards if part.layer not in clamped]
    # θ·t is linear in θ, and θ in β: of layers that are not summed out only the slope is needed.
    slopes = [torch._foreach_sub(target.thetas[l], cold.thetas[l]) for l in free]

    def move(state: Annealed, betas: Sequence[float] | Tensor, change: float | Tensor) -> Annealed:
        """Goes from one β to the next, and draws all that is not clamped there; ``change`` is in float64."""
        total, states = state.log_weights, list(state.states)
        if joined:
            total = total + change * target.coupling_energy(states, graph.unsummed)
        for l, slope in zip(free, slopes, strict=True):
            x = states[l]  # the first statistic is x itself
            if fields is not None:
                total = total - change * (fields[l] * x).sum(-1, dtype=torch.float64)
                continue
            terms = map(torch.matmul, (x,) if len(slope) == 1 else target.layers[l].statistics(x), slope)
            total = total + reduce(torch.add, terms).double() * change
        steps: Iterable[tuple[Part, Tensor | None]] = zip(parts, repeat(None))
        if graph.inner and fields is None:  # whose units may be drawn one after the other
            pairs = zip(cold.thetas, target.thetas, strict=True)
            thetas = tuple(half_steps.between(ends, betas[1]) for ends in pairs)
            at_next = replace(target, thetas=thetas, beta=betas[1])
            steps = half_steps.walk(at_next, states, parts, generator)
        for part, in_turn in steps:
            l = part.layer
            if in_turn is not None:
                states[l] = in_turn
                continue
            ends = cold.thetas[l], target.thetas[l]
            start = None if fields is None else part.select_states(fields[l])
            x, rise = half_steps.anneal(
                target, part, states, generator, ends, betas, l in graph.summed, start
            )
            total = total + rise
            states[l] = x if part.columns is None else part.put_states(x, states[l])
        return Annealed(total, states)

    end = Annealed(torch.zeros(len(states[0]), dtype=torch.float64, device=target.device), list(states))
    recorded = pays(target.device, len(betas) - 1)
    unrecorded = (len(betas) - 1) % _BLOCK if recorded else len(betas) - 1
    for now, following in pairwise(betas[: unrecorded + 1]):
        end = move(end, (now, following), following - now)
    if recorded:
        end = _anneal_recorded(move, end, betas[unrecorded:], generator)
    return end.log_weights, end.states


@record
class Annealed(NamedTuple):
    """Annealed chains: their log weights, (chains,) float64, and states of each layer."""

    log_weights: Tensor
    states: States


def _anneal_recorded(
    move: Callable[[Annealed, Tensor, Tensor], Annealed],
    begun: Annealed,
    betas: Sequence[float],
    generator: torch.Generator,
) -> Annealed:
    """Anneals chains by recorded blocks of temperatures, which find on the device where they have come to."""
    device, dtype = generator.device, begun.states[0].dtype
    path = torch.tensor(betas, dtype=torch.float64, device=device)
    block = torch.arange(_BLOCK + 1, device=device)

    def step(state: tuple[Tensor, Annealed]) -> tuple[Tensor, Annealed]:
        at, annealed = state
        values = path.index_select(0, at + block)
        changes, rounded = values.diff(), values.to(dtype)
        for i in range(_BLOCK):
            annealed = move(annealed, rounded[i : i + 2], changes[i])
        return at + _BLOCK, annealed

    start = torch.zeros(1, dtype=torch.long, device=device)
    recording = Recording(step, (start, begun), device, [generator])
    for _ in range((len(betas) - 1) // _BLOCK):
        recording.advance()
    end: Annealed = recording.state[1]
    return end


def _mix(hamiltonian: Hamiltonian, states: States, generator: torch.Generator) -> States:
    """Returns chains after the sweeps of a pilot run."""
    chains = KernelState(states, 0)
    return run_kernel(hamiltonian, Gibbs(), chains, _PILOT_SWEEPS, generator).states


def draw_likely_modes(
    hamiltonian: Hamiltonian, others: Sequence[States], chains: int, sweeps: int, generator: torch.Generator
) -> States:
    """Draws local modes of a machine by their weight, from all that several kinds of chains lead to.

    Candidates are states of other chains, all replicas of tempered chains and noise, about ``chains`` each.
    Every candidate climbs to a local mode. A distinct mode is drawn with probability proportional to exp(-F),
    so that light modes, which any chain may be caught in, count for little.
    """
    noise = [hamiltonian.pure_noise(l, chains, generator) for l in range(len(hamiltonian.layers))]
    tempering = Tempering(_REPLICAS)
    few = [x[: -(-chains // _REPLICAS)] for x in noise]
    replicas = tempering.init(hamiltonian, few, generator, sweeps)
    tempered = run_kernel(hamiltonian, tempering, replicas, sweeps, generator).memory.states
    modes = [torch.cat(layer) for layer in zip(*others, tempered, noise, strict=True)]
    climb(hamiltonian, modes, hamiltonian.graph.backwards, CLIMB_SWEEPS)
    states = torch.cat([modes[l] for l in hamiltonian.graph.unsummed], -1)
    _, which, copies = torch.unique(states, dim=0, return_inverse=True, return_counts=True)
    weight = -hamiltonian.free_energy(modes, hamiltonian.graph.summed) - copies[which].log()
    drawn = _random.weighted(weight.softmax(0), chains, generator)
    return [x[drawn] for x in modes]


def count_heavier(backward: Tensor, forward: Tensor) -> int:
    """Counts reverse runs whose log weights, taken forwards, are above the largest of the forward run by 1.

    By Crooks' relation a reverse run from the machine's own distribution has each weight as often as a
    forward run, times the weight over its mean. Their share therefore estimates the part of Z that the
    forward run missed.
    """
    return int((backward > forward.max() + 1).sum())


def _average_weights(log_weights: Tensor) -> tuple[float, float, float]:
    """Returns ln of the mean weight, its standard error (delta method), and the effective sample size."""
    n = len(log_weights)
    check_weights(log_weights)
    value = float(log_weights.logsumexp(0)) - log(n)
    relative = (log_weights - value).exp()
    error = float(relative.std()) / n**0.5
    return value, error, float(relative.sum() ** 2 / relative.square().sum())


def read_temperatures(temperatures: int | Sequence[float]) -> list[float]:
    """Returns the β of annealing, from 0 to 1, given their number or themselves."""
    if isinstance(temperatures, str) or not isinstance(temperatures, Iterable):
        count = _checks.positive_int(temperatures, "temperatures")
        return [float(beta) for beta in torch.linspace(0, 1, count + 1, dtype=torch.float64)]
    betas = _checks.reals(temperatures, "temperatures")
    rising = all(a < b for a, b in pairwise(betas))
    if len(betas) < 2 or betas[0] != 0 or betas[-1] != 1 or not rising:
        raise ValueError(
            f"temperatures: expected a count, or numbers that rise from 0 to 1, received {betas}"
        )
    return betas


def check_weights(log_weights: Tensor) -> None:
    """Refuses annealing weights that are not finite."""
    if not bool(torch.isfinite(log_weights).all()):
        raise ValueError(
            "machine: expected finite annealing weights, received others; Gaussian layers side by side may "
            "have no normaliser at all"
        )
