"""Runs that are killed again and again, and resumed to the bits of an uninterrupted run.

A run of random settings is trained twice: once whole, and once in processes that get SIGKILL (or, with
``--signal TERM``, SIGTERM) at random moments, each resumed by the next. A case is one signal. It fails where
the last resume does not leave the bits of the whole run, where a resume warns or fails, or where a run that
SIGTERM ended in order did not save the update that it says.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from harmonium.training.checkpoint import read_checkpoint

from ._runs import INTERRUPTED, Case, difference, ended, forked, warm_up


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns kills", description=__doc__)
    parser.add_argument("--cases", type=int, default=100, help="signals that meet a living process")
    parser.add_argument("--seconds", type=float, default=900.0, help="after which no further run begins")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--signal", choices=["KILL", "TERM"], default="KILL")
    chosen = parser.parse_args(arguments)
    number = signal.Signals[f"SIG{chosen.signal}"]
    started = time.monotonic()
    counts = {"signals": 0, "runs": 0, "orderly": 0}
    failures: list[str] = []
    folder = Path(tempfile.mkdtemp())
    try:
        warm_up(folder)
        while counts["signals"] < chosen.cases and time.monotonic() - started < chosen.seconds:
            name = f"{chosen.seed} {counts['runs']}"
            failure = _run(Case(name), Random(f"{name} times"), folder, number, counts)
            if failure:
                failures.append(f"{name}: {failure}; {Case(name)}")
                print(failures[-1], file=sys.stderr)
            counts["runs"] += 1
            for path in folder.iterdir():
                shutil.rmtree(path)
    finally:
        shutil.rmtree(folder)
    print(
        f"{number.name}: {counts['signals']} signals in {counts['runs']} runs, {counts['orderly']} of them "
        f"ended in order, {len(failures)} failures, {time.monotonic() - started:.0f} s, seed {chosen.seed}"
    )
    return int(bool(failures) or counts["signals"] < chosen.cases)


def _run(case: Case, random: Random, folder: Path, number: int, counts: dict[str, int]) -> str | None:
    """Trains one run twice; what went wrong, None if nothing did."""
    whole, part = folder / "whole", folder / "part"

    def train(run_dir: Path) -> int:
        outcome = case.train(run_dir)
        if outcome.status != "interrupted":
            return 0
        saved = read_checkpoint(run_dir / "checkpoint.safetensors")["step"]
        assert saved == outcome.updates and outcome.signal == number, (saved, outcome.updates, outcome.signal)
        assert not (run_dir / "lock.json").exists()
        return INTERRUPTED

    started = time.monotonic()
    if ended(forked(lambda: train(whole))) != 0:
        return "the whole run failed"
    length = time.monotonic() - started
    for _ in range(random.randrange(2, 9)):
        process = forked(lambda: train(part))
        time.sleep(random.random() * length * 0.6)
        os.kill(process, number)
        status = ended(process)
        if status == 0:  # it had come to its end, or was about to
            continue
        if status not in (-number, INTERRUPTED) or (status == INTERRUPTED and number == signal.SIGKILL):
            return f"a process that was signalled ended with {status}"
        counts["signals"] += 1
        counts["orderly"] += status == INTERRUPTED
    if ended(forked(lambda: train(part))) != 0:
        return "the last resume failed"
    differing = difference(whole, part)
    return differing and f"differs in {differing}"
