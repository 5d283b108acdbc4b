"""Builds and checks what a registry takes, and refuses where versions do not agree.

``python .ci/release.py --tag v0.3.0`` compares the tag with pyproject.toml, CITATION.cff and CHANGELOG.md,
builds wheel and sdist into dist/, and checks both by twine. ``docs/release.md`` has the steps around it.
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


def faults(tag: str, root: Path = ROOT) -> list[str]:
    """Returns what speaks against a release under this tag, a sentence each."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    version = project["version"]
    found = []
    if tag != f"v{version}":
        found.append(f"tag: expected v{version}, the version of pyproject.toml, received {tag}")
    if f"\nversion: {version}\n" not in (root / "CITATION.cff").read_text("utf-8"):
        found.append(f"CITATION.cff: expected version: {version}")
    headings = re.findall(r"^## (.*)$", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    if not headings or not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", headings[0]):
        first = headings[0] if headings else "none"
        found.append(f"CHANGELOG.md: expected '## {version} (YYYY-MM-DD)' first, received {first!r}")
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
    parser.add_argument("--tag", required=True, help="of the release, such as v0.3.0")
    sys.exit(main(parser.parse_args().tag))
