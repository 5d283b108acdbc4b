"""Alphabets: the letters of a kind of sequence in the order of their codes, the gap first."""

from __future__ import annotations

from collections.abc import Collection

ALPHABETS = {"protein": "-ACDEFGHIKLMNPQRSTVWY", "rna": "-ACGU", "dna": "-ACGT"}
"""Letters by the kind of sequence, as adabmDCA orders them."""

UNKNOWN = {"protein": "BJOUXZ", "rna": "BDHKMNRSVWXY", "dna": "BDHKMNRSVWXY"}
"""Letters that stand for several, or for none that is known."""

READINGS = ("gap", "missing", "error")
"""Ways to read a letter that stands for several."""
_MOST = 127  # codes are int8


def kind_of(alphabet: str) -> str:
    """Returns the name of an alphabet that is given by its letters and has one; others as they are."""
    return next((kind for kind, letters in ALPHABETS.items() if letters == alphabet), alphabet)


def find_alphabet(alphabet: str, letters: Collection[str]) -> tuple[str, str]:
    """Returns the letters in order, and those that are taken as unknown.

    Args:
        alphabet: "protein", "rna", "dna", "auto", or the letters themselves, 2 to 127 different ones.
        letters: that occur, in upper case.

    Raises:
        ValueError: letters twice, or that belong to no alphabet.
    """
    alphabet = kind_of(alphabet)
    if alphabet in ALPHABETS:
        return ALPHABETS[alphabet], UNKNOWN[alphabet]
    if alphabet != "auto":
        if len(set(alphabet)) != len(alphabet) or not 2 <= len(alphabet) <= _MOST:
            raise ValueError(
                f'alphabet: expected "auto", {", ".join(ALPHABETS)}, or 2 to {_MOST} different letters, '
                f"received {alphabet!r}"
            )
        return alphabet, ""
    seen = set(letters)
    for kind in ("rna", "dna", "protein"):  # nearly all proteins have one of E, F, I, L, P and Q
        if seen <= set(ALPHABETS[kind] + UNKNOWN[kind]) and len(seen & set(ALPHABETS[kind])) > 1:
            return ALPHABETS[kind], UNKNOWN[kind]
    raise ValueError(
        f"alphabet: expected the letters of {', '.join(ALPHABETS)}, received {''.join(sorted(seen))}; give "
        "the alphabet, such as alphabet='-01'"
    )
