"""Machines of counts and of half lines against sums over all states and quadrature, from the definition.

-E(x) = Σ_l θ_l·t_l(x_l) + Σ_l x_lᵀ J_l x_{l+1}; counts have the base measure C(N, x), half lines dx.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import comb, log

import numpy as np
import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium.meanfield import Status

from .machines import exact_gradient

MACHINES: dict[str, Callable[[], list[hm.layers.Layer]]] = {
    "counts": lambda: [hm.Binomial(2, 3), hm.Binomial(2, 2)],
    "counts and spins": lambda: [hm.Spin(3), hm.Binomial(2, 4), hm.Bernoulli(2)],
    "counts and rectified": lambda: [hm.Binomial(2, 3), hm.ReLU(1)],
    "rectified and spins": lambda: [hm.ReLU(2), hm.Spin(3)],
    "double and counts": lambda: [hm.DoubleReLU(1), hm.Binomial(3, 2)],
    "double above": lambda: [hm.Bernoulli(3), hm.DoubleReLU(2)],
}
machines = pytest.mark.parametrize("name", MACHINES)


def make(name: str, scale: float = 0.5) -> hm.BoltzmannMachine:
    generator = torch.Generator().manual_seed(len(name))
    made = hm.BoltzmannMachine(MACHINES[name]()).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return made


def states(layer: hm.layers.Layer) -> tuple[Tensor, Tensor]:
    """Every state or the nodes of a quadrature, (count, n_units), and the log of what each weighs."""
    if isinstance(layer, hm.Binomial):
        points = [float(k) for k in range(layer.trials + 1)]
        logs = [log(comb(layer.trials, k)) for k in range(layer.trials + 1)]
    elif layer.two_values is not None:
        points, logs = list(layer.two_values), [0.0, 0.0]
    else:
        node, weight = np.polynomial.legendre.leggauss(120)
        points, logs = [], []
        for side in (1.0, -1.0) if isinstance(layer, hm.DoubleReLU) else (1.0,):
            points += (side * 20 * (node + 1)).tolist()
            logs += np.log(20 * weight).tolist()
    grid = torch.tensor(list(product(points, repeat=layer.n_units)), dtype=torch.float64)
    weights = torch.tensor(list(product(logs, repeat=layer.n_units)), dtype=torch.float64)
    return grid, weights.sum(1)


def own_weight(layer: hm.layers.Layer, x: Tensor) -> Tensor:
    """θ·t(x), differentiable in the learnable parameters."""
    if isinstance(layer, hm.ReLU):
        each = layer.linear * x - 0.5 * layer.log_quadratic.exp() * x**2
    elif isinstance(layer, hm.DoubleReLU):
        up = (layer.linear + layer.absolute) * x - 0.5 * layer.log_quadratic_positive.exp() * x**2
        down = (layer.linear - layer.absolute) * x - 0.5 * layer.log_quadratic_negative.exp() * x**2
        each = torch.where(x >= 0, up, down)
    else:
        each = layer.bias * x
    return each.sum(-1)


def log_partition(made: hm.BoltzmannMachine, v: Tensor | None = None) -> Tensor:
    """ln of the sum over all states, or over those with these visible ones; layer by layer from the top."""
    grids = [states(layer) for layer in made.layers]
    message = torch.zeros((), dtype=torch.float64)
    for l in reversed(range(len(grids))):
        x, measure = grids[l]
        if l == 0 and v is not None:
            x, measure = v.unsqueeze(0), torch.zeros(1, dtype=torch.float64)
        message = message + own_weight(made.layers[l], x) + measure
        if l:
            below = grids[l - 1][0] if l > 1 or v is None else v.unsqueeze(0)
            message = (below @ made.couplings[l - 1].weight @ x.t() + message).logsumexp(-1)
    return message.logsumexp(-1)


def measure(layer: hm.layers.Layer, v: Tensor) -> Tensor:
    if not isinstance(layer, hm.Binomial):
        return torch.zeros((), dtype=torch.float64)
    return torch.tensor(sum(log(comb(layer.trials, int(k))) for k in v), dtype=torch.float64)


@machines
def test_the_partition_function(name: str) -> None:
    made = make(name)
    assert hm.likelihood.exact_log_partition(made) == pytest.approx(
        float(log_partition(made).detach()), abs=1e-8
    )


@machines
def test_the_likelihood_and_its_gradient(name: str) -> None:
    made = make(name)
    v = made.random_states(4, seed=torch.Generator().manual_seed(1))[0]
    free = log_partition(made)
    each = torch.stack([log_partition(made, row) + measure(made.layers[0], row) for row in v]) - free
    torch.testing.assert_close(hm.likelihood.exact_log_likelihood(made, v), each.detach(), rtol=0, atol=1e-8)
    parameters = dict(made.named_parameters())
    expected = torch.autograd.grad(each.mean(), list(parameters.values()))
    found = exact_gradient(made, v)
    for key, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(found[key], gradient, rtol=0, atol=1e-8)


def test_a_count_of_one_trial_is_a_bernoulli_unit() -> None:
    counts = hm.BoltzmannMachine([hm.Binomial(4, 1), hm.Spin(3)], seed=1).double()
    binary = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Spin(3)], seed=1).double()
    states = binary.random_states(8, seed=torch.Generator().manual_seed(0))
    torch.testing.assert_close(counts.energy(states), binary.energy(states))
    pseudo = hm.likelihood.pseudo_log_likelihood
    torch.testing.assert_close(pseudo(counts, states[0]), pseudo(binary, states[0]))


def test_a_count_is_a_sum_of_bernoulli_units_that_share_their_parameters() -> None:
    """ln Z of N copies of each unit; the likelihood of a count is that of all its arrangements."""
    counts = hm.BoltzmannMachine([hm.Binomial(2, 3), hm.Spin(3)], seed=1).double()
    hm.machine.normal_(counts, 0.5, torch.Generator().manual_seed(2))
    with torch.no_grad():
        counts.layers[0].bias.copy_(torch.tensor([0.3, -0.8]))
    copies = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Spin(3)]).double()
    with torch.no_grad():
        copies.layers[0].bias.copy_(counts.layers[0].bias.repeat_interleave(3))
        copies.couplings[0].weight.copy_(counts.couplings[0].weight.repeat_interleave(3, 0))
    exact = hm.likelihood.exact_log_partition
    assert exact(counts) == pytest.approx(exact(copies), abs=1e-10)
    arranged = torch.tensor([[1.0, 0, 1, 0, 1, 0]]).double()
    both = hm.likelihood.exact_log_likelihood(copies, arranged) + log(comb(3, 2) * comb(3, 1))
    found = hm.likelihood.exact_log_likelihood(counts, torch.tensor([[2.0, 1.0]]).double())
    torch.testing.assert_close(found, both)


def test_equal_halves_make_a_gaussian_unit() -> None:
    double, gaussian = hm.DoubleReLU(3).double(), hm.Gaussian(3).double()
    with torch.no_grad():
        gaussian.mean.copy_(torch.tensor([-6.0, 0.0, 0.5]))
        gaussian.log_variance.copy_(torch.tensor([2.0, 1.0, 0.25]).log())
        double.linear.copy_(gaussian.natural()[0])
        double.log_quadratic_positive.copy_(-gaussian.log_variance)
        double.log_quadratic_negative.copy_(-gaussian.log_variance)
    B = torch.linspace(-100, 100, 41).double().unsqueeze(-1).expand(-1, 3)
    torch.testing.assert_close(double.log_partition(B), gaussian.log_partition(B))
    torch.testing.assert_close(double.moments(B), gaussian.moments(B))
    x = B / 30
    torch.testing.assert_close(double.log_conditional(x, B), gaussian.log_conditional(x, B))


@machines
def test_tap_is_near_where_couplings_are_weak(name: str) -> None:
    """An error of the third order in the couplings: an eighth for couplings of half the size."""
    errors = []
    for size in (0.1, 0.05):
        made = make(name, 0.3)
        with torch.no_grad():
            for W in (coupling.weight for coupling in made.couplings):
                W *= size / 0.3
        start = made.random_states(1, seed=torch.Generator().manual_seed(1))[0]
        solution = hm.meanfield.tap(made, start, tolerance=1e-12, damping=0.3)
        assert bool(solution.converged.all())
        errors.append(abs(hm.likelihood.exact_log_partition(made) + float(solution.free_energy)))
    assert errors[0] < 5e-3
    assert errors[1] < errors[0] / 5 or errors[1] < 1e-9


@pytest.mark.parametrize("unit", [hm.ReLU, hm.DoubleReLU])
def test_a_curvature_that_leaves_no_distribution_is_said_so(unit: type[hm.layers.Layer]) -> None:
    """γ + A ≤ 0: ψ is infinite, and TAP ends with a status in place of numbers."""
    layer = unit(2)
    assert bool(torch.isinf(layer.log_partition(torch.zeros(3, 2), -1.5)).all())
    assert not bool(torch.isfinite(layer.moments(torch.zeros(3, 2), -1.5).variance).any())
    made = hm.BoltzmannMachine([unit(2), hm.Bernoulli(6)])
    with torch.no_grad():
        made.couplings[0].weight.fill_(2.0)
    solution = hm.meanfield.tap(made, torch.zeros(1, 2))
    assert solution.status.tolist() == [Status.UNBOUNDED]


def test_a_relu_fit_has_the_moments_of_the_data_where_a_distribution_has_them() -> None:
    """E[x²]/E[x]² below 2: both moments; beyond, where no cut normal distribution is, the mean."""
    layer = hm.ReLU(4).double()
    mean = torch.tensor([0.3, 2.0, 40.0, 1.0]).double()
    square = mean.square() * torch.tensor([1.8, 1.2, 1.0001, 7.0]).double()
    layer.fit_((mean, -0.5 * square), square - mean.square())
    found = layer.expected_statistics(torch.zeros(1, 4).double())
    torch.testing.assert_close(found[0][0].detach(), mean)
    torch.testing.assert_close(-2 * found[1][0, :3].detach(), square[:3])
    assert bool(torch.isfinite(layer.log_quadratic).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_half_line_quantiles_invert_the_distribution(dtype: torch.dtype) -> None:
    """From 300 deviations below 0 to as many above, by the survival function in double precision."""
    from scipy import stats

    from harmonium.layers.relu import half_line_quantile

    z = torch.tensor([-300, -100, -30, -10, -3.01, -2.99, -1, 0, 1, 3, 10, 100, 300], dtype=dtype)
    bend = torch.tensor(2.5, dtype=dtype)
    above = torch.tensor([2.0**-24, 1e-3, 0.2, 0.5, 0.9, 1 - 1e-3, 1.0], dtype=dtype)
    z, above = (x.double() for x in torch.broadcast_tensors(z, above.unsqueeze(-1)))
    slope = (z * bend.double().sqrt()).to(dtype)
    y = half_line_quantile(above.to(dtype), slope, bend.expand_as(slope)).double() * bend.double().sqrt()
    z = slope.double() / bend.double().sqrt()
    assert bool((y >= 0).all()) and bool(torch.isfinite(y).all())
    tail = stats.norm.logsf((y - z).numpy()) - stats.norm.logsf(-z.numpy())
    tolerance = 1e-9 if dtype == torch.float64 else 1e-3
    np.testing.assert_allclose(np.exp(tail), above.numpy(), rtol=tolerance, atol=tolerance * 1e-2)


@pytest.mark.parametrize("trials", [1, 3, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_counts_stop_at_the_likely_ones(trials: int, dtype: torch.dtype) -> None:
    """The last sliver of the noise goes to a count that adds to the sum, not to N."""
    layer = hm.Binomial(1, trials).to(dtype)
    noise = torch.full((1, 1), 1 - torch.finfo(dtype).eps / 2, dtype=dtype)
    for field in (-100.0, -8.0, -3.0, 0.0, 3.0, 100.0):
        B = torch.full((1, 1), field, dtype=dtype)
        x = layer.sample(B, noise)
        layer.check(x, "x")
        assert bool((layer.log_conditional(x, B) > -45).all())
