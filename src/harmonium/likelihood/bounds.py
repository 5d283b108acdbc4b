"""Lower bounds on the log-likelihood of deep machines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.likelihood.ais import schedule
from harmonium.likelihood.log_partition import LogPartition
from harmonium.machine import BoltzmannMachine, Hamiltonian
from harmonium.meanfield import naive

_ROWS = 4096


@torch.no_grad()
def variational_bound(
    machine: BoltzmannMachine,
    X: Numbers,
    log_partition: float | LogPartition,
    *,
    tolerance: float = 1e-5,
    max_sweeps: int = 1000,
) -> Tensor:
    """E_q[-E] + H(q) - ln Z ≤ ln p(v), q the mean-field posterior (Salakhutdinov & Larochelle 2010).

    Where no two hidden layers are joined and all is observed q is exact, and so is the value. It is a bound
    at any q, converged or not, as far as ln Z is right: an estimate of ln Z that is too low makes it too
    good.

    Args:
        machine: the machine.
        X: visible states, (batch, visible_width). NaN is not observed: of such a row it is a bound on ln p of
            what is observed, with the law of the rest, given that, factorised too.
        log_partition: ln Z, exact or estimated; an error in it shifts every row alike. Of a ``LogPartition``
            the value is taken, which is on average too low; only with its ``upper`` is the result a bound as
            far as that is one.
        tolerance: see ``meanfield.naive``.
        max_sweeps: see ``meanfield.naive``.

    Returns:
        (batch,), float64, in nats.
    """
    X = machine.visible_rows(X, "X", missing=True)
    parts = [
        -naive(machine, v, v, tolerance=tolerance, max_sweeps=max_sweeps).free_energy
        for v in torch.split(X, _ROWS)
    ]
    return torch.cat(parts) - _value(log_partition)


@torch.no_grad()
def annealed_bound(
    machine: BoltzmannMachine,
    X: Numbers,
    log_partition: float | LogPartition,
    *,
    chains: int = 10,
    temperatures: int | Sequence[float] = 100,
    seed: int | torch.Generator = 0,
) -> Tensor:
    """A bound on ln p(v) by annealing from the mean-field posterior to the true one.

    The path is geometric: every field is (1-β) times its mean-field value plus β times that of the
    neighbours. The layers of ``graph.summed`` are summed out with ψ. The mean of the weights is p̃(v) on
    average, so that its log is on average not above ln p̃(v), and not below the variational bound; it tightens
    with chains and temperatures.

    Args:
        machine: the machine.
        X: visible states, (batch, visible_width).
        log_partition: ln Z, as in ``variational_bound``.
        chains: annealing runs for every row, at least 1.
        temperatures: number of evenly spaced β after 0, at least 1; or the β themselves, rising from 0 to 1.
        seed: an int or a generator.

    Returns:
        (batch,), float64, in nats.
    """
    X = machine.visible_rows(X, "X")
    chains = _checks.positive_int(chains, "chains")
    betas = schedule(temperatures)
    if machine.graph.independent:
        return variational_bound(machine, X, log_partition)
    generator = _random.as_generator(seed, machine.device)
    parts = [
        _clamped_weights(machine.hamiltonian(), v, naive(machine, v, v).fields, chains, betas, generator)
        for v in torch.split(X, max(1, _ROWS // chains))
    ]
    return torch.cat(parts) - _value(log_partition)


def _clamped_weights(
    hamiltonian: Hamiltonian,
    v: Tensor,
    base: list[Tensor],
    chains: int,
    betas: list[float],
    generator: torch.Generator,
) -> Tensor:
    """ln of the mean weight of every row, (rows,)."""
    graph = hamiltonian.graph
    seen = hamiltonian.split(v)
    start = torch.stack([hamiltonian.log_weight(l, seen[l]).double() for l in graph.visible]).sum(0)
    start = start + torch.stack([hamiltonian.log_partition(l, base[l]) for l in graph.hidden]).sum(0)

    rows = torch.arange(len(v), device=v.device).repeat_interleave(chains)
    base = [field[rows] for field in base]
    states = [x[rows] if l in graph.visible else x for l, x in enumerate(seen)]
    given = [l for l in graph.hidden if l not in graph.summed]
    fixed = {*given, *graph.visible}
    parts = [part for part in graph.backwards if part.layer in given]
    for l in graph.hidden:
        states[l] = hamiltonian.sample(l, base[l], generator)
    total = torch.zeros(len(rows), dtype=torch.float64, device=v.device)
    for now, following in pairwise(betas):
        if any(l in fixed and m in fixed for l, m in graph.edges):
            total += (following - now) * hamiltonian.coupling_energy(states, fixed)
        for l in given:
            total -= (following - now) * (base[l] * states[l]).sum(-1, dtype=torch.float64)
        for l in graph.summed:
            full = hamiltonian.field(l, states)
            before, after = torch.lerp(base[l], full, now), torch.lerp(base[l], full, following)
            total += hamiltonian.log_partition(l, after) - hamiltonian.log_partition(l, before)
            states[l] = hamiltonian.sample(l, after, generator)
        for part in parts:
            l = part.layer
            field = torch.lerp(part.taken(base[l]), hamiltonian.field(part, states), following)
            states[l] = part.put(hamiltonian.sample(part, field, generator), states[l])
    weights = total.view(len(v), chains).logsumexp(-1) - log(chains)
    if not bool(torch.isfinite(weights).all()):
        raise ValueError(
            "machine: expected finite annealing weights, received others; Gaussian layers side by side may "
            "have no normaliser at all"
        )
    return start + weights


def _value(log_partition: float | LogPartition) -> float:
    value = log_partition.value if isinstance(log_partition, LogPartition) else log_partition
    return _checks.real(value, "log_partition")
