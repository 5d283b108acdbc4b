"""The script that holds the prose to its limits, ``.ci/words.py``, finds what it is there to find."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPECIFICATION = importlib.util.spec_from_file_location("words", ROOT / ".ci" / "words.py")
assert SPECIFICATION is not None and SPECIFICATION.loader is not None
words = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(words)

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
        ("# Page\n\n`a b c d e f g h i j k l m n o p q r s t u v w x y z` is one word.\n", set()),
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
