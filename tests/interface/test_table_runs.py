"""Tables are trained in the one loop: folders, resume, metrics and callbacks hold for them too."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium.tables import train_table
from harmonium.training import Objective, TrainingRun

torch.set_num_threads(1)


def table(label: bool) -> tuple[hm.BoltzmannMachine, Tensor]:
    """Two correlated real columns that both tell a group of three."""
    random = np.random.default_rng(0)
    group = random.choice(3, 60)
    real = random.normal(size=(60, 1)) + 0.3 * random.normal(size=(60, 2)) + group[:, None]
    machine = hm.machine.join_layers([hm.Gaussian(2), hm.Categorical(1, 3)], [hm.Bernoulli(2)], 0)
    return machine.double(), torch.from_numpy(np.concatenate([real, np.eye(3)[group]], 1))


def fit(label: bool, **watch: Any) -> TrainingRun:
    machine, v = table(label)
    return train_table(machine, v, objective=Objective([0], 0.1) if label else Objective(), seed=4, **watch)


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("label", [False, True], ids=["table", "labels"])
def test_seconds_count_the_search(label: bool) -> None:
    """The time of a run is that of all fits, of which the last one takes a small part."""
    started = time.perf_counter()
    run = fit(label)
    elapsed = time.perf_counter() - started
    assert 0.8 * elapsed < run.seconds <= elapsed
    seconds = [record["seconds"] for record in run.history]
    assert seconds == sorted(seconds) and seconds[-1] <= run.seconds


def interrupt(update: hm.training.Update) -> None:
    if update.step == update.total - 5:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("label", [False, True], ids=["table", "labels"])
@pytest.mark.nightly
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(tmp_path: Path, label: bool) -> None:
    expected = fit(label, run_dir=tmp_path / "at once")
    cut = fit(label, run_dir=tmp_path / "run", callbacks=[interrupt])
    assert cut.status == "interrupted" and cut.updates == expected.updates - 5
    assert not (tmp_path / "run" / "machine.safetensors").exists()
    run = fit(label, run_dir=tmp_path / "run", resume=True)
    assert run.status == "completed" and run.updates == expected.updates
    files = [tmp_path / name / "machine.safetensors" for name in ("at once", "run")]
    assert files[0].read_bytes() == files[1].read_bytes()
    saved = hm.load(tmp_path / "run")
    for one, other in zip(saved.parameters(), expected.machine.parameters(), strict=True):
        assert torch.equal(one, other)
    kept = [{**record, "seconds": 0.0} for record in run.history]
    assert kept == [{**record, "seconds": 0.0} for record in expected.history]
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert len(lines) == len(run.history) and any("validation_score" in line for line in lines)


@pytest.mark.nightly
def test_metrics_and_callbacks_get_the_machine_of_the_columns(tmp_path: Path) -> None:
    """Joined columns are learned as others, which nobody sees."""
    seen: list[hm.BoltzmannMachine] = []
    rows = table(False)[1][:20]
    run = fit(
        False,
        run_dir=tmp_path,
        validation=rows,
        metrics={"log_likelihood": hm.likelihood.exact_log_likelihood},
        callbacks=[lambda update: seen.append(update.machine) if update.metrics else None],
    )
    assert (0, 0) in run.machine.edges and seen[-1].edges == run.machine.edges
    expected = float(hm.likelihood.exact_log_likelihood(run.machine, rows).mean())
    assert run.metrics["log_likelihood"] == pytest.approx(expected, abs=1e-12)
    assert float(hm.likelihood.exact_log_likelihood(seen[-1], rows).mean()) == pytest.approx(expected)
