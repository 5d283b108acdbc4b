"""``harmonium sample``."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from harmonium._random import as_generator, integers
from harmonium._settings import Count, From0, Interval, Setting
from harmonium.chains import Gibbs, local_search, run as run_chains
from harmonium.cli import options
from harmonium.cli.coding import (
    dialect_of,
    refuse_discriminative,
    rows_of,
    source_of,
    states_given,
)
from harmonium.cli.output import check_target, working
from harmonium.cli.pictures import data_range, in_words
from harmonium.cli.rows_file import SEQUENCES, SUFFIXES, TABLES, check_sequences, write_rows
from harmonium.data import Frame
from harmonium.ladder import Ladder
from harmonium.machine import BoltzmannMachine, States
from harmonium.report.images import mean_word
from harmonium.sums import has_posterior
from harmonium.tables import Codec
from harmonium.tasks import sample as draw_exactly, usual_sweeps, visible_means
from harmonium.training import warn_of_rough

EXAMPLES = (
    "harmonium sample runs/digits --out samples.png",
    "harmonium sample runs/family --out new.fasta",
    "harmonium sample runs/rows --out rows.csv --rows 1000 --given species=setosa",
)


def sample(
    run: options.Trained,
    chains: options.Chains,
    out: Path,
    rows: Count = 100,
    sweeps: From0 | None = None,
    start: Literal["noise", "data", "local-mode"] = "noise",
    data: options.OtherData | None = None,
    given: Annotated[list[str] | None, Setting(metavar="COLUMN=VALUE")] = None,
    means: Annotated[bool | None, Setting(option="--means/--states")] = None,
    temperature: Annotated[float, Setting(Interval(0.0, closed="neither"))] = 1.0,
    columns: options.Columns | None = None,
    image_shape: options.ImageShape | None = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Draw samples from a machine and write them to a file.

    They come from the exact distribution where at most 12 hidden units can be summed out, or all units one by
    one, and no option of chains is given; and else from Markov chains.

    Args:
        out: file for the samples: .csv, .tsv, .parquet, .feather, .npz, .npy, .png, a grid, or of sequences
            .fasta, .fa, .a3m, each also with .gz.
        rows: how many rows to draw, each from a chain of its own.
        sweeps: sweeps of every chain; if not given 1000, or as many as chains from noise have learned by
            noise_cd.
        start: where chains start: noise, data, or local-mode (with --sweeps 0 the modes themselves).
        data: rows to start from; the training data if not given.
        given: rows with this value in a column or label; repeatable.
        means: means given the hidden units, or drawn states; if not given means in a .png of a machine that
            has learned images by noise_cd, else states.
        temperature: draw from p^(1/temperature): below 1 what is most likely, above 1 more diverse rows; of
            units with two values or categories.
    """
    if data is not None and start != "data":
        raise ValueError("data: expected with --start data")
    check_target(out, "out", (*SUFFIXES, *SEQUENCES), overwrite)
    mover = chains.make_kernel() or Gibbs()
    coding, source = run.load()
    machine, alphabet = coding.machine, coding.alphabet
    check_sequences(out, alphabet)
    if temperature != 1.0:
        if isinstance(mover, Ladder):
            raise ValueError(f"temperature: expected 1 with --kernel ladder, received {temperature:g}")
        machine = at_temperature(machine, temperature)
    if isinstance(mover, Ladder):
        mover = run.ladder(machine) or mover
    trained_on, image = source_of(machine)
    refuse_discriminative(coding, "sample")
    held = states_given(coding, given or [], rows)
    clamp = None if held is None else held.to(machine.device, machine.dtype)
    if held is None or bool(coding.split(held)[0].isnan().any()):
        warn_of_rough(machine)
    picture = out.suffix.lower() == ".png"
    shape = options.image_shape_of(image_shape, image, needed=picture)
    learned_noise = "sweeps_from_noise" in machine.metadata
    means = learned_noise and picture and coding.density if means is None else means
    if means and not coding.encoder.takes_means:
        raise ValueError("means: expected --states for bit-planes, whose means are not grey levels")

    generator = as_generator(seed, machine.device)
    plain = chains.kernel is None and sweeps is None and start == "noise" and not means
    exact = plain and not learned_noise and has_posterior(machine.hamiltonian(), clamp)
    sweeps = 0 if exact else usual_sweeps(machine) if sweeps is None else sweeps
    if exact:
        with working("drawing"):
            count = rows if clamp is None else 1
            v = draw_exactly(machine, count, given=clamp, method="exact", seed=generator).rows
    else:
        first: States | Tensor
        if start == "noise":
            noise = machine.random_states(rows, seed=generator)
            first = machine.hamiltonian().visible_states(noise).detach()
        elif start == "local-mode":
            with working("searching local modes"):
                noise = machine.random_states(rows, seed=generator)
                first, _ = local_search(machine, noise, clamp, seed=generator)
        else:
            first = _rows(coding, rows, data or trained_on, generator)
        with working(f"sampling {rows} chains for {sweeps} sweeps"):
            states = run_chains(machine, mover, first, sweeps, clamp, seed=generator)
            hamiltonian = machine.hamiltonian()
            v = visible_means(hamiltonian, states).detach() if means else hamiltonian.visible_states(states)
    if held is not None:
        v = torch.where(held.isnan(), v.cpu(), held)
    samples, labels = coding.decode(v)
    limits = data_range(coding) if picture else None
    shown = f"{mean_word(machine)} given the hidden units" if means else "drawn states"
    way = "from the exact distribution" if exact else f"{sweeps} sweeps from {start}"
    title = f"{rows} samples, {way}: {shown}{in_words(limits)}"
    drawn: dict[str, Any] = {"alphabet": alphabet, "title": title, "limits": limits}
    drawn["dialect"] = dialect_of(machine)
    write_rows(out, samples, shape, columns, coding.names, labels, **drawn)
    result: dict[str, Any] = {
        "machine": source,
        "file": out,
        "rows": rows,
        "columns": int(samples.shape[1]) + (labels is not None and out.suffix.lower() in TABLES),
        "dtype": "table" if isinstance(samples, Frame) else str(samples.dtype),
        "kind": "means" if means else "states",
        **({} if temperature == 1.0 else {"temperature": temperature}),
        **({"method": "exact"} if exact else {"sweeps": sweeps, "kernel": repr(mover), "start": start}),
    }
    if labels is not None and out.suffix.lower() not in (*TABLES, ".npz"):
        result["notes"] = [f"file: without the labels; {', '.join((*TABLES, '.npz'))} have a place for them"]
    return result


def at_temperature(machine: BoltzmannMachine, temperature: float) -> BoltzmannMachine:
    """Returns a machine with the distribution p(states)^(1/temperature) of another, hidden units included.

    Raises:
        ValueError: units whose parameters are not all that their distribution depends on, such as Gaussian
            ones.
    """
    for layer in machine.layers:
        if not (layer.two_values or layer.one_hot):
            raise ValueError(
                f"temperature: expected 1 for a machine with {layer}, received {temperature:g}; others are "
                "for units with two values or categories"
            )
    other = copy.deepcopy(machine)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.div_(temperature)
    return other


def _rows(coding: Codec, count: int, source: str | None, generator: torch.Generator) -> Tensor:
    """Rows of data, drawn with replacement, as visible states."""
    if source is None:
        raise ValueError("data: expected DATA to start from, as the machine names no training data")
    rows = rows_of(coding, coding.read(source))
    return rows.take(integers(len(rows), (count,), generator).cpu()).to(coding.machine.device)
