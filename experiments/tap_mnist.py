"""TAP machines on binarised MNIST: learning curves, solutions, surrogates, a race with PCD, deep machines.

    python experiments/tap_mnist.py --budget quick             # a reduced experiment
    python experiments/tap_mnist.py --budget paper             # Tramel et al. 2018, Figs. 3, 5-7, 10-12
    python experiments/tap_mnist.py --budget long              # the paper's rate, a third of its updates
    python experiments/tap_mnist.py --only sizes --hidden 100  # one part, one size
    python experiments/tap_mnist.py --budget paper --only sizes --hidden 500 --max-sweeps 10 --device cuda
    python experiments/tap_mnist.py --budget paper --only sizes --hidden 100 --units grey
    python experiments/tap_mnist.py --budget paper --only sizes --hidden 100 --published --max-sweeps 1000

Parts: ``sizes`` trains 784×25, 50, 100 and 500 by TAP and follows the TAP, pseudo- and AIS
log-likelihoods and the number of TAP solutions; ``race`` gives TAP and PCD-10 the same CPU time at 784×500;
``adatap`` trains by TAP and by adaptive TAP; ``deep`` pretrains and trains machines with two and three hidden
layers. Pixels are set by the threshold 0.5, as in the paper. All log-likelihoods are in nats an image, of
1000 test images unless it says otherwise. MNIST is read from $HARMONIUM_DATA or ../shared/data.

``--units grey`` trains the part ``sizes`` on grey levels, as truncated Gauss-Bernoulli units on [0, 1];
``--data FOLDER`` trains the part ``sizes`` on grey images of a folder instead, in place of the paper's faces:
truncated Gaussian units on [0, 1].

The part ``sizes`` goes on from its last checkpoint, about a minute of training ago, where it was killed.
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch

import harmonium as hm
from harmonium.machine import BoltzmannMachine, init_visible_biases_
from harmonium.meanfield import Landscape
from harmonium.report import basin_map, free_energy_bands, image_grid, solution_maps
from harmonium.training import STOP, Update, stream_seed

matplotlib.use("Agg")
import matplotlib.pyplot as plt

# The paper: 100 epochs at the rate 0.005 for all sizes, 10,000 starts, AIS with 14,500 temperatures.
BUDGETS: dict[str, dict[str, Any]] = {
    "quick": {
        "updates": {25: 1200, 50: 1200, 100: 1500, 500: 300}, "learning_rate": 0.05, "starts": 1000,
        "runs": 100, "temperatures": 500, "race_minutes": 0.75, "adatap": (None, 32, 300),
        "pretraining": 300, "joint": 300, "deep_hidden": ((100, 50), (100, 50, 25)),
    },
    "long": {
        "updates": {500: 20_000}, "learning_rate": 0.005, "starts": 1000, "runs": 100, "temperatures": 5000,
        "max_sweeps": 10, "race_minutes": 10.0, "adatap": (None, 32, 300),
        "pretraining": 3000, "joint": 10_000, "deep_hidden": ((100, 50), (100, 50, 25)),
    },
    "paper": {
        "updates": dict.fromkeys((25, 50, 100, 500), 60_000), "learning_rate": 0.005, "starts": 10_000,
        "rows": 10_000, "pixels": 100, "runs": 100, "temperatures": 14_500,
        "race_minutes": 600.0, "adatap": (5000, 500, 5000),
        "pretraining": 30_000, "joint": 1_800_000,
        "deep_hidden": ((500, 100), (500, 100, 25)),
    },
}  # fmt: skip
SHARED = {"batch_size": 100, "momentum": 0.5, "weight_decay": 0.001, "progress": False}
RACERS: dict[str, Callable[[], hm.learning.Rule]] = {
    "TAP from the data, to convergence": lambda: hm.rules.tap(max_sweeps=100),
    "TAP persistent, 3 sweeps": lambda: hm.rules.tap(100, start="persistent", tolerance=None, max_sweeps=3),
    "TAP from the data, 10 sweeps": lambda: hm.rules.tap(tolerance=None, max_sweeps=10),
    "TAP from the data, 4 sweeps": lambda: hm.rules.tap(tolerance=None, max_sweeps=4, damping=0.0),
    "PCD-10": lambda: hm.rules.pcd(10, chains=100),
}


class Data:
    """Binary or grey digits, or grey images of a folder."""

    def __init__(self, folder: str | None, units: str = "binary") -> None:
        self.folder, self.units = folder, units
        if folder is None:
            train, test = hm.data.read("mnist"), hm.data.read("mnist-test")
            self.X = self.coded(np.asarray(train.samples))
            self.test = torch.from_numpy(self.coded(np.asarray(test.samples)).astype(np.float32))
            self.labels = torch.from_numpy(np.asarray(train.labels).astype(np.int64))
            self.shape = (28, 28)
        else:
            images = hm.data.read(folder)
            grey = np.asarray(images.samples, dtype=np.float32) / 255
            held = max(1, len(grey) // 10)
            self.X, self.test = grey[:-held], torch.from_numpy(grey[-held:])
            self.labels = None
            self.shape = tuple(images.image_shape)
        self.train = torch.from_numpy(self.X[:1000].astype(np.float32))

    def coded(self, grey: np.ndarray) -> np.ndarray:
        return (grey > 127).astype(np.uint8) if self.units == "binary" else grey.astype(np.float32) / 255

    def visible(self) -> hm.layers.Layer:
        units = self.X.shape[1]
        if self.units == "grey":
            return hm.TruncatedGaussBernoulli(units, 0.0, 1.0)
        return hm.Bernoulli(units) if self.folder is None else hm.TruncatedGaussian(units, 0.0, 1.0)

    def machine(self, *hidden: int, seed: int = 0) -> hm.BoltzmannMachine:
        machine = hm.BoltzmannMachine([self.visible(), *(hm.Bernoulli(n) for n in hidden)], seed=seed)
        hm.machine.normal_(machine, 1e-3, torch.Generator().manual_seed(seed))
        hm.machine.init_visible_biases_(machine, hm.data.Rows.of(self.X))
        return machine


def surrogates(machine: hm.BoltzmannMachine, data: Data, budget: dict[str, Any]) -> dict[str, float]:
    """TAP, pseudo- and AIS log-likelihoods of 1000 test images, and the first of 1000 or 10,000 others."""
    test, train = data.test[:1000], torch.from_numpy(data.X[: budget.get("rows", 1000)].astype(np.float32))
    starts = torch.from_numpy(data.X[: min(500, budget["starts"])].astype(np.float32))
    partition = hm.likelihood.tap_log_partition(machine, starts)
    mean = partition.mean  # as in the paper, Eq. 37; its value is the sum over solutions
    result = {
        "tap": float(hm.likelihood.tap_log_likelihood(machine, test, mean).mean()),
        "tap_train": float(hm.likelihood.tap_log_likelihood(machine, train, mean).mean()),
        "tap_solutions_of_500": partition.solutions,
        "tap_converged": partition.converged,
        "weight_std": float(machine.couplings[0].weight.detach().std()),
    }
    if len(machine.layers) == 2:
        ais = hm.likelihood.ais(machine, budget["runs"], budget["temperatures"], data=test, reverse=False)
        result["ais"] = float(hm.likelihood.log_likelihood(machine, test, ais).mean())
        result["ais_standard_error"] = ais.standard_error
        result["ais_ess"] = ais.ess
        if machine.layers[0].discrete:
            value = hm.likelihood.pseudo_log_likelihood(
                machine, test, sampled=budget.get("pixels", 20), seed=1
            )
            result["pseudo"] = float(value.mean())
    return result


class Follow:
    """A callback that evaluates at some updates and leaves its own CPU time out of the count.

    What it has seen is kept in checkpoints, so that a run may be killed and go on.
    """

    def __init__(
        self,
        at: set[int],
        look: Callable[[Update], dict[str, Any]],
        seconds: float = np.inf,
        file: Path | None = None,
    ) -> None:
        self.at, self.look, self.limit, self.file = at, look, seconds, file
        self.own, self.started = 0.0, time.process_time()
        self.records: list[dict[str, Any]] = []

    def needs_update(self, step: int, total: int) -> bool:
        return step in self.at or step == total or np.isfinite(self.limit)

    def __call__(self, update: Update) -> object:
        spent = time.process_time() - self.started - self.own
        over = spent >= self.limit
        if update.step in self.at or over or update.step == update.total:
            begun = time.process_time()
            diagnostics = {k: v for k, v in update.diagnostics.items() if "mean_field" in k}
            self.records.append(
                {"step": update.step, "cpu_seconds": spent, **diagnostics, **self.look(update)}
            )
            print("  " + ", ".join(f"{k} {v:.4g}" for k, v in self.records[-1].items()), flush=True)
            if self.file is not None:
                with self.file.open("a") as file:
                    file.write(json.dumps(self.records[-1]) + "\n")
            self.own += time.process_time() - begun
        return STOP if over else None

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": time.process_time() - self.started - self.own, "records": self.records}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.own, self.started = 0.0, time.process_time() - state["seconds"]
        self.records = list(state["records"])


def of_couplings(rate: float, momentum: float, parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    """SGD whose momentum is that of couplings alone, as in the paper's Alg. 2."""
    groups: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    for parameter in parameters:
        groups[parameter.ndim == 2].append(parameter)
    return torch.optim.SGD(
        [{"params": groups[True], "momentum": momentum}, {"params": groups[False], "momentum": 0.0}], lr=rate
    )


