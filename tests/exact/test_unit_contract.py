"""What every kind of unit promises, whatever it is: each method against the others, with no truth of its own.

A new kind is found by the registry and needs no line here. Statistical tests fail a correct kind with a
probability of at most 1e-3, shared over their comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import harmonium as hm
from harmonium.data import Rows
from harmonium.layers import Layer
from harmonium.machine import init_visible_biases_

from .machines import array

FAILURE_RATE = 1e-3
UNITS, STATES = 3, 4
DRAWS = 40_000
kinds = pytest.mark.parametrize("kind", Layer.registry)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(kind: str, n_units: int = UNITS) -> Layer:
    """A layer with parameters N(0, 0.5²) about those of a new one."""
    layer = Layer.registry[kind].plain(n_units, STATES).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.5 * torch.randn(parameter.shape, generator=generator(7), dtype=torch.float64)
    return layer


def every(has: Callable[[Layer], bool]) -> pytest.MarkDecorator:
    """The kinds of which something is so."""
    return pytest.mark.parametrize("kind", [kind for kind in Layer.registry if has(make(kind))])


discrete = every(lambda layer: layer.discrete)


def fields(layer: Layer, rows: int = 20) -> Tensor:
    return 2 * torch.randn(rows, layer.width, generator=generator(1), dtype=torch.float64)


def draws(layer: Layer, field: Tensor, count: int = DRAWS) -> Tensor:
    """(count, width), all at one field."""
    noise = layer.noise((count, layer.width), generator=generator(2)).double()
    with torch.no_grad():
        return layer.sample(field.expand(count, -1), noise)


def machine(kind: str, n_units: int = UNITS) -> hm.BoltzmannMachine:
    made = hm.BoltzmannMachine([make(kind, n_units), hm.Bernoulli(2)], seed=3).double()
    hm.machine.normal_(made, 0.4, generator(4))
    return made


def assert_means(values: Tensor, expected: Tensor) -> None:
    """Column means within errors; columns that never change are equal."""
    error = values.std(0) / len(values) ** 0.5
    difference = (values.mean(0) - expected).abs()
    fixed = error < 1e-12
    assert bool((difference[fixed] < 1e-9).all())
    limit = stats.norm.isf(FAILURE_RATE / (2 * max(1, int((~fixed).sum()))))
    assert bool((difference <= limit * error)[~fixed].all())


# What a unit is --------------------------------------------------------------------------------------------


@kinds
def test_values_are_the_states_or_there_are_none(kind: str) -> None:
    layer = make(kind)
    if not layer.discrete:
        assert layer.n_states is None and layer.two_values is None
        for ask in (layer.values, lambda: layer.from_digits(torch.zeros(1, UNITS).long())):
            with pytest.raises(TypeError, match=f"{kind} units have no finite list of states"):
                ask()
        return
    values = layer.values()
    assert tuple(values.shape) == (layer.n_states, layer.width // UNITS)
    assert values.dtype == torch.float64
    assert len(torch.unique(values, dim=0)) == layer.n_states
    digits = torch.randint(layer.n_states, (5, UNITS), generator=generator())
    x = layer.from_digits(digits)
    layer.check(x, "x")
    assert torch.equal(layer.by_unit(x), values[digits])
    if layer.width == UNITS:
        assert bool((values[1:] > values[:-1]).all())
    assert 2**layer.log2_states == pytest.approx(layer.n_states**UNITS)


@every(lambda layer: layer.two_values is not None)
def test_two_values_have_the_distribution_that_they_promise(kind: str) -> None:
    layer = make(kind)
    low, high = layer.two_values
    assert layer.values()[:, 0].tolist() == [low, high]
    B = fields(layer)
    (U,) = layer.natural()
    upper = layer.log_conditional(torch.full_like(B, high), B).exp()
    torch.testing.assert_close(upper, torch.sigmoid((high - low) * (U + B)))


@every(lambda layer: layer.gaussian)
def test_a_gaussian_unit_is_normal(kind: str) -> None:
    layer = make(kind)
    B = fields(layer)
    U, V = layer.natural()
    distribution = torch.distributions.Normal((U + B) / V, V.rsqrt())
    torch.testing.assert_close(layer.log_conditional(B / 3, B), distribution.log_prob(B / 3))


@every(lambda layer: layer.square is not None)
def test_the_square_is_that_combination_of_the_statistics(kind: str) -> None:
    """Σ c t(x) + x²/2 is the same for every state, and a curvature adds A c to θ."""
    layer = make(kind)
    B = fields(layer)
    theta = layer.natural()
    assert len(layer.square) == len(theta)
    x = draws(layer, B[0], 200)
    rest = sum(c * t for c, t in zip(layer.square, layer.statistics(x), strict=True)) + 0.5 * x.square()
    torch.testing.assert_close(rest, rest[:1].expand_as(rest))
    bent = tuple(p + 0.3 * c for p, c in zip(theta, layer.square, strict=True))
    gap = layer.log_partition(B, 0.3) - layer.log_partition(B, theta=bent)
    torch.testing.assert_close(gap, gap[:1].expand_as(gap))
    torch.testing.assert_close(layer.moments(B, 0.3).variance, layer.moments(B, theta=bent).variance)


# ψ and what follows from it --------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("A", [0.0, 0.2])
def test_moments_and_statistics_are_derivatives(kind: str, A: float) -> None:
    layer = make(kind)
    B = fields(layer).requires_grad_()
    theta = tuple(p.detach().clone().requires_grad_() for p in layer.natural())
    psi = layer.log_partition(B, A, theta)
    first, *rest = torch.autograd.grad(psi.sum(), (B, *theta), create_graph=True)
    moments = layer.moments(B, A, theta)
    torch.testing.assert_close(moments.mean, first, rtol=1e-9, atol=1e-11)
    for column in range(layer.width):
        (bend,) = torch.autograd.grad(first[:, column].sum(), B, retain_graph=True)
        torch.testing.assert_close(moments.variance[:, column], bend[:, column], rtol=1e-7, atol=1e-9)
    for t, derivative in zip(layer.expected_statistics(B, A, theta), rest, strict=True):
        torch.testing.assert_close(t.sum(0), derivative, rtol=1e-9, atol=1e-9)


@discrete
def test_the_partition_of_discrete_units_sums_their_weights(kind: str) -> None:
    layer = make(kind)
    B = fields(layer)
    states = layer.values().repeat(1, UNITS)
    alone = layer.unit_log_weights(states)
    weights = alone.unsqueeze(1) + layer.by_unit(B * states.unsqueeze(1)).sum(-1)
    torch.testing.assert_close(weights.logsumexp(0), layer.log_partition(B))
    total = torch.stack([layer.log_conditional(x.expand_as(B), B).exp() for x in states]).sum(0)
    torch.testing.assert_close(total, torch.ones_like(total))
    measure = layer.log_measure(states)
    measure = torch.zeros_like(alone) if measure is None else measure
    torch.testing.assert_close(alone.sum(-1), layer.log_weight(states) + measure.sum(-1))


@kinds
def test_conditionals_are_weights_over_the_partition(kind: str) -> None:
    """ln p(x | B) = θ·t(x) + ln measure + B x - ψ(B), at states of every kind."""
    layer = make(kind)
    B = fields(layer, 1)
    x = draws(layer, B[0], 200)
    expected = layer.unit_log_weights(x) + layer.by_unit(B * x).sum(-1) - layer.log_partition(B)
    torch.testing.assert_close(layer.log_conditional(x, B.expand_as(x)), expected, rtol=1e-9, atol=1e-9)


@kinds
@pytest.mark.statistical
def test_samples_have_the_statistics(kind: str) -> None:
    layer = make(kind)
    B = fields(layer, 1)
    x = draws(layer, B[0])
    layer.check(x, "x")
    expected = layer.expected_statistics(B)
    assert_means(torch.cat(layer.statistics(x), -1), torch.cat(expected, -1)[0].detach())


@pytest.mark.mostly_nightly(5)
@kinds
@pytest.mark.statistical
def test_samples_have_the_density(kind: str) -> None:
    """E[p(x | B')/p(x | B)] = 1 for x ~ p(x | B), unit by unit, for two nearby B'."""
    layer = make(kind)
    B = fields(layer, 1)
    x = draws(layer, B[0])
    for shift in (-0.3, 0.3):
        other = layer.log_conditional(x, (B + shift * torch.arange(layer.width)).expand_as(x))
        ratio = (other - layer.log_conditional(x, B.expand_as(x))).exp().detach()
        assert_means(ratio, torch.ones(UNITS, dtype=torch.float64))


@kinds
def test_no_state_is_more_probable_than_the_mode(kind: str) -> None:
    layer = make(kind)
    B = fields(layer)
    for theta in (layer.natural(), layer.reference()):
        mode = layer.mode(B, theta)
        layer.check(mode.detach(), "mode")
        best = layer.log_conditional(mode, B, theta)
        if layer.discrete:
            others = [x.expand_as(B) for x in layer.values().repeat(1, UNITS)]
        else:
            nearby = torch.linspace(-2, 2, 81, dtype=torch.float64)
            low, high = -1e3 if not layer.bounded else 0.0, 1e3 if not layer.bounded else 1.0
            others = [(mode + gap).clamp(low, high) for gap in nearby]
        for x in others:
            assert bool((layer.log_conditional(x, B, theta) <= best + 1e-9).all())


@kinds
def test_proposals_stay_in_the_support(kind: str) -> None:
    layer = make(kind)
    B = fields(layer, 1)
    x = draws(layer, B[0], 500)
    noise = layer.noise(x.shape, generator=generator(5)).double()
    layer.check(layer.propose(x, noise, 2.0), "proposal")


# In machines -----------------------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("rows", [1, 50])
def test_constant_columns_give_finite_parameters(kind: str, rows: int) -> None:
    """Every unit in one state throughout: the lowest, the highest, or one that was drawn."""
    layer = make(kind)
    if layer.discrete:
        states = [layer.values()[k].repeat(UNITS) for k in range(layer.n_states)]
    else:
        zero = torch.zeros(layer.width, dtype=torch.float64)
        states = [layer.mode(zero, layer.reference()), *draws(layer, zero, 3)]
    for state in states:
        made = machine(kind)
        data = state.detach().expand(rows, -1)
        init_visible_biases_(made, Rows.of(data.clone()))
        for name, parameter in made.named_parameters():
            assert bool(torch.isfinite(parameter).all()), name
        assert bool(torch.isfinite(made.free_energy(data.to(made.dtype))).all())


@kinds
def test_a_fit_without_a_number_of_rows_is_finite_or_refused(kind: str) -> None:
    """``fit_`` alone does not know how many rows a constant stands for, and so cannot smooth it."""
    layer = make(kind)
    before = [parameter.clone() for parameter in layer.parameters()]
    state = layer.mode(torch.full((1, layer.width), 5.0, dtype=torch.float64))
    expected = tuple(t[0] for t in layer.statistics(state))
    try:
        layer.fit_(expected, torch.zeros(layer.width, dtype=torch.float64))
    except ValueError as error:
        assert str(error).startswith(("expected: ", "variance_floor: "))
        assert all(torch.equal(a, b) for a, b in zip(layer.parameters(), before, strict=True))
    assert all(bool(parameter.isfinite().all()) for parameter in layer.parameters())
    hm.machine.fit_(layer, expected, torch.zeros(layer.width, dtype=torch.float64), rows=10)


@kinds
def test_energies_survive_a_file(kind: str, tmp_path: Path) -> None:
    made = machine(kind)
    made.save(tmp_path / "machine.safetensors")
    other = hm.load(tmp_path / "machine.safetensors")
    states = made.random_states(6, seed=generator(6))
    assert str(other.layers[0]) == str(made.layers[0])
    assert torch.equal(other.energy(states), made.energy(states))
    for summed in ("even", "odd"):
        assert torch.equal(other.free_energy(states, summed), made.free_energy(states, summed))


@kinds
def test_data_of_a_kind_make_that_kind(kind: str) -> None:
    layer = make(kind)
    x = draws(layer, torch.zeros(layer.width, dtype=torch.float64), 60)
    if layer.width != UNITS:
        x = layer.by_unit(x).argmax(-1).double()
    rows = Rows.of(x, torch.float64)
    for name in (kind, "auto"):
        visible, encoder = hm.tables.visible_for(rows, name)
        visible.double().check(encoder.encode(x), "encoded")
        torch.testing.assert_close(encoder.decode(encoder.encode(x)).double(), x)
        assert visible.kind == kind or name == "auto"


@kinds
def test_pseudo_likelihoods_are_ratios_of_free_energies(kind: str) -> None:
    made = machine(kind)
    layer = made.layers[0]
    X = made.random_states(5, seed=generator(8))[0]
    if not layer.discrete:
        with pytest.raises(
            ValueError, match=rf"expected discrete visible units, received {type(layer).__name__}"
        ):
            hm.likelihood.pseudo_log_likelihood(made, X)
        return
    expected = torch.zeros(5, dtype=torch.float64)
    for unit in range(UNITS):
        free_energies = []
        for value in layer.values():
            changed = layer.by_unit(X).clone()
            changed[:, unit] = value
            free_energies.append(-made.free_energy(changed.flatten(-2)))
        expected += -made.free_energy(X) - torch.stack(free_energies).logsumexp(0)
    torch.testing.assert_close(hm.likelihood.pseudo_log_likelihood(made, X), expected.detach())


@kinds
def test_quadrature_beside_gaussian_units_agrees_with_enumeration(kind: str) -> None:
    made = hm.BoltzmannMachine([hm.Gaussian(1), make(kind)], seed=9).double()
    hm.machine.normal_(made, 0.8, generator(10))
    if not made.layers[1].discrete:
        with pytest.raises(ValueError, match=f"received gaussian, {kind}"):
            hm.likelihood.quadrature_log_partition(made)
        return
    exact = hm.likelihood.exact_log_partition(made)
    assert hm.likelihood.quadrature_log_partition(made) == pytest.approx(exact, abs=1e-8)


@kinds
@pytest.mark.parametrize("channel", [{"flip_probability": 0.2}, {"noise_std": 0.7}], ids=str)
def test_denoising_is_right_or_refused_by_name(kind: str, channel: dict[str, float]) -> None:
    """Without couplings the posterior is p(x) p(y | x) of each unit, here from a large sample of p(x)."""
    made = machine(kind)
    with torch.no_grad():
        made.couplings[0].weight.zero_()
    layer = made.layers[0]
    v = draws(layer, torch.zeros(layer.width, dtype=torch.float64))
    y = v[:1]
    try:
        found = hm.tasks.denoise(made, y, **channel, method="tap", sweeps=500, damping=0.0)
    except ValueError as error:
        name, p = next(iter(channel.items()))
        assert name in str(error) and type(layer).__name__ in str(error)
        return
    units, seen = layer.by_unit(v), layer.by_unit(y)
    if "flip_probability" in channel:
        p = channel["flip_probability"]
        same = (units == seen).all(-1)
        weight = torch.where(same, 1 - p, p / (layer.n_states - 1))
    else:
        weight = (-(units - seen).square().sum(-1) / (2 * channel["noise_std"] ** 2)).exp()
    # E[w (x - mean)] = 0: the posterior mean of every column.
    off = (units - layer.by_unit(found.mean)) * weight.unsqueeze(-1)
    assert_means(off.flatten(-2), torch.zeros(layer.width, dtype=torch.float64))


@kinds
def test_the_decision_of_a_state_is_that_state(kind: str) -> None:
    """And of means near it, unless the units are real."""
    from harmonium.tasks.rows import nearest_state

    layer = make(kind)
    x = draws(layer, torch.zeros(layer.width, dtype=torch.float64), 50)
    assert torch.equal(nearest_state(layer, x), x)
    if layer.discrete:
        assert torch.equal(nearest_state(layer, x + 0.2 * (x.mean(0) - x).clamp(-1, 1)), x)


@kinds
def test_the_third_order_is_for_two_values_or_refused_by_name(kind: str) -> None:
    made = machine(kind)
    start = made.random_states(2, seed=generator(11))[0]
    if made.layers[0].two_values is None:
        with pytest.raises(ValueError, match=type(made.layers[0]).__name__):
            hm.meanfield.tap(made, start, order=3)
    else:
        assert bool(hm.meanfield.tap(made, start, order=3).converged.all())


@kinds
@pytest.mark.mostly_nightly(2)
def test_estimators_offer_it(kind: str) -> None:
    """As visible and as hidden units; unbounded ones beside unbounded ones are refused."""
    layer = make(kind)
    x = draws(layer, torch.zeros(layer.width, dtype=torch.float64), 40)
    x = array(layer.by_unit(x).argmax(-1) if layer.width != UNITS else x)
    seen = hm.RBM(2, visible=kind, epochs=1, random_state=0).fit(x)
    assert seen.machine_.layers[0].kind == kind
    assert np.isfinite(seen.score(x))
    binary = (x > np.median(x)).astype(float)
    hidden = hm.RBM(2, hidden_kind=kind, hidden_states=3, epochs=1, random_state=0).fit(binary)
    assert hidden.machine_.layers[1].kind == kind
    assert np.isfinite(hidden.transform(binary)).all()
    if not layer.bounded:
        with pytest.raises(ValueError, match=f"hidden_kind: expected discrete units.*received '{kind}'"):
            hm.RBM(2, visible="gaussian", hidden_kind=kind).fit(x)
