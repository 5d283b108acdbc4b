"""The benchmarks' records, targets and page; nothing is timed here."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("sklearn")
sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks import (
    page,
    quality_contestants as contestants,
    quality_records,
    quality_sets,
    records,
    targets,
)
from benchmarks.race import Row
from benchmarks.suite import BENCHMARKS

ROOT = Path(__file__).parents[2]


def test_the_page_is_made_of_the_records_of_the_repository() -> None:
    """Else: python -m benchmarks.page"""
    assert page.PAGE == ROOT / "docs" / "benchmarks.md"
    assert page.PAGE.read_text("utf-8") == page.text(records.read_all(), quality_records.read_all())


def test_records_of_the_repository_are_of_whole_runs_and_named_after_their_processor(tmp_path: Path) -> None:
    for path in records.FOLDER.glob("*.json"):
        found = records.read(path)
        assert path.name == found.file_name
        assert found.tables.keys() <= BENCHMARKS.keys()
        assert all(not run["quick"] and run["clock"] == "wall" for run in found.runs.values())
        assert found.write(tmp_path).read_bytes() == path.read_bytes()
        table = next(iter(found.tables.values()))  # a benchmark that is made again replaces its rows alone
        others = {name: each for name, each in found.tables.items() if each is not table}
        run = {**next(iter(found.runs.values())), "date": "2100-01-01T00:00:00Z"}
        found.add(run, [replace(table, rows=[Row("harmonium", 7.0, (7.0, 7.0), 7.0, 3, 1.0)])])
        again = records.read(found.write(tmp_path))
        assert again.tables[table.name].rows[0].median_ms == 7.0
        assert all(again.tables[name].rows == each.rows for name, each in others.items())
        assert run["date"] in again.runs


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
