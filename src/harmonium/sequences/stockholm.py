"""Stockholm files, by Biopython's parser, to codes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import numpy as np

from harmonium import _checks
from harmonium.sequences.alignment import Alignment, encode, text_of
from harmonium.sequences.alphabet import ALPHABETS, READINGS, kind_of

_OF_A_LINE = 4000  # bytes in memory: of Biopython's record
_GAPS = str.maketrans("._~", "---")
STOCKHOLM = (".sto", ".stk", ".stockholm")
"""Suffixes of Stockholm files, each also with .gz."""


def read_stockholm(path: str | Path, *, alphabet: str = "auto", unknown: str = "gap") -> Alignment:
    """Reads an alignment of Pfam, Rfam, HMMER or Infernal; ``.gz`` too.

    Columns that the reference line (``#=GC RF``) marks by a gap are insertions, and left out; without that
    line columns of small letters without a capital one are. In other columns small letters are letters, and
    dots are gaps.

    Args:
        path: of the file.
        alphabet: as of ``read_fasta``.
        unknown: as of ``read_fasta``.

    Raises:
        FileNotFoundError: no such file.
        ImportError: the ``biopython`` extra is not installed.
        ValueError: another file, several alignments, or letters outside of the alphabet; the message names
            the file and the sequence.
    """
    path = Path(path)
    _checks.one_of(unknown, "unknown", READINGS)
    try:
        from Bio import AlignIO
    except ImportError as error:
        raise ImportError('Stockholm files need Biopython: pip install "harmonium[biopython]"') from error
    try:
        text, parser = text_of(path, _OF_A_LINE), cast(Any, AlignIO)  # which has no types
        try:
            found = parser.read(io.StringIO(text), "stockholm")
        except Exception as error:  # the parser of a damaged file raises almost anything
            raise ValueError(f"no alignment in Stockholm format ({error or type(error).__name__})") from error
        return _read(found, alphabet, unknown)
    except ValueError as error:
        raise ValueError(f"path: {path}: {error}") from error


def _read(found: Any, alphabet: str, unknown: str) -> Alignment:
    names = [record.id for record in found]
    letters = np.array([list(str(record.seq)) for record in found])
    reference = found.column_annotations.get("reference_annotation")
    kept = np.ones(letters.shape[1], bool)
    if reference is not None:
        kept = np.array([mark not in ".-_~" for mark in reference])
    elif (capital := np.char.isupper(letters)).any():
        kept = np.logical_or(capital.any(0), ~np.char.islower(letters).any(0))
    sequences = ["".join(row) for row in letters[:, kept].tolist()]
    if kind_of(alphabet) in ("auto", *ALPHABETS):
        sequences = [sequence.translate(_GAPS).upper() for sequence in sequences]
    return encode(names, sequences, [f"sequence {i + 1}" for i in range(len(names))], alphabet, unknown)
