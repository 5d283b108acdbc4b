"""Deep machines on MNIST from random couplings by local modes: what a coupling and what centring do.

    python experiments/mnist_ucd_lmi.py run                              # centred local-mode CD, seed 0
    python experiments/mnist_ucd_lmi.py run --rule none --seed 1         # the same, not centred
    python experiments/mnist_ucd_lmi.py run --start logistic             # visible biases as published
    python experiments/mnist_ucd_lmi.py run --budget large               # 784-500-1000 at the rate 0.003
    python experiments/mnist_ucd_lmi.py run --budget wide                # 784-784-784
    python experiments/mnist_ucd_lmi.py run --budget planes              # grey levels as 8 bits a pixel
    python experiments/mnist_ucd_lmi.py run --budget paper --device cuda # as published; not run whole
    python experiments/mnist_ucd_lmi.py ablation                         # every row, on one schedule
    python experiments/mnist_ucd_lmi.py persistent --updates 2000 --rate 0.005   # then persistent chains
    python experiments/mnist_ucd_lmi.py run --rule centred-blend --budget long  # and at once

Every row has the same start, ±1 units with orthogonal couplings and logistic biases unless it says otherwise,
and the same schedule: batch 200, the rate linearly to 0. The visible biases begin at those of the data, or
as published (`--start logistic`), where training first has to find the mean of the data.

`--budget paper` is the recipe as published: 6272-6272-6272 units of ±1 (the "simplified centring", so that
the gradient is not centred), eight bits a pixel, couplings orthogonal, all biases from Logistic(0, 0.5),
UCD-LMI with Metropolis pairs that share uniform proposals of whole states, both phases marginalised, SGD at
the rate 0.01, 100,000 updates. Where the text is silent the public program decides: batches of 1,000, the
rate over √(1 + t/1000), no clipping, pairs until they meet. What differs: pairs are two chains (the program
compares one with its own past, which is biased), rows come from permutations (there with replacement), and
distances are of other features. The program as published has 0/1 units, biases of 0 and no marginalisation;
there the text decides. It was not run whole: days of an H200.

Taniguchi et al. 2023, Table 2 (FID with Inception features, 8 bits, 100,000 updates): all parts 10.33;
without the unbiased gradient 112.1, without ±1 units 30.27, without marginalisation 13.70, without orthogonal
couplings 18.20. The distances here use a small classifier's features and cannot be set beside theirs; the
order of the rows can.

Local modes from noise are compared with 2000 test digits, whose distance to training digits is the floor.
Why centring matters is measured along the way (``condition``). Training goes on where it was when the same
command is given again, and a run that has a record is not run again. MNIST is read from $HARMONIUM_DATA or
../shared/data.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from classifier_features import ClassifierFeatures, class_coverage, frechet_distance, kernel_distance
from torch import Tensor

import harmonium as hm
from harmonium.backends import processor
from harmonium.learning import Expectation, ExpectationRequest, Outcome, Rule
from harmonium.machine import Hamiltonian
from harmonium.report import (
    image_grid,
    nearest_neighbours,
)

QUICK = {
    "bits": 1, "hidden": (256, 256), "batch": 200, "updates": 1_300, "rate": 0.01, "schedule": "linear",
    "start": "data",
}  # fmt: skip
BUDGETS: dict[str, dict[str, Any]] = {
    "quick": QUICK,
    "long": QUICK | {"updates": 6_000},
    "large": QUICK | {"hidden": (500, 1000), "rate": 0.003},
    "wide": QUICK | {"hidden": (784, 784), "rate": 0.003},
    "planes": QUICK | {"bits": 8, "hidden": (512, 512), "rate": 0.002},
    "paper": {
        "bits": 8, "hidden": (6272, 6272), "batch": 1000, "updates": 100_000, "rate": 0.01,
        "schedule": "inverse_sqrt", "start": "logistic",
    },
}  # fmt: skip
USUAL = {"paper": "metropolis"}  # rows of budgets where none is asked for; of others "centred-none"
SAMPLES, GIBBS_CHAINS, GIBBS_SWEEPS = 2_000, 500, 1_000
GIVEN_UP = 3  # steps of a Gibbs pair; in layers of this size they would take many hundreds


class Blend(Expectation):
    """(1 - share) of one estimate of E[S] and share of another, which may keep chains."""

    def __init__(self, first: Expectation, second: Expectation, share: float) -> None:
        self.first, self.second, self.share = first, second, share

    def add(self, request: ExpectationRequest) -> Outcome:
        one = self.first.add(replace(request, weight=(1 - self.share) * request.weight, state=None))
        other = self.second.add(replace(request, weight=self.share * request.weight))
        return Outcome(other.state, one.diagnostics | other.diagnostics)

    def check_state(self, hamiltonian: Hamiltonian, state: Any) -> None:
        self.second.check_state(hamiltonian, state)


def blend(first: Rule, second: Rule, share: float) -> Rule:
    """Both sides of the gradient blended."""
    return Rule(
        f"blend({first}, {second}, share={share:g})",
        Blend(first.clamped, second.clamped, share),
        Blend(first.free, second.free, share),
        "biased",
    )


@dataclass(frozen=True)
class Row:
    """One row of the ablation: how it learns and where it starts."""

    rule: Rule
    spin: bool = True
    orthogonal: bool = True


LOCAL_MODES = hm.rules.ucd_lmi(pair_kernel=None)
NOT_CENTRED = {
    "none": Row(LOCAL_MODES),
    "metropolis": Row(hm.rules.ucd_lmi()),
    "gibbs": Row(hm.rules.ucd_lmi(pair_kernel=hm.coupled.Gibbs(), max_sweeps=GIVEN_UP)),
    "mean-field-pcd": Row(hm.rules.mean_field_pcd()),
    "zero-one": Row(LOCAL_MODES, spin=False),
    "not-marginalised": Row(hm.rules.ucd_lmi(pair_kernel=None, marginalise=False)),
    "not-orthogonal": Row(LOCAL_MODES, orthogonal=False),
    "blend": Row(blend(LOCAL_MODES, hm.rules.mean_field_pcd(), 0.5)),
    "blend-four-fifths": Row(blend(LOCAL_MODES, hm.rules.mean_field_pcd(), 0.8)),
}
ROWS = {
    **{f"centred-{name}": replace(row, rule=hm.rules.centred(row.rule)) for name, row in NOT_CENTRED.items()},
    **NOT_CENTRED,
}


def generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def encode(grey: np.ndarray, bits: int, spin: bool) -> np.ndarray:
    """Grey levels as bits of 0 and 1, or of -1 and +1."""
    states = (grey >= 128).astype(np.int8) if bits == 1 else hm.data.BitPlanes().encode(grey).astype(np.int8)
    return 2 * states - 1 if spin else states


def decode(states: Tensor, bits: int, spin: bool) -> np.ndarray:
    """Intensities in [0, 1]."""
    zero_one = ((states + 1) / 2 if spin else states).cpu().numpy()
    return zero_one if bits == 1 else np.asarray(hm.data.BitPlanes().decode(zero_one)) / 255


@torch.no_grad()
def condition(machine: hm.BoltzmannMachine, v: Tensor) -> dict[str, float]:
    """What centring changes, at one moment of training, seen from as many local modes as v has rows.

    - How far the mean of the free modes is from that of the data, root mean square over the pixels.
    - The gradient of the lowest couplings by local modes, and what is left of it once the part
      δ_v μ_hᵀ + μ_v δ_hᵀ that differences of means δ bring is taken out (norms).
    - The largest eigenvalue of the covariance of all statistics over states that belong to the data, in plain
      and in centred coordinates, and its share of the trace: at the data's distribution the largest curvature
          of the
      likelihood, but for the noise of hidden units given v. Gradient ascent at a rate above 2 over it cannot
      settle there. It comes from the inner products of the statistics of all pairs of states, which cost no
      more than those of the states.
    """
    rows, v = len(v), v.to(machine.device)
    draws = partial(generator, device=machine.device)
    noise = machine.random_states(rows, seed=draws(3))
    modes = hm.chains.local_search(machine, noise, seed=draws(4))[0]
    held = hm.chains.local_search(machine, noise, v, seed=draws(5))[0]
    states = hm.chains.run(machine, hm.chains.Gibbs(), held, 1, v, seed=draws(6))
    found = {
        "mean_of_modes_off": float((modes[0].mean(0) - v.mean(0)).square().mean().sqrt()),
        "distinct_modes": len(torch.unique(modes[0], dim=0)) / rows,
    }
    for name, rule in {"plain": LOCAL_MODES, "centred": hm.rules.centred(LOCAL_MODES)}.items():
        gradient = rule.gradient(machine, v, seed=draws(7)).parameters["couplings.0.weight"]
        shifted = [x - x.mean(0) if name == "centred" else x for x in states]
        inner = [(x @ x.t()).double() for x in shifted]
        kernel = torch.stack(inner).sum(0) + sum(inner[l] * inner[m] for l, m in machine.edges)
        kernel = kernel - kernel.mean(0) - kernel.mean(1, keepdim=True) + kernel.mean()
        spectrum = torch.linalg.eigvalsh(kernel / rows)
        found |= {
            f"{name}_gradient": float(gradient.norm()),
            f"{name}_largest_eigenvalue": float(spectrum[-1]),
            f"{name}_share_of_trace": float(spectrum[-1] / spectrum.sum()),
        }
    return found


class Watch:
    """Measures the condition at powers of two and every hundredth part, and what that costs of CPU time."""

    def __init__(self, v: Tensor, file: Path, seconds: float) -> None:
        self.v, self.file, self.cpu = v, file, 0.0
        self.end = time.perf_counter() + seconds

    def needs_update(self, step: int, total: int) -> bool:
        limited = self.end < float("inf") and step % 20 == 0
        return limited or self.looks(step, total)

    def looks(self, step: int, total: int) -> bool:
        return step.bit_count() == 1 or step % max(1, total // 10) == 0

    def look(self, step: int, machine: hm.BoltzmannMachine) -> None:
        started = time.process_time()
        with self.file.open("a") as stream:
            stream.write(json.dumps({"step": step, **condition(machine, self.v)}) + "\n")
        self.cpu += time.process_time() - started

    def __call__(self, update: hm.training.Update) -> object:
        if self.looks(update.step, update.total):
            self.look(update.step, update.machine)
        return hm.training.STOP if time.perf_counter() > self.end else None


class Judge:
    """Sets samples beside held-out digits: distances with their floors, coverage, copies."""

    def __init__(self, bits: int, out: Path, name: str = "mnist") -> None:
        data = hm.data.read(name)
        self.grey, test = np.asarray(data.samples), np.asarray(hm.data.read(f"{name}-test").samples)
        self.bits, self.test_grey = bits, test[:SAMPLES]
        self.training = decode(torch.from_numpy(encode(self.grey, bits, False)), bits, False)
        self.training = self.training.astype(np.float32)
        self.real = decode(torch.from_numpy(encode(self.test_grey, bits, False)), bits, False)
        self.real = self.real.astype(np.float32)
        file = out / f"features_{bits}.pt"
        if file.exists():
            self.features = ClassifierFeatures((28, 28, 1), 10, generator(0))
            self.features.load_state_dict(torch.load(file, weights_only=True))
            self.features.requires_grad_(False).eval()
        else:
            self.features = ClassifierFeatures.fit(self.training, data.labels, image_shape=(28, 28), seed=0)
            torch.save(self.features.state_dict(), file)

    def __call__(self, drawn: np.ndarray) -> dict[str, float]:
        drawn, count = drawn.astype(np.float32), len(drawn)
        coverage = class_coverage(torch.from_numpy(drawn), self.features).double()
        entropy = -(coverage * coverage.clamp(min=1e-12).log()).sum()
        kernel, error = kernel_distance(self.real, drawn, self.features, seed=0)
        return {
            "samples": count,
            "fid": frechet_distance(self.real[:count], drawn, self.features),
            "kid": kernel,
            "kid_standard_error": error,
            "distinct": len(np.unique(drawn, axis=0)),
            "classes": float(entropy.exp()),
            "smallest_class": float(coverage.min()),
            "distance_to_training_data": float(
                nearest_neighbours(drawn[:500], self.training).distances.mean()
            ),
        }

    def floor(self, count: int) -> dict[str, float]:
        """The same of as many training digits; copies cannot be told there, so held-out digits stand in."""
        held_out = float(nearest_neighbours(self.real[:500], self.training).distances.mean())
        return {**self(self.training[:count]), "distance_to_training_data": held_out}


def evaluate(machine: hm.BoltzmannMachine, spin: bool, judge: Judge, picture: Path) -> dict[str, Any]:
    """Local modes and Gibbs samples from noise, and the variational bound on the test digits' bits."""
    draws = partial(generator, device=machine.device)
    noise = machine.random_states(SAMPLES, seed=draws(8))
    modes = hm.chains.local_search(machine, noise, seed=draws(9))[0][0]
    drawn = decode(modes, judge.bits, spin)
    image_grid(drawn[:100], (28, 28), 10, picture)
    start = [x[:GIBBS_CHAINS] for x in noise]
    ends = hm.chains.run(machine, hm.chains.Gibbs(), start, GIBBS_SWEEPS, seed=draws(10))[0]
    train, test = (
        torch.from_numpy(encode(grey, judge.bits, spin)).float()
        for grey in (judge.grey[:10_000], judge.test_grey)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the sample size and the reverse bound are in the record
        partition = hm.likelihood.ais(machine, 100, 1_000, data=train, seed=1)
    bound = hm.likelihood.variational_bound(machine, test, partition, tolerance=1e-4)
    return {
        "local_modes": judge(drawn),
        "gibbs": judge(decode(ends, judge.bits, spin)),
        "bound": float(bound.mean()),
        "reverse_bound": float(bound.mean()) + partition.value - partition.upper,
        "bound_standard_error": partition.standard_error,
        "ais_sample_size": partition.ess,
    }


def fresh(row: Row, sizes: tuple[int, ...], seed: int) -> hm.BoltzmannMachine:
    """A machine before training; its visible biases are for `--start data` to set."""
    layer = hm.Spin if row.spin else hm.Bernoulli
    machine = hm.BoltzmannMachine([layer(size) for size in sizes], seed=seed)
    if row.orthogonal:
        hm.machine.orthogonal_(machine, 1.0, generator(100 + seed))
    hm.machine.logistic_biases_(machine, generator(200 + seed))
    return machine


def train(
    name: str, row: Row, machine: hm.BoltzmannMachine, budget: dict[str, Any], seed: int, judge: Judge,
    arguments: argparse.Namespace,
) -> dict[str, Any]:  # fmt: skip
    """Trains one row as far as it goes and judges it; an interrupted run is left for the next call."""
    folder = arguments.out / name
    X = encode(judge.grey, budget["bits"], row.spin)
    folder.mkdir(parents=True, exist_ok=True)
    if budget["start"] == "data" and arguments.command != "persistent":
        hm.machine.init_visible_biases_(machine, X)
    watch = Watch(torch.from_numpy(X[:500]).float(), folder / "condition.jsonl", arguments.seconds)
    watch.file.exists() or watch.look(0, machine)
    watch.cpu, started = 0.0, time.process_time()
    trained = hm.train(
        machine, X, rule=row.rule, updates=budget["updates"], batch_size=budget["batch"],
        learning_rate=budget["rate"], schedule=budget["schedule"], seed=seed, device=arguments.device,
        run_dir=folder / "run", resume=True, callbacks=[watch],
    )  # fmt: skip
    with (folder / "cpu.jsonl").open("a") as stream:
        stream.write(json.dumps(time.process_time() - started - watch.cpu) + "\n")
    if trained.status != "completed" and arguments.seconds == float("inf"):
        raise SystemExit(f"{trained.status} after {trained.updates} updates; the same command continues")
    last = {key: value for key, value in trained.history[-1].items() if isinstance(value, float)}
    longest = [each.get("longest_meeting_time", 0.0) for each in trained.history]
    return {
        "training_cpu_seconds": sum(map(json.loads, (folder / "cpu.jsonl").read_text().split())),
        "training_seconds": trained.seconds,
        "updates": trained.updates,
        "longest_meeting_time": max(longest),
        "given_up": last.get("capped", 0.0),
        **evaluate(machine, row.spin, judge, folder / "modes.png"),
        "condition": [json.loads(line) for line in watch.file.read_text().splitlines()],
    }


def run(rule: str, seed: int, budget: dict[str, Any], judge: Judge, arguments: argparse.Namespace) -> None:
    """One row, unless it has its record."""
    sizes = (784 * budget["bits"], *budget["hidden"])
    schedule = f"{budget['updates']}_{budget['rate']:g}"
    name = f"{rule}_{'-'.join(map(str, sizes))}_{budget['start']}_{schedule}_seed{seed}"
    row, machine = ROWS[rule], fresh(ROWS[rule], sizes, seed)
    if arguments.command == "persistent":
        machine = hm.load(arguments.out / name / "run" / "machine.safetensors")
        row = replace(row, rule=hm.rules.centred(hm.rules.mean_field_pcd()))
        budget = {**budget, "updates": arguments.updates or 2_000, "rate": arguments.rate or 0.005}
        name += f"_then_persistent_{budget['updates']}_{budget['rate']:g}"
    file = arguments.out / "records.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    if not any(record["run"] == name for record in records):
        record = {
            "run": name,
            "row": rule,
            "rule": repr(row.rule),
            "seed": seed,
            "settings": budget,
            "data": arguments.data,
            "reduced": budget != BUDGETS["paper"],
            **train(name, row, machine, budget, seed, judge, arguments),
            "floor": judge.floor(SAMPLES),
            "floor_gibbs": judge.floor(GIBBS_CHAINS)["fid"],
            "machine": f"CPU seconds, {arguments.threads} thread, of {processor()}"
            if arguments.device == "cpu"
            else f"{torch.cuda.get_device_name() if torch.cuda.is_available() else arguments.device}",
            "versions": {
                "harmonium": hm.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
        }
        with file.open("a") as stream:
            stream.write(json.dumps(record) + "\n")
        records.append(record)
    show(next(record for record in records if record["run"] == name))


def show(record: dict[str, Any]) -> None:
    modes, gibbs, floor = record["local_modes"], record["gibbs"], record["floor"]
    print(
        f"{record['run']}: modes FID {modes['fid']:.1f} (floor {floor['fid']:.1f}), KID {modes['kid']:.2f} ± "
        f"{modes['kid_standard_error']:.2f} ({floor['kid']:.2f}), {modes['distinct']} of {modes['samples']} "
        f"distinct, {modes['classes']:.1f} classes, nearest training row "
        f"{modes['distance_to_training_data']:.2f} ({floor['distance_to_training_data']:.2f}); "
        f"Gibbs FID {gibbs['fid']:.1f} ({record['floor_gibbs']:.1f}); bound {record['bound']:.1f} (reverse "
        f"{record['reverse_bound']:.1f}, sample size {record['ais_sample_size']:.0f}); "
        f"{record['training_cpu_seconds']:.0f} CPU s",
        flush=True,
    )


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("command", choices=("run", "ablation", "persistent"))
    parser.add_argument(
        "--rule", choices=list(ROWS), action="append", help="default: centred-none, of the paper metropolis"
    )
    parser.add_argument("--seed", type=int, action="append", help="default: 0")
    parser.add_argument("--budget", choices=list(BUDGETS), default="quick")
    parser.add_argument("--start", choices=("data", "logistic"), help="visible biases, else the budget's")
    parser.add_argument("--updates", type=int, help="in place of the budget's; of `persistent` 2000")
    parser.add_argument("--batch", type=int, help="rows of a batch, in place of the budget's")
    parser.add_argument("--hidden", type=int, nargs=2, help="hidden units, in place of the budget's")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which training ends")
    parser.add_argument("--data", choices=("mnist", "fashion-mnist"), default="mnist")
    parser.add_argument("--rate", type=float, help="in place of the budget's; of `persistent` 0.005")
    parser.add_argument("--out", type=Path, default=Path("runs") / "mnist_ucd_lmi")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    budget = dict(BUDGETS[arguments.budget])
    if arguments.command != "persistent":
        given = {name: getattr(arguments, name) for name in ("rate", "updates", "batch", "hidden", "start")}
        budget |= {name: value for name, value in given.items() if value}
        budget["hidden"] = tuple(budget["hidden"])
    if arguments.data != "mnist":
        arguments.out = arguments.out / arguments.data
        arguments.out.mkdir(parents=True, exist_ok=True)
    judge = Judge(budget["bits"], arguments.out, arguments.data)
    usual = [USUAL.get(arguments.budget, "centred-none")]
    rules = list(ROWS) if arguments.command == "ablation" else arguments.rule or usual
    for seed in arguments.seed or [0]:
        for rule in rules:
            run(rule, seed, budget, judge, arguments)
    print("distances by another classifier's features than the paper's: only the order of the rows compares")


if __name__ == "__main__":
    main()
