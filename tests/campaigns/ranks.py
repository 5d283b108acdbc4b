"""Processes that train one machine under torchrun, one of which is killed: the rest is torchrun's and ours.

A run of ``torchrun --max-restarts 1`` in some processes loses one of them to SIGKILL at a random moment. A
case fails where torchrun does not end well within ``--limit`` seconds of it, where the machine is not that of
an uninterrupted run bit for bit, or where the records are not those of one run. ``--plain`` makes the process
group with ``init_process_group`` alone, for comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

MACHINE = "machine.safetensors"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns ranks", description=__doc__)
    parser.add_argument("--cases", type=int, default=10, help="kills")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--updates", type=int, default=600, help="long enough to be killed in")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds from the kill to the end")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.work:
        _train(chosen.work, chosen.updates, chosen.plain)
        return 0
    random, failures, seconds = Random(chosen.seed), [], []
    folder = Path(tempfile.mkdtemp())
    try:
        whole, part = folder / "whole", folder / "part"
        _uninterrupted(whole, chosen)
        for case in range(chosen.cases):
            try:
                took = _killed(part, chosen, random)
                seconds.append(took)
                failure = _difference(whole, part)
                print(f"case {case}: {took:.1f} s from the kill to the end", file=sys.stderr)
            except AssertionError as error:
                failure = str(error)
            if failure:
                failures.append(f"case {case}: {failure}")
                print(failures[-1], file=sys.stderr)
            shutil.rmtree(part, ignore_errors=True)
    finally:
        shutil.rmtree(folder)
    longest = f", at most {max(seconds):.0f} s from a kill to the end" if seconds else ""
    print(f"{len(seconds)} of {chosen.cases} ended{longest}; {len(failures)} failures, seed {chosen.seed}")
    return int(bool(failures))


def _started(folder: Path, chosen: argparse.Namespace, processes: int) -> subprocess.Popen[bytes]:
    """torchrun, in a group of its own that can be ended whole."""
    folder.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--max-restarts", "1", "--monitor-interval", "0.2", "-m", "tests.campaigns", "ranks"]
    command += ["--work", str(folder), "--updates", str(chosen.updates)] + ["--plain"] * chosen.plain
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HARMONIUM_PRODUCTS": "torch"}
    environment.pop("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", None)
    log = (folder / "log").open("wb")
    return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def _killed(folder: Path, chosen: argparse.Namespace, random: Random) -> float:
    """Seconds from the kill of one process to the good end of all."""
    launcher = _started(folder, chosen, chosen.processes)
    try:
        victim = folder / f"0-{random.randrange(chosen.processes)}"
        while not (victim.exists() and (folder / "run" / "checkpoint.safetensors").exists()):
            assert launcher.poll() is None, f"it ended before the kill with {launcher.returncode}"
            time.sleep(0.05)
        time.sleep(random.random())
        assert not (folder / "run" / MACHINE).exists(), "it ended before the kill: give more --updates"
        os.kill(int(victim.read_text()), signal.SIGKILL)
        killed = time.monotonic()
        try:
            status = launcher.wait(chosen.limit)
        except subprocess.TimeoutExpired:
            log = (folder / "log").read_text()
            raise AssertionError(
                f"not at its end {chosen.limit:.0f} s after the kill: {log[-2000:]}"
            ) from None
        assert status == 0, f"torchrun ended with {status}: {(folder / 'log').read_text()[-2000:]}"
        assert len(list(folder.glob("1-*"))) == chosen.processes, "nothing was started again"
        return time.monotonic() - killed
    finally:
        if launcher.poll() is None:
            os.killpg(launcher.pid, signal.SIGTERM)
            try:
                launcher.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(launcher.pid, signal.SIGKILL)
                launcher.wait()


def _difference(whole: Path, part: Path) -> str | None:
    runs = [whole / "run", part / "run"]
    if runs[0].joinpath(MACHINE).read_bytes() != runs[1].joinpath(MACHINE).read_bytes():
        return "the machines differ"
    lines = [(run / "history.jsonl").read_text().splitlines() for run in runs]
    first, second = ([{**json.loads(line), "seconds": 0} for line in each] for each in lines)
    return None if first == second else "the records differ"


def _uninterrupted(folder: Path, chosen: argparse.Namespace) -> None:
    """Makes the run that nobody kills, in as many processes: the bits depend on their number."""
    status = _started(folder, chosen, chosen.processes).wait()
    assert status == 0, f"torchrun ended with {status}: {(folder / 'log').read_text()[-2000:]}"


def _train(folder: Path, updates: int, plain: bool) -> None:
    """What each process does."""
    import torch

    import harmonium as hm

    attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
    (folder / f"{attempt}-{rank}").write_text(str(os.getpid()))
    torch.set_num_threads(1)
    if plain:
        torch.distributed.init_process_group("gloo")
        _run(hm, folder, updates)
        torch.distributed.destroy_process_group()
    else:
        with hm.distributed.init_process_group("cpu"):
            _run(hm, folder, updates)


def _run(hm, folder: Path, updates: int) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(12)], seed=1)
    hm.train(
        machine,
        hm.data.bars_and_stripes(4),
        rule=hm.rules.centred(hm.rules.pcd(1, 32)),
        updates=updates,
        batch_size=28,
        averaging=0.99,
        run_dir=folder / "run",
        checkpoint_every=100,
        resume=True,
        progress=False,
        distributed="auto",
    )
