"""Kernels, pairs and rules on graphs of layers: no drift, each chain's own distribution, unbiased gradients.

Exact draws and expectations come from an oracle that shares no code with the library. Failure rate of every
test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from exact.graph_oracle import GraphOracle
from exact.graphs import data_for, holes, make, oracle_of
from scipy import stats

import harmonium as hm
from harmonium.coupled import run_pairs
from harmonium.machine import Statistics

from .lots import gradients_in_lots, in_lots
from .support import FAILURE_RATE, flat, largest_z
from .test_chains import Simultaneous

ROWS = 5_000
SWEEPS = 2
LOTS = 40
NAMES = [  # one of every shape; tests/exact/test_graphs.py has the others
    *("two visible kinds", "label on top of a deep machine", "fully visible Potts", "spins on a lattice"),
    *("semi-restricted and sparse", "lateral hidden units", "a triangle of layers", "four colours"),
    "hidden layers at the ends of a path",
]
KERNELS = [hm.chains.Gibbs(), hm.chains.Metropolis(), hm.chains.Tempering(3)]


@cache
def oracle(name: str, beta: float = 1.0) -> GraphOracle:
    """Of a machine of discrete units at an inverse temperature of its couplings."""
    machine = make(name)
    with torch.no_grad():
        for coupling in machine.couplings:
            coupling.weight.mul_(beta)
    return oracle_of(machine)


def exact_draws(name: str, rows: int, generator: torch.Generator, beta: float = 1.0) -> list[torch.Tensor]:
    states, probability = oracle(name, beta).probabilities()
    drawn = torch.multinomial(probability.detach(), rows, replacement=True, generator=generator)
    return [x[drawn].contiguous() for x in states]


def expected(name: str) -> torch.Tensor:
    layers, edges = oracle(name).expectations()
    return torch.cat([part.flatten() for part in (*(layer[0] for layer in layers), *edges)]).detach()


def seen(name: str, states: list[torch.Tensor]) -> torch.Tensor:
    pairs = [states[l].unsqueeze(-1) * states[m].unsqueeze(-2) for l, m in make(name).edges]
    return torch.cat([*states, *(pair.flatten(1) for pair in pairs)], 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: repr(kernel).replace(", step=1", ""))
def test_no_drift(name, kernel):
    """Replicas start at the distributions of their temperatures: only all of them together are at rest."""
    generator = torch.Generator().manual_seed(1)
    betas = kernel.betas if isinstance(kernel, hm.chains.Tempering) else (1.0,)
    lots = [exact_draws(name, ROWS, generator, beta) for beta in betas]
    hamiltonian = make(name).hamiltonian()
    state = kernel.init(hamiltonian, lots[0], generator, SWEEPS)
    if len(betas) > 1:
        replicas = [torch.cat(parts) for parts in zip(*lots, strict=True)]
        state = state._replace(memory=replace(state.memory, states=replicas))
    with torch.no_grad():
        states = hm.chains.run_kernel(hamiltonian, kernel, state, SWEEPS, generator).states
    z, limit = largest_z(seen(name, states), expected(name))
    assert z < limit


@pytest.mark.parametrize("name", [name for name in NAMES if make(name).edges])
def test_a_wrong_kernel_is_caught(name):
    generator = torch.Generator().manual_seed(1)
    start = exact_draws(name, ROWS, generator)
    states = hm.chains.run(make(name), Simultaneous(), start, SWEEPS, seed=generator)
    z, limit = largest_z(seen(name, states), expected(name))
    assert z > limit


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("coupling", [hm.coupled.Gibbs(), hm.coupled.Metropolis()], ids=repr)
def test_both_chains_of_a_pair_keep_the_distribution(name, coupling):
    """Pairs that start independently at the distribution, moved together: each chain alone does not drift."""
    machine = make(name)
    hamiltonian = machine.hamiltonian()
    generator = torch.Generator().manual_seed(2)
    start = exact_draws(name, 2 * ROWS, generator)
    with torch.no_grad():
        place = coupling.prepare(hamiltonian, hm.coupled.ChainState(start, {}), copies=2)
        for _ in range(SWEEPS):
            place, _ = coupling.coupled(hamiltonian, place, generator)
            place = coupling.prepare(hamiltonian, hm.coupled.ChainState(place.states, {}), copies=2)
    for half in (slice(0, ROWS), slice(ROWS, None)):
        z, limit = largest_z(seen(name, [x[half] for x in place.states]), expected(name))
        assert z < limit


@pytest.mark.parametrize("name", NAMES)
def test_pairs_that_met_stay_together(name):
    machine = make(name).float()
    generator = torch.Generator().manual_seed(3)
    start = data_for(machine, 200)
    meetings = hm.coupled.meet(machine, hm.coupled.Gibbs(), start, max_sweeps=5000, seed=generator)
    assert not bool(meetings.capped.any())
    hamiltonian, coupling = machine.hamiltonian(), hm.coupled.Gibbs()
    same = [x.repeat(2, 1) for x in meetings.states]
    with torch.no_grad():
        place = coupling.prepare(hamiltonian, hm.coupled.ChainState(same, {}), copies=2)
        moved, _ = coupling.coupled(hamiltonian, place, generator)
    for x in moved.states:
        first, second = x.chunk(2)
        assert torch.equal(first, second)


@pytest.mark.parametrize("name", [NAMES[i] for i in (0, 1, 3, 4, 5, 6, 8)])
def test_coupled_chains_estimate_the_statistics_without_bias(name):
    """H_{k:m} from noise, far from the distribution, against the oracle's expectations."""
    machine = make(name).float()
    hamiltonian, total = machine.hamiltonian(), Statistics(machine.hamiltonian())
    generator = torch.Generator().manual_seed(0)
    start = machine.random_states(LOTS * 220, seed=generator)

    def run() -> None:
        run_pairs(
            hamiltonian, hm.coupled.Gibbs(), start, k=1, m=2, lag=1, max_sweeps=None,
            generator=generator, into=total, weight=1 / len(start[0]),
        )  # fmt: skip

    estimates = torch.stack([flat(lot).double() for lot in in_lots(hamiltonian, total, LOTS, run)])
    oracle_layers, oracle_edges = oracle(name).expectations()
    halves = [edge / 2 if l == m else edge for edge, (l, m) in zip(oracle_edges, machine.edges, strict=True)]
    truth = torch.cat([part.flatten() for part in (*(layer[0] for layer in oracle_layers), *halves)]).detach()
    fixed = estimates.std(0) < 1e-6  # such as the square of a spin
    np.testing.assert_allclose(estimates.mean(0)[fixed], truth[fixed], atol=1e-5)
    z, limit = largest_z(estimates[:, ~fixed], truth[~fixed])
    assert z < limit


