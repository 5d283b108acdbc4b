"""Runs in a folder: checkpoints, resume bit for bit, kill, Ctrl-C, full disks and damaged files."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import tomllib
import warnings
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from campaigns._runs import ended, forked

import harmonium as hm
from harmonium._states import leaves
from harmonium.training import STOP, TrainingRun, Update, callbacks, train
from harmonium.training.checkpoint import read_checkpoint, write_checkpoint

VISIBLE, HIDDEN = 6, 4
CHECKPOINTS = {"checkpoint.safetensors", "checkpoint-previous.safetensors"}
FILES = {"run.toml", *CHECKPOINTS, "history.jsonl", "machine.safetensors", "averaged.safetensors"}
pytestmark = pytest.mark.usefixtures("one_thread")


def machine(hidden: int = HIDDEN) -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(VISIBLE), hm.Bernoulli(hidden)])


def data(rows: int = 23) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 2, (rows, VISIBLE)).astype(np.float32)


def mean_bias(machine: hm.BoltzmannMachine, X: torch.Tensor) -> float:
    return float(machine.layers[0].bias.mean())


SETTINGS: dict[str, Any] = {
    "rule": hm.rules.pcd(1, 8),
    "updates": 60,
    "batch_size": 5,
    "momentum": 0.5,
    "schedule": "cosine",
    "averaging": 0.9,
    "weight_decay": 0.01,
    "validation": data(9),
    "metrics": {"mean_bias": mean_bias},
    "record_every": 7,
    "checkpoint_every": 10,
}


def run(
    run_dir: Path | None, X: Any = None, on: hm.BoltzmannMachine | None = None, **settings: Any
) -> TrainingRun:
    """The run of these tests, with other settings where given."""
    settings = {**SETTINGS, "run_dir": run_dir, **settings}
    return train(machine() if on is None else on, data() if X is None else X, **settings)


@cache
def whole_run() -> TrainingRun:
    """The run of these tests without a folder, which nothing ended early."""
    return run(None)


class Crash(Exception):
    """Stands for whatever ends a process between two updates."""


def crash_at(step: int) -> Any:
    def callback(update: Update) -> None:
        if update.step == step:
            raise Crash

    return callback


def full_disk(*arguments: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def assert_same(a: TrainingRun, b: TrainingRun) -> None:
    """The same bits: parameters, average, chains, history but its times."""
    pairs = [(a.machine, b.machine)]
    if a.averaged_machine is not None and b.averaged_machine is not None:
        pairs.append((a.averaged_machine, b.averaged_machine))
    for x, y in pairs:
        assert all(torch.equal(p, q) for p, q in zip(x.parameters(), y.parameters(), strict=True))
    assert (a.status, a.updates, a.metrics) == (b.status, b.updates, b.metrics)
    untimed = [[{**record, "seconds": 0} for record in each.history] for each in (a, b)]
    assert untimed[0] == untimed[1]
    if b.run_dir is not None:
        lines = (b.run_dir / "history.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == b.history
    kept = [[leaf for _, leaf in leaves(each.rule_state)] for each in (a, b)]
    for x, y in zip(*kept, strict=True):
        assert torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y


# Resume ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [recipe(5) if name == "noise_cd" else recipe() for name, recipe in hm.rules.RECIPES.items()]
    + [hm.rules.centred(hm.rules.ucd(start="persistent"))],
    ids=repr,
)
@pytest.mark.mostly_nightly(2)
def test_resume_gives_the_bits_of_an_uninterrupted_run(rule: Any, tmp_path: Path) -> None:
    """After a crash before the first checkpoint, and after one past the second."""
    settings = {"rule": rule, "updates": 15, "checkpoint_every": 5}
    whole = run(tmp_path / "whole", **settings)
    for crash in (3, 12):
        part = tmp_path / f"part{crash}"
        with pytest.raises(Crash):
            run(part, callbacks=[crash_at(crash)], **settings)
        resumed = run(part, resume=True, **settings)
        assert_same(whole, resumed)
        for name in FILES - CHECKPOINTS - {"history.jsonl"}:
            assert (tmp_path / "whole" / name).read_bytes() == (part / name).read_bytes()


def test_resume_where_there_is_no_run_starts_one(tmp_path: Path) -> None:
    assert_same(whole_run(), run(tmp_path / "new" / "folder", resume=True))


def test_resuming_a_completed_run_returns_it(tmp_path: Path) -> None:
    whole = run(tmp_path)
    assert_same(whole, run(tmp_path, resume=True, callbacks=[crash_at(1)]))


def test_a_run_may_grow_under_a_schedule_that_does_not_depend_on_its_length(tmp_path: Path) -> None:
    changes = {"schedule": "inverse_sqrt", "metrics": None, "validation": None, "record_every": 10}
    run(tmp_path, updates=30, **changes)
    assert_same(run(None, **changes), run(tmp_path, resume=True, **changes))
    with pytest.raises(ValueError, match=r"^updates: expected at least the 60"):
        run(tmp_path, resume=True, **{**changes, "updates": 40})


def test_early_stopping_survives_a_resume(tmp_path: Path) -> None:
    def stopping() -> callbacks.EarlyStopping:
        return callbacks.EarlyStopping("mean_bias", patience=2)

    whole = run(None, callbacks=[stopping()], evaluate_every=4)
    assert whole.status == "stopped" and whole.updates > 11
    with pytest.raises(Crash):
        run(
            tmp_path,
            callbacks=[stopping(), crash_at(whole.updates - 1)],
            evaluate_every=4,
            checkpoint_every=whole.updates - 2,
        )
    resumed = run(tmp_path, callbacks=[stopping()], evaluate_every=4, resume=True)
    assert_same(whole, resumed)
    assert_same(whole, run(tmp_path, callbacks=[stopping()], evaluate_every=4, resume=True))
    with pytest.raises(ValueError, match=r"^callbacks: the run to resume has .*EarlyStopping"):
        run(tmp_path, resume=True)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"rule": hm.rules.pcd(2, 8)}, "rule"),
        ({"batch_size": 6}, "batch_size"),
        ({"optimizer": "adam", "momentum": 0.0}, "optimizer"),
        ({"radius": 1.0}, "radius"),
        ({"seed": 1}, "seed"),
        ({"X": data(24)}, "X"),
        ({"on": machine(HIDDEN + 1)}, "machine"),
        ({"on": machine().double()}, "dtype"),
        ({"updates": 61}, "updates: the schedule"),
    ],
)
def test_resume_with_other_settings_is_refused(changes: dict[str, Any], name: str, tmp_path: Path) -> None:
    run(tmp_path, updates=5)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=rf"^{name}"):
        run(tmp_path, resume=True, **{"updates": 5, **changes})
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_resume_with_other_threads_warns(tmp_path: Path) -> None:
    run(tmp_path)
    torch.set_num_threads(2)
    with pytest.warns(RuntimeWarning, match="threads: the run to resume was on 1 and goes on, on 2"):
        run(tmp_path, resume=True)


# Kill and Ctrl-C -------------------------------------------------------------------------------------------


def process(run_dir: Path, step: int, *signals: signal.Signals) -> int:
    """How a process that runs the run of these tests and sends itself signals after an update ended.

    Its status is 0 where the run was interrupted after that update.
    """

    def callback(update: Update) -> None:
        if update.step == step:
            for each in signals:
                os.kill(os.getpid(), each)

    def work() -> int:
        outcome = run(run_dir, callbacks=[callback])
        return int((outcome.status, outcome.updates) != ("interrupted", step))

    return ended(forked(work))


def test_a_killed_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    assert process(tmp_path, 37, signal.SIGKILL) == -signal.SIGKILL
    assert (tmp_path / "checkpoint.safetensors").exists() and not (tmp_path / "machine.safetensors").exists()
    (tmp_path / ".checkpoint.safetensors.left").write_bytes(
        b"what a kill in the middle of a checkpoint leaves"
    )
    assert_same(whole_run(), run(tmp_path, resume=True))
    assert {path.name for path in tmp_path.iterdir()} == FILES


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_update_saves_and_returns(number: signal.Signals, tmp_path: Path) -> None:
    assert process(tmp_path, 37, number) == 0
    assert read_checkpoint(tmp_path / "checkpoint.safetensors")["step"] == 37
    assert not (tmp_path / "machine.safetensors").exists()
    assert_same(whole_run(), run(tmp_path, resume=True))


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_half_a_run_is_not_taken_for_a_whole_one(number: signal.Signals, raised: type) -> None:
    assert (done := run(None)).whole() is done

    def once(update: Update) -> None:
        if update.step == 12:
            signal.raise_signal(number)

    half = run(None, callbacks=[once])
    with pytest.raises(raised) as caught:
        half.whole()
    assert raised is KeyboardInterrupt or caught.value.code == 128 + signal.SIGTERM


def test_a_second_control_c_stops_at_once(tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGINT)

    def twice(update: Update) -> None:
        if update.step == 12:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, callbacks=[twice])
    assert signal.getsignal(signal.SIGINT) is handler
    assert_same(whole_run(), run(tmp_path, resume=True))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_told_to_ignore_a_signal_goes_on_ignoring_it(number: int) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        assert run(None, callbacks=[lambda update: signal.raise_signal(number)]).status == "completed"
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_a_handler_of_sigterm_that_somebody_set_stays() -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))

    def once(update: Update) -> None:
        if update.step == 12:
            signal.raise_signal(signal.SIGTERM)

    try:
        assert run(None, callbacks=[once]).status == "completed" and received == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_second_sigterm_ends_the_process_at_once(tmp_path: Path) -> None:
    assert process(tmp_path, 37, signal.SIGTERM, signal.SIGTERM) == -signal.SIGTERM
    assert_same(whole_run(), run(tmp_path, resume=True))


def test_training_works_outside_the_main_thread() -> None:
    outcomes: list[TrainingRun] = []
    thread = threading.Thread(target=lambda: outcomes.append(run(None)))
    thread.start()
    thread.join()
    assert_same(outcomes[0], run(None))


# Files -----------------------------------------------------------------------------------------------------


def test_the_files_of_a_run(tmp_path: Path) -> None:
    outcome = run(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert outcome.run_dir == tmp_path and outcome.averaged_machine is not None
    for name, trained in (("machine", outcome.machine), ("averaged", outcome.averaged_machine)):
        loaded = hm.load(tmp_path / f"{name}.safetensors")
        assert all(torch.equal(x, y) for x, y in zip(loaded.parameters(), trained.parameters(), strict=True))
    record = tomllib.loads((tmp_path / "run.toml").read_text())
    made = record["run"]
    assert record["batch_size"] == 5 and made["rule"] == "pcd(1, chains=8)" and made["X"][:2] == [23, 6]
    assert made["machine"] == ["Bernoulli(6)", "Bernoulli(4)"]
    assert record["made_with"].keys() == {"harmonium", "torch", "python", "processor"}
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == outcome.history


def test_an_existing_run_is_refused_and_overwritten_only_on_request(tmp_path: Path) -> None:
    run(tmp_path, updates=5)
    (tmp_path / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        ValueError, match=r"^run_dir:.*already holds a run.*resume continues it, overwrite replaces it"
    ):
        run(tmp_path)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    outcome = run(tmp_path, overwrite=True, averaging=None, seed=3)
    assert outcome.updates == 60
    assert {path.name for path in tmp_path.iterdir()} == (FILES - {"averaged.safetensors"}) | {"notes.txt"}
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_malformed_arguments_leave_an_existing_run_alone(tmp_path: Path) -> None:
    run(tmp_path, updates=5)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"^learning_rate"):
        run(tmp_path, overwrite=True, learning_rate=-1.0)
    with pytest.raises(ValueError, match=r"^EarlyStopping"):
        run(tmp_path, overwrite=True, callbacks=[callbacks.EarlyStopping("unknown", 1)])
    with pytest.raises(ValueError, match=r"^state: expected chains"):
        run(tmp_path, overwrite=True, rule_state=[torch.zeros(3, 3)])
    with pytest.raises(ValueError, match=r"expected values in"):
        run(tmp_path, overwrite=True, transform=lambda rows, generator: rows + 9)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_run_dir_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^run_dir: expected a folder"):
        run(tmp_path / "file")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_keeps_the_last_good_checkpoint(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_the_disk(update: Update) -> None:
        if update.step == 25:
            monkeypatch.setattr(os, call, full_disk)

    with pytest.raises(
        OSError, match=r"last good checkpoint, of update 20, was kept.*(safetensors|jsonl)'"
    ) as caught:
        run(tmp_path, callbacks=[fill_the_disk])
    assert caught.value.errno == errno.ENOSPC
    assert {path.name for path in tmp_path.iterdir()} == {"run.toml", *CHECKPOINTS, "history.jsonl"}
    monkeypatch.undo()
    assert_same(whole_run(), run(tmp_path, resume=True))


@pytest.mark.parametrize("newer", [False, True])
def test_a_file_that_is_no_checkpoint_of_this_version_is_refused(newer: bool, tmp_path: Path) -> None:
    saved = run(tmp_path, updates=5)
    path = tmp_path / "checkpoint.safetensors"
    if newer:
        write_checkpoint(path, {**read_checkpoint(path), "version": 99})
    else:
        saved.machine.save(path, overwrite=True)
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors: .*(checkpoint|version 99)"):
        run(tmp_path, updates=5, resume=True)


def test_a_rule_state_that_cannot_be_kept_is_named(tmp_path: Path) -> None:
    class Odd:
        name = "odd"

        def gradient(self, machine: Any, v: Any, state: Any = None, *, seed: Any) -> Any:
            estimate = hm.rules.cd(1).gradient(machine, v, seed=seed)
            return estimate._replace(state=[{"chains": {1, 2}}])

    with pytest.raises(TypeError, match=r"checkpoint\['rule'\]\[0\]\['chains'\].*received set"):
        run(tmp_path, rule=Odd())


def test_stopping_is_clean_and_final(tmp_path: Path) -> None:
    stopped = run(tmp_path, callbacks=[lambda update: STOP if update.step == 11 else None])
    assert (stopped.status, stopped.updates) == ("stopped", 11)
    assert stopped.history[-1]["step"] == 11 and "mean_bias" in stopped.history[-1]
    assert (tmp_path / "machine.safetensors").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(stopped, run(tmp_path, resume=True))


def test_a_run_that_never_began_is_not_in_the_way(tmp_path):
    """A rule that does not suit the machine fails at its first update; the corrected call is not refused."""
    machine = hm.BoltzmannMachine([hm.Gaussian(4), hm.Bernoulli(3)])
    X = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    settings = {"updates": 3, "batch_size": 10, "learning_rate": 0.01, "progress": False, "run_dir": tmp_path}
    with pytest.raises(ValueError, match="expected discrete layers"):
        hm.train(machine, X, rule=hm.rules.ucd_lmi(), **settings)
    assert hm.train(machine, X, rule=hm.rules.cd(1), **settings).updates == 3
    with pytest.raises(ValueError, match="already holds a run"):
        hm.train(machine, X, rule=hm.rules.cd(1), **settings)


def test_run_goes_on_with_an_optimizer_whose_learning_rate_is_a_tensor(tmp_path: Path) -> None:
    adam = partial(torch.optim.Adam, lr=torch.tensor(0.01))
    settings = {"optimizer": adam, "momentum": 0.0, "schedule": "constant"}
    run(tmp_path, updates=20, **settings)
    assert_same(run(None, updates=30, **settings), run(tmp_path, updates=30, resume=True, **settings))
