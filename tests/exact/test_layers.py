"""Every kind of unit against enumeration or quadrature, also at |B| = 100 and in single precision."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import harmonium as hm

from . import oracle
from .machines import LEARNABLE, array, bounds
from .oracle import Array


@dataclass(frozen=True)
class Case:
    """A layer of each kind, with the values of its learnable parameters."""

    name: str
    cls: type[torch.nn.Module]
    arguments: tuple[Any, ...]
    values: dict[str, Array]

    def build(self, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
        layer = self.cls(*self.arguments).to(dtype)
        with torch.no_grad():
            for name, value in self.values.items():
                getattr(layer, name).copy_(torch.from_numpy(value))
        return layer


ENDS = ([0.0, -0.5, 0.25], [1.0, 1.75, 2.0])
CASES = (
    Case("bernoulli", hm.Bernoulli, (3,), {"bias": np.array([-1.3, 0.0, 0.7])}),
    Case("spin", hm.Spin, (3,), {"bias": np.array([-1.3, 0.0, 0.7])}),
    Case("categorical", hm.Categorical, (2, 3), {"bias": np.array([[0.3, -1.1, 0.0], [0.0, 0.0, 2.0]])}),
    Case("categorical of two", hm.Categorical, (2, 2), {"bias": np.array([[0.3, -1.1], [0.0, 0.0]])}),
    Case(
        "truncated_gaussian",
        hm.TruncatedGaussian,
        (3, *ENDS),
        {"linear": np.array([-1.3, 0.0, 0.7]), "quadratic": np.array([-4.0, 0.0, 2.5])},
    ),
    Case(
        "truncated_gauss_bernoulli",
        hm.TruncatedGaussBernoulli,
        (3, *ENDS),
        {
            "linear": np.array([-1.3, 0.0, 0.7]),
            "quadratic": np.array([2.5, 0.0, -4.0]),
            "logit_rate": np.array([1.1, 0.0, -2.0]),
        },
    ),
    Case("binomial", hm.Binomial, (3, 5), {"bias": np.array([-1.3, 0.0, 0.7])}),
    Case("binomial of one", hm.Binomial, (3, 1), {"bias": np.array([-1.3, 0.0, 0.7])}),
    Case(
        "relu",
        hm.ReLU,
        (3,),
        {"linear": np.array([-3.0, 0.0, 0.7]), "log_quadratic": np.log([5.0, 1.0, 0.2])},
    ),
    Case(
        "double_relu",
        hm.DoubleReLU,
        (3,),
        {
            "linear": np.array([-3.0, 0.0, 0.7]),
            "absolute": np.array([1.5, 0.0, -2.0]),
            "log_quadratic_positive": np.log([5.0, 1.0, 0.2]),
            "log_quadratic_negative": np.log([0.3, 1.0, 2.0]),
        },
    ),
    Case(
        "gaussian",
        hm.Gaussian,
        (3,),
        {"mean": np.array([-1.5, 0.0, 2.0]), "log_variance": np.log([0.05, 1.0, 5.0])},
    ),
)
DISCRETE = (hm.Bernoulli, hm.Binomial, hm.Spin, hm.Categorical)
HALF_LINES = (hm.ReLU, hm.DoubleReLU)
TWO_STATES = [c for c in CASES if c.cls in (hm.Bernoulli, hm.Spin)]
GAUSSIAN = next(c for c in CASES if c.name == "gaussian")
cases = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
discrete = pytest.mark.parametrize("case", [c for c in CASES if c.cls in DISCRETE], ids=lambda c: c.name)
SECOND = (0.0, 0.3)
# 20.5 lies just beyond the point where torch's softplus becomes the identity.
LEVELS = (-100.0, -30.0, -20.5, -7.0, -2.0, -0.5, -1e-3, 0.0, 0.1, 1.0, 3.0, 10.0, 20.5, 30.0, 100.0)


def truth_layer(layer: torch.nn.Module) -> oracle.Layer:
    """The oracle's natural parameters of a layer, in double precision from its stored values."""
    learnable = oracle.LearnableLayer(
        layer.kind,
        {name: array(getattr(layer, name)) for name in LEARNABLE[layer.kind]},
        bounds(layer),
        getattr(layer, "trials", 0),
    )
    return oracle.natural(oracle.Learnable((learnable,), ())).layers[0]


