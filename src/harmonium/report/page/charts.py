"""Charts as what an inline SVG needs; the template draws them, in the page's own colours."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from math import ceil, floor, isfinite, log10
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harmonium.data import from_numbers

WIDTH, HEIGHT = 380, 230  # units of the picture: three stand side by side on a screen, one on a phone
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 10, 40  # margins, for ticks and labels of 12 units
COLOURS = 8  # of page.html; more lines repeat them
_WIDE = 100.0  # from this ratio of the largest to the smallest on, heights are drawn on a logarithmic axis
_SEEN = 1e-3  # of a height: what differs by less is drawn as a constant
_CATEGORIES = 12  # different values that are drawn one by one; more are put into so many bins
_MOMENTS = 3  # dates below a histogram, as wide as their text
_TAIL, _LONG = 0.01, 3.0  # a range over three times that of the inner 98 % would leave most bins empty
_BINS = 20  # 1,000 samples have 50 in a bin on average, known to a seventh

Points = Sequence[tuple[float, float]]


class Line(NamedTuple):
    """A line of a chart: its name, its corners, those of the band around it, and how it is drawn."""

    name: str
    path: str
    band: str
    colour: int
    dashed: bool
    filled: bool


class Chart(NamedTuple):
    """A chart: ticks are pairs of a place in the picture and a text."""

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


def chart(
    title: str,
    lines: Mapping[str, Points],
    x_label: str,
    y_label: str,
    *,
    errors: Mapping[str, Points] | None = None,
    colours: Mapping[str, int] | None = None,
    dashed: Collection[str] = (),
    filled: bool = False,
    x_ticks: Sequence[tuple[float, str]] | None = None,
) -> Chart | None:
    """Returns lines over one another; None where no point is finite.

    Args:
        title: what is shown.
        lines: Points (x, y) of every line, by its name.
        x_label: what the axis to the right counts.
        y_label: what the axis upwards counts.
        errors: Points (x, standard error) by a line's name; two of these either side make a band.
        colours: Numbers of colours by a line's name; None: one for each line.
        dashed: names of lines that are drawn so.
        filled: whether the space below is tinted, down to 0.
        x_ticks: places and texts, or None for round numbers.
    """
    kept = {name: [p for p in points if isfinite(p[0]) and isfinite(p[1])] for name, points in lines.items()}
    kept = {name: points for name, points in kept.items() if points}
    if not kept:
        return None
    bands: dict[str, list[tuple[float, float]]] = {}
    for name, points in kept.items():
        known = dict((errors or {}).get(name, ()))
        both = [(x, y, 2 * known[x]) for x, y in points if x in known]
        bands[name] = [(x, y - error) for x, y, error in both] + [
            (x, y + error) for x, y, error in both[::-1]
        ]
    xs = [x for points in kept.values() for x, _ in points]
    ys = [y for points in (*kept.values(), *bands.values()) for _, y in points]
    wide = not filled and min(ys) > 0 and max(ys) > _WIDE * min(ys)
    across = _Axis(xs, LEFT, WIDTH - RIGHT, False, False)
    up = _Axis([*ys, 0.0] if filled else ys, HEIGHT - BOTTOM, TOP, True, wide)

    def path(points: Points) -> str:
        return " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in points)

    drawn = []
    for number, (name, points) in enumerate(kept.items()):
        colour = (colours or {}).get(name, number) % COLOURS
        closed = [(points[0][0], 0.0), *points, (points[-1][0], 0.0)] if filled else points
        drawn.append(Line(name, path(closed), path(bands[name]), colour, name in dashed, filled))
    placed = across.ticks(5) if x_ticks is None else [(across.at(x), text) for x, text in x_ticks]
    return Chart(title, x_label, y_label, drawn, placed, up.ticks(5))


def histogram(
    title: str, groups: Mapping[str, Any], x_label: str = "", y_label: str = "share", form: str | None = None
) -> Chart | None:
    """Draws the frequencies of values in each group: in 20 bins, or of single values if text or few integers.

    ``groups`` has arrays, (n,) numbers or objects, by name; NaN and None are left out. ``form`` is that of
    the dates or times that numbers stand for.
    """
    values = {
        name: np.array([v for v in x.tolist() if v is not None and v == v]) for name, x in groups.items()
    }
    values = {name: x for name, x in values.items() if len(x)}
    if not values:
        return None
    together = np.concatenate([x.astype(object) for x in values.values()])
    numeric = all(isinstance(value, int | float) for value in together.tolist())
    different = sorted(set(together.tolist()), key=None if numeric else str)
    edges, ticks = np.arange(min(len(different), _CATEGORIES) + 1.0), None
    few = len(different) <= _CATEGORIES and all(v == round(v) for v in different) if numeric else True
    if few and form is None:
        single = different[:_CATEGORIES]
        shares = {name: [float((x == value).mean()) for value in single] for name, x in values.items()}
        ticks = [(i + 0.5, _format(v) if numeric else str(v)[:9]) for i, v in enumerate(single)]
        ticks = ticks[:: ceil(len(ticks) / 6)]
        title += "" if len(single) == len(different) else f" (first {len(single)} of {len(different)})"
    else:
        edges, beyond = _find_edges(together.astype(float))
        title += beyond
        if form is not None:
            places = np.linspace(edges[0], edges[-1], _MOMENTS)
            ticks = [(x, str(moment)) for x, moment in zip(places, from_numbers(places, form), strict=True)]
        shares = {
            name: (np.histogram(np.clip(x.astype(float), *edges[[0, -1]]), edges)[0] / len(x)).tolist()
            for name, x in values.items()
        }
    sides = list(pairwise(edges.tolist()))
    lines = {
        name: [(x, height) for pair, height in zip(sides, heights, strict=True) for x in pair]
        for name, heights in shares.items()
    }
    return chart(title, lines, x_label, y_label, filled=True, x_ticks=ticks)


def _find_edges(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], str]:
    """Returns edges of bins, and what the title adds where the first and the last bin hold long tails."""
    low, high = np.quantile(values, (_TAIL, 1 - _TAIL))
    if high > low and np.ptp(values) > _LONG * (high - low):
        return np.histogram_bin_edges(values, _BINS, (low, high)), " (tails in the outer bins)"
    return np.histogram_bin_edges(values, _BINS), ""


class _Axis:
    """Numbers to places, from ``start`` to ``end``."""

    def __init__(self, values: Sequence[float], start: float, end: float, padded: bool, log: bool) -> None:
        low, high = (log10(v) if log else v for v in (min(values), max(values)))
        if padded:
            differ = high - low > _SEEN * abs(high)
            margin = 0.05 * (high - low) if differ else 0.5 * abs(high) or 1.0
            low, high = low - margin * (low != 0), high + margin
        self._low, self._high, self._log = low, high if high > low else low + 1.0, log
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        """Returns the place of a number."""
        share = ((log10(value) if self._log else value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Returns round numbers as places and texts, about so many at most."""
        if self._log:
            decades = range(ceil(self._low), floor(self._high) + 1)
            values = [10.0**d for d in decades[:: max(1, ceil(len(decades) / most))]]
        else:
            rough = (self._high - self._low) / most
            unit = 10.0 ** floor(log10(rough))
            step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
            first, last = ceil(self._low / step - 1e-9), floor(self._high / step + 1e-9)
            values = [i * step for i in range(first, last + 1)]
        return [(self.at(value), _format(value)) for value in values]


def _format(value: float) -> str:
    """Returns a number in few letters."""
    if value and abs(value) < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{round(value, 9):g}"
