"""Digits from noise: Gaussian-Bernoulli machines on MNIST, one a sampler (Liao et al. 2022, Figs. 2-4).

    python experiments/mnist_grbm.py --budget quick                  # a reduced experiment on one core
    python experiments/mnist_grbm.py --budget paper --device cuda    # the paper's size, for a GPU
    python experiments/mnist_grbm.py --only gibbs-langevin --hidden 2048 --sweeps 50 --inner 5   # ablation
    python experiments/mnist_grbm.py --budget paper --start published --only langevin-hot --updates 3000

The quick budget gives every sampler the same CPU seconds, --updates as many updates, which a busy machine
does not disturb. Machines learn by noise_cd and are sampled from noise with the same kernel and number of
sweeps. Published FIDs with the standard Inception network: Gibbs
47.53, Langevin 43.80, adjusted 41.24, Gibbs-Langevin 17.49, adjusted 19.27 (Table 1). Here the features are
those of a small classifier trained on the labels, so the two cannot be set beside each other.

The published program divides energies by the batch size B and not the noise: its Gaussian units are at
temperature B, and its steps are α₀/B times the mean variance. "langevin-hot" and "gibbs-langevin-hot" are
these; all others are at temperature 1. "--start published" is the program's: variances of 1 (--variance), W
from N(0, variance²/(N+M)), biases and means 0. At temperature B a chain from variances of 1 spreads over
√B deviations of the data until training has brought the variances down by B.

MNIST is read from $HARMONIUM_DATA or ../shared/data; --data takes any other labelled set of images.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from classifier_features import ClassifierFeatures, class_coverage, frechet_distance, kernel_distance

import harmonium as hm
from harmonium.chains import Gibbs, GibbsLangevin, Kernel, Langevin
from harmonium.report import (
    image_grid,
    nearest_neighbours,
)

PUBLISHED = {
    "gibbs": 47.53,
    "langevin": 43.80,
    "langevin-adjusted": 41.24,
    "gibbs-langevin": 17.49,
    "gibbs-langevin-metropolis": 19.27,
}
HOT = {
    "langevin-hot": "langevin",
    "gibbs-langevin-hot": "gibbs-langevin",
}  # as the published program has them
PUBLISHED_STEP = 20.0  # α₀ of its configuration for MNIST, before the division by B
DIAGNOSTICS = ("acceptance", "squared_jump")
BUDGETS = {
    "quick": {
        "hidden": 512,
        "sweeps": 20,
        "batch_size": 100,
        "seconds": 100.0,
        "epochs": None,
        "samples": 5000,
    },
    "paper": {
        "hidden": 4096,
        "sweeps": 100,
        "batch_size": 512,
        "seconds": None,
        "epochs": 3000,
        "samples": 10000,
    },
}


def kernels(step: float, inner: int, rows: int) -> dict[str, Kernel]:
    """By name; steps of Langevin are per unit, in units of the variance, but for those of the program."""
    hot: dict[str, Any] = {"temperature": float(rows), "variance": "mean"}
    return {
        "langevin-hot": Langevin(PUBLISHED_STEP / rows, adjust=None, anneal=True, **hot),
        "gibbs-langevin-hot": GibbsLangevin(PUBLISHED_STEP / rows, inner, "none", **hot),
        "gibbs": Gibbs(),
        "langevin": Langevin(step, adjust=None, anneal=True),
        "langevin-adjusted": Langevin(step, anneal=True),
        "gibbs-langevin": GibbsLangevin(step, inner, "none"),
        "gibbs-langevin-exact": GibbsLangevin(step, inner, "exact"),
        "gibbs-langevin-metropolis": GibbsLangevin(step, inner, "metropolis"),
    }


class Seconds:
    """Stops a run after so many seconds, of the process's CPU or by the wall, and notes the variances."""

    def __init__(self, seconds: float | None, device: str) -> None:
        self.clock = time.process_time if device == "cpu" else time.perf_counter
        self.seconds, self.started = seconds, self.clock()
        self.every = 1 if device == "cpu" else 20  # a GPU waits for every look
        self.variances: list[tuple[int, float, float, float]] = []

    def needs_update(self, step: int, total: int) -> bool:
        return step % 100 == 1 or (self.seconds is not None and step % self.every == 0)

    def __call__(self, update: hm.training.callbacks.Update) -> object:
        if update.step % 100 == 1:
            variance = 1 / update.machine.layers[0].natural()[1].detach()
            low, middle, high = variance.quantile(torch.tensor([0.05, 0.5, 0.95]).to(variance)).tolist()
            self.variances.append((update.step, low, middle, high))
        over = self.seconds is not None and self.clock() - self.started > self.seconds
        return hm.training.callbacks.STOP if over else None


