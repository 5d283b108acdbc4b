"""Callbacks: what they are told, early stopping; and the progress bar."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import harmonium as hm
from harmonium import _progress
from harmonium._progress import fit_numbers
from harmonium.training import TrainingRun, Update, callbacks, train

VISIBLE, HIDDEN = 6, 4
NAMES = ("pseudo_log_likelihood", "log_partition_error", "validation_of_something_else")
X = torch.eye(VISIBLE)
pytestmark = pytest.mark.usefixtures("one_thread")


def run(**settings: Any) -> TrainingRun:
    """A short run of CD, with other settings where given."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(VISIBLE), hm.Bernoulli(HIDDEN)])
    return train(machine, X, **{"rule": hm.rules.cd(1), "updates": 12, "batch_size": 2, **settings})


def scripted(values: list[float]) -> dict[str, Any]:
    """A metric with these values, evaluated at every update."""
    script = iter(values)
    return {
        "validation": X,
        "metrics": {"score": lambda machine, X: next(script)},
        "evaluate_every": 1,
        "updates": len(values),
    }


def test_callbacks_are_told_of_every_update() -> None:
    told: list[Update] = []
    outcome = run(callbacks=[told.append], schedule="linear")
    assert [update.step for update in told] == list(range(1, 13))
    assert [update.epoch for update in told] == [step // 3 for step in range(1, 13)]
    assert {update.total for update in told} == {12} and told[-1].machine is outcome.machine
    assert [update.learning_rate for update in told] == pytest.approx(
        [0.05 * (1 - step / 12) for step in range(12)]
    )
    assert all(update.gradient_norm > 0 and update.metrics == {} for update in told)
    with pytest.raises(dataclasses.FrozenInstanceError):
        told[0].step = 3  # type: ignore[misc]


def test_hooks_are_called_in_their_order() -> None:
    calls: list[Any] = []

    class Hooks:
        def begin(self, machine: Any, metrics: Any) -> None:
            calls.append(("begin", metrics))

        def __call__(self, update: Update) -> None:
            calls.append(update.step)

        def finish(self, machine: Any) -> None:
            calls.append("finish")

        def close(self) -> None:
            calls.append("close")

    run(callbacks=[Hooks()], **{**scripted([0.0, 0.0])})
    assert calls == [("begin", ("score",)), 1, 2, "finish", "close"]
    calls.clear()

    def fail(update: Update) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run(callbacks=[Hooks(), fail])
    assert calls == [("begin", ()), 1, "close"]


# Early stopping --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "settings", "updates", "best_step"),
    [
        ([1, 2, 3, 3, 1, 0, 0], {"patience": 2}, 5, 3),
        ([3, 2, 1, 2, 3, 4, 5], {"patience": 2, "larger_is_better": False}, 5, 3),
        ([1, 1.4, 1.8, 2.2, 2.3], {"patience": 2, "minimum_change": 0.5}, 5, 3),
        ([1, 2, 3, 4, 5], {"patience": 1}, 5, 5),
        ([math.nan, 1, math.nan, math.nan, 9], {"patience": 2}, 4, 2),
        ([9, 5, 4.5, 1, 0], {"patience": 9, "target": 4.5, "larger_is_better": False}, 3, 3),
    ],
)
def test_early_stopping(values: list[float], settings: dict[str, Any], updates: int, best_step: int) -> None:
    stopping = callbacks.EarlyStopping("score", **settings)
    kept: dict[int, torch.Tensor] = {}

    def keep(update: Update) -> None:
        kept[update.step] = update.machine.couplings[0].weight.detach().clone()

    outcome = run(callbacks=[keep, stopping], **scripted(values))
    assert outcome.updates == updates and stopping.best_step == best_step
    assert stopping.best == values[best_step - 1]
    assert torch.equal(outcome.machine.couplings[0].weight, kept[best_step])


def test_early_stopping_forgets_between_runs() -> None:
    stopping = callbacks.EarlyStopping("score", patience=2)
    assert run(callbacks=[stopping], **scripted([9, 1, 1, 1])).updates == 3
    assert run(callbacks=[stopping], **scripted([1, 2, 3, 4])).updates == 4
    assert stopping.best == 4


def test_early_stopping_refuses_malformed_arguments() -> None:
    with pytest.raises(ValueError, match=r"^patience"):
        callbacks.EarlyStopping("score", patience=0)
    with pytest.raises(ValueError, match=r"\['score'\], received 'scroe'"):
        run(callbacks=[callbacks.EarlyStopping("scroe", patience=1)], **scripted([1.0]))


# Progress --------------------------------------------------------------------------------------------------


def test_progress_of_a_long_run_is_logged_off_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "_LOG_SECONDS", 0.0)
    run()
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 12 and lines[0].startswith("1/12  gradient norm")
    assert lines[1].startswith("2/12, 0:00:0") and "left  gradient norm" in lines[-1] and "\x1b" not in err


def test_a_search_tells_no_time_that_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at its tolerance, long before its most updates."""
    monkeypatch.setattr(_progress, "_LOG_SECONDS", 0.0)
    machine = hm.BoltzmannMachine([hm.Bernoulli(VISIBLE)], edges=[(0, 0)])
    train(machine, X, rule="pseudo_likelihood", optimizer="lbfgs", updates=40, weight_decay=0.1)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 2 and not any("left" in line for line in lines) and lines[2].startswith("3/40  ")


def test_progress_of_a_short_run_is_silent_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    run()
    run(progress=False)
    assert capsys.readouterr() == ("", "")
    run(progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "12/12" in err and "gradient norm" in err


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.nightly
def test_progress_is_one_line_of_a_terminal() -> None:
    import fcntl
    import pty
    import re
    import struct
    import termios

    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_training_callbacks as this\n"
        "metrics = {name: lambda machine, X: -123.45678 for name in this.NAMES}\n"
        "this.run(metrics=metrics, validation=this.X, evaluate_every=1)"
    )
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=terminal, stdout=subprocess.PIPE, env=environment
    )
    out, _ = process.communicate(timeout=120)
    os.close(terminal)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert process.returncode == 0 and out == b"" and "12/12" in shown
    assert "\x1b[1A" not in shown  # nothing was wrapped, or the cursor would have to go up again
    frames = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).splitlines()
    assert "pseudo log likelihood -123.5" in shown and max(map(len, frames)) <= 80
    assert "validation" not in shown  # numbers that do not fit are left out, not cut


def test_a_notebook_has_one_line_that_is_drawn_over_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ipython: Any = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    run(progress=None)
    lines = capsys.readouterr().err.split("\r")
    assert "0/12" in lines[1] and "12/12" in lines[-1]
    assert all("\n" not in line and len(line) <= 100 for line in lines[:-1])
    run(progress=False)
    assert capsys.readouterr().err == ""


def test_numbers_that_do_not_fit_are_left_out_whole() -> None:
    numbers = {"long_name": 1.0, "b": -2.34567}
    assert fit_numbers(numbers, 80) == "long name 1  b -2.346"
    assert fit_numbers(numbers, 20) == "long name 1" and fit_numbers(numbers, 10) == ""
