"""Kernels leave the machine's distribution where it is: chains that start exactly there do not drift.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

import pytest
import torch

import harmonium as hm
from harmonium.chains import Kernel, KernelState

from .support import (
    DISCRETE,
    FOR_CHAINS,
    MACHINES,
    exact_states,
    exact_statistics,
    largest_z,
    machine,
    row_statistics,
    z_limit,
)

ROWS = 8_000
SWEEPS = 4


class Simultaneous(Kernel):
    """A wrong kernel: every layer is drawn from the old state of its neighbours."""

    invariant = False

    def step(self, hamiltonian, state, generator):
        fields = [hamiltonian.field(l, state.states) for l in range(len(state.states))]
        states = [hamiltonian.sample(l, field, generator) for l, field in enumerate(fields)]
        return KernelState(states, state.sweeps + 1), {}


def drift(name: str, kernel: Kernel) -> tuple[float, float]:
    made = machine(name)
    hamiltonian = made.hamiltonian()
    generator = torch.Generator().manual_seed(1)
    start = exact_states(made, ROWS, generator)
    states = hm.chains.run(made, kernel, start, SWEEPS, seed=generator)
    return largest_z(row_statistics(hamiltonian, states), exact_statistics(hamiltonian))


@pytest.mark.parametrize("name", [*MACHINES, *FOR_CHAINS])
def test_the_start_is_exact(name):
    made = machine(name)
    states = exact_states(made, ROWS, torch.Generator().manual_seed(2))
    hamiltonian = made.hamiltonian()
    z, limit = largest_z(row_statistics(hamiltonian, states), exact_statistics(hamiltonian))
    assert z < limit


@pytest.mark.mostly_nightly(10)
@pytest.mark.parametrize("name", [*MACHINES, *FOR_CHAINS])
@pytest.mark.parametrize(
    "kernel", [hm.chains.Gibbs(), hm.chains.Metropolis(), hm.chains.Tempering(4)], ids=repr
)
def test_no_drift(name, kernel):
    z, limit = drift(name, kernel)
    assert z < limit


@pytest.mark.parametrize("name", DISCRETE)
def test_a_wrong_kernel_is_caught(name):
    z, limit = drift(name, Simultaneous())
    assert z > limit


@pytest.mark.parametrize(
    "kernel", [hm.chains.Gibbs(), hm.chains.Metropolis(), hm.chains.Tempering(5)], ids=repr
)
def test_chains_reach_the_distribution_from_noise(kernel):
    """20 sweeps from noise on a machine that mixes fast: the bias left is far below the Monte-Carlo error."""
    made = machine("spin-bernoulli-categorical", scale=0.4)
    hamiltonian = made.hamiltonian()
    generator = torch.Generator().manual_seed(3)
    states = made.random_states(ROWS, seed=generator)
    states = hm.chains.run(made, kernel, states, 20, seed=generator)
    z, limit = largest_z(row_statistics(hamiltonian, states), exact_statistics(hamiltonian))
    assert z < limit


@pytest.mark.parametrize(
    "kernel", [hm.chains.Gibbs(), hm.chains.Metropolis(), hm.chains.Tempering(4)], ids=repr
)
def test_clamped_chains_follow_the_conditional_distribution(kernel):
    """Half of the visible units clamped: the rest is distributed as exact draws that agree with them."""
    made = machine("bernoulli-spin")
    hamiltonian = made.hamiltonian()
    generator = torch.Generator().manual_seed(4)
    exact = exact_states(made, 8 * ROWS, generator)
    kept = (exact[0][:, 0] == 1) & (exact[0][:, 1] == 0)
    reference = row_statistics(hamiltonian, [x[kept] for x in exact])
    clamp = torch.full((ROWS, 4), torch.nan, dtype=torch.float64)
    clamp[:, 0], clamp[:, 1] = 1, 0
    states = made.random_states(ROWS, seed=generator)
    states = hm.chains.run(made, kernel, states, 30, clamp, seed=generator)
    assert bool((states[0][:, 0] == 1).all() and (states[0][:, 1] == 0).all())
    drawn = row_statistics(hamiltonian, states)
    error = (drawn.var(0) / len(drawn) + reference.var(0) / len(reference)).sqrt()
    difference = (drawn.mean(0) - reference.mean(0)).abs()
    moving = error > 1e-12
    z = difference[moving] / error[moving]
    assert float(z.max()) < z_limit(len(z))
    assert bool((difference[~moving] < 1e-9).all())


def test_tempering_crosses_between_modes_that_gibbs_does_not():
    """Two units in a strong ferromagnet: Gibbs stays where it started, tempering visits both sides."""
    made = hm.BoltzmannMachine([hm.Spin(10), hm.Spin(10)])
    with torch.no_grad():
        made.couplings[0].weight.fill_(0.6)
    up = [torch.ones(200, 10), torch.ones(200, 10)]
    generator = torch.Generator().manual_seed(5)
    stuck = hm.chains.run(made, hm.chains.Gibbs(), up, 200, seed=generator)
    free = hm.chains.run(made, hm.chains.Tempering(20), up, 200, seed=generator)
    assert float((stuck[0].mean(1) > 0).float().mean()) > 0.95
    # Of 200 chains about half are down: 0.35 is more than four standard errors away.
    assert 0.35 < float((free[0].mean(1) > 0).float().mean()) < 0.65


@pytest.mark.nightly
def test_adapted_temperatures_swap_equally_often():
    """A ferromagnet of 60 spins, all joined: evenly spaced ones swap once in eight to five times in six."""
    machine = hm.BoltzmannMachine([hm.Spin(60)], {(0, 0): hm.Dense()}, [0], seed=None)
    machine.couplings[0].fill_(2 / 60 * (1 - torch.eye(60)))
    hamiltonian = machine.hamiltonian()

    def acceptance(kernel: hm.chains.Tempering) -> torch.Tensor:
        generator, shares = torch.Generator().manual_seed(9), []
        state = kernel.init(hamiltonian, machine.random_states(300, seed=generator), generator)
        steps = -torch.tensor(kernel.betas, dtype=torch.float64).diff().unsqueeze(-1)
        for number in range(160):
            state, _ = kernel.step(hamiltonian, state, generator)
            if number >= 80:
                coupling = (
                    hamiltonian.coupling_energy(state.memory.states).view(len(kernel.betas), -1).detach()
                )
                shares.append((steps * coupling.diff(dim=0)).clamp(max=0).exp().mean(1))
        return torch.stack(shares).mean(0)

    even = hm.chains.Tempering(replicas=6)
    adapted = even.adapt(machine, seed=0)
    before, after = acceptance(even), acceptance(adapted)
    assert before.min() < 0.2 and before.max() > 0.75
    assert after.max() - after.min() < 0.1 and len(adapted.betas) == 6
    with pytest.raises(ValueError, match="sweeps: expected an int of at least 35"):
        even.adapt(machine, sweeps=1, seed=0)
