"""Bars and stripes by unbiased contrastive divergence, beside CD-k, PCD and exact (Qiu et al. 2020, Fig. 2).

    python experiments/bars_and_stripes.py --budget quick                  # 10 seeds of every recipe, an hour
    on one core python experiments/bars_and_stripes.py --budget paper                  # 100 seeds python
    experiments/bars_and_stripes.py --only ucd-jumps --seeds 20     # one recipe

A 16x16 machine of 0/1 units, all 32 rows at every update, 1000 chains, 10,000 updates, parameters from N(0,
0.1²). The total log-likelihood is exact, by enumeration; its largest possible value is 28 ln(1/32) + 4
ln(2/32) = -108.13. Reference values for one seed of the paper's own program: UCD -119 (best -113), PCD-1
-138, CD-1 -195.

Every recipe goes to --out as a line of results.jsonl as soon as it has run; a repeated command runs what is
missing.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from statistics import median

import torch

import harmonium as hm
from harmonium.couplings import Gibbs, Jumps

CHAINS, UPDATES, BEST = 1000, 10_000, -108.13
X = torch.from_numpy(hm.data.bars_and_stripes(4))
JUMPS = Gibbs(jumps=Jumps(X))
rules = hm.rules
RECIPES = {  # rule, learning rate, schedule, optimiser
    "ucd-jumps": (rules.ucd(chains=CHAINS, coupling=JUMPS), 0.02, "cosine", "adam"),
    "ucd-jumps-sgd": (rules.ucd(chains=CHAINS, coupling=JUMPS), 0.1, "cosine", "sgd"),
    "ucd-jumps-capped": (rules.ucd(chains=CHAINS, coupling=JUMPS, max_steps=100), 0.02, "cosine", "adam"),
    "ucd-capped": (rules.ucd(chains=CHAINS, max_steps=100), 0.2, "cosine", "sgd"),
    "ucd-paper": (rules.ucd(chains=CHAINS, max_steps=100), 0.1, "constant", "sgd"),
    "ucd-capped-adam": (rules.ucd(chains=CHAINS, max_steps=100), 0.02, "cosine", "adam"),
    "pcd-1": (rules.pcd(1, CHAINS), 0.1, "cosine", "sgd"),
    "pcd-1-adam": (rules.pcd(1, CHAINS), 0.02, "cosine", "adam"),
    "tempered-pcd": (rules.tempered_pcd(1, CHAINS, replicas=5), 0.02, "cosine", "adam"),
    **{f"cd-{k}": (rules.cd(k), 0.1, "cosine", "sgd") for k in (1, 5, 10, 20)},
    "exact": (rules.exact(), 0.02, "cosine", "adam"),
}
BUDGETS = {"quick": 10, "paper": 100}


def total_log_likelihood(machine: hm.BoltzmannMachine) -> float:
    """Of the 32 rows, exactly."""
    partition = hm.likelihood.exact_log_partition(machine)
    return float(hm.likelihood.log_likelihood(machine, X, partition).sum())


def run(name: str, seed: int, updates: int) -> dict[str, object]:
    """Trains one machine and returns its record."""
    rule, learning_rate, schedule, optimizer = RECIPES[name]
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(16)])
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    # CD takes its chains from the batch: the rows are repeated to 1000 (992) chains, which leaves the data as
    # they are.
    rows = X.repeat(CHAINS // len(X), 1) if name.startswith("cd-") else X
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the capped fraction is in the record
        training = hm.train(
            machine, rows, rule=rule, updates=updates, batch_size=len(rows), learning_rate=learning_rate,
            schedule=schedule, optimizer=optimizer, seed=seed,
        )  # fmt: skip
    seconds = time.process_time() - started
    diagnostics = {
        key: sum(entry[key] for entry in training.history) / len(training.history)
        for key in ("meeting_time", "capped", "flip_rate", "swap_rate")
        if key in training.history[-1]
    }
    return {
        "recipe": name, "rule": rule.name, "bias": rule.bias, "seed": seed, "updates": updates,
        "learning_rate": learning_rate, "schedule": schedule, "optimizer": optimizer,
        "total_log_likelihood": total_log_likelihood(machine), "cpu_seconds": seconds, **diagnostics,
    }  # fmt: skip


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--budget", choices=sorted(BUDGETS), default="quick")
    parser.add_argument("--only", action="append", choices=sorted(RECIPES), help="repeatable")
    parser.add_argument("--seeds", type=int, help="overrides the budget's number")
    parser.add_argument("--updates", type=int, default=UPDATES)
    parser.add_argument("--out", type=Path, default=Path("runs/bars_and_stripes"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "results.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    done = {(r["recipe"], r["seed"], r["updates"]): r for r in map(json.loads, lines)}
    names = arguments.only or list(RECIPES)
    for seed in range(arguments.seeds or BUDGETS[arguments.budget]):
        for name in names:
            key = (name, seed, arguments.updates)
            if key not in done:
                done[key] = run(*key)
                with path.open("a") as file:
                    file.write(json.dumps(done[key]) + "\n")
    print(f"total log-likelihood after {arguments.updates} updates (at most {BEST})")
    heads = ("seeds", "median", "worst", "best", "ms/update", "capped")
    print(f"{'recipe':18} {'bias':10} " + " ".join(f"{head:>9}" for head in heads))
    for name in names:
        records = [
            r for (recipe, _, updates), r in done.items() if (recipe, updates) == (name, arguments.updates)
        ]
        values = [r["total_log_likelihood"] for r in records]
        milliseconds = median(r["cpu_seconds"] / r["updates"] * 1e3 for r in records)
        capped = f"{median(r['capped'] for r in records):.2%}" if "capped" in records[0] else ""
        print(
            f"{name:18} {records[0]['bias']:10} {len(values):9} {median(values):9.2f} {min(values):9.2f} "
            f"{max(values):9.2f} {milliseconds:9.2f} {capped:>9}"
        )
    if (
        arguments.updates < UPDATES
        or min(BUDGETS["paper"], arguments.seeds or BUDGETS[arguments.budget]) < 100
    ):
        print("a reduced experiment: the paper ran 100 seeds of 10,000 updates")


if __name__ == "__main__":
    main()
