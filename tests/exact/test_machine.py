"""Energies, free energies, ln Z, likelihoods and gradients of whole machines, against the oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import harmonium as hm

from . import oracle
from .machines import array, build, describe, exact_gradient, fill, named_gradient, tensors
from .oracle import Array, Learnable, LearnableLayer
from .specifications import ADJACENT, SPECIFICATIONS, Specification, learnable, random_states

named = pytest.mark.parametrize("specification", SPECIFICATIONS, ids=lambda s: s.name)
every = pytest.mark.parametrize("specification", (*SPECIFICATIONS, ADJACENT), ids=lambda s: s.name)
shallow = pytest.mark.parametrize(
    "specification", [s for s in SPECIFICATIONS if s.hidden_layers == 1], ids=lambda s: s.name
)
TOLERANCE = {"rtol": 1e-8, "atol": 1e-8}


def assert_same_gradient(
    actual: dict[str, torch.Tensor], expected: dict[str, Array], **tolerance: float
) -> None:
    """The same names, the same shapes, the same values."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert tuple(actual[name].shape) == value.shape, name
        np.testing.assert_allclose(array(actual[name]), value, **(tolerance or TOLERANCE), err_msg=name)


def test_the_machines_cover_what_they_should() -> None:
    """Every kind visible and hidden, Gaussian in the middle, 1 to 3 hidden layers, one discrete parity."""
    kinds = {"bernoulli", "spin", "categorical", "gaussian", *oracle.TRUNCATED}
    assert {s.kinds[0] for s in SPECIFICATIONS} == kinds
    assert {kind for s in SPECIFICATIONS for kind in s.kinds[1:]} == kinds
    assert any(kind == "gaussian" for s in SPECIFICATIONS for kind in s.kinds[1:-1])
    assert {s.hidden_layers for s in SPECIFICATIONS} == {1, 2, 3}
    for s in SPECIFICATIONS:
        real = {"gaussian", *oracle.TRUNCATED}
        assert any(real.isdisjoint(s.kinds[parity::2]) for parity in (0, 1)), s.name


@every
def test_every_parameter_is_known_to_the_oracle(specification: Specification) -> None:
    """The translation reads all the parameters there are, and reads back what was put in."""
    machine = build(specification)
    wanted = oracle.parameters(learnable(specification))
    read = oracle.parameters(describe(machine))
    assert wanted.keys() == read.keys()
    assert len(list(machine.parameters())) == len(read)
    for name, value in wanted.items():
        np.testing.assert_array_equal(read[name], value)


@every
def test_energy(specification: Specification) -> None:
    """E(x), its value and so every difference of it."""
    machine = build(specification)
    states = random_states(specification, 9)
    expected = oracle.energy(oracle.natural(describe(machine)), states)
    actual = array(machine.energy(tensors(states)))
    assert actual.shape == (9,)
    np.testing.assert_allclose(np.diff(actual), np.diff(expected), **TOLERANCE)
    np.testing.assert_allclose(actual, expected, **TOLERANCE)


@every
@pytest.mark.parametrize("summed", ["odd", "even"])
def test_free_energy(specification: Specification, summed: str) -> None:
    """Either parity summed out; what the summed layers held does not matter."""
    machine = build(specification)
    states = random_states(specification, 5)
    expected = oracle.free_energy(oracle.natural(describe(machine)), states, summed)
    actual = machine.free_energy(tensors(states), summed=summed)
    assert tuple(actual.shape) == (5,)
    np.testing.assert_allclose(array(actual), expected, **TOLERANCE)
    parity = 1 if summed == "odd" else 0
    shuffled = [np.roll(x, 1, axis=0) if i % 2 == parity else x for i, x in enumerate(states)]
    np.testing.assert_array_equal(array(machine.free_energy(tensors(shuffled), summed=summed)), array(actual))


@shallow
def test_free_energy_of_the_visible_layer(specification: Specification) -> None:
    """With one hidden layer, free_energy(v) sums the hidden layer out."""
    machine = build(specification)
    visible = random_states(specification, 5, layer=0)
    description = oracle.natural(describe(machine))
    np.testing.assert_allclose(
        array(machine.free_energy(tensors(visible)[0])),
        oracle.free_energy(description, [visible[0], np.empty(0)], "odd"),
        **TOLERANCE,
    )


@named
def test_exact_log_partition(specification: Specification) -> None:
    """ln Z."""
    machine = build(specification)
    value = hm.likelihood.exact_log_partition(machine)
    assert isinstance(value, float)
    assert value == pytest.approx(oracle.log_partition(oracle.natural(describe(machine))), rel=1e-8, abs=1e-8)