@torch.no_grad()
def published_start_(machine: hm.BoltzmannMachine, seed: int, variance: float) -> None:
    """Couplings from N(0, variance²/(N+M)), all else 0 but the variances, as in the published program."""
    visible, hidden = machine.layers
    hm.machine.normal_(machine, variance * (visible.width + hidden.width) ** -0.5, seed)
    visible.fit_((torch.zeros(visible.width),), torch.full((visible.width,), variance))
    hidden.bias.zero_()


def name_of(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else device


def sample(
    machine: hm.BoltzmannMachine,
    kernel: Kernel,
    sweeps: int,
    rows: int,
    shape: tuple[int, ...],
    out: Path | None,
) -> torch.Tensor:
    """Visible means after the sweeps, from noise; a picture of ten chains on the way if ``out`` is given."""
    generator = torch.Generator(machine.device).manual_seed(1)
    v = machine.random_states(rows, seed=generator)[0]
    hamiltonian = machine.hamiltonian()
    kept = []

    def look(number: int, state: hm.chains.KernelState, info: hm.chains.Info) -> None:
        if number in {1, 2, 3, 5, 10, sweeps // 2, sweeps}:
            kept.append(hamiltonian.mean(0, hamiltonian.field(0, state.states))[:10].detach().cpu())

    states = hm.chains.run(machine, kernel, v, sweeps, seed=generator, observer=look)
    if out is not None:
        image_grid(torch.stack(kept, 1).flatten(0, 1), shape, len(kept), out)
    return hamiltonian.mean(0, hamiltonian.field(0, states)).detach()


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--budget", choices=sorted(BUDGETS), default="quick")
    parser.add_argument("--only", action="append", choices=sorted(kernels(0.1, 10, 1)), help="repeatable")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--sweeps", type=int)
    parser.add_argument("--samples", type=int, help="that are judged, in place of the budget's")
    parser.add_argument("--seconds", type=float, help="of each run, of CPU or on a GPU; overrides the budget")
    parser.add_argument("--updates", type=int, help="of each run, in place of CPU seconds or epochs")
    parser.add_argument("--rows", type=int, help="of a batch, in place of the budget's")
    parser.add_argument("--start", choices=("drawn", "published"), default="drawn")
    parser.add_argument("--variance", type=float, default=1.0, help="of the published start")
    parser.add_argument("--schedule", choices=("constant", "cosine"), help="default: cosine for epochs")
    parser.add_argument("--step", type=float, default=0.1)
    parser.add_argument("--inner", type=int, default=10)
    parser.add_argument("--optimizer", default=None, choices=("sgd", "adam"))
    parser.add_argument("--learning-rate", type=float, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=None, help="default: runs/mnist_grbm_BUDGET")
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    budget = dict(BUDGETS[arguments.budget])
    for name in ("hidden", "sweeps", "samples", "seconds"):
        if getattr(arguments, name) is not None:
            budget[name] = getattr(arguments, name)
    if arguments.rows is not None:
        budget["batch_size"] = arguments.rows
    if arguments.updates is not None:
        budget |= {"seconds": arguments.seconds, "epochs": None, "updates": arguments.updates}
    quick = arguments.budget == "quick"
    optimizer = arguments.optimizer or ("adam" if quick else "sgd")
    learning_rate = arguments.learning_rate or (0.001 if optimizer == "adam" else 0.01)
    schedule = arguments.schedule or ("cosine" if budget["epochs"] else "constant")
    out = arguments.out or Path("runs") / f"mnist_grbm_{arguments.budget}"
    out.mkdir(parents=True, exist_ok=True)

    data = hm.data.read(arguments.data)
    grey = np.asarray(data.samples, dtype=np.float32)
    grey = grey / 255 if grey.max() > 1 else grey
    mean, deviation = float(grey.mean()), float(grey.std())
    X = torch.from_numpy((grey - mean) / deviation)
    classifier = ClassifierFeatures.fit(grey, data.labels, image_shape=data.image_shape, seed=0)
    reference = grey[: 10 * budget["samples"]]

    def grey_levels(v: torch.Tensor) -> torch.Tensor:
        return (v.cpu() * deviation + mean).clamp(0, 1)  # as a picture shows them; the data lie in [0, 1]

    def quality(images: torch.Tensor) -> dict[str, float]:
        shown = grey_levels(images)
        coverage = class_coverage(shown, classifier)
        kernel, _ = kernel_distance(reference[:10_000], shown, classifier, subsets=20)
        return {
            "fid_classifier_features": frechet_distance(reference, shown, classifier),
            "kid_classifier_features": kernel,
            "classes_in_use": float((-(coverage * coverage.clamp(min=1e-12).log()).sum()).exp()),
            "nearest_neighbour_median": float(nearest_neighbours(shown[:500], grey).distances.median()),
        }

    records = {}
    for name in arguments.only or list(PUBLISHED):
        kernel = kernels(arguments.step, arguments.inner, budget["batch_size"])[name]
        machine = hm.BoltzmannMachine(
            [hm.Gaussian(X.shape[1]), hm.Bernoulli(budget["hidden"])], seed=arguments.seed
        )
        if arguments.start == "published":
            published_start_(machine, arguments.seed, arguments.variance)
        timer = Seconds(budget["seconds"], arguments.device)
        updates = None if budget["epochs"] else budget.get("updates", 1_000_000)
        run = hm.train(
            machine, X, rule=hm.rules.noise_cd(budget["sweeps"], kernel=kernel),
            epochs=budget["epochs"], updates=updates, batch_size=budget["batch_size"],
            optimizer=optimizer, learning_rate=learning_rate,
            schedule=schedule, clip_norm=10.0, averaging=0.99,
            seed=arguments.seed, device=arguments.device, callbacks=[timer], progress=False,
        ).whole()  # fmt: skip
        seconds, final = timer.clock() - timer.started, run.averaged_machine
        images = sample(
            final,
            kernel,
            budget["sweeps"],
            budget["samples"],
            data.image_shape,
            out / f"{name}_intermediate.png",
        )
        image_grid(grey_levels(images[:64]), data.image_shape, 16, out / f"{name}_samples.png")
        image_grid(
            final.couplings[0].weight.detach().cpu().t()[:64],
            data.image_shape,
            16,
            out / f"{name}_filters.png",
        )
        records[name] = {
            "kernel": repr(kernel), "updates": run.updates,
            "cpu_seconds" if arguments.device == "cpu" else "seconds": seconds,
            **quality(images), "published_fid": PUBLISHED.get(HOT.get(name, name)),
            "diagnostics": {key: run.history[-1][key] for key in DIAGNOSTICS if key in run.history[-1]},
            "variances": timer.variances[:: max(1, len(timer.variances) // 20)],
        }  # fmt: skip
        final.save(out / f"{name}.safetensors", overwrite=True)
        print(name, {key: value for key, value in records[name].items() if key != "variances"}, flush=True)
        record = {
            "experiment": f"Gaussian-Bernoulli machines on {arguments.data} by noise_cd",
            "reduced": quick or arguments.updates is not None or arguments.hidden is not None,
            "settings": {
                **budget, "optimizer": optimizer, "learning_rate": learning_rate, "step": arguments.step,
                "inner": arguments.inner, "seed": arguments.seed, "start": arguments.start,
                "variance": arguments.variance, "schedule": schedule, "data": arguments.data,
                "device": name_of(arguments.device),
            },
            "versions": {"harmonium": hm.__version__, "torch": torch.__version__,
                         "python": platform.python_version()},
            "samplers": records,
        }  # fmt: skip
        (out / "result.json").write_text(json.dumps(record, indent=2) + "\n")
    generator = torch.Generator().manual_seed(0)
    built_in = arguments.data in ("mnist", "fashion-mnist")
    held = hm.data.read(f"{arguments.data}-test") if built_in else data
    test = np.asarray(held.samples, dtype=np.float32)[: budget["samples"]]
    test = test / 255 if test.max() > 1 else test
    floor = quality(torch.from_numpy((test - mean) / deviation))
    noise = quality(torch.randn(budget["samples"], X.shape[1], generator=generator))
    (out / "result.json").write_text(
        json.dumps({**record, "test_images": floor, "noise": noise}, indent=2) + "\n"
    )
    print(f"{'sampler':28}{'updates':>8}{'FID*':>9}{'classes':>9}{'nearest':>9}{'published':>11}")
    for name, each in {**records, "test images": floor, "noise": noise}.items():
        print(
            f"{name:28}{each.get('updates', ''):>8}{each['fid_classifier_features']:9.2f}"
            f"{each['classes_in_use']:9.2f}{each['nearest_neighbour_median']:9.2f}"
            f"{each.get('published_fid') or '':>11}"
        )
    print("* FID (classifier features): not to be set beside the published figures")
    if quick:
        print("a reduced experiment: the published figures belong to 4096 hidden units and 3000 epochs")


if __name__ == "__main__":
    main()
