"""Dates, times and durations as numbers, and back.

Dates are counted in days, other moments in microseconds. A form is "date", "datetime", "datetime UTC", "time"
or "duration", by the type of the cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import numpy as np

from harmonium import _checks
from harmonium.data.transforms import Array

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1)
_DAY = 86_400_000_000  # microseconds
_KINDS: dict[str, type] = {"date": date, "time": time, "duration": timedelta}
TIMES = tuple(_KINDS.values())
"""Types of cells that are dates, times or durations, of Python's own or of pandas."""
_STEPS = (_DAY, 3_600_000_000, 60_000_000, 1_000_000, 1000, 1)  # a day, an hour, a minute, … in microseconds
_DECIMALS = 4  # at most that cells are rounded to: measures have fewer, and sums of these rarely more


def _to_datetime(x: datetime) -> float:
    epoch = _EPOCH if x.tzinfo is None else _EPOCH.replace(tzinfo=UTC)
    return (x - epoch) / _MICROSECOND


def _from_datetime(x: float) -> datetime:
    low, high = _to_datetime(datetime.min), _to_datetime(datetime.max)
    return _EPOCH + timedelta(microseconds=round(min(max(x, low), high)))


_BACK: dict[str, Callable[[float], Any]] = {
    "date": lambda x: date.fromordinal(round(min(max(x, 1), date.max.toordinal()))),
    "datetime": _from_datetime,
    "datetime UTC": lambda x: _from_datetime(x).replace(tzinfo=UTC),
    "time": lambda x: _from_datetime(min(max(x, 0), _DAY - 1)).time(),
    "duration": lambda x: timedelta(microseconds=round(x)),
}


def check_form(form: object) -> None:
    """Refuses what is no form.

    Raises:
        ValueError: there is no such form.
    """
    _checks.one_of(form, "form", _BACK)


def form_of(values: Sequence[Any]) -> str | None:
    """Returns the form of the dates or times that all cells of a column hold; None for others."""
    forms = {_form(value) for value in values[:1]} - {None}  # a look that rules most columns out
    forms = {_form(value) for value in values} if forms else set()
    return forms.pop() if len(forms) == 1 else None


def _form(value: Any) -> str | None:
    if isinstance(value, datetime):
        return "datetime" if value.tzinfo is None else "datetime UTC"
    return next((name for name, kind in _KINDS.items() if isinstance(value, kind)), None)


def to_numbers(values: Sequence[Any], form: str) -> Array:
    """Returns the numbers of dates or times, (rows,) float64; NaN for None and what is in no such form.

    ISO text, such as 2024-03-01 10:30, is read too.
    """
    return np.array([_number(value, form) for value in values], dtype=np.float64)


def _number(value: Any, form: str) -> float:
    if isinstance(value, str):
        kind = time if form == "time" else datetime
        try:
            value = kind.fromisoformat(value.strip())
        except ValueError:
            return math.nan
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):
        if form == "date":
            return float(value.toordinal())
        zoned = value.tzinfo is not None
        return _to_datetime(value) if form == ("datetime UTC" if zoned else "datetime") else math.nan
    if isinstance(value, time) and form == "time":
        return _to_datetime(datetime.combine(_EPOCH.date(), value.replace(tzinfo=None)))
    return value / _MICROSECOND if isinstance(value, timedelta) and form == "duration" else math.nan


def from_numbers(x: Array, form: str) -> Array:
    """Returns the cells of a form, (rows,) objects, of numbers; None for NaN. Years end at 1 and 9999."""
    cells = np.empty(len(x), dtype=object)
    cells[:] = [None if math.isnan(value) else _BACK[form](value) for value in x.tolist()]
    return cells


def step_of(x: Array, form: str | None) -> float | None:
    """Returns a step of which all numbers are multiples: 1 of whole ones, a day, an hour and so on of times.

    Of other numbers it is a power of a tenth, where all have few decimals.

    Args:
        x: Finite numbers, (rows,).
        form: Form of the cells that they stand for; None: they are numbers.
    """
    steps = _STEPS if form not in (None, "date") else (1,)
    whole = next((float(step) for step in steps if not (x % step).any()), None)
    if whole is not None or form is not None:
        return whole
    decimals = range(1, _DECIMALS + 1)
    return next((10.0**-number for number in decimals if (np.round(x, number) == x).all()), None)
