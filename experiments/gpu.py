"""All that a GPU has to show, in one command and one record.

    python experiments/gpu.py --device cuda                       # about nine minutes on one GPU
    python experiments/gpu.py --device cuda --only distributions --only likelihood
    python experiments/gpu.py --device cpu --budget tiny          # the same code in a minute, for trying
    python experiments/gpu.py --device pretend --budget tiny      # the same under the rules of CUDA, in six

In this order, or those that ``--only`` names: the tests of devices on the GPU; distributions, the GPU's
chains, rules and annealing against enumeration and against the CPU; launches, waits and seconds of an update
at 784 x 500 and 784 x 4096, in float32, tf32 and bf16; seconds to the likelihood of held-out digits by 784 x
500; the Gaussian machine of Liao et al. (2022), 784 x 4096 at batches of 512 and 100 sweeps, and a
784-1000-1000 deep machine, each trained for as long as the budget gives it, with pictures and FIDs in the
features of a small classifier (not the published Inception features).

A part that fails is recorded with its error, and the others go on. The record, gpu.json, has the GPU's name.
MNIST is read from $HARMONIUM_DATA or ../shared/data; --data takes any other labelled set of images.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from classifier_features import ClassifierFeatures, class_coverage, frechet_distance

import harmonium as hm
from harmonium.report import image_grid

BUDGETS: dict[str, dict[str, Any]] = {
    "full": {"tests": 120, "chains": 20_000, "repeats": 50, "grbm": 120, "deep": 60, "hidden": (500, 4096),
             "batch": 512, "sweeps": 100, "layers": (1000, 1000), "samples": 5000, "likelihood": 20_000},
    "tiny": {"tests": 0, "chains": 2000, "repeats": 2, "grbm": 6, "deep": 6, "hidden": (20, 40),
             "batch": 50, "sweeps": 10, "layers": (20, 20), "samples": 200, "likelihood": 250},
}  # fmt: skip
"""Seconds of tests and of training; chains of the distributions; timed updates; and the sizes of it all."""
PARTS = ("tests", "distributions", "updates", "likelihood", "gaussian", "deep")


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", choices=sorted(BUDGETS), default="full")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--only", action="append", choices=PARTS, help="one part; may be repeated")
    parser.add_argument("--out", type=Path, default=None, help="default: runs/gpu_BUDGET")
    arguments = parser.parse_args()
    with there(arguments.device) as device:
        measure(device, arguments)


def measure(device: torch.device, arguments: argparse.Namespace) -> None:
    """Every part in its turn; the record is written after each."""
    budget = BUDGETS[arguments.budget]
    out = arguments.out or Path("runs") / f"gpu_{arguments.budget}"
    out.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "budget": arguments.budget, "data": arguments.data,
        "versions": {"harmonium": hm.__version__, "torch": torch.__version__, "cuda": torch.version.cuda},
    }  # fmt: skip
    images = hm.data.read(arguments.data)
    grey = np.asarray(images.samples, dtype=np.float32)
    grey = grey / 255 if grey.max() > 1 else grey
    parts: dict[str, Callable[[], Any]] = {
        "tests": lambda: tests(device, budget),
        "distributions": lambda: distributions(device, budget),
        "updates": lambda: updates(device, budget, grey),
        "likelihood": lambda: likelihood(device, budget, grey),
        "gaussian": lambda: gaussian(device, budget, grey, images, out),
        "deep": lambda: deep(device, budget, grey, images, out),
    }
    for name in arguments.only or PARTS:
        part = parts[name]
        started = time.perf_counter()
        try:
            record[name] = part()
        except Exception:  # what a GPU is tried for: the rest is still worth having
            record[name] = {"error": traceback.format_exc().splitlines()[-8:]}
        record[f"{name}_seconds"] = round(time.perf_counter() - started, 1)
        print(name, json.dumps(record[name], indent=1), f"{record[f'{name}_seconds']} s", flush=True)
        (out / "gpu.json").write_text(json.dumps(record, indent=1) + "\n")


@contextmanager
def there(name: str) -> Iterator[torch.device]:
    """A device by its name; "pretend" is that of the tests."""
    if name != "pretend":
        yield torch.device(name)
        return
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from pretend_device import DEVICE, pretend_device

    with pretend_device():
        yield DEVICE


def tests(device: torch.device, budget: dict[str, Any]) -> Any:
    """The suite's tests of devices, on this one."""
    if not budget["tests"]:
        return "not asked for"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/implementation/test_devices.py",
    ]
    done = subprocess.run(
        command, env={**os.environ, "HARMONIUM_TEST_DEVICE": str(device)}, cwd=Path(__file__).parents[1],
        capture_output=True, text=True, timeout=budget["tests"], check=False,
    )  # fmt: skip
    return {"exit_code": done.returncode, "output": done.stdout.splitlines()[-40:]}


