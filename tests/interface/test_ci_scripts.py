"""The scripts of ``.ci`` for pages, records and releases find what they are there to find."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def script(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / ".ci" / f"{name}.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


papers, release, words = map(script, ("papers", "release", "words"))

# The limits of prose ---------------------------------------------------------------------------------------

LONG = " ".join(["word"] * 26) + "."
USERS = words.kind_of("docs/page.md")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""What stands here."""', True),
        ('def f():\n    """The same, in rows."""', True),
        ('x = "What"', False),
    ],
)
def test_openings_by_a_clause_are_recognised(text: str, found: bool) -> None:
    assert bool(words.clause_openings(text)) is found


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        (f"# Page\n\n{LONG}\n", {"sentences", "width"}),
        (f"# Page\n\n- {' '.join(['word'] * 10)}\n- {' '.join(['word'] * 20)}\n", set()),
        ("# Page\n\nWhat it says.\n", {"opening"}),
        ("# Page\n\nChains follow the law.\n", {"words"}),
        (
            "# Page\n\n| a | b |\n|---|---|\n| c | 1.5 ± 2 |\n| d | -3 |\n| e | 4 s |\n| f | 1,000 |\n",
            {"tables"},
        ),
        (f"# Page\n\n```\n{'x' * 111}\n```\n", {"code"}),
    ],
)
def test_what_is_over_a_limit_is_found(text: str, limits: set[str]) -> None:
    assert set(words.over("docs/page.md", text, USERS)) == limits


def test_faults_have_their_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(f"# Page\n\n{LONG}\n")
    monkeypatch.setattr(words, "ROOT", tmp_path)
    assert [line.split(":")[0] for line in words.faults()] == ["docs/page.md"] * 2


# Tag, version and addresses of a release -------------------------------------------------------------------

URLS = '[project.urls]\nDocumentation = "a"\nSource = "b"\nIssues = "c"\nChangelog = "d"\n'
FILES = {
    "src/harmonium/__init__.py": '__version__ = "1.2.0"\n',
    "pyproject.toml": f'[project]\ndynamic = ["version"]\n{URLS}',
    "CITATION.cff": "title: a\nversion: 1.2.0\ndate-released: 2026-12-01\n",
    ".ci/conda-recipe.yaml": 'context:\n  version: "1.2.0"\n',
    "CHANGELOG.md": "# Changelog\n\n## 1.2.0 (2026-12-01)\n\n## 1.1.0\n",
}


def write(root: Path, **changes: str) -> Path:
    for name, text in {**FILES, **changes}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_versions_that_agree_are_released(tmp_path: Path) -> None:
    assert release.faults("v1.2.0", write(tmp_path)) == []


@pytest.mark.parametrize(
    ("tag", "changes", "named"),
    [
        ("v1.2.1", {}, "tag"),
        ("v1.2.0", {"CITATION.cff": "title: a\nversion: 1.2.0\ndate-released: 2026-11-30\n"}, "CITATION.cff"),
        ("v1.2.0", {".ci/conda-recipe.yaml": 'context:\n  version: "1.1.0"\n'}, ".ci/conda-recipe.yaml"),
        ("v1.2.0", {"CHANGELOG.md": "## 1.2.0 (unreleased)\n"}, "CHANGELOG.md"),
        ("v1.2.0", {"pyproject.toml": '[project]\ndynamic = ["version"]\n'}, "pyproject.toml"),
    ],
)
def test_what_does_not_agree_is_named(tmp_path: Path, tag: str, changes: dict[str, str], named: str) -> None:
    (fault,) = release.faults(tag, write(tmp_path, **changes))
    assert fault.startswith(named)


# The page of the four papers, whose figures are those of records -------------------------------------------

ROW = papers.Row("Fig. 0", lambda: "2", ("meeting_times.json",), "meeting_times.py --budget paper")
SAME = ("0.1", "0.1", "same")


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Returns a function that makes a paper of one row and its page, and then changes row or settings."""

    def planted(row: papers.Row, **settings: tuple[str, str, str]) -> None:
        told = {"claim": "1", "objection": "", "settings": {"rate": SAME, **settings}}
        monkeypatch.setattr(papers, "PAPERS", {"A paper": [row]})
        monkeypatch.setattr(papers, "settings_of", lambda: {"Fig. 0": told})

    pages = tmp_path / "experiments_papers.md", tmp_path / "experiments.md"
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
        ({"ours": lambda: "3"}, "expected the page of"),
    ],
)
def test_what_does_not_fit_is_named(plant: Any, changes: dict[str, object], message: str) -> None:
    plant(ROW._replace(**changes))
    found = papers.problems()
    assert any(papers.re.search(message, each) for each in found), found


def test_a_section_of_figures_names_a_script_with_records(plant: Any) -> None:
    papers.MEASURED.write_text("## Figures\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", "utf-8")
    assert [each for each in papers.problems() if "Figures: expected a script" in each]
