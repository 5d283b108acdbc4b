"""Columns of real rows beside those of sampled ones: each alone, and two by two."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harmonium.data import Series, frame_of, from_numbers
from harmonium.report.links import number_times
from harmonium.report.plots import new_figure, save_figure

_NAMES = ("data", "samples")
_BINS = 25  # 200 rows have 8 in a bin on average
_LETTERS = 18  # of labels that stand side by side below a panel
_SPREAD = 0.6  # of a label's place, over which its points are spread
_PLASTIC = 1.32471795724474602596  # multiples of its inverse powers fill a square evenly, without a draw


class _Axis(NamedTuple):
    """A column as places on an axis, (rows,) for either table, NaN where a cell is missing."""

    name: str
    real: NDArray[np.float64]
    sampled: NDArray[np.float64]
    labels: tuple[Any, ...]  # at 0, 1, …; none for numbers
    form: str | None  # of the dates or times that numbers stand for

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of all of both tables, so that nothing a machine invents is cut off."""
        if self.labels:
            return -0.5, len(self.labels) - 0.5
        both = np.concatenate([self.real, self.sampled])
        low, high = float(np.nanmin(both)), float(np.nanmax(both))
        margin = 0.04 * ((high - low) or 1.0)
        return low - margin, high + margin

    def spread(self, values: NDArray[np.float64], power: int) -> NDArray[np.float64]:
        """Returns places spread about those of the labels; another power is for the other axis."""
        shifts = ((np.arange(len(values)) / _PLASTIC**power) % 1 - 0.5) * _SPREAD
        return values + shifts if self.labels else values


def compare_columns(
    data: Any,
    samples: Any,
    path: str | os.PathLike[str],
    *,
    columns: Sequence[Any] | None = None,
    points: int = 200,
) -> None:
    """Draws how well sampled rows have the columns of real ones.

    On the diagonal the distribution of each column in both; above it pairs of columns of the real rows, below
    it those of the sampled ones, which a good sampler makes mirror images. Points of labels are spread about
    the label's place. Missing cells are left out.

    Args:
        data: (rows, columns), a data frame or an array.
        samples: rows of the same columns, any number.
        path: PNG file; one that is there is replaced in one step.
        columns: names, or numbers of an array's columns, at least one; None: all.
        points: drawn of each pair at most, the first ones.

    Raises:
        ImportError: the ``plot`` extra is not installed.
        TypeError, ValueError: no tables, other columns, or a column without a value.
    """
    tables = [{cells.name: cells for cells in frame_of(X).columns} for X in (data, samples)]
    chosen = list(tables[0]) if columns is None else list(columns)
    for table, argument in zip(tables, _NAMES, strict=True):
        lacking = [name for name in chosen if name not in table or table[name].missing.all()]
        if lacking or not chosen:
            raise ValueError(
                f"{argument}: expected values in the columns {chosen}, received none in {lacking or 'any'}"
            )
    axes = [_read_axis(*(table[name] for table in tables)) for name in chosen]
    side = max(3.0, 1.5 * len(axes))
    figure = new_figure("compare_columns", (side, side))
    grid = np.atleast_2d(figure.subplots(len(axes), len(axes), squeeze=False))
    for i, down in enumerate(axes):
        for j, across in enumerate(axes):
            panel = grid[i, j]
            if i == j:
                _draw_marginal(panel, across)
            else:
                x, y = (across.real, down.real) if i < j else (across.sampled, down.sampled)
                shown = np.flatnonzero(~(np.isnan(x) | np.isnan(y)))[:points]
                points_xy = across.spread(x[shown], 1), down.spread(y[shown], 2)
                panel.scatter(*points_xy, s=5, alpha=0.5, linewidths=0, color=f"C{int(i > j)}")
                panel.set_ylim(down.limits)
                _mark(panel.yaxis, down, j == 0)
            panel.set_xlim(across.limits)
            _mark(panel.xaxis, across, i == len(axes) - 1)
            if j == 0:
                panel.set_ylabel(down.name, fontsize="small")
            if i == len(axes) - 1:
                panel.set_xlabel(across.name, fontsize="small")
    figure.align_labels()
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=2, fontsize="small")
    save_figure(figure, path)


def _read_axis(real: Series, sampled: Series) -> _Axis:
    """Returns a column of both tables, whose labels are those of real rows and what else was sampled."""
    real, sampled, form = number_times(real, sampled)
    parts = [cells.values[~cells.missing] for cells in (real, sampled)]
    if real.numeric and sampled.numeric:
        whole = set(np.unique(np.concatenate(parts)).tolist())
        labels = tuple(sorted(whole)) if len(whole) <= 2 else ()
    else:
        seen = {value for part in parts for value in part.tolist()}
        labels = tuple(real.categories or sorted(seen, key=lambda value: (isinstance(value, str), value)))
        labels += tuple(value for value in seen if value not in labels)
    numbers = {value: float(i) for i, value in enumerate(labels)}
    positions = [
        np.array([numbers.get(value, np.nan) for value in cells.values.tolist()]) if labels else cells.values
        for cells in (real, sampled)
    ]
    return _Axis(str(real.name), positions[0], positions[1], labels, form)


def _draw_marginal(panel: Any, axis: _Axis) -> None:
    """Draws shares of the rows, of both tables, in the same bins or for each label."""
    values = [x[~np.isnan(x)] for x in (axis.real, axis.sampled)]
    labels = np.arange(len(axis.labels) + 1) - 0.5
    edges = labels if axis.labels else np.histogram_bin_edges(np.concatenate(values), _BINS)
    for number, (x, name) in enumerate(zip(values, _NAMES, strict=True)):
        share, look = np.histogram(x, edges)[0] / len(x), {"color": f"C{number}", "label": name}
        if axis.labels:
            x_bars = np.arange(len(share)) + (number - 0.5) * _SPREAD / 2
            panel.bar(x_bars, share, _SPREAD / 2, alpha=0.5 + 0.5 * number, **look)
        elif number == 0:
            panel.stairs(share, edges, fill=True, alpha=0.5, **look)
        else:
            panel.stairs(share, edges, linewidth=1.5, **look)
    panel.set_yticks([])


def _mark(side: Any, axis: _Axis, labelled: bool) -> None:
    """Sets the ticks of a side of a panel, with their labels where the side is labelled."""
    from matplotlib.ticker import MaxNLocator

    if axis.labels:
        names = [f"{label:g}" if isinstance(label, float) else str(label) for label in axis.labels]
        side.set_ticks(range(len(axis.labels)), names)
        if side.axis_name == "x" and sum(map(len, names)) > _LETTERS:
            side.set_tick_params(labelrotation=30)
    else:
        side.set_major_locator(MaxNLocator(3))
        if axis.form is not None:
            side.set_major_formatter(lambda x, _: str(from_numbers(np.array([x]), str(axis.form))[0]))
    side.set_tick_params(labelsize="x-small")
    if not labelled:
        side.set_tick_params(labelleft=False, labelbottom=False)
