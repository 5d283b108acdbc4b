"""What ``harmonium train`` makes of images, spins and sequences by its defaults alone, and how good that is.

    python experiments/first_command.py                          # all that is missing
    python experiments/first_command.py --case fashion --seeds 1
    python experiments/first_command.py --updates 1500 --seeds 5  # the first updates, where runs diverge

Every case is one command, with a seed, and ``harmonium evaluate`` on rows that it has not seen. Kept are the
learning rate and the number of updates that it chose, CPU seconds of training, one thread, ln p a row in nats
with the interval of ln Z, that of independent columns, and how often training began anew.

The settings were chosen on MNIST and Fashion-MNIST. Data are looked for in $HARMONIUM_DATA and
../shared/data; Fashion-MNIST where ``hm.data.read`` finds it. Runs lie in --runs, records in --out as soon as
they are there: a repeated command goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import harmonium as hm

SHARED = Path(os.environ.get("HARMONIUM_DATA", "../shared/data"))
HELD_OUT = 0.2  # of the rows, where the data have no test set
INDEPENDENT = "independent_columns_log_likelihood"
LATTICE, BETA, SPINS, SWEEPS = 10, 0.42, 4000, 1000


class Case(NamedTuple):
    """A command: the options of ``harmonium train``, the data, and rows to judge by.

    Data are names that the command knows, or an array or alignment that is split and written to files.
    """

    options: tuple[str, ...]
    train: str | Callable[[], Any]
    test: str = ""


def photographs() -> np.ndarray:
    """Returns 4,000 colour images, (rows, 3072) bytes."""
    found = np.load(SHARED / "cifar10" / "cifar10-first-4000.npz")
    images = next(found[name] for name in found.files if found[name].ndim > 1)
    return images.reshape(len(images), -1)


def digits() -> np.ndarray:
    return np.asarray(hm.data.read("digits").samples)


def lattice() -> np.ndarray:
    """Returns states of a periodic Ising lattice below its critical β, (rows, sites), by Gibbs sweeps."""
    random = np.random.default_rng(0)
    x = random.choice([-1, 1], size=(SPINS, LATTICE, LATTICE)).astype(np.int8)
    colour = np.add.outer(np.arange(LATTICE), np.arange(LATTICE)) % 2
    for half in range(2 * SWEEPS):
        field = sum(np.roll(x, shift, axis) for shift in (1, -1) for axis in (1, 2))
        up = random.random(x.shape) < 1 / (1 + np.exp(-2 * BETA * field))
        x = np.where(colour == half % 2, np.where(up, 1, -1), x).astype(np.int8)
    return x.reshape(SPINS, -1)


def rna() -> tuple[str, str]:
    """Returns RF00379 in two parts, as FASTA."""
    found = np.load(SHARED / "rf00379" / "split.npz")
    letters = np.array(list(str(found["alphabet"])))
    parts = (["".join(row) for row in letters[found[name]]] for name in ("train", "validation"))
    train, test = ("".join(f">{i}\n{row}\n" for i, row in enumerate(part)) for part in parts)
    return train, test


THRESHOLD = ("--binarise", "threshold")
CASES = {
    "fashion": Case((*THRESHOLD, "--hidden", "500"), "fashion-mnist", "fashion-mnist-test"),
    "mnist": Case((*THRESHOLD, "--hidden", "500"), "mnist", "mnist-test"),
    "digits": Case(THRESHOLD, digits),
    "rf00379": Case((), rna),
    "spins": Case(("--visible", "spin"), lattice),
    "photographs": Case((*THRESHOLD, "--hidden", "500"), photographs),
}


def files_of(case: Case, folder: Path) -> tuple[str, str]:
    """Returns training and test data as the command takes them, written where they have no name."""
    if isinstance(case.train, str):
        return case.train, case.test
    folder.mkdir(parents=True, exist_ok=True)
    ending = "fasta" if case.train is rna else "npy"
    paths = [folder / f"{part}.{ending}" for part in ("train", "test")]
    if not all(path.exists() for path in paths):
        made = case.train()
        if case.train is rna:
            for path, text in zip(paths, made, strict=True):
                path.write_text(text)
        else:
            made = np.random.default_rng(0).permutation(made)
            held = round(HELD_OUT * len(made))
            for path, part in zip(paths, (made[held:], made[:held]), strict=True):
                np.save(path, part)
    return str(paths[0]), str(paths[1])


def call(*arguments: Any) -> tuple[dict[str, Any], float, str]:
    """Runs the command on one thread; returns its result, its CPU seconds and what it said."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = [sys.executable, "-m", "harmonium", *map(str, arguments), "--threads", "1", "--json"]
    done = subprocess.run(told, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout) if done.returncode == 0 else {}, round(seconds, 1), done.stderr


def run(name: str, seed: int, updates: int | None, runs: Path) -> dict[str, Any]:
    """Trains and evaluates one case with one seed."""
    case, folder = CASES[name], runs / f"{name}-{seed}"
    train, test = files_of(case, runs / "data" / name)
    record: dict[str, Any] = {"case": name, "seed": seed, "reduced": updates is not None}
    length = () if updates is None else ("--updates", updates, "--schedule", "constant")
    found, seconds, told = call(
        "train",
        train,
        folder,
        *case.options,
        *length,
        "--seed",
        seed,
        "--overwrite",
        "--checkpoint-every",
        1 << 30,
    )
    record |= {"begun_anew": told.count("begins anew"), "cpu_seconds": seconds}
    if not found:
        return record | {"status": told.strip().splitlines()[-1]}
    config = tomllib.loads((folder / "run.toml").read_text())["run"]
    record |= {"status": found["status"], "rate": config["learning_rate"], "updates": found["updates"]}
    judged, _, told = call("evaluate", folder, test)
    return record | (judge(judged) if judged else {"status": told.strip().splitlines()[-1]})


def judge(found: dict[str, Any]) -> dict[str, Any]:
    """Returns ln p of the rows held out, with the interval of ln Z and that of independent columns."""
    (row,) = found["results"]
    names = ("log_likelihood", "log_likelihood_lower", "log_likelihood_upper", INDEPENDENT)
    return {name: None if row.get(name) is None else round(row[name], 2) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=CASES, action="append", help="repeatable; all if not given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, help="as many at the first rate, to see whether it holds")
    parser.add_argument("--runs", type=Path, default=Path("runs/first_command"))
    parser.add_argument("--out", type=Path, default=Path("experiments/results/first_command.jsonl"))
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    lines = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    done = {(each["case"], each["seed"], each["reduced"]) for each in map(json.loads, lines)}
    for name in arguments.case or CASES:
        for seed in range(arguments.seeds):
            if (name, seed, arguments.updates is not None) not in done:
                record = run(name, seed, arguments.updates, arguments.runs)
                with arguments.out.open("a") as file:
                    print(json.dumps(record), file=file, flush=True)
                print(*record.values(), flush=True)


if __name__ == "__main__":
    main()
