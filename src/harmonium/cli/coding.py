"""Between the arguments of a command and the codec of a machine: data, labels, kinds and given cells."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium import _checks
from harmonium.data import LABELS, DataSet, Frame, Letters, Rows, Series, read
from harmonium.data.frame import of_whole_numbers
from harmonium.machine import BoltzmannMachine
from harmonium.sequences import similarity_weights
from harmonium.tables import Codec, Column, Table, blank_rows
from harmonium.training.batch_source import check_batch

_LOOKED_AT = 2048  # rows at once
_KINDS = 'age = "gaussian", or visits = { kind = "binomial", largest = 20 }'


def codec_of(machine: BoltzmannMachine, unknown: str | None = None) -> Codec:
    """Reads the codec of a machine that RUN names, see ``Codec.of``."""
    try:
        return Codec.of(machine, unknown)
    except ValueError as error:
        raise ValueError(str(error).replace("machine: its", "RUN: its machine's")) from error


def refuse_label(codec: Codec, command: str) -> None:
    """Refuses a machine with labels, for a command that takes none.

    Raises:
        ValueError: there is one.
    """
    if codec.label is not None:
        raise ValueError(f"RUN: expected a machine without --label for {command}, received one with")


def refuse_discriminative(codec: Codec, command: str) -> None:
    """Refuses a machine that has learned the label alone, for a command that asks for rows.

    Raises:
        ValueError: it is one.
    """
    if codec.objective == "discriminative":
        raise ValueError(
            f"RUN: expected a machine trained with --objective hybrid or joint for {command}, received "
            "discriminative: it has learned the label given the rest, and nothing of the rest"
        )


def source_of(machine: BoltzmannMachine) -> tuple[str | None, tuple[int, ...]]:
    """Returns the source of a machine's training data, or None, and the shape of their images, or ().

    Raises:
        ValueError: damaged metadata.
    """
    about = machine.metadata.get("data") or {}
    if isinstance(about, dict):
        source, shape = about.get("source"), about.get("image_shape") or []
        sides = isinstance(shape, (list, tuple)) and all(type(side) is int and side > 0 for side in shape)
        if sides and isinstance(source, (str, type(None))):
            return source, tuple(shape)
    raise ValueError("RUN: its machine's metadata are damaged, expected data with source and image_shape")


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors about ``X`` raised inside name the data instead."""
    try:
        yield
    except ValueError as error:
        if str(error).startswith(("kinds: ", "visible: ", "binarise: ")):  # not the data's mistake
            raise
        said = str(error).removeprefix("X: ").removeprefix(f"{Path(name).name}: ")  # what names a file twice
        raise ValueError(f"{name}: {said}") from error
    except TypeError as error:
        raise TypeError(f"{name}: {str(error).removeprefix('X: ')}") from error


# Data
# ---------------------------------------------------------------------------------


def read_for(codec: Codec, source: str, *, lacking: str | None = None) -> DataSet:
    """Reads data with their columns in the order of training, where both have names.

    Args:
        codec: of a machine.
        source: see ``harmonium.data.read``.
        lacking: a column that may be absent, and then is missing in every row.

    Raises:
        ValueError: other columns than in training.
    """
    known = {name.lower() for name in codec.names or ()}
    columns = [*(codec.encoder.columns if isinstance(codec.encoder, Table) else ()), codec.label]
    labels = {str(each.name): each.values for each in columns if each is not None and not each.form}
    text = {name for name, x in labels.items() if x and all(isinstance(value, str) for value in x)}
    coder = codec.encoder
    reading = (coder.alphabet, coder.unknown) if isinstance(coder, Letters) else ("auto", "gap")
    apart = not known & set(LABELS)
    dataset = read(source, labels_apart=apart, alphabet=reading[0], unknown=reading[1]).with_text(text)
    if codec.names is None or dataset.names is None:
        return dataset
    own = codec.own_names()
    if lacking in own and lacking not in dataset.names:
        dataset = dataset.with_missing(str(lacking))
    if isinstance(codec.encoder, Table):
        return dataset
    found = dataset.names or ()
    missed = [name for name in own if name not in found]
    more = [name for name in found if name not in codec.names]
    if missed or more:
        raise ValueError(
            f"{source}: expected the columns {', '.join(map(repr, codec.names))} as in training, received "
            + (f"none called {missed[0]!r}" if missed else f"{more[0]!r} beside them")
        )
    order = [found.index(name) for name in codec.names if name in found]
    names = tuple(found[column] for column in order)
    return replace(dataset, samples=dataset.samples[:, order], names=names)


