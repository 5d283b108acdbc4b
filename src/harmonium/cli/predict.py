"""``harmonium predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor

from harmonium import _checks
from harmonium.cli import completion, options
from harmonium.cli.coding import codec_of, read_for, states_of
from harmonium.cli.output import check_target, show, working
from harmonium.cli.rows_file import TABLES, texts, write_rows
from harmonium.cli.runs import load_machine
from harmonium.data import Codec
from harmonium.data.codec import Place
from harmonium.data.codings import Labels
from harmonium.data.sheet import TEXT, Cells, Sheet
from harmonium.tasks import impute
from harmonium.tasks import predict as probabilities_of
from harmonium.tasks.impute import unobserved

METHODS = ("auto", "exact", "gibbs")


def predict(
    run: options.Run,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            autocompletion=completion.data,
            help="Rows; what they say of the column is not read.",
        ),
    ],
    out: Annotated[Path, typer.Option(help=f"File for the predictions, a row each: {', '.join(TABLES)}.")],
    column: Annotated[
        str | None, typer.Option(metavar="NAME", help="What to predict; the label if not given.")
    ] = None,
    with_probabilities: Annotated[
        bool, typer.Option("--probabilities", help="A column more for each value, NAME=VALUE.")
    ] = False,
    method: Annotated[
        str,
        typer.Option(
            help="auto (exact where states can be counted), exact, or gibbs, by chains.",
            autocompletion=completion.words(METHODS),
        ),
    ] = "auto",
    sweeps: Annotated[int, typer.Option(help="Sweeps of every chain.")] = 100,
    chains: Annotated[int, typer.Option(help="Chains of every row.")] = 10,
    unknown: options.Unknown = None,
    averaged: options.Averaged = False,
    seed: options.Seed = 0,
    device: options.Device = None,
    threads: options.Threads = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Predict the label, or any column, from the rest of each row, and write it to a file.

    Of labels the most probable value is written, of counts and real numbers the mean.
    """
    options.set_threads(threads)
    _checks.one_of(method, "method", METHODS)
    check_target(out, "out", TABLES, overwrite)
    machine, source = load_machine(run, averaged, options.as_device(device))
    coding = codec_of(machine, options.unknown_of(unknown))
    if column is None:
        if coding.label is None:
            raise ValueError(
                "column: expected a name with --column, as the machine was trained without --label"
            )
        column = str(coding.label.name)
    place = coding.unit_of(column)
    own = place.column.coding
    if with_probabilities and not machine.layers[place.layer].discrete:
        raise ValueError(
            f"with_probabilities: expected a column of labels or counts, {column!r} has real numbers"
        )
    if method == "exact" and not machine.layers[place.layer].discrete:
        raise ValueError(
            f"method: expected auto or gibbs for column {column!r} of real numbers, whose mean is drawn by "
            "chains; received exact"
        )
    dataset = read_for(coding, data, lacking=column)
    states = states_of(coding, dataset)
    truth = states[:, place.states].cpu().numpy().copy()
    states[:, place.states] = torch.nan
    with working(f"predicting {len(states)} rows"):
        if machine.layers[place.layer].discrete:
            p, used = probabilities(coding, place, states, method, seed, sweeps, chains)
            values, p = machine.layers[place.layer].values().double().cpu(), p.cpu()
            best = (values[p.argmax(1)] if isinstance(own, Labels) else p @ values).numpy()
            shown = p.numpy()
        else:
            missing = unobserved(machine, states)
            done = impute(machine, states, missing, draws=chains, sweeps=max(2, sweeps), seed=seed)
            best, used = done.mean[:, place.states].double().cpu().numpy(), "gibbs"
    cells = Cells(column, own.decode(best), "float64")  # a mean is not rounded
    if isinstance(own, Labels):
        cells = Cells(column, place.column.decode(best), place.column.dtype, place.column.categories)
    columns = [cells]
    if with_probabilities:
        possible = np.array(own.values if isinstance(own, Labels) else range(shown.shape[1]))
        names = texts(Cells(column, possible, place.column.dtype))
        columns += [Cells(f"{column}={name}", shown[:, i], "float64") for i, name in enumerate(names)]
    write_rows(out, Sheet(tuple(columns), TEXT), None, None)
    result: dict[str, Any] = {
        "machine": str(source),
        "file": str(out),
        "rows": len(states),
        "column": column,
        "method": used,
        **_score(place, truth, best),
    }
    if used == "gibbs" and method == "auto" and machine.layers[place.layer].discrete:
        result["notes"] = ["method: chains, as there are too many states to count"]
    show(result, as_json)


def probabilities(
    coding: Codec,
    place: Place,
    states: Tensor,
    method: str,
    seed: int,
    sweeps: int = 100,
    chains: int = 10,
) -> tuple[Tensor, str]:
    """(rows, values) of a discrete column given the rest of each row, and by which method.

    Raises:
        ValueError: too many states for "exact"; "auto" then takes chains.
    """
    if method != "gibbs":
        try:
            p = probabilities_of(coding.machine, states, place.layer, unit=place.unit)
            return p[:, 0], "exact"
        except ValueError as error:
            if method == "exact":
                raise ValueError(f"{error}; --method gibbs draws") from error
    p = probabilities_of(
        coding.machine, states, place.layer, "gibbs", unit=place.unit, sweeps=sweeps, chains=chains, seed=seed
    )
    return p[:, 0], "gibbs"


def _score(place: Place, truth: NDArray[Any], best: NDArray[Any]) -> dict[str, float]:
    """Scores the predictions of a column over the rows where its value is given: accuracy, or RMS error."""
    known = ~np.isnan(truth[:, 0])
    if not known.any():
        return {}
    given, found = (place.column.coding.decode(states[known]) for states in (truth, best))
    if isinstance(place.column.coding, Labels):
        return {"accuracy": float(np.mean([a == b for a, b in zip(given, found, strict=True)]))}
    return {"root_mean_square_error": float(np.sqrt(np.mean((given - found) ** 2)))}
