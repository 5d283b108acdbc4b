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
from harmonium.training.lock import Lock

from .command_line import TINY, CommandLine

COMMAND = [sys.executable, "-m", "harmonium"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_help_and_version(cli: CommandLine) -> None:
    assert "train" in cli.succeed("--help").stdout
    assert all(each in cli.succeed().stdout for each in ("harmonium train", "harmonium -h"))
    assert cli.succeed("--version").stdout == f"harmonium {hm.__version__}\n"
    assert "magic" in cli.refuse("magic")


def test_results_and_errors_take_different_streams(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "data", "bars-and-stripes", "--json"], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["rows"] == 32

    failed = subprocess.run(
        [*COMMAND, "evaluate", str(tmp_path / "nothing")], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("error: RUN: ") and failed.stderr.count("\n") == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_a_checkpoint_that_resumes(
    number: int, status: int, cli: CommandLine, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    arguments = ["train", "bars-and-stripes", run, "--hidden", "5", "--threads", "1"]
    # Below 200 updates in all the shorter run would be made one by one, with other bits (decision 9).
    arguments += ["--checkpoint-every", "250", "--schedule", "constant"]
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments), "--updates", "10000000", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        deadline = time.monotonic() + 120
        while not (run / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == status, stderr
    assert json.loads(stdout)["status"] == "interrupted"
    assert "checkpoint.safetensors" in stderr and "--resume" in stderr and "Traceback" not in stderr

    step = read_checkpoint(run / "checkpoint.safetensors")["step"]
    assert step == json.loads(stdout)["updates"]
    cli.succeed(*arguments, "--updates", step + 10, "--resume")
    cli.succeed(*arguments[:2], tmp_path / "whole", *arguments[3:], "--updates", step + 10)
    resumed, whole = (hm.load(folder / "machine.safetensors") for folder in (run, tmp_path / "whole"))
    assert all(torch.equal(a, b) for a, b in zip(resumed.parameters(), whole.parameters(), strict=True))


def test_an_unfinished_run_whose_last_checkpoint_is_damaged_gives_the_one_before(
    cli: CommandLine, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    cli.train("bars-and-stripes", run, "--checkpoint-every", "10", "--binarise", "none")
    (run / "machine.safetensors").unlink()
    (run / "checkpoint.safetensors").write_bytes((run / "checkpoint.safetensors").read_bytes()[:-50])
    answer = cli.succeed("evaluate", run, "bars-and-stripes", "--json")
    assert "checkpoint-previous.safetensors is used" in answer.stderr and "after 10 updates" in answer.stderr
    (run / "checkpoint-previous.safetensors").write_bytes(b"")
    assert "checkpoint-previous.safetensors: damaged" in cli.refuse("evaluate", run, "bars-and-stripes")


def test_a_folder_in_use_is_refused_and_left_as_it_is(cli: CommandLine, tmp_path: Path) -> None:
    run = tmp_path / "run"
    cli.train("bars-and-stripes", run, "--tensorboard")
    lock = Lock(run / "lock.json")
    before = sorted(run.rglob("*"))
    arguments = ["train", "bars-and-stripes", run, *TINY, "--tensorboard"]
    for how in ("--resume", "--overwrite"):
        assert f"in use by process {os.getpid()} on " in cli.refuse(*arguments, how)
        assert sorted(run.rglob("*")) == before
    lock.release()
    cli.succeed(*arguments, "--overwrite")
