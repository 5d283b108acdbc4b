"""Forms of cells: dates, times and written numbers as numbers, and back.

Dates are counted in days, times in microseconds, amounts such as $1,000 as they are. A form is "date",
"datetime" and the like for values of such types, "text date" for ISO text, and else "text " and the name of a
layout (``harmonium.data._layouts``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Any

import numpy as np

from harmonium.data._layouts import Amount, Layout, fitting_layouts, layout_of
from harmonium.data.transforms import Array

_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?")
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1)
_DAY = 86_400_000_000  # microseconds
_STEPS = (_DAY, 3_600_000_000, 60_000_000, 1_000_000, 1000, 1)  # a day, an hour, a minute, … in microseconds
_DECIMALS = 4  # at most that cells are rounded to: measures have fewer, and sums of these rarely more


def _to_datetime(x: Any) -> float:
    epoch = _EPOCH if x.tzinfo is None else _EPOCH.replace(tzinfo=UTC)
    return float((x - epoch) / _MICROSECOND)


def _from_datetime(x: float) -> datetime:
    low, high = _to_datetime(datetime.min), _to_datetime(datetime.max)
    return _EPOCH + timedelta(microseconds=round(min(max(x, low), high)))


def _from_date(x: float) -> date:
    return date.fromordinal(round(min(max(x, 1), date.max.toordinal())))


def _from_time(x: float) -> time:
    return (_EPOCH + timedelta(microseconds=round(min(max(x, 0), _DAY - 1)))).time()


_BACK: dict[str, Callable[[float], Any]] = {
    "date": _from_date,
    "datetime": _from_datetime,
    "datetime UTC": lambda x: _from_datetime(x).replace(tzinfo=UTC),
    "time": _from_time,
    "duration": lambda x: timedelta(microseconds=round(x)),
    "text date": lambda x: _from_date(x).isoformat(),
    "text datetime": lambda x: _from_datetime(x).isoformat(" "),
    "text datetimeT": lambda x: _from_datetime(x).isoformat(),
    "text datetime UTC": lambda x: _from_datetime(x).replace(tzinfo=UTC).isoformat(" "),
    "text datetimeT UTC": lambda x: _from_datetime(x).replace(tzinfo=UTC).isoformat(),
}
_TEXT = "text "  # in front of the forms of text


def check_form(form: object) -> None:
    """Refuses what is no form.

    Raises:
        ValueError: there is no such form.
    """
    if form not in _BACK and (not isinstance(form, str) or layout_in(form) is None):
        raise ValueError(
            f"form: expected {', '.join(_BACK)}, or a layout such as 'text dd/mm/yyyy', received {form!r}"
        )


@cache
def layout_in(form: str) -> Layout | None:
    """Returns the layout of a form of text; None: it is another form."""
    return None if form in _BACK or not form.startswith(_TEXT) else layout_of(form.removeprefix(_TEXT))


def layouts_of(values: Sequence[Any]) -> dict[str, Layout]:
    """Returns the layouts of a column of text by their forms: several where day and month are not decided."""
    if not all(isinstance(value, str) for value in values):
        return {}
    return {_TEXT + layout.name: layout for layout in fitting_layouts([*dict.fromkeys(values)])}


def is_time(value: object) -> bool:
    """Returns whether a cell is a date, a time or a duration of Python's own or of pandas."""
    return isinstance(value, (date, time, timedelta))


def form_of(values: Sequence[Any]) -> str | None:
    """Returns the form of the dates, times or amounts that all cells of a column hold; None for others.

    Text has to be in the ISO form, such as 2024-03-01 and 2024-03-01 10:30, or in the one layout that every
    cell fits: None too where day and month are not decided.
    """
    forms = {_form(value) for value in values[:1]} - {None}  # a look that rules most columns out
    forms = {_form(value) for value in dict.fromkeys(values)} if forms else set()
    if forms == {"text date", "text datetime"}:
        return "text datetime"
    if len(forms) == 1 and None not in forms:
        return forms.pop()
    written = layouts_of(values)
    return next(iter(written)) if len(written) == 1 else None


def _form(value: Any) -> str | None:
    if isinstance(value, str):
        if not _ISO.fullmatch(value) or (moment := _parsed(value)) is None:
            return None
        zone = "" if moment.tzinfo is None else " UTC"
        return "text date" if len(value) == 10 else f"text datetime{value[10].strip()}{zone}"
    if isinstance(value, datetime):
        return "datetime" if value.tzinfo is None else "datetime UTC"
    kinds: dict[str, type] = {"date": date, "time": time, "duration": timedelta}
    return next((name for name, kind in kinds.items() if isinstance(value, kind)), None)


def _parsed(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def to_numbers(values: Sequence[Any], form: str) -> Array:
    """Returns the numbers of dates or times, (rows,) float64; NaN for None and what is in no such form."""
    return np.array([_number(value, form) for value in values], dtype=np.float64)


def _number(value: Any, form: str) -> float:
    layout = layout_in(form)
    if layout is not None:
        return _read(layout, value)
    if isinstance(value, str):
        value = _parsed(value.strip())
    days = form in ("date", "text date")
    if isinstance(value, datetime):
        if days:
            return float(value.toordinal())
        if "datetime" not in form or (value.tzinfo is None) == form.endswith(" UTC"):
            return math.nan
        return _to_datetime(value)
    if isinstance(value, date):
        if days:
            return float(value.toordinal())
        return _to_datetime(datetime(value.year, value.month, value.day)) if "datetime" in form else math.nan
    if isinstance(value, time) and form == "time":
        return _to_datetime(datetime.combine(_EPOCH.date(), value.replace(tzinfo=None)))
    if isinstance(value, timedelta) and form == "duration":
        return value / _MICROSECOND
    return math.nan


def _read(layout: Layout, value: Any) -> float:
    if not isinstance(value, str):  # plain numbers among amounts
        plain = isinstance(layout, Amount) and isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(value) if plain else math.nan
    number = layout.read(value)
    return math.nan if number is None else number


def from_numbers(x: Array, form: str) -> Array:
    """Returns the cells of a form, (rows,) objects, of numbers; None for NaN. Years end at 1 and 9999."""
    cells, layout = np.empty(len(x), dtype=object), layout_in(form)
    back = _BACK[form] if layout is None else layout.write
    cells[:] = [None if math.isnan(value) else back(value) for value in x.tolist()]
    return cells


def step_of(x: Array, form: str | None) -> float | None:
    """Returns a step of which all numbers are multiples: 1 of whole ones, a day, an hour and so on of times.

    Of other numbers it is a power of a tenth, where all have few decimals.

    Args:
        x: Finite numbers, (rows,).
        form: Form of the cells that they stand for; None: they are numbers.
    """
    steps = _STEPS if form is not None and unit_of(form) not in ("number", "date") else (1,)
    whole = next((float(step) for step in steps if not (x % step).any()), None)
    if whole is not None or (form is not None and unit_of(form) != "number"):
        return whole
    decimals = range(1, _DECIMALS + 1)
    return next((10.0**-number for number in decimals if (np.round(x, number) == x).all()), None)


def unit_of(form: str) -> str:
    """Returns what the numbers of a form count: "number", "date" (days), "datetime", "time" or "duration"."""
    layout = layout_in(form)
    if layout is not None:
        return layout.unit
    return next(unit for unit in ("datetime", "date", "time", "duration") if unit in form)
