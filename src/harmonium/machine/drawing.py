"""The picture of a machine: its layers by their distance from the data, its edges, the colours of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from harmonium._storage import check_free, replace_file
from harmonium.couplings import Coupling, Dense
from harmonium.layers import Layer
from harmonium.machine.graph import Graph

_WIDTH, _HEIGHT, _GAP, _RISE = 170, 44, 40, 100  # of a box, between boxes, between rows; pixels
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2")


class Drawing(NamedTuple):
    """A picture of a machine, which notebooks show.

    Attributes:
        svg: the picture as SVG.
    """

    svg: str

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the picture to an ``.svg`` file.

        Raises:
            FileExistsError: the file exists and ``overwrite`` is False.
        """
        check_free(Path(path), overwrite)
        replace_file(Path(path), self.svg.encode())

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Drawing({len(self.svg)} characters of SVG)"


def draw_graph(graph: Graph, layers: Sequence[Layer], couplings: Sequence[Coupling]) -> Drawing:
    """Draws a graph of layers, visible ones at the bottom; a sweep draws boxes of one colour at once."""
    distances = graph.distances  # those that are not reached come last
    rows = [[l for l in distances if distances[l] == d] for d in sorted({*distances.values()})]
    width = max(map(len, rows)) * (_WIDTH + _GAP) + _GAP
    height = len(rows) * _RISE
    centre = {}
    for level, row in enumerate(rows):
        for place, layer in enumerate(row):
            left = (width - len(row) * (_WIDTH + _GAP) + _GAP) / 2
            x = left + place * (_WIDTH + _GAP) + _WIDTH / 2
            centre[layer] = (x, height - level * _RISE - _RISE / 2)
    colour = {part.layer: i for i, parts in reversed([*enumerate(graph.colours)]) for part in parts}
    shapes = [
        _edge(centre[l], centre[m], "" if isinstance(c, Dense) else type(c).__name__)
        for (l, m), c in zip(graph.edges, couplings, strict=True)
    ]
    shapes += [
        _box(centre[l], str(layer), l in graph.visible, _COLOURS[colour[l] % len(_COLOURS)])
        for l, layer in enumerate(layers)
    ]
    return Drawing(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="13" role="img" '
        f'aria-label="{len(layers)} layers, {len(graph.edges)} edges">{"".join(shapes)}</svg>'
    )


def _edge(start: tuple[float, float], end: tuple[float, float], label: str) -> str:
    """Returns a line between two boxes, a loop at one, or a curve below two of one row."""
    (x, y), (u, v) = start, end
    if start == end:
        x += _WIDTH / 2 - 8
        path = f"M {x} {y - 14} C {x + 44} {y - 44}, {x + 44} {y + 44}, {x} {y + 14}"
        at = (x + 38, y - 26)
    elif y == v:
        path, at = f"M {x} {y} Q {(x + u) / 2} {y + 70}, {u} {v}", ((x + u) / 2, y + 42)
    else:
        path, at = f"M {x} {y} L {u} {v}", ((x + u) / 2 + 6, (y + v) / 2)
    line = f'<path d="{path}" fill="none" stroke="#888" stroke-width="2"/>'
    words = f'<text x="{at[0]}" y="{at[1]}" fill="#888">{escape(label)}</text>' if label else ""
    return line + words


def _box(centre: tuple[float, float], label: str, visible: bool, colour: str) -> str:
    """Returns a box with its label; visible layers are filled."""
    x, y = centre[0] - _WIDTH / 2, centre[1] - _HEIGHT / 2
    fill, ink = (colour, "white") if visible else ("white", "#222")
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="8" fill="{fill}" stroke="{colour}" '
        f'stroke-width="3"/><text x="{centre[0]}" y="{centre[1] + 5}" text-anchor="middle" fill="{ink}">'
        f"{escape(label)}</text>"
    )
