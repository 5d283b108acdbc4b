"""Text that stands for something else: amounts, dates and times with one reading are read, doubts are asked.

pandas reads numbers, and leaves the rest of a file as text. ``as_types`` looks at that text a column at a
time. A column of which some cell has no such reading stays as it is; one with two readings, such as day and
month or decimals and thousands, does too, and ``question_of`` asks for the argument that tells.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from datetime import time
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from harmonium.data.frame import LONG, Series, is_code, is_number

_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII)
_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{6})?", re.ASCII)
# What stands between thousands alone, and is a space in all that follows: hard, narrow and thin spaces.
_HARD = dict.fromkeys(map(ord, "\u202f\u2009'’"), "\u00a0")
_CURRENCY = "[$€£¥₹]"
_AMOUNT = re.compile(
    rf"(\()?([+-]?)({_CURRENCY}|[A-Z]{{3}}[ \u00a0])?[ \u00a0]?([+-]?)"
    rf"([0-9](?:[0-9.,\u00a0]*[0-9.,])?|\.[0-9]+)(?:[ \u00a0]?(%|{_CURRENCY}|[^\W\d_]{{1,3}}))?(?(1)\))"
)
_DIGITS = {  # by the character before decimals; the other one, or a hard space, stands between thousands
    ".": re.compile(r"(?:[1-9][0-9]{0,2}([,\u00a0])[0-9]{3}(?:\1[0-9]{3})*|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+"),
    ",": re.compile(r"(?:[1-9][0-9]{0,2}([.\u00a0])[0-9]{3}(?:\1[0-9]{3})*|[0-9]+)(?:,[0-9]*)?"),
}
_DAY_OR_MONTH = tuple(
    f"{first}{mark}{second}{mark}{year}"
    for mark in "/-"
    for year in ("%Y", "%y")
    for first, second in (("%d", "%m"), ("%m", "%d"))
)
_DAYS = (
    *("", *_DAY_OR_MONTH),
    *("%d.%m.%Y", "%d.%m.%y", "%Y/%m/%d", "%Y.%m.%d", "%Y-%m-%d", "%Y-%m", "%Y/%m"),
    *("%d %b %Y", "%d %B %Y", "%d %b %y", "%d-%b-%Y", "%d-%b-%y"),
    *("%b %d %Y", "%b %d, %Y", "%B %d %Y", "%B %d, %Y"),
)
_CLOCKS = ("", "%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p")
_SHAPES = (
    (re.compile("%[bBp]"), "a"),
    (re.compile("%[a-zA-Z]|[0-9]+"), "0"),
    (re.compile(r"[^\W\d_]+"), "a"),
)


def _shape(text: str) -> str:
    """Returns a text, or a layout of strptime, with a for each word and 0 for each number."""
    for part, mark in _SHAPES:
        text = part.sub(mark, text)
    return text


_LAYOUTS = dict[str, list[str]]()  # of dates and times, by the shape of their cells
for _layout in (f"{day} {clock}".strip() for day in _DAYS for clock in _CLOCKS):
    _LAYOUTS.setdefault(_shape(_layout), []).append(_layout)
# The last year that dates have stands for a day that is not known, or never comes.
_NEVER = re.compile(r"(?<![0-9])(?<!:[0-9]{2}\.)9999(?![0-9])")
_NUMBERS = 0.8  # share of numbers among text from which on the others are asked about
_HALF, _WORDS = 0.5, 3  # the share from which on so few different words are
_SCALE = 20  # points of a scale at most
_LISTED = 5  # words at most that an answer lists
# A number and its meaning, such as "1 - bad", is an answer.
_POINT_OF_SCALE = re.compile(r"\d{1,2}\b\W*[^\W\d]")
_NINES = {10.0**digits - 1 for digits in range(1, 16)}
_SEVERAL = 2  # cells with one number of nines: a single one is as likely a slip


class Reading(NamedTuple):
    """One thing that the text of a column can stand for.

    Attributes:
        values: what the different cells stand for, in their order.
        sort: "numbers" or "times".
        how: what is written besides, or strptime's format.
        arguments: those of pandas that this reading takes, by name; it may need none. "dtype" stands among
            them where the cells may as well be names, such as USD 5 and (1.50).
    """

    values: Sequence[Any]
    sort: str
    how: str
    arguments: Mapping[str, Any]


def readings_of(cells: Sequence[str], plain: bool = False) -> list[Reading]:
    """Lists what all of some different cells of text can stand for; none where one of them stays text.

    Plain numbers stay text too, unless ``plain``: pandas has read those.
    """
    return _amounts(cells, plain) or _moments(cells)


def _amounts(cells: Sequence[str], plain: bool) -> list[Reading]:
    """Lists readings as numbers with a currency, a per cent sign or commas; per cent count in per cent."""
    matches = list[re.Match[str]]()
    for cell in cells:
        match = _AMOUNT.fullmatch(cell.strip().translate(_HARD))
        if match is None or sum(map(bool, match.group(1, 2, 4))) > 1:
            return []
        matches.append(match)
    signs = {(m[3] or "").strip() + (m[6] or "") for m in matches} - {""}
    written, brackets = [m[5] for m in matches], any(m[1] for m in matches)
    bare = not signs and not brackets
    text = bare and (any(map(is_code, written)) or (not plain and all(map(is_number, written))))
    mixes_per_cent = any(m[6] == "%" for m in matches) and any(
        m[6] != "%" and m[5].strip("0,.") for m in matches
    )
    if not matches or len(signs) > 1 or text or mixes_per_cent:  # 0.7 beside 5%
        return []
    sign, readings = "".join(signs), list[Reading]()
    named = {"dtype": "float"} if brackets or sign.isalpha() else {}
    for mark, digits in _DIGITS.items():
        if all(map(digits.fullmatch, written)):
            bare_of = str.maketrans({",": None, ".": None, "\u00a0": None, mark: "."})
            signed = [("-" if m[1] else m[2] + m[4]) + m[5].translate(bare_of) for m in matches]
            values = [*map(float, signed)]
            if max(map(abs, values)) < LONG:  # others name rows, and would be rounded
                how = sign or ("()" if brackets else f"{mark} before decimals")
                readings.append(Reading(values, "numbers", how, {"decimal": mark, **named}))
    if len(readings) == 2 and readings[0].values == readings[1].values:
        return [readings[0]._replace(arguments=named)]
    # Where dollars, pounds and yen are paid a point stands before decimals.
    return readings[:1] if sign in {"$", "£", "¥"} else readings


def _moments(cells: Sequence[str]) -> list[Reading]:
    """Lists readings as dates, times of day, or both."""
    first = " ".join(cells[0].split()) if cells else ""
    layouts = _LAYOUTS.get(_shape(first), ())
    if not (layouts or _ISO.fullmatch(first) or _CLOCK.fullmatch(first)) or any(map(_NEVER.search, cells)):
        return []
    pandas, texts = import_module("pandas"), [" ".join(cell.split()) for cell in cells]
    if all(map(_ISO.fullmatch, texts)):
        zoned = {text.endswith("Z") or bool(re.search(r":\d\d[+-]", text)) for text in texts}
        values = pandas.to_datetime(texts, format="ISO8601", errors="coerce", utc=True in zoned)
        return [] if values.isna().any() or len(zoned) > 1 else [Reading(values, "times", "ISO", {})]
    if all(map(_CLOCK.fullmatch, texts)):  # as Python writes times of day
        return [Reading([*map(time.fromisoformat, texts)], "times", "ISO", {})]
    readings = list[Reading]()
    for layout in layouts:
        values = pandas.to_datetime(texts, format=layout, errors="coerce")
        if values.isna().any() or ("%y" in layout and values.max().year >= 2050):  # 68 may be 1968
            continue
        arguments = {"dayfirst": layout.startswith("%d")} if layout.startswith(_DAY_OR_MONTH) else {}
        values = values if "%d" in layout or "%m" in layout else values.time
        readings.append(Reading(values, "times", layout, arguments))
    if len(readings) == 2 and list(readings[0].values) == list(readings[1].values):
        return readings[:1]
    return readings


def chosen_readings(
    texts: Mapping[Any, Sequence[str]], arguments: Mapping[str, Any], numbers: Collection[Any] = ()
) -> tuple[dict[Any, Reading], dict[str, Any]]:
    """Returns the readings of columns by name, and the arguments that these agree on.

    Of two readings a column has the one with these arguments, or with those that other columns agree on.

    Args:
        texts: the different cells of columns.
        arguments: those called "decimal" and "dayfirst" as given, None where they are not.
        numbers: Names of columns whose given type is float.
    """
    by_column = {
        name: [
            x
            for x in readings_of(cells, name in numbers or arguments.get("decimal") == ",")
            if name in numbers or "dtype" not in x.arguments
        ]
        for name, cells in texts.items()
    }
    agreed = dict[str, Any]()
    for argument in ("decimal", "dayfirst"):
        values = {
            x.arguments[argument]
            for (x, *more) in filter(None, by_column.values())
            if not more and argument in x.arguments
        }
        agreed |= {argument: values.pop()} if len(values) == 1 else {}
    agreed |= {argument: value for argument, value in arguments.items() if value is not None}
    chosen = dict[Any, Reading]()
    for name, readings in by_column.items():
        if len(readings) > 1:
            readings = [x for x in readings if x.arguments.items() <= {**agreed, "dtype": "float"}.items()]
        chosen |= {name: readings[0]} if len(readings) == 1 else {}
    return chosen, agreed


def as_types(frame: Any, *, decimal: str | None = None, dayfirst: bool | None = None) -> Any:
    """Returns a pandas frame in which text with one reading is numbers, dates or times.

    Numbers with a currency, a per cent sign (they count in per cent) or marks between thousands; dates and
    times in the ISO form, or in one layout that every cell fits, such as 31/12/2024 and 9:30 PM.

    Args:
        frame: a pandas frame.
        decimal: what stands before decimals, "." or ",", where cells can be read both ways.
        dayfirst: whether the day comes before the month, likewise.

    Examples:
        >>> import pandas
        >>> import harmonium as hm
        >>> hm.data.as_types(pandas.DataFrame({"cost": ["$1,200.50", "$5"]}))["cost"].tolist()
        [1200.5, 5.0]
    """
    texts = texts_of(frame)
    return with_readings(frame, texts, chosen_readings(texts, {"decimal": decimal, "dayfirst": dayfirst})[0])


def with_readings(frame: Any, texts: Mapping[Any, Sequence[str]], readings: Mapping[Any, Reading]) -> Any:
    """Returns a pandas frame with columns as they are read, of which ``texts`` are the different cells."""
    typed = dict[Any, Any]()
    for name, reading in readings.items():
        cells = frame[name].map(dict(zip(texts[name], reading.values, strict=True)), na_action="ignore")
        typed[name] = cells.astype("Float64") if reading.sort == "numbers" else cells
    return frame.assign(**typed) if typed else frame


def texts_of(frame: Any) -> dict[Any, list[str]]:
    """Returns the different cells of each column of text of a pandas frame, but for missing ones."""
    kind = import_module("pandas").api.types.infer_dtype
    objects = [name for name, dtype in frame.dtypes.items() if dtype.kind == "O"]
    columns = {name: frame[name] for name in objects if kind(frame[name], skipna=True) == "string"}
    return {
        name: [cell for cell in dict.fromkeys(column.tolist()) if isinstance(cell, str)]
        for name, column in columns.items()
    }


# Questions
# ---------------------------------------------------------------------------------

_DOUBTS = {
    "dayfirst": "does the day or the month come first",
    "decimal": "does a comma or a point come before decimals",
}


def question_of(cells: Series) -> str | None:
    """Asks what a column stands for, with what to type; None: there is no doubt."""
    if cells.categories is not None or cells.form is not None:
        return None
    seen = cells.values[~cells.missing].tolist()
    if cells.numeric:
        return _code_among(seen) or _days_among(seen, cells.name)
    different = [*dict.fromkeys(seen)]
    if not different or not all(isinstance(value, str) for value in different):
        return None
    readings = readings_of(different)
    if not readings:
        spaced = readings_of([value.replace(" ", "\u00a0") for value in different])
        if spaced and spaced[0].sort == "numbers":
            marks = {
                "thousands": " ",
                **({"decimal": ","} if spaced[0].arguments.get("decimal") == "," else {}),
            }
            answer = " ".join(_typed(*mark) for mark in marks.items())
            return f"numbers with spaces as text, such as {different[0]!r}; {answer} reads them as numbers"
        return None if any(map(is_code, different)) else _strays_among(seen, different)
    arguments, how = readings[0].arguments, readings[0].how
    if len(readings) > 1:
        argument = next(iter(arguments))
        tells = " or ".join(_typed(argument, x.arguments[argument]) for x in readings)
        return f"{_DOUBTS[argument]} in {different[0]!r}? {tells} tells (in Python hm.data.as_types)"
    if "dtype" in arguments:
        answer = _typed("dtype", {str(cells.name): arguments["dtype"]})
        return f"numbers beside {how!r} as text, such as {different[0]!r}; {answer} reads them as numbers"
    return f"{readings[0].sort} as text, such as {different[0]!r}; hm.data.as_types(frame) reads them"


def _strays_among(seen: Sequence[str], different: Sequence[str]) -> str | None:
    """Asks about the other cells of a column that holds numbers, amounts or times for the most part."""
    others, kind = [value for value in different if not is_number(value)], "numbers"
    if any(map(_POINT_OF_SCALE.match, others)) and len(different) <= _SCALE:
        return None
    never = [*filter(_NEVER.search, others)]
    words = [*(value for value in others if not any(map(str.isdigit, value))), *never]
    if len(words) < len(others) and 0 < len(words) <= _WORDS:
        readings = readings_of([value for value in different if value not in words])
        others, kind = (words, readings[0].sort) if readings else (others, kind)
    if not others:  # codes, where they repeat
        names = 2 * len(different) <= len(seen) or any(abs(float(value)) >= LONG for value in different)
        return None if names else "numbers as text; .astype(float) makes numbers of them"
    stray = frozenset(others)
    count = sum(value not in stray for value in seen)
    least_share = 0 if never and others == words else _HALF if len(others) <= _WORDS else _NUMBERS
    if count <= least_share * len(seen):
        return None
    listed = ", ".join(map(repr, others[:_LISTED])) + (", …" if len(others) > _LISTED else "")
    answer = f"{' '.join(_typed('na_values', word) for word in others[:_LISTED])} takes {listed} as missing"
    return f"{count} of {len(seen)} cells are {kind}, others are {listed}; {answer}"


def _typed(argument: str, value: Any) -> str:
    """Returns an argument as it is typed on the command line."""
    return f"--read {shlex.quote(f'{argument}={value if isinstance(value, str) else json.dumps(value)}')}"


def _days_among(numbers: Sequence[float], name: object) -> str | None:
    """Asks whether numbers such as 20240301, all of which are days of a calendar, are dates."""
    if not numbers or min(numbers) < 19_000_000 or max(numbers) >= 21_000_000:
        return None
    texts = [f"{x:.15g}" for x in dict.fromkeys(numbers)]
    if len(texts) < _SEVERAL:
        return None
    if import_module("pandas").to_datetime(texts, format="%Y%m%d", errors="coerce").isna().any():
        return None
    answer = _typed("parse_dates", [str(name)])
    return f"numbers that are days, such as {texts[0]}; {answer} reads dates"


def _code_among(numbers: Sequence[float]) -> str | None:
    """Asks whether numbers such as -99 and 9999, which lie far from the others, stand for missing cells.

    Such are written in nines, stand in several cells, and lie further from the others than these from each
    other.
    """
    values, counts = np.unique(np.asarray(numbers, dtype=np.float64), return_counts=True)
    nines = {x: n for x, n in zip(values.tolist(), counts, strict=True) if abs(x) in _NINES and n >= _SEVERAL}
    others = [x for x in values.tolist() if x not in nines] if nines else []
    if len(others) < 2:
        return None
    low, high, width = others[0], others[-1], others[-1] - others[0]
    codes = [f"{x:.15g}" for x in nines if x < low - width or x > high + width]
    if not codes:
        return None
    cells = " and ".join(f"{code} in {nines[float(code)]} cells" for code in codes)
    return (
        f"{cells}, far from the others, {low:.15g} to {high:.15g}; "
        f"{' '.join(_typed('na_values', code) for code in codes)} takes such as missing, a kind for the "
        "column takes it as a number"
    )
