"""Text files: values separated by commas or tabs, numbers, text and empty cells, and names above them."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import math
import re
import zipfile
import zlib
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO, final

import numpy as np
from numpy.typing import NDArray

from harmonium import _checks
from harmonium._size_limit import check_claim
from harmonium.data._layouts import Amount

LONG = 2**53
"""Below it every whole number is a float64 of its own."""
_MISSING = ("", "na", "n/a", "<na>", "nan", "-nan", "null")
_INFINITIES = ("inf", "infinity")
_ZEROS = re.compile(r"(?<=\d)[.,](0{1,2}|0{4,})$")  # decimals of a whole number; three may be thousands
_COMMA = re.compile(r"\d,\d")  # between two words, or before decimals
_CODES = re.compile(r"^[ \t]*0[0-9]+(\.[0-9]*)?[ \t]*$", re.MULTILINE)
_NAMES = "if it holds names, write them with letters that no cell has"
_ENCODINGS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"} | {
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_MARK = 4  # bytes of a byte-order mark at most
_PIECE = 1 << 20  # bytes that are unpacked at once
_OF_A_CHARACTER = 8  # bytes in memory of a character of text, where cells are short
_SPACES = "; pandas.read_csv(path, sep=r'\\s+').to_csv(other, index=False) writes commas for spaces"
SEPARATORS = (",", ";", "\t", "|")
_JUDGED = 1000  # lines that tell the decimal mark: a column of decimals shows one within a few


class ColumnType(NamedTuple):
    """The type of a column in its file: the attributes of a ``Series`` of these names."""

    dtype: str
    categories: tuple[Any, ...] | None = None
    ordered: bool = False


class Dialect(NamedTuple):
    """Marks of a text file: what stands between its cells, and before the decimals of its numbers."""

    separator: str = ","
    decimal: str = "."


@final
@dataclass(frozen=True)
class Texts:
    """Reads the cells of a text file as they are written.

    Attributes:
        path: Path of the file.
        delimiter: the character between its cells.
        header: True if its first line holds the names of the columns.
        words: Words for missing cells, in small letters.
    """

    path: Path
    delimiter: str
    header: bool
    words: frozenset[str]

    def __call__(self) -> dict[str, list[str]]:
        """Returns the cells by column, ``column 1`` and so on without names.

        Those with a word of one's own for missing are empty.
        """
        (first, *rest) = (cells for _, cells in _lines(self.path, self.delimiter))
        own = self.words - {*_MISSING}
        rows = rest if self.header else [first, *rest]
        if own:
            rows = [["" if is_missing(cell, own) else cell for cell in row] for row in rows]
        columns = map(list, zip(*rows, strict=True))
        return dict(zip(_names(first, self.header), columns, strict=True))

    def unseen_words(self) -> list[str]:
        """Returns words of one's own for missing cells that no cell holds."""
        own = self.words - {*_MISSING}
        cells = {cell for _, row in _lines(self.path, self.delimiter) for cell in row} if own else set[str]()
        return sorted(word for word in own if not any(is_missing(cell, {word}) for cell in cells))

    @cached_property
    def dialect(self) -> Dialect:
        """The marks of the file as another of the ending .csv has them, by its first lines.

        A decimal comma is that of a column of amounts which cannot be read otherwise, where no column of
        numbers has a point. Tabs that the ending .tsv tells of become commas, or semicolons beside decimal
        commas.
        """
        lines = (cells for _, cells in _lines(self.path, self.delimiter))
        columns = zip(*islice(lines, int(self.header), _JUDGED), strict=True)
        written = [[cell for cell in column if not is_missing(cell, self.words)] for column in columns]
        points = any("." in "".join(cells) and all(map(is_number, cells)) for cells in written)
        decimal = "," if not points and any(map(_has_decimal_commas, written)) else "."
        told = self.delimiter == "\t" and self.path.name.lower().endswith((".tsv", ".tsv.gz"))
        return Dialect((";" if decimal == "," else ",") if told else self.delimiter, decimal)


def _has_decimal_commas(cells: Sequence[str]) -> bool:
    """Returns whether half of a column's cells or more are amounts that need decimal commas to be read."""
    numbers = [cell for cell in cells if "," in cell and Amount.fitting([cell])]
    found = Amount.fitting(numbers) if 2 * len(numbers) >= len(cells) else []
    return any(layout.decimals and layout.marks == ".," for layout in found)


