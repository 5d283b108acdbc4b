"""Alignments: sequences of one length as codes, by the letters of an alphabet, the gap first."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ALPHABETS = {"protein": "-ACDEFGHIKLMNPQRSTVWY", "rna": "-ACGU", "dna": "-ACGT"}
"""Letters by the kind of sequence, as adabmDCA orders them."""

UNKNOWN = {"protein": "BJOUXZ?*", "rna": "BDHKMNRSVWXY?*", "dna": "BDHKMNRSVWXY?*"}
"""Letters that stand for several, or for none that is known, such as the stop codon "*"."""

READINGS = ("gap", "missing", "error")
"""Ways to read a letter that stands for several."""
_MOST = 127  # codes are int8
_NUCLEOTIDES = "ACGTUN"
# Letters; by chance so many amino acids are A, C, G, N and T alone less than once in 10^11.
_FEW = 20
MISSING = -1
"""The code of a letter that is not observed."""


def kind_of(alphabet: str) -> str:
    """Returns the name of an alphabet that is given by its letters and has one; others as they are."""
    return next((kind for kind, letters in ALPHABETS.items() if letters == alphabet), alphabet)


def find_alphabet(alphabet: str, letters: Collection[str]) -> tuple[str, str]:
    """Returns the letters in order, and those that are taken as unknown.

    Args:
        alphabet: "protein", "rna", "dna", "auto", or the letters themselves, 2 to 127 different ones.
        letters: Letters that occur, in upper case.

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
    known = ALPHABETS["protein"]
    if len(seen & set(known)) > len(seen) / 2:  # proteins but for some letters, which ``encode`` names
        return known, UNKNOWN["protein"]
    raise ValueError(
        f"alphabet: expected the letters of {', '.join(ALPHABETS)}, received {''.join(sorted(seen))}; give "
        "the alphabet, such as alphabet='-01'"
    )


def join_nucleotides(sequences: Sequence[str], alphabet: str) -> tuple[Sequence[str], list[str]]:
    """Returns sequences in which T and U are one letter, and a note where one of them was changed.

    That is where nucleotides hold both, or the other one than that of "rna" or "dna".
    """
    kind, letters = kind_of(alphabet), {letter for sequence in sequences for letter in set(sequence)}
    if kind not in ("auto", "rna", "dna") or not letters <= set("-ACGTU" + UNKNOWN["rna"]):
        return sequences, []
    old, new = ("U", "T") if kind == "dna" else ("T", "U")
    if old not in letters or (kind == "auto" and new not in letters):
        return sequences, []
    return [sequence.replace(old, new) for sequence in sequences], [f"{old} is read as {new}"]


class Alignment(NamedTuple):
    """Sequences of one length.

    Attributes:
        codes: (sequences, sites), int8: places of the letters in the alphabet, -1 where not observed.
        names: Names of the sequences, what follows ">"; empty texts where the file has none.
        alphabet: the letters in the order of their codes.
        unknown: what letters that stand for several were taken as, see ``read_alignment``.
        notes: what was decided in reading, each in words.
        ambiguous: Number of letters that stand for several, or for none that is known, in all rows.
    """

    codes: NDArray[np.int8]
    names: list[str]
    alphabet: str
    unknown: str = "gap"
    notes: tuple[str, ...] = ()
    ambiguous: int = 0

    @property
    def ambiguous_share(self) -> float:
        """The share of ``ambiguous`` letters among all that are no gaps; 0 where there are none."""
        gaps = int((self.codes == self.alphabet.find("-")).sum())
        gaps -= self.ambiguous if self.unknown == "gap" else 0
        return self.ambiguous / max(1, self.codes.size - gaps)

    def warn_of_ambiguous(self, name: str, usual: float) -> None:
        """Warns where a larger share of letters than usual stands for several, or for none known.

        Args:
            name: of the data.
            usual: the share in training.
        """
        if self.ambiguous_share > usual:
            warnings.warn(
                f"{name}: {self.notes[-1]}; they are {self.ambiguous_share:.2g} of the letters, "
                f"{usual:.2g} in training; the machine's letters are {self.alphabet!r}",
                stacklevel=3,
            )


def encode(
    names: list[str],
    sequences: Sequence[str],
    places: Sequence[str],
    alphabet: str,
    unknown: str,
) -> Alignment:
    """Returns sequences as codes; ``places`` are those in their file, for messages.

    Raises:
        ValueError: sequences of different lengths, letters outside of the alphabet, or nucleotides where the
            alphabet is that of proteins.
    """
    counts = Counter[str]()
    for sequence in sequences:
        counts.update(sequence)
    known, others = find_alphabet(alphabet, counts)
    if alphabet != "auto":
        _refuse_nucleotides(known, counts)
    widths = [len(sequence) for sequence in sequences]
    for i, width in enumerate(widths):
        if width != widths[0] or width == 0:
            raise ValueError(
                f"{places[i]}: expected {widths[0] or 'some'} letters as in the first one, received "
                f"{width} in {names[i] or sequences[i][:20]!r}; align them first"
            )
    code = {letter: i for i, letter in enumerate(known)}
    if unknown != "error":
        code = {letter: 0 if unknown == "gap" else MISSING for letter in others} | code
    for i, sequence in enumerate(sequences):
        if wrong := set(sequence) - code.keys():
            remedy = "write X for it, or give" if "X" in code else "give"  # where X is one of the wrong ones
            raise ValueError(
                f"{places[i]}: expected letters of {known!r}, received {min(wrong)!r} in "
                f"{names[i] or sequence[:20]!r}; {remedy} the alphabet '{known}{min(wrong)}'"
            )
    table = np.zeros(max(map(ord, code)) + 1, np.int8)
    for letter, number in code.items():
        table[ord(letter)] = number
    points = np.frombuffer("".join(sequences).encode("utf-32-le"), np.uint32)
    codes = table[points].reshape(len(sequences), -1)
    unknown_counts = {letter: counts[letter] for letter in others if counts[letter]}
    if not unknown_counts:
        return Alignment(codes, names, known, unknown)
    listed = ", ".join(f"{letter} {count} times" for letter, count in unknown_counts.items())
    read_as = "gaps" if unknown == "gap" else "missing"
    note = f"letters that stand for several, or for none that is known, are read as {read_as}: {listed}"
    return Alignment(codes, names, known, unknown, (note,), sum(unknown_counts.values()))


def _refuse_nucleotides(known: str, counts: Mapping[str, int]) -> None:
    """Refuses RNA and DNA where all amino acids are expected, of which A, C, G and T are letters too."""
    acids, letters = set(ALPHABETS["protein"]) - {"-"}, {x: n for x, n in counts.items() if x != "-"}
    plain, total = sum(letters.get(x, 0) for x in _NUCLEOTIDES), sum(letters.values())
    of_rna = letters.keys() <= set("ACGTU" + UNKNOWN["rna"]) and plain >= 0.9 * total  # other codes are rare
    if acids <= set(known) and of_rna and ("U" in letters or ("T" in letters and total >= _FEW)):
        raise ValueError(
            f"expected proteins, in the letters {known!r}, received "
            f"{'RNA' if 'U' in letters else 'DNA'}, in the letters {''.join(sorted(letters))!r} alone"
        )
