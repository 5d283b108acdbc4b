"""``harmonium denoise``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor

from harmonium import _checks
from harmonium._random import as_generator
from harmonium.cli import completion, options
from harmonium.cli.coding import codec_of, read_for, refuse_label, rows_of, source_of
from harmonium.cli.output import check_target, show, working
from harmonium.cli.pictures import data_range, images_of, in_words, mean_word
from harmonium.cli.rows_file import write_rows
from harmonium.cli.runs import load_machine
from harmonium.data import Codec
from harmonium.layers import Layer
from harmonium.report import image_panels
from harmonium.tasks import DENOISE_METHODS, Channel, GaussianChannel, SymmetricChannel, noise_in_states
from harmonium.tasks import denoise as clean

_VALUES = ("decision", "mean")


def denoise(
    run: options.Run,
    noisy: Annotated[str, typer.Argument(metavar="DATA", autocompletion=completion.data, help="Noisy rows.")],
    out: Annotated[
        Path,
        typer.Option(
            help="File for the clean rows: .npy, in the data's units, or .png: given, truth, result."
        ),
    ],
    flip_probability: Annotated[
        float | None, typer.Option(help="Of every discrete unit, to be seen in another state.")
    ] = None,
    noise_deviation: Annotated[
        float | None, typer.Option(help="Standard deviation of normal noise, in the data's units.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help=f"One of {', '.join(DENOISE_METHODS)}.", autocompletion=completion.words(DENOISE_METHODS)
        ),
    ] = "tap",
    value: Annotated[
        str, typer.Option(help="What to write: decision (likeliest states, of real units means) or mean.")
    ] = "decision",
    base: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Clean rows for the start and the baselines, as the training set."),
    ] = None,
    corrupt: Annotated[
        bool, typer.Option("--corrupt", help="DATA is clean: add the noise first, and say what was removed.")
    ] = False,
    number: Annotated[int | None, typer.Option(help="Only so many rows, from the start.")] = None,
    sweeps: Annotated[int, typer.Option(help="Sweeps of every chain; the most that TAP takes.")] = 200,
    chains: Annotated[int, typer.Option(help="Chains of every row with --method gibbs.")] = 10,
    neighbours: Annotated[int, typer.Option(help="Rows that --method neighbours averages.")] = 1,
    columns: Annotated[int | None, typer.Option(help="Images in a row of the grid.")] = None,
    averaged: options.Averaged = False,
    seed: options.Seed = 0,
    device: options.Device = None,
    threads: options.Threads = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Estimate clean rows from noisy ones, with a machine as what is known of clean rows."""
    options.set_threads(threads)
    _checks.one_of(value, "value", _VALUES)
    if (flip_probability is None) == (noise_deviation is None):
        raise ValueError("flip_probability, noise_deviation: expected one of the two")
    check_target(out, "out", (".npy", ".png"), overwrite)
    machine, source = load_machine(run, averaged, options.as_device(device))
    _, shape = source_of(machine)
    if out.suffix.lower() == ".png" and not shape:
        raise ValueError("out: expected a .npy file for data without an image shape, received .png")
    coding = codec_of(machine)
    refuse_label(coding, "denoise")
    seen = _states(coding, noisy)
    seen = seen if number is None else seen[: _checks.positive_int(number, "number")]
    known = None if base is None else _states(coding, base)
    encoder = coding.encoder
    deviation = None if noise_deviation is None else noise_in_states(noise_deviation, encoder)
    generator = as_generator(seed, machine.device)
    truth, layer = seen, machine.layers[machine.visible[0]]
    if corrupt:
        layer.check(truth, "X")
        channel: Channel
        if deviation is not None:
            channel = GaussianChannel(deviation)
        else:
            assert flip_probability is not None
            channel = SymmetricChannel(flip_probability)
        channel.check(layer, truth)
        seen = channel.corrupt(layer, truth, generator)
    with working(f"denoising {len(seen)} rows"):
        found = clean(
            machine, seen, flip_probability, noise_deviation=deviation, method=method, data=known,
            sweeps=sweeps, chains=chains, neighbours=neighbours, seed=generator,
        )  # fmt: skip
    rows = encoder.decode((found.decision if value == "decision" else found.mean).cpu().numpy())
    if out.suffix.lower() == ".png":
        panels = {
            "given": images_of(coding, seen),
            **({"truth": images_of(coding, truth)} if corrupt else {}),
            "result": rows,
        }
        limits = data_range(coding, None if known is None else images_of(coding, known))
        what = "likeliest states" if value == "decision" else mean_word(machine)
        noise = (
            f"normal noise of deviation {noise_deviation:g}"
            if flip_probability is None
            else f"{flip_probability:.0%} of the units flipped"
        )
        title = f"{noise[0].upper()}{noise[1:]}; the result is {what} by {method}{in_words(limits)}"
        image_panels(panels, shape, out, title=title, columns=columns, limits=limits)
    else:
        write_rows(out, rows, shape, columns)
    result: dict[str, Any] = {
        "machine": str(source),
        "file": str(out),
        "rows": len(rows),
        "method": method,
        "value": value,
        "converged": float(found.converged.double().mean()),
    }
    if corrupt:
        three = truth, seen, found.decision
        if deviation is None:
            result |= _wrong(layer, *three)
        else:
            result |= _squares(*(encoder.decode(x.cpu().numpy()) for x in three))
    if not bool(found.converged.all()):
        result["notes"] = ["converged: some rows still moved after the sweeps allowed; more --sweeps help"]
    show(result, as_json)


def _states(coding: Codec, source: str) -> Tensor:
    rows = rows_of(coding, read_for(coding, source))
    return rows.take(torch.arange(len(rows))).to(coding.machine.device)


def _wrong(layer: Layer, truth: Tensor, seen: Tensor, decision: Tensor) -> dict[str, float]:
    """The fraction of wrong units before and after."""
    wrong = [(layer.by_unit(x) != layer.by_unit(truth)).any(-1) for x in (seen, decision)]
    before, after = (float(x.double().mean()) for x in wrong)
    return {"wrong_before": before, "wrong_after": after}


def _squares(truth: NDArray[Any], seen: NDArray[Any], decision: NDArray[Any]) -> dict[str, float]:
    """Mean square errors before and after, in the data's own units."""
    before, after = (float(np.square(x - truth).mean(dtype=np.float64)) for x in (seen, decision))
    return {"mean_square_error_before": before, "mean_square_error_after": after}
