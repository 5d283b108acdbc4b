"""The Python examples of README.md and docs/ run, file by file and in order, each file in an empty directory.

A block is left out only where the line before it says why, `<!-- not run: reason -->`.
One that takes long says before it what the tests put in place of its values, `<!-- in tests: epochs=5 -->`;
HARMONIUM_WHOLE_PAGES=1 runs it as it is written. What a page shows below a block, in ```text, is what the
block prints: the words, and numbers about as large, as other processors draw others. A page that needs data
says so, `<!-- needs: file -->`, and is skipped where $HARMONIUM_DATA, or ../shared/data, has no such file.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

import harmonium as hm
from harmonium.chains import Kernel
from harmonium.couplings import Coupling
from harmonium.data import Encoder
from harmonium.layers import Layer

from .faces import names_of

ROOT = Path(__file__).parents[2]
# A newcomer's first page is run by every `make test`, the others by night.
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

BLOCK = re.compile(
    r"(?:^<!--\s*(?:not run:\s*(?P<reason>.*?)|in tests:\s*(?P<shorter>.*?))\s*-->\s*\n)?"
    r"^(?P<indent>[ ]*)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```[ ]*$"
    r"(?:\n+(?P=indent)```text\n(?P<shown>.*?)^(?P=indent)```[ ]*$)?",
    re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")

NEEDS = re.compile(r"^<!-- needs: (.*?) -->$", re.MULTILINE)


class Block(NamedTuple):
    line: int  # of its first line of code
    code: str
    reason: str | None  # why it is not run
    shown: str | None  # what the page says that it prints; None: nothing, or another block does


def blocks(text: str) -> list[Block]:
    found, whole = [], True
    for match in BLOCK.finditer(text):
        code = re.sub(rf"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        if match["shorter"] and not os.environ.get("HARMONIUM_WHOLE_PAGES"):
            code, whole = shortened(code, match["shorter"]), False
        shown = match["shown"] if whole else None
        found.append(Block(text.count("\n", 0, match.start("code")) + 1, code, match["reason"], shown))
    return found


def check_printed(printed: str, shown: str) -> None:
    """The words are those of the page, and the numbers within a quarter, or 0.1, of its.

    A line ``...`` of the page stands for all up to the line that begins as the next one does.
    """
    lines = [line for line in printed.splitlines() if line.strip()]
    expected = [line for line in shown.splitlines() if line.strip()]
    for before, line in zip(["", *expected], expected, strict=False):
        if line.strip() == "...":
            continue
        while before.strip() == "..." and lines and lines[0].split()[0] != line.split()[0]:
            lines.pop(0)
        assert lines, line
        other = lines.pop(0)
        assert NUMBER.sub("#", other).split() == NUMBER.sub("#", line).split()
        values, about = ([float(x.replace(",", "")) for x in NUMBER.findall(text)] for text in (other, line))
        assert values == pytest.approx(about, rel=0.25, abs=0.1), line
    assert not lines


def shortened(code: str, others: str) -> str:
    """The code with others behind some names, such as "epochs=5, columns=shown[:2]"; each is there once.

    What they replace is a whole number or a name.
    """
    for name, other in (pair.split("=") for pair in others.split(", ")):
        code, found = re.subn(rf"\b{name}( ?= ?)\w+\b(?![.(])", rf"{name}\g<1>{other}", code)
        if found != 1:
            raise ValueError(f"in tests: expected {name} once with a value, received it {found} times")
    return code


@pytest.fixture(autouse=True)
def own_kinds() -> Iterator[None]:
    """A page may make units, couplings, kernels and codings of its own, which no other test is to meet."""
    registries = [kinds.registry for kinds in (Layer, Coupling, Kernel, Encoder)]
    before = [(names, dict(names)) for names in registries]
    yield
    for registry, kept in before:
        for kind in registry.keys() - kept.keys():
            del registry[kind]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.nightly] * (page != PAGES[0]))
        for page in PAGES
    ],
)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if needed := NEEDS.search(page.read_text("utf-8")):
        folder = Path(os.environ.get("HARMONIUM_DATA", ROOT.parent / "shared" / "data"))
        if not (folder / needed[1]).is_file():
            pytest.skip(f"no {needed[1]} in {folder}; HARMONIUM_DATA names another folder")
        monkeypatch.setenv("HARMONIUM_DATA", str(folder.resolve()))
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for block in blocks(page.read_text("utf-8")):
        if page == PAGES[0]:  # each example of a newcomer's first page runs without the one before
            namespace = {"__name__": "__main__"}
        if block.reason is None:
            # The empty lines make a traceback name the line of the page.
            with redirect_stdout(StringIO()) as printed:
                exec(compile("\n" * (block.line - 1) + block.code, page, "exec"), namespace)
            if block.shown is not None:
                check_printed(printed.getvalue(), block.shown)


@pytest.mark.nightly
@pytest.mark.parametrize("notebook", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run(notebook: Path) -> None:
    """Their cells in order, and the form that a notebook shows of what a cell ends with."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "clear the outputs: they would be another version's"
            *before, last = ast.parse("".join(cell["source"])).body
            exec(compile(ast.Module(before, []), notebook, "exec"), namespace)
            shown = isinstance(last, ast.Expr)
            code = compile(
                ast.Expression(last.value) if shown else ast.Module([last], []),
                notebook,
                "eval" if shown else "exec",
            )
            result = eval(code, namespace)
            for name in ("_repr_html_", "_repr_svg_"):
                getattr(result, name, str)()


def test_pages_ask_no_other_server() -> None:
    """Scripts, styles and fonts of the documentation are its own, and all that are named are there."""
    configuration = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert "font: false" in configuration
    named = re.findall(r"^  - (assets/\S+)$", configuration, re.MULTILINE)
    assert len(named) == 5
    for path in named:
        text = (ROOT / "docs" / path).read_text("utf-8")
        assert path.endswith(".js") or "http" not in text
        for font in re.findall(r"url\(([^)]*)\)", text) if path.endswith(".css") else ():
            assert (ROOT / "docs" / path).parent.joinpath(font).is_file(), font
    theme = "".join(path.read_text("utf-8") for path in (ROOT / "docs" / "overrides").rglob("*.html"))
    assert "http" not in theme and "//" not in theme


@pytest.mark.nightly
def test_what_packages_offer_is_documented() -> None:
    """The reader of the sources finds a file where a function has the name of its file, without help."""
    griffe = pytest.importorskip("griffe")
    path = ROOT / "docs" / "overrides" / "named_like_modules.py"
    read = griffe.load(
        "harmonium", search_paths=[ROOT / "src"], extensions=griffe.load_extensions(path.as_posix())
    )
    for name in ("likelihood.ais", "meanfield.tap", "tasks.denoise"):
        assert read[name].is_function, name
    for package in (hm.chains, hm.ladder, hm.likelihood, hm.meanfield, hm.report, hm.tasks, hm.training):
        face = read[package.__name__.partition(".")[2]]
        files = {name for name in names_of(package) if face.members[name].is_module}
        assert files <= {"callbacks"}  # which is offered whole