def states_of(codec: Codec, dataset: DataSet) -> Tensor:
    """Returns data as visible states of a machine, (rows, visible width), NaN where a cell is missing.

    Raises:
        ValueError: data that do not suit the machine; the message names them.
    """
    machine = codec.machine
    rest, cells = codec.apart(dataset)
    with naming(dataset.name):
        X = rest.frame() if isinstance(codec.encoder, Table) else rest.numbers()
        rows = codec.rows(X, torch.float64, cells, keep=False)
        check_width(codec, rows.width)
        states = rows.all().to(machine.device, machine.dtype)
        machine.check_rows(states, "X", missing=True)
    return states


def rows_of(codec: Codec, dataset: DataSet, *, missing: bool = False) -> Rows:
    """Returns data as visible states of a machine, for scores and training.

    Args:
        codec: of the machine.
        dataset: the data.
        missing: whether cells may be missing.

    Raises:
        ValueError: a missing cell that may not be, a row without any cell, or data that do not suit the
            machine; the message names the data.
    """
    machine = codec.machine
    with naming(dataset.name):
        rows = codec.rows(dataset, machine.dtype, shown="anything")
        check_width(codec, rows.width)
        found = False
        looked_at = rows.in_memory or (missing and dataset.samples.dtype.kind in "fO")
        chunks = rows.chunks(_LOOKED_AT) if looked_at else iter(())
        for number, chunk in enumerate(chunks):
            start, hole = number * _LOOKED_AT, chunk.isnan().any(1)
            if not bool(hole.any()):
                continue
            found = True
            if not missing:
                raise ValueError(
                    f"X: expected no missing cell, received one in row {start + int(hole.int().argmax())}; "
                    "harmonium impute fills them in"
                )
            check_batch(machine, chunk, range(start, start + len(chunk)), "X")
        rows.missing = found
    return rows


def weights_of(dataset: DataSet, share: float | None) -> Tensor | None:
    """Returns how much each row counts, (rows,) float64; None without a share: all alike.

    Raises:
        ValueError: data that are no whole numbers from 0 to 254.
    """
    if share is None:
        return None
    with naming(dataset.name):
        return similarity_weights(np.nan_to_num(dataset.numbers(), nan=-1), share)


def alphabet_of(codec: Codec) -> str | None:
    """Returns the letters of the sequences that a machine has learned; None: it has learned others."""
    return codec.encoder.alphabet if isinstance(codec.encoder, Letters) else None


