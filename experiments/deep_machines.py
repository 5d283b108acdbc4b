"""Deep machines by default, beside one hidden layer that takes as long.

    python experiments/deep_machines.py                               # all sets, three seeds
    python experiments/deep_machines.py --data mnist --seed 0 --layers deep

Each set is cut at half. The command is ``harmonium train DATA RUN --hidden 300,100`` without further options,
100,50 for the 8×8 digits. Beside it stands one layer of 300 (100) units whose updates take as long.
Both are judged on at most 500 rows that no training has seen: ln p, or bounds below it by mean field and by
annealing, with ln Z by 100 runs of AIS over 1,000 temperatures. CPU seconds are of one thread.

MNIST is read from $HARMONIUM_DATA, Fashion-MNIST from its Debian package.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import torch

import harmonium as hm
from harmonium.chains import Gibbs, run_kernel
from harmonium.cli.app import main as command
from harmonium.report import image_grid

HIDDEN = {"mnist": (300, 100), "fashion-mnist": (300, 100), "digits": (100, 50)}


def bits(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows of 0 and 1 to train on and to judge by."""
    if name == "digits":
        grey = np.asarray(hm.data.read(name).samples, np.float32)
        grey = grey[np.random.Generator(np.random.PCG64(0)).permutation(len(grey))]
        train, test = grey[:1297], grey[1297:]
    else:
        train, test = (np.asarray(hm.data.read(part).samples, np.float32) for part in (name, f"{name}-test"))
    return (train > train.max() / 2).astype(np.uint8), (test > train.max() / 2).astype(np.uint8)


def judge(
    machine: hm.BoltzmannMachine, train: np.ndarray, test: np.ndarray, grid: Path | None
) -> dict[str, Any]:
    """Returns bounds of ln p, and the variance of samples, 1,000 sweeps from noise, beside the data's."""
    known, rows = (torch.as_tensor(x, dtype=torch.float32) for x in (train[:10_000], test[:500]))
    partition = hm.likelihood.ais(machine, 100, 1000, data=known, seed=1)
    free, generator = machine.hamiltonian(), torch.Generator().manual_seed(2)
    state = Gibbs().init(free, machine.random_states(100, seed=generator), generator, 1000)
    state = run_kernel(free, Gibbs(), state, 1000, generator)
    drawn = state.states[0].float()
    if grid is not None:
        means = free.layers[0].moments(free.field(0, state.states), theta=free.thetas[0]).mean
        image_grid(means[:64], (28, 28), path=grid)
    found = {
        "nats": float(hm.likelihood.variational_bound(machine, rows, partition).mean()),
        "log_partition_bounds": [partition.lower - partition.value, partition.upper - partition.value],
        "variance": float(drawn.var(0).sum()),
        "variance_of_data": float(known.var(0).sum()),
    }
    if len(machine.hidden) > 1:
        found["annealed"] = float(hm.likelihood.annealed_bound(machine, rows[:200], partition).mean())
        found["variational"] = float(hm.likelihood.variational_bound(machine, rows[:200], partition).mean())
        found["norms"] = [float(torch.linalg.matrix_norm(c.weight.detach(), 2)) for c in machine.couplings]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", choices=list(HIDDEN), action="append")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--layers", choices=("deep", "one"), action="append")
    parser.add_argument("--updates", type=int, help="of one layer, in place of as many as take as long")
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of samples")
    parser.add_argument("--out", type=Path, default=Path("experiments/results/deep_machines.jsonl"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.data or HIDDEN:
        train, test = bits(name)
        for seed in arguments.seed or (0, 1, 2):
            seconds = 0.0
            for layers in arguments.layers or ("deep", "one"):
                hidden = HIDDEN[name] if layers == "deep" else HIDDEN[name][:1]
                with tempfile.TemporaryDirectory() as folder:
                    data, run = Path(folder, "train.npy"), Path(folder, "run")
                    np.save(data, train)
                    line = ["train", str(data), str(run), "--hidden", ",".join(map(str, hidden))]
                    line += ["--seed", str(seed), "--threads", "1", "--json"]

                    def trained(*more: str, line: list[str] = line) -> tuple[float, int]:
                        start = time.process_time()
                        status = command([*line, *more])
                        return time.process_time() - start, status

                    more: list[str] = []
                    if layers == "one":
                        updates = arguments.updates or 0
                        if not updates:  # what a start costs is in both of these
                            short, long = (trained("--updates", n, "--overwrite")[0] for n in ("500", "1500"))
                            updates = 500 + round((seconds - short) / (long - short) * 1000)
                        more = ["--updates", str(updates), "--overwrite"]
                    seconds, status = trained(*more)
                    machine = hm.load(run / "machine.safetensors")
                    config = tomllib.loads((run / "run.toml").read_text("utf-8"))["run"]
                grid = (
                    arguments.pictures
                    and arguments.pictures / f"{name}-{'-'.join(map(str, hidden))}-{seed}.png"
                )
                row = {
                    "data": name, "hidden": hidden, "seed": seed, "status": status, "cpu_seconds": seconds,
                    "updates": config["updates"], "learning_rate": config["learning_rate"],
                    **judge(machine, train, test, grid if name != "digits" else None),
                }  # fmt: skip
                print(json.dumps(row), flush=True)
                with arguments.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