Parts = tuple[Any, None, tuple[str, ...] | None, dict[str, ColumnType] | None, Texts]


# Cells
# ---------------------------------------------------------------------------------


def read_missing_words(missing_words: str | Sequence[str]) -> frozenset[str]:
    """Returns words for missing cells, in small letters, as of ``split_words``; the usual ones beside."""
    return frozenset({*_MISSING, *(word.lower() for word in split_words(missing_words))})


def split_words(words: str | Sequence[str]) -> list[str]:
    """Returns the words of a text with semicolons between them, or else commas; or of a sequence."""
    parts = words.split(";" if ";" in words else ",") if isinstance(words, str) else words
    return [word.strip() for word in parts]


def is_missing(cell: str, words: Collection[str] = _MISSING) -> bool:
    """Returns whether a cell is empty or holds a word for a missing value; the word 99 is in 99,0 too."""
    word = cell.strip().lower()
    return word in words or (word.endswith("0") and _ZEROS.sub("", word) in words)


def has_codes(cells: list[str]) -> bool:
    """Returns whether a cell holds digits behind a zero, such as 00123 or 007.1: a name and no number."""
    return bool(_CODES.search("\n".join(cells)))


def numbers_in(cells: list[str]) -> list[float]:
    """Returns the cells of a line as numbers in plain decimal digits, NaN or infinity.

    Python's ``float`` alone would also read ``1_0`` as 10 and digits of other scripts, and take a number
    beyond the range of float64 for infinity.

    Raises:
        ValueError: something else.
    """
    text = "".join(cells)
    if "_" in text or not text.isascii():
        raise ValueError
    numbers = [float(cell) for cell in cells]
    if math.inf in numbers or -math.inf in numbers:
        words = [cell.strip().lstrip("+-").lower() for cell in cells]
        if any(math.isinf(x) and word not in _INFINITIES for x, word in zip(numbers, words, strict=True)):
            raise ValueError
    return numbers


def is_number(cell: str) -> bool:
    """Returns whether a cell holds a number as ``numbers_in`` reads it, NaN included."""
    try:
        numbers_in([cell])
    except ValueError:
        return False
    return True


def is_whole(cell: str) -> bool:
    """Returns whether a cell holds a whole number without a point, or is missing."""
    return cell.strip().lstrip("+-").isdecimal() or is_missing(cell)


def whole_numbers(cells: Iterable[str]) -> list[int]:
    """Returns the numbers of those cells that hold a whole number without a point."""
    return [int(cell) for cell in cells if is_whole(cell) and not is_missing(cell)]


def refuse_long(name: object, values: Iterable[Any]) -> None:
    """Refuses whole numbers of which float64 does not keep every digit."""
    for value in values:
        if abs(int(value)) >= LONG:
            raise ValueError(
                f"X: expected whole numbers below 2^53 in column {name!r}, received {int(value)}; drop the "
                "column if it names rows, or make text of it: .astype(str) in a frame, a letter in front of "
                "each in a text file"
            )


def as_written(cells: Iterable[Any], values: Iterable[Any], texts: Iterable[Any] | None = None) -> list[Any]:
    """Returns the texts of cells that stand for their values, and for others the new texts, or the values."""
    new = values if texts is None else texts
    return [cell if _stands_for(cell, x) else text for cell, x, text in zip(cells, values, new, strict=True)]


def _stands_for(cell: Any, value: object) -> bool:
    """Returns whether a value, None or NaN where it is missing, is what a cell is read as."""
    if not isinstance(cell, str):
        return cell is not None and float(cell) == value
    if value is None or value != value:
        return is_missing(cell)
    if isinstance(value, str):
        return cell.strip() == value
    return is_number(cell) and float(cell) == value


def _is_text(cell: str, words: Collection[str] = _MISSING) -> bool:
    """Returns whether a cell is neither missing nor anything that Python takes for a number."""
    try:
        float(cell)
    except ValueError:
        return not is_missing(cell, words)
    return False


def _number_in(cell: str) -> int | float:
    try:
        return int(cell)
    except ValueError:
        return float(cell)


