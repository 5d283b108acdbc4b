"""Text files of adabmDCA: fully visible Potts machines.

A line ``J i j a b value`` is a coupling and ``h i a value`` a field: sites from 0, letters of an alphabet, or
states numbered from 0, as bmDCA writes them.
The energy is -Σ h - Σ_{i<j} J, as here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from harmonium._size_limit import check_claim
from harmonium.data import Letters
from harmonium.exchange._format import Exchanged, Format, begins_with, finite, misfit, parse_lines
from harmonium.exchange._pairwise import Pairwise, to_machine
from harmonium.machine import BoltzmannMachine
from harmonium.sequences import ALPHABETS

_Row = tuple[Any, ...]
_recognises = begins_with(rb"\s*[hJ]([^\S\n]+\S+){3}([^\S\n]+\S+){0,2}[^\S\n]*(\n|$)")


def _read(path: Path) -> Exchanged:
    with path.open(encoding="ascii", errors="replace") as file:
        rows = parse_lines(
            enumerate(file, 1), _parse_line, "'h i a value' or 'J i j a b value' with a finite value"
        )
    fields, pairs = ([row for row in rows if len(row) == size] for size in (3, 5))
    alphabet, states = _alphabet_of(fields, pairs)
    sites = 1 + max((i for i, *_ in fields), default=-1)
    if not 1 <= sites <= len(fields):
        raise ValueError(f"expected a field for every site and letter, received {len(fields)}")
    code, q = {state: a for a, state in enumerate(states)}, len(states)
    h = np.full((sites, q), np.nan)
    for i, letter, value in fields:
        if i < 0 or not np.isnan(h[i, code[letter]]):
            raise ValueError(f"expected every field once, from site 0 on, received h {i} {letter} again")
        h[i, code[letter]] = value
    if np.isnan(h).any():
        site, state = np.argwhere(np.isnan(h))[0].tolist()
        raise ValueError(
            f"expected a field for every site and letter, received none for h {site} {states[state]}"
        )
    check_claim(8 * (sites * q) ** 2, path.stat().st_size, f"couplings of {sites} sites")
    joined = np.zeros((sites, sites), bool)
    J = np.full((sites, q, sites, q), np.nan)
    for i, j, first, second, value in pairs:
        if not (0 <= i < sites and 0 <= j < sites and i != j):
            raise ValueError(f"expected couplings of two sites below {sites}, received J {i} {j}")
        joined[i, j] = joined[j, i] = True
        a, b = code[first], code[second]
        if not np.isnan(J[i, a, j, b]):
            raise ValueError(f"expected every coupling once, received J {i} {j} {first} {second} again")
        J[i, a, j, b] = J[j, b, i, a] = value
    J = np.nan_to_num(J)
    tables = {(i, j): J[i, :, j] for i, j in np.argwhere(np.triu(joined, 1)).tolist()}
    machine = to_machine(Pairwise(list(h), tables), one_hot=True)
    machine.metadata["origin"] = {"form": "adabmdca"}
    machine.metadata["encoder"] = Letters(alphabet).to_dict()
    return Exchanged(machine, None, "adabmdca")


def _write(machine: BoltzmannMachine, chains: Tensor | None) -> bytes:
    layer, count = machine.layers[0], len(machine.layers)
    if count != 1 or not layer.one_hot:
        raise misfit(machine, "one layer of categorical visible units for adabmDCA")
    bias: Any = layer.bias
    sites, q = bias.shape
    alphabet = (machine.metadata.get("encoder") or {}).get("alphabet", _usual_alphabet(q))
    if not isinstance(alphabet, str) or len(alphabet) != q:
        raise ValueError(
            f"machine: expected an alphabet of {q} letters, received {alphabet!r}; name it by "
            'machine.metadata["encoder"] = hm.data.Letters(alphabet).to_dict()'
        )
    lines = []
    if machine.edges:
        J: Any = machine.hamiltonian().J.matrix(0).view(sites, q, sites, q).tolist()
        pattern = machine.couplings[0].joined
        joined = None if pattern is None else pattern.view(sites, q, sites, q)[:, 0, :, 0]
        for i in range(sites):
            for j in range(i + 1, sites):
                if joined is None or joined[i, j]:
                    lines += [
                        f"J {i} {j} {alphabet[a]} {alphabet[b]} {J[i][a][j][b]:.17g}"
                        for a in range(q)
                        for b in range(q)
                    ]
    h: Any = bias.tolist()
    lines += [f"h {i} {alphabet[a]} {h[i][a]:.17g}" for i in range(sites) for a in range(q)]
    return ("\n".join(lines) + "\n").encode()


def _parse_line(words: list[str]) -> _Row:
    """Returns a field, (site, letter, value), or a coupling, (site, site, letter, letter, value)."""
    match words:
        case ["h", i, a, value]:
            return int(i), a, finite(value)
        case ["J", i, j, a, b, value]:
            return int(i), int(j), a, b, finite(value)
    raise ValueError


def _usual_alphabet(states: int) -> str | None:
    """Returns the alphabet of so many letters; of five that of RNA. None: there is none."""
    return {len(known): known for known in reversed(ALPHABETS.values())}.get(states)


def _alphabet_of(fields: list[_Row], pairs: list[_Row]) -> tuple[str, Sequence[str]]:
    """Returns the alphabet, and states as they are written, in their order.

    Letters are in the order of a known alphabet, or as they first come. States may be numbers from 0, as of
    bmDCA where there is an alphabet of so many letters.
    """
    letters = dict.fromkeys(a for _, a, _ in fields)
    numbers = [str(state) for state in range(len(letters))]
    usual = _usual_alphabet(len(letters))
    if letters.keys() == set(numbers) and usual is not None:
        return usual, numbers
    seen = set(letters) | {x for _, _, a, b, _ in pairs for x in (a, b)}
    if any(len(letter) != 1 for letter in seen) or seen != set(letters) or len(seen) < 2:
        raise ValueError(f"expected letters that all have fields, at least two, received {sorted(seen)[:30]}")
    for known in ALPHABETS.values():
        if seen == set(known):
            return known, known
    return "".join(letters), [*letters]


ADABMDCA = Format("adabmdca", ".dat", "text of adabmDCA", _recognises, _read, _write)
"""Text of adabmDCA."""
