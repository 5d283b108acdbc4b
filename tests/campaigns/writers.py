"""Processes that start at once on one folder: one trains, the others refuse and name it.

In turn the folder is new, holds a run whose process was killed, or holds a finished one to be overwritten.
The process that trains waits at its first update until every other has ended. A round fails where not exactly
one trains, where another does not say which process has the folder, or where the run that is left differs
from one that was alone.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from harmonium.training import Update

from ._runs import REFUSED, Case, difference, ended, forked, warm_up


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns writers", description=__doc__)
    parser.add_argument("--cases", type=int, default=30, help="rounds, of two and of five processes in turn")
    parser.add_argument("--seconds", type=float, default=900.0, help="after which no further round begins")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    started, rounds = time.monotonic(), 0
    failures: list[str] = []
    folder = Path(tempfile.mkdtemp())
    try:
        warm_up(folder)
        while rounds < chosen.cases and time.monotonic() - started < chosen.seconds:
            name = f"{chosen.seed} {rounds}"
            before = ("new", "killed", "finished")[rounds // 2 % 3]
            failure = _round(Case(name), Random(name), folder, (2, 5)[rounds % 2], before)
            if failure:
                failures.append(f"{name} ({before}): {failure}; {Case(name)}")
                print(failures[-1], file=sys.stderr)
            rounds += 1
            for path in folder.iterdir():
                shutil.rmtree(path)
    finally:
        shutil.rmtree(folder)
    print(
        f"writers: {rounds} rounds of two or five processes, {len(failures)} failures, "
        f"{time.monotonic() - started:.0f} s, seed {chosen.seed}"
    )
    return int(bool(failures) or rounds < chosen.cases)


def _round(case: Case, random: Random, folder: Path, writers: int, before: str) -> str | None:
    """One round; what went wrong, None if nothing did."""
    whole, shared = folder / "whole", folder / "shared"
    if ended(forked(lambda: _completed(case, whole))) != 0:
        return "the run that was alone failed"
    if before == "killed":
        victim = forked(lambda: _completed(case, shared))
        while not (shared / "lock.json").exists():
            time.sleep(0.001)
        time.sleep(random.random() * 0.1)
        os.kill(victim, signal.SIGKILL)
        if ended(victim) == 0:
            return None  # it had finished: one after the other may resume it, with nothing left to train
    elif before == "finished":
        ended(forked(lambda: _completed(case, shared)))

    start, go, begun = os.pipe(), os.pipe(), os.pipe()
    said = folder / "said"
    said.mkdir()

    def write() -> int:
        os.close(start[1])
        os.close(go[1])
        os.read(start[0], 1)  # ends when the parent closes the other end

        def wait(update: Update) -> None:
            if not waited:
                waited.append(update.step)
                os.write(begun[1], b"x")
                os.read(go[0], 1)

        waited: list[int] = []
        again = {"resume": False, "overwrite": True} if before == "finished" else {}
        try:
            case.train(shared, extra=(wait,), **again)
        except ValueError as error:
            (said / str(os.getpid())).write_text(str(error))
            return REFUSED
        return 0

    alive = {forked(write) for _ in range(writers)}
    os.close(start[0])
    os.close(start[1])
    os.close(go[0])
    statuses: dict[int, int] = {}
    training, deadline = 0, time.monotonic() + 120
    while len(statuses) + training < writers and time.monotonic() < deadline:
        for process in sorted(alive - statuses.keys()):
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                statuses[process] = os.waitstatus_to_exitcode(status)
        if select.select([begun[0]], [], [], 0.01)[0]:
            training += len(os.read(begun[0], 16))
    os.close(go[1])
    for process in alive - statuses.keys():
        statuses[process] = ended(process)
    os.close(begun[0])
    os.close(begun[1])

    trained = [process for process, status in statuses.items() if status == 0]
    refused = [process for process, status in statuses.items() if status == REFUSED]
    if len(trained) != 1 or len(refused) != writers - 1:
        return f"{training} began to train, the processes ended with {sorted(statuses.values())}"
    expected = f"run_dir: {shared} is in use by process {trained[0]} on {socket.gethostname()} since "
    for process in refused:
        message = (said / str(process)).read_text()
        if not message.startswith(expected):
            return f"the refusal of {process} is {message!r}"
    differing = difference(whole, shared)
    return differing and f"differs in {differing}"


def _completed(case: Case, run_dir: Path) -> int:
    return 0 if case.train(run_dir).status != "interrupted" else 1
