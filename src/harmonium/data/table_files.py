"""Tables in files: pandas reads and writes them; here is found out what it has to be told."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import re
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from harmonium import _checks
from harmonium._size_limit import check_claim
from harmonium.data.frame import (
    LONG,
    Frame,
    Series,
    build,
    frame_of,
    is_code,
    is_number,
    of_whole_numbers,
    refuse_twice,
)
from harmonium.data.readings import chosen_readings, readings_of, texts_of, with_readings

SHEETS = r"\.(xlsx|xlsm|xls|ods)"
COLUMNS = r"\.(parquet|feather)"
_WORDS = ("NA", "N/A", "#N/A", "<NA>", "NaN", "-NaN", "Null")
_MISSING = ("", *{form(word) for word in _WORDS for form in (str, str.lower, str.upper, str.title)})
_SEPARATORS = (",", ";", "\t", "|")
_LAYOUT = {
    *("names", "skiprows", "skipfooter", "comment", "quotechar", "quoting", "escapechar"),
    *("nrows", "engine", "lineterminator", "on_bad_lines"),
}  # pandas' arguments that tell which lines and cells there are: with them nothing of it is found out
_NAMES_OF_ROWS = re.compile("(?<![0-9.])(0[0-9]|[0-9]{16})")  # digits that may be no number
# Whole numbers, of which some have points between thousands.
_PARTED = re.compile(r"[+-]?([1-9][0-9]{0,2}(\.[0-9]{3})+|[0-9]+)")
_LOOKED_AT = 1000  # lines that tell which of them holds the names
_PIECE = 1 << 20  # bytes that are unpacked at once
_OF_A_CHARACTER = 8  # bytes in memory of a character of text, where cells are short
_OPENED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def parse_arguments(texts: Sequence[str]) -> dict[str, Any]:
    """Returns arguments of pandas' readers from texts such as ``decimal=,``.

    Values are JSON where they can be, "none" is None, and others are text. An argument that is given several
    times is a list.

    Raises:
        ValueError: a text without a name and a value.
    """
    arguments = dict[str, list[Any]]()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"read: expected an argument of pandas such as decimal=, received {text!r}")
        try:
            arguments.setdefault(name, []).append(None if value.lower() == "none" else json.loads(value))
        except ValueError:
            arguments.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in arguments.items()}


# Reading
# ---------------------------------------------------------------------------------


def read_table(
    path: Path, read: Mapping[str, Any], text: Collection[str], like: Mapping[str, Any]
) -> dict[str, Any]:
    """Reads a table to the parts of a ``DataSet``.

    Samples are float64 where every column is of numbers, else objects, None where a cell is missing.

    Args:
        path: Path of the file.
        read: Arguments of pandas' reader.
        text: Names of columns that are text, whatever their cells look like.
        like: Arguments of an earlier file, which hold where ``read`` has none.

    Raises:
        ImportError: pandas, or what it needs for such a file, is not there.
        ValueError: lines of different lengths, text in another encoding, or one column of text.
    """
    if re.search(COLUMNS + "$", path.name, re.IGNORECASE):
        return _parts(_read_columns(path), True, [], read)
    earlier, read = like.keys() - read.keys(), {**like, **read}
    arguments, notes = dict(read), list[str]()
    if re.search(SHEETS + "$", path.name, re.IGNORECASE):
        content, notes = _text_of_sheet(path, arguments.pop("sheet_name", 0))
    else:
        content = _text_of(path, arguments.pop("encoding", None))
    separator = arguments.pop("sep", None) or arguments.pop("delimiter", None) or _separator(path, content)
    bare = separator == "," and '"' not in content  # a cell has no place for a comma
    if bare and earlier & {"decimal", "sep"} == {"decimal"}:
        del read["decimal"], arguments["decimal"]
    options, floats = _options(arguments, separator, text)
    native, named = _named_cells(path, content, options)
    texts = {name: cells for name, cells in texts_of(native).items() if name not in text}
    user_settings = {name: read.get(name) for name in ("decimal", "dayfirst")}
    readings, agreed = chosen_readings(texts, user_settings, floats)
    commas = user_settings["decimal"] is None and agreed.get("decimal") == ","
    may_part = commas or (user_settings["decimal"] is None and separator == ";")
    if may_part or _NAMES_OF_ROWS.search(content):
        written = _cells(content, {**options, "dtype": "string"})
        as_text, pointed = _look_at_numbers(native, written, options["dtype"])
        notes += [f"read as text: {', '.join(x)} (numbers {why})" for why, x in as_text.items() if x]
        parted = {x: y for x, y in pointed.items() if may_part and all(map(_PARTED.fullmatch, y))}
        own_marks = len(parted) < len(pointed)  # points before decimals in some columns
        if commas and not own_marks:
            texts, readings = texts | parted, readings | chosen_readings(parted, agreed, parted)[0]
        elif parted and commas == own_marks:
            cell = next(iter(parted.values()))[0]
            _checks.warn(
                f"{path}: does a comma or a point come before decimals in {cell!r}? It is read as a point; "
                "--read decimal=. or --read decimal=, tells"
            )
        if commas and own_marks:
            del agreed["decimal"]  # which the next file need not have in these columns
        text_columns = {name for names in as_text.values() for name in names} | (
            parted.keys() & readings.keys()
        )
        native = native.assign(**written[[*text_columns]]) if text_columns else native
    if bare and agreed.get("decimal") == ",":  # points between thousands alone, in the next file too
        agreed["sep"] = ","
    for sort in ("numbers", "times"):
        names = [f"{name} ({x.how})" for name, x in readings.items() if x.sort == sort]
        notes += [f"read as {sort}: {', '.join(names)}"] if names else []
    native = with_readings(native, texts, readings)
    plain = {name: "Float64" for name in native.columns if name in floats and name not in readings}
    try:
        native = native.astype(plain) if plain else native  # which else copies every column
    except ValueError as error:
        raise ValueError(f"{error}; --read na_values=WORD takes a word as missing") from error
    return _parts(native, named, notes, {**read, **agreed})


def _named_cells(path: Path, content: str, options: dict[str, Any]) -> tuple[Any, bool]:
    """Reads text to a pandas frame, and returns whether its columns have names.

    Args:
        path: Path of the file, for messages.
        content: the text.
        options: Arguments of pandas, to which the names are added where no argument tells which lines there
            are.
    """
    separator, header = options["sep"], options.get("header", "infer")
    looks = header == "infer" and "names" not in options
    laid_out = len(separator) > 1 or _LAYOUT & options.keys() or header not in ("infer", 0, None)
    if not laid_out and looks and "index_col" in options:  # R writes no name above those of the lines
        filled = (x for x in csv.reader(io.StringIO(content), delimiter=separator) if "".join(x).strip())
        widths = [len(cells) for cells in islice(filled, 2)]
        laid_out = widths[0] < widths[-1]
    if laid_out:
        native = _cells(content, options)
        below = native.head(_LOOKED_AT).astype("string").fillna("").to_numpy().tolist() if looks else []
        named, doubt = _holds_names([[*native.columns], *below]) if looks else (True, False)
        if doubt or not named:
            _warn_of_first(path, [*native.columns], True)
        return native, True
    rows = _first_rows(content, separator)
    unnamed = [f"column {j + 1}" for j in range(len(rows[0]))]
    named, doubt = _holds_names(rows) if looks else (header == 0 or rows[0] == unnamed, False)
    if doubt:
        _warn_of_first(path, rows[0], named)
    names = [x.strip() for x in rows[0]] if named else unnamed  # which tables are written with
    refuse_twice(names)
    options |= {"names": names, "header": 0 if named else None}
    native = _cells(content, options)
    if len(names) == 1 and native.dtypes.iloc[0] == "string" and not options["dtype"]:
        word = next((x for (x,) in rows[named:] if is_code(x) or not is_number(x)), rows[-1][0])
        raise ValueError(
            f"expected several columns, or numbers, received {word!r}; cells are separated by commas, "
            r"semicolons, tabs or |; --read sep='\s+' takes spaces, --read dtype=string one column of text"
        )
    return native, named


def _look_at_numbers(
    native: Any, written: Any, types: Any
) -> tuple[dict[str, list[Any]], dict[Any, list[str]]]:
    """Returns columns of numbers that are text, by the reason, and the different cells of those with points.

    Args:
        native: Cells as pandas reads them.
        written: Cells as text.
        types: Types that were given, of columns that are not looked at.
    """
    others = types if isinstance(types, Mapping) else native.columns
    numbers = {name: x for name, x in native.items() if x.dtype.kind in "iuf" and name not in others}
    cells = texts_of(written[[*numbers]])
    codes = [name for name, column in cells.items() if any(map(is_code, column))]
    long = [name for name, x in numbers.items() if x.dtype.kind in "iu" and (x.abs() >= LONG).any()]
    pointed = {x: y for x, y in cells.items() if x not in codes and any("." in cell for cell in y)}
    return {"with a zero in front, such as 00123": codes, "from 2^53 on would be rounded": long}, pointed


def _options(
    arguments: dict[str, Any], separator: str, text: Collection[str]
) -> tuple[dict[str, Any], set[Any]]:
    """Returns the arguments of pandas, and the columns that are numbers as told, which it reads as text.

    It takes no USD 5 for a number.
    """
    types, missing_marks, floats = arguments.pop("dtype", {}), arguments.pop("na_values", ()), set[Any]()
    if isinstance(types, Mapping):
        if not {"decimal", "thousands"} & arguments.keys():  # else pandas is told their marks
            floats = {name for name, kind in types.items() if str(kind) in ("float", "float64")} - {*text}
        types = {**types, **dict.fromkeys((*floats, *text), "string")}
    missing: dict[str, Any] = {"na_values": missing_marks}
    if not isinstance(missing_marks, Mapping):  # "None" is none of the usual words, as it may be a label
        missing_marks = [missing_marks] if np.isscalar(missing_marks) else missing_marks
        missing = {"keep_default_na": False, "na_values": [*_MISSING, *missing_marks]}
    # pandas' usual engine would read a column in several types, and takes neither patterns nor skipfooter.
    usual = not {"engine", "skipfooter"} & arguments.keys() and (len(separator) == 1 or separator == r"\s+")
    engine: dict[str, Any] = {"low_memory": False} if usual else {"engine": "python"}
    defaults: dict[str, Any] = {"skipinitialspace": True, "dtype_backend": "numpy_nullable"}
    return {"sep": separator, "dtype": types, **defaults, **engine, **missing, **arguments}, {
        *map(str, floats)
    }


def _cells(content: str, options: Mapping[str, Any]) -> Any:
    """Reads text to a pandas frame, in which text has no blanks at its ends."""
    frame = _pandas().read_csv(io.StringIO(content), **options)
    if "index_col" not in options and not isinstance(frame.index, _pandas().RangeIndex):
        raise ValueError(
            f"expected {frame.shape[1]} cells in each line, as in the first, received one more; "
            "--read index_col=0 passes over the first of each, if it names its line"
        )
    frame = frame.reset_index(drop=True).rename(columns=str)
    words = [name for name, dtype in frame.dtypes.items() if dtype == "string"]
    return frame.assign(**{name: frame[name].str.strip() for name in words})


def _first_rows(content: str, separator: str) -> list[list[str]]:
    """Returns the first lines that are not empty, as cells; refuses lines of other than so many cells.

    pandas fills up short ones, and moves long ones.
    """
    lines = csv.reader(
        io.StringIO(content, newline=""), delimiter=separator, strict=True, skipinitialspace=True
    )
    rows = list[list[str]]()
    try:
        for cells in lines:
            if len(cells) < 2 and not "".join(cells).strip():
                continue
            if rows and len(cells) != len(rows[0]):
                width = len(rows[0])
                advice = "--read skiprows=1 passes over the first line, if it is no part of the table"
                if content.lstrip().startswith("#") or cells[0].startswith("#"):
                    advice = "--read comment='#' passes over what stands behind a #"
                elif len(cells) == width + 1 > 2:
                    advice = "if each line begins with its own name, begin the first with a name for these"
                elif len(cells) < width:
                    advice = "--read on_bad_lines=warn fills up short lines, skipfooter=1 drops the last"
                raise ValueError(
                    f"line {lines.line_num}: expected {width} columns, received {len(cells)}; {advice}"
                )
            if len(rows) < _LOOKED_AT:
                rows.append(cells)
    except csv.Error as error:
        advice = 'a quotation mark within a quoted cell is written twice, ""'
        raise ValueError(f"line {lines.line_num}: {error}; {advice}") from error
    if not rows:
        raise ValueError("expected at least one row, received none")
    return rows


def _parts(native: Any, named: bool, notes: Sequence[str], read: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parts of a ``DataSet`` with a frame's cells, whose columns have names or not."""
    if not len(native):
        raise ValueError("expected at least one row below the names of columns, received none")
    frame = frame_of(native)
    parts: dict[str, Any] = {"notes": tuple(notes), "read": read}
    if named or not frame.numeric:
        names = tuple(str(cells.name) for cells in frame.columns)
        types = (replace(x, values=x.values[:0], dtype=_type_of(x)) for x in frame.columns)
        parts |= {"names": names, "types": dict(zip(names, types, strict=True))}
    if frame.numeric:
        return {"samples": frame.numbers(), **parts}
    samples = np.empty(frame.shape, dtype=object)
    for j, cells in enumerate(frame.columns):
        samples[:, j] = cells.values
        samples[cells.missing if cells.numeric else cells.missing | (cells.values == ""), j] = None
    return {"samples": samples, **parts}


