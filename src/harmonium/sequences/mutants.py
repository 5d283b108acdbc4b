"""Names of mutants, such as A24G, as tables of mutational scans have them."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harmonium import _checks

_GAP = "-"
_RANGE = re.compile(r"/(\d+)-(\d+)\b")  # of the residues that a row shows, as Pfam and HMMER name it


class Mutants(NamedTuple):
    """All single mutants of a sequence, site after site.

    Attributes:
        names: Names as of ProteinGym: the letter of the sequence, the number of its site, the new letter.
        sites: Sites of the alignment, (mutants,), from 0.
        states: New states, (mutants,).
    """

    names: list[str]
    sites: NDArray[np.int64]
    states: NDArray[np.int64]


def first_number(name: str, letters: int) -> int | None:
    """Returns the number of a row's first residue by its name, NAME/24-310; None: it has none that fits.

    Args:
        name: Name of the row.
        letters: Number of its letters without gaps. Where the range has another length, insertions were left
            out, and numbers after them would be wrong.
    """
    found = _RANGE.search(name)
    if found is None:
        return None
    start, end = map(int, found.groups())
    return start if end - start + 1 == letters else None


def single_mutants(codes: Any, alphabet: str, first: int = 1) -> Mutants:
    """Lists all single mutants of an aligned sequence, without gaps.

    Args:
        codes: States of the sequence, (sites,), places in the alphabet. Where it has a gap, or -1, there is
            nothing to mutate.
        alphabet: the letters in the order of their states; "-" is the gap.
        first: Number of the first letter; the others follow without the gaps.

    Raises:
        ValueError: states that have no letter.

    Examples:
        >>> import harmonium as hm
        >>> hm.sequences.single_mutants([1, 0, 2], "-AC", first=24).names
        ['A24C', 'C25A']
    """
    values = np.asarray(codes)
    if values.ndim != 1 or not ((values >= -1) & (values < len(alphabet))).all():
        raise ValueError(f"codes: expected (sites,) states from -1 to {len(alphabet) - 1}, received {codes}")
    first = _checks.positive_int(first, "first", minimum=0)
    gap = alphabet.find(_GAP)
    names, sites, states = list[str](), list[int](), list[int]()
    shown = [(site, int(state)) for site, state in enumerate(values) if state not in (-1, gap)]
    for number, (site, own) in enumerate(shown, first):
        for state, letter in enumerate(alphabet):
            if state not in (own, gap):
                names.append(f"{alphabet[own]}{number}{letter}")
                sites.append(site)
                states.append(state)
    return Mutants(names, np.array(sites, np.int64), np.array(states, np.int64))
