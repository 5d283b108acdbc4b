"""What the library should reach on each processor, and figures of programs that are not run here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final

from benchmarks.race import Row, number

INTEL, AMD = "Intel", "AMD"

HARMONIUM = "harmonium"
ONE_THREAD = "harmonium, one thread"
ONE_PROCESS = "one process"
PLAIN = "plain torch"
SKLEARN = "scikit-learn, fit"
RBMS = "rbms 0.5.0"
PRODUCTS = "its products alone, float32"


@final
@dataclass(frozen=True)
class Reference:
    """What another program took for the same work, measured apart from these benchmarks.

    Attributes:
        program: what it is.
        benchmark: where it belongs.
        ms: milliseconds for the benchmark's unit of work.
        conditions: under which it was measured.
    """

    program: str
    benchmark: str
    ms: float
    conditions: str


_UCD = "C++ program of Qiu, Zhang & Wang (2020)"
_GRBM = "torch program of Liao et al. (2022)"
_LMI = "program of Taniguchi et al. (2023)"

REFERENCES = {
    each.benchmark: each
    for each in (
        Reference(_UCD, "ucd-small", 2.3, "one thread; mean meeting time 2.2; processor not noted"),
        Reference(_UCD, "ucd-large", 2000, "one thread; mean meeting time about 10; processor not noted"),
        Reference(_GRBM, "gibbs-langevin-small", 85, "one thread; processor not noted"),
        Reference(_GRBM, "gibbs-langevin-large", 1050, "about 105 s for 100 sweeps; processor not noted"),
        Reference(_LMI, "ucd-lmi-small", 107, "one thread of an AMD EPYC, idle"),
        Reference(_LMI, "ucd-lmi-large", 2460, "one thread of an AMD EPYC, idle"),
    )
}


@final
@dataclass(frozen=True)
class Target:
    """What a row of a benchmark should be.

    Attributes:
        benchmark: its name.
        contestant: the row.
        bound: what is wanted; where processors differ, for each vendor, and none for others.
        measure: of what: "ratio": of the row, at least; "reference": the time of the benchmark's reference
            over the row's, at least; "ms": the row's median, at most.
    """

    benchmark: str
    contestant: str
    bound: float | Mapping[str, float]
    measure: Literal["ratio", "reference", "ms"] = "ratio"

    def on(self, vendor: str) -> float | None:
        """The bound on a vendor's processors."""
        return self.bound.get(vendor) if isinstance(self.bound, Mapping) else self.bound

    def value(self, row: Row) -> float | None:
        """What is held against the bound; None where the row was not measured."""
        if self.measure == "ratio":
            return row.ratio
        if self.measure == "ms" or row.median_ms is None:
            return row.median_ms
        return REFERENCES[self.benchmark].ms / row.median_ms

    def verdict(self, row: Row, vendor: str) -> Verdict:
        """How the row stands, on a processor for which there is a bound."""
        bound, value = self.on(vendor), self.value(row)
        assert bound is not None
        met = None if value is None else value <= bound if self.measure == "ms" else value >= bound
        wanted = {
            "ratio": f"≥ {bound:g}",
            "reference": f"≥ {bound:g}× the reference",
            "ms": f"≤ {bound:g} ms",
        }
        return Verdict(number(value), wanted[self.measure], met)


@final
@dataclass(frozen=True)
class Verdict:
    """What was measured, what was wanted, and whether that is met; None where nothing was measured."""

    value: str
    wanted: str
    met: bool | None


@final
@dataclass(frozen=True)
class Speedup:
    """How many times as fast several threads should be as one."""

    benchmark: str
    threads: int
    bound: float


TARGETS = (
    Target("pcd-1-small", SKLEARN, {INTEL: 1.7, AMD: 2.0}),
    Target("pcd-1-small", RBMS, {INTEL: 2.6, AMD: 3.0}),
    Target("pcd-1-small", PLAIN, {INTEL: 1.2, AMD: 1.8}),
    Target("pcd-1-large", SKLEARN, {INTEL: 2.5, AMD: 2.3}),
    Target("pcd-1-large", RBMS, 3.8),
    Target("pcd-10", RBMS, 4.0),
    Target("ais", RBMS, 6.0),
    Target("ucd-small", HARMONIUM, 1.0, "reference"),
    Target("ucd-large", HARMONIUM, 300, "ms"),
    *(
        Target("gibbs-langevin-large", f"{HARMONIUM}, {correction}", 10.0, "reference")
        for correction in ("exact", "none", "metropolis")
    ),
    # The reference was measured on one vendor's processor: on another it says nothing.
    Target("ucd-lmi-small", HARMONIUM, {AMD: 3.0}, "reference"),
    Target("ucd-lmi-large", HARMONIUM, {AMD: 3.0}, "reference"),
    # No update is slower than the plain torch loop beside it, whatever the processor.
    *(
        Target(benchmark, PLAIN, 1.0)
        for benchmark in (
            *("pcd-1-small", "pcd-1-large", "pcd-10", "mean-field-pcd", "gaussian-cd"),
            *("gibbs-langevin-small", "gibbs-langevin-large"),
            *("ucd-small", "ucd-large", "ucd-lmi-small", "ucd-lmi-large"),
        )
    ),
    Target("tap", PRODUCTS, 0.67),
    # Two processes take at most 0.65 of the time of one.
    Target("two-processes", f"784 × 500: {ONE_PROCESS}", 1.54),
    Target("two-processes", f"2000 × 2000: {ONE_PROCESS}", 1.54),
    Target("sparse-sweeps", "400 Spin, random neighbours, at most 6", 8.0, "ms"),
    Target("sparse-sweeps", "400 Bernoulli, the same", 8.0, "ms"),
    Target("sparse-sweeps", "400 Spin, 20 × 20 lattice", 8.0, "ms"),
    Target("sweeps-in-turn", f"136 Categorical of 5 states, all joined: {HARMONIUM}", 50.0, "ms"),
    Target("sweeps-in-turn", f"96 Categorical of 21 states, all joined: {HARMONIUM}", 150.0, "ms"),
    *(
        Target("memory", job, 1.0)
        for job in (
            "PCD-1, batch 100, 100 chains",
            "PCD-1, batch 1000, 1000 chains",
            "PCD-10, batch 100, 1000 chains",
            "PCD-30, batch 100, 100 chains",
            "PCD-300, batch 100, 100 chains",
            "AIS, 100 chains, 30 temperatures",
            "AIS, 100 chains, 300 temperatures",
            "AIS, 1000 chains, 30 temperatures",
        )
    ),
)

SPEEDUPS = (
    Speedup("pcd-1-large", 2, 1.7),
    Speedup("ucd-lmi-large", 2, 1.7),
)


def of(benchmark: str, vendor: str) -> list[Target]:
    """A benchmark's targets on a vendor's processors; where a row has several of a kind, the highest.

    Several bounds of a kind are all lower bounds: one in milliseconds stands alone.
    """
    found: dict[tuple[str, str], Target] = {}
    for target in TARGETS:
        bound = target.on(vendor)
        if target.benchmark == benchmark and bound is not None:
            key = (target.contestant, target.measure)
            before = found.get(key)
            if before is None or bound > (before.on(vendor) or 0):
                found[key] = target
    return list(found.values())
