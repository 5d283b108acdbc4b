"""The benchmarks' records, targets and page; nothing is timed here."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")
sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks import (
    page,
    peers,
    quality,
    quality_contestants as contestants,
    quality_records,
    quality_sets,
    records,
    system,
    targets,
)
from benchmarks.race import Row, Table
from benchmarks.suite import BENCHMARKS

ROOT = Path(__file__).parents[2]

CPUINFO = """\
processor	: 0
vendor_id	: {vendor}
cpu family	: {family}
model		: {model}
model name	: {name}
flags		: fpu avx2 avx512f avx512_vnni {more}

processor	: 1
vendor_id	: {vendor}
"""
EPYC = system.processor(CPUINFO.format(vendor="AuthenticAMD", family=25, model=17, name="AMD EPYC", more=""))
XEON = system.processor(
    CPUINFO.format(
        vendor="GenuineIntel",
        family=6,
        model=143,
        name="Intel(R) Xeon(R) Processor @ 2.70GHz",
        more="amx_int8",
    )
)


def record(processor: system.Processor, milliseconds: float, threads: int = 1) -> records.Record:
    """One with two benchmarks, measured in one run."""
    made = records.Record(processor, 2, threads)
    rows = [
        Row("harmonium", milliseconds, (milliseconds, milliseconds), milliseconds, 3, 1.0),
        Row("plain torch", 3.0, (3.0, 3.0), 3.0, 3, 3.0 / milliseconds),
    ]
    tables = [Table("pcd-1-small", "PCD-1", rows=rows), Table("ucd-large", "UCD", rows=rows[:1])]
    made.add(run("2026-01-01T00:00:00Z"), tables)
    return made


def run(date: str) -> dict[str, object]:
    return {
        "date": date,
        "commit": "0000000",
        "versions": {"torch": "2"},
        "products": "torch:256",
        "gflops": {"torch": 100},
        "load": [0.0, 1.0],
        "seconds": 300,
        "quick": False,
        "clock": "wall",
    }


def test_the_page_is_made_of_the_records_of_the_repository() -> None:
    """Else: python -m benchmarks.page"""
    assert page.PAGE == ROOT / "docs" / "benchmarks.md"
    assert page.PAGE.read_text("utf-8") == page.text(records.read_all(), quality_records.read_all())


def test_records_of_the_repository_are_of_whole_runs_and_named_after_their_processor() -> None:
    for path in records.FOLDER.glob("*.json"):
        found = records.read(path)
        assert path.name == found.file_name
        assert found.tables.keys() <= BENCHMARKS.keys()
        assert all(not run["quick"] and run["clock"] == "wall" for run in found.runs.values())


def test_every_target_is_of_a_contestant_that_there_is() -> None:
    unknown = [
        (target.benchmark, target.contestant)
        for target in targets.TARGETS
        if target.benchmark not in BENCHMARKS
        or target.contestant not in BENCHMARKS[target.benchmark].contestants
    ]
    assert unknown == []
    assert all(targets.ONE_THREAD in BENCHMARKS[each.benchmark].contestants for each in targets.SPEEDUPS)
    assert targets.REFERENCES.keys() <= BENCHMARKS.keys()
    assert all(
        target.benchmark in targets.REFERENCES for target in targets.TARGETS if target.measure == "reference"
    )


@pytest.mark.parametrize("vendor", ["Intel", "AMD", "another"])
def test_no_plain_loop_may_be_the_faster_one(vendor: str) -> None:
    beside = [name for name, each in BENCHMARKS.items() if targets.PLAIN in each.contestants]
    bounds = {
        name: [each.on(vendor) for each in targets.of(name, vendor) if each.contestant == targets.PLAIN]
        for name in beside
    }
    assert len(beside) > 8
    assert {name for name, found in bounds.items() if not found or found[0] < 1} == set()


@pytest.mark.parametrize(
    ("target", "row", "met", "value"),
    [
        (targets.Target("pcd-1-small", "x", 2.0), Row("x", ratio=1.99), False, "1.99"),
        (targets.Target("pcd-1-small", "x", 2.0), Row("x", ratio=2.0), True, "2.00"),
        (targets.Target("ucd-large", "x", 300, "ms"), Row("x", median_ms=301.0), False, "301"),
        (targets.Target("ucd-lmi-small", "x", 3.0, "reference"), Row("x", median_ms=20.0), True, "5.35"),
        (targets.Target("ucd-lmi-small", "x", 3.0, "reference"), Row("x"), None, ""),
    ],
)
def test_verdicts(target: targets.Target, row: Row, met: bool | None, value: str) -> None:
    verdict = target.verdict(row, "AMD")
    assert (verdict.met, verdict.value) == (met, value)


def test_processors_are_told_apart_by_their_file_names() -> None:
    assert (EPYC.vendor, EPYC.slug) == ("AMD", "amd-epyc-family-25-model-17-avx512-vnni")
    assert (XEON.vendor, XEON.slug) == ("Intel", "intel-xeon-family-6-model-143-avx512-vnni-amx-int8")
    assert system.processor("").slug  # a system that says nothing


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = record(EPYC, 2.0)
    path = written.write(tmp_path)
    assert path.name == "amd-epyc-family-25-model-17-avx512-vnni-1-thread.json"
    assert records.read(path).write(tmp_path / "again").read_bytes() == path.read_bytes()
    assert len(path.read_text("utf-8").splitlines()) < 60  # a line a row
    rows = json.loads(path.read_text("utf-8"))["benchmarks"]["pcd-1-small"]["rows"]
    assert rows[1]["targets"] == [{"target": "≥ 1.8", "met": False}]


def test_some_benchmarks_are_put_into_a_record_and_the_others_stay(tmp_path: Path) -> None:
    kept = records.read(record(EPYC, 2.0).write(tmp_path))
    new = Table("ucd-large", "UCD", rows=[Row("harmonium", 7.0, (7.0, 7.0), 7.0, 3, 1.0)])
    kept.add(run("2026-02-02T00:00:00Z"), [new])
    found = records.read(kept.write(tmp_path))
    assert found.tables["ucd-large"].rows[0].median_ms == 7.0
    assert found.tables["pcd-1-small"].rows[0].median_ms == 2.0
    assert list(found.runs) == ["2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"]
    found.add(run("2026-03-03T00:00:00Z"), list(found.tables.values()))
    assert list(found.runs) == ["2026-03-03T00:00:00Z"]  # of the others nothing is left


def test_a_record_of_another_processor_is_not_overwritten(tmp_path: Path) -> None:
    before = record(EPYC, 2.0)
    before.write(tmp_path)
    other = replace(EPYC, flags=(*EPYC.flags, "avx512_bf16"))
    assert other.slug == EPYC.slug
    with pytest.raises(ValueError, match=r"amd-epyc-family-25-model-17-avx512-vnni-1-thread\.json"):
        records.kept(tmp_path, records.Record(other, 2, 1))
    assert records.kept(tmp_path, records.Record(EPYC, 2, 1)) is not None
    assert records.kept(tmp_path, records.Record(EPYC, 2, 2)) is None
    assert records.kept(tmp_path, records.Record(XEON, 2, 1)) is None


def test_scikit_learn_learns_from_as_many_batches_as_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows there are: of 16 batches of 1,000 it once had ten, or batches of fewer columns."""
    seen: list[tuple[int, ...]] = []

    class Noted:
        def __init__(self, *_: object, **__: object) -> None: ...
        def set_params(self, n_iter: int) -> Noted:
            return self

        def fit(self, data: np.ndarray) -> None:
            seen.append(data.shape)

    monkeypatch.setattr(peers, "BernoulliRBM", Noted)
    X = peers.rows(70, 12)
    peers.sklearn_fit(X, 5, 20, 6)()
    assert set(seen) == {(120, 12)}


