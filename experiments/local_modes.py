"""What local mode initialisation costs and what it buys (Taniguchi et al. 2023, Fig. 1, and what it leaves
out).

    python experiments/local_modes.py --budget quick   # reduced: fewer pairs
    python experiments/local_modes.py --budget paper

Cost: RBMs of d visible and d hidden ±1 units with orthogonal couplings; steps that a pair takes until it
meets, and those of the search. The paper finds that Gibbs pairs take exponentially many in d, and that
Metropolis pairs from a local mode meet in one step from d = 25 on.

One step (--part one_step): share of Metropolis pairs from a local mode that meet in their first step, at
every dimension from 1 to 200, with logistic biases and none, 50 pairs on each of 100 draws of a machine.

Error: deep machines small enough to enumerate, at four strengths of the couplings. The error of an estimated
E[S] has a part that stays (bias) and one that averages out (spread); both are set beside the CPU time of an
estimate. A chain that is met in one step is not a chain that has mixed, and this is where it shows.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import harmonium as hm
from harmonium.coupled import CommonNoise, Gibbs, Maximal, Metropolis, meet
from harmonium.learning import CoupledChains, Expectation, ExpectationRequest, FreeChains, LocalModes
from harmonium.machine import Statistics
from harmonium.sums import expect

BUDGETS = {
    "quick": {
        "seeds": 10,
        "draws": 4,
        "pairs": 25,
        "cap": 1000,
        "replicates": 20,
        "chains": 200,
        "error_cap": 10_000,
    },
    "paper": {
        "seeds": 100,
        "draws": 20,
        "pairs": 50,
        "cap": 10_000,
        "replicates": 100,
        "chains": 400,
        "error_cap": 100_000,
    },
}
DIMENSIONS = (1, 2, 4, 7, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200)
PUBLISHED_GIBBS = Gibbs(Maximal(common_noise=True), CommonNoise())  # Alg. 3 of Qiu et al. 2020
CURVES = {
    "Gibbs": (PUBLISHED_GIBBS, False),
    "Gibbs from a local mode": (PUBLISHED_GIBBS, True),
    "Metropolis": (Metropolis(), False),
    "Metropolis from a local mode": (Metropolis(), True),
}
PARTS = {
    "error": "error of E[S] on enumerable deep machines (8-7-6 ±1 units)",
    "cost": "steps of search and meeting by dimension",
    "one_step": "share of Metropolis pairs from a local mode that meet in one step, by dimension",
}
GAINS = (0.5, 1.0, 1.5, 2.0)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_machine(
    sizes: tuple[int, ...], gain: float, seed: int, biases: bool = True
) -> hm.BoltzmannMachine:
    """±1 units with orthogonal couplings and logistic biases, or none."""
    machine = hm.BoltzmannMachine([hm.Spin(size) for size in sizes])
    hm.machine.orthogonal_(machine, gain, generator(seed))
    if biases:
        hm.machine.logistic_biases_(machine, generator(1000 + seed))
    return machine


def one_step(budget: dict[str, int]) -> list[dict[str, Any]]:
    """P(τ = 1) from a local mode, over as many draws of the machine as the budget has seeds."""
    rows = []
    for biases in (True, False):
        for d in range(1, 201):
            met = torch.zeros(0, dtype=torch.bool)
            for draw in range(budget["seeds"]):
                machine = random_machine((d, d), 1.0, draw, biases)
                g = generator(draw)
                start = machine.random_states(budget["pairs"], seed=g)
                start, _ = hm.chains.local_search(machine, start, seed=g)
                start = hm.chains.run(machine, hm.chains.Gibbs(), start, 1, seed=g)
                times = meet(machine, Metropolis(), start, max_sweeps=2, seed=g).times
                met = torch.cat([met, times == 1])
            share = float(met.double().mean())
            rows.append({"biases": biases, "dimension": d, "pairs": len(met), "met_in_one_step": share})
        print(f"biases {biases}:", [round(row["met_in_one_step"], 4) for row in rows[-200::25]], flush=True)
    return rows


def cost(budget: dict[str, int]) -> list[dict[str, Any]]:
    """Steps of search and meeting for every curve and dimension."""
    rows = []
    for name, (coupling, from_mode) in CURVES.items():
        for d in DIMENSIONS:
            total, meeting, search, capped = [], [], [], []
            for draw in range(budget["draws"]):
                machine = random_machine((d, d), 1.0, draw)
                g = generator(draw)
                start = machine.random_states(budget["pairs"], seed=g)
                sweeps = torch.zeros(budget["pairs"])
                if from_mode:
                    start, sweeps = hm.chains.local_search(machine, start, seed=g)
                    start = hm.chains.run(machine, hm.chains.Gibbs(), start, 1, seed=g)
                met = meet(machine, coupling, start, max_sweeps=budget["cap"], seed=g)
                total.append((met.times + sweeps).double())
                meeting.append(met.times.double())
                search.append(sweeps.double())
                capped.append(met.capped.double())
            steps = torch.cat(total)
            rows.append(
                {
                    "curve": name,
                    "dimension": d,
                    "steps": float(steps.mean()),
                    "standard_deviation": float(steps.std()),
                    "meeting_time": float(torch.cat(meeting).mean()),
                    "longest_meeting_time": float(torch.cat(meeting).max()),
                    "met_in_one_step": float((torch.cat(meeting) == 1).double().mean()),
                    "search": float(torch.cat(search).mean()),
                    "capped": float(torch.cat(capped).mean()),
                }
            )
            row = rows[-1]
            print(
                f"{name:30} d {d:4}: {row['steps']:9.1f} ± {row['standard_deviation']:<9.1f} steps, "
                f"τ {row['meeting_time']:9.1f}, {row['capped']:4.0%} given up",
                flush=True,
            )
    return rows


def estimators(budget: dict[str, int]) -> dict[str, Expectation]:
    chains, cap = budget["chains"], budget["error_cap"]
    return {
        "local-mode CD": LocalModes(chains=chains),
        "UCD-LMI, Metropolis": LocalModes(Metropolis(), chains=chains, max_sweeps=cap),
        "UCD-LMI, Gibbs": LocalModes(Gibbs(), chains=chains, max_sweeps=cap),
        "UCD, k = 1": CoupledChains(Gibbs(), k=1, start="noise", chains=chains, max_sweeps=cap),
        "UCD, k = 20, m = 40": CoupledChains(
            Gibbs(), k=20, m=40, start="noise", chains=chains, max_sweeps=cap
        ),
        "Gibbs, 20 sweeps from noise": FreeChains(sweeps=20, start="noise", chains=chains),
        "Gibbs, sweeps 20-40 from noise": FreeChains(sweeps=40, burn_in=20, start="noise", chains=chains),
    }


def flat(statistics: Statistics) -> torch.Tensor:
    parts = [part for theta in statistics.thetas for part in theta] + statistics.products
    return torch.cat([part.flatten() for part in parts])


@torch.no_grad()
def error(budget: dict[str, int]) -> list[dict[str, Any]]:
    """Bias, spread and CPU time of every estimator of E[S] at every strength."""
    rows = []
    for gain in GAINS:
        machine = random_machine((8, 7, 6), gain, 0).double()
        hamiltonian = machine.hamiltonian()
        exact = Statistics(hamiltonian)
        expect(hamiltonian, exact, 1.0)
        truth = flat(exact)
        v = machine.random_states(budget["chains"], seed=generator(0))[0]
        for name, estimator in estimators(budget).items():
            found, diagnostics = [], []
            started = time.process_time()
            for seed in range(budget["replicates"]):
                total = Statistics(hamiltonian)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the capped fraction is reported below
                    request = ExpectationRequest(hamiltonian, v, generator(seed), total, complete=True)
                    outcome = estimator.add(request)
                found.append(flat(total))
                diagnostics.append(outcome.diagnostics)
            seconds = (time.process_time() - started) / budget["replicates"]
            estimates = torch.stack(found)
            # Root mean squares over the statistics; what spread leaves in the mean is taken out of the bias.
            spread = estimates.var(0).mean()
            bias = (estimates.mean(0) - truth).square().mean() - spread / budget["replicates"]
            rows.append(
                {
                    "gain": gain,
                    "estimator": name,
                    "bias": float(bias.clamp(min=0).sqrt()),
                    "bias_resolution": float((spread / budget["replicates"]).sqrt()),
                    "spread": float(spread.sqrt()),
                    "cpu_milliseconds": 1000 * seconds,
                    "chains": budget["chains"],
                    "meeting_time": float(np.mean([d.get("meeting_time", 0.0) for d in diagnostics])),
                    "longest": float(max(d.get("longest_meeting_time", 0.0) for d in diagnostics)),
                    "capped": float(np.mean([d.get("capped", 0.0) for d in diagnostics])),
                }
            )
            row = rows[-1]
            print(
                f"gain {gain}: {name:32} bias {row['bias']:.3f} (seen above {row['bias_resolution']:.3f}), "
                f"spread {row['spread']:.3f}, {row['cpu_milliseconds']:7.1f} ms, τ "
                f"{row['meeting_time']:.1f}, longest {row['longest']:.0f}, {row['capped']:.2%} given up",
                flush=True,
            )
    return rows


def plot(costs: list[dict[str, Any]], errors: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    for name in CURVES:
        rows = [row for row in costs if row["curve"] == name]
        d = np.array([row["dimension"] for row in rows])
        mean = np.array([row["steps"] for row in rows])
        deviation = np.array([row["standard_deviation"] for row in rows])
        (line,) = left.plot(d, mean, label=name)
        left.fill_between(
            d, np.maximum(mean - deviation, 0.5), mean + deviation, alpha=0.2, color=line.get_color()
        )
    left.set(xlabel="units in each layer", ylabel="steps of search and meeting", yscale="log")
    left.legend()
    for name in dict.fromkeys(row["estimator"] for row in errors):
        rows = [row for row in errors if row["estimator"] == name]
        total = [(row["bias"] ** 2 + row["spread"] ** 2) ** 0.5 for row in rows]
        right.plot([row["gain"] for row in rows], total, marker="o", label=name)
    right.set(xlabel="strength of the couplings", ylabel="error of E[S] of one estimate", yscale="log")
    right.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--budget", choices=sorted(BUDGETS), default="quick")
    parser.add_argument("--part", choices=(*PARTS, "all"), default="all")
    parser.add_argument("--out", type=Path, default=None, help="default: runs/local_modes_BUDGET")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    budget = BUDGETS[arguments.budget]
    out = arguments.out or Path("runs") / f"local_modes_{arguments.budget}"
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict[str, Any]]] = {}
    for part, work in {"error": error, "cost": cost, "one_step": one_step}.items():
        file = out / f"{part}.json"
        if arguments.part in (part, "all") and (part != "one_step" or arguments.part == part):
            started = time.process_time()
            record = {
                "experiment": PARTS[part],
                "budget": arguments.budget,
                "reduced": arguments.budget == "quick",
                "settings": budget,
                "rows": work(budget),
                "cpu_seconds": time.process_time() - started,
            }
            file.write_text(json.dumps(record, indent=1) + "\n")
        if file.exists():
            found[part] = json.loads(file.read_text())["rows"]
    if {"cost", "error"} <= set(found):
        plot(found["cost"], found["error"], out / "local_modes.png")
    if arguments.budget == "quick":
        print("a reduced experiment: fewer pairs and a lower cap than --budget paper")
    print(f"written to {out}")


if __name__ == "__main__":
    main()
