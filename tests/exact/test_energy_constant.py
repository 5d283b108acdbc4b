"""A constant of the energy: in energies, minima and every ln Z, and in no probability."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch

import harmonium as hm
from harmonium import likelihood, meanfield

from . import graphs

CONSTANT = -37.25
X = torch.bernoulli(torch.full((40, 4), 0.5), generator=torch.Generator().manual_seed(1))


def make(constant: float, deep: bool = False) -> hm.BoltzmannMachine:
    layers = [hm.Bernoulli(4), hm.Spin(3), hm.Bernoulli(2)] if deep else [hm.Bernoulli(4), hm.Spin(3)]
    machine = graphs.with_drawn_parameters(hm.BoltzmannMachine(layers).double(), 0.7)
    machine.constant = constant
    return machine


LIFTED: dict[str, Callable[[hm.BoltzmannMachine], float]] = {
    "energy": lambda m: m.energy(m.random_states(1, seed=0)).item(),
    "free energy": lambda m: m.free_energy(X[:1]).item(),
    "lowest, exact": lambda m: hm.tasks.minimise(m).energies[0].item(),
    "lowest, annealed": lambda m: hm.tasks.minimise(m, 5, sweeps=5, method="anneal").energies[0].item(),
    "naive mean field": lambda m: meanfield.naive(m, X[:1]).free_energy.item(),
    "TAP": lambda m: meanfield.tap(m, X[:1]).free_energy.item(),
    "exact ln Z": lambda m: -likelihood.exact_log_partition(m),
    "hidden states": lambda m: -likelihood.HiddenStates.of(m).log_partition,
    "annealed ln Z": lambda m: -likelihood.ais(m, 20, 20, data=X, seed=0).value,
    "its upper bound": lambda m: -likelihood.ais(m, 20, 20, data=X, seed=0).upper,
    "ladder ln Z": lambda m: (
        -hm.ladder.log_partitions(
            m, data=X, chains=10, warm_up=20, rounds=20, seed=0, progress=False
        ).log_partition.value
    ),
    "TAP ln Z": lambda m: -likelihood.tap_log_partition(m, X[:5]).value,
}


@pytest.mark.parametrize("name", LIFTED)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_it_lifts_energies_and_lowers_every_log_partition(name: str) -> None:
    found, expected = LIFTED[name](make(CONSTANT)), LIFTED[name](make(0.0)) + CONSTANT
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", sorted(graphs.GRAPHS))
def test_exact_log_partition_by_any_sum_has_it(name: str) -> None:
    machine = graphs.make(name)
    expected = likelihood.exact_log_partition(machine) - CONSTANT
    machine.constant = CONSTANT
    assert likelihood.exact_log_partition(machine) == pytest.approx(expected, abs=1e-9)


SCORES: dict[str, Callable[[hm.BoltzmannMachine, float], torch.Tensor]] = {
    "exact": lambda m, _: likelihood.exact_log_likelihood(m, X),
    "given ln Z": lambda m, z: likelihood.variational_bound(m, X, z),
    "annealed": lambda m, z: likelihood.annealed_bound(m, X, z, chains=2, temperatures=5),
    "TAP": lambda m, z: likelihood.tap_log_likelihood(m, X, z),
}


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", SCORES)
def test_no_probability_depends_on_it(name: str, deep: bool) -> None:
    plain, lifted = make(0.0, deep), make(CONSTANT, deep)
    scores = [SCORES[name](m, likelihood.exact_log_partition(m)) for m in (plain, lifted)]
    torch.testing.assert_close(*scores, rtol=0, atol=1e-9)


def test_rows_with_missing_cells_do_not_depend_on_it() -> None:
    rows = X.double().clone()
    rows[::2, 1] = torch.nan
    scores = [
        likelihood.log_likelihood(m, rows, likelihood.exact_log_partition(m))
        for m in (make(0.0), make(CONSTANT))
    ]
    torch.testing.assert_close(*scores, rtol=0, atol=1e-9)


def test_the_temperature_divides_it_as_the_couplings() -> None:
    machine, states = make(CONSTANT), make(0.0).random_states(6, seed=0)
    beta = torch.linspace(0, 1, 6).unsqueeze(1)
    gap = machine.hamiltonian().tempered(beta).energy(states)
    gap = gap - make(0.0).hamiltonian().tempered(beta).energy(states)
    torch.testing.assert_close(gap, CONSTANT * beta.squeeze(1).double())


def test_a_machine_without_couplings_or_biases_counts_its_states() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Spin(2)], seed=None)
    machine.constant = CONSTANT
    assert likelihood.exact_log_partition(machine) == pytest.approx(5 * log(2) - CONSTANT)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), True, "3", torch.tensor(2.5)])
def test_a_constant_that_is_no_finite_number_is_refused_by_name(value: Any, tmp_path: Path) -> None:
    machine = make(value)
    for use in (
        likelihood.exact_log_partition,
        hm.tasks.minimise,
        lambda m: m.random_states(1, seed=0),
        lambda m: m.save(tmp_path / "m"),
        lambda m: hm.exchange.write(m, tmp_path / "m.uai"),
    ):
        with pytest.raises((TypeError, ValueError), match=r"machine\.constant: expected a (finite )?number"):
            use(machine)
    assert not list(tmp_path.iterdir())


def test_files_keep_every_digit_of_it(tmp_path) -> None:
    machine = make(0.1 + 0.2).float()
    machine.save(tmp_path / "m")
    assert hm.load(tmp_path / "m").constant == 0.1 + 0.2
    assert "constant" not in make(0.0).config()
