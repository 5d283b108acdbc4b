"""The time of a command's parts: measured, dealt out, and named where it does not suffice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harmonium._progress import ProgressLine
from harmonium.cli import budget as budget_module, output
from harmonium.cli.budget import Budget, Part, deal, time_of_step

from .command_line import TINY, CommandLine


@pytest.mark.parametrize(
    ("costs", "seconds", "dealt"),
    [
        ((1.0, 2.0, 3.0), 10.0, (1.0, 2.0, 3.0)),
        ((1.0, 20.0, 30.0), 11.0, (1.0, 5.0, 5.0)),
        ((20.0, 4.0, 30.0), 10.0, (10 / 3, 10 / 3, 10 / 3)),
    ],
)
def test_cheap_parts_get_what_they_cost(costs: tuple, seconds: float, dealt: tuple) -> None:
    parts = {str(k): Part(1000, 1, cost / 1000) for k, cost in enumerate(costs)}
    assert list(deal(seconds, parts)[str(k)] for k in range(len(costs))) == pytest.approx(list(dealt))


def test_a_part_that_is_too_dear_leaves_its_share_to_others() -> None:
    parts = {"a": Part(100, 50, 0.1), "b": Part(100, 20, 10.0), "c": Part(10, 2, 0.1)}
    budget = Budget(9.0, parts)
    assert (budget.steps("a"), budget.steps("b"), budget.steps("c"), budget.steps("d", 7)) == (80, 0, 10, 7)
    assert budget.remarks == {
        "a": "80 of 100 sweeps, to keep within 9 s for all such parts; --seconds gives more",
        "b": "left out, as 20 sweeps take 200 of 9 s for all such parts; --seconds gives more",
    }
    assert not Budget(2000.0, parts).remarks


def test_a_step_is_measured_without_what_a_start_costs() -> None:
    assert time_of_step(lambda steps: time.sleep(0.1 + 0.02 * steps)) == pytest.approx(0.02, abs=0.01)


def test_long_steps_are_not_repeated() -> None:
    """Else a page would wait for longer than it may take, before its first part."""
    made: list[int] = []

    def run(steps: int) -> None:
        made.append(steps)
        time.sleep(0.3 * steps)

    assert time_of_step(run) == pytest.approx(0.3, abs=0.1)
    assert sum(made) <= 4


@pytest.mark.parametrize("log", [False, True])
def test_the_line_names_the_part_at_work(monkeypatch: pytest.MonkeyPatch, log: bool) -> None:
    """In a terminal however soon one part follows another; in a log, whose lines stay, not each of them."""
    seen: list[str] = []

    @contextmanager
    def line(total: int, step: int, show: bool | None) -> Iterator[ProgressLine]:
        yield ProgressLine(total, 1000.0, lambda step, numbers: seen.extend(numbers()), log)

    monkeypatch.setattr(budget_module, "show_progress", line)
    titles = ["samples", "pairs", "landscape"]
    with Budget(9.0, {title: Part(10, 1, 0.1) for title in titles}).working("report") as begin:
        for title in titles:
            begin(title)
    assert seen == ([] if log else [f"{title}, seconds" for title in titles])


@pytest.mark.nightly
def test_a_report_keeps_within_its_time_and_names_what_it_leaves_out(
    cli: CommandLine, tmp_path: Path
) -> None:
    assert cli.succeed("train", "bars-and-stripes", tmp_path / "run", *TINY)
    result = cli.succeed("report", tmp_path / "run", "--seconds", 0.001, "--threads", 1, "--json").json
    named = {note.partition(":")[0] for note in result["notes"] if "--seconds" in note}
    assert named and named <= {"pairs", "equilibrium", "landscape", "likelihood", "samples"}
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "--seconds gives more" in page
    result = cli.succeed("report", tmp_path / "run", "--overwrite", "--threads", 1, "--json").json
    assert not any("--seconds" in note for note in result["notes"])
    assert "seconds" in cli.refuse("report", tmp_path / "run", "--seconds", 0)


def test_what_takes_long_is_named_off_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "_LATE", 0.05)
    with output.working("counting"):
        time.sleep(0.3)
    assert capsys.readouterr().err == "counting ...\n"
    with output.working("counting less"):
        pass
    time.sleep(0.2)
    assert not capsys.readouterr().err
