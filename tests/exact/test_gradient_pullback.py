"""The exact rule against automatic and finite differentiation of the library's own log-likelihood."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium.machine import Statistics

from . import oracle
from .machines import array, build, describe, exact_gradient
from .specifications import SPECIFICATIONS, Specification, random_states

shallow = pytest.mark.parametrize(
    "specification", [s for s in SPECIFICATIONS if s.hidden_layers == 1], ids=lambda s: s.name
)


def differentiable_log_partition(machine: hm.BoltzmannMachine) -> Tensor:
    """ln Z of a one-hidden-layer machine: logsumexp of -F over every state of its discrete layer."""
    layers = oracle.natural(describe(machine)).layers
    held = 0 if layers[0].kind in ("bernoulli", "spin", "categorical") else 1
    every = torch.from_numpy(oracle.support(layers[held]))
    states = [torch.zeros(len(every), layer.width, dtype=torch.float64) for layer in layers]
    states[held] = every
    return torch.logsumexp(-machine.free_energy(states, summed="even" if held else "odd"), dim=0)


@shallow
def test_autograd_of_the_free_energy(specification: Specification) -> None:
    """d/dparameter of mean(-F(v)) - ln Z."""
    machine = build(specification)
    visible = torch.from_numpy(random_states(specification, 5, layer=0)[0])
    log_z = differentiable_log_partition(machine)
    assert float(log_z.detach()) == pytest.approx(hm.likelihood.exact_log_partition(machine), rel=1e-10)
    objective = (-machine.free_energy(visible)).mean() - log_z
    named = dict(machine.named_parameters())
    expected = dict(zip(named, torch.autograd.grad(objective, list(named.values())), strict=True))
    actual = exact_gradient(machine, visible)
    assert actual.keys() == expected.keys()
    for name in named:
        np.testing.assert_allclose(
            array(actual[name]), array(expected[name]), rtol=1e-8, atol=1e-8, err_msg=name
        )


@shallow
def test_finite_differences_of_the_log_likelihood(specification: Specification) -> None:
    """One random direction through all parameters at once, fourth-order central differences."""
    machine = build(specification)
    visible = torch.from_numpy(random_states(specification, 5, layer=0)[0])
    gradient = exact_gradient(machine, visible)
    rng = np.random.default_rng(3)
    kept = {name: parameter.detach().clone() for name, parameter in machine.named_parameters()}
    direction = {name: torch.from_numpy(rng.normal(size=tuple(value.shape))) for name, value in kept.items()}
    slope = sum(float((gradient[name] * direction[name]).sum()) for name in kept)

    def mean_log_likelihood(offset: float) -> float:
        with torch.no_grad():
            for name, parameter in machine.named_parameters():
                parameter.copy_(kept[name] + offset * direction[name])
        log_z = hm.likelihood.exact_log_partition(machine)
        return float(hm.likelihood.log_likelihood(machine, visible, log_z).mean())

    step = 1e-4
    values = [mean_log_likelihood(k * step) for k in (-2, -1, 1, 2)]
    numeric = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)
    assert numeric == pytest.approx(slope, rel=1e-6, abs=1e-6)


def test_sums_over_many_rows_keep_their_digits() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
    x = torch.tensor([0.1, 0.7, 1.0]).repeat(60_001, 1)
    sums = Statistics(machine.hamiltonian())
    for weight in (0.5 / len(x), torch.full((len(x),), 0.5 / len(x))):
        sums.add_terms(0, [x], weight)
    assert ((sums.thetas[0][0] - x[0]) / x[0]).abs().max() < 5e-6  # row after row it would be 5e-4


def test_inside_inference_mode_a_machine_from_outside_learns_and_one_from_inside_says_why():
    def made():
        return hm.BoltzmannMachine([hm.Gaussian(4), hm.Bernoulli(3)], seed=0)

    v, machine = torch.randn(10, 4, generator=torch.Generator().manual_seed(0)), made()
    expected = hm.rules.cd().gradient(machine, v, seed=0)
    with torch.inference_mode():
        inside = hm.rules.cd().gradient(machine, v, seed=0)
        with pytest.raises(ValueError, match=r"machine: .*received layers\.0\..*inference_mode"):
            hm.rules.cd().gradient(made(), v, seed=0)
    for name, gradient in expected.parameters.items():
        assert torch.equal(gradient, inside.parameters[name])


class Circulant(hm.couplings.Coupling):
    """W[i, j] by (j - i) mod n."""

    kind = "test-circulant"

    def pattern(self, below, above):
        return None

    def within(self, values: Tensor) -> Tensor:
        i = torch.arange(len(values))
        distance = (i - i.unsqueeze(1)) % len(values)
        return values.gather(1, (i.unsqueeze(1) + i) % len(values)).mean(0)[distance]


def ring(coupling: hm.couplings.Coupling, W: Tensor) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine([hm.Gaussian(4), hm.Bernoulli(4)], edges={(0, 1): coupling}).double()
    machine.couplings[0].fill_(W)
    return machine


@pytest.mark.parametrize("rule", [hm.rules.exact(), hm.rules.centred(hm.rules.exact())], ids=repr)
def test_couplings_with_dependent_entries_take_the_projection_of_every_update(rule: hm.learning.Rule) -> None:
    """Also of a centred one, which moves the couplings by more than their gradient."""
    generator = torch.Generator().manual_seed(2)
    v = torch.randn(7, 4, generator=generator).double()
    tied = ring(Circulant(), torch.randn(4, 4, generator=generator))
    W = tied.couplings[0].matrix()
    assert torch.allclose(W, W.roll((1, 1), (0, 1))) and not torch.allclose(W[0], W[1])
    free = ring(hm.Dense(), W.detach())
    found, dense = (rule.gradient(machine, v, seed=0).parameters for machine in (tied, free))
    projected = tied.couplings[0].within(dense["couplings.0.weight"])
    torch.testing.assert_close(found["couplings.0.weight"], projected)
    assert not torch.allclose(projected, dense["couplings.0.weight"])


class Spread(Circulant):
    """Every entry of W the sum of the columns: linear, but applied twice it is another."""

    kind = "test-spread"

    def within(self, values: Tensor) -> Tensor:
        return values.sum(0).expand_as(values)


@pytest.mark.parametrize(
    ("coupling", "edge", "told"),
    [(Circulant(), (0, 0), "on and below the diagonal"), (Spread(), (0, 1), "a projection of Spread")],
    ids=["symmetric in a layer", "no projection"],
)
def test_what_is_no_projection_on_the_pattern_is_refused(
    coupling: hm.couplings.Coupling, edge: tuple[int, int], told: str
) -> None:
    """In a layer W + Wᵀ would count every pair twice, and join units to themselves."""
    with pytest.raises(ValueError, match=f"^within: expected .*{told}"):
        hm.BoltzmannMachine([hm.Spin(4), hm.Spin(4)], edges={(0, 1): hm.Dense()} | {edge: coupling})


# Couplings within a layer ----------------------------------------------------------------------------------

INNER = {
    "one tile": (5, 3, None),
    "several tiles of whole units": (60, 5, None),
    "a mask over several tiles": (
        40,
        7,
        torch.rand(40, 40, generator=torch.Generator().manual_seed(1)) < 0.3,
    ),
    "units wider than a tile": (3, 300, None),
}


@pytest.mark.parametrize("name", INNER)
def test_couplings_within_a_layer_are_mirrored_and_folded_tile_by_tile(name: str) -> None:
    """Against ``W + Wᵀ`` under a mask of units, and its derivative by hand, also after a change in place."""
    units, states, mask = INNER[name]
    coupling = hm.Dense() if mask is None else hm.Masked(mask)
    machine = hm.BoltzmannMachine([hm.Categorical(units, states)], {(0, 0): coupling}, seed=None)
    unit = torch.arange(units).repeat_interleave(states)
    joined = torch.ones(units, units).bool() if mask is None else mask | mask.t()
    allowed = (unit[:, None] < unit) & joined[unit][:, unit]
    parametrisation, generator = hm.learning.Parametrisation(machine), torch.Generator().manual_seed(2)
    for _ in range(2):
        with torch.no_grad():  # with values outside the pattern, which are not to be read
            coupling.weight.copy_(torch.randn(coupling.weight.shape, generator=generator))
        W = coupling.weight.detach() * allowed
        for J in (
            parametrisation.hamiltonian().J[0],
            coupling.matrix(),
            hm.BoltzmannMachine.hamiltonian(machine).J[0],
        ):
            torch.testing.assert_close(J.detach(), W + W.t(), rtol=0, atol=0)
        with torch.no_grad():
            torch.testing.assert_close(coupling.matrix(), W + W.t(), rtol=0, atol=0)
    delta = Statistics(parametrisation.hamiltonian())
    given = torch.randn(coupling.weight.shape, generator=generator)
    delta.add_sums([[torch.zeros(units * states)]], [given.clone()])
    pulled = parametrisation.pullback(delta)["couplings.0.weight"]
    torch.testing.assert_close(pulled, (given + given.t()) * allowed, rtol=0, atol=0)
    (derived,) = torch.autograd.grad((coupling.matrix() * given).sum(), coupling.weight)
    torch.testing.assert_close(pulled, derived, rtol=0, atol=0)
