"""From a DATA argument to machine states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium._rows import is_sparse
from harmonium.data import (
    BernoulliBinarise,
    BitPlanes,
    Compose,
    DataSet,
    Encoder,
    Identity,
    Rows,
    Table,
    Threshold,
    encoder_from_dict,
    visible_for,
    visible_layers,
)
from harmonium.data.sheet import Sheet
from harmonium.layers import Layer
from harmonium.machine import BoltzmannMachine

BINARISE = ("none", "threshold", "sample", "bit-planes", "gray-planes")


def fit_encoding(
    dataset: DataSet,
    visible: str,
    binarise: str,
    seed: int,
    kinds: Mapping[str, Any] | None = None,
    unknown: str = "error",
    tabular: bool = True,
) -> tuple[list[Layer], Encoder, Any]:
    """Visible layers for data, the encoder that makes their states, and the encoded data.

    A table stands between the two where the data are one (``DataSet.tabular``) and neither units of one kind
    nor grey levels are asked for, where they have text or missing cells, and where kinds are given.

    Args:
        dataset: what to learn from.
        visible: kind of visible units, see ``harmonium.machine.visible_for``.
        binarise: what is done to grey levels first: one of ``BINARISE``.
        seed: of the draws of ``binarise="sample"``.
        kinds: of some columns, by name, for ``Table.fit``.
        unknown: see ``Table``.
        tabular: whether names make a table of numbers.

    Raises:
        ValueError: data that do not suit the two; the message names the data.
    """
    _checks.one_of(binarise, "binarise", BINARISE)
    _checks.one_of(visible, "visible", ("auto", *Layer.registry))
    with naming(dataset.name):
        named = tabular and binarise == "none" and dataset.tabular
        text = dataset.samples.dtype.kind == "O"
        if kinds or text or (visible == "auto" and (named or dataset.mixed)):
            if binarise != "none":
                raise ValueError(f"binarise: expected none for a table, received {binarise}")
            sheet = dataset.sheet()
            chosen = {cells.name: visible for cells in sheet.columns} | _by_column(kinds or {}, sheet)
            table = Table.fit(sheet, chosen, unknown=unknown)
            return visible_layers(table), table, table.encode(sheet)
    two_values = None if visible == "auto" else Layer.registry[visible].two_values
    if binarise.endswith("-planes") and visible != "auto" and two_values != (0.0, 1.0):
        raise ValueError(f"visible: expected auto or bernoulli for {binarise}, received {visible}")
    first: dict[str, Encoder] = {
        "none": Identity(),
        "threshold": Threshold(),
        "sample": BernoulliBinarise(seed),
        "bit-planes": BitPlanes(),
        "gray-planes": BitPlanes(gray=True),
    }
    with naming(dataset.name):
        samples = encode(first[binarise], dataset.samples)
        try:
            layer, second = visible_for(Rows.of(samples), visible)
        except ValueError as error:
            if two_values is not None and binarise == "none":
                complaint = str(error).split("; ")[0]
                raise ValueError(f"{complaint}; --binarise makes grey levels binary") from error
            raise
        states = encode(second, samples)
    parts = [part for part in (first[binarise], second) if not isinstance(part, Identity)]
    return [layer], parts[0] if len(parts) == 1 else Compose(tuple(parts)) if parts else Identity(), states


def encoder_of(machine: BoltzmannMachine) -> Encoder:
    """The encoder stored with a machine, or none at all.

    Raises:
        ValueError: what is stored is no encoder.
    """
    description = machine.metadata.get("encoder")
    try:
        return Identity() if description is None else encoder_from_dict(description)
    except (TypeError, ValueError) as error:
        raise ValueError(f"RUN: its machine's metadata are damaged, encoder {error}") from error


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


def _by_column(kinds: Mapping[str, Any], sheet: Sheet) -> dict[Any, Any]:
    """The kinds by the columns' own names, which are numbers where they have none."""
    if all(isinstance(cells.name, int) for cells in sheet.columns):
        return {int(name) if name.isdecimal() else name: kind for name, kind in kinds.items()}
    return dict(kinds)


def encode(encoder: Encoder, samples: Any) -> Any:
    """Samples through an encoder: a batch at a time as they are read, or all at once where it draws."""
    if isinstance(encoder, Identity):
        return samples
    if encoder.draws:
        return encoder.encode(dense(samples))
    return Rows.of(samples).encoded(encoder)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors about ``X`` raised inside name the data instead."""
    try:
        yield
    except ValueError as error:
        if str(error).startswith("kinds: "):  # not the data's mistake
            raise
        said = str(error).removeprefix("X: ").removeprefix(f"{Path(name).name}: ")  # what names a file twice
        raise ValueError(f"{name}: {said}") from error
    except TypeError as error:
        raise TypeError(f"{name}: {str(error).removeprefix('X: ')}") from error


def in_memory(states: Any) -> Tensor:
    """Encoded data as one tensor, (rows, width), float64, NaN where a state is missing."""
    rows = Rows.of(states, torch.float64, missing=True)
    return rows.take(torch.arange(len(rows)))


def dense(samples: Any) -> Any:
    """Samples as one array in memory."""
    return samples.toarray() if is_sparse(samples) else np.asarray(samples[()])