def distributions(device: torch.device, budget: dict[str, Any]) -> dict[str, float]:
    """The largest |z| of means and of gradients against enumeration: of a right device below 4 or so."""
    found = {}
    for where in {torch.device("cpu"), device}:
        for name, low in (("binary", hm.Bernoulli(8)), ("real", hm.Gaussian(4))):
            machine = hm.BoltzmannMachine([low, hm.Bernoulli(6)], seed=1)
            hm.machine.normal_(machine, 0.5, seed=1)
            exact = enumerated(machine)
            machine.to(where)
            kernels: dict[str, hm.chains.Kernel] = {
                "Gibbs": hm.chains.Gibbs(),
                "Tempering": hm.chains.Tempering(3),
            }
            if name == "real":
                kernels = {"Gibbs": hm.chains.Gibbs(), "Langevin": hm.chains.Langevin(0.2),
                           "GibbsLangevin": hm.chains.GibbsLangevin(0.2)}  # fmt: skip
            for each, kernel in kernels.items():
                start = machine.random_states(budget["chains"], seed=2)
                h = hm.chains.run(machine, kernel, start, 60, seed=3)[1].double()
                z = (h.mean(0).cpu() - exact) / (h.std(0).cpu() / len(h) ** 0.5)
                found[f"{where.type} {name} {each}"] = float(z.abs().max())
        machine = hm.BoltzmannMachine([hm.Bernoulli(8), hm.Bernoulli(6)], seed=1).to(where)
        hm.machine.normal_(machine, 0.5, seed=1)
        v, generator = machine.random_states(20, seed=4)[0], torch.Generator(where).manual_seed(5)
        true = hm.rules.exact().gradient(machine, v, seed=0).parameters["couplings.0.weight"]
        drawn = torch.stack([
            hm.rules.ucd(chains=budget["chains"] // 40).gradient(machine, v, seed=generator)
            .parameters["couplings.0.weight"] for _ in range(40)
        ]).double()  # fmt: skip
        z = (drawn.mean(0) - true) / (drawn.std(0) / len(drawn) ** 0.5)
        found[f"{where.type} ucd"] = float(z.abs().max())
        estimate = hm.likelihood.ais(machine, budget["chains"] // 10, 100, seed=6)
        gap = estimate.value - hm.likelihood.exact_log_partition(machine)
        found[f"{where.type} ais"] = abs(gap) / estimate.standard_error
    return found


@torch.no_grad()
def enumerated(machine: hm.BoltzmannMachine) -> torch.Tensor:
    """E of the hidden units, by their states."""
    states = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * machine.layers[1].width)
    weights = -machine.free_energy([torch.zeros(len(states), machine.layers[0].width), states], summed=[0])
    return weights.softmax(0) @ states.double()


def updates(device: torch.device, budget: dict[str, Any], grey: np.ndarray) -> dict[str, Any]:
    """Milliseconds, launches and waits of one update."""
    wide, found = grey.shape[1], {}
    binary = torch.from_numpy((grey[:2000] > 0.5).astype(np.float32))
    real = torch.from_numpy((grey[:2000] - grey.mean()) / grey.std())
    gibbs_langevin = hm.rules.noise_cd(20, kernel=hm.chains.GibbsLangevin(0.1))
    for hidden in budget["hidden"]:
        cases = {
            "pcd(1)": (hm.Bernoulli, binary, hm.rules.pcd(1, chains=512)),
            "pcd(10)": (hm.Bernoulli, binary, hm.rules.pcd(10, chains=512)),
            "noise_cd(20)": (hm.Gaussian, real, hm.rules.noise_cd(20, chains=512)),
            "noise_cd(20), GibbsLangevin": (hm.Gaussian, real, gibbs_langevin),
        }
        for name, (visible, X, rule) in cases.items():
            for precision in hm.backends.PRECISIONS:
                machine = hm.BoltzmannMachine([visible(wide), hm.Bernoulli(hidden)], seed=0)
                label = f"{wide}x{hidden} {name} {precision}"
                found[label] = timed(machine, X, rule, precision, device, budget)
    if device.type == "cuda":
        found["highest memory, GiB"] = torch.cuda.max_memory_allocated() / 2**30
    return found


def timed(
    machine: hm.BoltzmannMachine, X: torch.Tensor, rule: Any, precision: str, device: torch.device,
    budget: dict[str, Any],
) -> dict[str, float]:  # fmt: skip
    """Of the updates after the first ten, by a clock of the host that waits for the device."""
    marks: list[float] = []
    repeats = budget["repeats"]
    profiler: Any = None

    def note(update: hm.training.callbacks.Update) -> None:
        nonlocal profiler
        if update.step in (10, 10 + repeats):
            if device.type == "cuda":
                torch.cuda.synchronize()
            marks.append(time.perf_counter())
        if device.type == "cuda" and update.step == 11 + repeats:
            profiler = torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
            )
            profiler.__enter__()
        if profiler is not None and update.step == 13 + repeats:
            profiler.__exit__(None, None, None)

    run = hm.train(
        machine, X, rule=rule, updates=14 + repeats, batch_size=min(512, len(X)), learning_rate=1e-3,
        precision=precision, record_every=10_000, device=device, callbacks=[note], progress=False,
    ).whole()  # fmt: skip
    measured = {"ms": 1e3 * (marks[1] - marks[0]) / repeats, "norm": run.history[-1]["gradient_norm"]}
    if profiler is not None:
        events = {event.key: event.count / 2 for event in profiler.key_averages()}
        measured["launches"] = sum(
            n for key, n in events.items() if "LaunchKernel" in key or "GraphLaunch" in key
        )
        measured["waits"] = sum(n for key, n in events.items() if "Synchronize" in key)
    return measured


