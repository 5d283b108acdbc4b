"""Every name that a page, a docstring or a message mentions exists: attributes, options, entries."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache, reduce
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Any, NamedTuple

import harmonium as hm
from harmonium.cli.app import command_names, parser_of

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = sorted({*ROOT.glob("docs/*.md"), *ROOT.glob("docs/tutorials/*.md"), *ROOT.glob("*.md")})

DOTTED = re.compile(r"(?<![\w./\-])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
FLAG = re.compile(r"(?<![\w\-])--[a-z][a-z\-]*[a-z](?![\w\-])")
FILES = (
    r"(?:a2m|c|cff|csv|dat|fa|fasta|gz|h5|hdf5|html|json|jsonl|md|npy|npz|onnx|params|parquet|pdf|png|pt2?"
    r"|safetensors|svg|toml|txt)"
)

# Owners that a page's example or a configuration file makes, and files that a reader of it writes.
EXAMPLES = {"RANDOM", "cli", "frame", "grape", "joint", "project", "tool", "energies.py", "ternary.py"}
EXAMPLES |= {"hm.layers.Vote", "harmonium.layers.vote", "options.NAME", "dimod"}
# A line or block of another program, whose options are not ours.
PROGRAMS = re.compile(
    r"\b(?:adabmDCA|git|make|mike|mkdocs|pip|pytest|sbatch|srun|torch|torchrun|uv)\b|#SBATCH"
)
OTHERS = {"--index-url", "--no-deps", "--push", "--tag", "--version"}
OTHERS |= {"--install-completion", "--show-completion"}


class Text(NamedTuple):
    """A text and the place where it begins."""

    path: str
    line: int
    text: str

    def at(self, offset: int) -> str:
        return f"{self.path}:{self.line + self.text.count(chr(10), 0, offset)}"


# What is written
# --------------------------------------------------------------------------------


@cache
def trees() -> dict[str, list[ast.AST]]:
    """Returns the nodes of every source, each before what it holds."""
    return {str(path.relative_to(ROOT)): [*ast.walk(ast.parse(path.read_text("utf-8")))] for path in SOURCES}


def strings(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of every string, docstrings among them; values in an f-string as {}."""
    inside: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            inside.update(node.values)
            parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            yield node.lineno, node.value


@cache
def written() -> list[Text]:
    """Returns pages, docstrings, messages and comments."""
    pages = [Text(path.name, 1, path.read_text("utf-8")) for path in PAGES]
    code = [Text(path, line, text) for path, nodes in trees().items() for line, text in strings(nodes)]
    comments = [
        Text(path, number, line.partition("# ")[2])
        for path in trees()
        for number, line in enumerate((ROOT / path).read_text("utf-8").splitlines(), start=1)
        if re.match(r"[^\"']*# ", line)
    ]
    return [*pages, *code, *comments]


def spans(text: str) -> Iterator[tuple[int, str]]:
    """Yields the places and texts of inline code."""
    blank = FENCED.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    for match in CODE.finditer(blank):
        yield match.start(2), match[2]


# What exists
# --------------------------------------------------------------------------------


@cache
def modules() -> dict[str, ModuleType]:
    """Returns every module of the library by every end of its dotted name, packages first."""
    found = {"hm": hm, "harmonium": hm}
    infos = list(walk_packages(hm.__path__, "harmonium."))
    for info in sorted(infos, key=lambda info: (info.name.count("."), not info.ispkg)):
        if not info.name.endswith("__main__"):
            needs = "triton" if info.name.endswith("_kernels") else "numpy"  # and is empty without
            module = import_module(info.name) if find_spec(needs) else ModuleType(info.name)
            parts = info.name.split(".")
            for start in range(len(parts)):
                found.setdefault(".".join(parts[start:]), module)
    return found


