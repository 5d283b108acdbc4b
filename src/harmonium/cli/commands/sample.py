"""``harmonium sample``."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from harmonium._random import as_generator, integers
from harmonium._settings import Count, From0, Interval, Setting
from harmonium.chains import Gibbs, run as run_chains
from harmonium.cli import options
from harmonium.cli.output import working
from harmonium.cli.rows_file import TABLES, check_rows_target, write_rows
from harmonium.ladder import Ladder
from harmonium.machine import BoltzmannMachine, Hamiltonian
from harmonium.report import image_panels
from harmonium.sums import has_posterior
from harmonium.tables import Codec, warn_of_rough
from harmonium.tasks import sample as draw_exactly, usual_sweeps, visible_means

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
    data: options.OtherData | None = None,
    given: Annotated[list[str] | None, Setting(metavar="COLUMN=VALUE")] = None,
    means: Annotated[bool, Setting(option="--means")] = False,
    temperature: Annotated[float, Setting(Interval(0.0, closed="neither"))] = 1.0,
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
        sweeps: sweeps of every chain; if not given 1000, or as many as noise_cd has learned.
        data: rows from which the chains start; noise if not given.
        given: rows with this value in a column or label; repeatable.
        means: write means given the hidden units in place of states.
        temperature: draw from p^(1/temperature), below 1 likelier rows; of units of two values or categories.
    """
    mover = chains.make_kernel() or Gibbs()
    coding, source = run.load()
    check_rows_target(out, coding.alphabet, overwrite, ".png")
    coding.require_generative("sample")
    machine = at_temperature(coding.machine, temperature)
    if isinstance(mover, Ladder) and temperature == 1.0:
        mover = run.ladder(machine) or mover
    held = coding.states_of_texts(given) if given else None
    if held is None or bool(coding.split(held)[0].isnan().any()):
        warn_of_rough(machine)
    shape = options.image_shape_of(image_shape, coding.image_shape, needed=out.suffix.lower() == ".png")
    if means and not coding.encoder.takes_means:
        raise ValueError("means: expected states for bit-planes, whose means are not grey levels")
    generator = as_generator(seed, machine.device)
    clamp = None if held is None else held.repeat(rows, 1).to(machine.device, machine.dtype)
    walked = (chains.kernel, sweeps, data, means or None, machine.metadata.get("sweeps_from_noise"))
    exact = all(x is None for x in walked) and has_posterior(machine.hamiltonian(), clamp)
    sweeps = 0 if exact else usual_sweeps(machine) if sweeps is None else sweeps
    with working("drawing" if exact else f"sampling {rows} chains for {sweeps} sweeps"):
        if exact:
            v = draw_exactly(machine, rows, given=held, method="exact", seed=generator).rows
        else:
            start = machine.hamiltonian().visible_states(machine.random_states(rows, seed=generator))
            if data is not None:
                known = coding.observed_rows(coding.read(data))
                start = known.take(integers(len(known), (rows,), generator).cpu()).to(machine.device)
            states = run_chains(machine, mover, start, sweeps, clamp, seed=generator)
            v = (visible_means if means else Hamiltonian.visible_states)(machine.hamiltonian(), states)
    notes = _write(out, coding, v.detach(), held, shape, f"{'Means of ' if means else ''}{rows} samples")
    by = {"method": "exact"} if exact else {"sweeps": sweeps, "kernel": repr(mover), "start": data or "noise"}
    return {"machine": source, "file": out, "rows": rows, **by, "notes": notes}


def _write(
    out: Path, coding: Codec, v: Tensor, held: Tensor | None, shape: tuple[int, ...], title: str
) -> list[str]:
    """Writes visible states or means, with the cells that are held; returns a note on labels left out."""
    samples, labels = coding.decode(v if held is None else torch.where(held.isnan(), v.cpu(), held))
    if out.suffix.lower() == ".png":
        images = samples if isinstance(samples, np.ndarray) else samples.numbers()
        image_panels({"": images}, shape, out, title=title)
    else:
        write_rows(out, samples, coding.names, labels, alphabet=coding.alphabet)
    if labels is None or out.suffix.lower() in (*TABLES, ".npz"):
        return []
    return [f"file: without the labels; {', '.join((*TABLES, '.npz'))} have a place for them"]


def at_temperature(machine: BoltzmannMachine, temperature: float) -> BoltzmannMachine:
    """Returns a machine with the distribution p(states)^(1/temperature) of another, hidden units included.

    Raises:
        ValueError: units whose parameters are not all that their distribution depends on, such as Gaussian
            ones.
    """
    if temperature == 1.0:
        return machine
    for layer in machine.layers:
        if not (layer.two_values or layer.one_hot):
            raise ValueError(
                f"temperature: expected 1 for a machine with {layer}, received {temperature:g}; others are "
                "for units with two values or categories"
            )
    other = copy.deepcopy(machine)
    for parameter in other.parameters():
        parameter.data.div_(temperature)
    return other