def _type_of(cells: Series) -> str:
    """Returns the name of a column's type, NumPy's where no cell is missing."""
    plain = {"string": "str", "String": "str", "Float64": "float64", "boolean": "bool"}
    name = plain.get(cells.dtype, cells.dtype)
    return "int64" if name == "Int64" and not cells.missing.any() else name


def _pandas() -> Any:
    try:
        return import_module("pandas")
    except ImportError as error:
        raise ImportError("tables in files need pandas: pip install 'harmonium[tables]'") from error


def _library(suffix: str) -> str:
    """Returns the library for Parquet and Feather: pandas where it has pyarrow, else polars."""
    for library, needs in {"pandas": ("pandas", "pyarrow"), "polars": ("polars",)}.items():
        if all(map(find_spec, needs)):
            return library
    raise ImportError(
        f"{suffix} files need pyarrow or polars: pip install 'harmonium[tables]' pyarrow; .csv files do not"
    )


def _read_columns(path: Path) -> Any:
    """Reads a file whose columns have types."""
    form, size = path.suffix.lower(), path.stat().st_size
    if _library(form) == "pandas":
        dataset = import_module("pyarrow.dataset").dataset(path, format=form[1:])
        check_claim(8 * dataset.count_rows() * len(dataset.schema), size, "the table")
        reader = _pandas().read_parquet if form == ".parquet" else _pandas().read_feather
        return reader(path).reset_index(drop=True)
    polars = import_module("polars")
    try:
        lazy = (polars.scan_parquet if form == ".parquet" else polars.scan_ipc)(path, glob=False)
        names, rows = lazy.collect_schema().names(), lazy.select(polars.len()).collect().item()
        check_claim(8 * rows * len(names), size, "the table")
        return lazy.collect().select([x for x in names if not re.fullmatch(r"__index_level_\d+__", x)])
    except polars.exceptions.PanicException as error:  # which is no Exception
        raise ValueError("polars cannot follow what it claims; it is damaged") from error


