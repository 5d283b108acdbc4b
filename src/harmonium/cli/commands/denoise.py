"""``harmonium denoise``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from harmonium._random import as_generator
from harmonium._settings import Count, Setting
from harmonium.cli import options
from harmonium.cli.coding import refuse_label, rows_of, source_of
from harmonium.cli.output import check_target, working
from harmonium.cli.pictures import data_range, images_of, in_words
from harmonium.cli.rows_file import write_rows
from harmonium.report import image_panels
from harmonium.report.images import mean_word
from harmonium.tables import Codec
from harmonium.tasks import DENOISE_METHODS, channel_of, denoise as denoise_rows, noise_in_states

EXAMPLES = (
    "harmonium denoise runs/digits noisy.npy --flip-probability 0.1 --out clean.png",
    "harmonium denoise runs/digits digits --corrupt --flip-probability 0.1 --out clean.npy",
)


def denoise(
    run: options.Trained,
    noisy: options.Data,
    out: Path,
    flip_probability: float | None = None,
    noise_std: float | None = None,
    method: Annotated[str, Setting(DENOISE_METHODS)] = "tap",
    value: Literal["mode", "mean"] = "mode",
    clean: options.OtherData | None = None,
    corrupt: Annotated[bool, Setting(option="--corrupt")] = False,
    rows: Count | None = None,
    sweeps: int = 200,
    chains: int = 10,
    neighbours: int = 1,
    columns: options.Columns | None = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Estimate clean rows from noisy ones, with a machine as what is known of clean rows.

    Args:
        noisy: noisy rows.
        out: file for the clean rows: .npy, in the data's units, or .png: given, truth, result.
        flip_probability: of every discrete unit, to be seen in another state.
        noise_std: standard deviation of normal noise, in the data's units.
        method: how rows are cleaned.
        value: what to write: mode (likeliest states, of real units means) or mean.
        clean: clean rows for the start and the baselines, as the training set.
        corrupt: DATA is clean: add the noise first, and say what was removed.
        rows: only the first rows of DATA.
        sweeps: sweeps of every chain; the most that tap, adatap and relaxed_bp take.
        chains: chains of every row with --method gibbs.
        neighbours: rows that --method neighbours averages.
    """
    if (flip_probability is None) == (noise_std is None):
        raise ValueError("flip_probability, noise_std: expected one of the two")
    check_target(out, "out", (".npy", ".png"), overwrite)
    coding, source = run.load()
    machine, (_, shape) = coding.machine, source_of(coding.machine)
    if out.suffix.lower() == ".png" and not shape:
        raise ValueError("out: expected a .npy file for data without an image shape, received .png")
    refuse_label(coding, "denoise")
    seen = _states(coding, noisy)
    seen = seen[:rows]
    known = None if clean is None else _states(coding, clean)
    encoder = coding.encoder
    deviation = None if noise_std is None else noise_in_states(noise_std, encoder)
    generator = as_generator(seed, machine.device)
    truth, layer = seen, machine.layers[machine.visible[0]]
    if corrupt:
        layer.check(truth, "X")
        channel = channel_of(flip_probability, deviation)
        channel.check(layer, truth)
        seen = channel.corrupt(layer, truth, generator)
    with working(f"denoising {len(seen)} rows"):
        found = denoise_rows(
            machine, seen, flip_probability, noise_std=deviation, method=method, clean=known,
            sweeps=sweeps, chains=chains, neighbours=neighbours, seed=generator,
        )  # fmt: skip
    cleaned = encoder.decode((found.mode if value == "mode" else found.mean).cpu().numpy())
    if out.suffix.lower() == ".png":
        panels = {
            "given": images_of(coding, seen),
            **({"truth": images_of(coding, truth)} if corrupt else {}),
            "result": cleaned,
        }
        limits = data_range(coding, None if known is None else images_of(coding, known))
        what = "likeliest states" if value == "mode" else mean_word(machine)
        noise = (
            f"normal noise of deviation {noise_std:g}"
            if flip_probability is None
            else f"{flip_probability:.0%} of the units flipped"
        )
        title = f"{noise[0].upper()}{noise[1:]}; the result is {what} by {method}{in_words(limits)}"
        image_panels(panels, shape, out, title=title, columns=columns, limits=limits)
    else:
        write_rows(out, cleaned, shape, columns)
    result: dict[str, Any] = {
        "machine": source,
        "file": out,
        "rows": len(cleaned),
        "method": method,
        "value": value,
        "converged": float(found.converged.double().mean()),
    }
    if corrupt:
        for when, x in (("before", seen), ("after", found.mode)):
            if deviation is None:
                wrong = (layer.by_unit(x) != layer.by_unit(truth)).any(-1)
                result[f"wrong_{when}"] = float(wrong.double().mean())
            else:  # in the data's own units
                off = np.subtract(*(encoder.decode(each.cpu().numpy()) for each in (x, truth)))
                result[f"mean_square_error_{when}"] = float(np.square(off).mean(dtype=np.float64))
    if not bool(found.converged.all()):
        result["notes"] = ["converged: some rows still moved after the sweeps allowed; more --sweeps help"]
    return result


def _states(coding: Codec, source: str) -> Tensor:
    rows = rows_of(coding, coding.read(source), beyond="line")
    return rows.take(torch.arange(len(rows))).to(coding.machine.device)
