"""From a DATA argument to machine states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from harmonium import _checks
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
)
from harmonium.data._arrays import is_sparse
from harmonium.data.sheet import differ_in_kind
from harmonium.layers import Layer
from harmonium.machine import VISIBLE_KINDS, BoltzmannMachine, visible_for, visible_layers

BINARISE = ("none", "threshold", "sample", "bit-planes", "gray-planes")


def fit_encoding(
    dataset: DataSet, visible: str, binarise: str, seed: int
) -> tuple[list[Layer], Encoder, Any]:
    """Visible layers for data, the encoder that makes their states, and the encoded data.

    A table stands between the two where the data have text, missing cells or columns that differ in kind.

    Args:
        dataset: what to learn from.
        visible: kind of visible units, see ``harmonium.machine.visible_for``.
        binarise: what is done to grey levels first: one of ``BINARISE``.
        seed: of the draws of ``binarise="sample"``.

    Raises:
        ValueError: data that do not suit the two; the message names the data.
    """
    _checks.one_of(binarise, "binarise", BINARISE)
    _checks.one_of(visible, "visible", VISIBLE_KINDS)
    with naming(dataset.name):
        if _is_table(dataset, visible):
            if binarise != "none":
                raise ValueError(f"binarise: expected none for a table, received {binarise}")
            sheet = dataset.sheet()
            table = Table.fit(sheet, None if visible == "auto" else visible)
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


def encoded_rows(machine: BoltzmannMachine, dataset: DataSet) -> Rows:
    """Data as rows of a trained machine's states.

    Raises:
        ValueError: data that do not suit the machine; the message names the data.
    """
    with naming(dataset.name):
        encoder = encoder_of(machine)
        states = (
            encoder.encode(dataset.sheet())
            if isinstance(encoder, Table)
            else encode(encoder, dataset.samples)
        )
        if isinstance(encoder, Table) and np.isnan(states).any():
            row = int(np.isnan(states).any(1).argmax())
            raise ValueError(
                f"X: expected no missing cell, received one in row {row}; harmonium impute fills them in"
            )
        rows = Rows.of(states, dtype=machine.dtype)
        width = machine.visible_width
        if rows.width != width:
            raise ValueError(f"X: expected {width} columns for the machine's states, received {rows.width}")
    return rows


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


def names_of(machine: BoltzmannMachine) -> tuple[str, ...] | None:
    """The names of the columns that a machine was trained on, where they had names.

    Raises:
        ValueError: what is stored with the machine is none.
    """
    about = machine.metadata.get("data") or {}
    names = about.get("names") if isinstance(about, dict) else None
    if names is None or (isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)):
        return None if names is None else tuple(names)
    raise ValueError("RUN: its machine's metadata are damaged, expected names of columns")


def source_of(machine: BoltzmannMachine) -> tuple[str | None, tuple[int, ...]]:
    """Where the data that a machine was trained on came from, or None; the shape of their images, or ().

    Raises:
        ValueError: what is stored with the machine is neither.
    """
    about = machine.metadata.get("data") or {}
    if isinstance(about, dict):
        source, shape = about.get("source"), about.get("image_shape") or []
        sides = isinstance(shape, (list, tuple)) and all(type(side) is int and side > 0 for side in shape)
        if sides and isinstance(source, (str, type(None))):
            return source, tuple(shape)
    raise ValueError("RUN: its machine's metadata are damaged, expected data with source and image_shape")


def _is_table(dataset: DataSet, visible: str) -> bool:
    samples = dataset.samples
    if not isinstance(samples, np.ndarray) or samples.dtype.kind not in "Of":
        return False
    return samples.dtype.kind == "O" or (
        visible == "auto" and dataset.image_shape is None and differ_in_kind(samples)
    )


def encode(encoder: Encoder, samples: Any) -> Any:
    """Samples through an encoder: a batch at a time as they are read, or all at once where it draws."""
    if isinstance(encoder, Identity):
        return samples
    if encoder.draws:
        return encoder.encode(_dense(samples))
    return Rows.of(samples).encoded(encoder)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors about ``X`` raised inside name the data instead."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}: {str(error).removeprefix('X: ')}") from error
    except TypeError as error:
        raise TypeError(f"{name}: {str(error).removeprefix('X: ')}") from error


def _dense(samples: Any) -> Any:
    return samples.toarray() if is_sparse(samples) else np.asarray(samples[()])
