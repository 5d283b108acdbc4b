"""What processes cost and gain: the formulas of docs/distributed.md, checked on a CPU and carried to GPUs.

    python experiments/cost_model.py               # the tables: what the formulas say
    python experiments/cost_model.py --measure     # one and two processes on this computer, beside them
    python experiments/cost_model.py --race        # by the clock, at 784 × 1000; wants an idle computer

The measurement takes from one process what an update costs in all, t, and what stays with few chains, c. Two
processes should take c + (t - c) / 2 and a sum. All in CPU seconds, as the processors may be shared; wall
seconds stand beside them and mean something on an idle computer only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log, log2
from typing import Any

N, M = 784, 500
FLOAT = 4  # bytes


@dataclass(frozen=True)
class Computer:
    """What the formulas ask of a computer; every number of the two GPUs below is assumed, none was measured.

    Attributes:
        flops: multiplications and additions a second of one process, in the products of sampling.
        inside: bytes a second that a process sends and receives at once, among ``near`` neighbours.
        outside: the same among more of them.
        near: how many processes share the faster links.
        latency: seconds of a message.
        sweep: seconds that a sweep takes beside its products, whatever its rows.
        memory: bytes a second from and to memory.
    """

    flops: float
    inside: float
    outside: float
    near: int
    latency: float
    sweep: float
    memory: float

    def bandwidth(self, processes: int) -> float:
        return self.inside if processes <= self.near else self.outside


H100 = Computer(
    flops=2e14, inside=2e11, outside=4e10, near=8, latency=2e-5, sweep=1e-4, memory=2e12
)  # TF32 at 40 % of its peak; NVLink within eight, 400 Gb/s between them
CPU = Computer(flops=8e10, inside=2e9, outside=1e9, near=2, latency=1e-4, sweep=3e-4, memory=1e10)


@dataclass(frozen=True)
class Work:
    """A machine with one hidden layer, and what an update does to it.

    Attributes:
        n: visible units.
        m: hidden units.
        rows: of a batch.
        chains: of the free phase; pairs of ``ucd``, runs of ``ais``.
        sweeps: an update; of a pair on average, a coupled one twice; temperatures.
        tail: sweeps after which the share of pairs that have not met falls by e.
        columns: of processes that share the hidden units.
    """

    n: int
    m: int
    rows: int
    chains: int
    sweeps: float
    tail: float = 0.0
    columns: int = 1


def pcd(on: Computer, work: Work, processes: int) -> tuple[float, float]:
    """Seconds of an update that it would take if nothing had to be sent, and those of sending."""
    ranks = processes // work.columns
    products = 2 * work.rows + (2 * work.sweeps + 1) * work.chains
    own = work.n * work.m / work.columns  # parameters of a process
    compute = 2 * own * products / ranks / on.flops + work.sweeps * on.sweep
    compute += 10 * FLOAT * own / on.memory  # the step: about ten passes over the parameters
    return compute, summed(on, own, ranks, processes) + _fields(on, work, ranks)


def ucd(on: Computer, work: Work, processes: int) -> tuple[float, float]:
    """As ``pcd``. Pairs that have met make room; a process waits for its last, all for the last of all."""
    own, pairs = work.n * work.m, work.chains / processes
    longest = work.sweeps / 2 + work.tail * log(max(pairs, 1.0))
    compute = 2 * own * (2 * work.rows / processes + 2 * (work.sweeps + 2) * pairs) / on.flops
    compute += longest * on.sweep + 10 * FLOAT * own / on.memory
    return compute, summed(on, own, processes, processes) + work.tail * log(processes) * on.sweep


def ais(on: Computer, work: Work, processes: int) -> tuple[float, float]:
    """Seconds of the whole estimate, forwards and backwards; only results are sent."""
    runs = work.chains / processes
    compute = 2 * (work.sweeps * (4 * work.n * work.m * runs / on.flops + on.sweep))
    if processes == 1:
        return compute, 0.0
    results = work.chains * FLOAT * (work.n + work.m + 2)
    return compute, 2 * (results / on.bandwidth(processes) + on.latency * log2(processes))


def summed(on: Computer, parameters: float, ranks: int, processes: int) -> float:
    """A reduction: everyone gives a part to everyone, adds its own, and gives that to all."""
    if ranks == 1:
        return 0.0
    share = (ranks - 1) / ranks
    return 2 * FLOAT * parameters * share / on.bandwidth(processes) + 5 * on.latency * log2(ranks)


def _fields(on: Computer, work: Work, ranks: int) -> float:
    """Visible fields that the columns of a row add, once a sweep."""
    if work.columns == 1:
        return 0.0
    numbers = work.chains / ranks * work.n * (work.columns - 1) / work.columns
    each = 2 * FLOAT * numbers / on.bandwidth(work.columns) + 2 * on.latency * log2(work.columns)
    return work.sweeps * each


CASES: list[tuple[str, Any, Work]] = [
    ("PCD-10, 784 × 500, 1,000 chains", pcd, Work(784, 500, 1000, 1000, 10)),
    ("PCD-10, 784 × 4,096, 8,192 chains", pcd, Work(784, 4096, 8192, 8192, 10)),
    ("PCD-100, 784 × 4,096, 65,536 chains", pcd, Work(784, 4096, 8192, 65536, 100)),
    ("UCD, 784 × 500, 1,024 pairs, 200 sweeps", ucd, Work(784, 500, 1024, 1024, 200, 60)),
    ("AIS, 784 × 500, 1,024 runs, 10,000 β", ais, Work(784, 500, 0, 1024, 10_000)),
    ("PCD-10, 10⁵ × 10⁴, 8,192 chains", pcd, Work(10**5, 10**4, 8192, 8192, 10)),
    ("the same, 8 columns", pcd, Work(10**5, 10**4, 8192, 8192, 10, columns=8)),
]


def table(on: Computer, numbers: tuple[int, ...]) -> str:
    """Seconds of one process, and of others: how many times as fast, and the share of sending."""
    lines = ["| | 1 |" + "".join(f" {p:,} |" for p in numbers), "|---|" + "---|" * (1 + len(numbers))]
    for name, model, work in CASES:
        alone = sum(model(on, replace(work, columns=1), 1))
        cells = []
        for processes in numbers:
            if processes < work.columns:
                cells.append("")
                continue
            compute, sending = model(on, work, processes)
            both = compute + sending
            cells.append(f"{alone / both:,.1f} × ({sending / both:.0%})")
        lines.append(f"| {name} | {alone:.2g} s | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def worth(on: Computer, work: Work) -> float:
    """Processes beyond which half of an update of PCD is spent on sending."""
    products = 2 * work.rows + (2 * work.sweeps + 1) * work.chains
    return products * on.bandwidth(1 << 30) / (4 * on.flops)


# Measured --------------------------------------------------------------------------------------------------


def measured(chains: int) -> dict[str, list[float]]:
    """CPU and wall seconds of an update (of AIS: of the estimate) in this process of several."""
    import torch

    import harmonium as hm

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # few temperatures and chains are enough to be timed
    found = {}
    X = (torch.rand(4 * chains, N, generator=torch.Generator().manual_seed(0)) < 0.2).float()
    small = X[:, :64].contiguous()
    times: list[tuple[float, float]] = []

    def note() -> None:
        times.append((time.process_time(), time.perf_counter()))

    def machine(n: int, m: int) -> hm.BoltzmannMachine:
        made = hm.BoltzmannMachine([hm.Bernoulli(n), hm.Bernoulli(m)])
        hm.machine.normal_(made, 0.01, torch.Generator().manual_seed(1))
        return made

    def updates(rule: Any, rows: Any, made: Any, count: int) -> list[float]:
        times.clear()
        settings = {"batch_size": chains, "updates": count, "learning_rate": 0.0, "progress": False}
        hm.train(made, rows, rule=rule, callbacks=[lambda _: note()], distributed="auto", **settings).whole()
        spent = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(times[2:])]
        return [statistics.median(each) for each in zip(*spent, strict=True)] if spent else [0.0, 0.0]

    with hm.distributed.init_process_group("cpu"):
        found["pcd"] = updates(hm.rules.pcd(10, chains), X, machine(N, M), 18)
        found["ucd"] = updates(hm.rules.ucd(k=5, chains=chains), small, machine(64, 128), 12)
        made = machine(N, M)
        note()
        hm.likelihood.ais(made, chains, 30, data=X[:200], distributed="auto")
        note()
        found["ais"] = [b - a for a, b in zip(times[-2], times[-1], strict=True)]
        several = int(os.environ["WORLD_SIZE"]) > 1
        group = hm.distributed.Group(torch.distributed.group.WORLD if several else None)
        statistic = torch.randn(N * M + N + M)
        group.all_reduce_sum([statistic])
        note()
        for _ in range(20):
            group.all_reduce_sum([statistic])
        note()
        found["sum"] = [(b - a) / 20 for a, b in zip(times[-2], times[-1], strict=True)]
    return found


def compare(chains: int) -> None:
    runs = {}
    for processes, number in ((1, chains), (1, 8), (2, chains)):
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
        command += [__file__, "--work", str(number)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        runs[processes, number] = json.loads(done.stdout.splitlines()[0])
    one, two = runs[1, chains], runs[2, chains]
    print("| CPU seconds | 1 process | stays | the formula for 2 | 2 processes | wall, 1 and 2 |")
    print("|---|---|---|---|---|---|")
    for name in ("pcd", "ucd", "ais"):
        stays = runs[1, 8][name][0]
        expected = (one[name][0] - stays) / 2 + stays + (0 if name == "ais" else two["sum"][0])
        cells = [one[name][0], stays, expected, two[name][0]]
        walls = f"{one[name][1]:.3f}, {two[name][1]:.3f}"
        print(f"| {name} | " + " | ".join(f"{x:.3f}" for x in cells) + f" | {walls} |")
    print(f"a sum of {N * M + N + M:,} numbers in 2: {two['sum'][0]:.4f} CPU s, {two['sum'][1]:.4f} s")


def update(several: bool) -> float:
    """The median wall seconds of an update of PCD-5, 784 × 1000, 1,000 chains, in this process of several."""
    import torch

    import harmonium as hm

    torch.set_num_threads(1)
    X = (torch.rand(4000, N, generator=torch.Generator().manual_seed(0)) < 0.15).float()
    made = hm.BoltzmannMachine([hm.Bernoulli(N), hm.Bernoulli(1000)], seed=0)
    times: list[float] = []
    with hm.distributed.init_process_group("cpu") if several else nullcontext():
        hm.train(
            made, X, rule=hm.rules.pcd(5, 1000), updates=45, batch_size=1000, learning_rate=0.02, seed=0,
            callbacks=[lambda _: times.append(time.perf_counter())], progress=False,
            distributed="auto" if several else None,
        ).whole()  # fmt: skip
    spent = [b - a for a, b in pairwise(times[5:])]
    return statistics.median(spent) if spent else 0.0  # callbacks belong to the process that leads


def race(rounds: int) -> None:
    ways = {"1 process": 1, "2 processes": 2}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, processes in ways.items():
            alone = [sys.executable]
            several = [*alone, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
            command = [*(several if processes > 1 else alone), __file__, "--update", str(processes)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            seconds[name].append(float(done.stdout.splitlines()[0]))
    print("| | seconds an update, median | times as fast as one, in each round |")
    print("|---|---|---|")
    for name, found in seconds.items():
        gains = [f"{one / each:.2f}" for one, each in zip(seconds["1 process"], found, strict=True)]
        print(f"| {name} | {statistics.median(found):.3f} | {', '.join(gains)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--chains", type=int, default=1000)
    parser.add_argument("--race", action="store_true")
    parser.add_argument("--rounds", type=int, default=5, help="of the race")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--update", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        found = measured(chosen.work)
        if os.environ["RANK"] == "0":
            print(json.dumps(found))
    elif chosen.update is not None:
        found = update(chosen.update > 1)
        if os.environ.get("RANK", "0") == "0":
            print(found)
    elif chosen.race:
        race(chosen.rounds)
    elif chosen.measure:
        compare(chosen.chains)
    else:
        print("GPUs (assumed: see the code)\n\n" + table(H100, (2, 8, 64, 1024)))
        print("\nCPU processes\n\n" + table(CPU, (2, 8, 64)))
        for name, model, work in CASES:
            if model is pcd:
                print(f"\n{name}: half of the time is sending from {worth(H100, work):,.0f} GPUs on", end="")
        print()


if __name__ == "__main__":
    main()