def fields(layer: torch.nn.Module) -> Array:
    """(m, width): every level on all columns alike, on alternating columns, and at random."""
    rng = np.random.default_rng(7)
    levels = np.array(LEVELS)[:, None]
    alternating = levels * np.where(np.arange(layer.width) % 2, -1.0, 1.0)
    only_first = levels * (np.arange(layer.width) == 0)
    # Random fields are rounded to multiples of 1/8, so that single precision holds them exactly.
    random = np.round(rng.normal(0, 3, (40, layer.width)) * 8) / 8
    return np.concatenate([np.repeat(levels, layer.width, 1), alternating, only_first, random])


def stored(field: Array, dtype: torch.dtype) -> tuple[Tensor, Array]:
    """A field as the library sees it, and the very same numbers in double precision."""
    tensor = torch.from_numpy(field).to(dtype)
    return tensor, array(tensor)


def units(layer: oracle.Layer, field: Array) -> list[Array]:
    """The columns of a field that belong to each unit."""
    return np.split(field, layer.n_units, axis=1)


def truth(layer: oracle.Layer, field: Array, second: Array | float) -> oracle.UnitTruth:
    """`oracle.unit_truth` of all units: psi (m, n_units), the rest (m, width)."""
    everywhere = np.broadcast_to(second, field.shape)
    results = [
        oracle.unit_truth(layer, i, b, a)
        for i, (b, a) in enumerate(zip(units(layer, field), units(layer, everywhere), strict=True))
    ]
    return oracle.UnitTruth(
        np.stack([r.log_partition for r in results], axis=1),
        np.concatenate([r.mean for r in results], axis=1),
        np.concatenate([r.variance for r in results], axis=1),
        tuple(
            np.concatenate([r.statistics[k] for r in results], axis=1)
            for k in range(len(results[0].statistics))
        ),
    )


def support(layer: oracle.Layer) -> Array:
    """(q, width): each state of one unit, taken by all units of a discrete layer together."""
    one = oracle.support(oracle.Layer(layer.kind, (layer.natural[0][:1],), trials=layer.trials))
    return np.tile(one, (1, layer.n_units))


def probabilities(layer: oracle.Layer, field: Array) -> Array:
    """(q, m, n_units): P of each state of each unit."""
    return np.stack(
        [
            np.stack(
                [
                    np.exp(oracle.unit_log_conditional(layer, i, s, b))
                    for i, (s, b) in enumerate(
                        zip(np.split(state, layer.n_units), units(layer, field), strict=True)
                    )
                ],
                axis=1,
            )
            for state in support(layer)
        ]
    )


def in_state(layer: oracle.Layer, sample: Array, state: Array) -> Array:
    """(..., n_units): whether each unit of `sample` is in its part of `state`."""
    equal = sample == state
    return equal.reshape(*sample.shape[:-1], layer.n_units, -1).all(-1)


def uniform_noise(layer: torch.nn.Module, values: Array, dtype: torch.dtype) -> Tensor:
    """(count, n_units): the same uniform for every unit."""
    return torch.from_numpy(np.repeat(values[:, None], layer.n_units, axis=1)).to(dtype)


def relative(dtype: torch.dtype) -> float:
    return 1e-10 if dtype == torch.float64 else 1e-4


dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
seconds = pytest.mark.parametrize("second", SECOND)


def test_every_exported_layer_is_covered() -> None:
    """A new kind of unit has to be given its case here."""
    (base,) = {cls for cls in hm.Bernoulli.__mro__ if cls.__name__ == "Layer"}
    exported = {
        value
        for module in (hm, hm.layers)
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, base) and not inspect.isabstract(value)
    }
    assert exported - {base} == {case.cls for case in CASES}


@cases
def test_attributes(case: Case) -> None:
    """kind, n_units, width, discrete."""
    layer = case.build()
    assert layer.kind == case.name.split()[0]
    assert layer.n_units == case.arguments[0]
    assert layer.discrete is (case.cls in DISCRETE)
    assert layer.width == (int(np.prod(case.arguments)) if case.cls is hm.Categorical else layer.n_units)
    assert layer.bounded is not issubclass(case.cls, (hm.Gaussian, *HALF_LINES))


