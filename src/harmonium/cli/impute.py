"""``harmonium impute``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor

from harmonium import _checks
from harmonium.cli import options
from harmonium.cli.encoding import encode, encoder_of, naming, source_of
from harmonium.cli.output import check_target, show, working
from harmonium.cli.pseudo import visible_units
from harmonium.cli.rows_file import write_rows
from harmonium.cli.runs import load_machine
from harmonium.data import Rows, Table, missing_at_random, missing_half, missing_rectangles, read
from harmonium.data.missing import SIDES
from harmonium.tasks import METHODS
from harmonium.tasks import impute as fill_in
from harmonium.tasks.impute import by_column, unobserved

_VALUES = ("best", "mode", "mean", "draw")


def impute(
    run: options.Run,
    data: Annotated[str, typer.Argument(metavar="DATA", help="Rows to complete.")],
    out: Annotated[
        Path,
        typer.Option(help="File for the completed rows: .npy or .csv, in the data's units, or .png, a grid."),
    ],
    missing: Annotated[
        str,
        typer.Option(
            help="What is missing: nan (where DATA has NaN or an empty cell), upper, lower, left, right "
            "(half of each image), random:FRACTION, or rectangle:HEIGHTxWIDTH."
        ),
    ] = "nan",
    method: Annotated[str, typer.Option(help="How: gibbs, tempered, local_search or tap.")] = "gibbs",
    value: Annotated[
        str, typer.Option(help="What to write: mode or best (one completion), mean, or draw (a random one).")
    ] = "best",
    rows: Annotated[int | None, typer.Option(help="Only the first rows of DATA.")] = None,
    draws: Annotated[int, typer.Option(help="Chains or searches of every row.")] = 5,
    sweeps: Annotated[int, typer.Option(help="Sweeps of every chain.")] = 100,
    columns: Annotated[int | None, typer.Option(help="Images in a row of the grid.")] = None,
    image_shape: Annotated[
        str | None, typer.Option(help="Shape of an image, such as 28x28, where the data had none.")
    ] = None,
    averaged: options.Averaged = False,
    seed: options.Seed = 0,
    device: options.Device = None,
    threads: options.Threads = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Fill in missing values given the rest of each row, and write the completed rows to a file."""
    options.set_threads(threads)
    _checks.one_of(value, "value", _VALUES)
    _checks.one_of(method, "method", METHODS)
    check_target(out, "out", (".csv", ".npy", ".png"), overwrite)
    machine, source = load_machine(run, averaged, options.as_device(device))
    dataset = read(data)
    dataset = replace(dataset, samples=np.asarray(dataset.samples[:rows] if rows else dataset.samples[()]))
    encoder = encoder_of(machine)
    with naming(data):
        table = isinstance(encoder, Table)
        X = dataset.sheet().numbers() if dataset.samples.dtype.kind == "O" and not table else dataset.samples
    _, image = source_of(machine)
    shape = options.image_shape_of(image_shape) or tuple(dataset.image_shape or image)
    if out.suffix.lower() == ".png" and not shape:
        raise ValueError("image_shape: expected a form such as 28x28 for data without a shape, received none")
    absent = _pattern(missing, X, shape, seed)
    with naming(data):
        if isinstance(encoder, Table):
            rest = X.astype(object)
            rest[absent.numpy()] = None
            states = torch.from_numpy(encoder.encode(dataset.sheet())).to(machine.dtype)
            absent |= unobserved(machine, states)
        else:
            v = Rows.of(encode(encoder, _filled(X, absent.numpy())), dtype=machine.dtype)
            states = v.take(torch.arange(len(v)))
            machine.check_rows(states.to(machine.device), "X")
        n_units = visible_units(machine)
        if n_units % X.shape[1]:
            raise ValueError(f"X: expected a column for each of {n_units} units, received {X.shape[1]}")
        # A column of the data has one unit, or one in each of the planes that follow each other.
        units = absent.repeat(1, n_units // X.shape[1])
        with working(f"completing {len(X)} rows"):
            done = fill_in(machine, states, units, method, draws=draws, sweeps=sweeps, seed=seed)
        chosen = {"mean": done.mean, "draw": done.draws[0]}.get(value, done.best).cpu().numpy()
        if isinstance(encoder, Table):
            write_rows(out, encoder.filled(replace(dataset, samples=rest).sheet(), chosen), shape, columns)
        else:
            completed = np.asarray(encoder.decode(chosen))
            completed = np.where(absent.numpy(), completed, X.astype(completed.dtype))
            write_rows(out, completed, shape, columns, dataset.names)
    result: dict[str, Any] = {
        "machine": str(source),
        "file": str(out),
        "rows": len(X),
        "missing": float(absent.double().mean()),
        "method": method,
        "value": value,
    }
    if not bool(absent.any()):
        result["notes"] = ["missing: nothing is; DATA has no NaN, and --missing can hide values"]
    if missing != "nan" and bool(absent.any()) and not table:
        truth, found = states.cpu(), done.best.cpu()
        spread = by_column(machine, units, len(X)).cpu()
        result["agreement_of_best"] = float((truth == found)[spread].double().mean())
    show(result, as_json)


def _pattern(missing: str, X: NDArray[Any], shape: tuple[int, ...], seed: int) -> Tensor:
    """(rows, columns), bool."""
    name, _, argument = missing.partition(":")
    if missing == "nan":
        if X.dtype.kind == "O":
            return torch.tensor([[cell is None for cell in row] for row in X])
        return torch.from_numpy(np.isnan(X) if X.dtype.kind == "f" else np.zeros(X.shape, dtype=bool))
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
    size = options.image_shape_of(argument)
    assert size is not None
    return missing_rectangles(len(X), image, (size[0], size[1]), seed=seed)


def _filled(X: NDArray[Any], absent: NDArray[Any]) -> NDArray[Any]:
    """NaN replaced by some value that the data do take; it is not read."""
    if X.dtype.kind != "f" or not np.isnan(X).any():
        return X
    if np.isnan(X).all():
        raise ValueError("X: expected some values that are not NaN, received none")
    return np.where(absent, np.nanmin(X), X)
