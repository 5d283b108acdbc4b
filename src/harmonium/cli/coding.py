"""Between the arguments of a command and the codec of a machine: data, labels, kinds and given cells."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium._checks import close_to
from harmonium.data import DataSet, Rows, read_weights
from harmonium.data._text_files import SEPARATORS, Dialect
from harmonium.machine import BoltzmannMachine
from harmonium.sequences import similarity_weights
from harmonium.tables import IGNORE, Codec

_KINDS = 'age = "gaussian", or visits = { kind = "binomial", largest = 20 }'


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
    raise ValueError("machine: its metadata are damaged, expected data with source and image_shape")


def dialect_of(machine: BoltzmannMachine) -> Dialect:
    """Returns the marks of the text file that a machine was trained on; commas and points of other data.

    Raises:
        ValueError: damaged metadata.
    """
    about = machine.metadata.get("data") or {}
    marks = about.get("dialect", Dialect()) if isinstance(about, dict) else ()
    if (
        isinstance(marks, (list, tuple))
        and len(marks) == 2
        and marks[0] in SEPARATORS
        and marks[1] in (".", ",")
    ):
        return Dialect(*marks)
    raise ValueError(f"machine: its metadata are damaged, expected data with a dialect, received {marks!r}")


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


@contextmanager
def naming_alphabet(alphabet: str | None) -> Iterator[None]:
    """Errors of letters that are raised inside name the alphabet where one was given."""
    try:
        yield
    except ValueError as error:
        if alphabet is None or not re.search("expected (letters of|proteins)", str(error)):
            raise
        raise ValueError(
            f"alphabet: expected one with the letters of the data, received {alphabet}: {error}; without it "
            "the letters decide"
        ) from error


# Data
# ---------------------------------------------------------------------------------


def states_of(codec: Codec, dataset: DataSet) -> Tensor:
    """Returns ``Codec.states``, whose errors name the data."""
    with naming(dataset.name):
        return codec.states(dataset)


def rows_of(codec: Codec, dataset: DataSet, **options: Any) -> Rows:
    """Returns ``Codec.observed_rows``, whose errors name the data."""
    with naming(dataset.name):
        return codec.observed_rows(dataset, **options)


def row_named(dataset: DataSet, name: str | None) -> tuple[int, str, NDArray[np.int64]]:
    """Returns the row of a sequence from 0, its name and its states, -1 where a letter is missing.

    Args:
        dataset: the sequences.
        name: the name up to its first space or slash, the whole one, or the number of the row from 1; None:
            the first row.

    Raises:
        ValueError: no such row, or several.
    """
    alignment = dataset.alignment
    names = [""] * len(dataset.samples) if alignment is None else alignment.names
    places = [0]
    if name is not None:
        for part in (str, lambda text: text.split(" ")[0], lambda text: re.split("[ /]", text)[0]):
            places = [place for place, text in enumerate(names) if part(text) == name]
            if places:
                break
    if not places and name is not None and name.isdecimal() and 1 <= int(name) <= len(names):
        places = [int(name) - 1]
    if len(places) != 1:
        close = close_to(str(name), [re.split("[ /]", text)[0] for text in names])
        raise ValueError(
            f"wild_type: expected the name of one sequence in {dataset.name}, or its number from 1 to "
            f"{len(names)}, received {name!r}, which {len(places) or 'none'} have{close}"
        )
    codes = np.nan_to_num(dataset.numbers()[places[0]], nan=-1).astype(np.int64)
    return places[0], names[places[0]], codes


def weighted(dataset: DataSet, weights: Path | None, threshold: float | None) -> DataSet:
    """Returns data with the weights of a file, where there is one.

    Raises:
        FileNotFoundError: no such file.
        ValueError: weights that do not fit the data, or both a file and a threshold.
    """
    if weights is None:
        return dataset
    if threshold is not None:
        raise ValueError(f"weights: expected without --reweight, received {weights} and {threshold:g}")
    return replace(dataset, weights=read_weights(weights, len(dataset.samples)).numpy())


def weights_of(dataset: DataSet, threshold: float | None) -> Tensor | None:
    """Returns how much each row counts, (rows,) float64; None without a threshold and weights: all alike.

    Raises:
        ValueError: data that are no whole numbers from 0 to 254.
    """
    if dataset.weights is not None:
        return torch.from_numpy(dataset.weights)
    if threshold is None:
        return None
    with naming(dataset.name):
        return similarity_weights(np.nan_to_num(dataset.numbers(), nan=-1), threshold)


def learned_weights(codec: Codec, dataset: DataSet) -> Tensor | None:
    """Returns the weights of rows as in training, (rows,) float64; None: they were all alike, or are unknown.

    Sequences are weighed by their similarity. Weights of a file are those of the training data alone.
    """
    about = codec.machine.metadata.get("data") or {}
    threshold, file, source = (about.get(name) for name in ("reweight", "weights", "source"))
    if file is not None and source is not None and dataset.name == Path(source).name and Path(file).is_file():
        dataset = weighted(dataset, Path(file), None)
    return weights_of(dataset, threshold)


# Kinds and cells that the user names
# ---------------------------------------------------------------------------------


def read_kinds(source: str | None) -> dict[str, Any]:
    """Reads kinds of columns by name, for ``harmonium.tables.Table.fit``; without a source there are none.

    Args:
        source: a file, or a line of TOML such as ``age = "gaussian"``.

    Raises:
        FileNotFoundError: no such file.
        ValueError: neither TOML nor JSON, or something else than columns and their kinds.
    """
    if source is None:
        return {}
    path = Path(source)
    if "=" in str(source) and not path.is_file():
        path, text = Path("kinds.toml"), str(source)
    elif path.is_file():
        text = None
    else:
        raise FileNotFoundError(f"kinds: expected a .toml or .json file, there is no {path}")
    parse = {".toml": tomllib.loads, ".json": json.loads}.get(path.suffix.lower())
    if parse is None:
        raise ValueError(f"kinds: expected a name that ends in .toml or .json, received {path}")
    try:
        found = parse(path.read_text("utf-8") if text is None else text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"kinds: {path} is no {path.suffix[1:].upper()} ({error}); write {_KINDS}"
        ) from error
    if not isinstance(found, dict) or not all(isinstance(kind, str | dict) for kind in found.values()):
        raise ValueError(f"kinds: expected a kind for each column in {path}, such as {_KINDS}")
    return found


def without_units(kinds: Mapping[str, Any]) -> list[str]:
    """Lists the columns that kinds leave without a unit."""
    return [name for name, kind in kinds.items() if kind in (IGNORE, {"kind": IGNORE})]


def states_given(codec: Codec, given: Sequence[str], rows: int) -> Tensor | None:
    """(rows, visible width) in float64, all alike, NaN but for the columns named; None where none is.

    Raises:
        ValueError: another form, no such column, or a value that it has no state for.
    """
    if not given:
        return None
    cells = dict[str, str]()
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise ValueError(f"given: expected COLUMN=VALUE such as city=Rom, received {each!r}")
        cells[name.strip()] = value.strip()
    try:
        return codec.given(cells).repeat(rows, 1)
    except ValueError as error:
        reason = str(error).partition(" at row 0")[0].removeprefix("column: ").removeprefix("X: ")
        raise ValueError(f"given: {reason}") from error
