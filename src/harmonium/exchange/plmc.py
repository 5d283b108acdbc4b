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

_HEAD = 20  # bytes of the five counts
_MOST = 128  # letters of an alphabet, of ASCII


def _recognises(path: Path) -> bool:
    return any(_layout(path, precision) is not None for precision in (4, 8))


def _read(path: Path) -> Exchanged:
    size = path.stat().st_size
    known = [layout for precision in (4, 8) if (layout := _layout(path, precision))]
    if not known:
        raise ValueError("expected counts of sites and letters and an alphabet of different letters first")
    layout = next((layout for layout in known if layout.size == size), None)
    if layout is None:
        sizes = " or ".join(str(layout.size) for layout in known)
        raise ValueError(
            f"expected {sizes} bytes for {known[0].sites} sites of {known[0].letters} letters, received "
            f"{size}{'; it is cut off' * (size < known[0].size)}"
        )
    L, q, alphabet = layout.sites, layout.letters, layout.alphabet
    check_claim(8 * (L * q) ** 2, size, f"couplings of {L} sites")
    real = np.dtype(f"<f{layout.precision}")
    with path.open("rb") as file:
        file.seek(_HEAD + 4 * layout.precision)
        (effective,) = np.fromfile(file, real, 1).tolist()
        file.seek(q + layout.precision * layout.sequences, 1)
        target = file.read(L).decode("ascii", errors="replace")
        positions = np.fromfile(file, "<i4", L).tolist()
        file.seek(L * q * layout.precision, 1)
        h = np.fromfile(file, real, L * q).reshape(L, q).astype(float)
        pairs = L * (L - 1) // 2
        file.seek(pairs * q * q * layout.precision, 1)
        blocks = np.fromfile(file, real, pairs * q * q).reshape(pairs, q, q)
    i, j = np.triu_indices(L, 1)
    for site, a in np.argwhere(~np.isfinite(h)).tolist():
        raise ValueError(f"expected finite fields, received {h[site, a]} for site {site}, {alphabet[a]}")
    for k, a, b in np.argwhere(~np.isfinite(blocks)).tolist():
        raise ValueError(
            f"expected finite couplings, received {blocks[k, a, b]} for sites {i[k]} {j[k]}, "
            f"{alphabet[a]} {alphabet[b]}"
        )
    origin: dict[str, Any] = {"form": "plmc", "positions": positions, "effective_sequences": effective}
    if set(target) != {alphabet[0]}:  # which stands for every site where there is none
        origin["target"] = target
    tables = dict(zip(zip(i.tolist(), j.tolist(), strict=True), blocks, strict=True))
    machine = to_machine(Pairwise(list(h), tables), one_hot=True)
    machine.metadata["origin"] = origin
    machine.metadata["encoder"] = Letters(alphabet).to_dict()
    return Exchanged(machine, None, "plmc")


class _Layout(NamedTuple):
    """The head of a file.

    Attributes:
        size: bytes that the whole file has.
        precision: bytes of a real number.
    """

    size: int
    precision: int
    sites: int
    letters: int
    sequences: int
    alphabet: str


def _layout(path: Path, precision: int) -> _Layout | None:
    """Returns what a file's head claims in a precision; None: it cannot be one."""
    with path.open("rb") as file:
        counts = np.frombuffer(file.read(_HEAD).ljust(_HEAD, b"\xff"), "<i4").tolist()
        L, q, used, left = counts[:4]
        if min(L, q - 1, used + 1, left + 1) < 1 or q > _MOST:
            return None
        file.seek(5 * precision, 1)
        letters = file.read(q)
    if len(set(letters)) != q or not all(33 <= letter < 127 for letter in letters):
        return None
    pairs = L * (L - 1) // 2 * q * q
    reals = 5 + used + left + 2 * L * q + 2 * pairs
    size = _HEAD + q + 5 * L + precision * reals
    return _Layout(size, precision, L, q, used + left, letters.decode("ascii"))


PLMC = Format("plmc", ".params", "binary parameters of plmc", _recognises, _read)
"""Parameters of plmc. They are read alone: a file has frequencies of the alignment as well."""
