"""Bars and stripes by unbiased CD, beside CD-k, PCD and exact gradients (Qiu et al. 2020, Figs. 2 and 6).

    python experiments/bars_and_stripes.py --budget quick             # 10 seeds of recipes with decayed rates
    python experiments/bars_and_stripes.py --budget paper             # 100 seeds at the paper's constant rate
    python experiments/bars_and_stripes.py --only ptt-centred --updates 7000
    python experiments/bars_and_stripes.py --seconds 33 --seeds 5     # equal CPU time, not equal updates

A 16x16 machine of 0/1 units, all 32 rows at every update, 1000 chains, 10,000 updates, parameters from
N(0, 0.1²). The total log-likelihood is exact, by enumeration, and is noted every 250 updates; its largest
possible value is 28 ln(1/32) + 4 ln(2/32) = -108.13. Reference values for one seed of the paper's own
program: UCD -119 (best -113), PCD-1 -138, CD-1 -195. The recipes "paper ..." have that program's constant
rate of 0.1 (the text has 0.01) and its cap of 100 sweeps.

"paper ucd alg. 3" has the paper's pairs: one half-step coupled maximally and the other by common noise.
"paper ucd" couples both maximally, in compiled code. "paper cd-5, 1000 chains" and the like begin 1000 chains
at rows drawn with replacement, not 992 at all rows alike.

With --seconds every recipe trains for so much CPU time, its rate decayed over that time; what the likelihoods
take is not counted. Every run goes to --out as a line of results.jsonl as soon as it is over; a repeated
command runs what is missing, prints the table and draws the curves.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from ucd_common import PUBLISHED_PAIRS, figure, normal_machine, parser

import harmonium as hm
from harmonium.learning import Expectation, ExpectationRequest, Outcome
from harmonium.training.callbacks import STOP, Signal, Update

CHAINS, UPDATES, BEST, EVERY = 1000, 10_000, -108.13, 250
X = torch.from_numpy(hm.data.bars_and_stripes(4))
rules = hm.rules
PTT = rules.ptt(1, CHAINS, offers=CHAINS // 4)


class FromDrawnRows(Expectation):
    """Chains of CD from rows of the batch drawn with replacement, as Qiu et al.'s program has them."""

    def __init__(self, chains: Expectation) -> None:
        self.chains = chains

    def add(self, request: ExpectationRequest) -> Outcome:
        drawn = torch.randint(len(request.v), (CHAINS,), generator=request.generator)
        return self.chains.add(replace(request, v=request.v[drawn], fields={}))


def from_drawn_rows(rule: hm.learning.Rule) -> hm.learning.Rule:
    return replace(rule, name=f"{rule.name}, {CHAINS} chains", free=FromDrawnRows(rule.free))


RECIPES = {  # rule, learning rate, schedule, optimiser
    "ucd-capped": (rules.ucd(chains=CHAINS, max_sweeps=100), 0.2, "cosine", "sgd"),
    "ucd-capped-adam": (rules.ucd(chains=CHAINS, max_sweeps=100), 0.02, "cosine", "adam"),
    "pcd-1": (rules.pcd(1, CHAINS), 0.1, "cosine", "sgd"),
    "pcd-1-adam": (rules.pcd(1, CHAINS), 0.02, "cosine", "adam"),
    "tempered-pcd": (rules.tempered_pcd(1, CHAINS, replicas=5), 0.1, "cosine", "sgd"),
    "tempered-pcd-adam": (rules.tempered_pcd(1, CHAINS, replicas=5), 0.02, "cosine", "adam"),
    "ptt": (PTT, 1.0, "warmup_cosine", "sgd"),
    "ptt-centred": (rules.centred(PTT), 1.0, "warmup_cosine", "sgd"),
    **{f"cd-{k}": (rules.cd(k), 0.1, "cosine", "sgd") for k in (1, 5, 10, 20)},
    "exact": (rules.exact(), 0.02, "cosine", "adam"),
}
PAPER_RULES = {
    "pcd-1": rules.pcd(1, CHAINS),
    **{f"cd-{k}": rules.cd(k) for k in (1, 2, 5, 10, 20)},
    **{f"cd-{k}, 1000 chains": from_drawn_rows(rules.cd(k)) for k in (1, 2, 5, 10, 20)},
    "ucd": rules.ucd(chains=CHAINS, max_sweeps=100),
    "ucd alg. 3": rules.ucd(chains=CHAINS, max_sweeps=100, pair_kernel=PUBLISHED_PAIRS),
}
PAPER = {f"paper {name}": (rule, 0.1, "constant", "sgd") for name, rule in PAPER_RULES.items()}
OFFERED = {"quick": RECIPES, "paper": PAPER}
RECIPES = RECIPES | PAPER
BUDGETS = {"quick": 10, "paper": 100}


