"""Cells that make a row unusual: how much more probable the row is with the value that the rest predicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._fetch import is_sparse
from harmonium.data import DataSet, Series, frame_of
from harmonium.data.dataset import dense
from harmonium.data.transforms import Array
from harmonium.likelihood import missing_pseudo_likelihood, unit_log_probabilities
from harmonium.machine import BoltzmannMachine
from harmonium.sums import log_weights
from harmonium.tables import Codec, ColumnUnit, Table
from harmonium.tasks.prediction import ColumnPrediction, predict_column

_ROWS = 2048  # at a time: the probabilities of 1,000 columns of two values take 32 MB


class UnusualCell(NamedTuple):
    """A cell whose row is more probable with another value in its place.

    Attributes:
        row: Number of the row, from 0.
        column: Name of the column; sites of sequences are numbered from 1, columns without names from 0.
        value: the cell.
        expected: the most probable label or count given the rest of the row, the mean of a real number.
        nats: ln p(row with the expected value) - ln p(row), above 0; for labels and counts also the
            difference of ln p(cell | rest). Real numbers are compared as they are coded.
    """

    row: int
    column: str | int
    value: Any
    expected: Any
    nats: float


@torch.no_grad()
def unusual_cells(
    machine: BoltzmannMachine, X: Any, max_cells: int = 3, *, seed: int | torch.Generator = 0
) -> list[UnusualCell]:
    """Finds the cells that make each row unusual, with the values that the rest of the row predicts.

    A cell is judged by how much the probability of its row rises with the expected value in its place. ln Z
    cancels, and so do the units of the data, so that columns of all kinds can be compared. A missing cell is
    not judged; a label that training did not see is, by its probability there.

    Args:
        machine: Machine with a unit for each column; its metadata may have the codec of the data.
        X: rows, as ``tables.Codec.rows`` takes them: a data frame, an array or a ``DataSet``.
        max_cells: cells of a row at most, at least 1.
        seed: Source of the chains, where these predict a column (``predict_column``): an int or a generator.

    Returns:
        The cells by row, those of a row by their nats, the largest first; fewer where no other value makes
        the row more probable.

    Raises:
        ValueError: a machine without a unit for each column, X that does not fit, or a row with real columns
            that lacks cells of too many states.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=0)
        >>> machine.layers[0].bias.data[:] = torch.tensor([3.0, 0.0, -2.0])
        >>> found = hm.tasks.unusual_cells(machine, [[0, 0, 1]])
        >>> [(cell.column, cell.value, cell.expected) for cell in found]
        [('0', 0.0, 1.0), ('2', 1.0, 0.0)]
    """
    _checks.positive_int(max_cells, "max_cells")
    generator = _random.as_generator(seed, machine.device)
    codec = Codec.of(machine)
    column_units = codec.column_units()
    if not column_units:
        raise ValueError(
            "machine: expected one with a unit for each column, received one without: columns have several, "
            "such as bit-planes, or its metadata lack the codec of its data"
        )
    if not (isinstance(X, DataSet) or codec.encoder.tabular or is_sparse(X)):
        X = np.asarray(X)
    states = codec.rows(X, torch.float64, keep=False).all().to(machine.device)
    cells_by_name = _list_cells(codec, X)
    unusual = list[UnusualCell]()
    for rows in torch.split(torch.arange(len(states), device="cpu"), _ROWS):
        v, index = states[rows.to(states.device)], rows.numpy()
        tables = _Tables(machine, v, generator)
        judged = list[tuple[Series, Series, Array]]()
        for query in column_units:
            cells = cells_by_name.get(query.column.name)
            if cells is None:
                cells = query.column.series(v[:, query.states].cpu().numpy())
            else:
                cells = replace(cells, values=cells.values[index])
            judged.append((cells, *_judge(tables, query, cells)))
        nats = np.nan_to_num(np.column_stack([gain for _, _, gain in judged]))
        for i, row in enumerate(nats):
            for j in np.argsort(-row, kind="stable")[:max_cells]:
                cells, expected, gain = judged[j]
                if row[j] > 0:
                    value, other = (x.values[[i]].tolist()[0] for x in (cells, expected))
                    column = column_units[j].column.name
                    unusual.append(UnusualCell(int(index[i]), column, value, other, float(gain[i])))
    return unusual


class _Tables:
    """Predictions of units of the same rows, those of complete rows for a layer at once.

    Args:
        machine: Machine of the rows.
        v: visible states, (rows, visible_width), in float64.
        generator: Source of the chains.
    """

    def __init__(self, machine: BoltzmannMachine, v: Tensor, generator: torch.Generator) -> None:
        self.machine, self.v, self._generator = machine, v, generator
        self.hamiltonian = machine.hamiltonian().to(torch.float64)
        self._complete = ~v.isnan().any(1)
        if missing_pseudo_likelihood(machine):
            self._complete = torch.zeros_like(self._complete)
        self._of_layers = dict[int, Tensor]()
        self._log_weights = v.new_full((len(v),), torch.nan)

    def log_weights(self, rows: Tensor) -> Tensor:
        """Returns ln of what the rows of a mask weigh; each is summed over once for all columns."""
        new = rows & self._log_weights.isnan()
        if bool(new.any()):
            self._log_weights[new] = log_weights(self.hamiltonian, self.v[new])
        return self._log_weights[rows]

    def predict(self, query: ColumnUnit) -> ColumnPrediction:
        """Returns the prediction of a unit as of ``predict_column``, of discrete ones the commonest state."""
        layer, rest = self.machine.layers[query.layer], ~self._complete
        prediction = None
        if bool(rest.any()):
            prediction = predict_column(
                self.machine, self.v[rest], query.layer, query.unit, label=True, seed=self._generator
            )
            if bool(rest.all()):
                return prediction
        if query.layer not in self._of_layers:
            complete = self.v[self._complete]
            self._of_layers[query.layer] = unit_log_probabilities(self.machine, complete, query.layer)
        values = layer.values().to(self.v)
        p = self.v.new_empty(len(self.v), len(values))
        p[self._complete] = self._of_layers[query.layer][:, query.unit].exp()
        if prediction is not None and prediction.probabilities is not None:
            p[rest] = prediction.probabilities
        return ColumnPrediction(values[p.argmax(1)], p, "exact" if prediction is None else prediction.method)


def _list_cells(codec: Codec, X: Any) -> dict[Any, Series]:
    """Returns the cells of rows by column, but of sequences, whose states tell their letters."""
    rest, labels = codec.apart(X) if isinstance(X, DataSet) else (X, None)
    cells_by_name = {} if labels is None or codec.label is None else {codec.label.name: labels}
    if isinstance(codec.encoder, Table):
        frame = rest.frame() if isinstance(rest, DataSet) else frame_of(rest)
        order = codec.encoder.order(frame)
        pairs = zip(codec.encoder.columns, order, strict=True)
        return cells_by_name | {column.name: frame.columns[j] for column, j in pairs}
    if codec.alphabet is None:
        numbers = rest.numbers() if isinstance(rest, DataSet) else dense(rest) if is_sparse(rest) else rest
        columns = zip(codec.columns(), np.asarray(numbers, dtype=np.float64).T, strict=True)
        cells_by_name |= {column.name: Series(column.name, cells, "float64") for column, cells in columns}
    return cells_by_name


def _judge(tables: _Tables, query: ColumnUnit, cells: Series) -> tuple[Series, Array]:
    """Returns the expected cells of a column, and the nats of its cells, NaN where one is missing."""
    column, unit_states, prediction = (query.column, tables.v[:, query.states], tables.predict(query))
    layer, seen = tables.machine.layers[query.layer], ~unit_states.isnan().any(1)
    gain = torch.zeros(len(unit_states), dtype=torch.float64, device=unit_states.device)
    if prediction.probabilities is None:
        expected = column.series(prediction.states.cpu().numpy())
        replaced = tables.v[seen]
        replaced[:, query.states] = prediction.states[seen].to(replaced)
        gain[seen] = log_weights(tables.hamiltonian, replaced) - tables.log_weights(seen)
    else:
        p, values = prediction.probabilities, layer.values().to(unit_states)
        expected = column.series(prediction.states.cpu().numpy())
        coded = torch.from_numpy(column.encode(expected)).to(unit_states)
        chosen, present = ((x.unsqueeze(1) == values).all(-1) for x in (coded, unit_states))
        gain = p[chosen].log() - torch.where(present, p, 0.0).sum(1).masked_fill(~seen, 1.0).log()
    log_ratios = column.log_shares(expected) - column.log_shares(cells)
    return expected, np.where(cells.missing, np.nan, gain.cpu().numpy() + log_ratios)
