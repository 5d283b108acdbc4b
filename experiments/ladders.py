"""Equilibrium training beside PCD at equal CPU time: likelihood by two ways, resampling, few rows, cost.

    python experiments/ladders.py                          # 8x8 digits, 64x100, one seed
    python experiments/ladders.py --part mnist --seconds 120   # 784x500
    python experiments/ladders.py --part few --seeds 5     # 500 rows, the others held out
    python experiments/ladders.py --part table --seeds 5   # answers of a survey (pip install statsmodels)
    python experiments/ladders.py --part cost              # one update of each rule, in turns

Digits are cut at half their grey levels (Béreux et al. 2026 claim the gain of equilibrium training for few
rows). The survey is anes96, 944 rows, a column of 0 and 1 for every answer of up to ten. Every run has the
same CPU seconds, with its rate falling to 0 in a line over them, every rule the same rates to choose from, by
the first seed's held-out likelihood. Each run is a line of results.jsonl; a repeated command runs what is
missing and prints the table.
"""

from __future__ import annotations

import json
import time
import warnings
from statistics import mean, median, stdev
from typing import Any

import numpy as np
import torch
from ucd_common import parser

import harmonium as hm
from harmonium.training.callbacks import STOP, Signal, Update

HIDDEN, MNIST_HIDDEN, BATCH, FEW = 100, 500, 100, 500
RATES = (0.05, 0.2)
RULES = {
    "pcd": hm.rules.pcd(1, 100),
    "pcd-centred": hm.rules.centred(hm.rules.pcd(1, 100)),
    "ptt": hm.rules.ptt(1, 100),
    "ptt-centred": hm.rules.centred(hm.rules.ptt(1, 100)),
}


def survey() -> torch.Tensor:
    """A column of 0 and 1 for every answer of the questions that have at most ten."""
    from statsmodels.datasets import anes96

    table = anes96.load_pandas().data
    return torch.cat([
        torch.nn.functional.one_hot(torch.from_numpy(np.unique(column, return_inverse=True)[1])).float()
        for _, column in table.items() if column.nunique() <= 10
    ], 1)  # fmt: skip


