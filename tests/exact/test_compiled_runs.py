"""Runs of updates made many at once: their bits, what they go on with, what ends them, and what is served."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.backends import choice
from harmonium.training import compiled_updates

from .compiled_updates import machine_of, rows_of, serve_from_the_first

pytestmark = [pytest.mark.skipif(not choice.COMPILED, reason="needs numba"), pytest.mark.nightly]


@pytest.fixture(autouse=True)
def from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    serve_from_the_first(monkeypatch)


SIDES = {
    "two-valued": (("bernoulli",), (8,)),
    "real": (("gaussian",), (8,)),
    "mixed": (("gaussian with a floor", "categorical", "spin"), (3, 1, 2)),
}
ROWS = {
    side: rows_of(machine_of(kinds, "bernoulli", n, 5).layers[:-1], 60, 4)
    for side, (kinds, n) in SIDES.items()
}
DATA = ROWS["two-valued"]


def trained(updates: int = 90, side: str = "two-valued", **settings: Any) -> Any:
    kinds, sizes = SIDES[side]
    machine = machine_of(kinds, "bernoulli", sizes, 5, torch.float32)
    options = {
        "rule": hm.rules.centred(hm.rules.pcd(2)), "batch_size": 7,
        "schedule": "inverse_sqrt", "weight_decay": 0.01, "progress": False, **settings,
    }  # fmt: skip
    return hm.train(machine, ROWS[side], updates=updates, **options)


class Seldom:
    """A callback that wants to see every eleventh update."""

    def needs_update(self, step: int, total: int) -> bool:
        return step % 11 == 0

    def __call__(self, update: hm.training.Update) -> None:
        assert update.step % 11 == 0 or update.step in (1, 2, 4, 8, 16, 32, 64, 90)


def bits(run: Any) -> list[bytes]:
    return [x.detach().numpy().tobytes() for x in (*run.machine.parameters(), *run.rule_state.states)]


@pytest.mark.parametrize(
    "cut",
    [
        {"record_every": 1},
        {"record_every": 17},
        {"callbacks": [lambda update: None]},
        {"callbacks": [Seldom()], "record_every": 90},
        {"averaging": 0.9},
        {"metrics": {"one": lambda machine, rows: 1.0}, "validation": DATA, "evaluate_every": 7},
    ],
    ids=lambda cut: next(iter(cut)),
)
def test_the_bits_do_not_depend_on_how_updates_are_dealt_into_calls(cut: dict[str, Any]) -> None:
    assert bits(trained(**cut)) == bits(trained(record_every=90))


@pytest.mark.parametrize("side", SIDES)
def test_a_small_call_has_the_bits_of_a_large_one(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bits(trained(side=side))
    monkeypatch.setattr(compiled_updates, "_NUMBERS", 3 * 7 * 8)
    assert bits(trained(side=side)) == whole


@pytest.mark.parametrize("side", SIDES)
def test_a_run_that_goes_on_has_the_bits_of_one_that_never_stopped(side: str, tmp_path: Path) -> None:
    settings = {"side": side, "schedule": "constant", "momentum": 0.5, "l1": 0.001}
    whole = trained(**settings)
    for updates in (13, 50, 90):
        run = trained(updates, run_dir=tmp_path, resume=True, checkpoint_every=11, **settings)
    assert bits(run) == bits(whole)
    assert tomllib.loads((tmp_path / "run.toml").read_text())["run"]["engine"] == "compiled"


def test_a_run_goes_on_without_numba_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(30, schedule="constant", run_dir=tmp_path)
    monkeypatch.setattr(choice, "COMPILED", False)
    with pytest.warns(
        RuntimeWarning, match="engine: the run to resume was on compiled and goes on, on torch"
    ):
        run = trained(60, schedule="constant", run_dir=tmp_path, resume=True)
    assert run.updates == 60
    assert run.rule_state.sweeps == 120


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("served", [True, False])
def test_what_is_not_finite_stops_the_run_at_its_update(
    served: bool, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "LEAST_UPDATES", 1 if served else 10**9)
    with pytest.raises(hm.training.TrainingDiverged, match=r"run away|not finite") as caught:
        trained(learning_rate=1e30, schedule=lambda step, total: 1e-30 if step < 21 else 1.0, side=side)
    assert 21 <= caught.value.step <= 23
    assert caught.value.learning_rate == pytest.approx(1e30)


NOT_SERVED: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam"},
    "a factory": {"optimizer": lambda ps: torch.optim.SGD(ps, lr=0.1)},
    "group": {"penalties": "group=0.01"},
    "kernel": {"rule": hm.rules.pcd(kernel=hm.chains.Metropolis())},
    "noise": {"rule": hm.rules.noise_cd(3)},
    "coupled": {"rule": hm.rules.ucd(max_sweeps=10)},
    "transform": {"transform": lambda rows, generator: rows},
    "precision": {"precision": "bf16"},
}


@pytest.mark.parametrize("name", NOT_SERVED)
def test_other_runs_are_made_one_by_one(name: str, tmp_path: Path) -> None:
    trained(3, run_dir=tmp_path, **NOT_SERVED[name])
    assert tomllib.loads((tmp_path / "run.toml").read_text())["run"]["engine"] == "torch"


@pytest.mark.parametrize(
    "layers",
    [
        [hm.TruncatedGaussian(8, 0.0, 1.0), hm.Bernoulli(5)],
        [hm.Bernoulli(8), hm.Gaussian(5)],
        [hm.Bernoulli(8), hm.Categorical(5, 3)],
        [hm.Bernoulli(8), hm.Bernoulli(5), hm.Bernoulli(3)],
    ],
    ids=["real data", "real hidden units", "categorical hidden units", "deep"],
)
def test_other_machines_are_made_one_by_one(layers: Any, tmp_path: Path) -> None:
    machine = hm.BoltzmannMachine(layers, seed=0)
    hm.train(
        machine, DATA, rule=hm.rules.pcd(), updates=3, batch_size=7, run_dir=tmp_path, learning_rate=1e-3,
        progress=False,
    )  # fmt: skip
    assert tomllib.loads((tmp_path / "run.toml").read_text())["run"]["engine"] == "torch"


def test_a_frozen_parameter_and_rows_with_holes_are_left_to_updates_one_by_one(tmp_path: Path) -> None:
    for name, frozen, holes in (("frozen", True, False), ("holes", False, True)):
        machine = machine_of(("bernoulli",), "bernoulli", 8, 5, torch.float32)
        machine.layers[0].bias.requires_grad_(not frozen)
        X = DATA.copy()
        X[0, 0] = np.nan if holes else X[0, 0]
        hm.train(machine, X, rule=hm.rules.pcd(), updates=3, run_dir=tmp_path / name, progress=False)
        assert tomllib.loads((tmp_path / name / "run.toml").read_text())["run"]["engine"] == "torch"
