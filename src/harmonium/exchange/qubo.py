"""QUBO files of qbsolv: energies of bits, quadratic and without constraints.

After comments, lines that begin with c, comes ``p qubo 0 N nodes couplers``, then a line for each node,
``i i value``, and for each coupler, ``i j value``, with bits from 0 to N - 1. The energy is Σ value x_i x_j.
"""

from __future__ import annotations

import re
from math import isfinite
from pathlib import Path
from typing import ClassVar, final

import torch
from torch import Tensor

from harmonium._size_limit import check_claim
from harmonium.exchange._quadratic import Quadratic
from harmonium.exchange.exchange import Exchanged, Format
from harmonium.machine import BoltzmannMachine

_CONSTANT = "c constant "  # a comment to other programs


@final
class Qubo(Format):
    """Files of qbsolv, as machines of Bernoulli units; a constant of the energy stands in a comment."""

    form: ClassVar[str] = "qubo"
    suffix: ClassVar[str] = ".qubo"
    program: ClassVar[str] = "QUBO files of qbsolv"
    whole: ClassVar[bool] = True

    @classmethod
    def recognises(cls, path: Path) -> bool:
        with path.open("rb") as file:
            return re.match(rb"(\s*c[^\n]*\n|\s*\n)*\s*p\s+qubo\s", file.read(4096)) is not None

    @classmethod
    def read(cls, path: Path, update: int | None, evidence: Path | None) -> Exchanged:
        sizes: list[int] = []
        constant, entries = 0.0, dict[tuple[int, int], float]()
        lines = 0
        with path.open(encoding="ascii", errors="replace") as file:
            for number, line in enumerate(file, 1):
                words = line.split()
                if not words or words[0].startswith("c"):
                    constant = float(line[len(_CONSTANT) :]) if line.startswith(_CONSTANT) else constant
                    continue
                if not sizes:
                    sizes = _read_sizes(words, number)
                    check_claim(8 * sizes[0], path.stat().st_size, f"{sizes[0]} bits")
                    continue
                lines += 1
                try:
                    i, j, value = int(words[0]), int(words[1]), float(words[2])
                    fits = len(words) == 3 and min(i, j) >= 0 and max(i, j) < sizes[0] and isfinite(value)
                except (IndexError, ValueError):
                    fits = False
                if not fits:
                    raise ValueError(
                        f"line {number}: expected two bits below {sizes[0]} and a finite value, received "
                        f"{line.strip()[:30]!r}"
                    )
                entries[min(i, j), max(i, j)] = entries.get((min(i, j), max(i, j)), 0.0) + value
        if not sizes or lines != sum(sizes[1:]):
            raise ValueError(
                f"expected a line 'p qubo 0 N nodes couplers' and as many lines of values, received {lines}; "
                "it is cut off, or damaged"
            )
        linear = torch.zeros(sizes[0], dtype=torch.float64)
        for (i, j), value in entries.items():
            if i == j:
                linear[i] = value
        joined = {pair: value for pair, value in entries.items() if pair[0] != pair[1]}
        pairs = torch.tensor(list(joined), dtype=torch.int64).view(-1, 2)
        values = torch.tensor(list(joined.values()), dtype=torch.float64)
        machine = Quadratic(False, linear, pairs, values, constant).to_machine(range(sizes[0]))
        machine.metadata["origin"] = {"form": cls.form}
        return Exchanged(machine, None, cls.form)

    @classmethod
    def pack(cls, machine: BoltzmannMachine, chains: Tensor | None) -> bytes:
        found = Quadratic.of_machine(machine, "QUBO files", bits=True)
        nodes = [f"{i} {i} {value:.17g}" for i, value in enumerate(found.linear.tolist()) if value]
        pairs = zip(found.pairs.sort(1).values.tolist(), found.values.tolist(), strict=True)
        couplers = [f"{i} {j} {value:.17g}" for (i, j), value in pairs]
        head = [f"{_CONSTANT}{found.constant:.17g}"] if found.constant else []
        head.append(f"p qubo 0 {len(found.linear)} {len(nodes)} {len(couplers)}")
        return "\n".join([*head, *nodes, *couplers, ""]).encode()


def _read_sizes(words: list[str], number: int) -> list[int]:
    """Returns the numbers of bits, of lines for nodes and of those for couplers."""
    sizes = words[3:]
    if words[:2] != ["p", "qubo"] or len(sizes) != 3 or not all(x.isdecimal() and len(x) < 10 for x in sizes):
        raise ValueError(
            f"line {number}: expected 'p qubo 0 N nodes couplers', received {' '.join(words)[:40]!r}"
        )
    if int(sizes[0]) < 1:
        raise ValueError(f"line {number}: expected at least one bit, received {sizes[0]}")
    return list(map(int, sizes))
