"""A machine in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from harmonium.machine.graph import Part

if TYPE_CHECKING:
    from harmonium.machine.boltzmann import BoltzmannMachine


def described(machine: BoltzmannMachine) -> str:
    """Returns the text of ``BoltzmannMachine.describe``."""
    graph = machine.graph
    layers = [
        [
            str(l),
            "visible" if l in machine.visible else "hidden",
            str(layer),
            _number(layer.width, "column"),
            "summed out" if l in graph.summed else "",
        ]
        for l, layer in enumerate(machine.layers)
    ]
    edges, count = [], sum(p.numel() for layer in machine.layers for p in layer.parameters())
    for (l, m), coupling in zip(machine.edges, machine.couplings, strict=True):
        weights = coupling.weight.numel()
        joined = int(coupling.within(torch.ones_like(coupling.weight)).sum())
        of = f" of {weights:,}" if joined < weights else ""
        edges.append([f"{l} - {m}", type(coupling).__name__, f"{joined:,}{of} weights"])
        count += joined
    colours = [" + ".join(_part(part) for part in colour) for colour in graph.colours]
    dtype = str(machine.dtype).removeprefix("torch.")
    sizes = _number(len(layers), "layer"), _number(len(edges), "edge"), _number(count, "parameter")
    text = [f"{', '.join(sizes)} in {dtype}"]
    text += ["layers", *_aligned(layers)]
    if len(machine.visible) > 1:
        text += [f"data: {machine.visible_width:,} columns, of layers {', '.join(map(str, machine.visible))}"]
    sweep = f"a sweep of {_number(len(colours), 'colour')}: {_shortened(colours)}"
    return "\n".join([*text, "edges", *_aligned(edges), sweep])


def _part(part: Part) -> str:
    return str(part.layer) if part.units is None else f"{part.layer} ({_number(part.units.n_units, 'unit')})"


def _shortened(colours: Sequence[str], most: int = 6) -> str:
    if len(colours) > most:
        colours = [*colours[: most - 2], "…", colours[-1]]
    return " | ".join(colours)


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}" + "s" * (count != 1)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of words as lines, indented, in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[word.ljust(width) for word, width in zip(row, widths, strict=True)] for row in rows]
    return ["  " + "  ".join(row).rstrip() for row in padded]
