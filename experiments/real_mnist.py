"""Grey MNIST with truncated Gauss-Bernoulli pixels, as in Tramel et al. (2018), Fig. 4.

    python experiments/real_mnist.py --budget quick   # a reduced experiment: 5000 images
    python experiments/real_mnist.py --budget paper   # all 60,000 images

Pixels in [0, 1] are 0 or follow a truncated Gaussian distribution. The RBM learns for 100 epochs; the paper
shows fields like strokes and gives no numbers. Checked here: training does not diverge, samples and TAP
solutions lie in [0, 1], and the fields are local, by the share of pixels that carry half of a field's square.

MNIST is read from $HARMONIUM_DATA. A JSON record and a picture of samples and fields go to --out.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import matplotlib
import numpy as np
import torch
from torch import Tensor

import harmonium as hm

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BUDGETS = {
    "quick": {"images": 5_000, "epochs": 100, "hidden": 100},
    "paper": {"images": 60_000, "epochs": 100, "hidden": 100},
}


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--budget", choices=sorted(BUDGETS), default="quick")
    parser.add_argument("--rule", default="pcd", help="pcd, or another recipe such as tap")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--out", type=Path, default=None, help="default: runs/real_mnist_BUDGET")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    budget = BUDGETS[arguments.budget]
    out = arguments.out or Path("runs") / f"real_mnist_{arguments.budget}"

    images = np.asarray(hm.data.read("mnist").samples)[: budget["images"]]
    X = torch.from_numpy(images.astype(np.float32) / 255)
    test = torch.from_numpy(np.asarray(hm.data.read("mnist-test").samples)[:1000].astype(np.float32) / 255)
    machine = hm.BoltzmannMachine(
        [hm.TruncatedGaussBernoulli(784, 0.0, 1.0), hm.Bernoulli(budget["hidden"])], seed=arguments.seed
    )
    hm.machine.init_visible_biases_(machine, hm.data.Rows.of(X))
    before = log_likelihood(machine, X[:1000], test)
    started = time.process_time()
    run = hm.train(
        machine,
        X,
        rule=hm.rules.centred(hm.rules.pcd(1, chains=100))
        if arguments.rule == "pcd"
        else recipe(arguments.rule),
        epochs=budget["epochs"],
        batch_size=100,
        learning_rate=arguments.learning_rate,
        schedule="linear",
        clip_norm=10.0,
        seed=arguments.seed,
        run_dir=out,
        resume=True,
    )
    seconds = time.process_time() - started
    if run.status != "completed":
        raise SystemExit(f"{run.status} after {run.updates} updates; the same command continues")
    machine = run.machine
    generator = torch.Generator().manual_seed(arguments.seed)
    samples = hm.chains.run(machine, hm.chains.Gibbs(), X[:100], 500, seed=generator)[0]
    solution = hm.meanfield.tap(machine, X[:100], damping=0.5, max_sweeps=300)
    fields = machine.couplings[0].weight.detach().t()
    norms = [record["gradient_norm"] for record in run.history]
    record = {
        "experiment": "grey MNIST, truncated Gauss-Bernoulli pixels, PCD-1",
        "settings": {
            **budget,
            "rule": arguments.rule,
            "learning_rate": arguments.learning_rate,
            "batch": 100,
        },
        "budget": arguments.budget,
        "reduced": arguments.budget != "paper",
        "updates": run.updates,
        "training_cpu_seconds": seconds,
        "largest_gradient_norm": max(norms),
        "last_gradient_norm": norms[-1],
        "log_likelihood_before": before,
        "log_likelihood_after": log_likelihood(machine, X[:1000], test),
        "samples_within": [float(samples.min()), float(samples.max())],
        "samples_zero": float((samples == 0).double().mean()),
        "data_zero": float((X == 0).double().mean()),
        "tap_within": [float(solution.means[0].min()), float(solution.means[0].max())],
        "tap_converged": float(solution.converged.double().mean()),
        "pixels_of_half_a_field": locality(fields),
        "pixels_of_half_a_random_field": locality(torch.randn(fields.shape, generator=generator)),
        "seed": arguments.seed,
        "versions": {"harmonium": hm.__version__, "torch": torch.__version__},
    }
    (out / "result.json").write_text(json.dumps(record, indent=2) + "\n")
    draw(samples, fields, out / "real_mnist.png")
    print(json.dumps(record, indent=2))
    if record["reduced"]:
        print("a reduced experiment: 5000 of the 60,000 images")


def recipe(name: str) -> hm.learning.Rule:
    made: hm.learning.Rule = hm.rules.RECIPES[name]()
    return made


def log_likelihood(machine: hm.BoltzmannMachine, *sets: Tensor) -> dict[str, float]:
    """By annealed importance sampling, in nats: a density on the interval and a probability at zero."""
    partition = hm.likelihood.ais(machine, 20, 500, data=sets[0], reverse=False, seed=1)
    means = [float(hm.likelihood.log_likelihood(machine, X, partition).mean()) for X in sets]
    names = ("train", "test")
    return {**dict(zip(names, means, strict=True)), "log_partition_standard_error": partition.standard_error}


def locality(fields: Tensor) -> float:
    """The mean share of pixels that carry half of a field's square: small for strokes."""
    squares = fields.square().sort(-1, descending=True).values
    half = squares.cumsum(-1) < squares.sum(-1, keepdim=True) / 2
    return float(half.double().mean())


def draw(samples: Tensor, fields: Tensor, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.4))
    order = fields.square().sum(-1).argsort(descending=True)
    for axis, x, title, scale in (
        (
            axes[0],
            samples[:64],
            "states of chains after 500 sweeps from data",
            {"cmap": "gray_r", "vmin": 0, "vmax": 1},
        ),
        (axes[1], fields[order[:64]], "fields, by their norm", {"cmap": "RdBu", "vmin": -1, "vmax": 1}),
    ):
        grid = torch.cat([torch.cat(list(row.view(-1, 28, 28)), 1) for row in x.view(8, 8, 784)])
        axis.imshow(grid / (grid.abs().max() if "RdBu" in scale.values() else 1.0), **scale)
        axis.set_title(title, fontsize=9)
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    main()
