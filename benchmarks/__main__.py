"""``python -m benchmarks``: tables of ratios, measured side by side in one process."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # read while torch is imported

import torch
from threadpoolctl import threadpool_limits

from benchmarks import system
from benchmarks.annealing import annealing
from benchmarks.coupled import coupled_large, coupled_small
from benchmarks.gibbs_langevin import gibbs_langevin_large, gibbs_langevin_small
from benchmarks.local_modes import ucd_lmi_large, ucd_lmi_small
from benchmarks.mean_field import tap
from benchmarks.memory import memory
from benchmarks.overhead import overhead
from benchmarks.pcd import pcd_1_large, pcd_1_small, pcd_10
from benchmarks.primitives import noise, products
from benchmarks.race import CLOCKS, Table, set_clock
from benchmarks.sparse_sweeps import sparse_sweeps

BENCHMARKS: dict[str, Callable[[bool], Table]] = {
    "pcd-1-small": pcd_1_small,
    "pcd-1-large": pcd_1_large,
    "pcd-10": pcd_10,
    "ais": annealing,
    "gibbs-langevin-small": gibbs_langevin_small,
    "gibbs-langevin-large": gibbs_langevin_large,
    "tap": tap,
    "ucd-small": coupled_small,
    "ucd-large": coupled_large,
    "ucd-lmi-small": ucd_lmi_small,
    "ucd-lmi-large": ucd_lmi_large,
    "sparse-sweeps": sparse_sweeps,
    "overhead": overhead,
    "noise": noise,
    "products": products,
    "memory": memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="one benchmark; may be repeated")
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that it runs")
    parser.add_argument("--threads", type=int, default=1, help="of every library alike (default 1)")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu: CPU time of the process, which on a busy machine and with one thread is what counts",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to a file")
    arguments = parser.parse_args()

    if arguments.clock == "cpu" and arguments.threads != 1:
        parser.error("--clock cpu adds up all threads: it goes with --threads 1")
    if arguments.threads < 1:
        parser.error(f"--threads: expected at least 1, received {arguments.threads}")
    set_clock(arguments.clock)
    torch.set_num_threads(arguments.threads)
    with threadpool_limits(arguments.threads):
        description = system.describe()
        print(system.text(description), flush=True)
        print(f"{arguments.clock} time; ÷ is the median over rounds of the ratio in one round", flush=True)
        results = {}
        for name in arguments.only or BENCHMARKS:
            table = BENCHMARKS[name](arguments.quick)
            results[name] = {"title": table.title, "results": table.data}
            print(f"\n{table}", flush=True)
    if arguments.json:
        content = {
            "machine": description,
            "clock": arguments.clock,
            "quick": arguments.quick,
            "benchmarks": results,
        }
        arguments.json.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
