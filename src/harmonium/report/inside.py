"""Pictures of the inside of a machine: singular values over ages, projections, the tree of solutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from harmonium.meanfield import Node
from harmonium.report.plots import new_figure, save_figure

_SHOWN = 10  # singular values that are drawn


def draw_directions(
    ages: Sequence[float], values: Sequence[Tensor], places: Mapping[str, Tensor], path: Path
) -> None:
    """Draws singular values over the ages of a training, and rows along the two leading directions.

    Args:
        ages: of the machines.
        values: singular values at every age, each (k,).
        places: for every name rows along the directions, (rows, at least 2).
        path: PNG file to write.
    """
    figure = new_figure("draw_directions", (9.0, 4.0))
    left, right = figure.subplots(1, 2)
    for a in range(min(_SHOWN, len(values[0]))):
        left.plot(ages, [float(each[a]) for each in values], marker=".", linewidth=1)
    left.set(xlabel="updates", ylabel="singular value of the couplings")
    for name, rows in places.items():
        right.scatter(rows[:, 0], rows[:, 1], s=4, alpha=0.4, label=name, linewidths=0)
    right.set(xlabel="first direction", ylabel="second direction")
    right.legend(fontsize="small")
    save_figure(figure, path)


def draw_tree(root: Node, path: Path) -> None:
    """Draws a tree of solutions from left, the first age, to right.

    Args:
        root: of the tree.
        path: PNG file to write.
    """
    figure = new_figure("draw_tree", (8.0, 5.0))
    axis, height = figure.subplots(), iter(range(1 << 30))

    def draw(node: Node) -> float:
        """Draws what hangs on a node and returns its height."""
        if not node.children:
            y = float(next(height))
            axis.text(node.age, y, f" {node.rows}", va="center", fontsize="small")
            return y
        each = [draw(child) for child in node.children]
        for child, y in zip(node.children, each, strict=True):
            axis.plot([node.age, child.age], [y, y], color="0.3", linewidth=1)
        axis.plot([node.age, node.age], [min(each), max(each)], color="0.3", linewidth=1)
        return sum(each) / len(each)

    draw(root)
    axis.set(xlabel="updates", yticks=[])
    save_figure(figure, path)
