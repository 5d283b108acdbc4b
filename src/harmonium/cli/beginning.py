"""The start of a training run: a machine, and the states that it is to learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from harmonium._random import as_generator
from harmonium._rows import refuse_blank
from harmonium.cli.coding import Coding
from harmonium.cli.encoding import encode, fit_encoding, in_memory, naming
from harmonium.cli.labels import fit_label, split_label
from harmonium.cli.runs import load_machine
from harmonium.data import DataSet, Rows, Table, read
from harmonium.layers import Categorical, Layer
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
    def new(
        cls,
        data: str,
        upper: Callable[[int], Sequence[Layer]],
        label: str | None,
        kinds: Mapping[str, Any],
        unknown: str,
        visible: str,
        binarise: str,
        initial_std: float | None,
        seed: int,
        tabular: bool = True,
    ) -> Beginning:
        """A machine that has learned nothing.

        Args:
            data: see ``harmonium.data.read``.
            upper: the hidden layers, for data of a width.
            label: the column of labels, None without.
            kinds: of some columns.
            unknown: see ``harmonium.data.Table``.
            visible: kind of visible units.
            binarise: what is done to grey levels.
            initial_std: of the first couplings; None: what suits the units.
            seed: of the first parameters and of what ``binarise`` draws.
            tabular: see ``fit_encoding``.

        Raises:
            ValueError: data that do not suit the rest, or a row without any cell; the message names them.
        """
        dataset = read(data, labels_apart=label is None)
        rest, labels = (dataset, None) if label is None else split_label(dataset, label)
        visible_layers, encoder, X = fit_encoding(rest, visible, binarise, seed, kinds, unknown, tabular)
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
        machine = joined(visible_layers, upper(width), seed)
        rows, generator = Rows.of(X, dtype=machine.dtype, missing=True), as_generator(seed)
        normal_(machine, _STD if initial_std is None else initial_std, generator)
        if initial_std is None:
            from_data_(machine, rows, generator)
        else:
            visible_from_data_(machine, rows)
        machine.metadata = metadata
        return cls(machine, X, dataset)

    @classmethod
    def trained(cls, run: Path, data: str, unknown: str | None) -> Beginning:
        """A machine that goes on from what it has learned, perhaps with other data.

        Args:
            run: a run's folder or a machine's file.
            data: see ``harmonium.data.read``.
            unknown: see ``harmonium.data.Table``; None: as the machine has it.

        Raises:
            FileNotFoundError: no such run.
            ValueError: data that do not suit the machine, or a row without any cell; the message names them.
        """
        machine, _ = load_machine(run, averaged=False)
        coding = Coding.of(machine, unknown)
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
