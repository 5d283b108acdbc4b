"""Builds and checks what a registry takes, and refuses where versions do not agree.

``python .ci/release.py --tag v0.4.0`` compares the tag with the version in ``src/harmonium/__init__.py``,
with CITATION.cff, CHANGELOG.md and the recipe, builds wheel and sdist into dist/, and checks both by twine.
``CONTRIBUTING.md`` has the steps around it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
URLS = {"Documentation", "Source", "Issues", "Changelog"}
PLACE, RECIPE = "src/harmonium/__init__.py", ".ci/conda-recipe.yaml"


def stated_version(root: Path = ROOT) -> str:
    """Returns the version of the package, which the metadata of wheel and sdist are made from."""
    (version,) = re.findall(r'^__version__ = "(.*)"$', (root / PLACE).read_text("utf-8"), re.MULTILINE)
    return str(version)


def faults(tag: str, root: Path = ROOT) -> list[str]:
    """Returns what speaks against a release under this tag, a sentence each."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    version = stated_version(root)
    found = []
    if tag != f"v{version}":
        found.append(f"tag: expected v{version}, the version of {PLACE}, received {tag}")
    headings = re.findall(r"^## (.*)$", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    first = headings[0] if headings else "none"
    dated = re.fullmatch(rf"{re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)", first)
    if not dated:
        found.append(f"CHANGELOG.md: expected '## {version} (YYYY-MM-DD)' first, received {first!r}")
    citation = (root / "CITATION.cff").read_text("utf-8")
    for line in (f"version: {version}", *([f"date-released: {dated[1]}"] if dated else [])):
        if f"\n{line}\n" not in citation:
            found.append(f"CITATION.cff: expected {line}")
    if f'\n  version: "{version}"\n' not in (root / RECIPE).read_text("utf-8"):
        found.append(f'{RECIPE}: expected version: "{version}"')
    if missing := URLS - set(project.get("urls", {})):
        found.append(f"pyproject.toml: [project.urls] lacks {', '.join(sorted(missing))}")
    return found


def main(tag: str) -> int:
    """Builds and checks; returns the exit status."""
    if found := faults(tag):
        print("\n".join(found), file=sys.stderr)
        return 1
    dist = ROOT / "dist"
    if dist.is_dir() and any(dist.iterdir()):
        print(f"{dist}: expected an empty folder; make clean empties it", file=sys.stderr)
        return 1
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT)], check=True)
    files = sorted(map(str, dist.iterdir()))
    return subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files], check=False
    ).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tag", required=True, help="of the release, such as v0.4.0")
    sys.exit(main(parser.parse_args().tag))