def _text_of(path: Path, encoding: str | None) -> str:
    """Returns the text of a file, by default in the encoding of its byte-order mark, or UTF-8."""
    opened, content = _OPENED.get(path.suffix.lower()), bytearray()
    try:
        with (opened or open)(path, "rb") as file:
            while piece := file.read(_PIECE):
                content += piece
                check_claim(_OF_A_CHARACTER * len(content) if opened else 0, path.stat().st_size, "its text")
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise ValueError(f"damaged, or not compressed by {path.suffix[1:]} ({error})") from error
    encoding = encoding or ("utf-16" if content.startswith(_WIDE) else "utf-8-sig")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"expected text in {encoding.removesuffix('-sig').upper()}, received something else "
            f"({error.reason}); --read encoding=latin-1, or another, tells what it is in"
        ) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(f"line {line}: expected text, received the character NUL")
    return text


def _text_of_sheet(path: Path, name: str | int) -> tuple[str, list[str]]:
    """Returns the cells of a sheet as text, and notes."""
    _checks.instance(name, "sheet_name", int | str, "the name or the number of one sheet")
    if path.suffix.lower() != ".xls":
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        check_claim(unpacked, path.stat().st_size, "the workbook")
    try:
        with _pandas().ExcelFile(path) as book:
            sheets, options = book.sheet_names, {"header": None, "dtype": str, "keep_default_na": False}
            cells = _pandas().read_excel(book, sheet_name=name, **options)
    except ImportError as error:
        raise ImportError(
            f"{path.suffix} files need more than pandas ({error}): pip install 'harmonium[xlsx]' reads "
            ".xlsx, and a sheet can be saved as .csv"
        ) from error
    cells = cells.replace("", None).dropna(how="all").dropna(how="all", axis=1)
    others = " or ".join(map(repr, sheets[1:])) if name == 0 else ""
    notes = [f"read is the sheet {sheets[0]!r}; --read sheet_name=NAME reads {others}"] if others else []
    return str(cells.to_csv(index=False, header=False)), notes


