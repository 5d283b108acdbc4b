"""All benchmarks, and the contestants that each has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import final

from benchmarks import in_turn, memory, processes
from benchmarks.annealing import annealing
from benchmarks.coupled import coupled_large, coupled_small
from benchmarks.deep import mean_field_pcd
from benchmarks.gaussian import gaussian_cd
from benchmarks.gibbs_langevin import gibbs_langevin_large, gibbs_langevin_small
from benchmarks.local_modes import ucd_lmi_large, ucd_lmi_small
from benchmarks.mean_field import tap
from benchmarks.pcd import pcd_1_large, pcd_1_small, pcd_10
from benchmarks.race import Table
from benchmarks.sparse_sweeps import CASES as SPARSE_CASES, sparse_sweeps
from benchmarks.targets import HARMONIUM, ONE_THREAD, PLAIN, PRODUCTS, RBMS, SKLEARN


@final
@dataclass(frozen=True)
class Benchmark:
    """A benchmark.

    Attributes:
        run: makes its table; quick says that few rounds do.
        contestants: names of the rows, which targets refer to.
    """

    run: Callable[[bool], Table]
    contestants: tuple[str, ...]


def _each(cases: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{case}: {name}" for case in cases for name in names)


_PCD_1 = (HARMONIUM, SKLEARN, RBMS, PLAIN, PRODUCTS)
_LANGEVIN = (*(f"{HARMONIUM}, {correction}" for correction in ("exact", "none", "metropolis")), PLAIN)

BENCHMARKS = {
    "pcd-1-small": Benchmark(pcd_1_small, _PCD_1),
    "pcd-1-large": Benchmark(pcd_1_large, (*_PCD_1, ONE_THREAD)),
    "pcd-10": Benchmark(pcd_10, (HARMONIUM, RBMS, PLAIN, PRODUCTS)),
    "mean-field-pcd": Benchmark(mean_field_pcd, (HARMONIUM, PLAIN)),
    "gaussian-cd": Benchmark(gaussian_cd, (HARMONIUM, PLAIN)),
    "ais": Benchmark(annealing, (HARMONIUM, RBMS, PRODUCTS)),
    "gibbs-langevin-small": Benchmark(gibbs_langevin_small, _LANGEVIN),
    "gibbs-langevin-large": Benchmark(gibbs_langevin_large, _LANGEVIN),
    "tap": Benchmark(tap, (HARMONIUM, PRODUCTS)),
    "ucd-small": Benchmark(coupled_small, (HARMONIUM, PLAIN)),
    "ucd-large": Benchmark(coupled_large, (HARMONIUM, PLAIN)),
    "ucd-lmi-small": Benchmark(ucd_lmi_small, (HARMONIUM, PLAIN)),
    "ucd-lmi-large": Benchmark(ucd_lmi_large, (HARMONIUM, PLAIN, ONE_THREAD)),
    "sparse-sweeps": Benchmark(sparse_sweeps, SPARSE_CASES),
    "sweeps-in-turn": Benchmark(in_turn.sweeps_in_turn, _each(in_turn.CASES, in_turn.WAYS)),
    "two-processes": Benchmark(processes.two_processes, _each(processes.CASES, processes.WAYS)),
    "memory": Benchmark(memory.memory, tuple(map(str, memory.JOBS))),
}
