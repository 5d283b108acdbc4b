"""Names of mutants, such as A24G, as tables of mutational scans have them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harmonium import _checks

_GAP = "-"
_MUTANT = re.compile(r"([^\d])(\d+)([^\d])")
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


def find_sequence(names: Sequence[str], name: str) -> int:
    """Returns the row of a sequence, from 0, by its name or by the number of its row from 1.

    Args:
        names: Names of all sequences.
        name: the whole name, or what stands before its first space or slash.

    Raises:
        ValueError: no such row, or several.

    Examples:
        >>> import harmonium as hm
        >>> hm.sequences.find_sequence(["P1/3-9 kinase", "P2/4-10"], "P2")
        1
    """
    rows = list[int]()
    for end in ("$", " ", "[ /]"):
        rows = rows or [row for row, text in enumerate(names) if re.split(end, text)[0] == name]
    if not rows and name.isdecimal() and 1 <= int(name) <= len(names):
        rows = [int(name) - 1]
    if len(rows) != 1:
        close = _checks.close_to(name, [re.split("[ /]", text)[0] for text in names])
        raise ValueError(
            f"wild_type: expected the name of one sequence, or its number from 1 to {len(names)}, received "
            f"{name!r}, which {len(rows) or 'none'} have{close}"
        )
    return rows[0]


def first_number(name: str, letters: int) -> int | None:
    """Returns the number of a row's first residue by its name, NAME/24-310; None: it has none that fits.

    Args:
        name: Name of the row.
        letters: Number of its letters without gaps, with insertions where the range counts them.
    """
    match = _RANGE.search(name)
    if match is None:
        return None
    start, end = map(int, match.groups())
    return start if end - start + 1 == letters else None


def single_mutants(codes: Any, alphabet: str, first: int | Sequence[int] = 1) -> Mutants:
    """Lists all single mutants of an aligned sequence, without gaps.

    Args:
        codes: States of the sequence, (sites,), places in the alphabet. Where it has a gap, or -1, there is
            nothing to mutate.
        alphabet: the letters in the order of their states; "-" is the gap.
        first: Number of the first letter; the others follow without the gaps. Or the number of each, rising.

    Raises:
        ValueError: states that have no letter, or another number of numbers.

    Examples:
        >>> import harmonium as hm
        >>> hm.sequences.single_mutants([1, 0, 2], "-AC", first=24).names
        ['A24C', 'C25A']
    """
    numbered, gap = _numbered(codes, alphabet, first), alphabet.find(_GAP)
    names, sites, states = list[str](), list[int](), list[int]()
    for number, (site, code) in numbered.items():
        for state, letter in enumerate(alphabet):
            if state not in (code, gap):
                names.append(f"{alphabet[code]}{number}{letter}")
                sites.append(site)
                states.append(state)
    return Mutants(names, np.array(sites, np.int64), np.array(states, np.int64))


def mutate(
    codes: Any, mutants: Sequence[str], alphabet: str, first: int | Sequence[int] = 1
) -> NDArray[np.int64]:
    """Returns a sequence with the mutations of each mutant, (mutants, sites).

    Args:
        codes: States of the sequence, (sites,), as of ``single_mutants``.
        mutants: Names such as A24G, several mutations with a colon between them, A24G:C30D.
        alphabet: the letters in the order of their states; "-" is the gap.
        first: as of ``single_mutants``.

    Raises:
        ValueError: a name of another form, a site that the sequence has not, another letter there, or two
            mutations of one site.

    Examples:
        >>> import harmonium as hm
        >>> hm.sequences.mutate([1, 0, 2], ["A24C", "A24C:C25A"], "-AC", first=24).tolist()
        [[2, 0, 2], [2, 0, 1]]
    """
    numbered = _numbered(codes, alphabet, first)
    rows = np.repeat(np.asarray(codes, np.int64)[None], len(mutants), 0)
    for row, name in enumerate(mutants):
        changed = dict[int, str]()
        for part in name.split(":"):
            match = _MUTANT.fullmatch(part.strip())
            if match is None or match[3] not in alphabet:
                raise ValueError(
                    f"mutants: expected names such as A24G or A24G:C30D of letters in {alphabet!r}, received "
                    f"{name!r} as number {row + 1}"
                )
            site, code = numbered.get(int(match[2]), (None, None))
            if site is None or code is None or alphabet[code] != match[1]:
                expected = (
                    f"sites {min(numbered)} to {max(numbered)} of the sequence"
                    if code is None
                    else f"{alphabet[code]} at site {match[2]}, as in the sequence"
                )
                raise ValueError(
                    f"mutants: expected {expected}, received {match[1]}{match[2]} in {part.strip()!r} as "
                    f"number {row + 1}; first sets the number of its first letter"
                )
            if (before := changed.setdefault(site, part)) is not part:
                raise ValueError(
                    f"mutants: expected one letter at each site, received {before.strip()} and "
                    f"{part.strip()} in {name!r} as number {row + 1}; leave one of them out"
                )
            rows[row, site] = alphabet.index(match[3])
    return rows


def _numbered(codes: Any, alphabet: str, first: int | Sequence[int]) -> dict[int, tuple[int, int]]:
    """Returns site and state by the number of each letter; gaps and missing letters have none."""
    values = np.asarray(codes)
    if values.ndim != 1 or not ((values >= -1) & (values < len(alphabet))).all():
        raise ValueError(f"codes: expected (sites,) states from -1 to {len(alphabet) - 1}, received {codes}")
    gap = alphabet.find(_GAP)
    shown = [(site, int(state)) for site, state in enumerate(values) if state not in (-1, gap)]
    if isinstance(first, Sequence | np.ndarray):
        numbers = [int(number) for number in first]
        if len(numbers) != len(shown) or numbers != sorted({*numbers}):
            raise ValueError(f"first: expected {len(shown)} rising numbers, received {len(numbers)}")
        return dict(zip(numbers, shown, strict=True))
    return dict(enumerate(shown, _checks.positive_int(first, "first", minimum=0)))