def likelihood(device: torch.device, budget: dict[str, Any], grey: np.ndarray) -> dict[str, float]:
    """Seconds of training to the likelihood of held-out digits that it ends with, by annealing with data."""
    binary = torch.from_numpy((grey > 0.5).astype(np.float32))
    cut = len(binary) - len(binary) // 12
    X, held = binary[:cut], binary[cut:]
    machine = hm.BoltzmannMachine([hm.Bernoulli(X.shape[1]), hm.Bernoulli(budget["hidden"][0])], seed=0)
    hm.machine.init_visible_biases_(machine, hm.data.Rows.of(X))
    run = hm.train(
        machine, X, rule=hm.rules.centred(hm.rules.pcd(1)), updates=budget["likelihood"], batch_size=1000,
        learning_rate=0.3, schedule="linear", seed=1, device=device, progress=False,
    )  # fmt: skip
    bounds = hm.likelihood.ais(machine, chains=1000, temperatures=5000, data=X[:5000], seed=2)
    ln_p = hm.likelihood.log_likelihood(machine, held, bounds)
    return {
        "seconds": run.seconds,
        "updates": run.updates,
        "engine": run.engine,
        "ln_p_held_out": float(ln_p.mean()),
        "bounds": [bounds.value - bounds.upper, bounds.value - bounds.lower],
        "effective_runs": bounds.ess,
    }


