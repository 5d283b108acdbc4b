"""Unbiased CD beside CD-1 and PCD on images, 784x1000 (Qiu et al. 2020, Figs. 4, 10, 11).

    python experiments/mnist_ucd.py --budget quick     # 100 updates, minutes
    python experiments/mnist_ucd.py --budget few       # 3,000 updates of 200 rows and 50 pairs, over an hour
    python experiments/mnist_ucd.py --budget long      # 3,000 updates of 1000 rows and pairs, hours
    python experiments/mnist_ucd.py --budget paper     # 10,000 updates
    python experiments/mnist_ucd.py --budget longer --data fashion-mnist    # CD-10, CD-20, CD-30, hours
    python experiments/mnist_ucd.py --budget paper --data fashion-mnist --device cuda --points 20

Pixels are Bernoulli draws with the grey level as probability, drawn once; 1000 hidden units. As published
("quick" and "paper"): all parameters from N(0, 0.01²), batches of 1000, 1000 chains, SGD at the constant rate
0.1, which swings. "longer" is the same for CD-10, CD-20 and CD-30 (Fig. 10), from N(0, 0.1²), where the
authors' program starts. "few" and "long" have another schedule, the same for all rules: visible biases from
the data's means, SGD from 0.02 linearly to 0, in "long" every rule centred too; and CD and PCD also have as
many updates as take the CPU time of the unbiased rule. Pairs are given up after 100 sweeps, and the fraction
of such pairs is recorded: the machine has phases that hold pairs apart.
The paper's data are Fashion-MNIST (--data fashion-mnist); MNIST stands in for them where nothing is said.
The mean meeting time settles near 30 after 2000 updates. The log-likelihood of test and of training rows is
estimated by annealed importance sampling with its standard error; the paper's own estimate starts chains at
the scored rows and is no likelihood. Every point is a line of points.jsonl as soon as it is known.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ucd_common import earlier, figure, normal_machine, parser, write

import harmonium as hm

PUBLISHED_MEETING_TIME = 30  # Fashion-MNIST, after 2000 updates
EQUAL_TIME = ", equal time"


@dataclass(frozen=True)
class Budget:
    updates: int
    rows: int  # of a batch, and chains of CD and PCD
    pairs: int
    rate: float
    temperatures: int
    points: int = 4
    runs: int = 100
    hidden: int = 1000
    fair: bool = False  # from the data's means, the rate falls to 0, and at equal time
    centred: bool = False  # all rules that too
    longer: bool = False  # CD-k of Fig. 10 in place of the rules of Fig. 4
    std: float = 0.01  # of all parameters at the start

    def recipes(self) -> dict[str, hm.learning.Rule]:
        rules = {
            "ucd": hm.rules.ucd(chains=self.pairs, max_sweeps=100),
            "pcd-1": hm.rules.pcd(1, self.rows), "cd-1": hm.rules.cd(1),
        }  # fmt: skip
        if self.longer:
            return {f"cd-{k}": hm.rules.cd(k) for k in (10, 20, 30)}
        if not self.fair:
            return rules
        twins = {f"centred {name}": hm.rules.centred(rule) for name, rule in rules.items()}
        all_rules = rules | twins if self.centred else rules
        others = {name: rule for name, rule in all_rules.items() if "ucd" not in name}
        return all_rules | {f"{name}{EQUAL_TIME}": rule for name, rule in others.items()}


BUDGETS = {
    "quick": Budget(100, 1000, 1000, 0.1, 500),
    "few": Budget(3_000, 200, 50, 0.02, 2_000, points=3, fair=True),
    "long": Budget(3_000, 1000, 1000, 0.02, 2_000, points=3, fair=True, centred=True),
    "paper": Budget(10_000, 1000, 1000, 0.1, 10_000),
    "longer": Budget(10_000, 1000, 1000, 0.1, 10_000, points=10, longer=True, std=0.1),
}


class Points:
    """Evaluates a machine along its training, and leaves the time of that out of the count."""

    def __init__(
        self, name: str, rows: dict[str, torch.Tensor], budget: Budget, out: Path, limit: float
    ) -> None:
        self.name, self.rows, self.budget, self.out, self.limit = name, rows, budget, out, limit
        self.points: list[dict[str, Any]] = []
        self.meetings: list[list[float]] = []
        self.own = [0.0, 0.0]
        self.started = self.clock()

    @staticmethod
    def clock() -> list[float]:
        return [time.process_time(), time.perf_counter()]

    def needs_update(self, step: int, total: int) -> bool:
        every = max(1, total // self.budget.points)
        return step % max(1, every // 5) == 0 or step % every == 0 or step == total

    def __call__(self, update: hm.training.Update) -> object:
        now, seen = self.clock(), update.diagnostics
        if "meeting_time" in seen:
            names = ("meeting_time", "longest_meeting_time", "capped")
            self.meetings.append([update.step, *(float(seen[name]) for name in names)])
        over = now[1] - self.started[1] > self.limit
        if (
            update.step % max(1, update.total // self.budget.points) == 0
            or update.step == update.total
            or over
        ):
            self.evaluate(update.step, update.machine, now)
        self.own = [total + new - old for total, new, old in zip(self.own, self.clock(), now, strict=True)]
        return hm.training.STOP if over else None

    def evaluate(self, step: int, machine: hm.BoltzmannMachine, now: list[float]) -> None:
        seconds = [t - begun - own for t, begun, own in zip(now, self.started, self.own, strict=True)]
        budget, base = self.budget, self.rows["base"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the sample size is in the record
            partition = hm.likelihood.ais(machine, budget.runs, budget.temperatures, data=base, seed=0)
        means = {
            part: float(hm.likelihood.log_likelihood(machine, self.rows[part], partition).mean())
            for part in ("test", "training")
        }
        self.points.append(
            {
                "updates": step,
                "cpu_seconds": seconds[0],
                "seconds": seconds[1],
                "test_log_likelihood": means["test"],
                "training_log_likelihood": means["training"],
                "standard_error": partition.standard_error,
                "sample_size": partition.ess,
                "reverse_bound_minus_estimate": partition.upper - partition.value,
                "meeting_times": self.meetings,
            }
        )
        self.meetings = []
        with (self.out / "points.jsonl").open("a") as file:
            file.write(json.dumps({"rule": self.name, **self.points[-1]}) + "\n")
        last = self.points[-1]["meeting_times"][-1][1] if self.points[-1]["meeting_times"] else float("nan")
        print(
            f"{self.name}: {step} updates, test {means['test']:.2f} ± {partition.standard_error:.2f} (sample "
            f"size {partition.ess:.0f}), training {means['training']:.2f}, mean meeting time {last:.2f}, "
            f"{seconds[0]:.0f} CPU s, {seconds[1]:.0f} s",
            flush=True,
        )


def learn(
    name: str, rule: hm.learning.Rule, X: np.ndarray, rows: dict[str, torch.Tensor], budget: Budget,
    arguments: argparse.Namespace,
) -> list[dict[str, Any]]:  # fmt: skip
    """Trains one machine and returns a record for each of its points."""
    generator = torch.Generator().manual_seed(arguments.seed)
    machine = normal_machine(X.shape[1], budget.hidden, budget.std, generator)
    if budget.fair:
        hm.machine.init_visible_biases_(machine, hm.data.Rows.of(X))
    points = Points(name, rows, budget, arguments.out, arguments.seconds)
    hm.train(
        machine, X, rule=rule, updates=budget.updates, batch_size=budget.rows, learning_rate=budget.rate,
        schedule="linear" if budget.fair else "constant", seed=arguments.seed, device=arguments.device,
        record_every=max(1, budget.updates // budget.points), callbacks=[points], progress=False,
    ).whole()  # fmt: skip
    return points.points


def training(budget: Budget) -> tuple[object, ...]:
    """What of a budget is training and not evaluation."""
    return budget.updates, budget.rows, budget.pairs, budget.rate, budget.hidden, budget.fair, budget.std


WHOLE = [training(BUDGETS[name]) for name in ("paper", "longer")]


def as_long(name: str, results: dict[str, Any], budget: Budget) -> Budget:
    """As many updates as take the CPU time of the unbiased rule, by those that both have made."""
    own = name.removesuffix(EQUAL_TIME)
    unbiased = "centred ucd" if own.startswith("centred") else "ucd"
    ratio = results[unbiased][-1]["cpu_seconds"] / results[own][-1]["cpu_seconds"]
    return replace(budget, updates=round(budget.updates * ratio))


def main() -> None:
    made = parser(__doc__, "mnist_ucd", BUDGETS)
    made.add_argument("--data", default="mnist", choices=("mnist", "fashion-mnist"))
    sizes = ("updates", "rows", "pairs", "hidden", "points", "temperatures", "runs")
    for name in sizes:
        made.add_argument(f"--{name}", type=int, help="overrides the budget's")
    made.add_argument("--only", action="append", help="a rule by its name, such as ucd; may be repeated")
    made.add_argument("--seconds", type=float, default=float("inf"), help="of every rule, with evaluation")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--device", default="cpu")
    arguments = made.parse_args()
    torch.set_num_threads(arguments.threads)
    budget = BUDGETS[arguments.budget]
    given = {name: getattr(arguments, name) for name in sizes}
    budget = replace(budget, **{name: value for name, value in given.items() if value is not None})
    arguments.out.mkdir(parents=True, exist_ok=True)
    if budget.updates < budget.points:
        made.error(f"--updates: expected at least {budget.points}, received {budget.updates}")
    X = hm.data.bernoulli_binarise(np.asarray(hm.data.read(arguments.data).samples), 0)
    held = hm.data.read(f"{arguments.data}-test")
    test = hm.data.bernoulli_binarise(np.asarray(held.samples), 1)
    chosen = {"test": test, "base": X[:10_000], "training": X[:10_000]}
    rows = {name: torch.from_numpy(each).float() for name, each in chosen.items()}
    settings = {
        "experiment": f"784x{budget.hidden} on binarised images: unbiased CD, PCD-1, CD-1",
        "data": arguments.data,
        "budget": arguments.budget,
        **asdict(budget),
        "seed": arguments.seed,
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else arguments.device,
        "reduced": arguments.data != "fashion-mnist" or training(budget) not in WHOLE,
        "published_meeting_time_after_2000_updates_on_fashion_mnist": PUBLISHED_MEETING_TIME,
    }
    results = earlier(arguments.out, settings)
    for name, rule in budget.recipes().items():
        if name not in results and name in (arguments.only or [name]):
            length = as_long(name, results, budget) if name.endswith(EQUAL_TIME) else budget
            results[name] = learn(name, rule, X, rows, length, arguments)
            write(arguments.out, {**settings, "results": results}, drawn(results))
    if settings["reduced"]:
        print(f"a reduced experiment: {budget.updates} updates of {budget.rows} rows")


def drawn(results: dict[str, list[dict[str, Any]]]) -> Any:
    """Likelihood over CPU time, and meeting times."""
    picture, axes = figure(2)
    for name, points in results.items():
        x = [point["cpu_seconds"] for point in points]
        (line,) = axes[0][0].plot(x, [p["test_log_likelihood"] for p in points], marker=".", label=name)
        times = [entry for point in points for entry in point["meeting_times"]]
        if times:
            steps, means, longest, _ = zip(*times, strict=True)
            axes[0][1].plot(steps, means, color=line.get_color(), label=f"{name}, mean")
            axes[0][1].plot(steps, longest, ":", color=line.get_color(), label=f"{name}, longest")
            axes[0][1].legend(fontsize="x-small")
    axes[0][0].set(xlabel="CPU seconds", ylabel="test log-likelihood (AIS)")
    axes[0][0].legend(fontsize="x-small")
    axes[0][1].set(xlabel="updates", ylabel="meeting time", yscale="log")
    return picture


if __name__ == "__main__":
    main()