NAMED = {ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg", ast.keyword: "arg", ast.alias: "name"}
NAMED |= {ast.FunctionDef: "name", ast.AsyncFunctionDef: "name", ast.ClassDef: "name"}


@cache
def used() -> frozenset[str]:
    """Returns every name in the sources: of modules, functions, classes, attributes and arguments."""
    found = {part for path in SOURCES for part in path.with_suffix("").parts}
    for node in chain.from_iterable(trees().values()):
        if (field := NAMED.get(type(node))) is not None:
            found.update(str(getattr(node, field)).split("."))
    return frozenset(found)


@cache
def exists(name: str) -> bool:
    """Returns whether a dotted name stands for something: in the library, beside it, or in a file's name."""
    first, *rest = name.split(".")
    if first in EXAMPLES or name in EXAMPLES or re.search(rf"\.{FILES}$", name):
        return True
    if rest[-1] == "py":
        return any(ROOT.rglob(f"{first}.py"))
    package = {"hm": "harmonium", "np": "numpy", "pd": "pandas"}.get(first, first)
    if package != "harmonium" and used().issuperset(rest):
        return True
    if find_spec(package) is None:
        return False
    owner: Any = import_module(package)
    for place, part in enumerate(rest, start=1):
        path = ".".join([package, *rest[:place]])
        if inspect.isclass(owner) and not hasattr(owner, part):
            return part in used()  # an attribute of its instances
        if not hasattr(owner, part) and not (inspect.ismodule(owner) and find_spec(path)):
            return False
        owner = getattr(owner, part, None) or modules().get(path) or import_module(path)
        if not (inspect.isclass(owner) or inspect.ismodule(owner)):
            return True
    return True


@cache
def flags() -> dict[str, frozenset[str]]:
    """Returns the options of every command."""
    return {
        name: frozenset(
            flag for each in parser_of(name).params for flag in (*each.opts, *each.secondary_opts)
        )
        | {"--help"}
        for name in command_names()
    }


# The tests
# --------------------------------------------------------------------------------


def test_every_dotted_name_exists() -> None:
    """``hm.x`` and ``harmonium.x`` in any text, and others between backticks."""
    gone = [
        f"{text.at(place)}: {match[0]}"
        for text in written()
        for place, code in [(0, text.text), *spans(text.text)]
        for match in DOTTED.finditer(code)
        if (place or match[0].startswith(("hm.", "harmonium."))) and not exists(match[0])
    ]
    assert not gone, "\n".join(gone)
    assert exists("machine.edges") and not exists("hm.chains.walk") and not exists("machine.egdes")


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields numbers and lines, each with those that continue it; blocks of other programs are left out."""
    kept = FENCED.sub(
        lambda block: re.sub(r"[^\n]", "", block[0]) if PROGRAMS.search(block[3]) else block[0], text
    )
    joined = re.sub(r"\\\n", "  ", kept)
    yield from enumerate(joined.splitlines())


def test_every_option_exists() -> None:
    """An option behind a command's name is one of that command."""
    known = frozenset(chain.from_iterable(flags().values())) | OTHERS
    scripts = {
        flag
        for folder in ("benchmarks", "experiments", "tests/campaigns", ".ci")
        for path in (ROOT / folder).rglob("*.py")
        for flag in re.findall(r'"(--[a-z\-]+)"', path.read_text("utf-8"))
    }
    gone = []
    for text in written():
        others = known if text.path.startswith("src") else known | scripts
        for number, line in lines(text.text):
            for match in FLAG.finditer(line):
                before = line[: match.start()]
                if not PROGRAMS.search(before) and match[0] not in flags().get(command_in(before), others):
                    gone.append(f"{text.path}:{text.line + number}: {match[0]}")
    assert not gone, "\n".join(gone)


def command_in(text: str) -> str:
    """Returns the command to which an option at the end of the text belongs; "" where none is named."""
    return (re.findall(r"\bharmonium (\w+)(?=[^`|;&#]*$)", text) or [""])[-1]


def called(name: str) -> Any:
    """Returns the function or class behind a dotted name of the library; None where it is not one."""
    first, *rest = name.split(".")
    for owner in (modules().get(first), getattr(hm, first, None)):
        found = reduce(lambda each, part: getattr(each, part, None), rest, owner)
        if callable(found):
            return found
    return None


def test_every_keyword_of_a_call_in_a_text_is_taken() -> None:
    """Of code within a line; the blocks of pages are run."""
    gone = []
    for text in written():
        for place, code in spans(text.text):
            try:
                tree = ast.parse(code.replace("...", "_"), mode="eval")
            except SyntaxError:
                continue
            for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
                if call.keywords and (function := called(ast.unparse(call.func))) is not None:
                    taken = inspect.signature(function).parameters.values()
                    if all(each.kind != each.VAR_KEYWORD for each in taken):
                        wrong = {str(given.arg) for given in call.keywords} - {each.name for each in taken}
                        gone += [f"{text.at(place)}: {code}: {name}" for name in wrong]
    assert not gone, "\n".join(gone)