class Seconds:
    """Ends a run when its time is over."""

    def __init__(self, seconds: float) -> None:
        self._end = time.perf_counter() + seconds

    def __call__(self, update: hm.training.callbacks.Update) -> Any:
        return hm.training.callbacks.STOP if time.perf_counter() > self._end else None


def gaussian(device: torch.device, budget: dict[str, Any], grey: np.ndarray, images: Any, out: Path) -> Any:
    """Liao et al. (2022): digits from noise by a Gaussian-Bernoulli machine."""
    kernel = hm.chains.GibbsLangevin(0.1, 10, "none")
    mean, deviation = float(grey.mean()), float(grey.std())
    X = torch.from_numpy((grey - mean) / deviation)
    machine = hm.BoltzmannMachine([hm.Gaussian(X.shape[1]), hm.Bernoulli(budget["hidden"][-1])], seed=0)
    run = hm.train(
        machine, X, rule=hm.rules.noise_cd(budget["sweeps"], kernel=kernel), updates=10**6,
        batch_size=budget["batch"], optimizer="adam", learning_rate=1e-3, clip_norm=10.0, averaging=0.99,
        device=device, callbacks=[Seconds(budget["grbm"])], progress=False,
    ).whole()  # fmt: skip
    final = run.averaged_machine
    start = final.random_states(budget["samples"], seed=1)[0]
    states = hm.chains.run(final, kernel, start, budget["sweeps"], seed=2)
    hamiltonian = final.hamiltonian()
    shown = (hamiltonian.mean(0, hamiltonian.field(0, states)).detach().cpu() * deviation + mean).clamp(0, 1)
    return {"updates": run.updates, **quality(shown, grey, images, out / "gaussian.png")}


def deep(device: torch.device, budget: dict[str, Any], grey: np.ndarray, images: Any, out: Path) -> Any:
    """A deep machine of binary units."""
    X = torch.from_numpy((grey > 0.5).astype(np.float32))
    machine = hm.BoltzmannMachine([hm.Bernoulli(n) for n in (X.shape[1], *budget["layers"])], seed=0)
    hm.machine.init_visible_biases_(machine, hm.data.Rows.of(X))
    run = hm.train(
        machine, X, rule=hm.rules.centred(hm.rules.pcd(5, chains=budget["batch"])), updates=10**6,
        batch_size=budget["batch"], learning_rate=0.01, averaging=0.999, device=device,
        callbacks=[Seconds(budget["deep"])], progress=False,
    ).whole()  # fmt: skip
    final = run.averaged_machine
    start = run.rule_state.states[0]
    states = hm.chains.run(final, hm.chains.Gibbs(), start, 500, seed=2)
    hamiltonian = final.hamiltonian()
    shown = hamiltonian.mean(0, hamiltonian.field(0, states)).detach().cpu()
    return {
        "updates": run.updates,
        **quality(shown, (grey > 0.5).astype(np.float32), images, out / "deep.png"),
    }


def quality(shown: torch.Tensor, real: np.ndarray, images: Any, picture: Path) -> dict[str, float]:
    """FID in the features of a classifier of these images, beside that of held-out data."""
    image_grid(shown[:64], images.image_shape, 16, picture)
    classifier = ClassifierFeatures.fit(real, images.labels, image_shape=images.image_shape, seed=0)
    half, coverage = len(real) // 2, class_coverage(shown, classifier)
    return {
        "fid_classifier_features": frechet_distance(real[:half], shown, classifier),
        "fid_of_held_out_data": frechet_distance(real[:half], real[half : half + len(shown)], classifier),
        "classes_in_use": float((-(coverage * coverage.clamp(min=1e-12).log()).sum()).exp()),
    }


if __name__ == "__main__":
    main()
