"""Machines with numbers that are not finite, too large or of 16 bits are refused by all that takes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium import chains, coupled, ladder, likelihood, meanfield, tasks
from harmonium.machine import BoltzmannMachine

from .command_line import CommandLine

PACKAGES = (tasks, chains, likelihood, ladder, meanfield, coupled)
V = torch.tensor([[0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
HOLED = torch.tensor([[0.0, nan, 0.0, 1.0], [1.0, 1.0, nan, 0.0]])
LABELLED = torch.cat([V, torch.tensor([[1.0, 0.0], [0.0, 1.0]])], 1)


def rbm() -> BoltzmannMachine:
    return BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3)], seed=0)


def sparse() -> BoltzmannMachine:
    return BoltzmannMachine([hm.Bernoulli(4)], {(0, 0): hm.Sparse([(0, 1), (1, 2)])}, seed=0)


def potts() -> BoltzmannMachine:
    return BoltzmannMachine([hm.Categorical(4, 3)], {(0, 0): hm.Dense()}, seed=0)


def gaussian() -> BoltzmannMachine:
    return BoltzmannMachine([hm.Gaussian(2), hm.Bernoulli(3)], seed=0)


def labelled() -> BoltzmannMachine:
    layers = [hm.Bernoulli(4), hm.Bernoulli(3), hm.Categorical(1, 2)]
    return BoltzmannMachine(layers, [(0, 1), (1, 2)], [0, 2], seed=0)


def training_state() -> Any:
    rule = hm.rules.ptt(chains=4)
    return hm.train(rbm(), V, rule=rule, updates=2, batch_size=2, learning_rate=0.01, seed=0).rule_state


def table() -> Any:
    return hm.tables.Table.fit(V.numpy())


Make = Callable[[], BoltzmannMachine]
CALLS: dict[str, tuple[Make, Callable[[BoltzmannMachine], Any]]] = {
    "tasks.activate": (sparse, lambda m: tasks.activate(m, 1, V, V)),
    "tasks.contacts": (potts, lambda m: tasks.contacts(m)),
    "tasks.decimate": (sparse, lambda m: tasks.decimate(m, 1)),
    "tasks.denoise": (rbm, lambda m: tasks.denoise(m, V, flip_probability=0.1, seed=0)),
    "tasks.directions": (rbm, tasks.directions),
    "tasks.effective_couplings": (rbm, tasks.effective_couplings),
    "tasks.impute": (rbm, lambda m: tasks.impute(m, HOLED, HOLED.isnan(), seed=0)),
    "tasks.impute_cells": (
        rbm,
        lambda m: tasks.impute_cells(
            m, table(), HOLED, HOLED.isnan(), "auto", "mode", draws=2, sweeps=2, seed=0
        ),
    ),
    "tasks.log_probabilities": (labelled, lambda m: tasks.log_probabilities(m, LABELLED, 2, None)),
    "tasks.metrics_for": (rbm, lambda m: tasks.metrics_for(m, V, "likelihood")),
    "tasks.minimise": (rbm, tasks.minimise),
    "tasks.mutations": (potts, lambda m: tasks.mutations(m, [0, 1, 2, 0])),
    "tasks.potts_machine": (potts, tasks.potts_machine),
    "tasks.predict": (labelled, lambda m: tasks.predict(m, LABELLED, 2)),
    "tasks.predict_column": (labelled, lambda m: tasks.predict_column(m, LABELLED, 2, 0)),
    "tasks.sample": (rbm, lambda m: tasks.sample(m, 2, seed=0)),
    "tasks.unusual_cells": (rbm, lambda m: tasks.unusual_cells(m, V.numpy())),
    "chains.Tempering.adapt": (rbm, lambda m: chains.Tempering(3).adapt(m, chains=4, sweeps=40)),
    "chains.diagnose_chains": (rbm, lambda m: chains.diagnose_chains(m, chains=4, sweeps=40)),
    "chains.local_search": (rbm, lambda m: chains.local_search(m, m.random_states(2, seed=0), seed=0)),
    "chains.run": (rbm, lambda m: chains.run(m, chains.Gibbs(), V, 2, seed=0)),
    "likelihood.ais": (rbm, lambda m: likelihood.ais(m, 4, 4)),
    "likelihood.annealed_bound": (rbm, lambda m: likelihood.annealed_bound(m, V, 1.0)),
    "likelihood.conditional_log_likelihood": (
        labelled,
        lambda m: likelihood.conditional_log_likelihood(m, LABELLED, [0]),
    ),
    "likelihood.evaluate": (rbm, lambda m: likelihood.evaluate(m, V)),
    "likelihood.exact_log_likelihood": (rbm, lambda m: likelihood.exact_log_likelihood(m, V)),
    "likelihood.exact_log_partition": (rbm, likelihood.exact_log_partition),
    "likelihood.find_log_partition": (rbm, likelihood.find_log_partition),
    "likelihood.log_likelihood": (rbm, lambda m: likelihood.log_likelihood(m, V, 1.0)),
    "likelihood.predictive_log_score": (rbm, lambda m: likelihood.predictive_log_score(m, V)),
    "likelihood.pseudo_log_likelihood": (rbm, lambda m: likelihood.pseudo_log_likelihood(m, V)),
    "likelihood.quadrature_log_partition": (gaussian, likelihood.quadrature_log_partition),
    "likelihood.score_states": (rbm, lambda m: likelihood.score_states(m, V, 1.0, is_bound=False)),
    "likelihood.tap_log_likelihood": (rbm, lambda m: likelihood.tap_log_likelihood(m, V, 1.0)),
    "likelihood.tap_log_partition": (rbm, lambda m: likelihood.tap_log_partition(m, V)),
    "likelihood.unit_log_probabilities": (rbm, lambda m: likelihood.unit_log_probabilities(m, V, 0)),
    "likelihood.variational_bound": (rbm, lambda m: likelihood.variational_bound(m, V, 1.0)),
    "ladder.KeptLadder.begin": (rbm, lambda m: ladder.KeptLadder(ladder.Ladder(), lambda _: 0).begin(m, [])),
    "ladder.KeptLadder.finish": (rbm, lambda m: ladder.KeptLadder(ladder.Ladder(), lambda _: 0).finish(m)),
    "ladder.hamiltonians_along": (rbm, lambda m: ladder.hamiltonians_along(m, ladder.Ladder([bottom()]))),
    "ladder.ladder_of": (rbm, lambda m: ladder.ladder_of(m, training_state())),
    "ladder.lead_to": (rbm, lambda m: ladder.lead_to(ladder.Ladder([bottom()]), m)),
    "ladder.load_ladder": (rbm, lambda m: ladder.load_ladder("nowhere", m)),
    "ladder.log_partitions": (rbm, lambda m: ladder.log_partitions(m, chains=10, seed=0)),
    "meanfield.landscape": (rbm, lambda m: meanfield.landscape(m, V)),
    "meanfield.naive": (rbm, lambda m: meanfield.naive(m, V)),
    "meanfield.solution_tree": (
        rbm,
        lambda m: meanfield.solution_tree(m, [rbm().hamiltonian(), m.hamiltonian()], [0, 1], V),
    ),
    "meanfield.tap": (rbm, lambda m: meanfield.tap(m, V)),
    "chains.thermodynamics": (rbm, lambda m: chains.thermodynamics(m, [1.0, 0.5], chains=8, sweeps=200)),
    "coupled.meet": (rbm, lambda m: coupled.meet(m, coupled.Gibbs(), V, seed=0)),
    "coupled.mixing_times": (rbm, lambda m: coupled.mixing_times(m, pairs=9, max_sweeps=9, seed=0)),
}
NO_NUMBERS = {  # what takes a machine for its layers alone, or beside its own Hamiltonian
    "tasks.unobserved",
    "tasks.usual_sweeps",
    "chains.initial_states",
    "chains.overlaps",
    "likelihood.missing_pseudo_likelihood",
    "likelihood.note_rows",
    "likelihood.read_rows",
    "likelihood.separate",
    "likelihood.work_of_rows",
    "tasks.unit_offsets",
}


def bottom() -> list[Tensor]:
    machine = BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3)], seed=None)
    return [x.detach() for x in (machine.layers[0].bias, machine.layers[1].bias, machine.couplings[0].weight)]


def put(machine: BoltzmannMachine, value: float) -> BoltzmannMachine:
    """Writes a number into the last coupling, which no constructor sees."""
    with torch.no_grad():
        machine.couplings[0].weight.view(-1)[-2:] = value
    return machine


def takers(package: ModuleType) -> set[str]:
    """Returns the public functions and methods of a package that take a machine."""
    name, found = package.__name__.rsplit(".", 1)[-1], set()
    for word, thing in vars(package).items():
        if inspect.isclass(thing):
            found |= {f"{word}.{method}" for method, f in vars(thing).items() if takes_machine(method, f)}
        elif takes_machine(word, thing):
            found.add(word)
    return {f"{name}.{word}" for word in found}


def takes_machine(name: str, thing: Any) -> bool:
    return (
        not name.startswith("_")
        and inspect.isfunction(thing)
        and "machine" in inspect.signature(thing).parameters
    )


def test_every_function_that_takes_a_machine_is_listed_here() -> None:
    assert set().union(*map(takers, PACKAGES)) == set(CALLS) | NO_NUMBERS


@pytest.mark.parametrize("name", CALLS)
def test_a_number_that_is_none_is_refused_by_name(name: str) -> None:
    make, call = CALLS[name]
    with pytest.raises(
        ValueError, match=r"machine: expected finite parameters, received nan in couplings\.0\.weight"
    ):
        call(put(make(), nan))


@pytest.mark.parametrize(
    ("value", "expected", "remedy"),
    [
        (inf, "finite parameters", "write 50, which"),
        (-inf, "finite parameters", "exact sums and minimise"),
        (1e38, r"parameters of a norm below 2\^64", "divide"),
    ],
)
def test_what_is_infinite_or_too_large_is_refused_with_what_to_do(
    value: float, expected: str, remedy: str
) -> None:
    place = r"in couplings\.0\.weight at \[3, 1\]"
    with pytest.raises(ValueError, match=rf"machine: expected {expected}, received .* {place}; {remedy}"):
        put(rbm(), value).hamiltonian()


def test_minus_infinity_passes_where_it_means_a_forbidden_pair_of_states() -> None:
    assert put(rbm(), -inf).hamiltonian(forbidden=True).J[0][-1, -1] == -inf
    spins = BoltzmannMachine([hm.Bernoulli(4), hm.Spin(3)], seed=0)  # -inf times -1 would be certain
    with pytest.raises(ValueError, match=r"received -inf .* write -50"):
        put(spins, -inf).hamiltonian(forbidden=True)
    with pytest.raises(ValueError, match="received nan"):
        put(rbm(), nan).hamiltonian(forbidden=True)


def test_what_overflows_in_natural_parameters_is_named_by_its_layer() -> None:
    machine = gaussian()
    machine.layers[0].log_variance.data[1] = -100.0  # 1/σ² is infinite in float32, and the mean over it nan
    with pytest.raises(
        ValueError, match=r"received nan in the natural parameters of layers\.0 at \[1\]; bring"
    ):
        machine.hamiltonian()
    machine.layers[0].log_variance.data[1] = -80.0  # 1/σ² is finite, and above 2^64
    with pytest.raises(
        ValueError, match=r"a norm below 2\^64, received 5\.54062e\+34 in the natural parameters of layers"
    ):
        machine.hamiltonian()


def test_many_numbers_below_the_limit_are_refused_by_their_norm() -> None:
    spins = BoltzmannMachine([hm.Spin(4)], {(0, 0): hm.Sparse([(0, 1), (1, 2), (2, 3), (0, 3)])}, seed=None)
    spins.couplings[0].fill_(torch.full((4,), 1.8e19))
    with pytest.raises(ValueError, match=r"expected parameters of a norm below 2\^64, received 1\.8e\+19"):
        spins.hamiltonian()


def test_large_numbers_that_are_taken_are_answered_rightly() -> None:
    ring = BoltzmannMachine([hm.Spin(4)], {(0, 0): hm.Sparse([(0, 1), (1, 2), (2, 3), (0, 3)])}, seed=None)
    ring.couplings[0].fill_(torch.full((4,), 1e18))
    low = tasks.minimise(ring, method="anneal", seed=0)
    assert float(low.energies[0]) == pytest.approx(-4e18) == -likelihood.exact_log_partition(ring)
    for draws in (
        tasks.sample(ring, 20, seed=0).rows,
        chains.run(ring, chains.Gibbs(), low.states, 3, seed=0)[0],
    ):
        assert bool((draws == draws[:, :1]).all())


def test_rungs_that_are_not_finite_are_refused_by_number() -> None:
    with pytest.raises(ValueError, match=r"rungs\[1\]: expected finite values, received nan"):
        ladder.Ladder([bottom(), [x + nan for x in bottom()]])


REFUSED = r"machine: expected parameters in float32 or float64, received .* in torch\.b?float16"
halves = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def machine(visible: type[hm.layers.Layer] = hm.Gaussian) -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([visible(4), hm.Bernoulli(3)], seed=1)


@halves
@pytest.mark.parametrize("name", ["layers.0.mean", "couplings.0.weight"])
def test_one_parameter_in_16_bits_is_refused(name: str, dtype: torch.dtype) -> None:
    m = machine()
    parameter = m.get_parameter(name)
    parameter.data = parameter.data.to(dtype)
    with pytest.raises(TypeError, match=f"received {name} in {dtype}"):
        m.hamiltonian()


EVERY: dict[str, tuple[Callable[[], hm.BoltzmannMachine], Callable[[hm.BoltzmannMachine], Any]]] = {
    **CALLS,
    "gradient": (rbm, lambda m: hm.rules.cd().gradient(m, V, seed=generator())),
    "train": (rbm, lambda m: hm.train(m, V, rule="cd", updates=1, progress=False)),
    "random states": (rbm, lambda m: m.random_states(2, seed=generator())),
    "energy": (rbm, lambda m: m.energy([V, torch.ones(2, 3)])),
    "free energy": (rbm, lambda m: m.free_energy(V)),
}


@halves
@pytest.mark.parametrize("name", EVERY)
def test_computing_in_16_bits_is_refused_by_name(name: str, dtype: torch.dtype) -> None:
    make, call = EVERY[name]
    with pytest.raises(TypeError, match=REFUSED):
        call(make().to(dtype))


@pytest.mark.parametrize("name", EVERY)
def test_computing_inside_autocast_is_refused(name: str) -> None:
    """It would round every product to 16 bits, and a log-likelihood would be off by tenths of a nat."""
    make, call = EVERY[name]
    with torch.autocast("cpu"), pytest.raises(ValueError, match=r'outside torch\.autocast\("cpu"\)'):
        call(make())


def test_a_hamiltonian_made_outside_is_refused_inside_autocast() -> None:
    made = machine()
    v = made.random_states(2, seed=generator())[0]
    states = [v, torch.ones(len(v), 3)]
    hamiltonian, gibbs = made.hamiltonian(), hm.chains.Gibbs()
    sums = hm.machine.Statistics(hamiltonian)
    calls = {
        "field": lambda: hamiltonian.field(1, states),
        "energy": lambda: hamiltonian.energy(states),
        "weight": lambda: hamiltonian.log_weight(0, v),
        "free energy": lambda: hamiltonian.free_energy(states, (1,)),
        "chains": lambda: hm.chains.run_kernel(
            hamiltonian, gibbs, hm.chains.KernelState(states, 0), 1, generator()
        ),
        "couplings": lambda: hamiltonian.coupling_energy(states),
        "statistics": lambda: sums.add(hamiltonian, states, 1.0),
    }
    for name, call in calls.items():
        with torch.autocast("cpu"), pytest.raises(ValueError, match=r'outside torch\.autocast\("cpu"\)'):
            call()
            pytest.fail(f"{name} computed inside autocast")
        with torch.autocast("cpu"), torch.autocast("cpu", enabled=False):
            call()


@pytest.mark.parametrize("cut", [hm.TruncatedGaussian, hm.TruncatedGaussBernoulli])
@halves
def test_truncated_layers_refuse_16_bits_themselves(cut: type[hm.layers.Layer], dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=r"field: expected float32 or float64, received torch\.b?float16"):
        cut(4, 0.0, 1.0).to(dtype).moments(torch.zeros(2, 4, dtype=dtype))


@halves
def test_a_machine_of_16_bits_is_saved_and_computes_once_it_is_wider(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    full = machine()
    full.to(dtype).save(tmp_path / "m.safetensors")
    loaded = hm.load(tmp_path / "m.safetensors")
    assert loaded.dtype is dtype
    loaded.float()
    v = loaded.random_states(3, seed=generator())[0]
    for one, other in zip(loaded.parameters(), full.parameters(), strict=True):
        assert torch.equal(one, other.float())
    assert bool(torch.isfinite(loaded.free_energy(v)).all())


def test_the_command_refuses_them_too(cli: CommandLine, tmp_path: Path) -> None:
    machine(hm.Bernoulli).half().save(tmp_path / "m.safetensors")
    np.save(tmp_path / "x.npy", np.ones((3, 4), dtype=np.float32))
    message = cli.refuse("evaluate", tmp_path / "m.safetensors", tmp_path / "x.npy")
    assert "expected parameters in float32 or float64" in message
