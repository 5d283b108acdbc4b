"""The start of a training run: a machine, and the states that it is to learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from harmonium._random import as_generator
from harmonium.cli.coding import Coding
from harmonium.cli.encoding import encode, fit_encoding, in_memory, naming
from harmonium.cli.labels import fit_label, split_label
from harmonium.cli.options import unknown_of
from harmonium.cli.runs import load_machine
from harmonium.cli.settings import TrainSettings
from harmonium.data import DataSet, Rows, Table, read
from harmonium.data.missing import refuse_blank
from harmonium.layers import Categorical
from harmonium.machine import BoltzmannMachine, from_data_, joined, normal_, visible_from_data_

_STD = 0.01  # of the first couplings


@final
@dataclass(frozen=True)
class Beginning:
    """A machine with its data.

    Attributes:
        machine: its metadata say how data become states, and which data these were.
        X: states, as ``harmonium.train`` takes them.
        dataset: what was read.
    """

    machine: BoltzmannMachine
    X: Any
    dataset: DataSet

    @classmethod
    def new(cls, settings: TrainSettings, kinds: Mapping[str, Any], tabular: bool = True) -> Beginning:
        """Begins with a machine that has learned nothing.

        Args:
            settings: of the command; their seed is also that of what ``binarise`` draws.
            kinds: of some columns.
            tabular: see ``fit_encoding``.

        Raises:
            ValueError: data that do not suit the rest, or a row without any cell; the message names them.
        """
        data, label, seed, std = str(settings.data), settings.label, settings.seed, settings.initial_std
        dataset = read(data, labels_apart=label is None)
        rest, labels = (dataset, None) if label is None else split_label(dataset, label)
        unknown = unknown_of(settings.unknown) or "error"
        visible_layers, encoder, X = fit_encoding(
            rest, settings.visible, settings.binarise, seed, kinds, unknown, tabular
        )
        width = sum(layer.width for layer in visible_layers)
        metadata: dict[str, Any] = {"encoder": encoder.to_dict(), "data": _description(dataset, data)}
        if labels is not None:
            column = fit_label(labels)
            visible_layers = [*visible_layers, Categorical(1, column.coding.n_states)]
            X = np.hstack([in_memory(X), column.encode(labels, "error")])
            metadata["label"] = column.to_dict()
        if isinstance(encoder, Table):
            with naming(dataset.name):
                refuse_blank(torch.from_numpy(X))
        machine = joined(visible_layers, settings.hidden_layers(width), seed)
        rows, generator = Rows.of(X, dtype=machine.dtype, missing=True), as_generator(seed)
        normal_(machine, _STD if std is None else std, generator)
        if std is None:
            from_data_(machine, rows, generator)
        else:
            visible_from_data_(machine, rows)
        machine.metadata = metadata
        return cls(machine, X, dataset)

    @classmethod
    def trained(cls, settings: TrainSettings) -> Beginning:
        """Begins with the machine of another run, which goes on from what it has learned.

        Raises:
            FileNotFoundError: no such run.
            ValueError: data that do not suit the machine, or a row without any cell; the message names them.
        """
        data = str(settings.data)
        machine, _ = load_machine(Path(str(settings.from_run)), averaged=False)
        coding = Coding.of(machine, unknown_of(settings.unknown))
        dataset = coding.read(data)
        if coding.label is None and not isinstance(coding.encoder, Table):
            with naming(dataset.name):
                X = encode(coding.encoder, dataset.samples)
                coding.check_width(Rows.of(X, missing=True).width)
        else:
            with naming(dataset.name):
                X = refuse_blank(coding.states(dataset))
        about = _description(dataset, data)
        if coding.names is not None:
            about["names"] = list(coding.names)
        machine.metadata = {**machine.metadata, "encoder": coding.encoder.to_dict(), "data": about}
        return cls(machine, X, dataset)

    @property
    def data_width(self) -> int:
        """Of the layers that code the data, without a label's."""
        layers = [self.machine.layers[l] for l in self.machine.visible]
        return sum(layer.width for layer in (layers[:-1] if "label" in self.machine.metadata else layers))

    @property
    def plain(self) -> bool:
        """True if all visible units are discrete and none of them is a label."""
        layers = (self.machine.layers[l] for l in self.machine.visible)
        return "label" not in self.machine.metadata and all(layer.discrete for layer in layers)


def _description(dataset: DataSet, source: str) -> dict[str, Any]:
    about = {"name": dataset.name, "source": source, "image_shape": dataset.image_shape}
    return about if dataset.names is None else {**about, "names": list(dataset.names)}