# The first line
# ---------------------------------------------------------------------------------


def holds_names(
    path: Path,
    first: Sequence[str],
    columns: Sequence[Sequence[str]] | None,
    words: Collection[str] = _MISSING,
) -> bool:
    """Decides whether the first line of a file holds the names of its columns, and warns where it guesses.

    - A line without text is data.
    - A line with text above nothing but numbers holds names.
    - Another line with text holds names if none of its cells stands in its column again.
    - Names differ from each other, in a line that has numbers among them.

    Args:
        path: Path of the file, for the warning.
        first: the cells of the first line.
        columns: the cells below each of them; None: all of them are numbers.
        words: those that stand for a missing cell.
    """
    texts = [_is_text(cell, words) for cell in first]
    numbers = [cell for cell in first if is_number(cell) and not is_missing(cell, words)]
    if not any(texts) or (numbers and len(set(first)) < len(first)):
        return False
    again: list[str] = []
    if columns is not None:
        below = [
            (cell, text, [x.strip() for x in column if not is_missing(x, words)])
            for cell, text, column in zip(first, texts, columns, strict=True)
        ]
        if not any(text and column and all(map(is_number, column)) for _, text, column in below):
            again = [x for x, _, column in below if not is_missing(x, words) and x.strip() in column]
    if not again and numbers:
        _checks.warn(
            f"{path}: the first line, with {numbers[0]!r}, is read as the names of columns; if it is data, "
            "put a line of names above it"
        )
    elif again and (not numbers or not any(map(_is_text, again))):
        _checks.warn(
            f"{path}: the first line is read as data, as {again[0]!r} stands in its column again; {_NAMES}"
        )
    return not again


def _question_numbers(path: Path, columns: Iterable[NDArray[Any]]) -> None:
    """Warns if a first line of numbers, which is read as data, may hold the names of columns.

    Such are different whole numbers that follow each other, or of which one lies beyond the numbers below it
    by half their range or more.
    """
    columns = list(columns)
    first = np.array([x[0] for x in columns])
    if not (first == np.round(first)).all() or len(np.unique(first)) < len(first):
        return
    counts = len(first) > 2 and bool((np.diff(first) == 1).all())
    if counts or any(_beyond(float(x[0]), x[1:]) for x in columns):
        _checks.warn(
            f"{path}: the first line, {', '.join(f'{x:.0f}' for x in first[:3])}"
            f"{', …' if len(first) > 3 else ''}, is read as data; {_NAMES}"
        )


def _beyond(x: float, below: NDArray[Any]) -> bool:
    below = below[~np.isnan(below)]
    if not below.size:
        return False
    low, high = float(below.min()), float(below.max())
    return low < high and max(low - x, x - high) >= (high - low) / 2


# Files
# ---------------------------------------------------------------------------------


def read_text(
    path: Path, delimiter: str = ",", missing_words: str | Sequence[str] = (), known: Collection[str] = ()
) -> Parts:
    """Reads samples, no labels, names of columns, types of those that are numbers alone, and texts of cells.

    ``holds_names`` tells what the first line is. Empty lines are passed over. Samples are float64 where every
    cell is a number, else objects: numbers, text, and None in missing cells. A column of which some cell is
    no number is text, and so is one of numbers such as 00123 and 007.1, or of whole numbers from 2^53 on, of
    which float64 does not keep every digit. A file that ends in .gz is compressed. Text is UTF-8, or what a
    byte-order mark tells. Of a spreadsheet (.xlsx) the first sheet is read as text.

    Args:
        path: Path of the file.
        delimiter: what separates its cells; where the first line has none, a comma, semicolon, tab or |.
        missing_words: words for missing cells beside the usual ones, a sequence or with commas or semicolons.
        known: names of columns of whose numbers that are read as text no warning tells.

    Raises:
        ValueError: lines of different lengths, text in another encoding, or one column of text.
    """
    words, delimiter = read_missing_words(missing_words), _separator(path, delimiter)
    try:
        parts = _read(path, delimiter, words, known)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"expected text in UTF-8, received something else ({error.reason}); save it as UTF-8, such as by "
            "pandas.read_csv(path, encoding='latin-1').to_csv(other, index=False)"
        ) from error
    together = isinstance(missing_words, str) and ";" not in missing_words and _COMMA.search(missing_words)
    if together and parts[-1].dialect.decimal == ",":
        raise ValueError(
            "missing_words: expected semicolons between the words, as the file has decimal commas, received "
            f"{missing_words!r}; write -99 for -99,0, and -99;999 for two words"
        )
    return parts


