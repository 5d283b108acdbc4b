"""The start of a training run: a machine, and the states that it is to learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from torch import Tensor

from harmonium._random import as_generator
from harmonium.cli.coding import codec_of, naming, weights_of
from harmonium.cli.options import unknown_of
from harmonium.cli.runs import load_machine
from harmonium.cli.settings import TrainSettings
from harmonium.data import DataSet, Rows, read
from harmonium.machine import BoltzmannMachine
from harmonium.tables import Codec
from harmonium.training import Recipe, as_root, check_rows, choose, stream_seed


@final
@dataclass(frozen=True)
class Beginning:
    """A machine with its data.

    Attributes:
        recipe: the machine, whose metadata say how data become states and which data these were, and how it
            is trained.
        X: states, as ``harmonium.train`` takes them.
        dataset: what was read.
        weights: of the rows, (rows,); None: all count alike.
    """

    recipe: Recipe
    X: Rows
    dataset: DataSet
    weights: Tensor | None = None

    @property
    def machine(self) -> BoltzmannMachine:
        """The machine that is trained."""
        return self.recipe.machine

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
        data, label = str(settings.data), settings.label
        reading = {"alphabet": settings.alphabet or "auto", "unknown": unknown_of(settings.unknown) or "gap"}
        dataset = read(data, labels_apart=label is None, **reading)
        if settings.alphabet is not None and dataset.alignment is None:
            raise ValueError(f"alphabet: expected with a file of sequences, received {data}")
        rest, labels = (dataset, None) if label is None else dataset.take_label(label)
        with naming(dataset.name):
            codec = _fit(rest, settings, kinds, tabular)
        visible, count = codec.layers, int(rest.samples.shape[0])
        if labels is not None:
            codec = codec.with_label(labels)
        recipe = choose(
            codec.encoder,
            visible,
            count,
            settings.hidden_layers(),
            kind=settings.hidden_kind,
            n_states=settings.hidden_states,
            label=None if labels is None else codec.layers[-1],
            method=settings.method,
        )
        with naming(dataset.name):
            rest, labels = codec.learnable(rest, labels)
        weights, machine = weights_of(rest, settings.reweight), recipe.machine
        generator = as_generator(stream_seed(as_root(settings.seed), "couplings"))
        with naming(dataset.name):
            rows = codec.rows(rest, machine.dtype, labels, shown="anything")
            if recipe.method == "chains":
                recipe.start_(rows, weights, settings.initial_std, generator)
        machine.metadata = {**codec.to_dict(), "data": _description(dataset, data)}
        return cls(recipe, rows, dataset, weights)

    @classmethod
    def trained(cls, settings: TrainSettings) -> Beginning:
        """Begins with the machine of another run, which goes on from what it has learned.

        Raises:
            FileNotFoundError: no such run.
            ValueError: data that do not suit the machine, or no row with any cell; the message names them.
        """
        data = str(settings.data)
        if settings.method == "exact":
            raise ValueError(
                "method: expected auto or chains with --from, as exact begins anew; received exact"
            )
        machine, _ = load_machine(Path(str(settings.from_run)), averaged=False)
        coding = codec_of(machine, unknown_of(settings.unknown))
        dataset = coding.read(data)
        with naming(dataset.name):
            rest, labels = coding.learnable(*coding.apart(dataset))
            weights = weights_of(rest, settings.reweight)
            X = coding.rows(rest, machine.dtype, labels, shown="anything")
            check_rows(machine, X, "X")
        about = _description(dataset, data)
        if coding.names is not None:
            about["names"] = list(coding.names)
        machine.metadata = {**machine.metadata, **coding.to_dict(), "data": about}
        return cls(Recipe(machine, "chains", coding.label is not None), X, dataset, weights)


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
