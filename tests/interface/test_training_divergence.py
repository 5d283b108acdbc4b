"""Numbers that are not finite stop training, name themselves and reach neither machine nor checkpoint."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import harmonium as hm
from harmonium.learning import Estimate
from harmonium.training import TrainingDiverged, train
from harmonium.training.checkpoint import leaves

VISIBLE, HIDDEN = 6, 4
X = torch.eye(VISIBLE)


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def machine() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(VISIBLE), hm.Bernoulli(HIDDEN)])


class Failing:
    """A rule with a gradient of ones that goes wrong in one place at its ninth call."""

    name = "failing"

    def __init__(self, where: str, value: float) -> None:
        self.where = where
        self.value = value

    def __repr__(self) -> str:
        return f"failing({self.where}, {self.value})"

    def gradient(
        self, machine: hm.BoltzmannMachine, v: torch.Tensor, state: Any = None, *, generator: torch.Generator
    ) -> Estimate:
        calls = 1 if state is None else state[0] + 1
        parameters = {name: torch.ones_like(p) for name, p in machine.named_parameters()}
        values = {"calls": float(calls), "residual": 0.5}
        chains = torch.zeros(2)
        if calls == 9:
            if self.where in parameters:
                parameters[self.where].view(-1)[-1] = self.value
            elif self.where in values:
                values[self.where] = self.value
            else:
                chains[1] = self.value
        return Estimate(parameters, values, [calls, chains])


def finite(value: Any) -> bool:
    tensors = (leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor))
    return all(bool(torch.isfinite(leaf).all()) for leaf in tensors)


@pytest.mark.parametrize("where", ["couplings.0.weight", "layers.1.bias", "residual"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_update_that_is_not_finite_is_not_made(where: str, value: float, tmp_path: Path) -> None:
    broken, whole = machine(), machine()
    with pytest.raises(TrainingDiverged) as caught:
        train(broken, X, rule=Failing(where, value), updates=20, run_dir=tmp_path, checkpoint_every=3)
    train(whole, X, rule=Failing(where, value), updates=8)
    assert all(torch.equal(p, q) for p, q in zip(broken.parameters(), whole.parameters(), strict=True))
    error = caught.value
    assert (error.step, error.parameter, error.learning_rate) == (8, where, 0.05)
    assert error.diagnostics["calls"] == 9 and error.checkpoint == tmp_path / "checkpoint.pt"
    for part in ("after 8 updates", where, "0.05", "residual", str(error.checkpoint)):
        assert part in str(error)
    kept = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert kept["step"] == 6 and finite(kept)
    assert not (tmp_path / "machine.safetensors").exists()


def test_an_overflowing_norm_names_the_largest_gradient() -> None:
    with pytest.raises(TrainingDiverged, match=r"layers\.0\.bias.*no checkpoint was written") as caught:
        train(machine(), X, rule=Failing("layers.0.bias", 1e30), updates=20)
    assert caught.value.parameter == "layers.0.bias" and caught.value.checkpoint is None


@pytest.mark.parametrize("record_every", [1, 5, 100])
def test_parameters_that_overflow_are_put_back(record_every: int) -> None:
    def explode(step: int, total: int) -> float:
        return 1e300 if step == 12 else 1.0

    broken = machine()
    with pytest.raises(TrainingDiverged, match="put back") as caught:
        train(broken, X, rule=Failing("none", 0.0), updates=200, schedule=explode, record_every=record_every)
    assert finite(dict(broken.state_dict()))
    assert caught.value.parameter == "layers.0.bias"
    noted = {1: 12, 5: 10, 100: 0}[record_every]
    assert torch.allclose(broken.layers[0].bias, torch.full((VISIBLE,), noted * 0.05))


def test_a_rule_state_that_is_not_finite_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(TrainingDiverged, match=r"\['rule'\]\[1\]") as caught:
        train(machine(), X, rule=Failing("chains", math.nan), updates=9, run_dir=tmp_path, checkpoint_every=4)
    assert caught.value.checkpoint == tmp_path / "checkpoint.pt"
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == 8


def test_a_real_divergence_is_caught() -> None:
    wild = hm.BoltzmannMachine([hm.Gaussian(VISIBLE), hm.Bernoulli(HIDDEN)])
    with pytest.raises(TrainingDiverged, match=r"learning_rate or a clip_norm"):
        train(wild, 100 * torch.randn(50, VISIBLE, generator=torch.Generator().manual_seed(0)),
              rule=hm.rules.cd(1), updates=2000, learning_rate=1e3)  # fmt: skip
    assert finite(dict(wild.state_dict()))
