"""``harmonium impute``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium._settings import Count, Fraction, Setting
from harmonium.cli import options
from harmonium.cli.output import Listing, check_target, working
from harmonium.cli.rows_file import check_rows_target, write_rows, write_table
from harmonium.data import DataSet, missing_at_random
from harmonium.data.frame import missing_in
from harmonium.tables import Codec, Table, find_intervals, warn_of_rough
from harmonium.tasks import IMPUTE_METHODS, impute_cells, score_cells, unobserved

EXAMPLES = (
    "harmonium impute runs/rows holes.csv --out complete.csv",
    "harmonium impute runs/rows holes.csv --out complete.csv --imputations 5",
    "harmonium impute runs/rows holes.csv --out complete.csv --interval 0.9",
)

_DRAWS = 5  # chains or searches of every row, whose means are written


def impute(
    run: options.Trained,
    data: options.Data,
    out: Path,
    missing: str = "nan",
    method: Annotated[str, Setting(suggests=IMPUTE_METHODS)] = "auto",
    value: Literal["nearest", "mean", "draw"] | None = None,
    imputations: Count | None = None,
    interval: Fraction | None = None,
    sweeps: int = 100,
    unknown: options.Unknown | None = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Fill in missing values given the rest of each row, and write the completed rows to a file.

    Tables are read as those of the training. Fills of values hidden by --missing are scored by column.

    Args:
        data: rows to complete.
        out: file for the completed rows: .csv, .tsv, .parquet, .feather, .npz, .npy, or of sequences .fasta,
            .fa, .a3m, each also with .gz.
        missing: what is missing: nan (where DATA has NaN or an empty cell), or random:FRACTION, hidden here.
        method: how: auto (exact where the hidden states can be summed, else gibbs), exact, gibbs, tempered,
            local_search, or another kernel.
        value: what to write: nearest (the most probable label, of numbers the mean, rounded as the column
            is; the default), mean (not rounded), or draw (a random one, the default with --imputations).
        imputations: so many completions, each a draw, as out-1.csv, out-2.csv, … for --out out.csv.
        interval: Share of the missing cells that intervals of numbers and sets of labels are to hold, at most
            0.99, which are written to out-intervals.csv for --out out.csv.
        sweeps: sweeps of every chain.
    """
    value = value or ("nearest" if imputations is None else "draw")
    stem = Path(out.name.removesuffix(".gz")).stem
    ends, suffix = out.with_name(f"{stem}-intervals.csv"), out.name.removeprefix(stem)
    targets = [out.with_name(f"{stem}-{i + 1}{suffix}") for i in range(imputations or 0)] or [out]
    if imputations is not None and value != "draw":
        raise ValueError(f"imputations: expected the value draw, received {value}")
    coding, source = run.load(unknown)
    for target in targets:
        check_rows_target(target, coding.alphabet, overwrite)
    if interval is not None:
        check_target(ends, (".csv",), overwrite)
    coding.require_generative("impute")
    machine, dataset, drawn = coding.machine, coding.read(data), "cells" if value == "draw" else None
    absent, states, hidden = _find_missing(coding, dataset, missing, seed)
    with working(f"completing {len(states)} rows"):
        done, chosen = impute_cells(
            machine, coding.encoder, states, unobserved(machine, hidden), method, value,
            draws=max(_DRAWS, imputations or 0), sweeps=sweeps, seed=seed,
        )  # fmt: skip
    if interval is not None:
        _write_intervals(ends, coding, hidden, interval, seed)
    for target, filled in zip(targets, [chosen] if imputations is None else done.draws, strict=False):
        full, labels = coding.fill(dataset, absent, filled, rounded=value != "mean", drawn=drawn)
        write_rows(target, full, dataset.names, labels, source=dataset, alphabet=coding.alphabet)
    written: dict[str, Any] = {"file": out} if imputations is None else {"files": targets}
    written |= ({} if interval is None else {"intervals": ends}) | _count(coding, dataset, states, absent)
    scores = {} if missing == "nan" else _score(coding, dataset, hidden, states, chosen)
    return {"machine": source, **written, "method": done.method, "value": value, **scores}


def _find_missing(
    coding: Codec, dataset: DataSet, missing: str, seed: int
) -> tuple[NDArray[np.bool_], Tensor, Tensor]:
    """Returns a mask of cells to fill in, (rows, columns), the states, and those without these cells."""
    rest, machine = coding.apart(dataset)[0], coding.machine
    X = rest.samples if isinstance(coding.encoder, Table) else rest.numbers()
    absent = missing_in(X)
    name, _, fraction = missing.partition(":")
    if name == "random" and fraction.replace(".", "", 1).isdecimal() and float(fraction) <= 1:
        absent |= missing_at_random(X.shape[0], X.shape[1], float(fraction), seed=seed).numpy()
    elif missing != "nan":
        raise ValueError(f"missing: expected nan or random:FRACTION of at most 1, received {missing!r}")
    states = coding.observed_rows(dataset, missing=True, blank=True).all().to(machine.device)
    hidden = coding.hide(states, absent, rest)
    if bool(coding.split(hidden)[0].isnan().any()):
        warn_of_rough(machine)
    return absent, states, hidden


def _write_intervals(path: Path, coding: Codec, hidden: Tensor, interval: float, seed: int) -> None:
    """Writes a line for each missing cell; the labels of a set stand beside each other."""
    cells = find_intervals(coding.machine, coding.encoder, hidden, interval, seed)
    columns = {
        name: np.array(
            ["" if x is None or x != x else str(x) for x in (getattr(cell, name) for cell in cells)],
            dtype=str,
        )
        for name in ("row", "column", "value", "low", "high")
    }
    labels = np.array([", ".join(map(str, cell.labels)) for cell in cells], dtype=str)
    write_table(path, columns | {"labels": labels})


def _count(coding: Codec, dataset: DataSet, states: Tensor, lacking: NDArray[np.bool_]) -> dict[str, Any]:
    """Counts the missing cells, those of a label that the data have among them."""
    if coding.label is not None and coding.apart(dataset)[1] is not None:
        unlabelled = coding.split(states)[1].isnan().any(1, keepdim=True)
        lacking = np.hstack([lacking, unlabelled.cpu().numpy()])
    return {
        "rows": len(lacking),
        "missing": float(lacking.mean()),
        "missing_cells": f"{lacking.sum()} of {lacking.size}, in {lacking.any(1).sum()} rows",
        "notes": [] if lacking.any() else ["missing: nothing is, DATA has no NaN; --missing can hide some"],
    }


def _score(coding: Codec, dataset: DataSet, hidden: Tensor, states: Tensor, fills: Tensor) -> dict[str, Any]:
    """Scores what was filled in for hidden values, of a table by column beside the simplest fills."""
    asked = hidden.isnan() & ~states.isnan()
    if not isinstance(coding.encoder, Table):
        return {"agreement": float((states == fills)[asked].double().mean())}
    truth, filled = states.where(asked, torch.nan).cpu().numpy(), fills.cpu().numpy()
    order = coding.encoder.order(coding.apart(dataset)[0].frame())
    listing = Listing()
    for _, column in sorted(zip(order, coding.encoder.columns, strict=True), key=lambda pair: pair[0]):
        column_unit = coding.unit_of(str(column.name))
        if score := score_cells(column_unit, truth[:, column_unit.states], filled[:, column_unit.states]):
            kind, (fill, simplest, cells) = next(iter(score)), score.values()
            line = {"column": str(column.name), "cells": cells, "score": kind}
            listing.append({**line, "fills": fill, "simplest": simplest})
    return {"hidden_cells": listing}
