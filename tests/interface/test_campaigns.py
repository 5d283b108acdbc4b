"""A short run of every campaign finds nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from campaigns.__main__ import NAMES, main

HERE = Path(__file__).parents[2]

SLICES = {
    "annealing": ["--strong 1 --weak 1 --seeds 1 --temperatures 200"],
    "damaged": ["--cases 60 --seed 3", "--cases 300 --seed 4 --only csv|tsv|kinds|table|parquet|feather"],
    "kills": ["--cases 2 --seed 5", "--cases 1 --seed 6 --signal TERM"],
    "ranks": ["--cases 1 --seed 7 --updates 600 --limit 200"],
    "tap": ["--machines 1 --first 50 --kinds Hopfield pairs"],
    "writers": ["--cases 1 --seed 7"],
}
ELSEWHERE = {"devices": "test_campaign_devices.py"}


def test_every_campaign_has_a_short_run() -> None:
    assert {*SLICES, *ELSEWHERE} == {*NAMES}
    assert all((Path(__file__).parent / name).exists() for name in ELSEWHERE.values())


@pytest.mark.nightly
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", ["annealing", "kills", "tap", "writers"])
def test_a_short_run_finds_nothing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for options in SLICES[name]:
        assert main([name, *options.split()]) == 0
        assert "0 failures" in capsys.readouterr().out


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["damaged", "ranks"])
def test_a_short_run_in_a_process_of_its_own_finds_nothing(name: str) -> None:
    """Its workers are forks, in which threads that other tests have started would be missing."""
    paths = os.pathsep.join(filter(None, [str(HERE / "src"), os.environ.get("PYTHONPATH", "")]))
    for options in SLICES[name]:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.campaigns", name, *options.split()],
            cwd=HERE, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0 and " 0 failures" in done.stdout, done.stdout + done.stderr
