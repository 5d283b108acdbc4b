"""Columns of which nothing is learned, and why: names of rows, one value, and text that leaves a question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from harmonium.data import Frame, Series, question_of, to_numbers
from harmonium.data.transforms import Array
from harmonium.tables.cells import shown, values_of
from harmonium.tables.column import IGNORE, MANY_TEXTS, chosen_kinds, kind_of

_LINKED = 0.001  # probability of a link by chance from which on there is one: of 1,000 ids one is learned
_UNEVEN = 1.95  # times 1/√rows, the Kolmogorov distance that even numbers exceed with probability 0.001
_ENOUGH = 100  # rows at least, to find that nothing depends on a column: fewer leave that open
_LOOKED_AT = 2000  # rows at most that a link is looked for in, where a correlation of 0.1 shows
_GROUPS = 10  # of rows at most, alike in another column, whose places are compared


def without_unit(frame: Frame, kinds: str | Mapping[Any, Any] | None = None) -> dict[Any, str]:
    """Returns the columns that get no unit by ``Table.fit``, and why: ``IGNORE`` where their kind is that."""
    chosen = chosen_kinds(frame, kinds)
    reasons = dict[Any, str]()
    for cells in frame.columns:
        kind = kind_of(chosen.get(cells.name))
        free = kind == "auto" and not (isinstance(chosen.get(cells.name), Mapping) and chosen[cells.name])
        reason = IGNORE if kind == IGNORE else _why_left_out(cells) if free else None
        if reason is not None:
            reasons[cells.name] = reason
    others = [cells for cells in frame.columns if cells.name not in reasons]
    for cells in others:
        if kind_of(chosen.get(cells.name)) == "auto" and _names_rows(cells, others):
            reasons[cells.name] = "different whole numbers that nothing depends on, which name rows"
    return reasons


def _why_left_out(cells: Series) -> str | None:
    """Returns why nothing is to be learned from a column by itself; None: it is learned."""
    rows = int((~cells.missing).sum())
    if not rows:
        return "empty"
    values = values_of(cells)
    if len(values) == 1:
        return f"one value, {shown(values[0])}"
    if len(values) <= MANY_TEXTS or cells.categories is not None or cells.form is not None:
        return None
    if cells.numeric:
        return "row numbers" if _counts(cells) and 0 <= 10 * values[0] < rows else None
    if len(values) <= rows / 2:
        return None
    return question_of(cells) or f"{len(values)} different texts in {rows} rows"


# Names of rows
# ---------------------------------------------------------------------------------


def _counts(cells: Series) -> bool:
    """Returns whether a column has different whole numbers, of which hardly more lie between its ends."""
    seen = cells.values[~cells.missing]
    span = seen.max() - seen.min() + 1
    return bool(2 * len(seen) >= span) and _different(seen)


def _different(seen: Array) -> bool:
    return not (seen % 1).any() and len(np.unique(seen)) == len(seen)


def _names_rows(cells: Series, columns: Sequence[Series]) -> bool:
    """Returns whether different whole numbers are names of rows: spread evenly, and linked to no column.

    Numbers with gaps between them have as many digits each besides.
    """
    if not cells.numeric or cells.categories is not None:
        return False
    seen = cells.values[~cells.missing]
    others = [x for x in columns if x.name != cells.name]
    if len(seen) < _ENOUGH or not others or not _different(seen):
        return False
    low, high = float(seen.min()), float(seen.max())
    if not _counts(cells):
        alike = low > 0 and math.floor(math.log10(low)) == math.floor(math.log10(high))
        levels = (np.sort(seen) - low) / (high - low)
        even = np.abs(levels - np.linspace(0, 1, len(seen))).max() * math.sqrt(len(seen)) < _UNEVEN
        if not alike or not even:
            return False
    return not any(_linked(cells, x) for x in others)


def _linked(cells: Series, other: Series) -> bool:
    """Returns whether another column depends on the order of some numbers (Kruskal's and Wallis' test).

    Compared are the ranks of its numbers between parts of that order, or the places in it between its labels.
    """
    both = (~cells.missing & ~other.missing).nonzero()[0]
    both = both[:: max(1, len(both) // _LOOKED_AT)]
    n, most = len(both), min(_GROUPS, math.isqrt(len(both)))
    if n <= 2:
        return False
    order, values, form = np.argsort(np.argsort(cells.values[both])), other.values[both], other.form
    if other.numeric or form is not None:
        groups, ranks = (
            order * most // n,
            _ranks(values if form is None else to_numbers(values.tolist(), form)),
        )
    else:
        common = [label for label, _ in Counter(values.tolist()).most_common(most - 1)]
        index = {label: i for i, label in enumerate(common)}
        groups, ranks = np.array([index.get(label, most - 1) for label in values.tolist()]), _ranks(order)
    sizes, spread = np.bincount(groups), float(ranks.var())
    means = np.bincount(groups, ranks - ranks.mean())[sizes > 0] / sizes[sizes > 0]
    free = len(means) - 1
    if not free or not spread:
        return False
    statistic = (n - 1) / n * float((sizes[sizes > 0] * means**2).sum()) / spread
    return bool(torch.special.gammaincc(torch.tensor(free / 2), torch.tensor(statistic / 2)) < _LINKED)


def _ranks(x: Array) -> Array:
    """Returns the ranks of numbers, the middle one of equal ones."""
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    ranks: Array = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks
