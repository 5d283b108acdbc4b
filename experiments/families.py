"""Families of sequences: Potts machines and RBMs on RNA (RF00379) and proteins (PF00072).

    python experiments/families.py                                  # all that is missing
    python experiments/families.py --part rf00379 --machine potts
    nice -n 19 python experiments/families.py --part pf00072

The data are looked for in $HARMONIUM_DATA and ../shared/data: `rf00379/split.npz`, `pf00072/train.fasta.gz`,
`test.fasta.gz` and `distances.dat.gz`. Rows are weighed by similarity (80 %), each part by itself.

Measured of every machine: its training; ln p a site by annealing with data; Pearson's correlation of the
connected correlations f_ij(a, b) - f_i(a) f_j(b), i < j, of 10,000 samples with those of the rows; the same
while chains come from noise; how far samples are from the nearest training row, beside the rows held out;
and on PF00072 the share of contacts (below 8 Å, |i - j| > 4) among the strongest pairs, beside the peers'.

"pseudo" is a Potts machine by pseudo-likelihood, for its contacts: ℓ₂ of 0.01 times the sum of the squares of
all couplings, as plmDCA has it (Ekeberg et al. 2013), whose scores the peers' are.

Everything is kept in --out as soon as it is there, and training in --runs every few updates: a repeated
command goes on. CPU seconds are of one thread.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from ucd_common import figure

import harmonium as hm

PARTS, MACHINES = ("rf00379", "pf00072"), ("potts", "rbm", "pseudo")
STAGES = 20  # of a training, after each of which its seconds are written down
SAMPLES, SWEEPS = 10_000, (1, 2, 5, 10, 20, 50, 100, 200)
FEW, TEMPERATURES = 5000, (2000, 500)  # rows, and the temperatures of annealing with at most so many, or more
NEIGHBOURS = 1000  # samples, and rows held out, whose nearest training row is looked for
CONTACT, APART, PAIRS = 8.0, 4, (200, 400, 500, 700)
RECIPES: dict[tuple[str, str], dict[str, Any]] = {
    ("rf00379", "potts"): {
        "updates": 700, "batch_size": 1 << 20, "learning_rate": 0.05, "averaging": 0.98, "weight_decay": 0.01,
        "sweeps": 1, "chains": 2000,
    },
    ("rf00379", "rbm"): {
        "updates": 4000, "batch_size": 500, "learning_rate": 0.05, "averaging": 0.99, "weight_decay": 0.001,
        "sweeps": 5, "chains": 500, "hidden": 200,
    },
    ("pf00072", "potts"): {
        "updates": 600, "batch_size": 1000, "learning_rate": 0.1, "averaging": 0.98, "weight_decay": 0.005,
        "sweeps": 1, "chains": 1000,
    },
    ("pf00072", "rbm"): {
        "updates": 6000, "batch_size": 500, "learning_rate": 0.05, "averaging": 0.99, "weight_decay": 0.001,
        "sweeps": 5, "chains": 500, "hidden": 200,
    },
    ("pf00072", "pseudo"): {
        "updates": 1940, "batch_size": 500, "learning_rate": 0.1, "averaging": 0.995, "weight_decay": 0.02,
    },
}  # fmt: skip


@dataclass
class Rows:
    """Aligned sequences of one part, with their weights.

    Attributes:
        codes: (rows, sites).
        weights: (rows,), float64.
        states: number of letters.
    """

    codes: Tensor
    weights: Tensor
    states: int

    @property
    def one_hot(self) -> Tensor:
        """(rows, sites · states), float32."""
        return hm.Categorical(self.codes.shape[1], self.states).from_digits(self.codes).float()


def folder() -> Path:
    return Path(os.environ.get("HARMONIUM_DATA", "../shared/data"))


def read(part: str) -> tuple[Rows, Rows]:
    """The rows to learn from, and those held out."""
    if part == "rf00379":
        split = np.load(folder() / "rf00379" / "split.npz")
        return (
            Rows(torch.tensor(split["train"]), torch.tensor(split["train_weights"]), 5),
            Rows(torch.tensor(split["validation"]), torch.tensor(split["validation_weights"]), 5),
        )
    found = []
    for name in ("train", "test"):
        codes = hm.sequences.read_alignment(folder() / part / f"{name}.fasta.gz", alphabet="protein").codes
        found.append(Rows(torch.from_numpy(codes), hm.sequences.similarity_weights(codes, 0.8), 21))
    return found[0], found[1]


def build(rows: Rows, hidden: int | None) -> hm.BoltzmannMachine:
    """A machine that begins at independent columns."""
    sites = hm.Categorical(rows.codes.shape[1], rows.states)
    if hidden is None:
        machine = hm.BoltzmannMachine([sites], {(0, 0): hm.Dense()}, [0], seed=None)
    else:
        machine = hm.BoltzmannMachine([sites, hm.Bernoulli(hidden)], seed=0)
    hm.machine.init_visible_biases_(machine, rows.one_hot, rows.weights)
    return machine


def fit(
    rows: Rows, recipe: dict[str, Any], run_dir: Path, done: dict[str, Any], keep: Callable[[], None]
) -> None:
    """Trains a stage at a time, from the last checkpoint on; keeps the CPU seconds of each."""
    recipe = dict(recipe)
    rule = hm.rules.pseudo_likelihood()
    if "sweeps" in recipe:
        rule = hm.rules.pcd(recipe.pop("sweeps"), chains=recipe.pop("chains"))
    machine, updates = build(rows, recipe.pop("hidden", None)), recipe.pop("updates")
    X = rows.one_hot
    spent = done.setdefault("train", {"cpu_seconds": 0.0, "updates": 0})
    for stage in range(1, STAGES + 1):
        goal = updates * stage // STAGES
        if spent["updates"] >= goal:
            continue
        began = time.process_time()
        hm.train(
            machine, X, rule=rule, weights=rows.weights, updates=goal, run_dir=run_dir, resume=True,
            checkpoint_every=goal, seed=0, progress=False, **recipe,
        )  # fmt: skip
        spent |= {"cpu_seconds": spent["cpu_seconds"] + time.process_time() - began, "updates": goal}
        keep()


def covariances(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """Connected correlations, (width, width) float64."""
    share = torch.full((len(x),), 1 / len(x)) if weights is None else (weights / weights.sum()).float()
    mean = share @ x
    return ((x * share.unsqueeze(1)).t() @ x).double() - mean.double().outer(mean.double())


def pearson(a: Tensor, b: Tensor, states: int) -> float:
    """Pearson's correlation over pairs of sites i < j and their letters."""
    site = torch.arange(len(a)) // states
    pairs = site.unsqueeze(1) < site
    return float(torch.corrcoef(torch.stack([a[pairs], b[pairs]]))[0, 1])


