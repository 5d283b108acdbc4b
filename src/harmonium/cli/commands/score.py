"""``harmonium score``."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium._settings import Count, Setting
from harmonium.cli import options
from harmonium.cli.output import check_target, working
from harmonium.cli.rows_file import TABLES, write_table
from harmonium.data import DataSet, Series
from harmonium.likelihood import CHUNK_ROWS, exact_log_partition, note_rows, score_states
from harmonium.report import nearest_neighbours
from harmonium.sums import affordable, unit_updates
from harmonium.tables import Codec
from harmonium.tasks import unit_offsets, unusual_cells

EXAMPLES = (
    "harmonium score runs/family new.fasta --out scores.csv",
    "harmonium score runs/family new.fasta --out scores.csv --nearest",
    "harmonium score runs/table rows.csv --out scores.csv --why 3",
)


def score(
    run: options.Trained,
    data: options.Data,
    out: Path,
    nearest: Annotated[bool, Setting(option="--nearest")] = False,
    why: Count | None = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Score every row of DATA: ln p where ln Z can be summed, else the energy, a row each.

    The energy is -ln p - ln Z, with one ln Z for all rows: the lower, the more likely.

    Args:
        data: rows to score, such as sequences.
        out: file for the scores: .csv, .tsv, .parquet, .feather.
        nearest: of sequences a column distance: the share of sites in which each differs from the nearest
            one of the training data.
        why: so many cells of each row that make it unusual: cell_1 is the column, value_1 the cell,
            expected_1 what the rest of the row predicts, and nats_1 how much ln p of the row rises with it.
    """
    check_target(out, TABLES, overwrite)
    coding, source = run.load()
    coding.require_generative("score")
    dataset = coding.read(data)
    name, values, notes = _score(coding, dataset)
    columns: dict[str, Any] = {}
    if dataset.alignment is not None and any(dataset.alignment.names):
        columns["name"] = np.array(dataset.alignment.names)
    columns[name] = values.numpy()
    if nearest:
        columns["distance"] = _distances(coding, dataset)
    means = {f"mean_{x}": float(columns[x].mean()) for x in (name, "distance") if x in columns}
    if why is not None:
        with working("comparing cells with the expected ones"):
            columns |= _unusual(coding, dataset, why, seed)
    write_table(out, columns)
    said = {"data": dataset.name, "rows": len(values), **means}
    return {"machine": source, **said, "file": out, "notes": notes}


def _score(coding: Codec, dataset: DataSet) -> tuple[str, Tensor, list[str]]:
    """Scores every row: "log_likelihood" where ln Z can be summed in seconds, else "energy", (rows,) float64.

    The energy is that of hidden units summed out and of the units of the data: -ln p - ln Z.

    Raises:
        ValueError: hidden layers that are joined and too many to sum over.
    """
    machine = coding.machine
    known = affordable(unit_updates(machine.hamiltonian()))
    if not known and not machine.graph.independent:
        raise ValueError(
            "RUN: expected hidden layers that no edge joins, or few hidden units, for score, received "
            "others; harmonium evaluate bounds their mean"
        )
    rows = coding.observed_rows(dataset, missing=True, beyond="tail")
    with working("scoring rows"):
        partition = exact_log_partition(machine) if known else 0.0
        chunks = (chunk.to(machine.device) for chunk in rows.chunks(CHUNK_ROWS))
        values = torch.cat([score_states(machine, v, partition, is_bound=False).cpu() for v in chunks])
        values = values + unit_offsets(coding, dataset, rows, machine)
    name = "log_likelihood" if known else "energy"
    notes = note_rows(machine, rows, name)
    if not known:
        notes.append("energy: ln Z has too many states to sum; energies are known but for a constant")
    return name, values if known else -values, notes


def _unusual(coding: Codec, dataset: DataSet, most: int, seed: int) -> dict[str, Any]:
    """Returns columns of the most unusual cells of each row, empty where a row has fewer."""
    rows = len(dataset.samples)
    arrays: dict[str, Any] = {}
    for number in range(1, most + 1):
        arrays |= {f"{name}_{number}": np.full(rows, None, object) for name in ("cell", "value", "expected")}
        arrays[f"nats_{number}"] = np.full(rows, np.nan)
    for row, cells in groupby(unusual_cells(coding.machine, dataset, most, seed=seed), key=lambda c: c.row):
        for number, cell in enumerate(cells, 1):
            values = {"cell": cell.column, "value": cell.value, "expected": cell.expected}
            for name, value in values.items():
                real = isinstance(value, float)  # without the digits that rounding leaves
                arrays[f"{name}_{number}"][row] = f"{value:.10g}" if real else str(value)
            arrays[f"nats_{number}"][row] = cell.nats
    return {
        name: Series(name, x, "float64" if x.dtype == np.float64 else "str") for name, x in arrays.items()
    }


def _distances(coding: Codec, dataset: DataSet) -> NDArray[np.float64]:
    """Returns the share of sites in which each sequence differs from the nearest one of the training."""
    learned = coding.source
    if coding.alphabet is None or learned is None:
        raise ValueError(
            "nearest: expected a machine of sequences that names its training data, received another"
        )
    others = coding.read(learned)
    states = (coding.observed_rows(observed, missing=True).all() for observed in (dataset, others))
    # A missing letter is half way between a letter that is equal and one that differs.
    rows, training = (coding.split(part)[0].nan_to_num(0.0) for part in states)
    distances = nearest_neighbours(rows, training).distances
    # Two one-hot blocks of different letters differ by the root of 2.
    return (distances.square() / 2 * len(coding.alphabet) / rows.shape[1]).double().numpy(force=True)
