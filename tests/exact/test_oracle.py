"""The oracle itself, against loops over the definition, quadrature and finite differences."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from . import oracle
from .oracle import Array, Description, Layer
from .specifications import ADJACENT, SPECIFICATIONS, Specification, learnable, random_states

pytestmark = pytest.mark.slow

EVERY = (*SPECIFICATIONS, ADJACENT)
DISCRETE = ("bernoulli", "spin", "categorical")
named = pytest.mark.parametrize("specification", EVERY, ids=lambda s: s.name)
GAUSSIAN = [s for s in EVERY if 0 < sum(layer[1] for layer in s.layers if layer[0] == "gaussian") <= 2]
TINY_GAUSSIAN = (
    Specification("g1-b2", (("gaussian", 1), ("bernoulli", 2)), 0.8, (-3.0, -3.0)),
    Specification("b2-g1-c1", (("bernoulli", 2), ("gaussian", 1), ("categorical", 1, 3)), 0.8, (1.6, 1.6)),
    Specification("g1-s3-g1", (("gaussian", 1), ("spin", 3), ("gaussian", 1))),
    Specification("g1-g1", (("gaussian", 1), ("gaussian", 1)), 0.5, (-1.0, -1.0)),
    Specification("s2-g1-g1", (("spin", 2), ("gaussian", 1), ("gaussian", 1)), 0.5),
    Specification("g2-b3", (("gaussian", 2), ("bernoulli", 3)), 0.5, (math.log(0.05), math.log(5))),
)


def loop_energy(description: Description, states: list[list[float]]) -> float:
    """E of one joint state, term by term."""
    total = 0.0
    for layer, state in zip(description.layers, states, strict=True):
        flat = [theta.reshape(-1).tolist() for theta in layer.natural]
        for i, x in enumerate(state):
            total += flat[0][i] * x
            if layer.kind == "gaussian" or layer.bounds is not None:
                total -= 0.5 * flat[1][i] * x * x
            if layer.kind == "truncated_gauss_bernoulli":
                total += flat[2][i] * (x != 0)
    for coupling, lower, upper in zip(description.couplings, states[:-1], states[1:], strict=True):
        for i, x in enumerate(lower):
            for j, y in enumerate(upper):
                total += x * float(coupling[i, j]) * y
    return -total


def test_one_by_one_machine_by_hand() -> None:
    """Four states written out."""
    b, c, w = 0.3, -0.7, 1.1
    machine = Description(
        (Layer("bernoulli", (np.array([b]),)), Layer("bernoulli", (np.array([c]),))), (np.array([[w]]),)
    )
    z = 1 + math.exp(b) + math.exp(c) + math.exp(b + c + w)
    result = oracle.expectations(machine)
    assert result.log_partition == pytest.approx(math.log(z), rel=1e-14)
    assert result.products[0][0, 0] == pytest.approx(math.exp(b + c + w) / z, rel=1e-14)
    assert oracle.log_probability(machine, np.array([[1.0]]))[0] == pytest.approx(
        math.log((math.exp(b) + math.exp(b + c + w)) / z), rel=1e-13
    )


def test_one_gaussian_unit_by_hand() -> None:
    """A Gaussian unit under one spin: two lobes at mu + W s."""
    mean, variance, weight, bias = 0.4, 0.05, 0.3, 0.2
    machine = oracle.natural(
        oracle.Learnable(
            (
                oracle.LearnableLayer(
                    "gaussian", {"mean": np.array([mean]), "log_variance": np.log([variance])}
                ),
                oracle.LearnableLayer("spin", {"bias": np.array([bias])}),
            ),
            (np.array([[weight]]),),
        )
    )
    # p(s) is proportional to exp(bs + (mu + Ws)^2 / 2 sigma^2); then v ~ N(mu + Ws, sigma^2).
    log_mass = {s: bias * s + (mean + weight * s) ** 2 / (2 * variance) for s in (-1, 1)}
    total = np.logaddexp(log_mass[-1], log_mass[1])
    p_up = math.exp(log_mass[1] - total)
    result = oracle.expectations(machine)
    assert result.log_partition == pytest.approx(total + 0.5 * math.log(2 * math.pi * variance), rel=1e-14)
    assert result.statistics[1][0][0] == pytest.approx(2 * p_up - 1, rel=1e-13)
    assert result.statistics[0][0][0] == pytest.approx(mean + weight * (2 * p_up - 1), rel=1e-13)
    second = variance + p_up * (mean + weight) ** 2 + (1 - p_up) * (mean - weight) ** 2
    assert result.statistics[0][1][0] == pytest.approx(-0.5 * second, rel=1e-13)
    v = 0.33
    density = sum(
        p * math.exp(-((v - mean - weight * s) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
        for s, p in ((1, p_up), (-1, 1 - p_up))
    )
    assert oracle.log_probability(machine, np.array([[v]]))[0] == pytest.approx(math.log(density), rel=1e-12)


@named
def test_energy_against_loops(specification: Specification) -> None:
    """The vectorised energy is the definition."""
    description = oracle.natural(learnable(specification))
    states = random_states(specification, 4)
    expected = [loop_energy(description, [x[row].tolist() for x in states]) for row in range(4)]
    np.testing.assert_allclose(oracle.energy(description, states), expected, rtol=1e-12, atol=1e-12)


def test_enumeration_against_loops() -> None:
    """ln Z and E[S] of a three-layer discrete machine by nested Python loops, free and clamped."""
    specification = Specification(
        "loops", (("spin", 2), ("categorical", 2, 3), ("bernoulli", 2)), coupling=0.9
    )
    description = oracle.natural(learnable(specification))
    supports = [
        [list(state) for state in itertools.product([-1.0, 1.0], repeat=2)],
        [
            [float(a == k) for k in range(3)] + [float(b == k) for k in range(3)]
            for a, b in itertools.product(range(3), repeat=2)
        ],
        [list(state) for state in itertools.product([0.0, 1.0], repeat=2)],
    ]
    for clamp in (None, {0: np.array([1.0, -1.0])}, {0: np.array([-1.0, -1.0]), 2: np.array([1.0, 0.0])}):
        chosen = [
            [clamp[i].tolist()] if clamp is not None and i in clamp else states
            for i, states in enumerate(supports)
        ]
        joint = [list(states) for states in itertools.product(*chosen)]
        weights = [math.exp(-loop_energy(description, states)) for states in joint]
        z = math.fsum(weights)
        result = oracle.expectations(description, clamp)
        assert result.log_partition == pytest.approx(math.log(z), rel=1e-13)
        for i in range(3):
            mean = sum(w / z * np.array(states[i]) for w, states in zip(weights, joint, strict=True))
            np.testing.assert_allclose(result.statistics[i][0].reshape(-1), mean, rtol=1e-12, atol=1e-14)
        for i in range(2):
            product = sum(
                w / z * np.outer(states[i], states[i + 1]) for w, states in zip(weights, joint, strict=True)
            )
            np.testing.assert_allclose(result.products[i], product, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("specification", (*GAUSSIAN, *TINY_GAUSSIAN), ids=lambda s: s.name)
@pytest.mark.mostly_nightly(2)
def test_closed_form_against_joint_quadrature(specification: Specification) -> None:
    """ln Z, log p(v) and E[S] with every Gaussian unit on a grid, free and clamped."""
    parameters = learnable(specification)
    description = oracle.natural(parameters)
    visible = random_states(specification, 2, layer=0)[0]
    log_partitions = []
    for clamp in (None, {0: visible[0]}, {0: visible[1]}):
        exact = oracle.expectations(description, clamp)
        numeric = oracle.expectations(description, clamp, quadrature=True)
        log_partitions.append(numeric.log_partition)
        assert numeric.log_partition == pytest.approx(exact.log_partition, rel=1e-11, abs=1e-11)
        for left, right in zip(exact.statistics, numeric.statistics, strict=True):
            for t, s in zip(left, right, strict=True):
                np.testing.assert_allclose(s, t, rtol=1e-9, atol=1e-10)
        for product, other in zip(exact.products, numeric.products, strict=True):
            np.testing.assert_allclose(other, product, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(
        np.array(log_partitions[1:]) - log_partitions[0],
        oracle.log_probability(description, visible),
        rtol=1e-11,
        atol=1e-11,
    )


@named
def test_gradient_against_finite_differences(specification: Specification) -> None:
    """The hand-derived pullback, by fourth-order central differences of mean log p(v)."""
    parameters = learnable(specification)
    visible = random_states(specification, 2, layer=0)[0]
    exact = oracle.gradient(parameters, visible)
    arrays = oracle.parameters(parameters)
    assert exact.keys() == arrays.keys()
    rng = np.random.default_rng(5)
    # Small against the narrowest Gaussian unit (variance 0.05), large against rounding.
    step = 2e-4
    for name, array in arrays.items():
        assert exact[name].shape == array.shape
        # One direction through all entries, none of them small, so that large machines stay cheap.
        along = rng.choice([-1, 1], array.shape) * rng.uniform(0.5, 1, array.shape)
        kept = array.copy()
        values = []
        for offset in (-2, -1, 1, 2):
            array[...] = kept + offset * step * along
            values.append(oracle.log_probability(oracle.natural(parameters), visible).mean())
        array[...] = kept
        numeric = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)
        assert numeric == pytest.approx((exact[name] * along).sum(), rel=1e-7, abs=1e-7), name


@pytest.mark.parametrize(
    "specification", [s for s in SPECIFICATIONS if s.kinds[0] in DISCRETE], ids=lambda s: s.name
)
def test_probabilities_sum_to_one(specification: Specification) -> None:
    """Sum of p(v) over every visible state."""
    description = oracle.natural(learnable(specification))
    every = oracle.support(description.layers[0])
    assert np.exp(oracle.log_probability(description, every)).sum() == pytest.approx(1, rel=1e-12)


@named
def test_free_energies_sum_to_the_partition_function(specification: Specification) -> None:
    """Enumerating the held parity of either free energy gives ln Z back (discrete held parities)."""
    description = oracle.natural(learnable(specification))
    for summed, kept in (("odd", 0), ("even", 1)):
        held = range(kept, len(description.layers), 2)
        if any(description.layers[i].kind not in DISCRETE for i in held):
            continue
        choices = [oracle.support(description.layers[i]) for i in held]
        joint = list(itertools.product(*choices))
        if len(joint) > 300:
            continue
        states = [np.zeros((len(joint), layer.width)) for layer in description.layers]
        for position, i in enumerate(held):
            states[i] = np.array([choice[position] for choice in joint])
        total = oracle.log_sum_exp(-oracle.free_energy(description, states, summed))
        assert total == pytest.approx(oracle.log_partition(description), rel=1e-12)


def closed_unit(layer: Layer, b: Array, a: Array) -> Array:
    """psi from the table, for the kinds and fields where its closed form is plainly safe."""
    u = layer.natural[0][0]
    if layer.kind == "bernoulli":
        return np.log1p(np.exp(u + b - a / 2))[:, 0]
    if layer.kind == "spin":
        return (np.log(2 * np.cosh(u + b)) - a / 2)[:, 0]
    if layer.kind == "categorical":
        return np.log(np.exp(u + b - a / 2).sum(1))
    v = layer.natural[1][0]
    return ((u + b) ** 2 / (2 * (v + a)) + 0.5 * np.log(2 * np.pi / (v + a)))[:, 0]


@pytest.mark.parametrize(
    "layer",
    [
        Layer("bernoulli", (np.array([0.3]),)),
        Layer("spin", (np.array([-0.4]),)),
        Layer("categorical", (np.array([[0.3, -0.2, 1.0]]),)),
        Layer("gaussian", (np.array([0.3]), np.array([1.7]))),
    ],
    ids=lambda layer: layer.kind,
)
def test_units_against_the_table(layer: Layer) -> None:
    """psi against the closed forms; mean and variance against its differences; conditionals normalise."""
    q = layer.width
    rng = np.random.default_rng(2)
    field = rng.normal(0, 2, (7, q))
    second = np.full_like(field, 0.3)
    truth = oracle.unit_truth(layer, 0, field, second)
    np.testing.assert_allclose(truth.log_partition, closed_unit(layer, field, second), rtol=1e-12, atol=1e-12)
    h = 1e-3
    for k in range(q):
        shift = np.zeros(q)
        shift[k] = h
        up, down = (oracle.unit_truth(layer, 0, field + s * shift, second).log_partition for s in (1, -1))
        np.testing.assert_allclose((up - down) / (2 * h), truth.mean[:, k], atol=1e-6)
        curvature = (up - 2 * truth.log_partition + down) / h**2
        np.testing.assert_allclose(curvature, truth.variance[:, k], atol=1e-6)
    if layer.kind == "gaussian":
        points = np.arange(-15, 15, 0.05)
        log_density = [oracle.unit_log_conditional(layer, 0, np.array([[x]]), field[:1])[0] for x in points]
        assert np.exp(log_density).sum() * 0.05 == pytest.approx(1, rel=1e-12)
    else:
        states = oracle.support(Layer(layer.kind, (layer.natural[0][:1],)))
        total = sum(np.exp(oracle.unit_log_conditional(layer, 0, state[None], field)) for state in states)
        np.testing.assert_allclose(total, 1, rtol=1e-13)


def test_units_far_in_the_tails() -> None:
    """Relative accuracy where probabilities are e^-100."""
    layer = Layer("bernoulli", (np.array([0.0]),))
    field = np.array([[-100.0], [100.0]])
    truth = oracle.unit_truth(layer, 0, field, np.zeros_like(field))
    tail = math.exp(-100)
    np.testing.assert_allclose(truth.log_partition, [tail, 100.0], rtol=1e-13)
    np.testing.assert_allclose(truth.mean[:, 0], [tail, 1.0], rtol=1e-13)
    np.testing.assert_allclose(truth.variance[:, 0], [tail, tail], rtol=1e-13)


def test_refuses_what_it_cannot_do() -> None:
    """No silent wrong answer from the oracle either."""
    wide = Layer("bernoulli", (np.zeros(12),))
    with pytest.raises(ValueError, match="joint states"):
        oracle.log_partition(Description((wide, wide), (np.zeros((12, 12)),)))
    unit = Layer("gaussian", (np.zeros(1), np.ones(1)))
    with pytest.raises(ValueError, match="normalisable"):
        oracle.log_partition(Description((unit, unit), (np.array([[1.5]]),)))