@cases
def test_natural_parameters(case: Case) -> None:
    """theta in the order of the table of units."""
    layer = case.build()
    expected = truth_layer(layer).natural
    assert len(layer.natural()) == len(expected)
    for theta, value in zip(layer.natural(), expected, strict=True):
        np.testing.assert_allclose(array(theta).reshape(value.shape), value, rtol=1e-14)


@cases
@dtypes
@seconds
def test_log_partition(case: Case, dtype: torch.dtype, second: float) -> None:
    """psi(B, A)."""
    layer = case.build(dtype)
    field, exact_field = stored(fields(layer), dtype)
    actual = layer.log_partition(field, second)
    expected = truth(truth_layer(layer), exact_field, second).log_partition
    assert actual.dtype == dtype
    assert tuple(actual.shape) == expected.shape
    assert torch.isfinite(actual).all()
    np.testing.assert_allclose(array(actual), expected, rtol=relative(dtype), atol=relative(dtype))


@cases
@dtypes
@seconds
def test_moments(case: Case, dtype: torch.dtype, second: float) -> None:
    """Mean and variance; with A = 0 it may be left out."""
    layer = case.build(dtype)
    field, exact_field = stored(fields(layer), dtype)
    moments = layer.moments(field, second) if second else layer.moments(field)
    expected = truth(truth_layer(layer), exact_field, second)
    for actual, value in ((moments.mean, expected.mean), (moments.variance, expected.variance)):
        assert actual.dtype == dtype
        assert tuple(actual.shape) == value.shape
        assert torch.isfinite(actual).all()
        np.testing.assert_allclose(
            array(actual), value, rtol=relative(dtype), atol=1e-14 if dtype == torch.float64 else 1e-6
        )
    assert (moments.variance >= 0).all()


@pytest.mark.parametrize("case", TWO_STATES, ids=lambda c: c.name)
def test_two_state_tails_keep_their_relative_accuracy(case: Case) -> None:
    """p and p (1 - p) of e^-100, not 0 and not the rounding of 1 - p.

    Spin means are near -1 there, so only their variance has a tail. Below 1e-30 single precision is left out:
    its smallest normal number is 1e-38.
    """
    layer = case.build()
    field = fields(layer)
    moments = layer.moments(torch.from_numpy(field))
    expected = truth(truth_layer(layer), field, 0.0)
    np.testing.assert_allclose(array(moments.variance), expected.variance, rtol=1e-10, atol=0)
    np.testing.assert_allclose(
        array(moments.mean), expected.mean, rtol=1e-10, atol=1e-17 * (case.name == "spin")
    )
    single = case.build(torch.float32)
    rounded, exact_field = stored(field, torch.float32)
    moments = single.moments(rounded)
    expected = truth(truth_layer(single), exact_field, 0.0)
    np.testing.assert_allclose(array(moments.variance), expected.variance, rtol=1e-4, atol=1e-30)


@cases
@dtypes
@seconds
def test_expected_statistics(case: Case, dtype: torch.dtype, second: float) -> None:
    """E[t]."""
    layer = case.build(dtype)
    field, exact_field = stored(fields(layer), dtype)
    actual = layer.expected_statistics(field, second)
    expected = truth(truth_layer(layer), exact_field, second).statistics
    assert len(actual) == len(expected) == len(layer.natural())
    for t, value in zip(actual, expected, strict=True):
        assert torch.isfinite(t).all()
        np.testing.assert_allclose(
            array(t).reshape(value.shape),
            value,
            rtol=relative(dtype),
            atol=1e-14 if dtype == torch.float64 else 1e-6,
        )


