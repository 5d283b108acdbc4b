"""Binary files of parameters of plmc (``-o``), in single or double precision: fully visible Potts machines.

Little-endian, without padding: the numbers of sites L and letters q, of sequences used and left out, and of
iterations, as int32; five real numbers, the last the effective number of sequences; the alphabet; a weight
for each sequence; the target sequence; the position of each site, int32; frequencies and fields, (L, q) each;
frequencies of pairs and couplings, (q, q) for each pair i < j. The energy is -Σ h - Σ_{i<j} J, as here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harmonium._size_limit import check_claim
from harmonium.data import Letters
from harmonium.exchange._format import Exchanged, Format
from harmonium.exchange._pairwise import Pairwise, to_machine

_MOST = 128  # letters of an alphabet, of ASCII


def _recognises(path: Path) -> bool:
    return any(_find_layout(path, precision) is not None for precision in (4, 8))


def _read(path: Path) -> Exchanged:
    size = path.stat().st_size
    layouts = {layout.size: layout for precision in (4, 8) if (layout := _find_layout(path, precision))}
    if not layouts:
        raise ValueError("expected counts of sites and letters and an alphabet of different letters first")
    layout = layouts.get(size, layouts[min(layouts)])
    alphabet, L, real, q = layout.alphabet, layout.sites, layout.real, len(layout.alphabet)
    if size not in layouts:
        raise ValueError(
            f"expected {' or '.join(map(str, layouts))} bytes for {L} sites of {q} letters, received "
            f"{size}{'; it is cut off' * (size < min(layouts))}"
        )
    check_claim(8 * (L * q) ** 2, size, f"couplings of {L} sites")
    head = np.fromfile(path, np.dtype(layout.head), 1)[0]
    i, j = np.triu_indices(L, 1)
    offset = head.nbytes + len(i) * q * q * np.dtype(real).itemsize  # frequencies of pairs
    h, blocks = head["fields"].astype(float), np.fromfile(path, real, offset=offset).reshape(len(i), q, q)
    origin: dict[str, Any] = {"form": "plmc", "positions": head["positions"].tolist()}
    origin["effective_sequences"] = float(head["reals"][-1])
    target = head["target"].tobytes().decode("ascii", errors="replace")
    if set(target) != {alphabet[0]}:  # which stands for every site where there is none
        origin["target"] = target
    tables = dict(zip(zip(i.tolist(), j.tolist(), strict=True), blocks, strict=True))
    machine = to_machine(Pairwise(list(h), tables), one_hot=True)
    machine.metadata["origin"] = origin
    machine.metadata["encoder"] = Letters(alphabet).to_dict()
    return Exchanged(machine, None, "plmc")


class _Layout(NamedTuple):
    """The parts of a file: ``head`` has those before the tables of pairs, ``size`` the bytes of them all."""

    alphabet: str
    sites: int
    real: str
    size: int
    head: list[Any]


def _find_layout(path: Path, precision: int) -> _Layout | None:
    """Returns the layout that a file has if its real numbers have a precision; None: it cannot have it."""
    with path.open("rb") as file:
        L, q, used, left, _ = np.frombuffer(file.read(20).ljust(20, b"\xff"), "<i4").tolist()
        if min(L, q - 1, used + 1, left + 1) < 1 or q > _MOST:
            return None
        file.seek(5 * precision, 1)
        letters = file.read(q)
    if len(set(letters)) != q or not all(33 <= letter < 127 for letter in letters):
        return None
    real = f"<f{precision}"
    head: list[Any] = [("counts", "<i4", (5,)), ("reals", real, (5,)), ("alphabet", "S1", (q,))]
    head += [("weights", real, (used + left,)), ("target", "S1", (L,)), ("positions", "<i4", (L,))]
    head += [("frequencies", real, (L, q)), ("fields", real, (L, q))]
    size = 20 + q + 5 * L + precision * (5 + used + left + 2 * L * q + L * (L - 1) * q * q)
    return _Layout(letters.decode("ascii"), L, real, size, head)


PLMC = Format("plmc", ".params", "binary parameters of plmc", _recognises, _read)
"""Parameters of plmc. They are read alone: a file has frequencies of the alignment as well."""
