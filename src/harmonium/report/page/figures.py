"""Charts of a page: inline SVG of matplotlib, in the page's own colours, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil, isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harmonium.data import from_numbers

COLOURS = 8  # of page.html; more lines repeat them
_WIDTH, _HEIGHT = 380, 230  # units of the picture: three stand side by side on a screen, one on a phone
_WIDE = 100.0  # from this ratio of the largest to the smallest on, heights are drawn on a logarithmic axis
_CATEGORIES = 12  # different values that are drawn one by one; more are put into so many bins
_TAIL, _LONG = 0.01, 3.0  # a range over three times that of the inner 98 % would leave most bins empty
_BINS = 20  # 1,000 samples have 50 in a bin on average, known to a seventh
_PALETTE = [
    f"#abcde{i}" for i in range(COLOURS + 2)
]  # stand for the page's colours; the last two: text, grid
_STYLE: dict[Any, Any] = {
    **dict.fromkeys(("axes.spines.left", "axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _PALETTE[-2]),
    **dict.fromkeys(("font.size", "axes.labelsize", "xtick.labelsize", "ytick.labelsize"), 12),
    **{"axes.grid": True, "axes.grid.axis": "y", "grid.color": _PALETTE[-1], "lines.linewidth": 1.8},
    **{"svg.fonttype": "none", "svg.hashsalt": "harmonium", "text.parse_math": False},
    **dict.fromkeys(("xtick.bottom", "ytick.left", "ytick.minor.left"), False),
    "font.family": "DejaVu Sans",
}
# What the page has no use for makes three quarters of a file: groups, clips, fonts and far digits.
_SUPERFLUOUS = (
    (r"^.*?<svg[^>]*>|</svg>|<defs>.*?</defs>|</?g\b[^>]*>|<!--.*?-->", ""),
    (r' clip-path="[^"]*"| transform="rotate\(-0 [^"]*"', ""),
    (r"font-size: 12px; font-family: [^;]*; |; stroke-line(cap|join): \w+|; fill: #abcde8", ""),
    (r' style="text-anchor: middle"', ""),
    (r'style="fill: none; stroke: #abcde9; stroke-width: 0.8"', 'class="grid"'),
    (r"(\d\.\d)\d+(?=[^<>]*>)", r"\1"),  # within tags, not in texts
    (r"\s+L?\s*(?=[^<>]*>)", " "),
    (r">\s+<", "><"),
    (r"#abcde(\d)(?=[^<>]*>)", r"var(--c\1)"),
)

Points = Sequence[tuple[float, float]]


class Chart(NamedTuple):
    """A chart: the inside of an SVG of 380 times 230 units, and a legend of names, colours and dashes."""

    title: str
    svg: str
    legend: list[tuple[str, int, bool]]


def _draw(
    title: str, x_label: str, y_label: str, legend: list[tuple[str, int, bool]], fill: Callable[[Any], None]
) -> Chart:
    """Returns a chart of axes that a function fills."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    with rc_context(_STYLE):
        figure = Figure((_WIDTH / 72, _HEIGHT / 72))
        FigureCanvasSVG(figure)
        axes = figure.add_axes((62 / _WIDTH, 40 / _HEIGHT, 298 / _WIDTH, 180 / _HEIGHT))
        axes.locator_params(nbins=5)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:.10g}")
        axes.set(xlabel=x_label, ylabel=y_label)
        fill(axes)
        figure.patch.set_visible(False)
        axes.patch.set_visible(False)
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = buffer.getvalue()
    for pattern, replacement in _SUPERFLUOUS:
        svg = re.sub(pattern, replacement, svg, flags=re.DOTALL)
    return Chart(title, svg.strip(), legend)


