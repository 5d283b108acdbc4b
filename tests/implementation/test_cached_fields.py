"""What a sweep knows of fields is true of the states it hands on, and spares the next one a product."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

import harmonium as hm
from harmonium.backends import PreparedMatrix
from harmonium.chains import Gibbs, GibbsLangevin, Kernel, Langevin, Metropolis

KERNELS: list[Kernel] = [
    Gibbs(),
    Metropolis(),
    GibbsLangevin(0.5, 3, "exact"),
    GibbsLangevin(0.5, 3, "metropolis"),
    GibbsLangevin(0.5, 3, "metropolis", adjust=2),
    Langevin(0.3),
]
MACHINES = {
    "rbm": [hm.Gaussian(5), hm.Bernoulli(7)],
    "hidden": [hm.Bernoulli(5), hm.Gaussian(3)],
    "both": [hm.Gaussian(4), hm.Gaussian(3)],
    "deep": [hm.Gaussian(4), hm.Spin(6), hm.Bernoulli(3), hm.Gaussian(2)],
    "beside": [hm.Gaussian(4), hm.Spin(6), hm.Bernoulli(3)],
}
ROWS = 40


def made_hamiltonian(name: str, held: bool) -> hm.machine.Hamiltonian:
    made = hm.BoltzmannMachine(MACHINES[name], seed=0).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    v = made.random_states(ROWS, seed=generator)[0]
    v[:, 0] = torch.nan
    return made.hamiltonian().clamp(v if held else None, ROWS)


@torch.no_grad()
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_a_sweep_that_goes_on_is_the_sweep_from_its_states(kernel, name, held):
    hamiltonian = made_hamiltonian(name, held)
    generator = torch.Generator().manual_seed(1)
    states = [hamiltonian.pure_noise(l, ROWS, generator) for l in range(len(hamiltonian.layers))]
    state = kernel.init(hamiltonian, hamiltonian.clamp_states(states), generator, planned=5)
    for _ in range(5):
        before = generator.get_state()
        without_caches = state.without_caches()
        afresh, _ = kernel.step(hamiltonian, without_caches, generator)
        generator.set_state(before)
        state, _ = kernel.step(hamiltonian, state, generator)
        torch.testing.assert_close(state.states, afresh.states)
        for l, field in state.fields.items():
            torch.testing.assert_close(field, hamiltonian.field(l, state.states))
    assert state.sweeps == 5


@torch.no_grad()
@pytest.mark.parametrize(
    ("kernel", "products"), [(GibbsLangevin(0.1, 10, "metropolis"), 2), (Langevin(0.1), 3)], ids=repr
)
def test_a_tested_sweep_computes_no_field_again(kernel, products, monkeypatch):
    hamiltonian = made_hamiltonian("rbm", held=False)
    counted = []
    times = PreparedMatrix.times
    monkeypatch.setattr(
        PreparedMatrix, "times", lambda *args, **kwargs: counted.append(1) or times(*args, **kwargs)
    )
    generator = torch.Generator().manual_seed(1)
    start = [hamiltonian.pure_noise(l, ROWS, generator) for l in range(2)]
    numbers = []
    begun = kernel.init(hamiltonian, start, generator, 4)
    hm.chains.run_kernel(
        hamiltonian, kernel, begun, 4, generator, lambda number, *_: numbers.append(len(counted))
    )
    assert [b - a for a, b in pairwise(numbers)] == [products] * 3


@torch.no_grad()
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("widths", [(9, 7), (9, 7, 5)])
def test_a_search_knows_the_fields_of_its_modes(widths, held):
    made = hm.BoltzmannMachine([hm.Spin(n) for n in widths], seed=0)
    generator = torch.Generator().manual_seed(0)
    made.couplings[0].weight.copy_(torch.randn(widths[:2], generator=generator))
    start = made.random_states(ROWS, seed=generator)
    hamiltonian = made.hamiltonian().clamp(start[0] if held else None, ROWS)
    modes, _ = hm.chains.search(hamiltonian, start, generator)
    assert sorted(modes.fields) == list(range(int(held), len(widths)))
    for l, field in modes.fields.items():
        torch.testing.assert_close(field, hamiltonian.field(l, modes.states))


@torch.no_grad()
def test_fields_of_what_is_held_are_those_of_the_states():
    """Also of joined layers that are both held, for some rows, and after a coupling has changed in place."""
    layers = [hm.Bernoulli(4), hm.Spin(3), hm.Bernoulli(5)]
    made = hm.BoltzmannMachine(layers, edges=[(0, 1), (0, 2), (1, 2)], visible=(0, 1), seed=0).double()
    states = made.random_states(ROWS, seed=torch.Generator().manual_seed(0))
    free = made.hamiltonian()
    hamiltonian = free.clamp(free.visible_states(states), ROWS)
    assert hamiltonian.is_clamped(0)
    assert hamiltonian.is_clamped(1)
    rows = torch.tensor([3, 3, 0])
    for _ in range(2):
        for l in (0, 1, 2, 2):
            field = hamiltonian.field(l, states)
            torch.testing.assert_close(field, free.field(l, states))
            some = [x[rows] for x in states]
            torch.testing.assert_close(hamiltonian.select_rows(rows).field(l, some), free.field(l, some))
            field.add_(1.0)  # the caller's own
        other = made.random_states(ROWS, seed=torch.Generator().manual_seed(1))
        torch.testing.assert_close(hamiltonian.field(2, other), free.field(2, other))
        for coupling in made.couplings:
            coupling.weight.mul_(2)


@pytest.mark.parametrize("rule", [hm.rules.pcd(), hm.rules.mean_field_pcd()], ids=repr)
def test_data_meet_a_coupling_once_in_an_update(rule, monkeypatch):
    """The clamped phase multiplies them with it, and the free phase its own visible states."""
    made = hm.BoltzmannMachine([hm.Bernoulli(40), hm.Bernoulli(30), hm.Bernoulli(20)], seed=0)
    v = made.random_states(ROWS, seed=torch.Generator().manual_seed(0))[0]
    state = rule.gradient(made, v, seed=torch.Generator().manual_seed(1)).state
    widths = []
    times = PreparedMatrix.times
    monkeypatch.setattr(
        PreparedMatrix,
        "times",
        lambda self, x, transposed=False: widths.append(x.shape[1]) or times(self, x, transposed),
    )
    rule.gradient(made, v, state=state, seed=torch.Generator().manual_seed(2))
    assert widths.count(40) == 2


def test_pairs_begin_with_the_fields_they_were_drawn_from(monkeypatch):
    made = hm.BoltzmannMachine([hm.Bernoulli(40), hm.Bernoulli(30)], seed=0).double()
    v = made.random_states(ROWS, seed=torch.Generator().manual_seed(0))[0]
    widths = []
    times = PreparedMatrix.times
    monkeypatch.setattr("harmonium.backends.choice.small_pairs", lambda *_: False)  # not the compiled pairs
    monkeypatch.setattr(
        PreparedMatrix,
        "times",
        lambda self, x, transposed=False: widths.append(x.shape[1]) or times(self, x, transposed),
    )
    hm.rules.ucd().gradient(made, v, seed=torch.Generator().manual_seed(2))
    assert widths[:3] == [40, 40, 30]  # the clamped phase, the start of the pairs, their first sweep


@torch.no_grad()
@pytest.mark.parametrize("name", MACHINES)
def test_fields_of_a_completed_state_are_its_own(name):
    hamiltonian = made_hamiltonian(name, held=False)
    v = hamiltonian.pure_noise(0, ROWS, torch.Generator().manual_seed(0))
    state = hm.chains.fill_hidden(hamiltonian, v, torch.Generator().manual_seed(1))
    assert state.fields
    for l, field in state.fields.items():
        torch.testing.assert_close(field, hamiltonian.field(l, state.states))
