"""Machines of few Gaussian visible units: quadrature and annealing against enumeration."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.likelihood import quadrature_log_partition

from .test_parametrisations import KINDS


def machine(hidden: torch.nn.Module, kind: str = "moments", units: int = 2) -> hm.BoltzmannMachine:
    made = hm.BoltzmannMachine([KINDS[kind](units), hidden]).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.7 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        if kind == "natural":
            made.layers[0].quadratic.copy_(torch.linspace(0.2, 5, units))
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hidden", [hm.Bernoulli(6), hm.Spin(6), hm.Categorical(3, 4)], ids=lambda h: h.kind)
@pytest.mark.parametrize("units", [1, 2])
def test_quadrature_is_enumeration(hidden, kind, units):
    made = machine(hidden, kind, units)
    assert quadrature_log_partition(made) == pytest.approx(hm.likelihood.exact_log_partition(made), abs=1e-8)


@pytest.mark.parametrize("hidden", [hm.Bernoulli(6), hm.Spin(6)], ids=lambda h: h.kind)
def test_the_rule_on_the_grid_is_the_exact_rule(hidden):
    made = machine(hidden)
    v = torch.randn(7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    generator = torch.Generator()
    grid = hm.rules.quadrature().gradient(made, v, seed=generator).parameters
    exact = hm.rules.exact().gradient(made, v, seed=generator).parameters
    for name, gradient in exact.items():
        torch.testing.assert_close(grid[name], gradient, rtol=1e-7, atol=1e-7, msg=name)


@pytest.mark.statistical
@pytest.mark.parametrize(
    "layers", [lambda: [hm.Gaussian(4), hm.Bernoulli(6)], lambda: [hm.Gaussian(3), hm.Spin(4), hm.Spin(3)]]
)
def test_annealing_with_gaussian_visibles_is_within_its_error(layers):
    """At most 5 standard errors off: by chance for about one seed in a million."""
    made = hm.BoltzmannMachine(layers()).double()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(0.6 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        made.layers[0].log_variance.copy_(torch.linspace(np.log(0.05), np.log(5), made.layers[0].n_units))
        made.couplings[0].weight.mul_(made.layers[0].log_variance.mul(0.5).exp().unsqueeze(-1))
    truth = hm.likelihood.exact_log_partition(made)
    estimate = hm.likelihood.ais(made, 200, 200, seed=1)
    assert 0 < estimate.standard_error < 0.2
    assert abs(estimate.value - truth) < 5 * estimate.standard_error


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("machine: expected Gaussian visible", lambda: quadrature_log_partition(machine_of_bits())),
        (
            "machine: expected layers that can be summed out.*2\\^35 unit updates",
            lambda: quadrature_log_partition(hm.BoltzmannMachine([hm.Gaussian(8), hm.Bernoulli(2)])),
        ),
    ],
)
def test_wrong_machines_are_refused(message, call):
    with pytest.raises(ValueError, match=message):
        call()


def machine_of_bits() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(2), hm.Bernoulli(2)])
