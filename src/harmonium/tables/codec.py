"""The one way from rows as people bring them to the states of visible units, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium._fetch import Index, is_sparse
from harmonium._rows import refuse_blank
from harmonium.data import (
    BINARISE,
    LABELS,
    DataSet,
    Encoder,
    Frame,
    Identity,
    Letters,
    Rows,
    Series,
    Standardise,
    encoder_from_dict,
    frame_of,
    is_frame,
    read,
    read_weights,
)
from harmonium.data.dataset import dense
from harmonium.data.encoders import BINARISERS
from harmonium.data.frame import is_number, of_whole_numbers
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.machine import BoltzmannMachine
from harmonium.tables.arrays import visible_for
from harmonium.tables.column import ColumnCodec, states_of
from harmonium.tables.labels import Labels
from harmonium.tables.line import Line
from harmonium.tables.table import Table, blank_rows, log_masses, states_of_cells, warn_of_blank

_P = ParamSpec("_P")
_T = TypeVar("_T")
_LOOKED_AT = 2048  # rows at once: a whole file of states may not lie in memory


@contextmanager
def naming(X: Any = None) -> Iterator[None]:
    """Names a data set in place of ``X`` in errors that are raised inside."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if not isinstance(X, DataSet) or not str(error).startswith("X: "):
            raise
        raise type(error)(f"{X.name}: {str(error).removeprefix('X: ')}") from error


