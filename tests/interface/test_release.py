"""The script of releases, ``.ci/release.py``, refuses where tag, version and addresses do not agree."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPECIFICATION = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
assert SPECIFICATION is not None and SPECIFICATION.loader is not None
release = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(release)

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
        ("1.2.0", {}, "tag"),
        ("v1.2.1", {}, "tag"),
        ("v1.2.0", {"CITATION.cff": "title: a\nversion: 1.1.0\ndate-released: 2026-12-01\n"}, "CITATION.cff"),
        ("v1.2.0", {"CITATION.cff": "title: a\nversion: 1.2.0\ndate-released: 2026-11-30\n"}, "CITATION.cff"),
        ("v1.2.0", {".ci/conda-recipe.yaml": 'context:\n  version: "1.1.0"\n'}, ".ci/conda-recipe.yaml"),
        ("v1.2.0", {"CHANGELOG.md": "## 1.2.0 (unreleased)\n"}, "CHANGELOG.md"),
        ("v1.2.0", {"CHANGELOG.md": "nothing\n"}, "CHANGELOG.md"),
        ("v1.2.0", {"pyproject.toml": '[project]\ndynamic = ["version"]\n'}, "pyproject.toml"),
    ],
)
def test_what_does_not_agree_is_named(tmp_path: Path, tag: str, changes: dict[str, str], named: str) -> None:
    (fault,) = release.faults(tag, write(tmp_path, **changes))
    assert fault.startswith(named)
