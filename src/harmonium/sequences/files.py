"""Files of aligned sequences (FASTA, A2M, A3M, Stockholm, Clustal) to codes, and FASTA back."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

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
    join_nucleotides,
    kind_of,
)
from harmonium.sequences.mutants import first_number

_PIECE = 1 << 20  # bytes that are read at once
_OF_A_LETTER = 8  # bytes in memory
_OF_A_LINE = 200  # bytes in memory
_LINE = 80  # letters of a line that is written
_GAPS = "._~"  # beside "-"
# Rows that hh-suite and ColabFold add to an alignment: structure and confidence, which are no sequences.
_NO_SEQUENCES = ("ss_pred", "ss_conf", "ss_dssp", "sa_dssp")
SUFFIXES = (".fasta", ".fa", ".a2m", ".a3m", ".aln", ".clustal", ".sto", ".stk", ".stockholm", ".txt")
"""Of files of sequences, each also with .gz; the first line tells the format."""


class _Parsed(NamedTuple):
    """Rows of a file as they are written.

    Attributes:
        names: Names of the sequences.
        sequences: their letters, gaps and insertions.
        places: Places in the file, for messages.
        reference: Reference line of Stockholm, which marks insertions; "" where there is none.
        notes: what was left out, in words.
    """

    names: list[str]
    sequences: list[str]
    places: list[str]
    reference: str = ""
    notes: tuple[str, ...] = ()


def read_alignment(path: str | Path, *, alphabet: str = "auto", unknown: str = "gap") -> Alignment:
    """Reads an alignment: FASTA, A2M, A3M, Stockholm, Clustal, or a sequence a line; ``.gz`` too.

    The first line tells the format. ``Alignment.notes`` tells what was decided:

    - **Small letters beside capital ones** are insertions, and left out with the dots, where the rows are of
      one length without them. Else rows of one length are read by their columns: those of small letters
      without a capital are insertions, and elsewhere a small letter is a letter.
    - **Dots** are gaps where no insertion is marked, as "_" and "~" are.
    - In Stockholm the reference line (``#=GC RF``), where there is one, marks insertions by a gap.
    - Letters that an alphabet of your own names are never dropped or changed.
    - Stop codons, "*" at the ends, are left out.
    - T beside U is read as U, and as the letter of an alphabet that is named.
    - Lines that begin with ";" or, before the first sequence, with "#" are comments; rows of hh-suite that
      hold structure (``ss_pred`` and the like) are left out.

    Args:
        path: Path of the file.
        alphabet: "protein", "rna", "dna", or letters in an order of your own; "auto": by the letters.
        unknown: letters such as X or N, which stand for several, and "?" and "*": "gap", "missing" (code -1,
            so that a machine sums over them) or "error".

    Raises:
        FileNotFoundError: no such file.
        ValueError: no sequences, a Stockholm file that is cut off or holds several alignments, sequences of
            different lengths, or letters outside of the alphabet; the message names file and line.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> import harmonium as hm
        >>> with TemporaryDirectory() as folder:
        ...     _ = open(f"{folder}/x.fasta", "w").write(">one\\nAC-G\\n>two\\nACaUG\\n")
        ...     found = hm.sequences.read_alignment(f"{folder}/x.fasta")
        >>> found.codes.tolist(), found.notes
        ([[1, 2, 0, 3], [1, 2, 4, 3]], ('small letters and dots are insertions, and left out',))
    """
    path = Path(path)
    _checks.one_of(unknown, "unknown", READINGS)
    with _naming(path):
        return _encoded(_parse(_text_of(path)), alphabet, unknown)


def align(
    sequences: Sequence[str],
    names: Sequence[str] | None = None,
    *,
    alphabet: str = "auto",
    unknown: str = "gap",
) -> Alignment:
    """Takes aligned sequences that are in memory, as ``read_alignment`` takes those of a file.

    Args:
        sequences: Texts of letters, gaps and insertions.
        names: Names of the sequences; None: empty texts.
        alphabet: see ``read_alignment``.
        unknown: see ``read_alignment``.

    Raises:
        ValueError: sequences of different lengths, or letters outside of the alphabet; the message names the
            row.

    Examples:
        >>> import harmonium as hm
        >>> hm.sequences.align(["AC-G", "ACUG"]).codes.tolist()
        [[1, 2, 0, 3], [1, 2, 4, 3]]
    """
    _checks.one_of(unknown, "unknown", READINGS)
    if not len(sequences):
        raise ValueError("sequences: expected at least one, received none")
    texts = ["".join(str(sequence).split()) for sequence in sequences]
    titles = [""] * len(texts) if names is None else list(names)
    if len(titles) != len(texts):
        raise ValueError(f"names: expected {len(texts)}, received {len(titles)}")
    return _encoded(_Parsed(titles, texts, [f"row {k}" for k in range(len(texts))]), alphabet, unknown)


def spell(codes: Any, alphabet: str) -> list[str]:
    """Returns codes as letters, a text for each row.

    Args:
        codes: (sequences, sites), places in the alphabet; -1 is X, or N of RNA and DNA.
        alphabet: letters in the order of their codes, or "protein", "rna", "dna".

    Raises:
        ValueError: codes that have no letter.

    Examples:
        >>> import harmonium as hm
        >>> hm.sequences.spell([[1, 0], [2, 3]], "rna")
        ['A-', 'CG']
    """
    values = np.asarray(codes)
    letters, others = find_alphabet(alphabet, alphabet)
    if values.ndim != 2 or 0 in values.shape or values.dtype.kind not in "iuf":
        raise ValueError(
            f"codes: expected (sequences, sites) of numbers, received {values.dtype}{values.shape}"
        )
    if not ((values == np.round(values)) & (values >= MISSING) & (values < len(letters))).all():
        raise ValueError(f"codes: expected -1 to {len(letters) - 1}, the places of {letters!r}")
    table = np.array([*letters, "N" if "N" in others else "X"])
    return ["".join(row) for row in table[values.astype(np.int64)].tolist()]


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
    path, rows = Path(path), spell(codes, alphabet)
    titles = [str(i + 1) for i in range(len(rows))] if names is None else list(names)
    if len(titles) != len(rows) or any("\n" in name for name in titles):
        raise ValueError(f"names: expected {len(rows)} of one line each, received {len(titles)}")
    check_free(path, overwrite)
    lines = []
    for name, text in zip(titles, rows, strict=True):
        lines += [f">{name}", *(text[i : i + _LINE] for i in range(0, len(text), _LINE))]
    contents = ("\n".join(lines) + "\n").encode()
    replace_file(path, gzip.compress(contents, mtime=0) if path.suffix.lower() == ".gz" else contents)


def number_letters(
    source: str, row: int, name: str, letters: int, first: int | None = None
) -> tuple[list[int], bool]:
    """Numbers the letters of a row that are no gaps, and returns whether the first number was told.

    Insertions count, which the file has in small letters, but where the name's range leaves them out too.

    Args:
        source: the file of the sequences, as of ``read_alignment``, or the name of other data.
        row: Number of the row, from 0.
        name: its name; see ``first_number``.
        letters: Number of the letters.
        first: Number of the first one; None: that of its name, or 1, which nothing tells.
    """
    begin, sites, text = first_number(name, letters), [*range(letters)], ""
    if begin is None and source.lower().removesuffix(".gz").endswith(SUFFIXES) and Path(source).is_file():
        text = _written_row(Path(source), row)
    written = [*filter(str.isalpha, text)]
    counted = [site for site, letter in enumerate(written) if letter.isupper()]
    if len(counted) == letters:
        begin, sites = (first_number(name, len(written)) if begin is None else begin, counted)
    start = (begin or 1) if first is None else first
    return [start + site for site in sites], first is not None or begin is not None


def _written_row(path: Path, row: int) -> str:
    """Returns a row as it is written, its insertions in small letters; "" where these mark none."""
    with _naming(path):
        parsed = _parse(_text_of(path))
        settled, _ = _settle(parsed, "auto")
    text = parsed.sequences[row]
    sites = sum(not letter.islower() and letter != "." for letter in text)
    return text if not parsed.reference and text.upper() != text and sites == len(settled[row]) else ""


def _encoded(parsed: _Parsed, alphabet: str, unknown: str) -> Alignment:
    """Returns rows as codes, with what was decided in words."""
    settled, notes = _settle(parsed, alphabet)
    sequences, joined = join_nucleotides(settled, alphabet)
    alignment = encode(parsed.names, sequences, parsed.places, alphabet, unknown)
    return alignment._replace(notes=(*parsed.notes, *notes, *joined, *alignment.notes))


def _parse(text: str) -> _Parsed:
    """Returns the rows of a file, by the format that its first line tells."""
    lines = text.splitlines()
    title, first = next(((i, x.strip()) for i, x in enumerate(lines, 1) if x.strip()), (1, ""))
    stockholm = first.startswith("# STOCKHOLM")
    in_blocks = stockholm or first.upper().startswith(("CLUSTAL", "MUSCLE"))
    parsed = _parse_blocks(lines, stockholm, title) if in_blocks else _parse_fasta(lines)
    if not parsed.sequences:
        raise ValueError("expected sequences, received none")
    return parsed


def _parse_fasta(lines: Iterable[str]) -> _Parsed:
    """Returns the rows of FASTA, or of a sequence a line."""
    names, parts, places, skipped = list[str](), list[list[str]](), list[str](), list[str]()
    plain = None  # whether the file is a sequence a line
    is_sequence = True
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith(";") or (plain is None and text.startswith("#")):
            continue
        named = text.startswith(">")
        plain = not named if plain is None else plain
        if named and plain:
            raise ValueError(
                f"line {number}: expected a sequence, as on the lines before, received {text[:40]!r}"
            )
        name = text[1:].strip() if named else ""
        if named:
            is_sequence = name.split(" ")[0] not in _NO_SEQUENCES
            if not is_sequence:
                skipped.append(f"{name.split(' ')[0]} (line {number})")
        if is_sequence and (named or plain):
            names.append(name)
            parts.append([])
            places.append(f"line {number}")
        if is_sequence and not named:
            parts[-1].append("".join(text.split()))
    notes = (f"rows that are no sequences are left out: {', '.join(skipped)}",) if skipped else ()
    return _Parsed(names, ["".join(pieces) for pieces in parts], places, notes=notes)


def _parse_blocks(lines: Iterable[str], stockholm: bool, title: int) -> _Parsed:
    """Returns the rows of Stockholm or of Clustal, whose sequences may go on in later blocks.

    Clustal has a title, by the number of its line, counts behind the letters and lines of marks, which are
    left out.
    """
    rows, places, reference = dict[str, list[str]](), list[str](), list[str]()
    block, ended = set[str](), 0
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or (not stockholm and (number == title or line[0].isspace())):
            block.clear()
            continue
        if stockholm and words == ["//"]:
            ended = number
            continue
        if ended:
            raise ValueError(
                f"line {number}: expected one alignment, received another after // (line {ended})"
            )
        if stockholm and words[0].startswith("#"):
            reference += words[-1:] if words[:2] == ["#=GC", "RF"] else []
            continue
        if not stockholm and len(words) == 3 and words[2].isdigit():
            words.pop()
        name, *letters = words
        if not letters or (len(letters) > 1 and not stockholm):
            raise ValueError(f"line {number}: expected a name and letters, received {line.strip()[:40]!r}")
        if name in block:  # whose letters would be joined
            raise ValueError(f"line {number}: expected different names in a block, received {name!r} again")
        block.add(name)
        if name not in rows:
            places.append(f"line {number}")
        rows.setdefault(name, []).extend(letters)
    if stockholm and rows and not ended:
        raise ValueError("expected // as the last line of a Stockholm file, received none: it is cut off")
    return _Parsed([*rows], ["".join(parts) for parts in rows.values()], places, "".join(reference))


def _settle(parsed: _Parsed, alphabet: str) -> tuple[list[str], list[str]]:
    """Returns sequences without insertions, in capitals with "-" for gaps, and what was decided, in words.

    Decides for all readers what small letters and dots are (``read_alignment``).
    """
    sequences, notes = parsed.sequences, list[str]()
    own_letters = "" if kind_of(alphabet) in ("auto", *ALPHABETS) else alphabet
    if parsed.reference:
        sequences = _take_columns(parsed, np.array([mark not in "-" + _GAPS for mark in parsed.reference]))
        notes.append("columns that the reference line marks by a gap are insertions, and left out")
    if "*" not in own_letters and any(sequence.endswith("*") for sequence in sequences):
        without_stops = [sequence.rstrip("*") for sequence in sequences]
        if _of_one_length(without_stops) or not _of_one_length(sequences):
            sequences, notes = without_stops, [*notes, "stop codons, * at the ends, are left out"]
    letters = {letter for sequence in sequences for letter in set(sequence)} - set(own_letters)
    small = {letter for letter in letters if letter.islower()}
    capitals = any(letter.isupper() for sequence in sequences for letter in set(sequence) - small)
    gaps = letters & set(_GAPS)
    if small and capitals and not parsed.reference:
        without = str.maketrans("", "", "".join(small | gaps))
        shorter = [sequence.translate(without) for sequence in sequences]
        if _of_one_length(shorter) or not _of_one_length(sequences):
            return shorter, [*notes, "small letters and dots are insertions, and left out"]
        table = np.array([list(sequence) for sequence in sequences])
        is_small, is_capital = np.char.islower(table), np.char.isupper(table)
        sequences = _take_columns(parsed, is_capital.any(0) | ~is_small.any(0))
        notes.append("columns of small letters alone are insertions, and left out; others are letters")
    if gaps and (not own_letters or "-" in own_letters):
        sequences = [sequence.translate(dict.fromkeys(map(ord, gaps), "-")) for sequence in sequences]
        notes.append(f"{' '.join(sorted(gaps))} is read as a gap")
    return sequences if own_letters else [sequence.upper() for sequence in sequences], notes


def _take_columns(parsed: _Parsed, columns: Any) -> list[str]:
    """Returns sequences of some of their columns, by a mask, (columns,)."""
    for sequence, location, name in zip(parsed.sequences, parsed.places, parsed.names, strict=True):
        if len(sequence) != len(columns):
            raise ValueError(
                f"{location}: expected {len(columns)} columns as in the reference line, "
                f"received {len(sequence)} in {name!r}"
            )
    table = np.array([list(sequence) for sequence in parsed.sequences])
    return ["".join(row) for row in table[:, columns].tolist()]


def _of_one_length(sequences: Sequence[str]) -> bool:
    """Returns whether all sequences have as many letters."""
    return len(set(map(len, sequences))) == 1


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Errors raised inside name the file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"path: {path}: {error}") from error


def _text_of(path: Path) -> str:
    """Returns the content of a file, unpacked where its name ends in .gz, if its size allows that."""
    if not path.is_file():
        raise FileNotFoundError(f"path: expected a file of sequences, found none at {path}")
    content, lines, size = bytearray(), 0, path.stat().st_size
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            while piece := file.read(_PIECE):
                content += piece
                lines += piece.count(b"\n")
                check_claim(_OF_A_LETTER * len(content) + _OF_A_LINE * lines, size, "its text")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"damaged, or not compressed by gzip ({error})") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"expected text, received byte {content[error.start]} at {error.start}") from error
