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
from harmonium.exchange._pairwise import Array, Pairwise, of_machine, to_machine
from harmonium.machine import BoltzmannMachine
from harmonium.sequences import ALPHABETS

_Place = tuple[Any, ...]  # sites and letters of a field or a coupling
_recognises = begins_with(rb"\s*[hJ]([^\S\n]+\S+){3}([^\S\n]+\S+){0,2}[^\S\n]*(\n|$)")


def _read(path: Path) -> Exchanged:
    fields, couplings = dict[_Place, float](), dict[_Place, float]()

    def add_line(words: list[str]) -> None:
        key: _Place
        match words:
            case ["h", i, a, value]:
                into, key = fields, (int(i), a)
            case ["J", i, j, a, b, value] if int(i) != int(j):
                into, key = couplings, min((int(i), int(j), a, b), (int(j), int(i), b, a))
            case _:
                raise ValueError
        if key in into or key[0] < 0:
            raise ValueError
        into[key] = finite(value)

    expected = (
        "'h i a value' or 'J i j a b value' of two sites, each once, from site 0 on, with a finite value"
    )
    with path.open(encoding="ascii", errors="replace") as file:
        parse_lines(enumerate(file, 1), add_line, expected)
    letters = dict.fromkeys(a for _, a in fields)
    alphabet, states = _alphabet_of(letters, {x for *_, a, b in couplings for x in (a, b)})
    sites, q = 1 + max((i for i, _ in fields), default=-1), len(states)
    lacking = f"received {len(fields)}"
    if 1 <= sites <= len(fields):
        lacking = next(
            (f"received none for h {i} {a}" for i in range(sites) for a in states if (i, a) not in fields), ""
        )
    if lacking:
        raise ValueError(f"expected a field for every site and letter, {lacking}")
    check_claim(8 * (sites * q) ** 2, path.stat().st_size, f"couplings of {sites} sites")
    h = [np.array([fields[i, a] for a in states]) for i in range(sites)]
    code, tables = {state: a for a, state in enumerate(states)}, dict[tuple[int, int], Array]()
    for (i, j, a, b), value in couplings.items():
        if j >= sites:
            raise ValueError(f"expected couplings of two sites below {sites}, received J {i} {j}")
        tables.setdefault((i, j), np.zeros((q, q)))[code[a], code[b]] = value
    machine = to_machine(Pairwise(h, dict(sorted(tables.items()))), one_hot=True)
    machine.metadata["origin"] = {"form": "adabmdca"}
    machine.metadata["encoder"] = Letters(alphabet).to_dict()
    return Exchanged(machine, None, "adabmdca")


def _write(machine: BoltzmannMachine, chains: Tensor | None) -> bytes:
    layer: Any = machine.layers[0]
    if len(machine.layers) != 1 or not layer.one_hot:
        raise misfit(machine, "one layer of categorical visible units for adabmDCA")
    q = layer.n_states
    alphabet = (machine.metadata.get("encoder") or {}).get("alphabet", _usual_alphabet(q))
    if not isinstance(alphabet, str) or len(alphabet) != q:
        raise ValueError(
            f"machine: expected an alphabet of {q} letters, received {alphabet!r}; name it by "
            'machine.metadata["encoder"] = hm.data.Letters(alphabet).to_dict()'
        )
    model = of_machine(machine, "adabmDCA")
    lines = [
        f"J {i} {j} {alphabet[a]} {alphabet[b]} {value:.17g}"
        for (i, j), table in model.tables.items()
        for (a, b), value in np.ndenumerate(table)
    ]
    lines += [
        f"h {i} {alphabet[a]} {value:.17g}"
        for i, field in enumerate(model.fields)
        for a, value in enumerate(field.tolist())
    ]
    return ("\n".join(lines) + "\n").encode()


def _usual_alphabet(states: int) -> str | None:
    """Returns the alphabet of so many letters; of five that of RNA. None: there is none."""
    return {len(known): known for known in reversed(ALPHABETS.values())}.get(states)


def _alphabet_of(letters: dict[str, None], joined: set[str]) -> tuple[str, Sequence[str]]:
    """Returns the alphabet, and states as they are written, in their order.

    Letters are in the order of a known alphabet, or as they first come. States may be numbers from 0, as of
    bmDCA where there is an alphabet of so many letters.
    """
    numbers = [str(state) for state in range(len(letters))]
    usual = _usual_alphabet(len(letters))
    if letters.keys() == set(numbers) and usual is not None:
        return usual, numbers
    seen = letters.keys() | joined
    if any(len(letter) != 1 for letter in seen) or seen != letters.keys() or len(seen) < 2:
        raise ValueError(f"expected letters that all have fields, at least two, received {sorted(seen)[:30]}")
    for known in ALPHABETS.values():
        if seen == set(known):
            return known, known
    return "".join(letters), [*letters]


ADABMDCA = Format("adabmdca", ".dat", "text of adabmDCA", _recognises, _read, _write)
"""Text of adabmDCA."""
