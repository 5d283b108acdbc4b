"""The conversion between files of rows and visible states of a trained machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium._rows import is_sparse, refuse_blank
from harmonium.cli.columns import columns_of
from harmonium.cli.encoding import dense, encode, encoder_of, in_memory, naming
from harmonium.cli.labels import split_label
from harmonium.cli.pseudo import visible_units
from harmonium.data import DataSet, Encoder, Rows, Table, read
from harmonium.data.column import Column
from harmonium.data.dataset import LABELS
from harmonium.data.sheet import Cells, Sheet
from harmonium.machine import BoltzmannMachine
from harmonium.tasks.impute import by_column, unobserved

_LOOKED_AT = 2048  # rows at once


class Place(NamedTuple):
    """The place of a column: its unit in a visible layer, and the columns of that unit's states."""

    column: Column
    layer: int
    unit: int
    states: slice


@final
@dataclass(frozen=True)
class Coding:
    """The encoder of a machine's rows, and their label where it has learned one.

    Attributes:
        machine: whose states they are.
        encoder: of the columns but the label.
        label: the column whose unit is the last visible layer; None: there is none.
        names: of all columns as in training, where they had names.
        objective: what was learned of the label, as ``harmonium.RBMClassifier`` calls it.
    """

    machine: BoltzmannMachine
    encoder: Encoder
    label: Column | None
    names: tuple[str, ...] | None
    objective: str

    @classmethod
    def of(cls, machine: BoltzmannMachine, unknown: str | None = None) -> Coding:
        """Reads the coding that is stored in a machine's metadata.

        Args:
            machine: as trained by the command line, or any other.
            unknown: see ``Table``; None: as in training.

        Raises:
            ValueError: metadata that are damaged, or ``unknown`` for a machine without columns of labels.
        """
        encoder, label = encoder_of(machine), label_of(machine)
        if unknown is not None:
            if not isinstance(encoder, Table):
                raise ValueError(f"unknown: expected none for a machine of numbers alone, received {unknown}")
            encoder = replace(encoder, unknown=unknown)
        objective = str(machine.metadata.get("objective", "joint"))
        return cls(machine, encoder, label, names_of(machine), objective)

    def refuse_label(self, command: str) -> None:
        """Refuse a machine with labels, for what knows of none.

        Raises:
            ValueError: there is one.
        """
        if self.label is not None:
            raise ValueError(f"RUN: expected a machine without --label for {command}, received one with")

    def refuse_discriminative(self, command: str) -> None:
        """Refuse a machine that has learned the label alone, for what asks for rows.

        Raises:
            ValueError: it is one.
        """
        if self.objective == "discriminative":
            raise ValueError(
                f"RUN: expected a machine trained with --objective hybrid or joint for {command}, received "
                "discriminative: it has learned the label given the rest, and nothing of the rest"
            )

    def unit_of(self, column: str) -> Place:
        """The visible unit of a column.

        Raises:
            ValueError: no such column.
        """
        own = [name for name in self.names or () if self.label is None or name != self.label.name]
        columns = columns_of(self.encoder, self.machine.layers[self.machine.visible[0]], own or None)
        known = (*columns, *([] if self.label is None else [self.label]))
        for each, (layer, unit, states) in zip(known, self._places(len(known)), strict=True):
            if str(each.name) == column:
                return Place(each, layer, unit, states)
        if not known:
            raise ValueError(
                f"column: expected a machine with a unit for each column, received {column!r} for one with "
                "several, such as bit-planes"
            )
        names = ", ".join(repr(str(each.name)) for each in known)
        raise ValueError(f"column: expected one of {names}, received {column!r}")

    def _places(self, count: int) -> list[tuple[int, int, slice]]:
        """Layer, unit and columns of the states of every visible unit, the last ``count`` of them."""
        places, start = [], 0
        for l in self.machine.visible:
            layer = self.machine.layers[l]
            width = layer.width // layer.n_units
            for unit in range(layer.n_units):
                places.append((l, unit, slice(start, start + width)))
                start += width
        return places[len(places) - count :]

    @property
    def label_width(self) -> int:
        """States of the label; 0 where there is none."""
        return 0 if self.label is None else self.label.coding.width

    @property
    def density(self) -> bool:
        """True if the data have a density: some visible layer is real."""
        return not all(self.machine.layers[l].discrete for l in self.machine.visible)

    def log_slopes(self, states: Tensor) -> Tensor:
        """ln |slope| of the encoder, summed over what each row shows, (rows,): what makes densities of states
        those of data; 0 for probabilities."""
        if not self.density:
            return states.new_zeros(len(states), dtype=torch.float64)
        seen = ~unobserved(self.machine, states)
        seen = seen[:, : seen.shape[1] - (self.label is not None)]
        columns = len(self.encoder.columns) if isinstance(self.encoder, Table) else seen.shape[1]
        slopes = torch.tensor(self.encoder.log_slopes(columns), dtype=torch.float64, device=states.device)
        return seen.double() @ slopes

    def read(self, source: str, *, lacking: str | None = None) -> DataSet:
        """Data with their columns in the order of training, where both have names.

        Args:
            source: see ``harmonium.data.read``.
            lacking: a column that may be absent, and then is missing in every row.

        Raises:
            ValueError: other columns than in training.
        """
        known = {name.lower() for name in self.names or ()}
        dataset = read(source, labels_apart=not known & set(LABELS)).with_text(self._columns_of_text())
        if self.names is None or dataset.names is None:
            return dataset
        label = None if self.label is None else self.label.name
        if lacking in self.names and lacking not in dataset.names and lacking != label:
            dataset = dataset.with_missing(str(lacking))
        if isinstance(self.encoder, Table):
            return dataset
        found = dataset.names or ()
        missed = [name for name in self.names if name not in found and name != label]
        more = [name for name in found if name not in self.names]
        if missed or more:
            raise ValueError(
                f"{source}: expected the columns {', '.join(map(repr, self.names))} as in training, received "
                + (f"none called {missed[0]!r}" if missed else f"{more[0]!r} beside them")
            )
        order = [found.index(name) for name in self.names if name in found]
        names = tuple(found[column] for column in order)
        return replace(dataset, samples=dataset.samples[:, order], names=names)

    def _columns_of_text(self) -> set[str]:
        """The names of the columns whose values are text, whatever the cells of a file look like."""
        columns = [*(self.encoder.columns if isinstance(self.encoder, Table) else ()), self.label]
        values = {str(column.name): column.coding.values for column in columns if column is not None}
        return {name for name, x in values.items() if x and all(isinstance(value, str) for value in x)}

    def apart(self, dataset: DataSet) -> tuple[DataSet, Cells | None]:
        """The data without the label, and the label where both have one."""
        if self.label is None:
            return dataset, None
        return split_label(dataset, str(self.label.name), needed=False)

    def states(self, dataset: DataSet) -> Tensor:
        """(rows, visible width), NaN in the whole of a unit whose cell is missing.

        Raises:
            ValueError: data that do not suit the machine; the message names them.
        """
        rest, cells = self.apart(dataset)
        with naming(dataset.name):
            if isinstance(self.encoder, Table):
                states = torch.from_numpy(self.encoder.encode(rest.sheet()))
            else:
                X = numbers(rest)
                states = in_memory(encode(self.encoder, _observed(X)))
            if self.label is not None:
                states = torch.cat([states, self._label_states(cells, len(states))], 1)
            self.check_width(states.shape[1])
            states = states.to(self.machine.device, self.machine.dtype)
            if not isinstance(self.encoder, Table) and holes(X).any():
                hole = by_column(self.machine, self.units(torch.from_numpy(holes(X)), rest), len(X))
                states = states.masked_fill(hole, torch.nan)
            self.machine.check_rows(states, "X", missing=True)
        return states

    def units(self, columns: Tensor, rest: DataSet) -> Tensor:
        """Booleans of the columns of data, (rows, columns), as booleans of visible units.

        Args:
            columns: in the order of the data's.
            rest: the data without the label, whose units they are.

        Raises:
            ValueError: a number of columns that the machine's units do not stand for.
        """
        if isinstance(self.encoder, Table):
            columns = columns[:, self.encoder.order(rest.sheet())]
        n_units = visible_units(self.machine) - (self.label is not None)
        if n_units % columns.shape[1]:
            raise ValueError(f"X: expected a column for each of {n_units} units, received {columns.shape[1]}")
        # A column of the data has one unit, or one in each of the planes that follow each other.
        units = columns.repeat(1, n_units // columns.shape[1])
        return units if self.label is None else torch.cat([units, units.new_zeros(len(units), 1)], 1)

    def rows(self, dataset: DataSet, *, missing: bool = False) -> Rows:
        """Returns the states as ``Rows``, for scores and training.

        They are encoded a batch at a time, unless there is a label, a table or a missing cell.

        Args:
            dataset: the data.
            missing: whether cells may be missing.

        Raises:
            ValueError: a missing cell that may not be, a row without any cell, or data that do not suit the
                machine; the message names the data.
        """
        together = self.label is not None or isinstance(self.encoder, Table)
        if not together and not (missing and self._lacks(dataset)):
            with naming(dataset.name):
                rows = Rows.of(encode(self.encoder, dataset.samples), dtype=self.machine.dtype)
                self.check_width(rows.width)
            return rows
        with naming(dataset.name):
            states = refuse_blank(self.states(dataset))
        hole = states.isnan().any(1)
        if bool(hole.any()) and not missing:
            raise ValueError(
                f"{dataset.name}: expected no missing cell, received one in row {int(hole.int().argmax())}; "
                "harmonium impute fills them in"
            )
        return Rows.of(states, self.machine.dtype, missing=bool(hole.any()))

    def _lacks(self, dataset: DataSet) -> bool:
        """Returns whether any entry is missing, and reads numbers a batch at a time."""
        if dataset.samples.dtype.kind not in "fO" or is_sparse(dataset.samples):
            return False
        if dataset.samples.dtype.kind == "O":
            return bool(holes(dataset.samples).any())
        with naming(dataset.name):
            chunks = Rows.of(dataset.samples, self.machine.dtype, missing=True).chunks(_LOOKED_AT)
            return any(bool(chunk.isnan().any()) for chunk in chunks)

    def split(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """States of the data, and those of the label."""
        width = states.shape[1] - self.label_width
        return states[:, :width], states[:, width:]

    def decoded(self, states: Tensor) -> tuple[Sheet | NDArray[Any], Cells | None]:
        """Rows in the units of the data, and their labels where there are any."""
        data, label = (part.cpu().numpy() for part in self.split(states))
        rows = self.encoder.sheet(data) if isinstance(self.encoder, Table) else self.encoder.decode(data)
        return rows, self._labels(label)

    def filled(
        self, dataset: DataSet, absent: NDArray[np.bool_], states: Tensor
    ) -> tuple[Sheet | NDArray[Any], Cells | None]:
        """Data with what is missing taken from states.

        Args:
            dataset: the data.
            absent: (rows, columns), of the columns but the label: what is missing.
            states: (rows, visible width), completed.

        Returns:
            The rows, and their labels where the data have any.
        """
        rest, cells = self.apart(dataset)
        data, label = (part.cpu().numpy() for part in self.split(states))
        labels = None if cells is None else self._labels(label)
        if cells is not None and labels is not None:
            labels = cells.filled(labels.values)
        if isinstance(self.encoder, Table):
            hidden = rest.samples.astype(object)
            hidden[absent] = None
            return self.encoder.filled(replace(rest, samples=hidden).sheet(), data), labels
        return np.where(absent, self.encoder.decode(data), numbers(rest)), labels

    def _label_states(self, cells: Cells | None, rows: int) -> Tensor:
        assert self.label is not None
        if cells is None:
            return torch.full((rows, self.label_width), torch.nan, dtype=torch.float64, device="cpu")
        unknown = self.encoder.unknown if isinstance(self.encoder, Table) else "error"
        return torch.from_numpy(self.label.encode(cells, unknown))

    def _labels(self, states: NDArray[Any]) -> Cells | None:
        if self.label is None:
            return None
        column = self.label
        return Cells(column.name, column.decode(states), column.dtype, column.categories, column.ordered)

    def check_width(self, width: int) -> None:
        """Refuse states of another width than the machine's.

        Raises:
            ValueError: they are.
        """
        expected = self.machine.visible_width
        if width != expected:
            less = self.label_width
            raise ValueError(
                f"X: expected {expected - less} columns for the machine's states, received {width - less}"
            )


def numbers(dataset: DataSet) -> NDArray[Any]:
    """The samples, dense, as numbers.

    Raises:
        ValueError: text among them, or whole numbers of which float64 does not keep every digit.
    """
    X: NDArray[Any] = dense(dataset.samples)
    return dataset.sheet().numbers() if X.dtype.kind == "O" or X.dtype in (np.int64, np.uint64) else X


def holes(X: NDArray[Any]) -> NDArray[np.bool_]:
    """Marks the missing entries, as booleans of the shape of X: NaN, or None among objects."""
    if X.dtype.kind == "O":
        return np.array([[cell is None for cell in row] for row in X], dtype=bool)
    return np.isnan(X) if X.dtype.kind == "f" else np.zeros(X.shape, dtype=bool)


def _observed(X: NDArray[Any]) -> NDArray[Any]:
    """NaN replaced by some value that the data do take; it is not read."""
    hole = holes(X)
    if hole.all():
        raise ValueError("X: expected some values that are not NaN, received none")
    return np.where(hole, np.nanmin(X), X) if hole.any() else X


def label_of(machine: BoltzmannMachine) -> Column | None:
    """The column of labels that a machine was trained with.

    Raises:
        ValueError: what is stored with the machine is none.
    """
    description = machine.metadata.get("label")
    try:
        label = None if description is None else Column.from_dict(description)
    except (TypeError, ValueError) as error:
        raise ValueError(f"RUN: its machine's metadata are damaged, label {error}") from error
    if label is not None and machine.layers[machine.visible[-1]].width != label.coding.width:
        raise ValueError(
            "RUN: its machine's metadata are damaged, expected a label of its last visible layer"
        )
    return label


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
