"""Links between columns, and columns themselves, in real rows and in sampled ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harmonium.data import Series, form_of, frame_of, to_numbers

_ROWS = 10_000  # that are looked at: the error of a correlation is then a hundredth
_LABELS = 50  # of a column at most: with more of them chance alone links it
_LEAST = 10  # rows that show both columns


class Link(NamedTuple):
    """The strength with which two columns hang together, in [0, 1].

    Attributes:
        first: name of a column.
        second: name of another.
        real: the link in real rows.
        sampled: the same in sampled rows.
    """

    first: str
    second: str
    real: float
    sampled: float


def compare_links(data: Any, samples: Any) -> list[Link]:
    """Returns the links of all pairs of columns, the strongest of the real rows first.

    A link is the largest correlation that a function of a label, or a number itself, can have: of two numbers
    the absolute value of Pearson's, of a label and a number the correlation ratio, of two labels the first
    canonical correlation of their indicators. Rows that lack either cell are left out. So are columns without
    a cell or with more than 50 labels, and the others of more than 10,000 rows.

    Args:
        data: (rows, columns), a data frame or an array.
        samples: rows of the same columns, any number.

    Raises:
        TypeError, ValueError: no tables, or other columns.
    """
    tables = _matched(data, samples)
    codes = [[_indicators(*pair, side) for pair in tables] for side in (0, 1)]
    names = [str(pair[0].name) for pair in tables]
    links = []
    for i in range(len(names)):
        for j in range(i + 1, len(names)):
            if codes[0][i] is not None and codes[0][j] is not None:
                both = [_correlate(side[i], side[j]) for side in codes]
                links.append(Link(names[i], names[j], *both))
    return sorted(links, key=lambda link: -link.real)


def compare_marginals(data: Any, samples: Any) -> dict[str, float]:
    """Returns how far the distribution of each column is from the real one, in [0, 1]; the farthest first.

    Of numbers it is Kolmogorov's distance, of labels the total variation.

    Args:
        data: rows, as in ``compare_links``.
        samples: rows of the same columns.
    """
    distances = {}
    for one, other in _matched(data, samples):
        x, y = (cells.values[~cells.missing] for cells in (one, other))
        if not len(x) or not len(y):
            continue
        if one.numeric and other.numeric:
            values = np.concatenate([x, y])
            shares = [np.searchsorted(np.sort(z), values, side="right") / len(z) for z in (x, y)]
            distances[str(one.name)] = float(np.abs(shares[0] - shares[1]).max())
        else:
            x, y = x.tolist(), y.tolist()
            shares = [np.array([z.count(label) / len(z) for label in {*x, *y}]) for z in (x, y)]
            distances[str(one.name)] = float(np.abs(shares[0] - shares[1]).sum() / 2)
    return dict(sorted(distances.items(), key=lambda item: -item[1]))


def _matched(data: Any, samples: Any) -> list[tuple[Series, Series]]:
    """Returns the columns of both, some of their rows."""
    frames = [frame_of(X) for X in (data, samples)]
    frame, drawn = (
        x.take(np.linspace(0, len(x) - 1, min(len(x), _ROWS)).astype(int))
        for x in frames  # evenly spaced
    )
    other = {cells.name: cells for cells in drawn.columns}
    lacking = [cells.name for cells in frame.columns if cells.name not in other]
    if lacking:
        raise ValueError(f"samples: expected a column {lacking[0]!r}, as the data have, received none")
    return [number_times(cells, other[cells.name])[:2] for cells in frame.columns]


def number_times(one: Series, other: Series) -> tuple[Series, Series, str | None]:
    """Returns two columns, of dates or times as numbers where both are of one form, and this form."""
    form = form_of([value for column in (one, other) for value in column.values[~column.missing].tolist()])
    if form is None:
        return one, other, None
    first, second = (
        replace(column, values=to_numbers(column.values.tolist(), form)) for column in (one, other)
    )
    return first, second, form


def _indicators(one: Series, other: Series, side: int) -> NDArray[np.float64] | None:
    """Returns numbers, (rows, 1), or indicators of labels, (rows, labels), NaN where missing."""
    cells = (one, other)[side]
    if one.numeric and other.numeric:
        return cells.values.astype(float)[:, None]
    labels = {value for column in (one, other) for value in column.values[~column.missing].tolist()}
    if not 0 < len(labels) <= _LABELS:
        return None
    codes = np.array([[float(value == label) for label in labels] for value in cells.values.tolist()])
    codes[cells.missing] = np.nan
    return codes


def _correlate(x: NDArray[np.float64] | None, y: NDArray[np.float64] | None) -> float:
    """Returns the first canonical correlation, 0 where a column does not vary."""
    assert x is not None and y is not None
    seen = ~(np.isnan(x).any(1) | np.isnan(y).any(1))
    if seen.sum() < _LEAST:
        return 0.0
    bases = []
    for part in (x[seen], y[seen]):
        left, size, _ = np.linalg.svd(part - part.mean(0), full_matrices=False)
        bases.append(left[:, size > 1e-9 * max(size.max(), 1e-300)])
    if not all(basis.shape[1] for basis in bases):
        return 0.0
    return min(1.0, float(np.linalg.norm(bases[0].T @ bases[1], 2)))