@cases
@dtypes
def test_log_conditional(case: Case, dtype: torch.dtype) -> None:
    """log p(x | B) of every state of a discrete unit, or of a spread of real values."""
    layer = case.build(dtype)
    exact = truth_layer(layer)
    field, exact_field = stored(fields(layer), dtype)
    if layer.discrete:
        states = support(exact)
    elif layer.bounded:
        low, high = exact.bounds
        states = np.array([low + part * (high - low) for part in (0.0, 0.125, 0.5, 1.0)])
        states = (
            np.concatenate([states, np.zeros((1, 3))]) if case.cls is hm.TruncatedGaussBernoulli else states
        )
    else:
        states = np.repeat(np.array([[-4.0], [-0.5], [0.0], [1.25], [100.0]]), layer.n_units, axis=1)
        states = states[2:] if case.cls is hm.ReLU else states
    for state in states:
        actual = layer.log_conditional(torch.from_numpy(state).to(dtype).expand_as(field), field)
        expected = np.stack(
            [
                oracle.unit_log_conditional(exact, i, part, b)
                for i, (part, b) in enumerate(
                    zip(np.split(state, layer.n_units), units(exact, exact_field), strict=True)
                )
            ],
            axis=1,
        )
        assert tuple(actual.shape) == expected.shape
        assert torch.isfinite(actual).all()
        # Near certainty log p is a small difference of numbers of the size of the field: that is its scale.
        scale = max(1.0, float(np.abs(exact_field).max())) if layer.discrete else 1.0
        np.testing.assert_allclose(
            array(actual), expected, rtol=relative(dtype), atol=relative(dtype) * scale * 1e-2
        )


@dtypes
def test_gaussian_log_conditional_near_the_mean(dtype: torch.dtype) -> None:
    """Within a few deviations of the mean, where theta . t + Bx and psi are huge and nearly equal."""
    layer = GAUSSIAN.build(dtype)
    exact = truth_layer(layer)
    field, exact_field = stored(fields(layer), dtype)
    expected_moments = truth(exact, exact_field, 0.0)
    for deviations in (-3.0, 0.0, 0.5, 2.0):
        x, exact_x = stored(expected_moments.mean + deviations * np.sqrt(expected_moments.variance), dtype)
        density = -0.5 * (exact_x - expected_moments.mean) ** 2 / expected_moments.variance - 0.5 * np.log(
            2 * np.pi * expected_moments.variance
        )
        actual = array(layer.log_conditional(x, field))
        # At |B| = 100 the mean is 500 with deviation 2.2: rounding it once moves log p by 1e-4 at most.
        np.testing.assert_allclose(actual, density, rtol=relative(dtype), atol=5 * relative(dtype))


@cases
def test_log_conditional_is_normalised(case: Case) -> None:
    """Probabilities sum to one; densities integrate to one."""
    layer = case.build()
    exact = truth_layer(layer)
    field = torch.from_numpy(fields(layer))
    if layer.discrete:
        states = [torch.from_numpy(state).expand_as(field) for state in support(exact)]
        total = sum(layer.log_conditional(state, field).exp() for state in states)
    elif layer.bounded:
        # 100 panels of 20 nodes between the ends, and the atom where there is one.
        node, weight = np.polynomial.legendre.leggauss(20)
        places = (np.arange(100)[:, None] + 0.5 * (node + 1)).reshape(-1) / 100
        low, high = (torch.from_numpy(end) for end in exact.bounds)
        states = low + torch.from_numpy(places).reshape(-1, 1, 1) * (high - low)
        shares = torch.from_numpy(np.tile(weight / 200, 100)).reshape(-1, 1, 1) * (high - low)
        total = sum(
            (share * layer.log_conditional(x.expand(-1, *field.shape), field).exp()).sum(0)
            for x, share in zip(states.split(100), shares.split(100), strict=True)
        )
        if case.cls is hm.TruncatedGaussBernoulli:
            total = total + layer.log_conditional(torch.zeros_like(field), field).exp()
    elif case.cls in HALF_LINES:
        # Panels of 20 nodes, small beside every deviation, to beyond every mean.
        node, weight = np.polynomial.legendre.leggauss(20)
        edges = np.concatenate([[0.0], 2.0 ** -np.arange(12, 0, -1), np.arange(1, 560)])
        places = (edges[:-1, None] + np.diff(edges)[:, None] * 0.5 * (node + 1)).reshape(-1, 1, 1)
        shares = torch.from_numpy((np.diff(edges)[:, None] * 0.5 * weight).reshape(-1, 1, 1))
        total = sum(
            (shares * layer.log_conditional(torch.from_numpy(side * places), field).exp()).sum(0)
            for side in ((1, -1) if case.cls is hm.DoubleReLU else (1,))
        )
    else:
        moments = layer.moments(field)
        deviation = moments.variance.sqrt()
        nodes = [moments.mean + z * deviation for z in np.arange(-12, 12, 0.25) + 0.1]
        total = sum(layer.log_conditional(x, field).exp() for x in nodes) * 0.25 * deviation
    # psi of a Gaussian unit reaches 3e4 at |B| = 100, and its rounding is the total's.
    np.testing.assert_allclose(array(total), 1, rtol=1e-12 if layer.discrete else 1e-10)


