"""Alignments: sequences of one length as codes, and what readers of their files share."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harmonium._size_limit import check_claim
from harmonium.sequences.alphabet import find_alphabet

_PIECE = 1 << 20
_OF_A_LETTER = 8  # bytes in memory
MISSING = -1
"""The code of a letter that is not observed."""


class Alignment(NamedTuple):
    """Sequences of one length.

    Attributes:
        codes: (sequences, sites), int8: places of the letters in the alphabet, -1 where not observed.
        names: of the sequences, what follows ">"; empty texts where the file has none.
        alphabet: the letters in the order of their codes.
        unknown: what letters that stand for several were taken as, see ``read_fasta``.
    """

    codes: NDArray[np.int8]
    names: list[str]
    alphabet: str
    unknown: str = "gap"


def text_of(path: Path, of_a_line: int) -> str:
    """Returns the content of a file, unpacked where its name ends in .gz.

    Args:
        path: of the file.
        of_a_line: bytes that a line takes in memory beside its letters.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is damaged, unpacks to too much, or is no text.
    """
    if not path.is_file():
        raise FileNotFoundError(f"path: expected a file of sequences, found none at {path}")
    content, lines, size = bytearray(), 0, path.stat().st_size
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            while piece := file.read(_PIECE):
                content += piece
                lines += piece.count(b"\n")
                check_claim(_OF_A_LETTER * len(content) + of_a_line * lines, size, "its text")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"damaged, or not compressed by gzip ({error})") from error
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"expected text, received byte {content[error.start]} at {error.start}") from error


def encode(
    names: list[str], sequences: Sequence[str], places: Sequence[str], alphabet: str, unknown: str
) -> Alignment:
    """Returns sequences as codes.

    Args:
        names: of the sequences.
        sequences: their letters.
        places: of the sequences in their file, for messages.
        alphabet, unknown: as of ``read_fasta``.

    Raises:
        ValueError: sequences of different lengths, or letters outside of the alphabet.
    """
    known, others = find_alphabet(alphabet, {letter for sequence in sequences for letter in set(sequence)})
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
            raise ValueError(
                f"{places[i]}: expected letters of {known!r}, received {min(wrong)!r} in "
                f"{names[i] or sequence[:20]!r}"
            )
    table = np.zeros(max(map(ord, code)) + 1, np.int8)
    for letter, number in code.items():
        table[ord(letter)] = number
    points = np.frombuffer("".join(sequences).encode("utf-32-le"), np.uint32)
    return Alignment(table[points].reshape(len(sequences), -1), names, known, unknown)
