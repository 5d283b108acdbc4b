"""Files of sequences: FASTA, a sequence a line, and Stockholm (by Biopython's parser), to codes and back."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from harmonium import _checks
from harmonium._size_limit import check_claim
from harmonium._storage import check_free, replace_file
from harmonium.sequences.alignment import (
    ALPHABETS,
    MISSING,
    READINGS,
    Alignment,
    encode,
    find_alphabet,
    kind_of,
)

_PIECE = 1 << 20  # bytes that are read at once
_OF_A_LETTER = 8  # bytes in memory
_OF_A_RECORD = 4000  # bytes in memory that Biopython takes for a line
_GAPS = str.maketrans("._~", "---")
STOCKHOLM = (".sto", ".stk", ".stockholm")
"""Suffixes of Stockholm files, each also with .gz."""
_LINE = 80  # letters of a line that is written
_OF_A_LINE = 200  # bytes in memory
SUFFIXES = (".fasta", ".fa", ".a2m", ".a3m", ".txt")
"""Of files of FASTA and of a sequence a line, each also with .gz."""


def read_fasta(path: str | Path, *, alphabet: str = "auto", unknown: str = "gap") -> Alignment:
    """Reads an alignment: FASTA, or a sequence a line without names; ``.gz`` too.

    Small letters and dots beside capital ones are insertions (A2M, A3M), and left out. Blanks are, too.

    Args:
        path: Path of the file.
        alphabet: "protein", "rna", "dna", or letters in an order of your own; "auto": by the letters.
        unknown: letters such as X or N, which stand for several: "gap", "missing" (code -1, so that a machine
            sums over them) or "error".

    Raises:
        FileNotFoundError: no such file.
        ValueError: no sequences, sequences of different lengths, or letters outside of the alphabet; the
            message names file and line.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> import harmonium as hm
        >>> with TemporaryDirectory() as folder:
        ...     _ = open(f"{folder}/x.fasta", "w").write(">one\\nAC-G\\n>two\\nACaUG\\n")
        ...     hm.sequences.read_fasta(f"{folder}/x.fasta").codes.tolist()
        [[1, 2, 0, 3], [1, 2, 4, 3]]
    """
    path = Path(path)
    _checks.one_of(unknown, "unknown", READINGS)
    with _naming(path):
        return _read_letters(_text_of(path, _OF_A_LINE), alphabet, unknown)


def read_stockholm(path: str | Path, *, alphabet: str = "auto", unknown: str = "gap") -> Alignment:
    """Reads an alignment of Pfam, Rfam, HMMER or Infernal; ``.gz`` too.

    Columns that the reference line (``#=GC RF``) marks by a gap are insertions, and left out; without that
    line columns of small letters without a capital one are. In other columns small letters are letters, and
    dots are gaps.

    Args:
        path: Path of the file.
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
    with _naming(path):
        text, parser = _text_of(path, _OF_A_RECORD), cast(Any, AlignIO)  # which has no types
        try:
            records = parser.read(io.StringIO(text), "stockholm")
        except Exception as error:  # the parser of a damaged file raises almost anything
            raise ValueError(f"no alignment in Stockholm format ({error or type(error).__name__})") from error
        return _read_records(records, alphabet, unknown)


def write_fasta(
    path: str | Path,
    codes: Any,
    alphabet: str,
    names: Sequence[str] | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Writes codes as FASTA.

    Args:
        path: Path of the file; one that ends in .gz is compressed.
        codes: (sequences, sites), places in the alphabet; -1 is written as X, or N of RNA and DNA.
        alphabet: letters in the order of their codes, or "protein", "rna", "dna".
        names: Names of the sequences; None: 1, 2, …
        overwrite: whether to replace a file that is there.

    Raises:
        FileExistsError: there is a file, and no ``overwrite``.
        ValueError: codes that have no letter, or names that do not fit.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> import harmonium as hm
        >>> with TemporaryDirectory() as folder:
        ...     hm.sequences.write_fasta(f"{folder}/x.fasta", [[1, 0], [2, 3]], "rna")
        ...     print(open(f"{folder}/x.fasta").read())
        >1
        A-
        >2
        CG
        <BLANKLINE>
    """
    path, values = Path(path), np.asarray(codes)
    letters, others = find_alphabet(alphabet, alphabet)
    if values.ndim != 2 or 0 in values.shape or values.dtype.kind not in "iuf":
        raise ValueError(
            f"codes: expected (sequences, sites) of numbers, received {values.dtype}{values.shape}"
        )
    if not ((values == np.round(values)) & (values >= MISSING) & (values < len(letters))).all():
        raise ValueError(f"codes: expected -1 to {len(letters) - 1}, the places of {letters!r}")
    titles = [str(i + 1) for i in range(len(values))] if names is None else list(names)
    if len(titles) != len(values) or any("\n" in name for name in titles):
        raise ValueError(f"names: expected {len(values)} of one line each, received {len(titles)}")
    check_free(path, overwrite)
    table = np.frombuffer((letters + ("N" if "N" in others else "X")).encode("ascii"), np.uint8)
    rows = table[values.astype(np.int64)]
    lines = []
    for name, row in zip(titles, rows, strict=True):
        text = row.tobytes().decode("ascii")
        lines += [f">{name}", *(text[i : i + _LINE] for i in range(0, len(text), _LINE))]
    contents = ("\n".join(lines) + "\n").encode()
    replace_file(path, gzip.compress(contents, mtime=0) if path.suffix.lower() == ".gz" else contents)


def _read_letters(text: str, alphabet: str, unknown: str) -> Alignment:
    names, sequences, places = _parse(text.split("\n"))
    letters = {letter for sequence in sequences for letter in set(sequence)}
    capitals = any(letter.isupper() for letter in letters)
    if capitals and any(letter.islower() or letter == "." for letter in letters):
        drop = str.maketrans(
            "", "", "".join(letter for letter in letters if letter.islower() or letter == ".")
        )
        sequences = [sequence.translate(drop) for sequence in sequences]
    elif not capitals and kind_of(alphabet) in ("auto", *ALPHABETS):
        sequences = [sequence.upper() for sequence in sequences]
    return encode(names, sequences, places, alphabet, unknown)


def _parse(lines: Iterable[str]) -> tuple[list[str], list[str], list[str]]:
    """Returns names, sequences, and the lines that these begin at."""
    names, parts, places = list[str](), list[list[str]](), list[str]()
    plain = None  # whether the file is a sequence a line
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        plain = not text.startswith(">") if plain is None else plain
        if text.startswith(">"):
            if plain:
                raise ValueError(
                    f"line {number}: expected a sequence, as on the lines before, received {text[:40]!r}"
                )
            names.append(text[1:].strip())
            parts.append([])
            places.append(f"line {number}")
            continue
        if plain:
            names.append("")
            parts.append([])
            places.append(f"line {number}")
        parts[-1].append("".join(text.split()))
    if not parts:
        raise ValueError("expected sequences, received none")
    return names, ["".join(pieces) for pieces in parts], places


def _read_records(records: Any, alphabet: str, unknown: str) -> Alignment:
    names = [record.id for record in records]
    letters = np.array([list(str(record.seq)) for record in records])
    reference = records.column_annotations.get("reference_annotation")
    kept = np.ones(letters.shape[1], bool)
    if reference is not None:
        kept = np.array([mark not in ".-_~" for mark in reference])
    elif (capital := np.char.isupper(letters)).any():
        kept = np.logical_or(capital.any(0), ~np.char.islower(letters).any(0))
    sequences = ["".join(row) for row in letters[:, kept].tolist()]
    if kind_of(alphabet) in ("auto", *ALPHABETS):
        sequences = [sequence.translate(_GAPS).upper() for sequence in sequences]
    return encode(names, sequences, [f"sequence {i + 1}" for i in range(len(names))], alphabet, unknown)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Errors raised inside name the file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"path: {path}: {error}") from error


def _text_of(path: Path, of_a_line: int) -> str:
    """Returns the content of a file, unpacked where its name ends in .gz, if its size can vouch for it."""
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
