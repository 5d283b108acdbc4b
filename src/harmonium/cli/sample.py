"""``harmonium sample``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from harmonium import _checks
from harmonium._random import as_generator, integers
from harmonium.chains import Gibbs, local_search
from harmonium.chains import run as run_chains
from harmonium.cli import kernels, options
from harmonium.cli.coding import codec_of, read_for, refuse_discriminative, rows_of, source_of, states_given
from harmonium.cli.output import check_target, show, working
from harmonium.cli.pictures import data_range, in_words, mean_word
from harmonium.cli.rows_file import SUFFIXES, TABLES, write_rows
from harmonium.cli.runs import load_machine
from harmonium.data import BitPlanes, Codec
from harmonium.data.sheet import Sheet
from harmonium.machine import States
from harmonium.tasks.impute import visible_means

_STARTS = ("noise", "data", "local-mode")


def sample(
    run: options.Run,
    out: Annotated[
        Path,
        typer.Option(help=f"File for the samples: {', '.join(SUFFIXES[:-1])}, or .png, a grid."),
    ],
    number: Annotated[int, typer.Option(help="How many samples, each from a chain of its own.")] = 100,
    sweeps: Annotated[int, typer.Option(help="Sweeps of every chain.")] = 1000,
    kernel: kernels.Name = None,
    step: kernels.Size = None,
    inner: kernels.Inner = None,
    correction: kernels.Corrected = None,
    start: Annotated[
        str,
        typer.Option(
            help="Where chains start: noise, data, or local-mode (with --sweeps 0 the modes themselves)."
        ),
    ] = "noise",
    data: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Rows to start from; the training data if not given."),
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Rows with this value in a column or label; repeatable."),
    ] = None,
    means: Annotated[
        bool,
        typer.Option("--means/--states", help="Means given the hidden units, or drawn states."),
    ] = False,
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
    """Draw samples from a machine by Markov chains and write them to a file."""
    options.set_threads(threads)
    _checks.positive_int(number, "number")
    _checks.positive_int(sweeps, "sweeps", minimum=0)
    _checks.one_of(start, "start", _STARTS)
    if data is not None and start != "data":
        raise ValueError("data: expected with --start data")
    check_target(out, "out", SUFFIXES, overwrite)
    shape = options.image_shape_of(image_shape)
    mover = kernels.kernel_from(kernel, step, inner, correction) or Gibbs()
    machine, source = load_machine(run, averaged, options.as_device(device))
    trained_on, image = source_of(machine)
    coding = codec_of(machine)
    refuse_discriminative(coding, "sample")
    held = states_given(coding, given or [], number)
    clamp = None if held is None else held.to(machine.device, machine.dtype)
    picture = out.suffix.lower() == ".png"
    if picture:
        shape = shape or image
        if not shape:
            raise ValueError(
                "image_shape: expected a form such as 28x28 for data without a shape, received none"
            )
    if means and isinstance(coding.encoder, BitPlanes):
        raise ValueError("means: expected --states for bit-planes, whose means are not grey levels")

    generator = as_generator(seed, machine.device)
    if start == "noise":
        noise = machine.random_states(number, seed=generator)
        first: States | Tensor = machine.hamiltonian().seen(noise).detach()
    elif start == "local-mode":
        with working("searching local modes"):
            noise = machine.random_states(number, seed=generator)
            first, _ = local_search(machine, noise, clamp, seed=generator)
    else:
        first = _rows(coding, number, data or trained_on, generator)
    with working(f"sampling {number} chains for {sweeps} sweeps"):
        states = run_chains(machine, mover, first, sweeps, clamp, seed=generator)
        hamiltonian = machine.hamiltonian()
        v = visible_means(hamiltonian, states).detach() if means else hamiltonian.seen(states)
        if held is not None:
            v = torch.where(held.isnan(), v.cpu(), held)
        samples, labels = coding.decode(v)
    limits = data_range(coding) if picture else None
    shown = f"{mean_word(machine)} given the hidden units" if means else "drawn states"
    title = f"{number} samples, {sweeps} sweeps from {start}: {shown}{in_words(limits)}"
    write_rows(out, samples, shape, columns, coding.names, labels, title=title, limits=limits)
    result: dict[str, Any] = {
        "machine": str(source),
        "file": str(out),
        "samples": number,
        "columns": int(samples.shape[1]),
        "dtype": "table" if isinstance(samples, Sheet) else str(samples.dtype),
        "kind": "means" if means else "states",
        "sweeps": sweeps,
        "kernel": repr(mover),
        "start": start,
    }
    if labels is not None and out.suffix.lower() not in (*TABLES, ".npz"):
        result["notes"] = [f"file: without the labels; {', '.join((*TABLES, '.npz'))} have a place for them"]
    show(result, as_json)


def _rows(coding: Codec, number: int, source: str | None, generator: torch.Generator) -> Tensor:
    """Rows of data, drawn with replacement, as visible states."""
    if source is None:
        raise ValueError("data: expected DATA to start from, as the machine names no training data")
    rows = rows_of(coding, read_for(coding, source))
    return rows.take(integers(len(rows), (number,), generator).cpu()).to(coding.machine.device)