@pytest.mark.nightly
def test_quality_runs_are_kept_one_by_one_and_a_repeated_command_makes_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The small data sets, on which ln Z is exact, with every contestant that is installed."""
    command = ["--quick", "--results", str(tmp_path)]
    quality.main(command)
    (path,) = tmp_path.glob("quality-*.json")
    whole = quality_records.read(path)
    made = whole.results["quick"].runs
    taking_part = contestants.available()
    assert {run.contestant for run in made} == set(taking_part)
    assert len(made) == 3 * len(taking_part) - 2  # two settings and the better one again; the defaults once
    assert all(run.failed is None and run.low == run.test == run.high for run in made)
    assert whole.results["quick-sites"].find(contestants.DEFAULTS, None, None) is not None

    dropped = made.pop(-1)
    whole.write(tmp_path)
    capsys.readouterr()
    quality.main(command)
    assert capsys.readouterr().out.count(" nats\n") == 1
    again = quality_records.read(path).results["quick"].runs
    assert [run.contestant for run in again] == [run.contestant for run in made] + [dropped.contestant]
    assert again[-1].test == dropped.test  # the same seed


@pytest.mark.nightly
def test_a_run_that_would_take_too_long_is_not_made_and_other_data_stay(tmp_path: Path) -> None:
    before = quality_records.Record(system.processor(), 2, {"d": {"commit": "0000000", "load": 1.0}})
    before.results["mnist"] = quality_records.Results("MNIST", [], [-88.0], [quality_records.Run("x", "d")])
    before.write(tmp_path)
    quality.main(["--quick", "--results", str(tmp_path), "--contestant", targets.PLAIN, "--limit", "1e-6"])
    (found,) = quality_records.read_all(tmp_path)
    assert {run.passes for run in found.results["quick"].runs} == {20}  # and not 40
    assert found.results["mnist"] == before.results["mnist"]
    assert found.commands["d"] == before.commands["d"]


def test_parameters_of_peers_become_the_machine_that_they_mean() -> None:
    """p(v) ∝ Σ_h exp(b·v + c·h + vᵀWh), by enumeration, also where a row is one state a site."""
    generator = torch.Generator().manual_seed(0)
    for data in (quality_sets.quick(), quality_sets.quick_sites()):
        W = torch.randn(data.test.shape[1], data.hidden, generator=generator)
        b = torch.randn(data.test.shape[1], generator=generator)
        c = torch.randn(data.hidden, generator=generator)
        machine = contestants.of_parameters(data, W.numpy(), b, c)
        h = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * data.hidden)
        rows = data.test[:10]
        joint = (rows @ b)[:, None] + h @ c + rows @ W @ h.T
        wanted = joint.double().logsumexp(1)
        found = -machine.free_energy(rows).double()
        torch.testing.assert_close(found - found[0], wanted - wanted[0], rtol=0, atol=1e-4)


def test_seconds_to_a_target_lie_between_two_lengths() -> None:
    def run(passes: int, seconds: float, low: float) -> quality_records.Run:
        return quality_records.Run(
            "plain torch", "d", "constant", 0.1, False, passes, 9, seconds, low + 0.1, low, low + 0.2
        )

    found = quality_records.Results("", [], [], [run(1, 1.0, -90.0), run(10, 16.0, -86.0)])
    assert found.seconds_to("plain torch", -88.0) == pytest.approx(4.0)
    assert found.seconds_to("plain torch", -91.0) == 1.0
    assert found.seconds_to("plain torch", -85.9) is None  # the estimate has it, the bound has not
    worse = replace(run(10, 20.0, -89.0), rate=1.0)
    found.runs.append(worse)
    assert found.frontier("plain torch")[-1].rate == 0.1
