"""Damaged files: every reader, ``load``, checkpoints, histories and descriptions of runs.

A case is a small honest file of one kind, damaged: blindly (bits, cuts, insertions, numbers, splices), by an
edit that knows the format and keeps its checksums right, or replaced by one made to do harm. It is read in a
worker process, by the library or by the command line, and comes to one of these ends:

- ``read``: it was read. Where a checksum covers a file, damage that leaves the checksum alone must not change
  what is read (else ``changed``).
- ``refused``: ValueError (readers and ``load`` name the file in it, ``Rows`` the place of NaN or infinity),
  TrainingDiverged where a checkpoint was made up with numbers that no training survives, or from the command
  status 1 or 2 and one line that begins with ``error:``.
- ``exception``: anything else was raised, or the command showed more than its line.
- ``memory``: the worker grew by more than 256 MiB beyond twice what the honest files need, or memory that was
  asked for could not be had.
- ``hang``: over ten seconds of the processor, or over a minute. ``crash``: the worker died.

All but the first two are failures. A case is a function of the seed and its number; ``--case`` repeats one.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import mmap
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from harmonium.cli import main as command_line
from harmonium.training import TrainingDiverged

from ._damage import EDITS, blind
from ._exchanged import EXCHANGED_EDITS
from ._honest import Kind, kinds
from ._hostile import hostile
from ._table_damage import TABLE_EDITS

ENDS = ("read", "refused", "changed", "exception", "memory", "hang", "crash")
FAILURES = ENDS[2:]
SECONDS = 10.0
ALLOWANCE = 256 << 20
_BEYOND = (
    16 << 30
)  # address space: so much is never needed, and a request for more fails instead of the machine
_CASES_OF_A_WORKER = 5000
_COMMANDS = 0.02
# HDF5 has words of its own, for amounts that no computer has and that it asks for at no cost. So asks pyarrow
# for what a compressed buffer claims, "malloc of size": it does not touch it, and its peak is looked at.
_NO_MEMORY = re.compile("can't allocate memory|nable to allocate")


class Campaign:
    """The cases of a seed, and what came of them.

    Args:
        seed: any int.
        kinds: the kinds of file to choose from.
    """

    def __init__(self, seed: int, kinds: list[Kind]) -> None:
        self.seed = seed
        self.kinds = kinds
        self.hostile = [hostile(kind.name, kind.variants[0][kind.target]) for kind in self.kinds]
        self.shares = [kind.share for kind in self.kinds]
        shared = mmap.mmap(-1, 8 * (2 + len(self.kinds) * len(ENDS)))
        numbers = np.frombuffer(shared, np.int64)
        self.current = numbers[:2]  # the case in work and when it began, for the parent of the worker
        self.counts = numbers[2:].reshape(len(self.kinds), len(ENDS))
        self.failures: list[tuple[int, str, str]] = []
        # Where nothing is sealed nothing is read here: libraries with threads do not live on in the workers.
        self.truth = [[_used(kind, x) for x in kind.variants if kind.sealed] for kind in self.kinds]

    def choose(self, case: int) -> tuple[int, int, bytes, bool, bool]:
        """Kind, variant, damaged content, whether by the command, whether checksums were left alone."""
        random = Random(f"{self.seed} {case}")
        k = self._kind(random)
        kind = self.kinds[k]
        variant = random.randrange(len(kind.variants))
        content = kind.variants[variant][kind.target]
        edit = (EDITS | TABLE_EDITS | EXCHANGED_EDITS).get(kind.name)
        action = random.random()
        if self.hostile[k] and action < 0.015:
            content, sealed = random.choice(self.hostile[k]), False
        elif edit and action < 0.5:
            content, sealed = edit(random, content), False
        else:
            other = random.choice(list(random.choice(random.choice(self.kinds).variants).values()))
            content, sealed = blind(random, content, other or b"\0"), kind.sealed
        return k, variant, content, random.random() < _COMMANDS, sealed

    def _kind(self, random: Random) -> int:
        """The number of a case's kind, the first thing that is drawn."""
        return random.choices(range(len(self.kinds)), self.shares)[0]

    def run(self, cases: int, seconds: float) -> int:
        """All cases, or those that the time allows; how many were done."""
        first, until = 0, time.monotonic() + seconds
        while first < cases and time.monotonic() < until:
            known = len(self.failures)
            first = self._worker(first, min(cases, first + _CASES_OF_A_WORKER), until)
            for case, end, text in self.failures[known:]:
                print(f"--seed {self.seed} --case {case}: {end}: {text}", flush=True)
        return first

    def _worker(self, first: int, last: int, until: float) -> int:
        """Cases in a process of their own; the number of the first case that was not done."""
        self.current[:] = first, time.monotonic_ns()
        with tempfile.TemporaryFile() as found:
            hung = self._watch(first, last, until, found.fileno())
            found.seek(0)
            for line in found.read().decode(errors="replace").splitlines():
                case, end, text = line.split("\t", 2)
                self.failures.append((int(case), end, text))
        case = int(self.current[0])
        if case < 0:
            return -case
        k = self._kind(Random(f"{self.seed} {case}"))  # the worker did not come to the end of it
        end = "hang" if hung else "crash"
        self.counts[k, ENDS.index(end)] += 1
        self.failures.append((case, end, self.kinds[k].name))
        return case + 1

    def _watch(self, first: int, last: int, until: float, found: int) -> bool:
        """Start the process and wait for its end; whether it hung."""
        child = os.fork()
        if child == 0:
            try:
                self._work(first, last, until, found)
            except BaseException:
                traceback.print_exc()
                os._exit(70)
            os._exit(0)
        case, began = -1, 0.0
        while not os.waitpid(child, os.WNOHANG)[0]:
            time.sleep(0.01)
            used = time.clock_gettime(~child << 3 | 2)  # Linux's name of the clock of that process
            if int(self.current[0]) != case:
                case, began = int(self.current[0]), used
            elif used - began > SECONDS or time.monotonic_ns() - int(self.current[1]) > 6e9 * SECONDS:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return True
        return False

    def _work(self, first: int, last: int, until: float, found: int) -> None:
        with open(os.devnull, "w") as null:
            os.dup2(null.fileno(), 2)  # the C libraries of image formats complain there
        with tempfile.TemporaryDirectory(dir=_memory_folder()) as name:
            gc.collect()  # waste would make room for what a reader must not ask for,
            gc.freeze()  # also what only a second collection finds
            Path("/proc/self/clear_refs").write_text("5")  # the peak is from now on
            start = _peak()
            folders = [Path(name, f"{k}") for k in range(len(self.kinds))]
            for folder, kind in zip(folders, self.kinds, strict=True):
                _fill(folder, kind.variants[0])
                kind.use(folder / kind.target)
            limit = start + 2 * (_peak() - start) + ALLOWANCE
            address = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE + _BEYOND
            resource.setrlimit(resource.RLIMIT_AS, (address, resource.RLIM_INFINITY))
            for case in range(first, last):
                self.current[:] = case, time.monotonic_ns()
                k, variant, content, command, sealed = self.choose(case)
                kind, folder = self.kinds[k], folders[k]
                files = {**kind.variants[variant], kind.target: content}
                end, text = attempt(kind, folder, files, command, self.truth[k][variant] if sealed else None)
                grown = _peak() > limit
                if grown:
                    end, text = "memory", f"{text}; peak {_peak() >> 20} MiB, limit {limit >> 20} MiB"
                self.counts[k, ENDS.index(end)] += 1
                if end in FAILURES:
                    line = f"{case}\t{end}\t{kind.name}: {' '.join(text.split())}\n"
                    os.write(found, line.encode(errors="backslashreplace")[:2000])
                self.current[0] = -(case + 1)
                if grown or time.monotonic() > until:
                    break  # a peak does not fall again, but in another process