@cases
@seconds
def test_moments_are_derivatives_of_the_log_partition(case: Case, second: float) -> None:
    """mean = d psi / dB, variance = d2 psi / dB2, E[t] = d psi / d theta, all by autograd."""
    layer = case.build()
    field = torch.from_numpy(fields(layer)).requires_grad_()
    theta = tuple(t.detach().clone().requires_grad_() for t in layer.natural())
    psi = layer.log_partition(field, second, theta=theta)
    moments = layer.moments(field.detach(), second)
    (first,) = torch.autograd.grad(psi.sum(), field, create_graph=True)
    np.testing.assert_allclose(array(first), array(moments.mean), rtol=1e-8, atol=1e-12)
    for column in range(layer.width):
        (curvature,) = torch.autograd.grad(first[:, column].sum(), field, retain_graph=True)
        np.testing.assert_allclose(
            array(curvature[:, column]), array(moments.variance[:, column]), rtol=1e-7, atol=1e-8
        )
    by_autograd = torch.autograd.grad(layer.log_partition(field.detach(), second, theta=theta).sum(), theta)
    for t, derivative in zip(layer.expected_statistics(field.detach(), second), by_autograd, strict=True):
        np.testing.assert_allclose(array(t).sum(0).reshape(-1), array(derivative).reshape(-1), rtol=1e-9)


