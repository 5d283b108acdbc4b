"""How much memory training and annealing take, beside PERFORMANCE's bound."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch

import harmonium as hm
from benchmarks import peers
from benchmarks.race import Row, Table
from harmonium import backends
from harmonium.likelihood import ais

VISIBLE, HIDDEN = 784, 500
SMALL = (64, 64, 128)  # visible, hidden, batch: enough for every library to load what it needs


class Job(NamedTuple):
    """What is run: PCD-k updates of ``hm.train``, or AIS where k is 0."""

    batch: int
    chains: int
    k: int = 0
    temperatures: int = 0

    def __str__(self) -> str:
        if self.k:
            return f"PCD-{self.k}, batch {self.batch}, {self.chains} chains"
        return f"AIS, {self.chains} chains, {self.temperatures} temperatures"

    def bound(self) -> int:
        """Bytes: (batch + chains) × (units of all layers) × 4, plus two copies of the parameters."""
        units = VISIBLE + HIDDEN
        return (self.batch + self.chains) * units * 4 + 2 * 4 * (VISIBLE * HIDDEN + units)

    def prepared(self, visible: int = VISIBLE, hidden: int = HIDDEN) -> Callable[[], object]:
        """The work, with its machine and data already there."""
        machine = peers.machine(visible, hidden)
        X = peers.rows(2 * self.batch, visible)
        if not self.k:
            return lambda: ais(machine, self.chains, self.temperatures, data=X[: self.batch])
        rule = hm.rules.pcd(self.k, self.chains)
        return lambda: hm.train(machine, X, rule=rule, updates=3, batch_size=self.batch)


JOBS = (
    *(Job(100, 100, 1), Job(1000, 1000, 1), Job(100, 1000, 10), Job(100, 100, 30), Job(100, 100, 300)),
    *(Job(100, 100, 0, 30), Job(100, 100, 0, 300), Job(1000, 1000, 0, 30)),
)


def memory(quick: bool) -> Table:
    table = Table(
        "memory",
        f"Memory beside the machine and its data, {VISIBLE} × {HIDDEN}, MB",
        "bound ÷ largest",
        notes=[
            "bound: (batch + chains) × units × 4 bytes + 2 × parameters, of any one array; AIS: data rows",
            "all tensors: the most that torch's allocator held at one time beyond the start",
            "RSS: how far a fresh process grew after a small warm-up; NumPy, oneDNN and fragmentation "
            "included",
        ],
    )
    for job in JOBS:
        if quick and max(job.k, job.temperatures) > 100:
            continue
        largest, peak = _tensors(job)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
            resident = fresh.submit(_resident_growth, job, torch.get_num_threads()).result()
        figures = {"bound": job.bound(), "largest tensor": largest, "all tensors": peak}
        if resident is not None:
            figures["RSS"] = resident
        megabytes = {name: each / 1e6 for name, each in figures.items()}
        table.rows.append(Row(str(job), ratio=job.bound() / largest, figures=megabytes))
    return table


def _tensors(job: Job) -> tuple[int, int]:
    """The largest allocation of torch, and the most that was allocated at once."""
    work = job.prepared()
    gc.collect()
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, profile_memory=True, acc_events=True) as profile:
        work()
    events = [each for each in profile.profiler.kineto_results.events() if each.name() == "[memory]"]
    sizes = [each.nbytes() for each in sorted(events, key=lambda each: each.start_ns())]
    return max(sizes), max(accumulate(sizes))


def _resident_growth(job: Job, threads: int) -> int | None:
    """Peak resident bytes above those before the work; None where the system does not tell."""
    torch.set_num_threads(threads)
    backends.get_backend()  # loads what compiles
    visible, hidden, batch = SMALL
    job._replace(batch=batch, chains=batch, k=min(job.k, 2), temperatures=min(job.temperatures, 2)).prepared(
        visible, hidden
    )()
    work = job.prepared()
    gc.collect()
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        before = _status("VmRSS")
        work()
        return _status("VmHWM") - before
    except OSError:
        return None


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))