def total_log_likelihood(machine: hm.BoltzmannMachine) -> float:
    """Of the 32 rows, exactly."""
    partition = hm.likelihood.exact_log_partition(machine)
    return float(hm.likelihood.log_likelihood(machine, X, partition).sum())


class Curve:
    """Notes (updates, CPU seconds, likelihood) along a run, and ends it when its time is over."""

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self.points: list[tuple[int, float, float]] = []
        self._started = time.process_time()
        self._paused = 0.0

    @property
    def seconds(self) -> float:
        return time.process_time() - self._started - self._paused

    def decay(self, step: int, total: int) -> float:
        """A cosine over the time of the run."""
        return 0.5 * (1 + math.cos(math.pi * min(1.0, self.seconds / (self.limit or math.inf))))

    def needs_update(self, step: int, total: int) -> bool:
        """Every 250 updates, and where the time counts after all of them."""
        return self.limit is not None or step % EVERY == 0

    def __call__(self, update: Update) -> Signal | None:
        seconds = self.seconds
        over = self.limit is not None and seconds >= self.limit
        if update.step % EVERY == 0 or over:
            now = time.process_time()
            value = total_log_likelihood(update.machine)
            self.points.append((update.step, round(seconds, 3), round(value, 3)))
            self._paused += time.process_time() - now
        return STOP if over else None


