"""One column of a table: how its cells become the states of units, and how they come back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from harmonium import _checks
from harmonium.data._arrays import Array
from harmonium.data.sheet import Cells

LABELS = ("bernoulli", "spin", "categorical")
REAL = (
    "gaussian", "natural_gaussian", "standardised_gaussian", "double_relu", "relu", "truncated_gaussian",
    "truncated_gauss_bernoulli",
)  # fmt: skip
COLUMN_KINDS = (*LABELS, "binomial", *REAL)

_FEW = 10  # different whole numbers at most, and rows for each at least _REPEATED, to be taken for labels
_REPEATED = 5
_TEXTS = 20  # different texts in more than half of the rows are names rather than categories


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: of the column, or its number.
        dtype: what the column's library calls its type.
        kind: of its unit, one of ``COLUMN_KINDS``.
        values: what its states stand for, in their order: one or two for "bernoulli" and "spin", any number
            for "categorical", none for others.
        declared: whether the column's type names the values; and whether their order means something.
        ordered: see ``declared``.
        largest: count of a "binomial" column, else 0.
        offset: what is taken off a real column.
        scale: by what it is divided then, positive.
    """

    name: str | int
    dtype: str
    kind: str
    values: tuple[str | bool | int | float, ...] = ()
    declared: bool = False
    ordered: bool = False
    largest: int = 0
    offset: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        _checks.one_of(self.kind, "kind", COLUMN_KINDS)
        limit = math.inf if self.kind == "categorical" else 2 if self.kind in LABELS else 0
        if not (self.kind in LABELS) <= len(self.values) <= limit:
            raise ValueError(f"values: expected at most {limit} for {self.kind}, received {len(self.values)}")
        if not (math.isfinite(self.offset) and math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"offset, scale: expected finite numbers, received {self.offset}, {self.scale}")
        if self.kind == "binomial":
            _checks.positive_int(self.largest, "largest")

    @classmethod
    def fit(cls, cells: Cells, kind: str | None = None) -> Column:
        """What a column's cells say about it.

        Args:
            cells: at least one that is not missing.
            kind: of its unit; None chooses: Bernoulli for at most two values, Categorical for other text,
                booleans, categories and few repeated whole numbers, else Gaussian.

        Raises:
            ValueError: no cell, cells that the kind does not take, or texts that are names of rows; the
                message names the column.
        """
        where = f"X: column {cells.name!r}"
        seen = cells.values[~cells.missing]
        if not len(seen):
            raise ValueError(
                f"{where}: expected at least one value, every cell is missing (NaN); drop the column"
            )
        values = cells.categories or tuple(sorted(set(seen.tolist()), key=_order))
        kind = kind or _kind(cells, values, len(seen), where)
        about: dict[str, Any] = {"name": _name(cells.name), "dtype": cells.dtype, "kind": kind}
        if kind in LABELS:
            if len(values) > 2 and kind != "categorical":
                raise ValueError(
                    f'{where}: expected at most two values for "{kind}", received {len(values)}, '
                    f'{_few(values)}; "categorical" takes them'
                )
            declared = cells.categories is not None
            return cls(**about, values=values, declared=declared, ordered=cells.ordered)
        if not cells.numeric:
            raise ValueError(
                f'{where}: expected numbers for "{kind}", received {seen[0]!r}; "categorical" takes labels'
            )
        low, high = float(seen.min()), float(seen.max())
        if kind == "binomial":
            if low < 0 or (seen != np.round(seen)).any():
                wrong = seen[(seen < 0) | (seen != np.round(seen))][0]
                raise ValueError(f'{where}: expected counts from 0 for "binomial", received {wrong:g}')
            return cls(**about, largest=max(1, int(high)))
        within = low >= 0 and high <= 1
        if kind == "truncated_gauss_bernoulli" and not within:
            raise ValueError(
                f'{where}: expected numbers in [0, 1] for "{kind}", received {low:g} to {high:g}'
            )
        if kind == "relu" and low < 0:
            raise ValueError(f'{where}: expected numbers from 0 for "relu", received {low:g}')
        if kind.startswith("truncated"):
            offset, scale = (0.0, 1.0) if within else (low, high - low)
        elif kind == "relu":
            offset, scale = 0.0, float(np.sqrt(np.mean(seen**2)))
        else:
            offset, scale = float(seen.mean()), float(seen.std())
        return cls(**about, offset=offset, scale=scale if scale > 0 else 1.0)

    @property
    def real(self) -> bool:
        """Whether the unit is real, so that a column has a density and not probabilities."""
        return self.kind in REAL

    @property
    def n_states(self) -> int:
        """Of the unit; 2 where there is no choice."""
        return {"categorical": max(2, len(self.values)), "binomial": self.largest + 1}.get(self.kind, 2)

    @property
    def width(self) -> int:
        """Columns of the unit's state."""
        return self.n_states if self.kind == "categorical" else 1

    @property
    def log_slope(self) -> float:
        """ln |slope| of a real column's encoding, else 0."""
        return -math.log(self.scale)

    def encode(self, cells: Cells, unknown: str) -> Array:
        """(rows, width) float64, NaN in the whole of a row's unit where the cell is missing.

        Args:
            cells: of this column.
            unknown: "error" or "missing", what a cell that the unit has no state for is taken as.

        Raises:
            ValueError: such a cell with "error"; the message names the column, the value and the row.
        """
        x = self._indices(cells.values.tolist()) if self.kind in LABELS else self._numbers(cells)
        wrong = np.isnan(x) & ~cells.missing
        if wrong.any() and unknown == "error":
            row = int(wrong.argmax())
            received = _item(cells.values[row])
            raise ValueError(
                f"X: column {self.name!r}: expected {self._expected()}, received {received!r} at "
                f'row {row}; correct it, or unknown="missing" takes such cells as missing'
            )
        if self.kind == "categorical":
            states: Array = np.equal(x[:, None], np.arange(self.n_states)).astype(np.float64)
            states[np.isnan(x)] = np.nan
            return states
        return np.expand_dims(2 * x - 1 if self.kind == "spin" else x, 1)

    def decode(self, states: Array) -> Array:
        """Cells (rows,) from states or means (rows, width): labels, the most probable ones, or float64.

        Columns of whole numbers are rounded. Missing where NaN.
        """
        hole: Any = np.isnan(states).any(1)
        if self.kind in LABELS:
            if self.kind == "categorical":
                index = np.where(hole[:, None], 0.0, states).argmax(1)
            else:
                index = np.where(hole, 0, states[:, 0] > (0.0 if self.kind == "spin" else 0.5)).astype(int)
            index = np.minimum(index, len(self.values) - 1)
            if all(type(value) is float for value in self.values):
                return np.where(hole, np.nan, np.array(self.values)[index])
            cells = np.empty(len(index), dtype=object)
            cells[:] = [None if absent else self.values[i] for i, absent in zip(index, hole, strict=True)]
            return cells
        x: Array = states[:, 0] * self.scale + self.offset
        return np.round(x) if self.kind == "binomial" or "int" in self.dtype.lower() else x

    def to_dict(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {**asdict(self), "values": list(self.values)}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Column:
        """What ``to_dict`` described."""
        return cls(**description)

    def _indices(self, values: list[Any]) -> Array:
        index = {value: i for i, value in enumerate(self.values)}
        return np.array([index.get(value, math.nan) for value in values], dtype=np.float64)

    def _numbers(self, cells: Cells) -> Array:
        values = cells.values
        if not cells.numeric:
            values = np.array(
                [v if isinstance(v, (int, float)) else math.nan for v in values], dtype=np.float64
            )
        x: Array = (values - self.offset) / self.scale
        if self.kind == "binomial":
            x = np.where((x >= 0) & (x <= self.largest) & (x == np.round(x)), x, np.nan)
        elif self.kind.startswith("truncated"):
            x = np.where((x >= 0) & (x <= 1), x, np.nan)
        elif self.kind == "relu":
            x = np.where(x >= 0, x, np.nan)
        return x

    def _expected(self) -> str:
        if self.kind in LABELS:
            return f"one of {_few(self.values)} as in fit"
        if self.kind == "binomial":
            return f"a count from 0 to {self.largest} as in fit"
        if self.kind.startswith("truncated"):
            return f"a number in [{self.offset:g}, {self.offset + self.scale:g}] as in fit"
        return "a number from 0" if self.kind == "relu" else "a number"


def _kind(cells: Cells, values: tuple[Any, ...], rows: int, where: str) -> str:
    if len(values) <= 2:
        return "bernoulli"
    if cells.numeric:
        few = len(values) <= _FEW and rows >= _REPEATED * len(values)
        return "categorical" if few and all(value == round(value) for value in values) else "gaussian"
    if cells.categories is None and len(values) > max(_TEXTS, rows / 2):
        numbers = [value for value in values if _is_number(value)]
        remedy = 'drop the column if they name rows, or say kinds={name: "categorical"}'
        if 2 * len(numbers) > len(values):
            stray = next(value for value in values if not _is_number(value))
            remedy = (
                f"most are numbers; turn the column into numbers with missing cells where it says {stray!r}"
            )
        raise ValueError(
            f"{where}: expected text that repeats, received {len(values)} different ones in {rows} rows, "
            f"{_few(values)}; {remedy}"
        )
    return "categorical"


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _order(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value


def _name(name: Any) -> str | int:
    return name if isinstance(name, str) else int(name) if isinstance(name, (int, np.integer)) else str(name)


def _item(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _few(values: tuple[Any, ...]) -> str:
    return ", ".join(repr(value) for value in values[:5]) + (", …" if len(values) > 5 else "")