def chart(
    title: str,
    lines: Mapping[str, Points],
    x_label: str,
    y_label: str,
    *,
    errors: Mapping[str, Points] | None = None,
    colours: Mapping[str, int] | None = None,
    dashed: Collection[str] = (),
    x_ticks: Sequence[tuple[float, str]] | None = None,
) -> Chart | None:
    """Draws lines over one another; None where no point is finite.

    Args:
        title: what is shown.
        lines: Points (x, y) of every line, by its name.
        x_label: what the axis to the right counts.
        y_label: what the axis upwards counts.
        errors: Points (x, standard error) by a line's name; two of these either side make a band.
        colours: Numbers of colours by a line's name; None: one for each line.
        dashed: names of lines that are drawn so.
        x_ticks: places and texts, or None for round numbers.
    """
    finite = {
        name: [p for p in points if isfinite(p[0]) and isfinite(p[1])] for name, points in lines.items()
    }
    finite = {name: points for name, points in finite.items() if points}
    if not finite:
        return None
    legend = [
        (name, (colours or {}).get(name, number) % COLOURS, name in dashed)
        for number, name in enumerate(finite)
    ]

    def fill(axes: Any) -> None:
        lowest, highest = [], []
        for (name, colour, broken), points in zip(legend, finite.values(), strict=True):
            ink, known = _PALETTE[colour], dict((errors or {}).get(name, ()))
            axes.plot(*zip(*points, strict=True), "--" if broken else "-", color=ink, clip_on=False)
            band = [(x, y - 2 * known[x], y + 2 * known[x]) for x, y in points if x in known]
            if band:
                x, low, high = map(list, zip(*band, strict=True))
                axes.fill(x + x[::-1], low + high[::-1], color=ink, alpha=0.2, linewidth=0, clip_on=False)
            lowest.append(min(y for _, y, *_ in [*points, *band]))
            highest.append(max(y[-1] for y in [*points, *band]))
        if 0 < _WIDE * min(lowest) < max(highest):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.10g}")
            axes.yaxis.set_minor_formatter("")
        axes.margins(x=0)
        if x_ticks is not None:
            axes.set_xticks(*zip(*x_ticks, strict=True))

    return _draw(title, x_label, y_label, legend, fill)


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
    single = different[:_CATEGORIES]
    whole = numeric and all(v == round(v) for v in different)
    one_by_one = form is None and (not numeric or (len(different) <= _CATEGORIES and whole))
    if one_by_one:
        edges = np.arange(len(single) + 1.0)
        shares = {name: [float((x == value).mean()) for value in single] for name, x in values.items()}
        title += "" if len(single) == len(different) else f" (first {len(single)} of {len(different)})"
    else:
        edges, beyond = _find_edges(together.astype(float))
        title += beyond
        shares = {
            name: (np.histogram(np.clip(x.astype(float), *edges[[0, -1]]), edges)[0] / len(x)).tolist()
            for name, x in values.items()
        }

    def fill(axes: Any) -> None:
        for ink, heights in zip(_PALETTE, shares.values(), strict=False):
            axes.stairs(
                heights, edges, fill=True, facecolor=(ink, 0.2), edgecolor=ink, linewidth=1.8, clip_on=False
            )
        axes.set(xlim=edges[[0, -1]], ylim=(0, None))
        if one_by_one:
            step = ceil(len(single) / 6)
            labels = [f"{v:g}" if numeric else str(v)[:9] for v in single[::step]]
            axes.set_xticks((edges[:-1] + 0.5)[::step], labels)
        elif form is not None:
            axes.locator_params(axis="x", nbins=2)
            axes.xaxis.set_major_formatter(lambda x, _: str(from_numbers(np.array([x]), form)[0]))

    return _draw(title, x_label, y_label, [(name, i, False) for i, name in enumerate(shares)], fill)


def interval(title: str, ends: Mapping[str, tuple[float, float]], mark: float, x_label: str) -> Chart:
    """Draws intervals above one another, by their names, and a mark across all of them."""

    def fill(axes: Any) -> None:
        for y, (low, high) in enumerate(ends.values()):
            axes.plot([low, high], [-y, -y], "|-", color=_PALETTE[y], linewidth=4, clip_on=False)
        axes.axvline(mark, color=_PALETTE[-2], linestyle="--", linewidth=1)
        axes.set_yticks(range(0, -len(ends), -1), ends)
        axes.set_ylim(0.7 - len(ends), 0.3)
        axes.margins(x=0.1)

    return _draw(title, x_label, "", [], fill)


def _find_edges(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], str]:
    """Returns edges of bins, and what the title adds where the first and the last bin hold long tails."""
    low, high = np.quantile(values, (_TAIL, 1 - _TAIL))
    if high > low and np.ptp(values) > _LONG * (high - low):
        return np.histogram_bin_edges(values, _BINS, (low, high)), " (tails in the outer bins)"
    return np.histogram_bin_edges(values, _BINS), ""
