"""``harmonium impute``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium import _checks
from harmonium._settings import Count, Setting, Share
from harmonium.chains import Kernel
from harmonium.cli import options
from harmonium.cli.output import Listing, check_target, working
from harmonium.cli.pictures import data_range, images_of, in_words
from harmonium.cli.rows_file import check_rows_target, write_rows, write_table
from harmonium.data import SIDES, DataSet, missing_at_random, missing_half
from harmonium.data.dataset import dense
from harmonium.data.frame import missing_in
from harmonium.report import image_panels
from harmonium.tables import CellInterval, Codec, Table, find_intervals
from harmonium.tasks import IMPUTE_METHODS, by_column, impute_cells, score_cells, unobserved
from harmonium.training import warn_of_rough

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
    interval: Share | None = None,
    rows: Count | None = None,
    sweeps: int = 100,
    image_shape: options.ImageShape | None = None,
    unknown: options.Unknown | None = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Fill in missing values given the rest of each row, and write the completed rows to a file.

    Words for missing cells in text files are those of the training (train --missing-words). Of a table, the
    fills of values that --missing hides are scored by column, beside the commonest label or the mean.

    Args:
        data: rows to complete.
        out: file for the completed rows: .csv, .tsv, .parquet, .feather, .npz, .npy, of sequences .fasta,
            .fa, each also with .gz, or .png: given, truth, result.
        missing: what is missing: nan (where DATA has NaN or an empty cell), upper, lower, left, right (half
            of each image), or random:FRACTION.
        method: how: auto (exact where the hidden states can be summed, else gibbs), exact, gibbs, tempered,
            local_search, tap, or another kernel.
        value: what to write: nearest (the most probable label, of numbers the mean, rounded as the column
            is; the default), mean (not rounded), or draw (a random one, the default with --imputations).
        imputations: so many completions, each a draw, as out-1.csv, out-2.csv, … for --out out.csv.
        interval: Share of the missing cells that intervals of numbers and sets of labels are to hold, at most
            0.99, which are written to out-intervals.csv for --out out.csv.
        rows: only the first rows of DATA.
        sweeps: sweeps of every chain.
    """
    value = value or ("nearest" if imputations is None else "draw")
    targets = _targets(out, imputations, value)
    _checks.one_of(method, "method", {*IMPUTE_METHODS, *Kernel.registry})
    coding, source = run.load(unknown)
    for target in targets:
        check_rows_target(target, coding.alphabet, overwrite)
    ends = out.with_name(f"{out.stem}-intervals.csv")
    if interval is not None:
        check_target(ends, "out", (".csv",), overwrite)
    coding.require_generative("impute")
    machine, dataset = coding.machine, _first(coding.read(data), rows)
    shape = options.image_shape_of(
        image_shape, dataset.image_shape, coding.image_shape, needed=out.suffix.lower() == ".png"
    )
    absent, lacking, units, states = _find_missing(coding, dataset, missing, shape, seed)
    with working(f"completing {len(states)} rows"):
        done, chosen = impute_cells(
            machine, coding.encoder, states, units, method, value,
            draws=max(_DRAWS, imputations or 0), sweeps=sweeps, seed=seed,
        )  # fmt: skip
    if interval is not None:
        hidden = states.masked_fill(by_column(machine, units, len(states)), torch.nan)
        _write_intervals(ends, find_intervals(machine, coding.encoder, hidden, interval, seed))
    for target, filled in zip(targets, [chosen] if imputations is None else done.draws, strict=False):
        if target.suffix.lower() == ".png":
            _draw(target, coding, states, filled, lacking, shape, f"Completed by {done.method}, {value}")
        else:
            _write(target, coding, dataset, lacking, filled, value)
    written: dict[str, Any] = {"file": out} if imputations is None else {"files": targets}
    written |= {} if interval is None else {"intervals": ends}
    counts = _count(coding, dataset, states, lacking)
    scores = _score(coding, dataset, absent, units, states, done.mode, chosen) if missing != "nan" else {}
    return {"machine": source, **written, **counts, "method": done.method, "value": value, **scores}


def _targets(out: Path, imputations: int | None, value: str) -> list[Path]:
    """Returns the files of so many completions, the one itself where none are asked for."""
    if imputations is None:
        return [out]
    if value != "draw":
        raise ValueError(f"imputations: expected the value draw, received {value}")
    return [out.with_name(f"{out.stem}-{i + 1}{out.suffix}") for i in range(imputations)]


def _first(dataset: DataSet, rows: int | None) -> DataSet:
    """Returns the first rows of data, in memory."""
    labels = None if dataset.labels is None else dataset.labels[:rows]
    return replace(dataset, samples=dense(dataset.samples[:rows]), labels=labels)


