"""``harmonium predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from harmonium._settings import Setting
from harmonium.cli import options
from harmonium.cli.coding import states_of
from harmonium.cli.output import check_target, working
from harmonium.cli.rows_file import TABLES, texts, write_rows
from harmonium.cli.run_file import settings_of_run
from harmonium.data import Frame, Series
from harmonium.data.frame import TEXT
from harmonium.tables import Labels, OneOf
from harmonium.tasks import predict_column, score_cells
from harmonium.training import warn_of_rough

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
    method: Literal["auto", "exact", "gibbs"] = "auto",
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
        method: how: auto (exact for rows with few states to sum, else gibbs), exact, gibbs (chains).
        sweeps: sweeps of every chain.
        chains: chains of every row.
    """
    check_target(out, "out", TABLES, overwrite)
    coding, source = run.load(unknown)
    machine = coding.machine
    if column is None:
        if coding.label is None:
            raise ValueError(
                "column: expected a name with --column, as the machine was trained without --label"
            )
        column = str(coding.label.name)
    place = coding.unit_of(column)
    own = place.column.coding
    if place.column is not coding.label:
        warn_of_rough(machine)
    if with_probabilities and not machine.layers[place.layer].discrete:
        raise ValueError(
            f"with_probabilities: expected a column of labels or counts, {column!r} has real numbers"
        )
    dataset = coding.read(data, lacking=column)
    states = states_of(coding, dataset)
    truth = states[:, place.states].cpu().numpy().copy()
    with working(f"predicting {len(states)} rows"):
        found = predict_column(
            machine, states, place.layer, place.unit, method,
            label=isinstance(own, Labels), sweeps=sweeps, chains=chains, seed=seed,
        )  # fmt: skip
    best, used = found.states.cpu().numpy(), found.method
    if isinstance(own, OneOf) and own.rare and found.probabilities is not None:
        best = found.probabilities.cpu().numpy()  # of the states, of which labels share one
    dtype = "float64" if place.column.form is None else place.column.dtype
    cells = Series(column, place.column.decode(best, rounded=False), dtype)  # a mean is not rounded
    if isinstance(own, Labels):
        cells = Series(column, place.column.decode(best), place.column.dtype, place.column.categories)
    columns = [cells]
    if with_probabilities and found.probabilities is not None:
        shown = found.probabilities.cpu().numpy()
        each = np.arange(shown.shape[1], dtype=np.float64)[:, None]
        possible = np.array(own.values) if isinstance(own, Labels) else own.decode(each).astype(int)
        names = texts(Series(column, possible, place.column.dtype))
        columns += [Series(f"{column}={name}", shown[:, i], "float64") for i, name in enumerate(names)]
    write_rows(out, Frame(tuple(columns), TEXT), None, None, dialect=dataset.dialect)
    result: dict[str, Any] = {
        "machine": source,
        "file": out,
        "rows": len(states),
        "column": column,
        "method": used,
    }
    notes = []
    if used == "gibbs" and method == "auto" and machine.layers[place.layer].discrete:
        notes.append("method: chains, as there are too many states to count")
    if score := score_cells(place, truth, best):
        result |= score
        if _same(settings_of_run(run.run).get("data"), data):
            notes.append(
                f"{next(iter(score))}: on the data of the training, which flatters; rows that it has not "
                "learned from tell more"
            )
    return {**result, "notes": notes} if notes else result


def _same(learned: Any, data: str) -> bool:
    """Returns whether the data are those of the training, by their name or their file."""
    return learned is not None and (learned == data or Path(learned).resolve() == Path(data).resolve())