def _naming_data(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """Returns a method that takes data, whose errors name them where they are a ``DataSet``."""

    @wraps(method)
    def call(*args: _P.args, **options: _P.kwargs) -> _T:
        with naming(*args[1:2]):
            return method(*args, **options)

    return call


class ColumnUnit(NamedTuple):
    """A column with its unit in a visible layer, and the columns of that unit's states."""

    column: ColumnCodec
    layer: int
    unit: int
    states: slice


@final
@dataclass(frozen=True)
class Codec:
    """Goes from rows as people bring them to the states of visible units, and back.

    Rows are the cells of a data frame (``Frame``), arrays, sparse matrices, or what ``read`` reads, which may
    lie in a file. An array is a table whose columns are of one kind. Make one with ``fit``, or with ``of``
    from what a machine's metadata keep.

    Attributes:
        encoder: Encoder of the columns but the label: a ``Table``, or an encoder of arrays.
        layers: the visible layers whose states it makes, the label's last.
        label: the column whose unit is the last layer; None: there is none.
        names: Names of all columns as in training; None: they had none.
        reading: Arguments of pandas' reader, with which tables like those of the training are read.
    """

    encoder: Encoder
    layers: Sequence[Layer]
    label: ColumnCodec | None = None
    names: tuple[str, ...] | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    _machine: BoltzmannMachine | None = None

    # Making one

    @classmethod
    @_naming_data
    def fit(
        cls,
        X: Any,
        visible: str = "auto",
        kinds: Mapping[Any, Any] | None = None,
        *,
        binarise: str = "none",
        seed: int = 0,
        weights: Tensor | None = None,
        images: bool = False,
    ) -> Self:
        """Finds visible units for rows and what turns rows into their states, in one pass at most.

        Args:
            X: a ``Frame`` or a data frame, a table of columns of several kinds; a ``DataSet``, which is a
                table where it is one (``DataSet.tabular``) and neither units of one kind nor grey levels are
                asked for, where it has text or missing cells, and where kinds are given, and else sequences
                where it is an alignment; or a matrix as ``Rows.of`` takes it, (rows, columns).
            visible: kind of visible units, see ``visible_for``.
            kinds: Kinds of some columns of a table, by name, for ``Table.fit``.
            binarise: what makes 0 and 1 of grey levels first: one of ``BINARISE``.
            seed: Seed of the draws of ``binarise="sample"``.
            weights: Row weights, (rows,), above 0, for means and deviations; None means uniform.
            images: whether a matrix may hold images, see ``visible_for``.

        Raises:
            TypeError, ValueError: data that do not suit the rest.
        """
        _checks.one_of(binarise, "binarise", BINARISE)
        _checks.one_of(visible, "visible", ("auto", *Layer.registry))
        if isinstance(X, DataSet) and X.alignment is not None and not kinds:
            if binarise != "none" or visible not in ("auto", "categorical"):
                asked = f"binarise={binarise}, visible={visible}"
                raise ValueError(f"binarise, visible: expected neither for sequences, received {asked}")
            letters = Letters(X.alignment.alphabet, X.alignment.unknown)
            return cls(letters, [Layer.registry["categorical"].plain(X.samples.shape[1], letters.width)])
        if isinstance(X, DataSet):
            named = binarise == "none" and X.tabular
            mixed = X.samples.dtype.kind == "O" or (visible == "auto" and (named or X.mixed))
            X = X.frame() if kinds or mixed else X.samples
        if is_frame(X):
            frame = frame_of(X)
            if binarise != "none":
                raise ValueError(f"binarise: expected none for a table, received {binarise}")
            of_all = [] if visible == "auto" else [cells.name for cells in frame.columns]
            chosen = dict.fromkeys(of_all, visible) | dict(kinds or {})
            table = Table.fit(frame, chosen, weights=weights)
            return cls(table, table.layers)
        if binarise != "none":
            kind = "bernoulli" if visible == "auto" else visible
            two_values = Layer.registry[kind].two_values
            if two_values is None:
                pairs = ", ".join(name for name, layer in Layer.registry.items() if layer.two_values)
                raise ValueError(
                    f"visible: expected auto or one of {pairs} for binarised data, received {visible}"
                )
            bits = BINARISERS[binarise](two_values, seed)
            return cls(bits, [Layer.registry[kind].plain(Rows.of(X).width * bits.width)])
        rows = Codec(Identity(), ()).rows(X, torch.float64, keep=False)
        layer, encoder = visible_for(rows, visible, weights, images=images)
        return cls(encoder, [layer])

    def with_label(self, label: ColumnCodec) -> Self:
        """Returns the codec with this column as the label, a unit of one state for each of its values."""
        layer = Layer.registry[label.kind].plain(1, label.n_states)
        return replace(self, label=label, layers=[*self.layers, layer])

    @classmethod
    def of(cls, machine: BoltzmannMachine, unknown: str | None = None) -> Self:
        """Reads the codec that a machine's metadata keep; without any, rows are states.

        Args:
            machine: as trained by the command line or an estimator, or any other.
            unknown: of sequences, see ``Letters``; None: as in training.

        Raises:
            ValueError: metadata that are damaged, or ``unknown`` for a machine of other data.
        """
        about, layers = machine.metadata, [machine.layers[l] for l in machine.visible]
        damaged = "machine: its metadata are damaged"
        try:
            part, stored = "encoder", about.get("encoder")
            encoder = Identity() if stored is None else encoder_from_dict(stored)
            part, stored = "label", about.get("label")
            label = None if stored is None else ColumnCodec.from_dict(stored)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{damaged}, {part} {error}") from error
        if label is not None and layers[-1].width != label.width:
            raise ValueError(f"{damaged}, expected a label of its last visible layer")
        names = _stored(machine, "names", None, _are_words)
        reading = _stored(
            machine, "read", {}, lambda x: isinstance(x, dict) and all(map(str.isidentifier, x))
        )
        if unknown is not None:
            if not isinstance(encoder, Letters):
                raise ValueError(
                    f"unknown: expected none for a machine of no sequences, received {unknown}; new cells of "
                    "columns count as missing"
                )
            encoder = replace(encoder, unknown=unknown)
        return cls(encoder, layers, label, None if names is None else tuple(names), reading, machine)

    def to_dict(self) -> dict[str, Any]:
        """Describes the encoder, and the label where there is one, in plain JSON types for the metadata."""
        label_entry = {} if self.label is None else {"label": self.label.to_dict()}
        return {"encoder": self.encoder.to_dict(), **label_entry}

    def read(self, source: str | None, *, lacking: str | None = None) -> DataSet:
        """Reads data with their columns in the order of training, where both have names.

        Args:
            source: see ``harmonium.data.read``; None: the training data.
            lacking: a column that may be absent, and then is missing in every row.

        Raises:
            ValueError: other columns than in training, or a machine that names no training data.
        """
        source = source or self.source
        if source is None:
            raise ValueError("data: expected data, as the machine names none that it was trained on")
        known = {name.lower() for name in self.names or ()}
        encoder, names_of_data = self.encoder, self.own_names()
        columns = [*(encoder.columns if isinstance(encoder, Table) else ()), self.label]
        labels = {str(column.name): column.values for column in columns if column and not column.form}
        text = {name for name, x in labels.items() if x and all(isinstance(value, str) for value in x)}
        reading: dict[str, Any] = {
            "like": self.reading,
            "labels_apart": not known & set(LABELS),
            "text": text,
        }
        if isinstance(encoder, Letters):
            reading |= {"alphabet": encoder.alphabet, "unknown": encoder.unknown}
        dataset = read(source, **reading)
        if dataset.alignment is not None and self._machine is not None:
            usual = _stored(self.machine, "ambiguous", 0.0, lambda share: isinstance(share, float))
            dataset.alignment.warn_of_ambiguous(dataset.name, usual)
        if self.names is None or dataset.names is None:
            return dataset
        if lacking in names_of_data and lacking not in dataset.names:
            dataset = dataset.with_missing(str(lacking))
        if encoder.tabular:
            return dataset
        return dataset.in_order(self.names, needed=names_of_data, source=source)

    # What it codes

    @property
    def machine(self) -> BoltzmannMachine:
        """The machine whose metadata it was read from, and whose layers these are (``of``)."""
        assert self._machine is not None
        return self._machine

    @property
    def objective(self) -> str:
        """The objective of the label that the machine was trained with, as of ``harmonium.RBMClassifier``."""
        return str(self.machine.metadata.get("objective", "joint"))

    @property
    def source(self) -> str | None:
        """The file or the name of the data that the machine was trained on; None: it names none."""
        source: str | None = _stored(self.machine, "source", None, lambda x: isinstance(x, str))
        return source

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The shape of the images that the machine was trained on; () of other data."""
        return tuple(_stored(self.machine, "image_shape", (), _are_sides))

    def require_generative(self, purpose: str, *, label: bool = True) -> None:
        """Refuses a machine that has learned the label alone and, where none may be, one with a label.

        Raises:
            ValueError: it is such a machine.
        """
        if self.label is not None and not label:
            raise ValueError(f"machine: expected one without a label for {purpose}, received one with")
        if self.objective == "discriminative":
            raise ValueError(
                f"machine: expected the objective hybrid or joint for {purpose}, received discriminative: it "
                "has learned the label given the rest, and nothing of the rest"
            )

    @property
    def label_width(self) -> int:
        """States of the label; 0 where there is none."""
        return 0 if self.label is None else self.label.width

    @property
    def density(self) -> bool:
        """True if the data have a density: some visible layer is real."""
        return not all(layer.discrete for layer in self.layers)

    @property
    def alphabet(self) -> str | None:
        """The letters of the sequences that it codes; None: it codes other data."""
        return self.encoder.alphabet if isinstance(self.encoder, Letters) else None

    def own_names(self) -> list[str]:
        """Lists the names of the columns but the label; none where they had none."""
        return [name for name in self.names or () if self.label is None or name != self.label.name]

    def columns(self) -> list[ColumnCodec]:
        """Lists the columns but the label, one for each unit; none where units are parts of columns.

        Those of sequences are their sites, by their numbers from 1.
        """
        encoder, layer = self.encoder, self.layers[0]
        if isinstance(encoder, Table):
            return list(encoder.columns)
        units, names = range(layer.n_units), self.own_names()
        if isinstance(encoder, Letters):
            letters = tuple(encoder.alphabet)
            return [Labels(name=str(j + 1), dtype="str", kind=layer.kind, values=letters) for j in units]
        named = names if len(names) == layer.n_units else [str(j) for j in units]
        if isinstance(encoder, Standardise):
            mean, scale = (np.broadcast_to(x, layer.n_units).tolist() for x in (encoder.mean, encoder.scale))
            return [Line(name=named[j], kind=layer.kind, mean=mean[j], scale=scale[j]) for j in units]
        if isinstance(encoder, Identity) and layer.coding == "states":
            states = states_of(layer.kind)
            return [Labels(name=name, kind=layer.kind, values=states, states=states) for name in named]
        return []

    def column_units(self) -> list[ColumnUnit]:
        """Lists the columns, the label last, with their units; none where units are parts of columns."""
        known = [*self.columns(), *([] if self.label is None else [self.label])]
        numbers = range(len(self.layers)) if self._machine is None else self._machine.visible
        positions, start = list[tuple[int, int, slice]](), 0
        for l, layer in zip(numbers, self.layers, strict=True):
            for unit in range(layer.n_units):
                positions.append((l, unit, slice(start, start + layer.columns_per_unit)))
                start += layer.columns_per_unit
        return [
            ColumnUnit(column, *position)
            for column, position in zip(known, positions[-len(known) :], strict=False)
        ]

    def unit_of(self, column: str) -> ColumnUnit:
        """Finds the visible unit of a column.

        Raises:
            ValueError: no such column.
        """
        known = {str(column_unit.column.name): column_unit for column_unit in self.column_units()}
        if column in known:
            return known[column]
        if not known:
            raise ValueError(
                f"column: expected a machine with a unit for each column, received {column!r} for one with "
                "several, such as bit-planes"
            )
        if self.alphabet is not None:
            label_note = "" if self.label is None else f", or the label {str(self.label.name)!r}"
            sites = self.layers[0].n_units
            raise ValueError(f"column: expected a site from 1 to {sites}{label_note}, received {column!r}")
        listed, close = ", ".join(map(repr, known)), _checks.close_to(column, known)
        raise ValueError(f"column: expected one of {listed}, received {column!r}{close}")

    def log_slopes(self, states: Tensor) -> Tensor:
        """Returns ln |slope| of the encoder, summed over observed units of each row, (rows,) float64.

        It makes densities of states, (rows, width), those of data; it is 0 for probabilities.
        """
        if not self.density:
            return states.new_zeros(len(states), dtype=torch.float64)
        slopes = self.encoder.log_jacobian(self.split(states)[0].double().cpu().numpy())
        return torch.from_numpy(slopes).nan_to_num(0.0).sum(1).to(states.device)

    def log_shares(self, X: Any, machine: BoltzmannMachine, beyond: str = "tail") -> Tensor | None:
        """Returns ln p(cell | its state) of rows, (rows, columns) float64, a label last; None: all are 0.

        With ``log_slopes`` it makes of ln p(states) that of the rows themselves, a density whose integral
        over each column is 1 (``ColumnCodec.log_shares``, ``log_masses``).

        Args:
            X: a ``Frame`` or a data frame for a ``Table``, or a ``DataSet``.
            machine: Machine of the states.
            beyond: as of the states, see ``rows``.
        """
        table, (rest, label) = self.encoder, self.apart(X) if isinstance(X, DataSet) else (X, None)
        of_label = [self.label.log_shares(label)] if self.label and label is not None else []
        if not isinstance(table, Table):
            return torch.from_numpy(np.column_stack(of_label)) if of_label else None
        frame = rest.frame() if isinstance(rest, DataSet) else frame_of(rest)
        missing = np.column_stack([frame.columns[j].missing for j in table.order(frame)])
        masses = np.where(missing, 0.0, log_masses(table, machine).cpu().numpy())
        return torch.from_numpy(np.column_stack([table.log_shares(frame, beyond) - masses, *of_label]))

    def within(self, states: Tensor) -> Tensor:
        """Returns states, (rows, width), as they tell of others: those beyond what was seen at its end."""
        within = states.clone()
        for column, _, _, unit_states in self.column_units() if isinstance(self.encoder, Table) else ():
            if column.ends is not None and column.grid is None:
                within[:, unit_states].clamp_(*column.states_of(np.array(column.ends)).tolist())
        return within

    def widened(self, X: Any) -> Self:
        """Returns the codec of columns that have seen further rows, as of ``log_shares``, too."""
        table = self.encoder
        if not isinstance(table, Table):
            return self
        frame = self.apart(X)[0].frame() if isinstance(X, DataSet) else frame_of(X)
        pairs = zip(table.columns, table.order(frame), strict=True)
        wider = {column.name: column.widened(frame.columns[j]) for column, j in pairs}
        every = tuple(wider.get(column.name, column) for column in table.all_columns)
        return replace(self, encoder=replace(table, all_columns=every))

    # From rows to states

    def apart(self, dataset: DataSet) -> tuple[DataSet, Series | None]:
        """Returns the data without the label, and the label where both have one."""
        if self.label is None:
            return dataset, None
        return dataset.take_label(str(self.label.name), needed=False)

    @_naming_data
    def rows(
        self,
        X: Any,
        dtype: torch.dtype = torch.float32,
        labels: Any = None,
        *,
        shown: str = "nothing",
        keep: bool = True,
        beyond: str = "end",
    ) -> Rows:
        """Returns the states of rows, (rows, width), NaN in the whole of a unit whose cell is missing.

        They are made a block at a time: in memory once, by the first whole pass over them; of a file, and of
        a sparse ``DataSet``, whenever they are asked for. Rows that are states already are not copied.

        Args:
            X: a ``Frame`` or a data frame for a ``Table``, a matrix for other encoders, or a ``DataSet``.
            dtype: Type of the states.
            labels: Labels of the rows beside X: a ``Series``, or states (rows, label width) with NaN where
                there is none; None: those of a ``DataSet``, else all are missing.
            shown: what every row has to show: "nothing", "anything", or some of its "data" beside the label.
            keep: whether the first whole pass keeps them.
            beyond: States of real numbers beyond what a table has seen: "end", that of its end, to tell of
                other cells; "tail", their own, to be scored; "line", the coding's, as noise has moved them.

        Raises:
            TypeError, ValueError: now or when they are made: other columns than in ``fit``, or a cell that
                its column has no state for.
        """
        encoder, plain, data = self.encoder, isinstance(self.encoder, Identity), X
        if isinstance(X, DataSet):
            keep = keep and (encoder.tabular or not is_sparse(X.samples))
            if isinstance(encoder, Letters):
                encoder.check(X.alignment)
            X, cells = self.apart(X)
            labels = cells if labels is None else labels
            X = X.frame() if encoder.tabular else X.matrix()
        if encoder.tabular:
            source = Rows(frame_of(X), Frame.take, True, dtype, missing=True)
        else:
            if encoder.draws:
                X, plain = encoder.encode_cells(dense(X)), True
            source = Rows.of(X, dtype, missing=True, blank=shown == "nothing")
        label_states = None
        if isinstance(labels, Series):
            assert self.label is not None
            label_states = states_of_cells([self.label], [labels])
        elif labels is not None:
            label_states = np.asarray(labels)
        elif self.label is not None:
            label_states = np.full((len(source), self.label_width), np.nan)
        data_width = source.width if plain else encoder.width * (1 if encoder.tabular else source.width)
        width = data_width + (0 if label_states is None else label_states.shape[1])
        expected = sum(layer.width for layer in self.layers)
        if self._machine is not None and width != expected:
            right, received = expected - self.label_width, width - self.label_width
            if isinstance(encoder, Letters):
                encoder.refuse_sites(right, received)
            raise ValueError(f"X: expected {right} columns for the machine's states, received {received}")
        if plain and label_states is None:
            return source

        warned: set[Any] = set()  # once for all blocks

        def make(block: Any, index: Index) -> Any:
            with naming(data):
                if isinstance(encoder, Table):
                    if shown == "data":  # a label that was never seen is no missing cell
                        first = index.start if isinstance(index, slice) else 0
                        blank = np.where(blank_rows(block, encoder), np.nan, 0.0)
                        refuse_blank(torch.from_numpy(blank).unsqueeze(1), start=first)
                    states = encoder.encode(block, beyond=beyond, warned=warned)
                else:
                    states = block if plain else encoder.encode_cells(block)
            return states if label_states is None else np.hstack([states, label_states[index]])

        columns = {"nothing": 0, "anything": width, "data": 0 if encoder.tabular else data_width}
        return source.map(make, width, keep=keep, shown=columns[shown])

    @_naming_data
    def observed_rows(
        self, X: Any, *, missing: bool = False, blank: bool = False, beyond: str = "end"
    ) -> Rows:
        """Returns data as visible states of the machine, for scores and training.

        Args:
            X: see ``rows``.
            missing: whether cells may be missing.
            blank: whether a row may show nothing.
            beyond: see ``rows``.

        Raises:
            ValueError: a missing cell or a row without any that may not be, or data that do not suit the
                machine.
        """
        shown, name = "nothing" if blank else "anything", getattr(X, "name", "X")
        rows = self.rows(X, self.machine.dtype, shown=shown, beyond=beyond)
        looked_at = rows.in_memory or blank or (missing and getattr(X, "samples", X).dtype.kind in "fO")
        any_missing, start = False, 0
        for chunk in rows.chunks(_LOOKED_AT) if looked_at else ():
            hole = chunk.isnan().any(1)
            if not missing and bool(hole.any()):
                row = start + int(hole.int().argmax())
                raise ValueError(
                    f"{name}: expected no missing cell, received one in row {row}; harmonium impute fills "
                    "them in"
                )
            any_missing |= bool(hole.any())
            if any_missing or blank:
                self.machine.check_batch(chunk, range(start, start + len(chunk)), name)
            start += len(chunk)
        rows.missing = any_missing
        return rows

    def learnable(self, rest: DataSet, labels: Series | None) -> tuple[DataSet, Series | None]:
        """Returns the rows in memory with a cell or a label, and their labels; a warning tells of others.

        Rows in a file that are blank are refused where they are read.
        """
        framed = rest.samples.dtype.kind == "O" or self.encoder.tabular
        blank = blank_rows(rest.frame() if framed else rest.samples, self.encoder)
        blank &= True if labels is None else labels.missing
        if not blank.any() or blank.all():
            return rest, labels
        warn_of_blank(blank, rest.name)
        return rest.take(~blank), None if labels is None else replace(labels, values=labels.values[~blank])

    def learned_weights(self, dataset: DataSet) -> Tensor | None:
        """Returns the weights of rows as in training, (rows,) float64; None: all alike, or unknown.

        Sequences are weighed by their similarity. Weights of a file are those of the training data alone.
        """
        file = _stored(self.machine, "weights", None, lambda x: isinstance(x, str))
        threshold = _stored(self.machine, "reweight", None, lambda x: isinstance(x, int | float))
        if file and self.source and dataset.name == Path(self.source).name and Path(file).is_file():
            return read_weights(file, len(dataset.samples))
        return dataset.row_weights(threshold)

    def hide(self, states: Tensor, cells: Array, rest: DataSet) -> Tensor:
        """Returns states, (rows, visible width), NaN where cells of the data are marked.

        Args:
            states: the states of the data.
            cells: Marks, (rows, columns) bool, in the order of the data's columns.
            rest: the data without the label.
        """
        if isinstance(self.encoder, Table):
            widths = [column.width for column in self.encoder.columns]
            marks = np.repeat(cells[:, self.encoder.order(rest.frame())], widths, 1)
        else:
            marks = self.encoder.spread(cells)
        hidden = states.clone()
        hidden[:, : marks.shape[1]].masked_fill_(torch.from_numpy(marks).to(states.device), torch.nan)
        return hidden

    def states_of_texts(self, cells: Sequence[str]) -> Tensor:
        """Returns the states of cells such as ``city=Rom``, (1, visible width), NaN in all other columns.

        Raises:
            ValueError: another form, no such column, or a cell that it has no state for.
        """
        states = torch.full((1, self.machine.visible_width), torch.nan, dtype=torch.float64, device="cpu")
        for text in cells:
            name, equals, cell = (part.strip() for part in text.partition("="))
            if not equals:
                raise ValueError(f"given: expected COLUMN=VALUE such as city=Rom, received {text!r}")
            try:
                column_unit, typed = self.unit_of(name), np.array([cell], dtype=object)
                if of_whole_numbers(column_unit.column.dtype) and is_number(cell) and float(cell) % 1 != 0:
                    raise ValueError(f"expected a whole number in column {name!r}, received {cell!r}")
                encoded = states_of_cells([column_unit.column], [Series(name, typed, "object")], strict=True)
            except ValueError as error:
                reason = str(error).removeprefix("column: ").removeprefix("X: ").partition(" at row 0")[0]
                raise ValueError(f"given: {reason}") from error
            states[:, column_unit.states] = torch.from_numpy(encoded)
        return states

    # And back

    def split(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the states of the data and those of the label, of states (rows, width)."""
        width = states.shape[1] - self.label_width
        return states[:, :width], states[:, width:]

    def decode(self, states: Tensor) -> tuple[Frame | Array, Series | None]:
        """Returns states or means, (rows, width), in the units of the data, and labels where there are any.

        Returns:
            The columns of cells of a table, or an array (rows, columns); and the cells of the label.
        """
        data, label = (part.cpu().numpy() for part in self.split(states))
        rows = self.encoder.frame(data) if isinstance(self.encoder, Table) else self.encoder.decode(data)
        return rows, None if self.label is None else self.label.series(label)

    def fill(
        self,
        dataset: DataSet,
        absent: Array,
        states: Tensor,
        *,
        rounded: bool = True,
        drawn: str | None = None,
    ) -> tuple[Frame | Array, Series | None]:
        """Returns data with what is missing taken from states.

        Args:
            dataset: the data.
            absent: (rows, columns) bool, of the columns but the label: what is missing.
            states: (rows, width), completed.
            rounded: whether to round numbers of whole columns, see ``ColumnCodec.series``.
            drawn: see ``ColumnCodec.decode``.

        Returns:
            The rows, as ``decode`` does, and their labels where the data have any.
        """
        rest, labels = self.apart(dataset)
        data, label = (part.cpu().numpy() for part in self.split(states))
        if labels is not None and self.label is not None:
            labels = labels.filled(self.label.series(label).values)
        if not isinstance(self.encoder, Table):
            return np.where(absent, self.encoder.decode(data), rest.numbers()), labels
        hidden, learned = rest.samples.astype(object), self.encoder.order(rest.frame())
        hidden[:, learned] = np.where(absent[:, learned], None, hidden[:, learned])
        frame = replace(rest, samples=hidden).frame()
        return self.encoder.filled(frame, data, rounded=rounded, drawn=drawn), labels


def _stored(machine: BoltzmannMachine, part: str, usual: Any, fits: Callable[[Any], bool]) -> Any:
    """Returns a part of what metadata keep of the training data, or the usual one where there is none.

    Raises:
        ValueError: it does not fit.
    """
    about = machine.metadata.get("data") or {}
    value = about.get(part) if isinstance(about, dict) else about
    if isinstance(about, dict) and value is None:
        return usual
    if not isinstance(about, dict) or not fits(value):
        raise ValueError(f"machine: its metadata are damaged, expected {part} of data, received {value!r}")
    return value


def _are_words(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value)


def _are_sides(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(type(side) is int and side > 0 for side in value)
