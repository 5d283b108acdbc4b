"""Text files of the Gset collection: graphs with weights, whose largest cut is asked for.

The first line has the numbers of vertices and edges, each other one two vertices, from 1, and a weight, or
none in the whole file where all weights are 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import isfinite
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from harmonium._size_limit import check_claim
from harmonium.exchange._format import Exchanged, Format, misfit
from harmonium.exchange._quadratic import Quadratic
from harmonium.machine import BoltzmannMachine


def _recognises(path: Path) -> bool:
    with path.open("rb") as file:
        head = rb"\s*\d+[ \t]+\d+[ \t]*\r?\n\s*\d+[ \t]+\d+([ \t]+\S+)?[ \t]*\r?(\n|$)"
        return re.match(head, file.read(200)) is not None


def _read(path: Path) -> Exchanged:
    with path.open(encoding="ascii", errors="replace") as file:
        head = file.readline().split()
        if len(head) != 2 or not all(word.isdecimal() and len(word) < 10 for word in head):
            raise ValueError(f"line 1: expected the numbers of vertices and edges, received {head[:3]}")
        vertices, edges = map(int, head)
        if vertices < 1:
            raise ValueError(f"line 1: expected at least one vertex, received {vertices}")
        check_claim(8 * vertices, path.stat().st_size, f"{vertices} vertices")
        table = _read_edges(file, edges)
    pairs, weights = table[:, :2].astype(np.int64) - 1, torch.from_numpy(table[:, 2])
    outside = (pairs < 0) | (pairs >= vertices)
    if outside.any():
        line = int(outside.any(1).argmax())
        raise ValueError(f"line {line + 2}: expected vertices 1..{vertices}, received {pairs[line] + 1}")
    none = torch.zeros(vertices, dtype=torch.float64)
    machine = Quadratic(True, none, torch.from_numpy(pairs), weights).to_machine()
    if torch.equal(weights.float().double(), weights):  # as all published ones, which sweeps twice as fast
        machine.float()
    machine.metadata["origin"] = {"form": "gset", "weight": float(weights.sum())}
    return Exchanged(machine, None, "gset")


def _write(machine: BoltzmannMachine, chains: Tensor | None) -> bytes:
    hamiltonian = machine.hamiltonian().to(torch.float64)
    kinds = [layer.kind for layer in machine.layers]
    if kinds != ["spin"] or bool(hamiltonian.thetas[0][0].any()):
        raise misfit(machine, "one layer of spins without biases for Gset files")
    lines = []
    for edge in range(len(hamiltonian.graph.edges)):
        pairs, J = hamiltonian.joined_units(edge)
        values = zip((pairs + 1).tolist(), (-J.flatten()).tolist(), strict=True)
        lines += [f"{i} {j} {weight:.17g}" for (i, j), weight in values]
    return "\n".join([f"{machine.layers[0].n_units} {len(lines)}", *lines, ""]).encode()


def _read_edges(lines: Iterable[str], edges: int) -> np.ndarray:
    """Returns vertices and weight of every edge, (edges, 3); 1 where no line has a weight."""
    rows = [(number, words) for number, line in enumerate(lines, 2) if (words := line.split())]
    each = len(rows[0][1]) if rows else 3
    for number, words in rows:
        vertices = all(word.isdecimal() and len(word) < 10 for word in words[:2])
        if len(words) != each or each not in (2, 3) or not vertices or not _is_finite(words[-1]):
            raise ValueError(
                f"line {number}: expected two vertices and a finite weight, or a weight on no line, "
                f"received {' '.join(words)[:30]!r}"
            )
    if len(rows) != edges:
        raise ValueError(f"expected {edges} lines after the first, one for each edge, received {len(rows)}")
    table = np.ones((edges, 3))
    table[:, :each] = np.array([words for _, words in rows], dtype=np.float64).reshape(edges, each)
    return table


def _is_finite(word: str) -> bool:
    try:
        return isfinite(float(word))
    except ValueError:
        return False


GSET = Format("gset", ".gset", "graphs of the Gset collection", _recognises, _read, _write)
"""Graphs with weights w, as machines of spins with E(s) = Σ w s s' over the edges.

The cut between spins of either sign is (Σ w - E) / 2, and Σ w is ``metadata["origin"]["weight"]``.
"""