def attempt(kind: Kind, folder: Path, files: dict[str, bytes], command: bool, truth: Any) -> tuple[str, str]:
    """Read one damaged file; its end and what was said."""
    _fill(folder, files, fresh=kind.writes)
    path = folder / kind.target
    if command:
        return _commanded(kind.command(path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = kind.use(path)
    except (ValueError, TrainingDiverged) as error:
        if _out_of_memory(error):
            return "memory", repr(error)
        about_rows = str(error).startswith("X: expected finite values")  # which are numbers all the same
        if kind.names_file and str(folder) not in str(error) and not about_rows:
            return "exception", f"does not name the file: {error!r}"
        return "refused", str(error)
    except BaseException as error:
        if _out_of_memory(error):
            return "memory", repr(error)
        return "exception", f"{error!r} {traceback.format_tb(error.__traceback__)[-1]}"
    if truth is not None and found != truth:
        return "changed", "another content was read, without a word"
    return "read", ""


def _commanded(arguments: list[str]) -> tuple[str, str]:
    out, complaint = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(complaint):
            status = command_line(arguments)
    except BaseException as error:
        return "exception", f"the command raised {error!r} {traceback.format_tb(error.__traceback__)[-1]}"
    lines = [
        line for line in complaint.getvalue().splitlines() if not line.startswith(("warning:", "the run"))
    ]
    if _NO_MEMORY.search(complaint.getvalue()):
        return "memory", complaint.getvalue()
    if status == 0 and not lines:
        return "read", ""
    if status in (1, 2) and len(lines) == 1 and lines[0].startswith("error: "):
        return "refused", lines[0]
    return "exception", f"the command ended with {status} and said {lines[:3]}"


def _fill(folder: Path, files: dict[str, bytes], fresh: bool = False) -> None:
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _used(kind: Kind, files: dict[str, bytes]) -> Any:
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as name:
        _fill(Path(name), files)
        return kind.use(Path(name, kind.target))


def _memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if type(error).__name__ == "ArrowMemoryError":
            return False
        if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns damaged", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--cases", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds whose name matches this")
    parser.add_argument("--case", type=int, help="repeat one case and leave it in ./damaged-case")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    campaign = Campaign(given.seed, [kind for kind in kinds() if re.search(given.only, kind.name)])
    if given.case is not None:
        k, variant, content, command, sealed = campaign.choose(given.case)
        kind = campaign.kinds[k]
        files = {**kind.variants[variant], kind.target: content}
        truth = campaign.truth[k][variant] if sealed else None
        print(kind.name, *attempt(kind, Path("damaged-case"), files, command, truth), sep="\n")
        return 0
    started = time.monotonic()
    done = campaign.run(given.cases, given.seconds)
    print(f"{'kind':24}" + "".join(f"{end:>10}" for end in ENDS))
    for kind, counts in zip(campaign.kinds, campaign.counts, strict=True):
        print(f"{kind.name:24}" + "".join(f"{count:10}" for count in counts))
    print(f"{'all':24}" + "".join(f"{count:10}" for count in campaign.counts.sum(0)))
    print(f"{done} cases in {time.monotonic() - started:.0f} s, {len(campaign.failures)} failures")
    return 1 if campaign.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
