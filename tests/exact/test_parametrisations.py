"""Parametrisations of Gaussian units: one distribution, and the gradient of each by the chain rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import harmonium as hm

from . import oracle
from .machines import array, exact_gradient

KINDS = {
    "moments": hm.Gaussian,
    "floor": lambda n: hm.Gaussian(n, variance_floor=0.02),
}
SHAPES = {
    "shallow": lambda kind: [kind(3), hm.Bernoulli(5)],
    "hidden": lambda kind: [hm.Spin(4), kind(3)],
    "two hidden layers": lambda kind: [kind(3), hm.Bernoulli(3), hm.Spin(3)],
    "between two": lambda kind: [hm.Spin(3), kind(2), hm.Bernoulli(3)],
    "both ends": lambda kind: [kind(2), hm.Spin(3), kind(2)],
}


def machine(shape: str, kind: str) -> hm.BoltzmannMachine:
    """The same machine in natural parameters, whatever the parametrisation; variances from 0.05 to 5."""
    made = hm.BoltzmannMachine(SHAPES[shape](KINDS[kind])).double()
    rng = np.random.default_rng(7)
    with torch.no_grad():
        for layer in made.layers:
            normal = torch.from_numpy(rng.normal(size=layer.width))
            if layer.discrete:
                layer.bias.copy_(0.5 * normal)
            else:
                variance = torch.logspace(-1.3, 0.7, layer.width, dtype=torch.float64)
                layer.fit_((0.7 * normal,), variance)
        for l, W in enumerate(coupling.weight for coupling in made.couplings):
            J = torch.from_numpy(0.8 * rng.normal(size=tuple(W.shape)))
            for layer, shape_of in ((made.layers[l], (-1, 1)), (made.layers[l + 1], (1, -1))):
                if not layer.discrete:
                    J = J * layer.natural()[1].sqrt().view(shape_of)
                if layer.scale is not None:
                    J = J / layer.scale.view(shape_of)
            W.copy_(J)
    return made


def description(made: hm.BoltzmannMachine) -> oracle.Description:
    hamiltonian = made.hamiltonian()
    layers = [
        oracle.Layer(layer.kind if layer.discrete else "gaussian", tuple(array(p) for p in theta))
        for layer, theta in zip(made.layers, hamiltonian.thetas, strict=True)
    ]
    return oracle.Description(tuple(layers), tuple(array(J) for J in hamiltonian.J))


def chain_rule(
    made: hm.BoltzmannMachine, statistics: list[list[np.ndarray]], pairs: list[np.ndarray]
) -> dict[str, np.ndarray]:
    """The gradient of every learnable parameter from Δ⟨t⟩ and Δ⟨x ⊗ x⟩, by hand."""
    truth = description(made)
    sides = [1.0 if layer.scale is None else array(layer.scale) for layer in made.layers]
    gradient = {}
    for l, delta in enumerate(pairs):
        gradient[f"couplings.{l}.weight"] = (delta.T * sides[l]).T * sides[l + 1]
    for l, layer in enumerate(made.layers):
        name = f"layers.{l}."
        if layer.discrete:
            gradient[name + "bias"] = statistics[l][0]
            continue
        dU, dV = statistics[l]
        U, V = truth.layers[l].natural
        dJ = np.zeros_like(U)  # Σ J ΔC over the neighbours of every unit
        if l < len(pairs):
            dJ += (truth.couplings[l] * pairs[l]).sum(1)
        if l:
            dJ += (truth.couplings[l - 1] * pairs[l - 1]).sum(0)
        slope = np.exp(array(layer.log_variance)) * V  # 1 without a floor
        gradient[name + "mean"] = dU * V
        gradient[name + "log_variance"] = -slope * (U * dU + V * dV + dJ)
    return gradient


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_by_enumeration(shape, kind):
    made = machine(shape, kind)
    truth = description(made)
    rng = np.random.default_rng(1)
    if made.layers[0].discrete:
        v = rng.choice([-1.0, 1.0], size=(4, made.layers[0].width))
    else:
        v = rng.normal(size=(4, made.layers[0].width))
    free = oracle.expectations(truth)
    clamped = [oracle.expectations(truth, {0: row}) for row in v]
    statistics = [
        [
            np.mean([each.statistics[l][i] for each in clamped], 0) - free.statistics[l][i]
            for i in range(len(theta.natural))
        ]
        for l, theta in enumerate(truth.layers)
    ]
    pairs = [
        np.mean([each.products[l] for each in clamped], 0) - free.products[l]
        for l in range(len(made.couplings))
    ]
    expected = chain_rule(made, statistics, pairs)
    actual = exact_gradient(made, torch.from_numpy(v))
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(array(actual[name]), gradient, rtol=1e-8, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("shape", SHAPES)
def test_all_parametrisations_write_the_same_machine(shape):
    truths = [description(machine(shape, kind)) for kind in KINDS]
    for other in truths[1:]:
        for a, b in zip(truths[0].couplings, other.couplings, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
        for a, b in zip(truths[0].layers, other.layers, strict=True):
            for x, y in zip(a.natural, b.natural, strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_files_keep_the_parametrisation(kind, tmp_path):
    made = machine("two hidden layers", kind)
    made.save(tmp_path / "m.safetensors")
    loaded = hm.load(tmp_path / "m.safetensors")
    assert type(loaded.layers[0]) is type(made.layers[0])
    assert loaded.layers[0].config() == made.layers[0].config()
    states = made.random_states(5, seed=torch.Generator().manual_seed(0))
    assert torch.equal(made.energy(states), loaded.energy(states))


def test_the_floor_holds_and_is_reached_smoothly():
    layer = hm.Gaussian(2, variance_floor=0.1)
    with torch.no_grad():
        layer.log_variance.copy_(torch.tensor([-50.0, 0.0]))
    variance = 1 / layer.natural()[1]
    np.testing.assert_allclose(array(variance), [0.1, 1.1], rtol=1e-6)
    variance.sum().backward()
    assert layer.log_variance.grad[0] == pytest.approx(0, abs=1e-12) and layer.log_variance.grad[1] == 1
    with pytest.raises(ValueError, match=r"variance_floor: expected less than the data's smallest variance"):
        layer.fit_((torch.zeros(2),), torch.tensor([0.05, 1.0]))
