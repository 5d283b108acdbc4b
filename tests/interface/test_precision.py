"""Machines of 16 bits: kept and saved, and refused by name wherever something would be computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm

from .command_line import CommandLine

LAYERS: dict[str, Callable[[int], hm.layers.Layer]] = {
    "bernoulli": hm.Bernoulli,
    "spin": hm.Spin,
    "categorical": lambda n: hm.Categorical(n, 3),
    "gaussian": hm.Gaussian,
    "natural_gaussian": hm.NaturalGaussian,
    "standardised_gaussian": hm.StandardisedGaussian,
    "truncated_gaussian": lambda n: hm.TruncatedGaussian(n, 0.0, 1.0),
    "truncated_gauss_bernoulli": lambda n: hm.TruncatedGaussBernoulli(n, 0.0, 1.0),
}
REFUSED = r"machine: expected parameters in float32 or float64, received .* in torch\.b?float16"
halves = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
kinds = pytest.mark.parametrize("kind", LAYERS)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def machine(kind: str) -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([LAYERS[kind](4), hm.Bernoulli(3)], seed=1)


@halves
@pytest.mark.parametrize(
    "name", ["layers.0.mean", "layers.0.log_variance", "layers.1.bias", "couplings.0.weight"]
)
def test_one_parameter_in_16_bits_is_refused(name: str, dtype: torch.dtype) -> None:
    m = machine("gaussian")
    parameter = m.get_parameter(name)
    parameter.data = parameter.data.to(dtype)
    with pytest.raises(TypeError, match=f"received {name} in {dtype}"):
        m.hamiltonian()


def calls(m: hm.BoltzmannMachine, v: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """Everything that computes, with visible states of the machine's own type."""
    missing = torch.tensor([[True, False, False, False]])
    discrete = m.layers[0].discrete
    noise: dict[str, float] = {"flip_probability": 0.1} if discrete else {"noise_std": 0.1}
    rule, gibbs = hm.rules.cd(), hm.coupled.Gibbs()
    every: dict[str, Callable[[], Any]] = {
        "gradient": lambda: rule.gradient(m, v, seed=generator()),
        "train": lambda: hm.train(m, v, rule=rule, updates=1, progress=False),
        "run": lambda: hm.chains.run(m, hm.chains.Gibbs(), v, 1, seed=generator()),
        "random states": lambda: m.random_states(2, seed=generator()),
        "meet": lambda: hm.coupled.meet(m, gibbs, v, max_sweeps=9, seed=generator()),
        "ais": lambda: hm.likelihood.ais(m, chains=2, temperatures=2),
        "exact": lambda: hm.likelihood.exact_log_partition(m),
        "log-likelihood": lambda: hm.likelihood.log_likelihood(m, v, 0.0),
        "tap log-partition": lambda: hm.likelihood.tap_log_partition(m, v),
        "variational bound": lambda: hm.likelihood.variational_bound(m, v, 0.0),
        "naive": lambda: hm.meanfield.naive(m, v),
        "tap": lambda: hm.meanfield.tap(m, v),
        "landscape": lambda: hm.meanfield.landscape(m, v),
        "impute": lambda: hm.tasks.impute(m, v, missing),
        "impute by tap": lambda: hm.tasks.impute(m, v, missing, "tap"),
        "denoise": lambda: hm.tasks.denoise(m, v, **noise),
        "energy": lambda: m.energy([v, torch.ones(len(v), 3, dtype=v.dtype)]),
        "free energy": lambda: m.free_energy(v),
    }
    if m.layers[0].width == m.layers[0].n_units:
        every["adatap"] = lambda: hm.meanfield.adatap(m, v)
    if discrete:
        every["pseudo"] = lambda: hm.likelihood.pseudo_log_likelihood(m, v)
    return every


@kinds
@halves
def test_computing_in_16_bits_is_refused_by_name(kind: str, dtype: torch.dtype) -> None:
    v = machine(kind).random_states(2, seed=generator())[0]
    for states in (v, v.to(dtype)):
        for name, call in calls(machine(kind).to(dtype), states).items():
            with pytest.raises(TypeError, match=REFUSED):
                call()
                pytest.fail(f"{name} computed in {dtype}")


@pytest.mark.parametrize("kind", ["bernoulli", "gaussian"])
def test_computing_inside_autocast_is_refused(kind: str) -> None:
    """It would round every product to 16 bits, and a log-likelihood would be off by tenths of a nat."""
    full = machine(kind)
    for name, call in calls(full, full.random_states(2, seed=generator())[0]).items():
        with torch.autocast("cpu"), pytest.raises(ValueError, match=r'outside torch\.autocast\("cpu"\)'):
            call()
            pytest.fail(f"{name} computed inside autocast")
        with torch.autocast("cpu"), torch.autocast("cpu", enabled=False):
            call()


def test_a_hamiltonian_made_outside_is_refused_inside_autocast() -> None:
    made = machine("gaussian")
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
        call()


@kinds
@pytest.mark.mostly_nightly(2)
def test_in_32_bits_the_very_same_calls_work(kind: str) -> None:
    full = machine(kind)
    for call in calls(full, full.random_states(2, seed=generator())[0]).values():
        call()


@kinds
@halves
def test_a_machine_of_16_bits_is_saved_and_computes_once_it_is_wider(
    kind: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    full = machine(kind)
    full.to(dtype).save(tmp_path / "m.safetensors")
    loaded = hm.load(tmp_path / "m.safetensors")
    assert loaded.dtype is dtype
    loaded.float()
    v = loaded.random_states(3, seed=generator())[0]
    for one, other in zip(loaded.parameters(), full.parameters(), strict=True):
        assert torch.equal(one, other.float())
    assert bool(torch.isfinite(loaded.free_energy(v)).all())


@pytest.mark.parametrize("kind", ["truncated_gaussian", "truncated_gauss_bernoulli"])
@halves
def test_truncated_layers_refuse_16_bits_themselves(kind: str, dtype: torch.dtype) -> None:
    layer = LAYERS[kind](4).to(dtype)
    with pytest.raises(TypeError, match=r"field: expected float32 or float64, received torch\.b?float16"):
        layer.moments(torch.zeros(2, 4, dtype=dtype))


def test_the_command_refuses_them_too(cli: CommandLine, tmp_path: Path) -> None:
    machine("bernoulli").half().save(tmp_path / "m.safetensors")
    np.save(tmp_path / "x.npy", np.ones((3, 4), dtype=np.float32))
    message = cli.refuse("evaluate", tmp_path / "m.safetensors", tmp_path / "x.npy")
    assert "expected parameters in float32 or float64" in message
