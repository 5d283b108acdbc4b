"""Updates of PCD in two processes of one thread each, beside one process; in turns, by the wall clock."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

import harmonium as hm
from benchmarks import peers
from benchmarks.race import Contestant, Table, compare
from benchmarks.targets import HARMONIUM, ONE_PROCESS

THREADS = "one process, two threads"
WAYS = (HARMONIUM, ONE_PROCESS, THREADS)
CASES = {"784 × 500": (784, 500, 20), "2000 × 2000": (2000, 2000, 4)}
"""Visible and hidden units, and updates of a round."""
ROWS = 1000  # of a batch, and chains
_PATIENCE = timedelta(seconds=300)  # the longest that others may race while the second process waits


def two_processes(quick: bool) -> Table:
    title = f"PCD-1, batch {ROWS}, {ROWS} chains: one update by two processes of one thread"
    table, threads = Table("two-processes", title), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _second_process() as second:
            for case in CASES:
                alone = _training(case)
                ways = {
                    HARMONIUM: _together(second, case),
                    ONE_PROCESS: alone,
                    THREADS: _on_two_threads(alone),
                }
                compare(table, ways, 3 if quick else 9, group=case)
    finally:
        torch.set_num_threads(threads)
    return table


def _training(case: str, **settings: Any) -> Contestant:
    visible, hidden, updates = CASES[case]
    X = peers.rows(10_000, visible)
    return peers.training(peers.machine(visible, hidden), X, hm.rules.pcd(1, ROWS), ROWS, updates, **settings)


@cache
def _shared(case: str) -> Contestant:
    """Updates of this process with all others that make this call."""
    return _training(case, distributed="auto")


def _together(second: subprocess.Popen[str], case: str) -> Contestant:
    """Updates of this process with the second one, which is told to make the same."""

    def contestant() -> float:
        assert second.stdin is not None
        print(case, file=second.stdin, flush=True)
        return _shared(case)()

    return contestant


def _on_two_threads(contestant: Contestant) -> Contestant:
    def on_two() -> float:
        torch.set_num_threads(2)
        try:
            return contestant()
        finally:
            torch.set_num_threads(1)

    return on_two


@contextmanager
def _second_process() -> Iterator[subprocess.Popen[str]]:
    """Starts a process that waits to be told what to train, and joins it; it ends with the race."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.processes", str(port)]
    root = Path(__file__).parents[1]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, cwd=root) as second:
        try:
            _join(0, port)
            yield second
        finally:
            assert second.stdin is not None
            second.stdin.close()
            if dist.is_initialized():
                dist.destroy_process_group()


def _join(rank: int, port: int) -> None:
    where = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2, timeout=_PATIENCE)


def _serve(port: int) -> None:
    """Trains what the first process trains."""
    torch.set_num_threads(1)
    _join(1, port)
    for line in sys.stdin:
        _shared(line.rstrip("\n"))()
    dist.destroy_process_group()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
