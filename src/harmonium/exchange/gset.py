"""Text files of the Gset collection: graphs with weights, whose largest cut is asked for.

The first line has the numbers of vertices and edges, each other one two vertices, from 1, and a weight.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from harmonium._size_limit import check_claim
from harmonium.couplings import Sparse
from harmonium.exchange.exchange import Exchanged, Format, misfit
from harmonium.layers import Spin
from harmonium.machine import BoltzmannMachine


@final
class Gset(Format):
    """Graphs with weights w, as machines of spins with E(s) = Σ w s s' over the edges.

    The cut between spins of either sign is (Σ w - E) / 2, and Σ w is ``metadata["origin"]["weight"]``.
    """

    form: ClassVar[str] = "gset"
    suffix: ClassVar[str] = ".gset"
    program: ClassVar[str] = "graphs of the Gset collection"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        with path.open("rb") as file:
            return (
                re.match(rb"\s*\d+[ \t]+\d+[ \t]*\r?\n\s*\d+[ \t]+\d+[ \t]+-?\d+[ \t]*\r?\n", file.read(200))
                is not None
            )

    @classmethod
    def read(cls, path: Path, update: int | None) -> Exchanged:
        with path.open(encoding="ascii", errors="replace") as file:
            head = file.readline().split()
            if len(head) != 2 or not all(word.isdecimal() and len(word) < 10 for word in head):
                raise ValueError(f"line 1: expected the numbers of vertices and edges, received {head[:3]}")
            vertices, edges = map(int, head)
            if vertices < 1:
                raise ValueError(f"line 1: expected at least one vertex, received {vertices}")
            check_claim(8 * vertices, path.stat().st_size, f"{vertices} vertices")
            table = _read_edges(file.read(), edges)
        pairs, weights = table[:, :2].astype(np.int64) - 1, table[:, 2]
        outside = (pairs < 0) | (pairs >= vertices)
        if outside.any():
            line = int(outside.any(1).argmax())
            raise ValueError(f"line {line + 2}: expected vertices 1..{vertices}, received {pairs[line] + 1}")
        machine = BoltzmannMachine([Spin(vertices)], {(0, 0): Sparse(pairs)} if edges else [], [0], seed=None)
        if edges:
            machine.couplings[0].fill_(torch.from_numpy(-weights))
        machine.metadata["origin"] = {"form": cls.form, "weight": float(weights.sum())}
        return Exchanged(machine, None, cls.form)

    @classmethod
    def pack(cls, machine: BoltzmannMachine, chains: Tensor | None) -> bytes:
        hamiltonian = machine.hamiltonian().to(torch.float64)
        kinds = [layer.kind for layer in machine.layers]
        if kinds != ["spin"] or bool(hamiltonian.thetas[0][0].any()):
            raise misfit(machine, "one layer of spins without biases for Gset files")
        lines = []
        for edge in range(len(hamiltonian.graph.edges)):
            pairs, J = hamiltonian.joined_units(edge)
            weights = -J.flatten()
            if bool((weights != weights.round()).any()):
                raise ValueError("machine: expected couplings that are whole numbers for Gset files")
            values = zip((pairs + 1).tolist(), weights.long().tolist(), strict=True)
            lines += [f"{i} {j} {weight}" for (i, j), weight in values]
        return "\n".join([f"{machine.layers[0].n_units} {len(lines)}", *lines, ""]).encode()


def _read_edges(text: str, edges: int) -> np.ndarray:
    """Returns vertices and weight of every edge, (edges, 3)."""
    words = text.split()
    if len(words) != 3 * edges:
        raise ValueError(
            f"expected {edges} lines of two vertices and a weight, received {len(words)} numbers"
        )
    for k, word in enumerate(words):
        if not re.fullmatch(r"-?\d{1,9}", word):
            raise ValueError(f"line {k // 3 + 2}: expected whole numbers, received {word[:30]!r}")
    return np.array(words, dtype=np.float64).reshape(edges, 3)
