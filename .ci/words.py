"""Holds the prose to its limits: words a sentence, width, openings, tables, words of our own.

``python .ci/words.py`` prints what is over a limit and ends with 1 if anything is. ``--count`` prints a
line a page. A page is as long as its thought.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

WORDS = 25  # a sentence on a page for users
DECISIONS = 28  # pages of decisions, one a theme: more would be a diary
WIDTH = 110  # characters of a line there, code too (the site shows as many), but in tables and addresses
MEASURED = {"docs/experiments_papers.md", "docs/benchmarks.md"}  # pages of measured tables: no limits

# Looked up by section, from docstrings and beside scripts: only lines have a limit there.
REFERENCE = {"docs/formulas.md", "experiments/README.md", "experiments/papers.md"}


class Kind(NamedTuple):
    """Limits of one kind of page; None where there is none."""

    words: int | None
    width: int | None
    numbers: bool  # tables of numbers may stand there


def kind_of(path: str) -> Kind | None:
    """Returns the limits of a page by its path from the root; None for the pages of measured tables."""
    if path in MEASURED:
        return None
    if path in REFERENCE:
        return Kind(None, WIDTH, True)
    if path == "CHANGELOG.md":
        return Kind(None, 180, False)
    return Kind(WORDS, WIDTH, path.startswith("docs/decisions/0"))


CODE = re.compile(
    r"^(?P<indent> *)(?P<fence>```+|\$\$).*?^(?P=indent)(?P=fence) *$", re.MULTILINE | re.DOTALL
)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
TABLE = re.compile(r"(?:^ *\|.*\n?)+", re.MULTILINE)
NEW_BLOCK = re.compile(r"^(?: *(?:[-*+]|\d+\.) | *#|!!!|\?\?\?|<)")
SHORT_FORMS = re.compile(
    r"\b(?:e\.g|i\.e|et al|vs|Figs?|Alg|Eqs?|approx|cf|no|sec|p|pp|Vol|St|Dr|resp)\.(?=\s)"
)


def prose(text: str) -> str:
    """Returns the text without front matter, code, formulas of their own, comments and tables."""
    for pattern in (FRONT, CODE, COMMENT, TABLE):
        text = pattern.sub("\n\n", text)
    return text


def blocks(text: str) -> Iterator[str]:
    """Yields paragraphs, headings and items of lists, each on one line."""
    lines: list[str] = []
    for line in [*prose(text).splitlines(), ""]:
        if not line.strip() or NEW_BLOCK.match(line):
            if lines:
                yield " ".join(lines)
            lines = []
        if line.strip():
            lines.append(line.strip())


def plain(block: str) -> str:
    """Returns a block as it is read: links as their text, code and formulas as a word, no marks."""
    block = re.sub(r"!\[[^\]]*\]\([^)]*\)(?:\{[^}]*\})?", "", block)
    block = re.sub(r"`[^`]+`|\$[^$]+\$", "code", block)
    block = re.sub(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", block)
    block = re.sub(r"<[^>]+>", "", block)
    block = re.sub(r"^(?:[-*+]|\d+\.) +|^#+ +|^!!! *\w+ *", "", block)
    return SHORT_FORMS.sub(lambda found: found[0][:-1], block).replace("*", "").replace("_", "")


def sentences(text: str) -> list[str]:
    """Returns the sentences of a page, those of headings and lists too; cells of tables are none."""
    ends = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
    return [each for block in blocks(text) for each in ends.split(plain(block)) if words(each)]


def words(sentence: str) -> int:
    """Returns the number of words: what stands between spaces and has a letter or digit."""
    return sum(any(char.isalnum() for char in word) for word in sentence.split())


def wide_lines(text: str, width: int) -> list[str]:
    """Returns the lines of prose that are wider, but for those that are one link or one picture."""
    one = re.compile(r" *(?:[-*] )?!?\[[^\]]*\]\(\S*\)\W*")
    return [line for line in prose(text).splitlines() if len(line) > width and not one.fullmatch(line)]


NUMBER = re.compile(
    r"[-−+±<>~≈ \d.,()/%×÷*e:–]+(?: ?(?:to|s|ms|µs|ns|h|MB|GB|kB|nats|W))*[-−+±<>~≈ \d.,()/%×÷*e:]*"
)


def measured_tables(text: str) -> list[str]:
    """Returns the first lines of tables of which half the cells beyond the first column are numbers."""
    found = []
    for match in TABLE.finditer(COMMENT.sub("", CODE.sub("", text))):
        head, _, *rows = [line.strip().strip("|").split("|") for line in match[0].splitlines()] + [[], []]
        cells = [cell.strip() for row in rows for cell in row[1:] if cell.strip()]
        numbers = sum(bool(NUMBER.fullmatch(c)) and any(map(str.isdigit, c)) for c in cells)
        if len(cells) > 3 and 2 * numbers >= len(cells):
            found.append("|".join(head).strip())
    return found


OPENINGS = re.compile(r"(?:What|Whether|Which|How|Where|When|The same)\b")


def docstrings(text: str) -> list[tuple[int, str]]:
    """Returns line and text of every string that stands by itself: docstrings, those of attributes too."""
    return [
        (node.lineno, node.value.value.strip())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
    ]


def clause_openings(text: str) -> list[str]:
    """Returns the first sentences of docstrings that open with a clause in place of a verb or a noun."""
    return [
        f"{line}: {string.splitlines()[0]}" for line, string in docstrings(text) if OPENINGS.match(string)
    ]


OURS = re.compile(
    r"\b(?:laws?|sits?|(?:has|have) (?:its|their) say|(?:is|are) told"
    r"|bears?|borne|lent|vouch(?:es)?|believed)\b",
    re.IGNORECASE,
)
"""Words that a reader does not expect; the usual ones are distribution, is at, is given, has, accepted."""


def own_words(text: str) -> list[str]:
    """Returns the sentences of a page that have words which its readers do not expect."""
    return [each for each in sentences(text) if OURS.search(each)]


def own_words_of_code(text: str) -> list[str]:
    """Returns the lines of docstrings that have such words."""
    return [
        f"{line + number}: {each.strip()}"
        for line, string in docstrings(text)
        for number, each in enumerate(string.splitlines())
        if OURS.search(each)
    ]


def code(text: str) -> list[str]:
    """Returns the lines of code, and of what it prints; formulas are set."""
    return [line for m in CODE.finditer(text) if m["fence"] != "$$" for line in m[0].splitlines()]


def page_opening(text: str) -> list[str]:
    """Returns the first sentence below the title where it opens with a clause and is no question."""
    first = next((s for s in sentences(re.sub(r"^# .*$", "", text, flags=re.MULTILINE))), "")
    return [first] if OPENINGS.match(first) and not first.endswith("?") else []


def over(path: str, text: str, kind: Kind) -> dict[str, list[str]]:
    """Returns what a page has beyond its limits, by the limit."""
    found = {
        "sentences": [
            f"{words(each)} words: {each}" for each in sentences(text) if words(each) > (kind.words or 1000)
        ],
        "width": [f"{len(line)} characters: {line}" for line in wide_lines(text, kind.width or 1000)],
        "code": [f"{len(line)} characters: {line}" for line in code(text) if len(line) > WIDTH],
        "tables": [] if kind.numbers else [f"a table of numbers: {head}" for head in measured_tables(text)],
        "opening": page_opening(text),
        "words": own_words(text),
    }
    return {limit: entries for limit, entries in found.items() if entries}


def pages() -> list[Path]:
    """Returns the pages that are held to limits."""
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *(ROOT / "experiments").glob("*.md"),
    ]


def faults() -> list[str]:
    """Returns a line for everything that is over its limit."""
    found = []
    for page in pages():
        path = page.relative_to(ROOT).as_posix()
        if kind := kind_of(path):
            limits = over(path, page.read_text("utf-8"), kind).values()
            found += [f"{path}: {each}" for entries in limits for each in entries]
    decisions = sum(1 for _ in (ROOT / "docs/decisions").glob("0*.md"))
    if decisions > DECISIONS:
        found.append(
            f"docs/decisions: {decisions} pages, expected at most {DECISIONS}; add to the page of the theme"
        )
    for source in sorted((ROOT / "src").rglob("*.py")):
        text = source.read_text("utf-8")
        found += [
            f"{source.relative_to(ROOT)}:{each}" for each in clause_openings(text) + own_words_of_code(text)
        ]
    return found


def counts() -> Iterator[str]:
    """Yields a line a page: lines, sentences, mean and longest sentence, widest line, limits passed."""
    for page in pages():
        path, text = page.relative_to(ROOT).as_posix(), page.read_text("utf-8")
        lengths = [words(each) for each in sentences(text)] or [0]
        widest = max(map(len, prose(text).splitlines()), default=0)
        kind = kind_of(path)
        beyond = (
            ", ".join(f"{k} {len(v)}" for k, v in over(path, text, kind).items()) if kind else "no limits"
        )
        yield (
            f"{path:45} {len(text.splitlines()):5} lines {len(lengths):4} sentences, "
            f"mean {sum(lengths) / len(lengths):4.1f}, longest {max(lengths):3}; widest {widest:3}; {beyond}"
        )


if __name__ == "__main__":
    lines = list(counts()) if "--count" in sys.argv[1:] else faults()
    print("\n".join(lines) or "words: every page and docstring is within its limits")
    sys.exit("--count" not in sys.argv[1:] and bool(lines))
