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
from harmonium._settings import Count, Setting
from harmonium.chains import Kernel
from harmonium.cli import options
from harmonium.cli.coding import (
    naming,
    refuse_discriminative,
    source_of,
    states_of,
)
from harmonium.cli.output import Listing, check_target, working
from harmonium.cli.pictures import data_range, images_of, in_words
from harmonium.cli.rows_file import SEQUENCES, SUFFIXES, check_sequences, write_rows
from harmonium.data import SIDES, DataSet, missing_at_random, missing_half, missing_rectangles
from harmonium.data.dataset import dense
from harmonium.data.frame import missing_in
from harmonium.report import image_panels
from harmonium.report.images import mean_word
from harmonium.tables import Codec, Table
from harmonium.tasks import IMPUTE_METHODS, by_column, impute_cells, score_cells, unobserved
from harmonium.training import warn_of_rough

EXAMPLES = (
    "harmonium impute runs/rows holes.csv --out complete.csv",
    "harmonium impute runs/rows holes.csv --out complete.csv --imputations 5",
)

_SHOWN = {"nearest": "the values nearest to the means", "draw": "one draw"}


def impute(
    run: options.Trained,
    data: options.Data,
    out: Path,
    missing: str = "nan",
    method: Annotated[str, Setting(complete=options.words(IMPUTE_METHODS))] = "auto",
    value: Literal["nearest", "mean", "draw"] | None = None,
    imputations: Count | None = None,
    rows: int | None = None,
    draws: int = 5,
    sweeps: int = 100,
    columns: options.Columns | None = None,
    image_shape: options.ImageShape | None = None,
    unknown: options.Unknown | None = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Fill in missing values given the rest of each row, and write the completed rows to a file.

    Words for missing cells in text files are those of the training (train --missing-words).

    Of values that --missing hides in a table, the fills are scored by column beside the simplest ones: the
    commonest label or the mean of the same cells.

    Args:
        data: rows to complete.
        out: file for the completed rows: .csv, .tsv, .parquet, .feather, .npz, .npy, of sequences .fasta,
            .fa, each also with .gz, or .png: given, truth, result.
        missing: what is missing: nan (where DATA has NaN or an empty cell), upper, lower, left, right (half
            of each image), random:FRACTION, or rectangle:HEIGHTxWIDTH.
        method: how: auto (exact where the hidden states can be summed, else gibbs), exact, gibbs, tempered,
            local_search, tap, or another kernel.
        value: what to write: nearest (the most probable label, of numbers the mean, rounded as the column
            is; the default), mean (not rounded), or draw (a random one, the default with --imputations).
        imputations: so many completions, each a draw, as out-1.csv, out-2.csv, … for --out out.csv.
        rows: only the first rows of DATA.
        draws: chains or searches of every row.
        sweeps: sweeps of every chain.
    """
    _checks.one_of(method, "method", {*IMPUTE_METHODS, *Kernel.registry})
    value = value or ("nearest" if imputations is None else "draw")
    if imputations is not None and value != "draw":
        raise ValueError(f"imputations: expected with --value draw, received {value}")
    targets = _targets(out, imputations)
    for target in targets:
        check_target(target, "out", (*SUFFIXES, *SEQUENCES), overwrite)
    coding, source = run.load(unknown)
    machine, alphabet = coding.machine, coding.alphabet
    check_sequences(out, alphabet)
    refuse_discriminative(coding, "impute")
    dataset = coding.read(data)
    some = dataset.samples[:rows] if rows else dataset.samples[()]
    labels = dataset.labels[:rows] if rows and dataset.labels is not None else dataset.labels
    dataset = replace(dataset, samples=dense(some), labels=labels)
    needed = out.suffix.lower() == ".png"
    shape = options.image_shape_of(image_shape, dataset.image_shape, source_of(machine)[1], needed=needed)
    rest, labels_there = coding.apart(dataset)
    with naming(data):
        table = isinstance(coding.encoder, Table)
        X = rest.samples if table else rest.numbers()
    absent = _pattern(missing, X, shape, seed)
    lacking = absent.numpy() | missing_in(X)
    with naming(data):
        states = states_of(coding, dataset)
        units = coding.units(absent, rest).to(machine.device) | unobserved(machine, states)
        if bool(units[:, : units.shape[1] - (coding.label is not None)].any()):
            warn_of_rough(machine)
        with working(f"completing {len(X)} rows"):
            chains = draws if imputations is None else max(draws, imputations)
            done, chosen = impute_cells(
                machine, coding.encoder, states, units, method, value, draws=chains, sweeps=sweeps, seed=seed
            )
            method = done.method
        kind = "cells" if value == "draw" else None
        for target, states_of_it in zip(
            targets, [chosen] if imputations is None else done.draws, strict=False
        ):
            if target.suffix.lower() == ".png":
                title = f"Completed by {method}, {_SHOWN.get(value, mean_word(machine))}"
                _draw(target, coding, (states, states_of_it), lacking, shape, columns, title)
                continue
            completed, labels_of_it = coding.fill(
                dataset, lacking, states_of_it, rounded=value != "mean", drawn=kind
            )
            given: dict[str, Any] = {"source": dataset, "alphabet": alphabet}
            write_rows(target, completed, shape, columns, dataset.names, labels_of_it, **given)
    if labels_there is not None and coding.label_width:
        unlabelled = coding.split(states)[1].isnan().any(1, keepdim=True)
        lacking = np.hstack([lacking, unlabelled.cpu().numpy()])
    written = units if labels_there is not None else units[:, : units.shape[1] - coding.label_width]
    result: dict[str, Any] = {
        "machine": source,
        **({"file": out} if imputations is None else {"files": targets}),
        "rows": len(X),
        "missing": float(written.double().mean()),
        "missing_cells": f"{lacking.sum()} of {lacking.size}, in {lacking.any(1).sum()} rows",
        "method": method,
        "value": value,
    }
    if not bool(written.any()):
        result["notes"] = ["missing: nothing is; DATA has no NaN, and --missing can hide values"]
    if missing != "nan" and table:
        result["hidden_cells"] = _score_fills(coding, absent, rest, states, chosen)
    elif missing != "nan" and bool(absent.any()):
        spread = by_column(machine, units, len(X)).cpu() & ~states.isnan().cpu()
        result["agreement_of_mode"] = float((states.cpu() == done.mode.cpu())[spread].double().mean())
    return result


def _score_fills(coding: Codec, absent: Tensor, rest: DataSet, states: Tensor, filled: Tensor) -> Listing:
    """Scores what was filled in for values that were hidden, column by column, beside the simplest fills.

    These are the commonest label or the mean of the same cells.
    """
    assert isinstance(coding.encoder, Table)
    truth, found = states.cpu().numpy(), filled.cpu().numpy()
    listing = Listing()
    pairs = zip(coding.encoder.order(rest.frame()), coding.encoder.columns, strict=True)
    for j, column in sorted(pairs, key=lambda pair: pair[0]):
        place = coding.unit_of(str(column.name))
        hidden = np.where(absent.numpy()[:, j, None], truth[:, place.states], np.nan)
        if score := score_cells(place, hidden, found[:, place.states]):
            name, (fills, simplest, cells) = next(iter(score)), score.values()
            line = {"column": str(column.name), "cells": cells, "score": name}
            listing.append({**line, "fills": fills, "simplest": simplest})
    return listing


def _targets(out: Path, imputations: int | None) -> list[Path]:
    """The files of so many completions; the one itself where there is but one."""
    if imputations is None:
        return [out]
    return [out.with_name(f"{out.stem}-{i + 1}{out.suffix}") for i in range(imputations)]


def _draw(
    path: Path,
    coding: Codec,
    states: tuple[Tensor, Tensor],
    hole: NDArray[np.bool_],
    shape: Sequence[int],
    columns: int | None,
    title: str,
) -> None:
    """Given, truth where nothing was missing from the start, and result, as the machine sees them."""
    given, result = (images_of(coding, each) for each in states)
    panels = {"given": given, "truth": given, "result": result}
    if bool(states[0].isnan().any()):
        del panels["truth"]
    limits = data_range(coding, given[~hole] if not hole.all() else None)
    image_panels(
        panels, shape, path, title=title + in_words(limits), columns=columns, limits=limits,
        hidden={"given": hole},
    )  # fmt: skip


def _pattern(missing: str, X: NDArray[Any], shape: tuple[int, ...], seed: int) -> Tensor:
    """(rows, columns), bool."""
    name, _, argument = missing.partition(":")
    if missing == "nan":
        return torch.from_numpy(missing_in(X))
    if name == "random" and argument:
        try:
            fraction = float(argument)
        except ValueError:
            raise ValueError(f"missing: expected random:FRACTION, received {missing!r}") from None
        return missing_at_random(len(X), X.shape[1], fraction, seed=seed)
    if missing not in SIDES and not (name == "rectangle" and argument):
        raise ValueError(
            "missing: expected nan, upper, lower, left, right, random:FRACTION or rectangle:HEIGHTxWIDTH, "
            f"received {missing!r}"
        )
    if len(shape) != 2:
        raise ValueError(f"missing: expected images of one channel for {missing!r}, received shape {shape}")
    image = (shape[0], shape[1])
    if missing in SIDES:
        return missing_half(len(X), image, missing)
    height, width, *_ = options.image_shape_of(argument)
    return missing_rectangles(len(X), image, (height, width), seed=seed)
