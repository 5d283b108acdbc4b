"""``harmonium denoise``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from torch import Tensor

from harmonium._settings import Setting
from harmonium.cli import options
from harmonium.cli.output import check_target, working
from harmonium.cli.rows_file import write_array
from harmonium.tables import Codec
from harmonium.tasks import DENOISE_METHODS, denoise as denoise_rows, noise_in_states

EXAMPLES = (
    "harmonium denoise runs/digits noisy.npy --flip-probability 0.1 --out clean.npy",
    "harmonium denoise runs/grey noisy.npy --noise-std 20 --method gibbs --out clean.npy",
)


def denoise(
    run: options.Trained,
    noisy: options.Data,
    out: Path,
    flip_probability: float | None = None,
    noise_std: float | None = None,
    method: Annotated[str, Setting(DENOISE_METHODS)] = "tap",
    clean: options.OtherData | None = None,
    sweeps: int = 200,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Estimate clean rows from noisy ones, with a machine as what is known of clean rows.

    Args:
        noisy: noisy rows.
        out: file for the likeliest clean rows, in the data's units: .npy.
        flip_probability: of every discrete unit, to be seen in another state.
        noise_std: standard deviation of normal noise, in the data's units.
        method: how rows are cleaned.
        clean: clean rows for the start and the baselines, as the training set.
        sweeps: sweeps of every chain; the most that tap, adatap and relaxed_bp take.
    """
    if (flip_probability is None) == (noise_std is None):
        raise ValueError("flip_probability, noise_std: expected one of the two")
    check_target(out, (".npy",), overwrite)
    coding, source = run.load()
    coding.require_generative("denoise", label=False)
    seen = _read(coding, noisy)
    known = None if clean is None else _read(coding, clean)
    deviation = None if noise_std is None else noise_in_states(noise_std, coding.encoder)
    with working(f"denoising {len(seen)} rows"):
        denoised = denoise_rows(
            coding.machine, seen, flip_probability, noise_std=deviation, method=method, clean=known,
            sweeps=sweeps, seed=seed,
        )  # fmt: skip
    rows = coding.decode(denoised.mode.nan_to_num())[0]  # in the units of the data
    write_array(out, rows if isinstance(rows, np.ndarray) else rows.numbers())
    notes = [] if bool(denoised.converged.all()) else ["converged: some rows still moved; more sweeps help"]
    return {"machine": source, "file": out, "rows": len(seen), "method": method, "notes": notes}


def _read(coding: Codec, source: str) -> Tensor:
    """Returns rows of data as states, (rows, visible width)."""
    return coding.observed_rows(coding.read(source), beyond="line").all().to(coding.machine.device)
