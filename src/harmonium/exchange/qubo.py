"""QUBO files of qbsolv: energies of bits, quadratic and without constraints.

After comments, lines that begin with c, comes ``p qubo 0 N nodes couplers``, then a line for each node,
``i i value``, and for each coupler, ``i j value``, with bits from 0 to N - 1. The energy is Σ value x_i x_j.
"""

from __future__ import annotations

import re
from math import isfinite
from pathlib import Path

import torch
from torch import Tensor

from harmonium._size_limit import check_claim
from harmonium.exchange._format import Exchanged, Format
from harmonium.exchange._quadratic import Quadratic
from harmonium.machine import BoltzmannMachine

_CONSTANT = ["c", "constant"]  # a comment to other programs


def _recognises(path: Path) -> bool:
    with path.open("rb") as file:
        return re.match(rb"(\s*c[^\n]*\n|\s*\n)*\s*p\s+qubo\s", file.read(4096)) is not None


def _read(path: Path) -> Exchanged:
    text = path.read_text("ascii", errors="replace").splitlines()
    lines = [(number, words) for number, line in enumerate(text, 1) if (words := line.split())]
    notes = [words[2] for _, words in lines if words[:2] == _CONSTANT and len(words) == 3]
    (number, head), *rest = [x for x in lines if not x[1][0].startswith("c")] or [(1, [])]
    if head[:2] != ["p", "qubo"] or len(head) != 6 or not all(re.fullmatch(r"\d{1,9}", x) for x in head[3:]):
        raise ValueError(f"line {number}: expected 'p qubo 0 N nodes couplers', received {head[:9]}")
    bits, *counts = map(int, head[3:])
    check_claim(8 * bits, path.stat().st_size, f"{bits} bits")
    entries = dict[tuple[int, int], float]()
    for number, words in rest:
        try:
            (i, j), value = sorted(map(int, words[:2])), float(words[2])
            fits = len(words) == 3 and i >= 0 and j < bits and isfinite(value)
        except (LookupError, ValueError):
            fits = False
        if not fits:
            raise ValueError(
                f"line {number}: expected two bits below {bits} and a finite value, received {words[:9]}"
            )
        entries[i, j] = entries.get((i, j), 0.0) + value
    if bits < 1 or len(rest) != sum(counts):
        raise ValueError(
            f"expected at least one bit, and {sum(counts)} lines of values, received {bits} and "
            f"{len(rest)}; the file is cut off, or damaged"
        )
    linear = torch.zeros(bits, dtype=torch.float64)
    for (i, j), value in entries.items():
        if i == j:
            linear[i] = value
    joined = {pair: value for pair, value in entries.items() if pair[0] != pair[1]}
    pairs = torch.tensor(list(joined), dtype=torch.int64).view(-1, 2)
    values = torch.tensor(list(joined.values()), dtype=torch.float64)
    constant = sum(map(float, notes))
    machine = Quadratic(False, linear, pairs, values, constant).to_machine(range(bits))
    machine.metadata["origin"] = {"form": "qubo"}
    return Exchanged(machine, None, "qubo")


def _write(machine: BoltzmannMachine, chains: Tensor | None) -> bytes:
    found = Quadratic.of_machine(machine, "QUBO files", bits=True)
    nodes = [f"{i} {i} {value:.17g}" for i, value in enumerate(found.linear.tolist()) if value]
    pairs = zip(found.pairs.sort(1).values.tolist(), found.values.tolist(), strict=True)
    couplers = [f"{i} {j} {value:.17g}" for (i, j), value in pairs]
    head = [f"{' '.join(_CONSTANT)} {found.constant:.17g}"] if found.constant else []
    head.append(f"p qubo 0 {len(found.linear)} {len(nodes)} {len(couplers)}")
    return "\n".join([*head, *nodes, *couplers, ""]).encode()


QUBO = Format("qubo", ".qubo", "QUBO files of qbsolv", _recognises, _read, _write, whole=True)
"""Files of qbsolv, as machines of Bernoulli units; a constant of the energy stands in a comment."""
