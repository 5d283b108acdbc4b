"""The project's outer shape: what can be imported, and what the text must not contain."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
from packaging.version import Version

import harmonium as hm

from .faces import names_of

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_version_is_stated_once() -> None:
    declared = hm.__version__
    assert version("harmonium") == declared, "installed from another version: run `make setup`"
    assert "version" not in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"\nversion: {declared}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    first = re.findall(r"^## (\d+\.\d+\.\d+) \(", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)[0]
    assert Version(first) >= Version(declared)  # the version that is next, until its release


def test_tests_are_marked_by_their_folder(request: pytest.FixtureRequest) -> None:
    assert [mark.name for mark in request.node.iter_markers()] == ["interface"]


SHAPE = re.compile(r"\([^\s(),]+,(?: [^\s(),]+(?:, [^\s(),]+)*)?\)|\b(?:rows|width|shapes?)\b")
TENSORS = re.compile(r"\b(?:Tensor|Numbers|States|Theta)\b")


def function_of(member: Any) -> Callable[..., Any] | None:
    """The function behind a method or property; None for anything else."""
    for name in ("fget", "func", "__func__"):
        member = getattr(member, name, member)
    return member if inspect.isfunction(member) else None


def functions_of(thing: Any) -> Iterator[tuple[Callable[..., Any], str]]:
    """A function, or the public methods and properties of a class, with docstrings that may be inherited."""
    if inspect.isfunction(thing):
        yield thing, thing.__doc__ or ""
    for name, member in vars(thing).items() if inspect.isclass(thing) else ():
        function = function_of(member)
        if function is not None and (not name.startswith("_") or name == "__call__"):
            own = [function_of(vars(each).get(name)) for each in thing.__mro__]
            yield function, next((f.__doc__ for f in own if f is not None and f.__doc__), "")


def test_docstrings_state_the_shapes_of_tensors() -> None:
    """Of what packages export: else a caller has to read the code to tell (rows, width) from (width,)."""
    packages = [import_module(info.name) for info in walk_packages(hm.__path__, "harmonium.") if info.ispkg]
    exported = [getattr(package, name) for package in packages for name in names_of(package)]
    silent = {
        f"{function.__module__}.{function.__qualname__}"
        for thing in exported
        if getattr(thing, "__module__", "").startswith("harmonium.")
        for function, text in functions_of(thing)
        if TENSORS.search(str(function.__annotations__.values())) and not SHAPE.search(text)
    }
    assert sorted(silent) == []


UNIT_CLASSES = "|".join(cls.__name__ for cls in hm.layers.Layer.registry.values())
ASKS_FOR_CLASS = re.compile(rf"isinstance\([^()]*,[^()]*\(?[^()]*\b(?:{UNIT_CLASSES})\b")
ASKS_FOR_KIND = re.compile(r"(?<!dtype)\.kind (?:==|!=|in|not in) |(?<!dtype)\.kind\.startswith")


def imports_past_faces() -> Iterator[tuple[str, str, str]]:
    """Every import of a name from a file of another package: the importing file, that file, and the name."""
    for path in SOURCES:
        own = path.relative_to(ROOT / "src" / "harmonium").parts[0]
        text = path.read_text("utf-8")
        if re.search(rf"from harmonium\.(?!{own}\b)\w+\.", text) is None:  # few are worth their parsing
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("harmonium."):
                _, package, *file = str(node.module).split(".")
                if package != own and file:
                    yield from (
                        (str(path.relative_to(ROOT)), ".".join((package, *file)), a.name) for a in node.names
                    )


def test_packages_are_imported_by_their_faces_or_pyproject_says_why() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    reasons, used = project["tool"]["harmonium"]["past-the-faces"], set()
    for path, file, name in imports_past_faces():
        package = file.partition(".")[0]
        face = import_module(f"harmonium.{package}")
        assert name not in names_of(face), f"{path}: import {name} from harmonium.{package}"
        known = {file, package} & reasons.keys()
        assert known, f"{path}: {name} of {file} is not in the face of {package}"
        used |= known
    assert used == reasons.keys(), "nothing reaches past the face there any more"


@pytest.mark.parametrize("page", ["docs/design.md", "docs/images/architecture.svg"])
def test_the_design_shows_every_package(page: str) -> None:
    shown = set(re.findall(r"(?:`|>)(\w+)/(?=`|<)", (ROOT / page).read_text("utf-8")))
    assert shown == {path.parent.name for path in (ROOT / "src" / "harmonium").glob("*/__init__.py")}


def test_nothing_outside_the_layers_asks_what_class_a_unit_has() -> None:
    """A unit says what it can do (``Layer``); else a new kind is answered wrongly where nobody looks."""
    texts = {
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for path in SOURCES
        if "layers" not in path.relative_to(ROOT).parts
    }
    assert offences(ASKS_FOR_CLASS, texts) + offences(ASKS_FOR_KIND, texts) == []


def project_texts() -> dict[str, str]:
    """Every text file that git carries or would carry."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    contents = {name: (ROOT / name).read_bytes() for name in listed.split("\0") if (ROOT / name).is_file()}
    return {name: content.decode("utf-8") for name, content in contents.items() if b"\0" not in content}


LOCAL_PATH = re.compile(r"(?<![\w.\-/])/(?:work|root|home|tmp|opt)(?:/|\b)")
REGISTRY_HOST = re.compile(r"pypi\.|pythonhosted\.|npmjs\.|anaconda\.|/whl/c[pu]")


def offences(pattern: re.Pattern[str], texts: dict[str, str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


@pytest.mark.nightly
def test_no_local_path() -> None:
    texts = {name: text for name, text in project_texts().items() if not name.startswith("tests/")}
    assert offences(LOCAL_PATH, texts) == []


def test_no_registry_host() -> None:
    assert offences(REGISTRY_HOST, project_texts()) == []