def _separator(path: Path, delimiter: str) -> str:
    """Returns what separates the cells of a file: another character where the first line lacks the usual."""
    if path.suffix.lower() == ".xlsx":
        return delimiter
    with open_text(path, errors="replace") as file:
        first = next((line for line in file if line.strip()), "")
    others = [other for other in SEPARATORS if other in first]
    return delimiter if delimiter in first or not others else max(others, key=first.count)


def open_text(path: Path, errors: str = "strict") -> TextIO:
    """Opens a file of text in the encoding of its byte-order mark, UTF-8 without one."""
    binary: IO[bytes] = path.open("rb")
    if path.suffix.lower() == ".gz":
        with binary:
            binary = io.BytesIO(_unpacked(binary, path.stat().st_size))
    start = binary.read(_MARK)
    binary.seek(0)
    encoding = next((name for mark, name in _ENCODINGS.items() if start.startswith(mark)), "utf-8-sig")
    return io.TextIOWrapper(binary, encoding, errors, newline="")


def _unpacked(file: IO[bytes], size: int) -> bytes:
    """Returns what a compressed file holds, if its size allows that."""
    content = bytearray()
    try:
        with gzip.open(file) as unpacked:
            while piece := unpacked.read(_PIECE):
                content += piece
                check_claim(_OF_A_CHARACTER * len(content), size, "its text")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"damaged, or not compressed by gzip ({error})") from error
    return bytes(content)


def _read(path: Path, delimiter: str, words: frozenset[str], known: Collection[str]) -> Parts:
    """Reads cells that are all numbers, but for names above them, in 8 bytes each; else by ``_table``."""
    lines = _lines(path, delimiter)
    _, first = next(lines, (0, []))
    numbers = array("d")
    header = any(_is_text(cell, words) for cell in first)
    table = not header and not _added(first, numbers)
    whole = [*range(len(first))]  # columns in which every cell so far is a whole number, or missing
    for line, cells in lines:
        if len(cells) != len(first):
            advice = "; if each line begins with its own name, begin the first with a name for these"
            raise ValueError(
                f"line {line}: expected {len(first)} columns, received {len(cells)}"
                + advice * (len(cells) == len(first) + 1)
            )
        table = table or not _added(cells, numbers)
        if header and not table and not "".join(cells).isdecimal():
            whole = [j for j in whole if cells[j].isdecimal() or is_whole(cells[j])]
    long = max(np.fmax.reduce(numbers, initial=0.0), -np.fmin.reduce(numbers, initial=0.0)) >= LONG
    told = len(words) > len(_MISSING) and not table  # numbers may stand for missing cells
    if table or long or told or (header and not holds_names(path, first, None)):
        return _table(path, delimiter, words, known)
    names = _names(first, header)
    samples = np.array(numbers, dtype=np.float64).reshape(-1, max(len(first), 1))
    texts = Texts(path, delimiter, header, words)
    if header:
        types = {name: ColumnType("int64" if j in whole else "float64") for j, name in enumerate(names)}
        return samples, None, names, types, texts
    if len(samples) > 1:
        _question_numbers(path, samples.T)
    return samples, None, None, None, texts


def _added(cells: list[str], numbers: array[float]) -> bool:
    """Appends a line to the numbers before it, if it holds nothing else."""
    try:
        values = numbers_in(cells)
    except ValueError:
        return False
    if has_codes(cells):
        return False
    numbers.extend(values)
    return True


