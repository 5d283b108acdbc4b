"""Layouts: how text writes a number, a date or a time, as spreadsheets call it, such as ``dd/mm/yyyy``."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Self, final

_EPOCH = datetime(1970, 1, 1)
_DAY = 86_400_000_000  # microseconds
_MICROSECOND = timedelta(microseconds=1)
_CENTURY = 69  # years of two digits from here on are of the 20th century, as POSIX has it


class Layout(ABC):
    """A way to write a number, a date or a time as text."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the layout, such as "$#,##0.00" and "dd/mm/yyyy"."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """Unit of its numbers: "number", "date" (days), "datetime" or "time" (microseconds)."""

    @abstractmethod
    def read(self, cell: str) -> float | None:
        """Returns the number of a cell; None: it is written otherwise."""

    @abstractmethod
    def write(self, x: float) -> str:
        """Writes a number."""

    @classmethod
    @abstractmethod
    def of(cls, name: str) -> Self | None:
        """Returns the layout of a name; None: there is none."""

    @classmethod
    @abstractmethod
    def fitting(cls, cells: Sequence[str]) -> list[Self]:
        """Lists the layouts in which every cell of a column can be read."""


# Numbers
# ---------------------------------------------------------------------------------

_SIGN = r"[$€£¥]"
_AMOUNT = re.compile(rf"([+-]?)({_SIGN}?) ?([+-]?)([0-9][0-9.,]*|\.[0-9]+)( ?(?:%|{_SIGN}))?")
_BODIES = {  # digits as written, by the characters between thousands and before decimals
    ",.": re.compile(r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+"),
    ".,": re.compile(r"(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]+)(?:,[0-9]*)?"),
}
_NAME = re.compile(rf"({_SIGN}?)(#,##0|#\.##0|0)(?:([.,])(0+))?( ?(?:%|{_SIGN}))?")


@final
@dataclass(frozen=True)
class Amount(Layout):
    """A number with a currency, a per cent sign, or a character between thousands.

    A comma stands between thousands and a point before decimals, unless some cell can only be read the other
    way round. Per cent are counted in per cent.
    """

    prefix: str
    grouped: bool
    marks: str
    decimals: int
    suffix: str

    @property
    def unit(self) -> str:
        return "number"

    @property
    def name(self) -> str:
        whole = f"#{self.marks[0]}##0" if self.grouped else "0"
        return (
            f"{self.prefix}{whole}{self.marks[1] + '0' * self.decimals if self.decimals else ''}{self.suffix}"
        )

    @classmethod
    def of(cls, name: str) -> Amount | None:
        match = _NAME.fullmatch(name)
        if match is None or name == "0":
            return None
        prefix, whole, mark, zeros, suffix = match.groups("")
        marks = ".," if mark == "," or "." in whole else ",."
        if mark and mark == whole[1:2]:
            return None
        return cls(prefix, len(whole) > 1, marks, len(zeros), suffix)

    def read(self, cell: str) -> float | None:
        match = _AMOUNT.fullmatch(cell.strip())
        if match is None or (match[1] and match[3]) or not _BODIES[self.marks].fullmatch(match[4]):
            return None
        if match[2] not in ("", self.prefix) or (match[5] or "").strip() not in ("", self.suffix.strip()):
            return None
        return float(match[1] + match[3] + _plain(match[4], self.marks))

    def write(self, x: float) -> str:
        digits = f"{abs(x):,.{self.decimals}f}" if self.grouped else f"{abs(x):.{self.decimals}f}"
        minus = "-" if x < 0 and float(digits.replace(",", "")) else ""
        return f"{minus}{self.prefix}{digits.translate(str.maketrans(',.', self.marks))}{self.suffix}"

    @classmethod
    def fitting(cls, cells: Sequence[str]) -> list[Amount]:
        if not cells or _AMOUNT.fullmatch(cells[0].strip()) is None:  # which rules most text out
            return []
        found = [_AMOUNT.fullmatch(cell.strip()) for cell in cells]
        affixes = {(m[2], m[5] or "") for m in found if m is not None} - {("", "")}
        bodies = [m[4] for m in found if m is not None]
        bare = not affixes and not any("," in body for body in bodies)  # plain numbers need no layout
        if len(bodies) < len(found) or len(affixes) > 1 or bare:
            return []
        prefix, suffix = next(iter(affixes), ("", ""))
        for marks, body in _BODIES.items():
            if all(map(body.fullmatch, bodies)):
                grouped = any(marks[0] in each for each in bodies)
                decimals = max(len(each.partition(marks[1])[2]) for each in bodies)
                return [cls(prefix, grouped, marks, decimals, suffix)]
        return []


def _plain(body: str, marks: str) -> str:
    return body.replace(marks[0], "").replace(marks[1], ".")


# Dates and times
# ---------------------------------------------------------------------------------

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
_FIELDS = {  # what a field looks like; days, months and hours may lack their zero, whatever the layout says
    **{"yyyy": "[0-9]{4}", "yy": "[0-9]{2}", "mm": "[0-9]{1,2}", "m": "[0-9]{1,2}", "dd": "[0-9]{1,2}"},
    **{"d": "[0-9]{1,2}", "hh": "[0-9]{1,2}", "h": "[0-9]{1,2}", "ss": "[0-9]{2}", "AM/PM": "[AP]M"},
    **{"mmmm": "|".join(_MONTHS), "mmm": "|".join(x[:3] for x in _MONTHS)},
}
_TOKEN = re.compile("AM/PM|yyyy|yy|mmmm|mmm|mm|m|dd|d|hh|h|ss|.", re.DOTALL)
_BETWEEN = frozenset(" /-.:,T")
_KINDS = ({"d", "m", "y"}, {"m", "y"}, set[str]())  # of the fields of a day
_DAYS = (
    *(f"{x}{mark}{z}{mark}{year}" for mark in "/-" for year in ("yyyy", "yy") for x, z in ("dm", "md")),
    *("d.m.yyyy", "d.m.yy", "yyyy/m/d", "yyyy.m.d", "yyyy-m-d", "yyyy-mm", "yyyy/mm"),
    *("d mmm yyyy", "d mmmm yyyy", "d-mmm-yyyy", "d-mmm-yy", "d mmm yy"),
    *("mmm d yyyy", "mmm d, yyyy", "mmmm d yyyy", "mmmm d, yyyy"),
)
_CLOCKS = ("h:mm", "h:mm:ss", "h:mm AM/PM", "h:mm:ss AM/PM")
_NAMES = (*_DAYS, *_CLOCKS, *(f"{day} {clock}" for day in _DAYS for clock in _CLOCKS))
_LONGEST = 40  # characters of a date and time at most


@cache
def _parts(name: str) -> tuple[tuple[str, str], ...]:
    """Splits a layout into its fields, each behind its kind, and what stands between, behind no kind.

    Kinds are y, m, d, h, n (minutes), s and p (AM or PM).
    """
    parts = list[tuple[str, str]]()
    fields = [""]
    for token in _TOKEN.findall(name):
        kind = "" if token not in _FIELDS else "p" if token == "AM/PM" else token[0]
        kind = "n" if kind == "m" and fields[-1] == "h" else kind
        parts.append((kind, token))
        fields += [kind] * bool(kind)
    return tuple(parts)


@cache
def _pattern(name: str) -> re.Pattern[str]:
    fields = (
        f"({'[0-9]{2}' if kind == 'n' else _FIELDS[token]})" if kind else re.escape(token)
        for kind, token in _parts(name)
    )
    return re.compile("".join(fields), re.IGNORECASE)


@final
@dataclass(frozen=True)
class Moment(Layout):
    """A date, a time of day, or both.

    Args:
        name: Made of d, dd, m, mm, mmm, mmmm, yy, yyyy, h, hh, mm behind h, ss and AM/PM.
    """

    name: str = ""

    @property
    def unit(self) -> str:
        clock = "h" in self.name
        return "time" if "y" not in self.name else "datetime" if clock else "date"

    @classmethod
    def of(cls, name: str) -> Moment | None:
        kinds = [kind for kind, _ in _parts(name) if kind]
        between = {token for kind, token in _parts(name) if not kind}
        day, clock = {*kinds} & {*"ymd"}, {*kinds} & {*"hnsp"}
        whole = day in _KINDS and (not clock or {"h", "n"} <= clock)
        return cls(name) if kinds and whole and len({*kinds}) == len(kinds) and between <= _BETWEEN else None

    def read(self, cell: str) -> float | None:
        match = _pattern(self.name).fullmatch(cell.strip())
        if match is None:
            return None
        kinds = (kind for kind, _ in _parts(self.name) if kind)
        x = dict(zip(kinds, match.groups(), strict=True))
        year, hour, month = int(x.get("y", 1970)), int(x.get("h", 0)), x.get("m", "1")
        if len(x.get("y", "1970")) == 2:
            year += 1900 if year >= _CENTURY else 2000
        if "p" in x:
            hour = hour % 12 + 12 * (x["p"].lower() == "pm") if 1 <= hour <= 12 else 24
        months = [each[:3] for each in _MONTHS]
        try:
            number = int(month) if month.isdecimal() else 1 + months.index(month[:3].title())
            moment = datetime(year, number, int(x.get("d", 1)), hour, int(x.get("n", 0)), int(x.get("s", 0)))
        except ValueError:
            return None
        return float(moment.toordinal()) if self.unit == "date" else (moment - _EPOCH) / _MICROSECOND

    def write(self, x: float) -> str:
        if self.unit == "date":
            moment = datetime.fromordinal(round(min(max(x, 1), datetime.max.toordinal())))
        else:
            step = timedelta(seconds=1 if "s" in self.name else 60)
            latest = _EPOCH + timedelta(days=1) if self.unit == "time" else datetime.max
            earliest = _EPOCH if self.unit == "time" else datetime.min
            low, high = ((end - _EPOCH) // step for end in (earliest, latest))
            moment = _EPOCH + min(max(round(x / (step / _MICROSECOND)), low), high - 1) * step
        return "".join(_field(moment, *part, "AM/PM" in self.name) for part in _parts(self.name))

    @classmethod
    def fitting(cls, cells: Sequence[str]) -> list[Moment]:
        first = cells[0].strip() if cells else ""
        if len(first) > _LONGEST or not any(map(str.isdecimal, first)):  # which rules most text out
            return []
        able = [cls(name) for name in _NAMES if _pattern(name).fullmatch(first)]
        return [cls(_padded(x.name, cells)) for x in able if all(x.read(cell) is not None for cell in cells)]


def _field(moment: datetime, kind: str, token: str, half: bool) -> str:
    """Writes one part of a layout, hours from 1 to 12 in half days."""
    if kind == "m" and len(token) > 2:
        return _MONTHS[moment.month - 1][: None if token == "mmmm" else 3]
    if kind == "p":
        return "AM" if moment.hour < 12 else "PM"
    if not kind:
        return token
    numbers = {"y": moment.year, "m": moment.month, "d": moment.day, "n": moment.minute, "s": moment.second}
    number = numbers.get(kind, (moment.hour - 1) % 12 + 1 if half else moment.hour)
    return f"{number % 100 if token == 'yy' else number:0{len(token)}d}"


def _padded(name: str, cells: Sequence[str]) -> str:
    """Returns a layout with zeros in front of days, months and hours, where no cell lacks one."""
    found = [_pattern(name).fullmatch(cell.strip()) for cell in cells]
    kinds = [kind for kind, _ in _parts(name) if kind]
    texts = {kind: [m[i + 1] for m in found if m is not None] for i, kind in enumerate(kinds)}
    day = [text for kind in "dm" for text in texts.get(kind, ()) if text.isdecimal()]
    short = {kind for kind, own in (("dm", day), ("h", texts.get("h", []))) if any(len(x) < 2 for x in own)}
    parts = (
        token * 2
        if len(token) == 1 and kind in ("d", "m", "h") and not any(kind in x for x in short)
        else token
        for kind, token in _parts(name)
    )
    return "".join(parts)


# Both
# ---------------------------------------------------------------------------------


def layout_of(name: str) -> Layout | None:
    """Returns the layout of a name; None: there is none."""
    return Amount.of(name) or Moment.of(name)


def fitting_layouts(cells: Sequence[str]) -> list[Layout]:
    """Lists the layouts of a column: none of other text, several where day and month are not decided."""
    return [*Amount.fitting(cells), *Moment.fitting(cells)]
