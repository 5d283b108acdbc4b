"""What the experiments on unbiased contrastive divergence share."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import harmonium as hm
from harmonium.coupled import CommonNoise, Gibbs, Maximal

PUBLISHED_PAIRS = Gibbs(Maximal(common_noise=True), CommonNoise())  # Alg. 3 of Qiu et al. 2020


def parser(
    description: str | None, name: str, budgets: Iterable[str] = ("quick", "paper")
) -> argparse.ArgumentParser:
    """A parser with the options that every experiment has."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--budget", choices=list(budgets), default="quick")
    made.add_argument("--out", type=Path, default=Path("runs") / name)
    made.add_argument("--threads", type=int, default=1)
    return made


def normal_machine(visible: int, hidden: int, std: float, generator: torch.Generator) -> hm.BoltzmannMachine:
    """0/1 units with every weight and bias drawn from N(0, std²)."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(visible), hm.Bernoulli(hidden)])
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.copy_(std * torch.randn(parameter.shape, generator=generator))
    return machine


def figure(columns: int, rows: int = 1) -> tuple[Figure, Any]:
    """An empty figure and its axes, rows by columns."""
    made = Figure(figsize=(4.6 * columns, 3.6 * rows), layout="constrained")
    FigureCanvasAgg(made)
    return made, made.subplots(rows, columns, squeeze=False)


def earlier(out: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The results of an earlier call with the same settings: a repeated command runs what is missing."""
    path = out / "result.json"
    record = json.loads(path.read_text()) if path.exists() else {}
    return dict(record["results"]) if all(record.get(key) == settings[key] for key in settings) else {}


def write(out: Path, record: dict[str, Any], picture: Figure) -> None:
    """The record as result.json and the picture as result.png."""
    out.mkdir(parents=True, exist_ok=True)
    versions = {
        "harmonium": hm.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    (out / "result.json").write_text(json.dumps({**record, "versions": versions}, indent=1) + "\n")
    picture.savefig(out / "result.png", dpi=90)
    print(f"written to {out}: result.json, result.png")