def _lines(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not empty, with their numbers."""
    if path.suffix.lower() == ".xlsx":
        yield from _rows_of_sheet(path)
        return
    with open_text(path) as file:
        start = file.read(_PIECE)
        file.seek(0)
        # Between a separator and a quoted cell.
        spaces = bool(re.search(re.escape(delimiter) + ' +"', start))
        lines = csv.reader(file, delimiter=delimiter, strict=True, skipinitialspace=spaces)
        try:
            yield from ((lines.line_num, cells) for cells in lines if cells)
        except csv.Error as error:
            raise ValueError(
                f'line {lines.line_num}: {error}; a quotation mark within a quoted cell is written twice, ""'
            ) from error


def _rows_of_sheet(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of the first sheet that are not empty, as text, with their numbers.

    Raises:
        ImportError: openpyxl is not there.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError("it is no workbook of this kind; a sheet can be saved as .csv")
    try:
        openpyxl = import_module("openpyxl")
    except ImportError as error:
        raise ImportError(
            'reading .xlsx needs openpyxl: pip install "harmonium[xlsx]", or save the sheet as .csv'
        ) from error
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    check_claim(unpacked, path.stat().st_size, "the workbook")
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # a mere claim
        rows = [(i + 1, [*map(_text_of, row)]) for i, row in enumerate(sheet.iter_rows(values_only=True))]
    finally:
        book.close()
    width = max((j + 1 for _, row in rows for j, cell in enumerate(row) if cell), default=0)
    yield from ((i, (row + [""] * width)[:width]) for i, row in rows if any(row))


def _text_of(cell: Any) -> str:
    """Writes a cell of a sheet as a text file would have it."""
    if cell is None:
        return ""
    if isinstance(cell, datetime):
        return cell.isoformat(" ") if cell.time() != time() else cell.date().isoformat()
    if isinstance(cell, time):
        return cell.isoformat("seconds")
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _table(path: Path, delimiter: str, words: frozenset[str], known: Collection[str]) -> Parts:
    """Reads a file with text or missing cells to objects; a column holds numbers or text, and not both."""
    lines = list(_lines(path, delimiter))
    first = lines[0][1]
    below = [*zip(*(cells for _, cells in lines[1:]), strict=True)] or [()] * len(first)
    header = holds_names(path, first, below, words)
    names, lines = _names(first, header), lines[header:]
    samples = np.empty((len(lines), len(first)), dtype=object)
    numeric: list[NDArray[Any]] = []
    codes = dict[str, str]()
    for j, name in enumerate(names):
        column = [cells[j] for _, cells in lines]
        if "\0" in "".join(column):
            line = next(line for line, cells in lines if "\0" in cells[j])
            raise ValueError(f"line {line}, column {j + 1}: expected text, received the character NUL")
        read = _reader_of([cell for cell in column if not is_missing(cell, words)], name, codes)
        if read is str.strip and len(first) == 1:
            i = next(i for i, x in enumerate(column) if not is_missing(x, words) and not _is_plain(x))
            raise ValueError(
                f"line {lines[i][0]}, column {j + 1}: expected a number, received {column[i]!r}; a missing "
                f"cell is empty, and cells are separated by commas, semicolons, tabs or |{_SPACES}"
            )
        values = [None if is_missing(cell, words) else read(cell) for cell in column]
        samples[:, j] = values
        if read is _number_in:
            numeric.append(np.array(values, dtype=np.float64))
    codes = {name: reason for name, reason in codes.items() if name not in known}
    for reason in dict.fromkeys(codes.values()):
        found = [name for name in codes if codes[name] == reason]
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        _checks.warn(f"{path}: column {found[0]!r}{more} is read as text, as {reason}")
    if not any(_is_text(cell, words) for cell in first):
        _question_numbers(path, numeric)
    return samples, None, names, None, Texts(path, delimiter, header, words)


def _is_plain(cell: str) -> bool:
    return is_number(cell) and not has_codes([cell])


def _reader_of(observed: list[str], name: str, codes: dict[str, str]) -> Callable[[str], Any]:
    """Returns what reads the cells of a column; why numbers are read as text is noted in ``codes``."""
    if not all(map(is_number, observed)):
        return str.strip
    if has_codes(observed):
        codes[name] = "numbers with a zero in front, such as 00123, are names; others are written without"
    elif any(abs(value) >= LONG for value in whole_numbers(observed)):
        codes[name] = "whole numbers from 2^53 on would be rounded"
    else:
        return _number_in
    return str.strip


def _names(first: Sequence[str], header: bool) -> tuple[str, ...]:
    """The names of the columns, ``column 1`` and so on where the first line does not hold them."""
    return tuple(cell.strip() if header else f"column {j + 1}" for j, cell in enumerate(first))