UNBIASED = ["two visible kinds", "label on top of a deep machine", "semi-restricted", "a triangle of layers"]


@pytest.mark.parametrize(("name", "observed"), [*zip(UNBIASED, ["all", "in part"] * 2, strict=True)])
def test_unbiased_contrastive_divergence(name, observed):
    """Also where rows have entries that are not observed."""
    check_unbiased(name, hm.rules.ucd(1, 1), observed)


FROM_MODES = [*UNBIASED[:2], "hidden layer in the middle", NAMES[-1]]


@pytest.mark.parametrize(("name", "observed"), [*zip(FROM_MODES, ["in part", "all"] * 2, strict=True)])
def test_unbiased_from_local_modes(name, observed):
    """Its readings also sum visible layers out, each row with what it holds of them."""
    check_unbiased(name, hm.rules.ucd_lmi(pair_kernel=hm.coupled.Gibbs()), observed)


def check_unbiased(name: str, rule: hm.learning.Rule, observed: str) -> None:
    """Estimates of a gradient, each over the same 80 rows, against the oracle's."""
    machine = make(name)
    v = data_for(machine, 80)
    if observed == "in part":
        v = holes(machine, v)
    truth = torch.cat([g.flatten() for g in oracle(name).gradient(v).values()])
    estimates = torch.stack([
        torch.cat([found[key].flatten() for key in oracle(name).parameters])
        for found in gradients_in_lots(rule, machine, v.repeat(LOTS, 1), LOTS)
    ])  # fmt: skip
    error = estimates.std(0) / len(estimates) ** 0.5
    moving = error > 1e-12
    difference = (estimates.mean(0) - truth).abs()
    assert bool((difference[~moving] < 1e-9).all())
    limit = stats.t.isf(FAILURE_RATE / (2 * int(moving.sum())), len(estimates) - 1)
    assert float((difference[moving] / error[moving]).max()) < limit


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.mostly_nightly(2)
def test_annealed_importance_sampling(name):
    """The bounds hold, and the estimate is within its error where the sample is large."""
    machine = make(name)
    truth = float(oracle(name).log_partition().detach())
    found = hm.likelihood.ais(machine, chains=900, temperatures=40, seed=1)
    assert found.lower <= truth <= found.upper
    assert found.ess > 50
    assert abs(found.value - truth) < 4 * found.standard_error


@pytest.mark.parametrize("name", NAMES)
def test_chains_with_entries_held_follow_the_conditional_distribution(name):
    """The first column of every visible layer's first unit held at its most probable state."""
    machine = make(name)
    generator = torch.Generator().manual_seed(4)
    states, probability = oracle(name).probabilities()
    l = machine.visible[0]
    layer = machine.layers[l]
    columns = layer.width // layer.n_units
    value = states[l][int(probability.argmax()), :columns]
    fits = (states[l][:, :columns] == value).all(-1)
    weights = torch.where(fits, probability, 0.0)
    weights = weights / weights.sum()
    clamp = torch.full((ROWS, layer.width), torch.nan, dtype=torch.float64)
    clamp[:, :columns] = value
    drawn = torch.multinomial(weights.detach(), ROWS, replacement=True, generator=generator)
    start = [x[drawn].contiguous() for x in states]
    moved = hm.chains.run(machine, hm.chains.Gibbs(), start, SWEEPS, {l: clamp}, seed=generator)
    truth = weights.detach() @ seen(name, states)
    z, limit = largest_z(seen(name, moved), truth)
    assert z < limit