def _separator(path: Path, content: str) -> str:
    """Returns what separates cells: of what all lines have as many of, or else the first line any, the usual.

    That is the one of the ending, or else what the first line has most of.
    """
    lines = [*islice((line for line in io.StringIO(content) if line.strip()), _LOOKED_AT)] or [""]
    usual = "\t" if re.search(r"\.(tsv|tab)\b", path.name.lower()) else ","
    candidates = [other for other in _SEPARATORS if other in lines[0]]
    even = [x for x in candidates if all(line.count(x) == lines[0].count(x) for line in lines)]
    among = even or candidates or [usual]
    chosen = usual if usual in among else max(among, key=lines[0].count)
    for other in {*even} - {chosen} if len(lines) > 2 else ():
        _checks.warn(
            f"{path}: cells are separated by {chosen!r}; --read 'sep={other}' if {other!r} does that"
        )
    return chosen


def _holds_names(rows: Sequence[Sequence[str]]) -> tuple[bool, bool]:
    """Decides whether the first line holds the names of the columns, and whether that is open to doubt.

    It does if it has text above nothing but numbers, or text of which no cell stands in its column again.
    """
    texts, numbers, again, above = list[str](), list[str](), list[str](), False
    for first, *below in zip(*rows, strict=True):
        first, seen = first.strip(), {cell.strip() for cell in below}.difference(_MISSING)
        number = is_number(first)
        if first not in _MISSING:
            (numbers if number else texts).append(first)
            above |= bool(seen) and not number and all(map(is_number, seen))
        if first in seen or (seen and not number and readings_of([first, *seen])):
            again.append(first)
    again = [] if above else again
    named = bool(texts) and not again and (not numbers or len({*rows[0]}) == len(rows[0]))
    counts = len(numbers) == len(rows[0]) > 1 and {*np.diff([*map(float, numbers)])} == {1.0}  # 0, 1 or years
    repeated = bool(texts and again) and (not numbers or all(map(is_number, again)))
    return named, bool(numbers and named) or repeated or counts


