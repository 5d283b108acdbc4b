"""The table of the four papers has its figures from records, and ``.ci/papers.py`` finds where it has not."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPECIFICATION = importlib.util.spec_from_file_location("papers", ROOT / ".ci" / "papers.py")
assert SPECIFICATION is not None and SPECIFICATION.loader is not None
papers = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(papers)


def planted(**changes: object) -> dict[str, list[papers.Row]]:
    row = papers.Row(
        "Fig. 0", "1", lambda: "2", "full", ("meeting_times.json",), "meeting_times.py --budget paper"
    )
    return {"A paper": [row._replace(**changes)]}


def test_the_page_fits_the_records() -> None:
    assert papers.problems() == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"records": ()}, "Fig. 0: expected a record"),
        ({"records": ("none.json",)}, r"Fig. 0: expected a record of .* received none.json"),
        ({"command": "none.py"}, "Fig. 0: expected a script, received none.py"),
        ({"command": "meeting_times.py --none-such"}, "has no option --none-such"),
        ({"ours": lambda: "3"}, "expected the table of"),
    ],
)
def test_what_does_not_fit_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    page = tmp_path / "experiments.md"
    page.write_text(f"# Experiments\n\n{papers.BEGIN}{papers.END}", "utf-8")
    monkeypatch.setattr(papers, "PAGE", page)
    monkeypatch.setattr(papers, "PAPERS", planted())
    page.write_text(papers.put(page.read_text("utf-8")), "utf-8")
    assert papers.problems() == []
    monkeypatch.setattr(papers, "PAPERS", planted(**changes))
    found = papers.problems()
    assert any(papers.re.search(message, each) for each in found), found


def test_a_section_of_figures_names_a_script_with_records(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "experiments.md"
    monkeypatch.setattr(papers, "PAGE", page)
    monkeypatch.setattr(papers, "PAPERS", {})
    body = f"## Figures\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n{papers.BEGIN}\n\n{papers.END}"
    page.write_text(body, "utf-8")
    assert [each for each in papers.problems() if "Figures: expected a script" in each]
    page.write_text(body.replace("| a", "`meeting_times.py`\n\n| a"), "utf-8")
    assert papers.problems() == []