def likelihoods(machine: hm.BoltzmannMachine, train: Rows, held: Rows) -> dict[str, Any]:
    """Weighted mean ln p a site, of both parts, and the bounds of ln Z a site."""
    sites = train.codes.shape[1]
    temperatures = TEMPERATURES[len(train.codes) > FEW]
    z = hm.likelihood.ais(machine, 100, temperatures, data=train.one_hot, weights=train.weights, seed=1)

    def mean(rows: Rows) -> float:
        each = hm.likelihood.log_likelihood(machine, rows.one_hot, z)
        return float((each * rows.weights).sum() / rows.weights.sum()) / sites

    bounds = [(edge - z.value) / sites for edge in (z.lower, z.upper)]
    return {"train": mean(train), "held_out": mean(held), "log_partition_bounds_a_site": bounds, "ess": z.ess}


def from_noise(machine: hm.BoltzmannMachine, train: Rows, held: Rows, out: Path) -> dict[str, Any]:
    """Pearson's correlation with both parts, sweep by sweep from noise; keeps the last states."""
    known = [covariances(rows.one_hot, rows.weights) for rows in (train, held)]
    states, curve, before = machine.random_states(SAMPLES, seed=2), [], 0
    for sweeps in SWEEPS:
        states = hm.chains.run(machine, hm.chains.Gibbs(), states, sweeps - before, seed=1000 + sweeps)
        own, before = covariances(states[0].float()), sweeps
        curve.append([sweeps, *(pearson(own, each, train.states) for each in known)])
    codes = states[0].view(SAMPLES, -1, train.states).argmax(-1).to(torch.int8)
    np.save(out, codes.numpy())
    data = pearson(known[0], known[1], train.states)
    return {"train": curve[-1][1], "held_out": curve[-1][2], "train_and_held_out": data, "curve": curve}


