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
from datetime import datetime, time
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from harmonium.data.frame import LONG, Series, is_code, is_number

_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII)
_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{6})?", re.ASCII)
_CURRENCY = "[$€£¥]"
_AMOUNT = re.compile(rf"([+-]?)({_CURRENCY}?) ?([+-]?)([0-9][0-9.,]*|\.[0-9]+)(?: ?(%|{_CURRENCY}))?")
_DIGITS = {  # by the character before decimals; the other one stands between thousands
    ".": re.compile(r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+"),
    ",": re.compile(r"(?:[1-9][0-9]{0,2}(?:\.[0-9]{3})+|[0-9]+)(?:,[0-9]*)?"),
}
_DAY_OR_MONTH = tuple(
    f"{first}{mark}{second}{mark}{year}"
    for mark in "/-"
    for year in ("%Y", "%y")
    for first, second in (("%d", "%m"), ("%m", "%d"))
)
_DAYS = (
    *_DAY_OR_MONTH,
    *("%d.%m.%Y", "%d.%m.%y", "%Y/%m/%d", "%Y.%m.%d", "%Y-%m-%d", "%Y-%m", "%Y/%m"),
    *("%d %b %Y", "%d %B %Y", "%d %b %y", "%d-%b-%Y", "%d-%b-%y"),
    *("%b %d %Y", "%b %d, %Y", "%B %d %Y", "%B %d, %Y"),
)
_CLOCKS = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p")
_MOMENTS = (*_DAYS, *_CLOCKS, *(f"{day} {clock}" for day in _DAYS for clock in _CLOCKS))
_LONGEST = 40  # characters of a date and time at most
_NUMBERS = 0.8  # share of numbers among text from which on the others are asked about
_HALF, _WORDS = 0.5, 3  # the share from which on so few different words are
_SCALE = 20  # points of a scale at most
_LISTED = 5  # words at most that an answer lists
_POINT_OF_SCALE = re.compile(
    r"\d{1,2}\b\W*[^\W\d]"
)  # a number and its meaning, such as "1 - bad", is an answer
_SEVERAL = 2  # cells with one number of nines: a single one is as likely a slip


class Reading(NamedTuple):
    """One thing that the text of a column can stand for.

    Attributes:
        values: what the different cells stand for, in their order.
        sort: "numbers" or "times".
        how: what is written besides, or strptime's format.
        told: pandas' argument that this reading takes, by name; empty: it needs none.
    """

    values: Sequence[Any]
    sort: str
    how: str
    told: Mapping[str, Any]


def readings_of(cells: Sequence[str], decimal: str | None = None) -> list[Reading]:
    """Lists what all of some different cells of text can stand for; none where one of them stays text.

    Plain numbers stay text too: pandas has read those that are numbers where a point is ``decimal``.
    """
    return _amounts(cells, decimal) or _moments(cells)


def _amounts(cells: Sequence[str], decimal: str | None) -> list[Reading]:
    """Lists readings as numbers with a currency, a per cent sign or commas; per cent count in per cent."""
    found = [_AMOUNT.fullmatch(cell.strip()) for cell in cells]
    matches = [m for m in found if m is not None and not (m[1] and m[3])]
    signs = {m[2] + (m[5] or "") for m in matches} - {""}
    written = [m[4] for m in matches]
    plain = not signs and (any(map(is_code, written)) or (decimal != "," and all(map(is_number, written))))
    shares = any(m[5] == "%" for m in matches) and any(m[5] != "%" and m[4].strip("0,.") for m in matches)
    if not matches or len(matches) < len(found) or len(signs) > 1 or plain or shares:  # 0.7 beside 5%
        return []
    sign, readings = "".join(signs), list[Reading]()
    for mark, digits in _DIGITS.items():
        if all(map(digits.fullmatch, written)):
            thousands = "," if mark == "." else "."
            texts = [m[1] + m[3] + m[4].replace(thousands, "").replace(mark, ".") for m in matches]
            how = sign or f"{mark} before decimals"
            values = [*map(float, texts)]
            if max(map(abs, values)) < LONG:  # others name rows, and would be rounded
                readings.append(Reading(values, "numbers", how, {"decimal": mark}))
    if len(readings) == 2 and (readings[0].values == readings[1].values or (sign and sign in "$£¥")):
        return readings[:1]  # where dollars, pounds and yen are paid a point stands before decimals
    return readings


def _moments(cells: Sequence[str]) -> list[Reading]:
    """Lists readings as dates, times of day, or both."""
    first = cells[0].strip() if cells else ""
    if len(first) > _LONGEST or not any(map(str.isdecimal, first)):  # which rules most text out
        return []
    pandas, texts = import_module("pandas"), [cell.strip() for cell in cells]
    if all(map(_ISO.fullmatch, texts)):
        zoned = {text.endswith("Z") or bool(re.search(r":\d\d[+-]", text)) for text in texts}
        values = pandas.to_datetime(texts, format="ISO8601", errors="coerce", utc=True in zoned)
        return [] if values.isna().any() or len(zoned) > 1 else [Reading(values, "times", "ISO", {})]
    if all(map(_CLOCK.fullmatch, texts)):  # as Python writes times of day
        return [Reading([*map(time.fromisoformat, texts)], "times", "ISO", {})]
    readings = list[Reading]()
    for layout in (layout for layout in _MOMENTS if _fits(first, layout)):
        values = pandas.to_datetime(texts, format=layout, errors="coerce")
        if values.isna().any() or ("%y" in layout and values.max().year >= 2050):  # 68 may be 1968
            continue
        told = {"dayfirst": layout.startswith("%d")} if layout.startswith(_DAY_OR_MONTH) else {}
        values = values if "%d" in layout or "%m" in layout else values.time
        readings.append(Reading(values, "times", layout, told))
    if len(readings) == 2 and list(readings[0].values) == list(readings[1].values):
        return readings[:1]
    return readings


def _fits(cell: str, layout: str) -> bool:
    try:
        datetime.strptime(cell, layout)
    except ValueError:
        return False
    return True


def chosen_readings(
    frame: Any, told: Mapping[str, Any], text: Collection[str] = ()
) -> tuple[dict[str, Reading], dict[str, Any]]:
    """Returns the readings of a frame's columns of text by name, and the arguments that these agree on.

    Of two readings a column has the one with these arguments, or with those that other columns agree on.
    """
    columns = [name for name in frame.columns if name not in text and _is_text(frame[name])]
    found = {name: readings_of(_different(frame[name]), told.get("decimal")) for name in columns}
    agreed = dict[str, Any]()
    for argument in ("decimal", "dayfirst"):
        values = {
            x.told[argument] for one in found.values() if len(one) == 1 for x in one if argument in x.told
        }
        agreed |= {argument: values.pop()} if len(values) == 1 else {}
    agreed |= {argument: value for argument, value in told.items() if value is not None}
    chosen = dict[str, Reading]()
    for name, readings in found.items():
        fitting = (
            readings if len(readings) == 1 else [x for x in readings if x.told.items() <= agreed.items()]
        )
        chosen |= {name: fitting[0]} if len(fitting) == 1 else {}
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
    return with_readings(frame, chosen_readings(frame, {"decimal": decimal, "dayfirst": dayfirst})[0])


def with_readings(frame: Any, readings: Mapping[str, Reading]) -> Any:
    """Returns a pandas frame with columns as they are read."""
    columns = {
        name: frame[name].map(dict(zip(_different(frame[name]), x.values, strict=True)), na_action="ignore")
        for name, x in readings.items()
    }
    typed = {
        name: x.astype("Float64") if readings[name].sort == "numbers" else x for name, x in columns.items()
    }
    return frame.assign(**typed) if typed else frame


def _is_text(column: Any) -> bool:
    return str(column.dtype) in ("string", "str", "object")


def _different(column: Any) -> list[Any]:
    """Lists the different cells of a column of text; nothing where some cell is none."""
    cells = column.dropna().unique().tolist()
    return cells if all(isinstance(cell, str) for cell in cells) else []


# Questions
# ---------------------------------------------------------------------------------


def question_of(cells: Series) -> str | None:
    """Asks what a column stands for, with what to type; None: there is no doubt."""
    if cells.categories is not None or cells.form is not None:
        return None
    seen = cells.values[~cells.missing].tolist()
    if cells.numeric:
        return _code_among(seen) or _days_among(seen, cells.name)
    different = [*dict.fromkeys(seen)]
    if not different or not all(isinstance(value, str) for value in seen):
        return None
    readings = readings_of(different)
    if readings:
        tells = " or ".join(_typed(*item) for x in readings for item in x.told.items())
        if len(readings) > 1:
            doubt = (
                "the day or the month come first"
                if "dayfirst" in tells
                else "a comma or a point come before decimals"
            )
            return f"does {doubt} in {different[0]!r}? {tells} tells (in Python hm.data.as_types)"
        return f"{readings[0].sort} as text, such as {different[0]!r}; hm.data.as_types(frame) reads them"
    return None if any(map(is_code, different)) else _strays_among(seen, different)


def _strays_among(seen: Sequence[str], different: Sequence[str]) -> str | None:
    """Asks about the other cells of a column that holds numbers, amounts or times for the most part."""
    others, kind = [value for value in different if not is_number(value)], "numbers"
    if any(map(_POINT_OF_SCALE.match, others)) and len(different) <= _SCALE:
        return None
    words = [value for value in others if not any(map(str.isdigit, value))]
    if len(words) < len(others) and 0 < len(words) <= _WORDS:
        readings = readings_of([value for value in different if value not in words])
        others, kind = (words, readings[0].sort) if readings else (others, kind)
    known = frozenset(others)
    count = sum(value not in known for value in seen)
    if not others:  # codes, where they repeat
        names = 2 * len(different) <= len(seen) or any(_is_long(value) for value in different)
        return None if names else "numbers as text; .astype(float) makes numbers of them"
    if count <= (_HALF if len(others) <= _WORDS else _NUMBERS) * len(seen):
        return None
    listed = ", ".join(map(repr, others[:_LISTED])) + (", …" if len(others) > _LISTED else "")
    answer = f"{' '.join(_typed('na_values', word) for word in others[:_LISTED])} takes {listed} as missing"
    return f"{count} of {len(seen)} cells are {kind}, others are {listed}; {answer}"


def _is_long(cell: str) -> bool:
    return cell.strip().lstrip("+-").isdecimal() and abs(int(cell)) >= LONG


def _typed(argument: str, value: Any) -> str:
    """Returns an argument as it is typed on the command line."""
    written = str(value).lower() if isinstance(value, bool) else str(value)
    return f"--read {shlex.quote(f'{argument}={written}')}"


def _days_among(numbers: Sequence[float], name: object) -> str | None:
    """Asks whether numbers such as 20240301, all of which are days of a calendar, are dates."""
    texts = [f"{x:.15g}" for x in dict.fromkeys(numbers)]
    if len(texts) < _SEVERAL or not all(len(x) == 8 and x[:2] in ("19", "20") for x in texts):
        return None
    if not all(_fits(x, "%Y%m%d") for x in texts):
        return None
    answer = _typed("parse_dates", json.dumps([str(name)]))
    return f"numbers that are days, such as {texts[0]}; {answer} reads dates"


def _code_among(numbers: Sequence[float]) -> str | None:
    """Asks whether numbers such as -99 and 9999, which lie far from the others, stand for missing cells.

    Such are written in nines, stand in several cells, and lie further from the others than these from each
    other.
    """
    values, counts = np.unique(np.asarray(numbers, dtype=np.float64), return_counts=True)
    codes = dict[str, int]()
    while len(values) > 2:
        gaps = values[1] - values[0], values[-1] - values[-2]
        end = -int(gaps[1] > gaps[0])
        text, width = f"{values[end]:.15g}", values[-1] - values[0] - gaps[end]
        if {*text.lstrip("-")} != {"9"} or counts[end] < _SEVERAL or gaps[end] <= width:
            break
        codes[text] = int(counts[end])
        kept = slice(1, None) if end == 0 else slice(None, -1)
        values, counts = values[kept], counts[kept]
    if not codes:
        return None
    cells = " and ".join(f"{text} in {count} cells" for text, count in codes.items())
    return (
        f"{cells}, far from the others, {values[0]:.15g} to {values[-1]:.15g}; "
        f"{' '.join(_typed('na_values', code) for code in codes)} takes such as missing, a kind for the "
        "column takes it as a number"
    )