def rows(part: str, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Training and held-out rows: three quarters of all, or 500."""
    if part == "mnist":
        names = ("mnist", "mnist-test")
        return tuple(torch.from_numpy(np.asarray(hm.data.read(x).samples) >= 128).float() for x in names)
    digits = torch.from_numpy(hm.data.threshold(hm.data.digits()[0])).float()
    X = survey() if part == "table" else digits
    X = X[torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))]
    count = FEW if part == "few" else len(X) * 3 // 4
    return X[:count], X[count:]


class Clock:
    """Ends a run after so many CPU seconds, and tells how much is left."""

    def __init__(self, limit: float) -> None:
        self.limit, self.start = limit, time.process_time()

    def __call__(self, update: Update) -> Signal | None:
        return STOP if time.process_time() - self.start >= self.limit else None

    def left(self, step: int, total: int) -> float:
        return max(0.0, 1 - (time.process_time() - self.start) / self.limit)


def begun(train: torch.Tensor, seed: int) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine(
        [hm.Bernoulli(train.shape[1]), hm.Bernoulli(HIDDEN if train.shape[1] < 784 else MNIST_HIDDEN)],
        seed=seed,
    )
    hm.machine.init_visible_biases_(machine, hm.data.Rows.of(train))
    return machine


def run(part: str, name: str, rate: float, seed: int, seconds: float, ways: bool) -> dict[str, Any]:
    """Trains one machine and judges it on held-out rows."""
    train, held = rows(part, seed)
    hm.train(
        begun(train, 0), train, rule=RULES[name], updates=200, batch_size=BATCH, progress=False
    ).whole()  # what is compiled or imported at first use is not counted
    machine, clock = begun(train, seed), Clock(seconds)
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        made = hm.train(
            machine, train, rule=RULES[name], updates=10**8, batch_size=BATCH, learning_rate=rate,
            schedule=clock.left, seed=seed, callbacks=[clock], record_every=1000, progress=False, ladder=True,
        ).whole()  # fmt: skip
        found = hm.likelihood.ais(machine, 200, 2000, data=train, seed=seed)
        record: dict[str, Any] = {
            "part": part, "recipe": name, "rate": rate, "seed": seed, "seconds": seconds,
            "updates": made.updates, "ais": found.value, "ais_error": found.standard_error,
            "train": float(hm.likelihood.log_likelihood(machine, train, found).mean()),
            "held_out": float(hm.likelihood.log_likelihood(machine, held, found).mean()),
        }  # fmt: skip
        state = made.rule_state
        if name.startswith("ptt"):
            record |= {"frozen": len(state.rungs), "rate_factor": state.rate}
        if ways:
            start = time.process_time()
            ladder = hm.ladder.log_partitions(machine, made.ladder, data=train, seed=seed)
            record |= {
                "ladder": ladder.value, "ladder_error": ladder.standard_error,
                "ladder_seconds": time.process_time() - start, "rungs": len(ladder.values),
                "acceptance": float(ladder.traffic.acceptance.min()),
                "round_trips": ladder.traffic.round_trips, "expected": ladder.traffic.expected,
            }  # fmt: skip
            for kernel, sweeps in (("gibbs", 1000), ("ladder", 1000 // len(ladder.values))):
                mover = hm.chains.Gibbs() if kernel == "gibbs" else made.ladder
                noise = machine.random_states(1000, seed=seed)
                start = time.process_time()
                drawn = hm.chains.run(machine, mover, noise, sweeps, seed=seed)[0]
                took = time.process_time() - start
                record |= {f"resampled_{kernel}": likeness(drawn, held), f"{kernel}_seconds": took}
            record["resampled_data"] = likeness(train, held)
    record["warnings"] = [str(each.message)[:200] for each in noted]
    return record


def likeness(drawn: torch.Tensor, held: torch.Tensor) -> float:
    """Pearson correlation of the covariances of all pairs of columns."""
    upper = torch.triu_indices(held.shape[1], held.shape[1], 1)
    pairs = torch.stack([torch.cov(x.double().T)[upper[0], upper[1]] for x in (drawn, held)])
    return float(torch.corrcoef(pairs)[0, 1])


def cost(updates: int = 200) -> list[dict[str, Any]]:
    """CPU time of an update of PCD and of equilibrium training with as many sweeps, in turns."""
    X = (torch.rand(2000, 784, generator=torch.Generator().manual_seed(0)) < 0.2).float()
    found = []
    for _ in range(3):
        for name in ("pcd", "ptt"):
            machine = hm.BoltzmannMachine([hm.Bernoulli(784), hm.Bernoulli(500)], seed=0)
            start = time.process_time()
            hm.train(
                machine, X, rule=RULES[name], updates=updates, learning_rate=0.01, progress=False
            ).whole()
            found.append(
                {"part": "cost", "recipe": name, "ms": (time.process_time() - start) / updates * 1e3}
            )
    return found


def table(records: list[dict[str, Any]]) -> None:
    """Prints medians, and the spread, by recipe and rate."""
    for key in dict.fromkeys((r["part"], r["recipe"], r.get("rate")) for r in records):
        runs = [r for r in records if (r["part"], r["recipe"], r.get("rate")) == key]
        if "held_out" not in runs[0]:
            print(key, *runs, sep="\n  ")
            continue
        values = [r["held_out"] for r in runs]
        spread = f" ± {stdev(values) / len(values) ** 0.5:.3f}" if len(values) > 1 else ""
        print(*key, f"seeds {len(runs)}, updates {median(r['updates'] for r in runs):.0f},", end=" ")
        print(f"held out {mean(values):.3f}{spread}, train {mean(r['train'] for r in runs):.3f}")


def main() -> None:
    made = parser(__doc__, "ladders")
    made.add_argument("--part", choices=["full", "mnist", "few", "table", "cost"], default="full")
    made.add_argument("--seeds", type=int, default=1)
    made.add_argument("--seconds", type=float, default=15.0, help="CPU seconds of every training")
    arguments = made.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "results.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def keep(record: dict[str, Any]) -> dict[str, Any]:
        records.append(record)
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        return record

    part, seconds = arguments.part, arguments.seconds
    if part == "cost":
        for record in cost():
            keep(record)
    else:
        done = {
            (r["recipe"], r["rate"], r["seed"]): r
            for r in records
            if r["part"] == part and r["seconds"] == seconds
        }

        def result(name: str, rate: float, seed: int) -> dict[str, Any]:
            key = name, rate, seed
            if key not in done:
                done[key] = keep(run(part, name, rate, seed, seconds, part in ("full", "mnist")))
            return done[key]

        best = {
            name: max(RATES, key=lambda rate, name=name: result(name, rate, 0)["held_out"]) for name in RULES
        }
        for seed in range(1, arguments.seeds):
            for name, rate in best.items():
                result(name, rate, seed)
    table([r for r in records if r["part"] == part])


if __name__ == "__main__":
    main()
