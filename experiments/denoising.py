"""Denoising binarised MNIST with an RBM as the prior: Figs. 8 and 9 of Tramel et al. (2018).

    python experiments/denoising.py --budget quick   # a reduced experiment, minutes
    python experiments/denoising.py --budget paper   # 100 epochs, 500 hidden units too

Pixels above 0.5 are 1. RBMs learn the training images; 1000 held-out test images then lose each bit with
probability p, and are estimated by TAP, by Gibbs chains, by independent pixels with the training means (the
pointwise estimate) and by the nearest training image. The measure is Matthews' correlation of the decided
pixels with the clean ones, averaged over images. Published without numbers: MCC 1 at p = 0, and RBMs of 25,
50 and 100 units always above the pointwise estimate.

MNIST is read from $HARMONIUM_DATA. A JSON record, the curves and pictures of one digit go to --out.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import fmean

import matplotlib
import numpy as np
import torch
from sklearn.metrics import matthews_corrcoef
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

import harmonium as hm
from harmonium.tasks import Denoised, SymmetricChannel, denoise

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BUDGETS = {
    "quick": {"hidden": (25, 50, 100), "epochs": 20},
    "quickest": {"hidden": (25, 50, 100), "epochs": 5},
    "paper": {"hidden": (25, 50, 100, 500), "epochs": 100},
}
FLIPS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
IMAGES = 1000
SHOWN = 3  # the digit of the pictures


def binary(name: str) -> Tensor:
    return torch.from_numpy((np.asarray(hm.data.read(name).samples) > 127).astype(np.float32))


def train(X: Tensor, hidden: int, epochs: int, rule: str, seed: int) -> tuple[hm.BoltzmannMachine, float]:
    machine = hm.BoltzmannMachine([hm.Bernoulli(784), hm.Bernoulli(hidden)], seed=seed)
    hm.machine.init_visible_biases_(machine, hm.data.Rows.of(X))
    recipe = hm.rules.centred(hm.rules.pcd(1, chains=100)) if rule == "pcd" else hm.rules.RECIPES[rule]()
    started = time.process_time()
    run = hm.train(
        machine, X, rule=recipe, epochs=epochs, batch_size=100, seed=seed,
        **({"learning_rate": 0.05, "schedule": "linear"} if rule == "pcd"
           else {"learning_rate": 0.005, "momentum": 0.5, "weight_decay": 0.001}),  # the paper's
    ).whole()  # fmt: skip
    return run.machine, time.process_time() - started


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--budget", choices=sorted(BUDGETS), default="quick")
    parser.add_argument("--rule", default="pcd", help="pcd, or another recipe such as tap")
    parser.add_argument("--chains", type=int, default=4, help="Gibbs chains of every image; 0: none")
    parser.add_argument(
        "--hidden", type=int, nargs="+", default=None, help="hidden units, the budget's by default"
    )
    parser.add_argument("--out", type=Path, default=None, help="default: runs/denoising_BUDGET")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    budget = BUDGETS[arguments.budget]
    out = arguments.out or Path("runs") / f"denoising_{arguments.budget}"
    out.mkdir(parents=True, exist_ok=True)

    X, test = binary("mnist"), binary("mnist-test")
    few = X[::6]  # whose means are all that is read of them
    chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(arguments.seed))[:IMAGES]
    clean = test[chosen]
    machines = {}
    seconds: dict[str, float] = {}
    sizes = arguments.hidden or list(budget["hidden"])
    for hidden in sizes:
        path = out / f"{arguments.rule}_{hidden}.safetensors"
        if path.exists():
            machines[hidden] = hm.load(path)
        else:
            trained, seconds[str(hidden)] = train(X, hidden, budget["epochs"], arguments.rule, arguments.seed)
            trained.save(path)
            machines[hidden] = trained
        print(f"{hidden} hidden units: trained", flush=True)

    widest = 100 if 100 in sizes else max(sizes)
    methods = {
        **{f"TAP, {hidden} hidden": (machines[hidden], {"method": "tap"}) for hidden in machines},
        f"Gibbs, {widest} hidden": (
            machines[widest],
            {"method": "gibbs", "chains": arguments.chains, "sweeps": 100},
        ),
        "pointwise": (machines[widest], {"method": "pointwise"}),
        "nearest neighbour": (machines[widest], {}),
    }
    if arguments.chains == 0:
        del methods[f"Gibbs, {widest} hidden"]

    curves: dict[str, list[float]] = {name: [] for name in methods}
    converged: dict[str, list[float]] = {name: [] for name in methods if name.startswith("TAP")}
    shown: dict[str, list[Tensor]] = {name: [] for name in ("noisy", *methods)}
    cpu: dict[str, float] = dict.fromkeys(methods, 0.0)
    for number, p in enumerate(FLIPS):
        generator = torch.Generator().manual_seed(1000 + number)
        noisy = SymmetricChannel(p).corrupt(machines[widest].layers[0], clean, generator)
        shown["noisy"].append(noisy[SHOWN])
        for name, (machine, settings) in methods.items():
            started = time.process_time()
            if name == "nearest neighbour":
                place = NearestNeighbors(n_neighbors=1).fit(X).kneighbors(noisy, return_distance=False)
                nearest = X[torch.from_numpy(place[:, 0])]
                found = Denoised(nearest, torch.zeros_like(nearest), nearest, torch.ones(len(nearest)))
            else:
                found = denoise(machine, noisy, p, clean=few, seed=arguments.seed, **settings)
            cpu[name] += time.process_time() - started
            curves[name].append(fmean(map(matthews_corrcoef, clean.numpy(), found.mode.numpy())))
            shown[name].append(found.mean[SHOWN])
            if name in converged:
                converged[name].append(float(found.converged.float().mean()))
        print(
            f"p = {p:.2f}: " + ", ".join(f"{name} {curve[-1]:.3f}" for name, curve in curves.items()),
            flush=True,
        )

    claims = judge(curves, f"TAP, {widest} hidden")
    record = {
        "experiment": "denoising of 1000 held-out binarised MNIST digits, mean MCC over images",
        "settings": {**budget, "rule": arguments.rule, "gibbs_chains": arguments.chains, "gibbs_sweeps": 100},
        "budget": arguments.budget,
        "reduced": arguments.budget != "paper",
        "flip_probability": FLIPS,
        "mcc": curves,
        "tap_converged": converged,
        "denoising_cpu_seconds": cpu,
        "training_cpu_seconds": seconds,
        "claims": claims,
        "seed": arguments.seed,
        "versions": {"harmonium": hm.__version__, "torch": torch.__version__},
    }
    (out / "result.json").write_text(json.dumps(record, indent=2) + "\n")
    draw(curves, shown, out / "denoising.png")
    for claim, holds in claims.items():
        print(f"{claim}: {'yes' if holds else 'NO'}")
    if record["reduced"]:
        print(f"a reduced experiment: {budget['epochs']} epochs in the place of 100, and no 500 hidden units")


def judge(curves: dict[str, list[float]], best: str) -> dict[str, bool]:
    """What is to be shown of the widest machine's TAP estimates."""

    def above(other: str, low: float, high: float) -> bool:
        pairs = zip(FLIPS, curves[best], curves[other], strict=True)
        return all(a > b for p, a, b in pairs if low < p <= high)

    return {
        "MCC is 1 at p = 0": abs(curves[best][0] - 1) < 1e-9,  # a correlation in floating point
        "above the pointwise estimate at p = 0.05 ... 0.45": above("pointwise", 0.0, 0.45),
        "above the nearest neighbour at 0 < p <= 0.25": above("nearest neighbour", 0.0, 0.25),
    }


def draw(curves: dict[str, list[float]], shown: dict[str, list[Tensor]], path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=(1, 1.25))
    styles = {"pointwise": "k--", "nearest neighbour": "k-"}
    for name, curve in curves.items():
        left.plot(FLIPS, curve, styles.get(name, "o-" if "TAP" in name else "s:"), label=name, markersize=3)
    left.set(xlabel="flip probability", ylabel="Matthews' correlation", ylim=(0, 1.02))
    left.legend(fontsize=7)
    rows = [torch.cat([image.view(28, 28) for image in images[::2]], 1) for images in shown.values()]
    right.imshow(torch.cat(rows), cmap="gray_r", vmin=0, vmax=1)
    right.set_yticks([14 + 28 * i for i in range(len(rows))], list(shown), fontsize=7)
    right.set_xticks(
        [14 + 28 * i for i in range(len(FLIPS[::2]))], [f"{p:g}" for p in FLIPS[::2]], fontsize=7
    )
    figure.tight_layout()
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    main()
