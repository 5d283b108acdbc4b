"""The command line as a process: statuses, streams and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

import harmonium as hm
from harmonium.training.checkpoint import read_checkpoint

from .command_line import CommandLine

COMMAND = [sys.executable, "-m", "harmonium"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_help_and_version(cli: CommandLine) -> None:
    assert "train" in cli.succeed("--help").stdout
    assert cli.succeed().stdout == cli.succeed("--help").stdout
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


def test_ctrl_c_keeps_a_checkpoint_that_resumes(cli: CommandLine, tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = ["train", "bars-and-stripes", run, "--hidden", "5", "--threads", "1"]
    arguments += ["--checkpoint-every", "50"]
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments), "--updates", "10000000", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        deadline = time.monotonic() + 120
        while not (run / "checkpoint.pt").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    assert json.loads(stdout)["status"] == "interrupted"
    assert "checkpoint.pt" in stderr and "--resume" in stderr and "Traceback" not in stderr

    step = read_checkpoint(run / "checkpoint.pt")["step"]
    assert step == json.loads(stdout)["updates"]
    cli.succeed(*arguments, "--updates", step + 10, "--resume")
    cli.succeed(*arguments[:2], tmp_path / "whole", *arguments[3:], "--updates", step + 10)
    resumed, whole = (hm.load(folder / "machine.safetensors") for folder in (run, tmp_path / "whole"))
    assert all(torch.equal(a, b) for a, b in zip(resumed.parameters(), whole.parameters(), strict=True))