def units_of(codec: Codec, columns: Tensor, rest: DataSet) -> Tensor:
    """Returns booleans of the columns of data, (rows, columns), as booleans of visible units.

    Args:
        codec: of a machine.
        columns: in the order of the data's.
        rest: the data without the label, whose units they are.

    Raises:
        ValueError: a number of columns that the machine's units do not stand for.
    """
    if isinstance(codec.encoder, Table):
        columns = columns[:, codec.encoder.order(rest.frame())]
    n_units = visible_units(codec.machine) - (codec.label is not None)
    if n_units % columns.shape[1]:
        raise ValueError(f"X: expected a column for each of {n_units} units, received {columns.shape[1]}")
    # A column of the data has one unit, or one in each of the planes that follow each other.
    units = columns.repeat(1, n_units // columns.shape[1])
    return units if codec.label is None else torch.cat([units, units.new_zeros(len(units), 1)], 1)


def learnable(rest: DataSet, labels: Series | None, codec: Codec) -> tuple[DataSet, Series | None]:
    """Returns the rows in memory that have a cell or a label, and their labels; a warning tells of others.

    Rows in a file that are blank are refused where they are read.
    """
    if rest.samples.dtype.kind == "O" or isinstance(codec.encoder, Table):
        X: Any = rest.frame()
    else:
        X = rest.samples if type(rest.samples) is np.ndarray else np.empty((rest.samples.shape[0], 0), int)
    blank = blank_rows(X, codec.encoder)
    blank &= True if labels is None else labels.missing
    if not blank.any() or blank.all():
        return rest, labels
    _checks.warn(
        f"{rest.name}: nothing is learned from {blank.sum()} of {len(blank)} rows, the first of them row "
        f"{int(blank.argmax())}, as every cell is missing"
    )
    own = None if rest.labels is None else rest.labels[~blank]
    kept = replace(rest, samples=rest.samples[~blank], labels=own, texts=None)
    return kept, None if labels is None else replace(labels, values=labels.values[~blank], texts=None)


def holes(X: NDArray[Any]) -> NDArray[np.bool_]:
    """Marks the missing entries, as booleans of the shape of X: NaN, or None among objects."""
    if X.dtype.kind == "O":
        return np.array([[cell is None for cell in row] for row in X], dtype=bool)
    return np.isnan(X) if X.dtype.kind == "f" else np.zeros(X.shape, dtype=bool)


def check_width(codec: Codec, width: int) -> None:
    """Refuses states of another width than the machine's.

    Raises:
        ValueError: they are.
    """
    expected, less = codec.machine.visible_width, codec.label_width
    if width != expected:
        raise ValueError(
            f"X: expected {expected - less} columns for the machine's states, received {width - less}"
        )


# Kinds and cells that the user names
# ---------------------------------------------------------------------------------


def read_kinds(path: Path | None) -> dict[str, Any]:
    """Reads kinds of columns by name, for ``harmonium.tables.Table.fit``; without a file there are none.

    Raises:
        FileNotFoundError: no such file.
        ValueError: neither TOML nor JSON, or something else than columns and their kinds.
    """
    if path is None:
        return {}
    if not path.is_file():
        raise FileNotFoundError(f"kinds: expected a .toml or .json file, there is no {path}")
    parse = {".toml": tomllib.loads, ".json": json.loads}.get(path.suffix.lower())
    if parse is None:
        raise ValueError(f"kinds: expected a name that ends in .toml or .json, received {path}")
    try:
        found = parse(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"kinds: {path} is no {path.suffix[1:].upper()} ({error}); write {_KINDS}"
        ) from error
    if not isinstance(found, dict) or not all(isinstance(kind, str | dict) for kind in found.values()):
        raise ValueError(f"kinds: expected a kind for each column in {path}, such as {_KINDS}")
    return found


def states_given(codec: Codec, given: Sequence[str], rows: int) -> Tensor | None:
    """(rows, visible width) in float64, all alike, NaN but for the columns named; None where none is.

    Args:
        codec: of the machine.
        given: such as ``city=Rom``.
        rows: at least 1.

    Raises:
        ValueError: another form, no such column, or a value that it has no state for.
    """
    if not given:
        return None
    width = codec.machine.visible_width
    states = torch.full((1, width), torch.nan, dtype=torch.float64, device="cpu")
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise ValueError(f"given: expected COLUMN=VALUE such as city=Rom, received {each!r}")
        try:
            place = codec.unit_of(name.strip())
            cell = _cell(place.column, value.strip())
            encoded = Table((place.column,), unknown="error").encode(Frame((cell,)))
        except ValueError as error:
            reason = str(error).partition(" at row 0")[0].removeprefix("column: ").removeprefix("X: ")
            raise ValueError(f"given: {reason}") from error
        states[:, place.states] = torch.from_numpy(encoded)
    return states.repeat(rows, 1)


def _cell(column: Column, text: str) -> Series:
    """A cell of a column from its text: one of the labels by how it is written, else a number."""
    written = {str(value): value for value in column.values}
    value = written.get(text, text)
    try:
        number = float(value)
    except ValueError:
        number = None
    if number is not None and of_whole_numbers(column.dtype) and number % 1 != 0:
        raise ValueError(f"expected a whole number in column {column.name!r}, received {text!r}")
    if number is not None and (not column.values or number in column.values):
        return Series(column.name, np.array([number]), "float64")
    cell = np.empty(1, dtype=object)
    cell[0] = value
    return Series(column.name, cell, "object")


def visible_units(machine: BoltzmannMachine) -> int:
    """Returns the number of units of all visible layers."""
    return sum(machine.layers[l].n_units for l in machine.visible)
