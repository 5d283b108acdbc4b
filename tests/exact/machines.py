"""Machines of the library, built through its public names, and their translation for the oracle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

import harmonium as hm

from . import oracle, specifications
from .oracle import Array
from .specifications import Specification

LEARNABLE = {
    "bernoulli": ("bias",),
    "binomial": ("bias",),
    "relu": ("linear", "log_quadratic"),
    "double_relu": ("linear", "absolute", "log_quadratic_positive", "log_quadratic_negative"),
    "spin": ("bias",),
    "categorical": ("bias",),
    "gaussian": ("mean", "log_variance"),
    "truncated_gaussian": ("linear", "quadratic"),
    "truncated_gauss_bernoulli": ("linear", "quadratic", "logit_rate"),
}


def make_layer(entry: Sequence[str | int]) -> torch.nn.Module:
    """A layer from (kind, n_units) or ("categorical", n_units, q); bounds are the specifications' own."""
    if entry[0] in oracle.TRUNCATED:
        truncated = {
            "truncated_gaussian": hm.TruncatedGaussian,
            "truncated_gauss_bernoulli": hm.TruncatedGaussBernoulli,
        }
        return truncated[str(entry[0])](int(entry[1]), *specifications.bounds(int(entry[1])))
    classes = {
        "bernoulli": hm.Bernoulli,
        "spin": hm.Spin,
        "gaussian": hm.Gaussian,
        "categorical": hm.Categorical,
    }
    return classes[str(entry[0])](*entry[1:])


def build(specification: Specification, dtype: torch.dtype = torch.float64) -> hm.BoltzmannMachine:
    """The machine of a specification, with its random parameters."""
    machine = hm.BoltzmannMachine([make_layer(entry) for entry in specification.layers], seed=0)
    return fill(machine.to(dtype), specifications.learnable(specification))


def fill(machine: hm.BoltzmannMachine, learnable: oracle.Learnable) -> hm.BoltzmannMachine:
    """Copy learnable parameters into a machine of the same layers."""
    with torch.no_grad():
        for layer, wanted in zip(machine.layers, learnable.layers, strict=True):
            for name, array in wanted.values.items():
                parameter = getattr(layer, name)
                assert parameter.shape == array.shape
                parameter.copy_(torch.from_numpy(array))
        for coupling, weight in zip(machine.couplings, learnable.couplings, strict=True):
            assert coupling.weight.shape == weight.shape
            coupling.weight.copy_(torch.from_numpy(weight))
    return machine


def describe(machine: hm.BoltzmannMachine) -> oracle.Learnable:
    """The oracle's view of a machine, from its learnable parameters and bounds alone."""
    layers = tuple(
        oracle.LearnableLayer(
            layer.kind, {name: array(getattr(layer, name)) for name in LEARNABLE[layer.kind]}, bounds(layer)
        )
        for layer in machine.layers
    )
    return oracle.Learnable(layers, tuple(array(coupling.weight) for coupling in machine.couplings))


def bounds(layer: torch.nn.Module) -> tuple[Array, Array] | None:
    """The ends of a truncated layer's intervals, (n_units,) each; None for other kinds."""
    if layer.kind not in oracle.TRUNCATED:
        return None
    low, high = (np.broadcast_to(layer.config()[name], layer.n_units) for name in ("low", "high"))
    return np.array(low, dtype=float), np.array(high, dtype=float)


def named_gradient(machine: hm.BoltzmannMachine, gradient: dict[str, Array]) -> dict[str, Array]:
    """The oracle's gradient under the machine's own parameter names, which are matched by identity."""
    owners: dict[int, str] = {}
    for i, layer in enumerate(machine.layers):
        owners |= {id(getattr(layer, name)): f"layers.{i}.{name}" for name in LEARNABLE[layer.kind]}
    owners |= {id(coupling.weight): f"couplings.{i}.weight" for i, coupling in enumerate(machine.couplings)}
    return {name: gradient[owners[id(parameter)]] for name, parameter in machine.named_parameters()}


def array(tensor: Tensor) -> Array:
    """A float64 copy."""
    return np.array(tensor.detach().cpu().numpy(), dtype=np.float64)


def tensors(states: Sequence[Array], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """States for the library."""
    return [torch.from_numpy(state).to(dtype) for state in states]


def exact_gradient(machine: hm.BoltzmannMachine, visible: Tensor) -> dict[str, Tensor]:
    """The library's enumerated gradient of the mean log-likelihood."""
    generator = torch.Generator().manual_seed(0)
    return dict(hm.rules.exact().gradient(machine, visible, seed=generator).parameters)
