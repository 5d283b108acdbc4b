"""QUBO files of qbsolv: energies of bits, quadratic and without constraints.

After comments, lines that begin with c, comes ``p qubo 0 N nodes couplers``, then a line for each node,
``i i value``, and for each coupler, ``i j value``, with bits from 0 to N - 1. The energy is Σ value x_i x_j.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor

from harmonium._size_limit import check_claim
from harmonium.exchange._format import Exchanged, Format, begins_with, finite, parse_lines
from harmonium.exchange._quadratic import Quadratic
from harmonium.machine import BoltzmannMachine

_CONSTANT = ["c", "constant"]  # a comment to other programs


_recognises = begins_with(rb"(\s*c[^\n]*\n)*\s*p\s+qubo\s")


def _read(path: Path) -> Exchanged:
    text = path.read_text("ascii", errors="replace").splitlines()
    notes = [words[2] for line in text if (words := line.split())[:2] == _CONSTANT and len(words) == 3]
    lines = [x for x in enumerate(text, 1) if x[1].strip() and not x[1].lstrip().startswith("c")]
    (number, first), *rest = lines or [(1, "")]
    head = first.split()
    if head[:2] != ["p", "qubo"] or len(head) != 6 or not all(re.fullmatch(r"\d{1,9}", x) for x in head[3:]):
        raise ValueError(f"line {number}: expected 'p qubo 0 N nodes couplers', received {head[:9]}")
    bits, *counts = map(int, head[3:])
    check_claim(8 * bits, path.stat().st_size, f"{bits} bits")
    entries = dict[tuple[int, int], float]()

    def add_entry(words: list[str]) -> None:
        i, j, value = words
        pair = min(int(i), int(j)), max(int(i), int(j))
        if pair[0] < 0 or pair[1] >= bits:
            raise ValueError
        entries[pair] = entries.get(pair, 0.0) + finite(value)

    parse_lines(rest, add_entry, f"two bits below {bits} and a finite value")
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
    model = Quadratic.of_machine(machine, "QUBO files", bits=True)
    nodes = [f"{i} {i} {value:.17g}" for i, value in enumerate(model.linear.tolist()) if value]
    pairs = zip(model.pairs.sort(1).values.tolist(), model.values.tolist(), strict=True)
    couplers = [f"{i} {j} {value:.17g}" for (i, j), value in pairs]
    head = [f"{' '.join(_CONSTANT)} {model.constant:.17g}"] if model.constant else []
    head.append(f"p qubo 0 {len(model.linear)} {len(nodes)} {len(couplers)}")
    return "\n".join([*head, *nodes, *couplers, ""]).encode()


QUBO = Format("qubo", ".qubo", "QUBO files of qbsolv", _recognises, _read, _write, whole=True)
"""Files of qbsolv, as machines of Bernoulli units; a constant of the energy stands in a comment."""
