"""Text files of the Gset collection: graphs with weights, whose largest cut is asked for.

The first line has the numbers of vertices and edges, each other one two vertices, from 1, and a weight, or
none in the whole file where all weights are 1.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from harmonium._size_limit import check_claim
from harmonium.exchange._format import Exchanged, Format, begins_with, finite, misfit, parse_lines
from harmonium.exchange._quadratic import Quadratic
from harmonium.machine import BoltzmannMachine

_recognises = begins_with(rb"\s*\d+[ \t]+\d+[ \t]*\r?\n\s*\d+[ \t]+\d+([ \t]+\S+)?[ \t]*\r?(\n|$)")


def _read(path: Path) -> Exchanged:
    with path.open(encoding="ascii", errors="replace") as file:
        head = file.readline().split()
        if len(head) != 2 or not all(word.isdecimal() and len(word) < 10 for word in head):
            raise ValueError(f"line 1: expected the numbers of vertices and edges, received {head[:3]}")
        vertices, edges = map(int, head)
        if vertices < 1:
            raise ValueError(f"line 1: expected at least one vertex, received {vertices}")
        check_claim(8 * vertices, path.stat().st_size, f"{vertices} vertices")
        columns = set[int]()

        def parse_edge(words: list[str]) -> tuple[int, int, float]:
            columns.add(len(words))
            i, j, weight = words if len(words) == 3 else (*words, "1")
            fits = (i + j).isdecimal() and 0 < int(i) <= vertices and 0 < int(j) <= vertices
            if len(columns) > 1 or not fits:
                raise ValueError
            return int(i) - 1, int(j) - 1, finite(weight)

        rows = parse_lines(
            enumerate(file, 2),
            parse_edge,
            f"two vertices and a finite weight, vertices in 1..{vertices}, a weight on all lines or on none",
        )
    if len(rows) != edges:
        raise ValueError(f"expected {edges} lines after the first, one for each edge, received {len(rows)}")
    pairs = torch.tensor([row[:2] for row in rows], dtype=torch.int64).view(-1, 2)
    weights = torch.tensor([row[2] for row in rows], dtype=torch.float64)
    none = torch.zeros(vertices, dtype=torch.float64)
    machine = Quadratic(True, none, pairs, weights).to_machine()
    if torch.equal(weights.float().double(), weights):  # as all published ones, which sweeps twice as fast
        machine.float()
    machine.metadata["origin"] = {"form": "gset", "weight": float(weights.sum())}
    return Exchanged(machine, None, "gset")


def _write(machine: BoltzmannMachine, chains: Tensor | None) -> bytes:
    kinds = [layer.kind for layer in machine.layers]
    if kinds != ["spin"] or bool(machine.layers[0].get_parameter("bias").any()):
        raise misfit(machine, "one layer of spins without biases for Gset files")
    model = Quadratic.of_machine(machine, "Gset files")
    values = zip((model.pairs + 1).tolist(), model.values.tolist(), strict=True)
    lines = [f"{i} {j} {weight:.17g}" for (i, j), weight in values]
    return "\n".join([f"{len(model.linear)} {len(lines)}", *lines, ""]).encode()


GSET = Format("gset", ".gset", "graphs of the Gset collection", _recognises, _read, _write)
"""Graphs with weights w, as machines of spins with E(s) = Σ w s s' over the edges.

The cut between spins of either sign is (Σ w - E) / 2, and Σ w is ``metadata["origin"]["weight"]``.
"""
