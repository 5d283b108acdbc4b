"""The page of the four papers has its figures from records, and ``.ci/papers.py`` finds where it has not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SPECIFICATION = importlib.util.spec_from_file_location("papers", ROOT / ".ci" / "papers.py")
assert SPECIFICATION is not None and SPECIFICATION.loader is not None
papers = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(papers)

ROW = papers.Row("Fig. 0", lambda: "2", ("meeting_times.json",), "meeting_times.py --budget paper")
SAME = ("0.1", "0.1", "same")


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Returns a function that makes a paper of one row and its page, and then changes row or settings."""

    def planted(row: papers.Row, **settings: tuple[str, str, str]) -> None:
        told = {"claim": "1", "objection": "", "settings": {"rate": SAME, **settings}}
        monkeypatch.setattr(papers, "PAPERS", {"A paper": [row]})
        monkeypatch.setattr(papers, "settings_of", lambda: {"Fig. 0": told})

    pages = tmp_path / "experiments_papers.md", tmp_path / "papers.md"
    monkeypatch.setattr(papers, "PAGE", pages[0])
    monkeypatch.setattr(papers, "MEASURED", pages[1])
    pages[1].write_text("# Experiments\n", "utf-8")
    planted(ROW)
    pages[0].write_text(papers.page(), "utf-8")
    assert papers.problems() == []
    return planted


def test_the_page_fits_the_records() -> None:
    assert papers.problems() == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"records": ()}, "Fig. 0: expected a record"),
        ({"command": "none.py"}, "Fig. 0: expected a script, received none.py"),
        ({"picture": "none.png"}, "expected a picture, received none.png"),
        ({"ours": lambda: "3"}, "expected the page of"),
    ],
)
def test_what_does_not_fit_is_named(plant: Any, changes: dict[str, object], message: str) -> None:
    plant(ROW._replace(**changes))
    found = papers.problems()
    assert any(papers.re.search(message, each) for each in found), found


@pytest.mark.parametrize(
    ("kinds", "verdict"),
    [
        (("same",), "the paper's method at its size"),
        (("size", "measure"), "reduced"),
        (("size", "method"), "another method"),
    ],
)
def test_the_verdict_follows_from_what_differs(plant: Any, kinds: tuple[str, ...], verdict: str) -> None:
    plant(ROW, **{f"setting {kind}": ("1", "2", kind) for kind in kinds})
    assert papers.verdict("Fig. 0") == verdict
    assert f"| Fig. 0 | {verdict} |" in papers.page()


def test_what_was_not_run_and_an_unknown_kind_are_named(plant: Any) -> None:
    plant(ROW, rate=("0.1", "not run", "size"))
    assert papers.verdict("Fig. 0") == "not run"
    plant(ROW, rate=("0.1", "0.2", "colour"))
    assert any("expected a kind of change, received colour" in each for each in papers.problems())


def test_a_section_of_figures_names_a_script_with_records(plant: Any) -> None:
    papers.MEASURED.write_text("## Figures\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", "utf-8")
    assert [each for each in papers.problems() if "Figures: expected a script" in each]