def _find_missing(
    coding: Codec, dataset: DataSet, missing: str, shape: Sequence[int], seed: int
) -> tuple[Tensor, NDArray[np.bool_], Tensor, Tensor]:
    """Returns masks of the cells to hide and of all that lack, (rows, columns), of units, and the states."""
    rest, machine = coding.apart(dataset)[0], coding.machine
    X = rest.samples if isinstance(coding.encoder, Table) else rest.numbers()
    empty = missing_in(X)
    absent = torch.from_numpy(empty) if missing == "nan" else _pattern(missing, X.shape, shape, seed)
    states = coding.states(dataset)
    units = coding.units(absent, rest).to(machine.device) | unobserved(machine, states)
    if bool(units[:, : units.shape[1] - (coding.label is not None)].any()):
        warn_of_rough(machine)
    return absent, absent.numpy() | empty, units, states


def _pattern(missing: str, shape: tuple[int, ...], image: Sequence[int], seed: int) -> Tensor:
    """Returns a mask of the cells to hide, (rows, columns)."""
    name, _, fraction = missing.partition(":")
    if name == "random" and fraction.replace(".", "", 1).isdecimal():
        return missing_at_random(shape[0], shape[1], float(fraction), seed=seed)
    if missing not in SIDES:
        expected = f"nan, {', '.join(SIDES)} or random:FRACTION"
        raise ValueError(f"missing: expected {expected}, received {missing!r}")
    if len(image) != 2:
        raise ValueError(f"missing: expected images of one channel for {missing}, received shape {image}")
    return missing_half(shape[0], (image[0], image[1]), missing)


def _write(
    path: Path, coding: Codec, dataset: DataSet, lacking: NDArray[np.bool_], filled: Tensor, value: str
) -> None:
    """Writes the data with filled cells."""
    drawn = "cells" if value == "draw" else None
    rows, labels = coding.fill(dataset, lacking, filled, rounded=value != "mean", drawn=drawn)
    write_rows(path, rows, None, dataset.names, labels, source=dataset, alphabet=coding.alphabet)


def _draw(
    path: Path,
    coding: Codec,
    states: Tensor,
    filled: Tensor,
    hole: NDArray[np.bool_],
    shape: Sequence[int],
    title: str,
) -> None:
    """Draws what is given, the truth where nothing was missing from the start, and the result."""
    given, result = images_of(coding, states), images_of(coding, filled)
    truth = {} if bool(states.isnan().any()) else {"truth": given}
    limits = data_range(coding, given[~hole] if not hole.all() else None)
    image_panels(
        {"given": given, **truth, "result": result}, shape, path, title=title + in_words(limits),
        limits=limits, hidden={"given": hole},
    )  # fmt: skip


def _write_intervals(path: Path, cells: Sequence[CellInterval]) -> None:
    """Writes a line for each missing cell; the labels of a set stand beside each other."""
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
    notes = [] if lacking.any() else ["missing: nothing is; DATA has no NaN, and --missing can hide values"]
    return {
        "rows": len(lacking),
        "missing": float(lacking.mean()),
        "missing_cells": f"{lacking.sum()} of {lacking.size}, in {lacking.any(1).sum()} rows",
        **({"notes": notes} if notes else {}),
    }


def _score(
    coding: Codec,
    dataset: DataSet,
    absent: Tensor,
    units: Tensor,
    states: Tensor,
    mode: Tensor,
    fills: Tensor,
) -> dict[str, Any]:
    """Scores what was filled in for hidden values, of a table by column beside the simplest fills."""
    if not isinstance(coding.encoder, Table):
        asked = by_column(coding.machine, units, len(states)) & ~states.isnan()
        return {"agreement_of_mode": float((states == mode)[asked].double().mean())}
    truth, found = states.cpu().numpy(), fills.cpu().numpy()
    order = coding.encoder.order(coding.apart(dataset)[0].frame())
    listing = Listing()
    for j, column in sorted(zip(order, coding.encoder.columns, strict=True), key=lambda pair: pair[0]):
        place = coding.unit_of(str(column.name))
        hidden = np.where(absent.numpy()[:, j, None], truth[:, place.states], np.nan)
        if score := score_cells(place, hidden, found[:, place.states]):
            kind, (fill, simplest, cells) = next(iter(score)), score.values()
            line = {"column": str(column.name), "cells": cells, "score": kind}
            listing.append({**line, "fills": fill, "simplest": simplest})
    return {"hidden_cells": listing}