@named
def test_exact_log_partition_of_a_single_precision_machine(specification: Specification) -> None:
    """Accumulated in double precision: what is lost is the rounding of fields, not of the sum."""
    machine = build(specification, torch.float32)
    expected = oracle.log_partition(oracle.natural(describe(machine)))
    assert hm.likelihood.exact_log_partition(machine) == pytest.approx(expected, rel=1e-5, abs=1e-5)


@shallow
def test_log_likelihood_per_row(specification: Specification) -> None:
    """log p(v), a log density for a Gaussian visible layer."""
    machine = build(specification)
    visible = random_states(specification, 6, layer=0)
    value = hm.likelihood.exact_log_partition(machine)
    actual = hm.likelihood.log_likelihood(machine, tensors(visible)[0], value)
    expected = oracle.log_probability(oracle.natural(describe(machine)), visible[0])
    assert tuple(actual.shape) == (6,)
    np.testing.assert_allclose(array(actual), expected, **TOLERANCE)


@named
@pytest.mark.parametrize("rows", [1, 4])
def test_exact_gradient(specification: Specification, rows: int) -> None:
    """Every named parameter, nothing missing, nothing extra; a repeated row counts twice in the mean."""
    machine = build(specification)
    visible = random_states(specification, rows, layer=0)[0]
    visible = np.concatenate([visible, visible[:1]]) if rows > 1 else visible
    expected = named_gradient(machine, oracle.gradient(describe(machine), visible))
    actual = exact_gradient(machine, torch.from_numpy(visible))
    assert actual.keys() == dict(machine.named_parameters()).keys()
    assert_same_gradient(actual, expected)


@named
def test_exact_gradient_in_single_precision(specification: Specification) -> None:
    """Rounding only: the oracle reads the very same stored parameters."""
    machine = build(specification, torch.float32)
    # Halves are exact in single precision, so both sides see the same rows.
    visible = random_states(specification, 3, layer=0)[0]
    visible = np.round(2 * visible) / 2
    expected = named_gradient(machine, oracle.gradient(describe(machine), visible))
    actual = exact_gradient(machine, torch.from_numpy(visible).float())
    for name, value in expected.items():
        assert actual[name].dtype == torch.float32, name
        scale = max(1.0, float(np.abs(value).max()))
        np.testing.assert_allclose(array(actual[name]), value, rtol=0, atol=1e-4 * scale, err_msg=name)