def run(name: str, seed: int, updates: int | None, limit: float | None) -> dict[str, Any]:
    """Trains one machine for a number of updates or of CPU seconds and returns its record."""
    rule, learning_rate, schedule, optimizer = RECIPES[name]
    machine = normal_machine(16, 16, 0.1, torch.Generator().manual_seed(seed))
    # CD takes its chains from the batch: the rows are repeated to 1000 (992) chains, which leaves the data as
    # they are.
    in_batch = rule.name.startswith("cd") and not isinstance(rule.free, FromDrawnRows)
    rows = X.repeat(CHAINS // len(X), 1) if in_batch else X
    # What is compiled or imported at first use is not counted.
    hm.train(
        normal_machine(16, 16, 0.1, torch.Generator()), rows, rule=rule, updates=200, record_every=200,
        batch_size=len(rows), optimizer=optimizer, progress=False,
    ).whole()  # fmt: skip
    curve = Curve(limit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the capped fraction is in the record
        training = hm.train(
            machine, rows, rule=rule, updates=updates or 10**8, batch_size=len(rows), optimizer=optimizer,
            learning_rate=learning_rate, schedule=curve.decay if limit and schedule == "cosine" else schedule,
            seed=seed, callbacks=[curve], record_every=EVERY, progress=False,
        ).whole()  # fmt: skip
    diagnostics = {
        key: sum(entry[key] for entry in training.history) / len(training.history)
        for key in ("meeting_time", "capped", "rejected", "flip_rate", "swap_rate", "acceptance")
        if key in training.history[-1]
    }
    along = {
        f"{key}_curve": [round(entry[key], 4) for entry in training.history]
        for key in ("meeting_time", "rejected", "rungs", "rate_factor")
        if key in training.history[-1]
    }
    return {
        "recipe": name, "rule": rule.name, "bias": rule.bias, "seed": seed, "updates": training.updates,
        "seconds": limit, "learning_rate": learning_rate, "schedule": schedule, "optimizer": optimizer,
        "total_log_likelihood": total_log_likelihood(machine), "cpu_seconds": curve.points[-1][1],
        **diagnostics, "curve": curve.points, **along,
    }  # fmt: skip


def table(records: dict[str, list[dict[str, Any]]]) -> None:
    """Prints a line for each recipe."""
    heads = ("seeds", "median", "worst", "best", "updates", "ms/update", "capped")
    print(f"{'recipe':18} {'bias':10} " + " ".join(f"{head:>9}" for head in heads))
    for name, runs in records.items():
        values = [r["total_log_likelihood"] for r in runs]
        milliseconds = median(r["cpu_seconds"] / r["updates"] * 1e3 for r in runs)
        capped = f"{median(r['capped'] for r in runs):.2%}" if "capped" in runs[0] else ""
        print(
            f"{name:18} {runs[0]['bias']:10} {len(values):9} {median(values):9.2f} {min(values):9.2f} "
            f"{max(values):9.2f} {median(r['updates'] for r in runs):9.0f} {milliseconds:9.2f} {capped:>9}"
        )


def curves(records: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draws the median over seeds against updates and against CPU time, with the range of the seeds."""
    picture, axes = figure(2)
    for name, runs in records.items():
        points = [r["curve"] for r in runs if "curve" in r]
        if not points:
            continue
        length = min(map(len, points))
        by_point = list(zip(*(each[:length] for each in points), strict=True))
        values = [[value for _, _, value in column] for column in by_point]
        for axis, place in zip(axes[0], (0, 1), strict=True):
            x = [median(entry[place] for entry in column) for column in by_point]
            (line,) = axis.plot(x, [median(v) for v in values], label=name, linewidth=1.2)
            low, high = [min(v) for v in values], [max(v) for v in values]
            axis.fill_between(x, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    for axis, label in zip(axes[0], ("updates", "CPU seconds"), strict=True):
        axis.axhline(BEST, linestyle="--", color="0.4", linewidth=1)
        axis.set(xlabel=label, ylim=(-180, -105))
    axes[0][1].set_xscale("log")
    axes[0][0].set_ylabel("total log-likelihood (exact)")
    axes[0][0].legend(fontsize="x-small", loc="lower right")
    picture.savefig(path, dpi=90)


def arguments_of() -> argparse.Namespace:
    made = parser(__doc__, "bars_and_stripes")
    made.add_argument("--only", action="append", choices=sorted(RECIPES), help="repeatable")
    made.add_argument("--seeds", type=int, help="overrides the budget's number")
    made.add_argument("--updates", type=int, default=UPDATES)
    made.add_argument("--seconds", type=float, help="CPU seconds of every run, in place of updates")
    return made.parse_args()


def main() -> None:
    arguments = arguments_of()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "results.jsonl"
    updates, seconds = (None if arguments.seconds else arguments.updates), arguments.seconds
    settled = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    alike = [r for r in settled if r.get("seconds") == seconds and (seconds or r["updates"] == updates)]
    done = {(r["recipe"], r["seed"]): r for r in alike}
    names = arguments.only or list(OFFERED[arguments.budget])
    seeds = arguments.seeds or BUDGETS[arguments.budget]
    for seed in range(seeds):
        for name in names:
            if (name, seed) not in done:
                done[name, seed] = run(name, seed, updates, seconds)
                with path.open("a") as file:
                    file.write(json.dumps(done[name, seed]) + "\n")
    records = {name: [r for (recipe, _), r in sorted(done.items()) if recipe == name] for name in RECIPES}
    records = {name: runs for name, runs in records.items() if runs}
    length = f"{seconds:g} CPU seconds" if seconds else f"{updates} updates"
    print(f"total log-likelihood after {length} (at most {BEST})")
    table(records)
    picture = arguments.out / ("equal_time.png" if seconds else "equal_updates.png")
    curves(records, picture)
    if seeds < BUDGETS["paper"] or updates != UPDATES:
        print("a reduced experiment: the paper ran 100 seeds of 10,000 updates")
    print(f"written to {arguments.out}: results.jsonl, {picture.name}")


if __name__ == "__main__":
    main()
