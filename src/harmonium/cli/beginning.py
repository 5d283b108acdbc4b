"""The start of a training run: a machine, and the states that it is to learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from torch import Tensor

from harmonium._random import as_generator
from harmonium.cli.coding import check_width, codec_of, learnable, naming, read_for, weights_of
from harmonium.cli.options import unknown_of
from harmonium.cli.runs import load_machine
from harmonium.cli.settings import TrainSettings
from harmonium.data import DataSet, Rows, read
from harmonium.machine import BoltzmannMachine, init_from_data_, init_visible_biases_, join_layers, normal_
from harmonium.tables import Codec
from harmonium.training import suits_fit_table
from harmonium.training.batch_source import check_rows

_STD = 0.01  # of the first couplings


@final
@dataclass(frozen=True)
class Beginning:
    """A machine with its data.

    Attributes:
        machine: its metadata say how data become states, and which data these were.
        X: states, as ``harmonium.train`` takes them.
        dataset: what was read.
        weights: of the rows, (rows,); None: all count alike.
        at_once: whether it is a table's, to be trained without chains.
    """

    machine: BoltzmannMachine
    X: Rows
    dataset: DataSet
    weights: Tensor | None = None
    at_once: bool = False

    @classmethod
    def new(cls, settings: TrainSettings, kinds: Mapping[str, Any], tabular: bool = True) -> Beginning:
        """Begins with a machine that has learned nothing.

        Args:
            settings: of the command; their seed is also that of what ``binarise`` draws.
            kinds: of some columns.
            tabular: see ``Codec.fit``.

        Raises:
            ValueError: data that do not suit the rest, or no row with any cell; the message names them.
        """
        data, label, seed, std = str(settings.data), settings.label, settings.seed, settings.initial_std
        reading = {"alphabet": settings.alphabet or "auto", "unknown": unknown_of(settings.unknown) or "gap"}
        dataset = read(data, labels_apart=label is None, **reading)
        if settings.alphabet is not None and dataset.alignment is None:
            raise ValueError(f"alphabet: expected with a file of sequences, received {data}")
        rest, labels = (dataset, None) if label is None else dataset.take_label(label)
        with naming(dataset.name):
            codec = _fit(rest, settings, kinds, tabular)
        width = sum(layer.width for layer in codec.layers)
        few, count = settings.few_hidden(), int(rest.samples.shape[0])
        at_once = few is not None and suits_fit_table(codec.encoder, [*codec.layers], count, few)
        if at_once:
            settings = replace(settings, hidden=[str(few)])
        if labels is not None:
            codec = codec.with_label(labels)
        with naming(dataset.name):
            rest, labels = learnable(rest, labels, codec)
        weights = weights_of(rest, settings.reweight)
        machine = join_layers(codec.layers, settings.hidden_layers(width), seed)
        generator = as_generator(seed)
        with naming(dataset.name):
            rows = codec.rows(rest, machine.dtype, labels, shown="anything")
            if not at_once:  # which begins by itself
                normal_(machine, _STD if std is None else std, generator)
                if std is None:
                    init_from_data_(machine, rows, generator, weights)
                else:
                    init_visible_biases_(machine, rows, weights)
        machine.metadata = {**codec.to_dict(), "data": _description(dataset, data)}
        return cls(machine, rows, dataset, weights, at_once)

    @classmethod
    def trained(cls, settings: TrainSettings) -> Beginning:
        """Begins with the machine of another run, which goes on from what it has learned.

        Raises:
            FileNotFoundError: no such run.
            ValueError: data that do not suit the machine, or no row with any cell; the message names them.
        """
        data = str(settings.data)
        machine, _ = load_machine(Path(str(settings.from_run)), averaged=False)
        coding = codec_of(machine, unknown_of(settings.unknown))
        dataset = read_for(coding, data)
        with naming(dataset.name):
            rest, labels = learnable(*coding.apart(dataset), coding)
            weights = weights_of(rest, settings.reweight)
            X = coding.rows(rest, machine.dtype, labels, shown="anything")
            check_width(coding, X.width)
            check_rows(machine, X, "X")
        about = _description(dataset, data)
        if coding.names is not None:
            about["names"] = list(coding.names)
        machine.metadata = {**machine.metadata, **coding.to_dict(), "data": about}
        return cls(machine, X, dataset, weights)

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


def _fit(dataset: DataSet, settings: TrainSettings, kinds: Mapping[str, Any], tabular: bool) -> Codec:
    """Fits a codec, and calls what makes grey levels binary as the command does."""
    try:
        return Codec.fit(
            dataset,
            settings.visible,
            kinds,
            binarise=settings.binarise,
            seed=settings.seed,
            unknown=unknown_of(settings.unknown) or "missing",
            tabular=tabular,
            missing=False,
        )
    except ValueError as error:
        said, remedy, _ = str(error).partition("; binarise the data first")
        if not remedy:
            raise
        raise ValueError(f"{said}; --binarise makes grey levels binary") from error


def _description(dataset: DataSet, source: str) -> dict[str, Any]:
    about = {"name": dataset.name, "source": source, "image_shape": dataset.image_shape}
    return about if dataset.names is None else {**about, "names": list(dataset.names)}