def _warn_of_first(path: Path, first: Sequence[str], named: bool) -> None:
    listed = ", ".join(first[:3]) + (", …" if len(first) > 3 else "")
    taken, other = ("the names of columns", "none") if named else ("data", "0")
    _checks.warn(f"{path}: the first line, {listed}, is read as {taken}; --read header={other} if it is not")


# Writing
# ---------------------------------------------------------------------------------


def table_bytes(frame: Frame, suffix: str) -> bytes:
    """Returns a frame as the content of a file, in the types of its columns.

    Args:
        frame: columns, of which those without a name get one.
        suffix: ".csv", ".tsv", ".parquet" or ".feather".

    Raises:
        ImportError: no library that writes them.
    """
    text = suffix in (".csv", ".tsv")
    library = "pandas" if text and _pandas() else _library(suffix)
    header, columns = all(isinstance(cells.name, str) for cells in frame.columns), list[Series]()
    for j, cells in enumerate(frame.columns, 1):
        whole = cells.missing.any() and of_whole_numbers(cells.dtype)  # which NumPy's types cannot be
        name = cells.name if isinstance(cells.name, str) else f"column {j}"
        columns.append(replace(cells, name=name, dtype="Int64" if whole else cells.dtype))
    native, buffer = build(Frame(tuple(columns), library)), io.BytesIO()
    if text:
        separator = "," if suffix == ".csv" else "\t"
        return str(native.to_csv(index=False, header=header, sep=separator, lineterminator="\n")).encode()
    form = suffix[1:] if library == "pandas" else suffix[1:].replace("feather", "ipc")
    getattr(native, f"{'to' if library == 'pandas' else 'write'}_{form}")(buffer)
    return buffer.getvalue()
