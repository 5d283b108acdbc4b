"""The command line as a process: statuses, streams and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import harmonium as hm
from harmonium.training.checkpoint import read_checkpoint

from .command_line import Answer, CommandLine

pytestmark = pytest.mark.nightly

COMMAND = [sys.executable, "-m", "harmonium"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_help_and_version(cli: CommandLine) -> None:
    assert "train" in cli.succeed("--help").stdout
    assert all(each in cli.succeed().stdout for each in ("train", "evaluate", "--help"))
    assert cli.succeed("--version").stdout == f"harmonium {hm.__version__}\n"
    assert "magic" in cli.refuse("magic")


def test_results_and_errors_take_different_streams(cli: CommandLine, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env=ENVIRONMENT)

    done = run("data", "bars-and-stripes", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["rows"] == 32

    failed = run("magic")  # imports no torch
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("error: ") and failed.stderr.count("\n") == 1
    assert cli.refuse("evaluate", tmp_path / "nothing").startswith("RUN: ")


def in_a_process(arguments: list[str], number: int, run: Path) -> Answer:
    """The answer of a process that gets a signal after a checkpoint."""
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*COMMAND, *arguments], env=ENVIRONMENT, **piped)
    deadline = time.monotonic() + 120
    try:
        while not (run / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    return Answer(process.returncode, stdout, stderr)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_a_checkpoint_that_resumes(
    number: int, status: int, cli: CommandLine, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    arguments = ["train", "bars-and-stripes", run, "--hidden", "5", "--threads", "1"]
    # Below 200 updates in all the shorter run would be made one by one, with other bits (decision 12).
    arguments += ["--checkpoint-every", "250", "--schedule", "constant"]
    endless = [*map(str, arguments), "--updates", "10000000", "--json"]
    answer = in_a_process(endless, number, run)
    assert answer.status == status, answer.stderr
    assert answer.json["status"] == "interrupted"
    assert "checkpoint.safetensors" in answer.stderr and "--resume" in answer.stderr
    assert "Traceback" not in answer.stderr

    step = read_checkpoint(run / "checkpoint.safetensors")["step"]
    assert step == answer.json["updates"]
    cli.succeed(*arguments, "--updates", step + 10, "--resume")
    cli.succeed(*arguments[:2], tmp_path / "whole", *arguments[3:], "--updates", step + 10)
    resumed, whole = (hm.load(folder / "machine.safetensors") for folder in (run, tmp_path / "whole"))
    assert all(torch.equal(a, b) for a, b in zip(resumed.parameters(), whole.parameters(), strict=True))