@cases
def test_the_derivative_of_ln_p_by_the_field_is_the_state_less_its_mean(case: Case) -> None:
    """Also where a field is 0, at the edge of the half-lines."""
    layer = case.build()
    field = torch.from_numpy(fields(layer)).requires_grad_()
    noise = layer.noise(field.shape, generator=torch.Generator().manual_seed(5)).double()
    x = layer.sample(field.detach(), noise)
    (derivative,) = torch.autograd.grad(layer.log_conditional(x, field).sum(), field)
    expected = array(x - layer.moments(field.detach()).mean)
    np.testing.assert_allclose(array(derivative), expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


@cases
def test_derivatives_by_finite_differences(case: Case) -> None:
    """The same without autograd, so that a wrong backward cannot agree with itself."""
    layer = case.build()
    field = np.random.default_rng(4).normal(0, 2, (20, layer.width))
    step = 1e-3
    moments = layer.moments(torch.from_numpy(field), 0.3)
    for column in range(layer.width):
        shift = step * (np.arange(layer.width) == column)
        values = [
            array(layer.log_partition(torch.from_numpy(field + k * shift), 0.3)).sum(1) for k in range(-2, 3)
        ]
        slope = (values[0] - 8 * values[1] + 8 * values[3] - values[4]) / (12 * step)
        bend = (-values[0] + 16 * values[1] - 30 * values[2] + 16 * values[3] - values[4]) / (12 * step**2)
        np.testing.assert_allclose(array(moments.mean[:, column]), slope, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(array(moments.variance[:, column]), bend, rtol=1e-6, atol=1e-6)


@cases
def test_second_order_field_may_be_a_tensor(case: Case) -> None:
    """A of the field's shape, different in every column."""
    layer = case.build()
    field = np.random.default_rng(5).normal(0, 2, (10, layer.width))
    second = np.random.default_rng(6).uniform(0, 1, field.shape)
    expected = truth(truth_layer(layer), field, second)
    arguments = torch.from_numpy(field), torch.from_numpy(second)
    moments = layer.moments(*arguments)
    np.testing.assert_allclose(array(layer.log_partition(*arguments)), expected.log_partition, rtol=1e-10)
    np.testing.assert_allclose(array(moments.mean), expected.mean, rtol=1e-10)
    np.testing.assert_allclose(array(moments.variance), expected.variance, rtol=1e-10)
    for t, value in zip(layer.expected_statistics(*arguments), expected.statistics, strict=True):
        np.testing.assert_allclose(array(t).reshape(value.shape), value, rtol=1e-10)


@cases
def test_given_natural_parameters_override_the_layers_own(case: Case) -> None:
    """theta is used by every method that takes it."""
    layer = case.build()
    field = np.random.default_rng(8).normal(0, 2, (6, layer.width))
    other = tuple(1.7 * t.detach() + 0.2 for t in layer.natural())
    own = truth_layer(layer)
    exact = oracle.Layer(own.kind, tuple(1.7 * t + 0.2 for t in own.natural), own.bounds, own.trials)
    expected = truth(exact, field, 0.3)
    b = torch.from_numpy(field)
    np.testing.assert_allclose(
        array(layer.log_partition(b, 0.3, theta=other)), expected.log_partition, rtol=1e-10
    )
    moments = layer.moments(b, 0.3, theta=other)
    np.testing.assert_allclose(array(moments.mean), expected.mean, rtol=1e-10)
    np.testing.assert_allclose(array(moments.variance), expected.variance, rtol=1e-10)
    for t, value in zip(layer.expected_statistics(b, 0.3, theta=other), expected.statistics, strict=True):
        np.testing.assert_allclose(array(t).reshape(value.shape), value, rtol=1e-10)
    state = support(own)[-1] if layer.discrete else np.full(layer.width, 0.6)
    log_p = layer.log_conditional(torch.from_numpy(state).expand_as(b), b, theta=other)
    for i, (part, columns) in enumerate(zip(np.split(state, layer.n_units), units(own, field), strict=True)):
        np.testing.assert_allclose(
            array(log_p[:, i]), oracle.unit_log_conditional(exact, i, part, columns), rtol=1e-10
        )
    noise = layer.noise(b.shape, generator=torch.Generator().manual_seed(1)).double()
    twin = case.build()
    with torch.no_grad():
        if issubclass(case.cls, hm.Gaussian):
            twin.fit_((other[0] / other[1],), 1 / other[1])
        elif layer.kind in oracle.TRUNCATED + oracle.HALF_LINES:
            for (name, parameter), value in zip(twin.named_parameters(), other, strict=True):
                parameter.copy_(value.log() if name.startswith("log_quadratic") else value)
        else:
            for parameter, value in zip(twin.parameters(), other, strict=True):
                parameter.copy_(value.reshape(parameter.shape))
    torch.testing.assert_close(layer.sample(b, noise, theta=other), twin.sample(b, noise))
    torch.testing.assert_close(layer.mode(b, theta=other), twin.mode(b))


@cases
def test_statistics(case: Case) -> None:
    """theta . t(x) of single states, and E[t] as the average of t."""
    layer = case.build()
    exact = truth_layer(layer)
    states = support(exact) if layer.discrete else np.random.default_rng(9).normal(size=(5, layer.width))
    actual = layer.statistics(torch.from_numpy(states))
    expected = oracle.statistics(exact, states)
    assert len(actual) == len(expected)
    for t, value, like in zip(
        actual,
        expected,
        layer.expected_statistics(torch.zeros(len(states), layer.width).double()),
        strict=True,
    ):
        assert t.shape == like.shape
        np.testing.assert_allclose(array(t).reshape(value.shape), value, rtol=1e-14)


@cases
def test_leading_dimensions_are_free(case: Case) -> None:
    """(width,), (batch, width) and (chains, batch, width) alike."""
    layer = case.build()
    field = torch.from_numpy(np.random.default_rng(10).normal(size=(2, 3, layer.width)))
    noise = layer.noise(field.shape, generator=torch.Generator().manual_seed(1)).double()
    for results in (
        [layer.log_partition(b) for b in (field, field[1], field[1, 2])],
        [layer.moments(b).mean for b in (field, field[1], field[1, 2])],
        [layer.moments(b).variance for b in (field, field[1], field[1, 2])],
        [layer.mode(b) for b in (field, field[1], field[1, 2])],
        [layer.sample(b, u) for b, u in ((field, noise), (field[1], noise[1]), (field[1, 2], noise[1, 2]))],
    ):
        torch.testing.assert_close(results[0][1], results[1])
        torch.testing.assert_close(results[1][2], results[2])


# Sampling --------------------------------------------------------------------------------------------------


@cases
def test_sample_is_deterministic_given_noise(case: Case) -> None:
    """Same field and noise, same bits; noise comes from the generator alone, (..., n_units)."""
    layer = case.build()
    field = torch.from_numpy(fields(layer))
    first, second = (layer.noise(field.shape, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    other = layer.noise(field.shape, generator=torch.Generator().manual_seed(4))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert tuple(first.shape) == (len(field), layer.n_units)
    if layer.discrete:
        assert (first >= 0).all()
        assert (first < 1).all()
    state = torch.random.get_rng_state()
    sample = layer.sample(field, first)
    assert torch.equal(sample, layer.sample(field, second))
    assert torch.equal(state, torch.random.get_rng_state())
    assert sample.shape == field.shape
    assert sample.dtype == field.dtype
    layer.check(sample, "X")


@discrete
@pytest.mark.parametrize(("dtype", "offset"), [(torch.float32, 0.0), (torch.float64, 0.5)], ids=str)
def test_sample_has_the_right_distribution(case: Case, dtype: torch.dtype, offset: float) -> None:
    """Over a regular grid of N uniforms each state appears in a fraction P of them, to 1/N."""
    layer = case.build(dtype)
    exact = truth_layer(layer)
    count = 4096
    noise = uniform_noise(layer, (np.arange(count) + offset) / count, dtype)
    field, exact_field = stored(fields(layer), dtype)
    expected = probabilities(exact, exact_field)
    for row in range(len(field)):
        sample = array(layer.sample(field[row].expand(count, -1), noise))
        frequency = np.stack([in_state(exact, sample, state).mean(0) for state in support(exact)])
        np.testing.assert_allclose(frequency.sum(0), 1, rtol=1e-15)
        # An interval of length P holds P N grid points, give or take one.
        slack = 1 / count + (1e-9 if dtype == torch.float64 else 1e-5)
        np.testing.assert_allclose(frequency, expected[:, row], rtol=0, atol=slack)


@dtypes
def test_gaussian_sample_is_mean_plus_deviation_times_noise(dtype: torch.dtype) -> None:
    """Noise is standard normal, also at |B| = 100."""
    layer = GAUSSIAN.build(dtype)
    field, exact_field = stored(fields(layer), dtype)
    noise = layer.noise(field.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
    expected = truth(truth_layer(layer), exact_field, 0.0)
    np.testing.assert_allclose(
        array(layer.sample(field, noise)),
        expected.mean + np.sqrt(expected.variance) * array(noise),
        rtol=relative(dtype),
        atol=relative(dtype) * 1e-2,
    )


@pytest.mark.statistical
def test_noise_has_its_distribution() -> None:
    """Uniform or standard normal, by Kolmogorov-Smirnov; fails by chance for 5e-4 of all seeds."""
    generator = torch.Generator().manual_seed(20240)
    for case in CASES:
        layer = case.build()
        noise = layer.noise((20_000, layer.width), generator=generator)
        distribution = "norm" if issubclass(case.cls, hm.Gaussian) else "uniform"
        assert stats.kstest(array(noise).reshape(-1), distribution).pvalue > 1e-4, case.name


@discrete
@dtypes
def test_sample_at_a_field_of_100_is_constant(case: Case, dtype: torch.dtype) -> None:
    """The state with probability 1 - e^-100 for every uniform from 2^-24 to the largest below 1."""
    layer = case.build(dtype)
    exact = truth_layer(layer)
    grid = np.concatenate([[2.0**-24], np.arange(1, 1000) / 1000, [1 - 2.0**-24]])
    noise = uniform_noise(layer, grid, dtype)
    between = layer.two_values is None and not layer.one_hot  # states that no field makes certain
    for state in support(exact)[[0, -1]] if between else support(exact):
        direction = np.where(state > 0, 100.0, 0.0 if layer.kind == "categorical" else -100.0)
        field = torch.from_numpy(direction).to(dtype)
        sample = array(layer.sample(field.expand(len(grid), -1), noise))
        np.testing.assert_array_equal(sample, np.broadcast_to(state, sample.shape))
        np.testing.assert_array_equal(array(layer.mode(field)), state)


@discrete
@dtypes
def test_sample_at_the_ends_of_the_noise_is_in_the_support(case: Case, dtype: torch.dtype) -> None:
    """Uniforms of exactly 0 and of the largest number below 1."""
    layer = case.build(dtype)
    field = torch.from_numpy(fields(layer)).to(dtype)
    largest = np.nextafter(np.float32(1), np.float32(0)) if dtype == torch.float32 else np.nextafter(1.0, 0.0)
    for value in (0.0, float(largest)):
        noise = torch.full((len(field), layer.n_units), value, dtype=dtype)
        sample = layer.sample(field, noise)
        layer.check(sample, "X")
        if layer.kind == "categorical":
            assert (sample.reshape(len(field), layer.n_units, -1).sum(-1) == 1).all()


def test_categorical_with_many_states_never_takes_an_impossible_one() -> None:
    """Rounding in a cumulative sum must not hand the last sliver of noise to a state of weight e^-100."""
    layer = hm.Categorical(1, 60)
    rng = np.random.default_rng(14)
    field = torch.from_numpy(rng.normal(0, 1, (500, 60))).float()
    field[:, -1] = -100.0
    field[:, 0] = -100.0
    for value in (2.0**-24, 1 - 2.0**-24):
        sample = layer.sample(field, torch.full((500, 1), value))
        assert (sample.sum(1) == 1).all()
        assert (sample[:, -1] == 0).all()
        assert (sample[:, 0] == 0).all()


@pytest.mark.parametrize("case", TWO_STATES, ids=lambda c: c.name)
def test_common_noise_is_monotone(case: Case) -> None:
    """Two chains that share noise keep their order: a larger field never gives a lower state."""
    layer = case.build()
    field = torch.linspace(-6, 6, 200, dtype=torch.float64)[:, None].expand(200, 3)
    for value in np.linspace(0.01, 0.99, 25):
        sample = layer.sample(field, torch.full((200, 3), float(value), dtype=torch.float64))
        assert (sample[1:] >= sample[:-1]).all()


# Modes -----------------------------------------------------------------------------------------------------


@cases
@dtypes
def test_mode_is_the_most_probable_state(case: Case, dtype: torch.dtype) -> None:
    """The argmax of the conditional; the mean of a Gaussian unit."""
    layer = case.build(dtype)
    exact = truth_layer(layer)
    field, exact_field = stored(fields(layer), dtype)
    mode = array(layer.mode(field))
    assert mode.shape == exact_field.shape
    if layer.kind in oracle.TRUNCATED:
        # Nowhere on a fine grid, and not at the atom, is the density higher.
        low, high = exact.bounds
        places = [low + part * (high - low) for part in np.linspace(0, 1, 101)]
        places += [np.zeros(3)] if len(exact.natural) == 3 else []
        best = layer.log_conditional(torch.from_numpy(mode).to(dtype), field)
        for place in places:
            other = layer.log_conditional(torch.from_numpy(place).to(dtype).expand_as(field), field)
            assert (other <= best + (2e-4 if dtype == torch.float32 else 1e-9)).all()
        layer.check(torch.from_numpy(mode).to(dtype), "mode")
        return
    if case.cls in HALF_LINES:
        best = layer.log_conditional(torch.from_numpy(mode).to(dtype), field)
        for place in np.concatenate([np.linspace(-600, 600, 25), np.linspace(-3, 3, 31)]):
            x = torch.full_like(field, place)
            other = layer.log_conditional(x, field)
            assert (other <= best + (2e-4 if dtype == torch.float32 else 1e-9)).all()
        layer.check(torch.from_numpy(mode).to(dtype), "mode")
        return
    if not layer.discrete:
        np.testing.assert_allclose(
            mode, truth(exact, exact_field, 0.0).mean, rtol=relative(dtype), atol=relative(dtype) * 1e-2
        )
        return
    table = probabilities(exact, exact_field)
    states = support(exact)
    chosen = np.stack([in_state(exact, mode, state) for state in states])
    np.testing.assert_array_equal(chosen.sum(0), 1)
    picked = (chosen * table).sum(0)
    np.testing.assert_array_less(table.max(0) * (1 - 1e-5), picked)


def test_mode_gives_ties_to_the_upper_value() -> None:
    """1 rather than 0, +1 rather than -1, the last of equally probable categories."""
    for cls, upper in ((hm.Bernoulli, 1.0), (hm.Spin, 1.0)):
        layer = cls(3)
        with torch.no_grad():
            layer.bias.copy_(torch.tensor([0.5, -0.25, 0.0]))
        assert torch.equal(layer.mode(-layer.bias.detach()), torch.full((3,), upper))
    categorical = hm.Categorical(3, 3)
    with torch.no_grad():
        categorical.bias.zero_()
    field = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 2.0, 2.0, -1.0])
    expected = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    assert torch.equal(categorical.mode(field), expected)