def test_exact_rule_reports_itself() -> None:
    """Exact: no state to keep, no bias, no mark left on the machine, the same answer for any generator."""
    specification = SPECIFICATIONS[2]
    machine = build(specification)
    before = describe(machine)
    visible = torch.from_numpy(random_states(specification, 3, layer=0)[0])
    rule = hm.rules.exact()
    estimates = [rule.gradient(machine, visible, seed=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    assert rule.bias == "exact"
    assert estimates[0].state is None
    for name in estimates[0].parameters:
        assert torch.equal(estimates[0].parameters[name], estimates[1].parameters[name])
    for name, value in oracle.parameters(describe(machine)).items():
        np.testing.assert_array_equal(value, oracle.parameters(before)[name])
    assert all(parameter.grad is None for parameter in machine.parameters())


def test_gradient_vanishes_when_the_data_are_the_machine() -> None:
    """Expected clamped statistics under p(v) are the free ones."""
    specification = next(s for s in SPECIFICATIONS if s.name == "categorical-bernoulli")
    machine = build(specification)
    description = oracle.natural(describe(machine))
    states = oracle.support(description.layers[0])
    weights = np.exp(oracle.log_probability(description, states))
    total: dict[str, Array] = {}
    for state, weight in zip(states, weights, strict=True):
        for name, value in exact_gradient(machine, torch.from_numpy(state[None])).items():
            total[name] = total.get(name, 0) + weight * array(value)
    for value in total.values():
        np.testing.assert_allclose(value, 0, atol=1e-10)


@pytest.mark.parametrize("coupling", [0.3, -0.2])
def test_adjacent_gaussian_layers_are_refused_or_right(coupling: float) -> None:
    """No parity can be enumerated: a clear error, or the right number, never a wrong one."""
    specification = Specification("adjacent", (("gaussian", 1), ("gaussian", 1)))
    machine = fill(
        hm.BoltzmannMachine([hm.Gaussian(1), hm.Gaussian(1)], seed=0).double(),
        Learnable(learnable(specification).layers, (np.array([[coupling]]),)),
    )
    try:
        value = hm.likelihood.exact_log_partition(machine)
    except ValueError as error:
        assert "discrete" in str(error)
    else:
        assert value == pytest.approx(oracle.log_partition(oracle.natural(describe(machine))), rel=1e-8)


# What must hold between machines ---------------------------------------------------------------------------


@named
def test_independent_units_without_couplings(specification: Specification) -> None:
    """With W = 0, ln Z is a sum over units, in closed form (by fine quadrature where there is none)."""
    parameters = learnable(specification)
    machine = fill(
        build(specification), Learnable(parameters.layers, tuple(0 * w for w in parameters.couplings))
    )
    expected = 0.0
    for layer in parameters.layers:
        if layer.kind == "bernoulli":
            expected += np.log1p(np.exp(layer.values["bias"])).sum()
        elif layer.kind == "spin":
            expected += np.log(2 * np.cosh(layer.values["bias"])).sum()
        elif layer.kind == "categorical":
            expected += np.log(np.exp(layer.values["bias"]).sum(1)).sum()
        elif layer.bounds is not None:
            description = oracle.natural(Learnable((layer,), ()))
            zero = np.zeros((1, 1))
            for unit in range(description.layers[0].n_units):
                expected += float(oracle.unit_truth(description.layers[0], unit, zero, zero).log_partition[0])
        else:
            mean, variance = layer.values["mean"], np.exp(layer.values["log_variance"])
            expected += (0.5 * mean**2 / variance + 0.5 * np.log(2 * math.pi * variance)).sum()
    assert hm.likelihood.exact_log_partition(machine) == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_categorical_of_two_states_is_bernoulli() -> None:
    """One-hot (1 - x, x) with no energy for state 0: the same ln Z, likelihood and gradient."""
    rng = np.random.default_rng(11)
    bias, hidden, weight = rng.normal(size=4), rng.normal(size=3), rng.normal(size=(4, 3))
    other = LearnableLayer("spin", {"bias": hidden})
    machine = fill(
        hm.BoltzmannMachine([hm.Bernoulli(4), hm.Spin(3)], seed=0).double(),
        Learnable((LearnableLayer("bernoulli", {"bias": bias}), other), (weight,)),
    )
    two_state = np.stack([np.zeros(4), bias], axis=1)
    two_weight = np.stack([np.zeros((4, 3)), weight], axis=1).reshape(8, 3)
    twin = fill(
        hm.BoltzmannMachine([hm.Categorical(4, 2), hm.Spin(3)], seed=0).double(),
        Learnable((LearnableLayer("categorical", {"bias": two_state}), other), (two_weight,)),
    )
    log_z = hm.likelihood.exact_log_partition(machine)
    assert hm.likelihood.exact_log_partition(twin) == pytest.approx(log_z, rel=1e-12)
    visible = rng.integers(0, 2, (6, 4)).astype(float)
    one_hot = np.stack([1 - visible, visible], axis=2).reshape(6, 8)
    np.testing.assert_allclose(
        array(hm.likelihood.log_likelihood(twin, torch.from_numpy(one_hot), log_z)),
        array(hm.likelihood.log_likelihood(machine, torch.from_numpy(visible), log_z)),
        rtol=1e-11,
    )
    left = exact_gradient(machine, torch.from_numpy(visible))
    right = exact_gradient(twin, torch.from_numpy(one_hot))
    names = {id(p): name for name, p in machine.named_parameters()}
    twin_names = {id(p): name for name, p in twin.named_parameters()}
    bias_gradient = array(right[twin_names[id(twin.layers[0].bias)]])
    np.testing.assert_allclose(
        bias_gradient[:, 1], array(left[names[id(machine.layers[0].bias)]]), atol=1e-12
    )
    np.testing.assert_allclose(bias_gradient.sum(1), 0, atol=1e-12)
    np.testing.assert_allclose(
        array(right[twin_names[id(twin.couplings[0].weight)]]).reshape(4, 2, 3)[:, 1],
        array(left[names[id(machine.couplings[0].weight)]]),
        atol=1e-12,
    )


def test_spin_machine_is_a_bernoulli_machine() -> None:
    """With s = 2x - 1: J' = 4J, b' = 2b - 2 (sums of J on both sides), and a constant.

    b.s = 2b.x - sum b and s.J s' = 4 x.J x' - 2 x.(J 1) - 2 (1.J) x' + sum J.
    """
    rng = np.random.default_rng(12)
    sizes = (4, 3, 4)
    biases = [rng.normal(0, 0.7, n) for n in sizes]
    weights = [rng.normal(0, 0.7, shape) for shape in ((4, 3), (3, 4))]
    spin = fill(
        hm.BoltzmannMachine([hm.Spin(n) for n in sizes], seed=0).double(),
        Learnable(tuple(LearnableLayer("spin", {"bias": b}) for b in biases), tuple(weights)),
    )
    mapped = [2 * b for b in biases]
    for i, weight in enumerate(weights):
        mapped[i] = mapped[i] - 2 * weight.sum(1)
        mapped[i + 1] = mapped[i + 1] - 2 * weight.sum(0)
    bernoulli = fill(
        hm.BoltzmannMachine([hm.Bernoulli(n) for n in sizes], seed=0).double(),
        Learnable(
            tuple(LearnableLayer("bernoulli", {"bias": b}) for b in mapped), tuple(4 * w for w in weights)
        ),
    )
    constant = sum(w.sum() for w in weights) - sum(b.sum() for b in biases)
    assert hm.likelihood.exact_log_partition(spin) == pytest.approx(
        hm.likelihood.exact_log_partition(bernoulli) + constant, rel=1e-12
    )
    states = [rng.integers(0, 2, (5, n)).astype(float) for n in sizes]
    np.testing.assert_allclose(
        array(spin.energy(tensors([2 * x - 1 for x in states]))),
        array(bernoulli.energy(tensors(states))) - constant,
        rtol=1e-11,
        atol=1e-11,
    )
    # Chain rule of the map, on the gradient of the mean log-likelihood.
    left = exact_gradient(spin, torch.from_numpy(2 * states[0] - 1))
    right = exact_gradient(bernoulli, torch.from_numpy(states[0]))
    names = {id(p): name for name, p in spin.named_parameters()}
    others = {id(p): name for name, p in bernoulli.named_parameters()}
    d_bias = [array(right[others[id(layer.bias)]]) for layer in bernoulli.layers]
    for layer, change in zip(spin.layers, d_bias, strict=True):
        np.testing.assert_allclose(array(left[names[id(layer.bias)]]), 2 * change, atol=1e-11)
    for i, coupling in enumerate(spin.couplings):
        change = 4 * array(right[others[id(bernoulli.couplings[i].weight)]])
        change = change - 2 * d_bias[i][:, None] - 2 * d_bias[i + 1][None, :]
        np.testing.assert_allclose(array(left[names[id(coupling.weight)]]), change, atol=1e-11)


@pytest.mark.parametrize("name", ["gaussian-spin wide", "spin-bernoulli-spin", "bernoulli-gaussian"])
def test_order_of_hidden_units_does_not_matter(name: str) -> None:
    """Permuting the units of the first hidden layer permutes the gradient and changes nothing else."""
    specification = next(s for s in SPECIFICATIONS if s.name == name)
    original = learnable(specification)
    order = np.random.default_rng(13).permutation(specification.layers[1][1])
    layers = list(original.layers)
    layers[1] = LearnableLayer(layers[1].kind, {k: value[order] for k, value in layers[1].values.items()})
    couplings = list(original.couplings)
    couplings[0] = couplings[0][:, order]
    if len(couplings) > 1:
        couplings[1] = couplings[1][order]
    machine = build(specification)
    permuted = fill(build(specification), Learnable(tuple(layers), tuple(couplings)))
    assert hm.likelihood.exact_log_partition(permuted) == pytest.approx(
        hm.likelihood.exact_log_partition(machine), rel=1e-12
    )
    visible = torch.from_numpy(random_states(specification, 4, layer=0)[0])
    left, right = exact_gradient(machine, visible), exact_gradient(permuted, visible)
    names = {id(p): key for key, p in machine.named_parameters()}
    for parameter in machine.layers[1].parameters():
        key = names[id(parameter)]
        np.testing.assert_allclose(array(right[key]), array(left[key])[order], rtol=1e-9, atol=1e-10)
    key = names[id(machine.couplings[0].weight)]
    np.testing.assert_allclose(array(right[key]), array(left[key])[:, order], rtol=1e-9, atol=1e-10)


def test_a_constant_added_to_all_states_of_a_unit_changes_no_probability() -> None:
    """The gauge freedom of categorical biases: ln Z shifts by the constant, the likelihood does not."""
    specification = next(s for s in SPECIFICATIONS if s.name == "categorical-bernoulli")
    machine = build(specification)
    visible = torch.from_numpy(random_states(specification, 4, layer=0)[0])
    before = hm.likelihood.exact_log_partition(machine)
    rows = array(hm.likelihood.log_likelihood(machine, visible, before))
    gradient = exact_gradient(machine, visible)
    with torch.no_grad():
        machine.layers[0].bias[1] += 7.0
    after = hm.likelihood.exact_log_partition(machine)
    assert after == pytest.approx(before + 7.0, rel=1e-12)
    np.testing.assert_allclose(array(hm.likelihood.log_likelihood(machine, visible, after)), rows, rtol=1e-11)
    assert_same_gradient(
        exact_gradient(machine, visible), {k: array(v) for k, v in gradient.items()}, rtol=1e-9, atol=1e-11
    )


@pytest.mark.parametrize("beta", [2, np.float32(2), np.int64(2)], ids=["int", "float32", "int64"])
def test_an_inverse_temperature_is_any_number(beta):
    hamiltonian = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Spin(2)], seed=0).hamiltonian()
    states = [torch.ones(4, 3), torch.ones(4, 2)]
    assert torch.equal(hamiltonian.tempered(beta).energy(states), hamiltonian.tempered(2.0).energy(states))