def nearest(train: Rows, held: Rows, samples: Path) -> dict[str, Any]:
    """Median share of sites in which rows differ from the nearest training row."""
    others, X = {"samples": torch.from_numpy(np.load(samples)), "held_out": held.codes}, train.one_hot
    found = {}
    for name, codes in others.items():
        x = Rows(codes[torch.linspace(0, len(codes) - 1, NEIGHBOURS).long()], train.weights, train.states)
        alike = torch.cat([(part @ X.t()).max(1).values for part in x.one_hot.split(100)])
        found[name] = float((1 - alike / codes.shape[1]).median())
    return {**found, "ratio": found["samples"] / found["held_out"]}


def precision(machine: hm.BoltzmannMachine, picture: Path) -> dict[str, Any]:
    """Share of contacts among the strongest pairs, of the machine and of the peers' scores; draws the map."""
    with gzip.open(folder() / "pf00072" / "distances.dat.gz", "rt") as file:
        near = {(int(float(i)), int(float(j))): float(d) < CONTACT for i, j, _, d in map(str.split, file)}
    with gzip.open(folder() / "pf00072" / "plmdca_scores.txt.gz", "rt") as file:
        theirs = {(int(i), int(j)): float(score) for i, j, score in map(str.split, file)}
    scores = hm.tasks.contacts(machine)
    ours = {(i + 1, j + 1): float(scores[i, j]) for i in range(len(scores)) for j in range(i)}
    _draw(ours, near, picture)
    return {"ours": _shares(ours, near), "theirs": _shares(theirs, near)}


def _draw(scores: dict[tuple[int, int], float], near: dict[tuple[int, int], bool], path: Path) -> None:
    """The strongest pairs below the diagonal, true contacts above it."""
    made, axes = figure(1)
    strongest = sorted((p for p in scores if abs(p[0] - p[1]) > APART), key=lambda p: -scores[p])[: PAIRS[1]]
    true = [(min(p), max(p)) for p, is_near in near.items() if is_near and abs(p[0] - p[1]) > APART]
    axes[0, 0].plot(*zip(*true, strict=True), "s", ms=1.5, color="0.5", label="below 8 Å")
    axes[0, 0].plot(*zip(*[(max(p), min(p)) for p in strongest], strict=True), "s", ms=1.5, label="machine")
    axes[0, 0].set(xlabel="site", ylabel="site", aspect="equal")
    axes[0, 0].legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1), ncol=2)
    made.savefig(path, dpi=90)


def _shares(scores: dict[tuple[int, int], float], near: dict[tuple[int, int], bool]) -> dict[str, float]:
    pairs = {(min(p), max(p)): s for p, s in scores.items() if abs(p[0] - p[1]) > APART}
    known = {(min(p), max(p)): is_near for p, is_near in near.items()}
    order = [p for p in sorted(pairs, key=lambda p: -pairs[p]) if p in known]
    return {str(n): sum(known[p] for p in order[:n]) / n for n in PAIRS if n <= len(order)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, nargs="+", default=PARTS)
    parser.add_argument("--machine", choices=MACHINES, nargs="+", default=MACHINES)
    parser.add_argument("--out", type=Path, default=Path("runs/families.json"))
    parser.add_argument("--runs", type=Path, default=Path("runs/families"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}

    def keep() -> None:
        given.out.write_text(json.dumps(record, indent=1) + "\n")

    for part in given.part:
        rows: Iterable[Rows] | None = None
        for name in given.machine:
            if (part, name) not in RECIPES:
                continue
            recipe, run_dir = RECIPES[part, name], given.runs / part / name
            done = record.setdefault(f"{part} {name}", {"recipe": recipe})
            if done["recipe"] != recipe:
                raise SystemExit(f"{given.out}: {part} {name} has another recipe; remove it, and {run_dir}")
            train, held = rows = rows or read(part)
            run_dir.mkdir(parents=True, exist_ok=True)
            fit(train, recipe, run_dir, done, keep)
            machine, samples = hm.load(run_dir / "averaged.safetensors"), run_dir / "samples.npy"
            measures: dict[str, Callable[[], dict[str, Any]]] = {
                "pearson": partial(from_noise, machine, train, held, samples),
                "nearest": partial(nearest, train, held, samples),
                "log_likelihood": partial(likelihoods, machine, train, held),
            }
            if name == "pseudo":  # whose samples are not looked at
                measures = {}
            if part == "pf00072":
                measures["contacts"] = partial(precision, machine, run_dir / "contacts.png")
            for measure, measured in measures.items():
                if measure in done:
                    continue
                began = time.process_time()
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    found = measured()
                remarks = [str(each.message) for each in caught]
                done[measure] = {**found, "cpu_seconds": time.process_time() - began, "warnings": remarks}
                keep()
            print(part, name, json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