def on_cpu(found: Landscape) -> Landscape:
    def moved(x: Any) -> Any:
        return [t.cpu() for t in x] if isinstance(x, list) else x.cpu()

    solutions = type(found.solutions)(*map(moved, found.solutions))
    return Landscape(solutions, *map(moved, found[1:]))


def sizes(
    data: Data, budget: dict[str, Any], hidden: list[int], out: Path, device: str, pictures: bool
) -> dict[str, Any]:
    """Table 1, Figs. 3, 5-7 and 12: curves, numbers of solutions, fields, landscapes."""
    result: dict[str, Any] = {}
    count = min(budget["starts"], len(data.X))
    starts = torch.from_numpy(data.X[:count].astype(np.float32))
    for n in hidden:
        print(f"784×{n} by TAP" if data.folder is None else f"{data.X.shape[1]}×{n} by TAP", flush=True)
        machine = data.machine(n)
        updates = budget["updates"][n]
        kept = out / f"landscapes-{n}"
        kept.mkdir(exist_ok=True)

        def look(update: Update, kept: Path = kept) -> dict[str, Any]:
            found = on_cpu(hm.meanfield.landscape(update.machine, starts))
            (kept / f"{update.step}.pickle").write_bytes(pickle.dumps(found))
            return {
                **surrogates(update.machine, data, budget),
                "solutions": len(found.counts),
                "solutions_fraction": len(found.counts) / count,
                "converged": float((found.basin >= 0).double().mean()),
                "admissible": float(found.admissible.double().mean()),
                "mean_free_energy": float(found.free_energies.mean()),
            }

        at = {1, *(int(updates * part) for part in (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1))}
        follow = Follow(at, look, file=out / f"records-{n}.jsonl")
        stop = {"max_sweeps": budget.get("max_sweeps", 100), "tolerance": budget.get("tolerance", 1e-4)}
        shared: dict[str, Any] = {**SHARED, "learning_rate": budget["learning_rate"]}
        if budget.get("published"):
            stop["damping"] = 0.0
            shared["optimizer"] = partial(of_couplings, shared.pop("learning_rate"), shared.pop("momentum"))
        hm.train(machine, data.X, rule=hm.rules.tap(**stop), updates=updates, callbacks=[follow],
                 device=device, run_dir=out / f"run-{n}", resume=True, **shared).whole()  # fmt: skip
        machine.cpu()
        machine.metadata = {"data": {"image_shape": data.shape}}
        machine.save(out / f"machine-{n}.safetensors", overwrite=True)
        result[str(n)] = follow.records
        if not pictures:
            continue
        landscapes: dict[str, Landscape] = {
            str(record["step"]): pickle.loads((kept / f"{record['step']}.pickle").read_bytes())
            for record in follow.records
        }
        fields(machine, data, out)
        names = list(landscapes)
        chosen = sorted({*names[:: max(1, len(names) // 3)], names[-1]}, key=names.index)
        free_energy_bands(landscapes, out / f"free_energies-{n}.png")
        solution_maps({f"update {name}": landscapes[name] for name in chosen}, out / f"solutions-{n}.png")
        labels = None if data.labels is None else data.labels[:count]
        basin_map(starts, landscapes[names[-1]], out / f"basins-{n}.png", labels=labels)
        best = landscapes[names[-1]].solutions.means[0][:100]
        image_grid(best, data.shape, path=out / f"modes-{n}.png")
    plot_sizes(result, out / "curves.png")
    return result


def fields(machine: hm.BoltzmannMachine, data: Data, out: Path) -> None:
    """Fig. 4: receptive fields of largest ℓ₀.₁ norm, and the most active on 1000 training images."""
    hamiltonian = machine.hamiltonian()
    with torch.no_grad():
        W = hamiltonian.J[0].T
        activity = hamiltonian.mean(1, hamiltonian.field(1, [data.train, data.train])).mean(0)
    spread = torch.linalg.vector_norm(W.double(), 0.1, dim=1)
    for name, rank in (("spread", spread), ("activity", activity)):
        best = W[rank.argsort(descending=True)][:100]
        path = out / f"fields-{name}-{len(W)}.png"
        image_grid(best / best.abs().amax(1, keepdim=True), data.shape, path=path)


def plot_sizes(result: dict[str, Any], path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for place, (n, records) in enumerate(result.items()):
        steps = [r["step"] for r in records]
        colour = f"C{place}"
        for name, style in (("tap", "-"), ("ais", "--"), ("pseudo", ":")):
            if name in records[0]:
                left.plot(steps, [r[name] for r in records], style, color=colour, label=f"{n}: {name}")
        right.plot(steps, [r["solutions_fraction"] for r in records], color=colour, label=f"{n} hidden")
    left.set(xlabel="update", xscale="log", ylabel="test log-likelihood, nats an image")
    right.set(xlabel="update", ylabel="distinct solutions / starts", xscale="log", yscale="log")
    left.legend(fontsize="x-small")
    right.legend(fontsize="small")
    figure.savefig(path, dpi=110)


def race(data: Data, budget: dict[str, Any], out: Path) -> dict[str, Any]:
    """The same CPU time, rate and decay for TAP and for PCD-10 at 784×500."""
    result: dict[str, Any] = {}
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, recipe in RACERS.items():
        print(name, flush=True)
        machine = data.machine(500)
        at = {int(100 * 4**k) for k in range(10)}
        follow = Follow(
            at, lambda update: surrogates(update.machine, data, budget), 60 * budget["race_minutes"]
        )
        hm.train(machine, data.X, rule=recipe(), updates=10_000_000, record_every=1000,
                 callbacks=[follow], learning_rate=0.05, **SHARED).whole()  # fmt: skip
        result[name] = follow.records
        axis.plot(
            [r["cpu_seconds"] for r in follow.records], [r["ais"] for r in follow.records], ".-", label=name
        )
        (out / "race.json").write_text(json.dumps(result, indent=1) + "\n")
    axis.set(xlabel="CPU seconds", ylabel="mean AIS test log-likelihood, nats", xscale="log")
    axis.legend(fontsize="small")
    figure.savefig(out / "race.png", dpi=110)
    return result


def adatap(data: Data, budget: dict[str, Any], out: Path) -> dict[str, Any]:
    """Fig. 10: pseudo-likelihood by TAP and by adaptive TAP, damping 0.5, and the CPU time of an update.

    The quick budget takes the 8×8 digits of scikit-learn, at 64×32.
    """
    rows, hidden, updates = budget["adatap"]
    if rows is None:
        grey = np.asarray(hm.data.read("digits").samples)
        X = (grey > grey.max() / 2).astype(np.uint8)
    else:
        X = data.X[:rows]
    test = torch.from_numpy(X[:1000].astype(np.float32))
    result: dict[str, Any] = {}

    def look(update: Update) -> dict[str, Any]:
        return {"pseudo": float(hm.likelihood.pseudo_log_likelihood(update.machine, test).mean())}

    for name, recipe in (("tap", hm.rules.tap), ("adatap", hm.rules.adatap)):
        for sweeps in (3, 10) if rows is None else (3, 10, 100):
            machine = hm.BoltzmannMachine([hm.Bernoulli(X.shape[1]), hm.Bernoulli(hidden)])
            hm.machine.init_visible_biases_(machine, hm.data.Rows.of(X))
            follow = Follow({updates // 4, updates // 2}, look)
            rule = recipe(tolerance=None, max_sweeps=sweeps, damping=0.5)
            print(rule, flush=True)
            hm.train(machine, X, rule=rule, updates=updates, callbacks=[follow],
                     learning_rate=0.05, **SHARED).whole()  # fmt: skip
            last = follow.records[-1]
            result[f"{name}, {sweeps} sweeps"] = {
                "cpu_an_update": last["cpu_seconds"] / last["step"],
                "curve": [[record["step"], record["pseudo"]] for record in follow.records],
            }
    return result


def pretrain(machine: BoltzmannMachine, X: Any, **settings: Any) -> None:
    """Trains every two neighbouring layers as a machine, from below (Tramel et al. 2018, Alg. 4).

    Each further pair sees one draw of its lower layer, under the pair just trained. Its couplings and its
    upper layer are kept.
    """
    rows = torch.as_tensor(X, dtype=machine.dtype)
    for l, coupling in enumerate(machine.couplings):
        pair = BoltzmannMachine([deepcopy(machine.layers[l]), deepcopy(machine.layers[l + 1])])
        with torch.no_grad():
            pair.couplings[0].weight.copy_(coupling.weight)
        if l > 0:
            init_visible_biases_(pair, rows)
        hm.train(pair, rows, **settings).whole()
        with torch.no_grad():
            coupling.weight.copy_(pair.couplings[0].weight)
            generator = torch.Generator().manual_seed(stream_seed(0, "pretraining", l))
            free = pair.hamiltonian()
            rows = free.sample(1, free.field(1, free.split(rows)), generator)
        if l == 0:
            machine.layers[0].load_state_dict(pair.layers[0].state_dict())
        machine.layers[l + 1].load_state_dict(pair.layers[1].state_dict())


def deep(data: Data, budget: dict[str, Any], out: Path) -> dict[str, Any]:
    """Fig. 11: TAP log-likelihood of training and test images while a pretrained deep machine is trained."""
    result: dict[str, Any] = {}
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for hidden in budget["deep_hidden"]:
        name = "-".join(map(str, (data.X.shape[1], *hidden)))
        print(name, flush=True)
        machine = data.machine(*hidden)
        rate = budget["learning_rate"]
        pretrain(machine, data.X, rule=hm.rules.tap(max_sweeps=100), updates=budget["pretraining"],
                 learning_rate=rate, **SHARED)  # fmt: skip
        before = surrogates(machine, data, budget)
        total = budget["joint"]
        follow = Follow(
            {int(total * k / 8) for k in range(1, 9)},
            lambda update: surrogates(update.machine, data, budget),
        )
        hm.train(machine, data.X, rule=hm.rules.tap(max_sweeps=100), updates=total, callbacks=[follow],
                 learning_rate=rate / 5, **SHARED).whole()  # fmt: skip
        records = [{"step": 0, "cpu_seconds": 0.0, **before}, *follow.records]
        result[name] = records
        for part, style in (("tap", "-"), ("tap_train", "--")):
            values = [r[part] for r in records]
            axis.plot([r["step"] for r in records], values, style, label=f"{name} {part}")
    axis.set(xlabel="update of joint training", ylabel="TAP log-likelihood, nats an image")
    axis.legend(fontsize="small")
    figure.savefig(out / "deep.png", dpi=110)
    return result


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--budget", choices=sorted(BUDGETS), default="quick")
    parser.add_argument("--only", action="append", choices=("sizes", "race", "adatap", "deep"))
    parser.add_argument("--hidden", type=int, action="append", help="sizes of the part sizes")
    parser.add_argument("--updates", type=int, help="of the part sizes, in place of the budget's")
    parser.add_argument("--data", help="a folder of grey images, for the part sizes")
    parser.add_argument("--units", choices=("binary", "grey"), default="binary", help="pixels of MNIST")
    parser.add_argument("--max-sweeps", type=int, help="of training, in place of the budget's")
    parser.add_argument("--tolerance", type=float, help="RMS change at which training's solutions stop")
    parser.add_argument("--published", action="store_true", help="no damping; momentum of couplings alone")
    parser.add_argument("--device", default="cpu", help="of the part sizes")
    parser.add_argument("--no-pictures", dest="pictures", action="store_false", help="of the part sizes")
    for name in ("starts", "temperatures"):
        parser.add_argument(f"--{name}", type=int, help="in place of the budget's")
    parser.add_argument("--out", type=Path, default=None, help="default: runs/tap_mnist_BUDGET")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    budget = dict(BUDGETS[arguments.budget])
    hidden = arguments.hidden or list(budget["updates"])
    if arguments.updates is not None:
        budget["updates"] = dict.fromkeys(hidden, arguments.updates)
    out = arguments.out or Path("runs") / f"tap_mnist_{arguments.budget}"
    out.mkdir(parents=True, exist_ok=True)
    for name in ("starts", "temperatures", "max_sweeps", "tolerance"):
        if getattr(arguments, name) is not None:
            budget[name] = getattr(arguments, name)
    budget["published"] = arguments.published
    data = Data(arguments.data, arguments.units)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "sizes": partial(sizes, data, budget, hidden, out, arguments.device, arguments.pictures),
        "race": partial(race, data, budget, out),
        "adatap": partial(adatap, data, budget, out),
        "deep": partial(deep, data, budget, out),
    }
    for name in arguments.only or parts:
        record = {
            "experiment": name,
            "budget": arguments.budget,
            "reduced": arguments.budget != "paper",
            "settings": {**budget, **SHARED, "units": arguments.units, "device": arguments.device},
            "results": parts[name](),
        }
        (out / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
        print(f"{name}: written to {out / f'{name}.json'}")
    if arguments.budget == "quick":
        print(
            "a reduced experiment: the paper trained for 100 epochs at a tenth of the rate, and for 3000 deep"
        )


if __name__ == "__main__":
    main()
