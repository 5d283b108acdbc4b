"""``harmonium predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from harmonium._settings import Setting
from harmonium.cli import options
from harmonium.cli.output import check_target, working
from harmonium.cli.rows_file import TABLES, write_rows
from harmonium.data import Frame, Series
from harmonium.data.frame import TEXT, of_whole_numbers
from harmonium.tables import ColumnUnit, warn_of_rough
from harmonium.tasks import ColumnPrediction, predict_column, score_cells

EXAMPLES = (
    "harmonium predict runs/rows new.csv --out predicted.csv",
    "harmonium predict runs/rows new.csv --column petal_length --out predicted.csv",
)


def predict(
    run: options.Trained,
    data: options.Data,
    out: Path,
    column: Annotated[str | None, Setting(metavar="NAME")] = None,
    with_probabilities: Annotated[bool, Setting(option="--probabilities")] = False,
    sweeps: int = 100,
    chains: int = 10,
    unknown: options.Unknown | None = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Predict the label, or any column, from the rest of each row, and write it to a file.

    Of labels the most probable value is written, of counts and real numbers the mean.

    Args:
        data: rows; their own values of the column are not used.
        out: file for the predictions, a row each: .csv, .tsv, .parquet, .feather.
        column: what to predict; the label if not given.
        with_probabilities: a column more for each value, NAME=VALUE.
        sweeps: sweeps of every chain, where there are too many states to sum.
        chains: chains of every row there.
    """
    check_target(out, TABLES, overwrite)
    coding, source = run.load(unknown)
    if column is None:
        if coding.label is None:
            raise ValueError("column: expected a name for a machine that has no label, received none")
        column = str(coding.label.name)
    query, machine = coding.unit_of(column), coding.machine
    labelled = bool(query.column.values)
    if query.column is not coding.label:
        warn_of_rough(machine)
    if with_probabilities and not machine.layers[query.layer].discrete:
        raise ValueError(
            f"with_probabilities: expected labels or counts in {column!r}, received real numbers"
        )
    dataset = coding.read(data, lacking=column)
    states = coding.observed_rows(dataset, missing=True, blank=True).all().to(machine.device)
    truth = states[:, query.states].cpu().numpy().copy()
    with working(f"predicting {len(states)} rows"):
        prediction = predict_column(
            machine, states, query.layer, query.unit, label=labelled, sweeps=sweeps, chains=chains, seed=seed
        )  # fmt: skip
    cells, best = _decode(query, prediction)
    columns = [cells, *(_probabilities(query, prediction) if with_probabilities else ())]
    write_rows(out, Frame(tuple(columns), TEXT))
    score, notes = score_cells(query, truth, best), list[str]()
    if score and coding.source and Path(coding.source).resolve() == Path(data).resolve():
        notes.append(f"{next(iter(score))}: on the data of the training, which flatters; others tell more")
    result = {
        "machine": source,
        "file": out,
        "rows": len(states),
        "column": column,
        "method": prediction.method,
    }
    return result | score | {"notes": notes}


def _decode(query: ColumnUnit, prediction: ColumnPrediction) -> tuple[Series, NDArray[Any]]:
    """Returns predicted cells, of labels the most probable ones and of numbers the mean, and their states."""
    column, best = query.column, prediction.states.cpu().numpy()
    if column.values:
        return Series(column.name, column.decode(best), column.dtype, column.categories), best
    dtype = "float64" if column.form is None else column.dtype
    return Series(column.name, column.decode(best, rounded=False), dtype), best  # a mean is not rounded


def _probabilities(query: ColumnUnit, prediction: ColumnPrediction) -> list[Series]:
    """Returns a column for each value, NAME=VALUE, with its probability in each row."""
    column = query.column
    assert prediction.probabilities is not None
    shown = prediction.probabilities.cpu().numpy()
    indices = np.arange(shown.shape[1], dtype=np.float64)
    possible = np.array(column.values) if column.values else column.cells_of(indices)
    if possible.dtype.kind == "f" and (of_whole_numbers(column.dtype) or not column.values):
        possible = possible.astype(int)
    return [Series(f"{column.name}={name}", shown[:, i], "float64") for i, name in enumerate(possible)]
