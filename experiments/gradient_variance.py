"""What an average over more sweeps costs and saves: variance times cost of H_{k:m} over k and m.

    python experiments/gradient_variance.py --budget quick      # 1,000 pairs a setting
    python experiments/gradient_variance.py --budget paper      # 20,000 pairs a setting

k is 1 or a quantile of the meeting times, m is k, 2k and 5k (Jacob et al. 2020, §3.1, advise a
large quantile and m several times k). Two machines: bars and stripes as PCD leaves it (16x16, nearly frozen,
without jumps between data, pairs from the data), and the 500x100 machine of Qiu et al. (2020, Fig. 5), pairs
from fair coins. Qiu et al. take k = m = 1. The variance is the trace of the covariance of a single pair's
estimate of all expected statistics, from 25 groups of pairs; the cost is in sweeps of one chain. Their
product is what a gradient of given accuracy costs, and is printed relative to k = m = 1. Along training
the variance is in simulated_rbm.py.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from ucd_common import figure, normal_machine, parser, write

import harmonium as hm
from harmonium.coupled import Gibbs, run_pairs
from harmonium.machine import Statistics

PAIRS = {"quick": 1000, "paper": 20_000}
GROUPS = 25
QUANTILES, MULTIPLES = (0.0, 0.5, 0.9, 0.99, 0.999), (1, 2, 5)


def bars_and_stripes() -> tuple[hm.BoltzmannMachine, torch.Tensor]:
    """A trained machine and its data."""
    X = torch.from_numpy(hm.data.bars_and_stripes(4))
    machine = normal_machine(16, 16, 0.1, torch.Generator().manual_seed(0))
    hm.train(
        machine, X, rule=hm.rules.pcd(1, 1000), updates=10_000, batch_size=len(X), learning_rate=0.1,
        schedule="cosine",
    ).whole()  # fmt: skip
    return machine, X


def published() -> tuple[hm.BoltzmannMachine, torch.Tensor]:
    """The machine of Fig. 5 and fair coins."""
    generator = torch.Generator().manual_seed(0)
    machine = normal_machine(500, 100, 0.1, generator)
    return machine, (torch.rand(2000, 500, generator=generator) < 0.5).float()


@torch.no_grad()
def measure(
    machine: hm.BoltzmannMachine, start: torch.Tensor, k: int, m: int, pairs: int
) -> dict[str, float]:
    """Variance of a pair's estimate, its cost in sweeps, and their product."""
    generator = torch.Generator().manual_seed(1)
    hamiltonian = machine.hamiltonian()
    each = pairs // GROUPS
    estimates, cost, longest, started = [], 0.0, 0, time.process_time()
    for group in range(GROUPS):
        rows = torch.arange(group * each, (group + 1) * each) % len(start)
        states = hm.chains.fill_hidden(hamiltonian, start[rows], generator).states
        total = Statistics(hamiltonian)
        meetings = run_pairs(
            hamiltonian, Gibbs(), states, k=k, m=m, lag=1, max_sweeps=None,
            generator=generator, into=total, weight=1 / each,
        )  # fmt: skip
        estimates.append(torch.cat([*(theta[0] for theta in total.thetas), total.products[0].flatten()]))
        cost += float(meetings.cost.double().mean()) / GROUPS
        longest = max(longest, int(meetings.times.max()))
    variance = float(torch.stack(estimates).double().var(0).sum()) * each
    return {
        "variance": variance,
        "sweeps": cost,
        "product": variance * cost,
        "longest_meeting_time": longest,
        "cpu_seconds": time.process_time() - started,
    }


def study(machine: hm.BoltzmannMachine, start: torch.Tensor, pairs: int) -> list[dict[str, Any]]:
    """A row for every setting."""
    generator = torch.Generator().manual_seed(2)
    rows = start[torch.arange(pairs) % len(start)]
    times = hm.coupled.meet(machine, Gibbs(), rows, seed=generator).times.double()
    done: dict[tuple[int, int], dict[str, float]] = {}
    table = []
    for quantile in QUANTILES:
        k = int(times.quantile(quantile).ceil()) if quantile else 1
        for multiple in MULTIPLES:
            key = (k, k * multiple)
            if key not in done:
                done[key] = measure(machine, start, *key, pairs)
            table.append({"quantile": quantile, "k": k, "m": k * multiple, **done[key]})
    for row in table:
        row["relative_product"] = row["product"] / done[1, 1]["product"]
    return table


def main() -> None:
    arguments = parser(__doc__, "gradient_variance").parse_args()
    torch.set_num_threads(arguments.threads)
    pairs = PAIRS[arguments.budget]
    problems = {"bars and stripes, trained": bars_and_stripes, "500x100, N(0, 0.1²)": published}
    results = {}
    for name, problem in problems.items():
        results[name] = study(*problem(), pairs)
        print(f"{name}: variance x cost relative to k = m = 1, {pairs} pairs")
        print(
            f"{'quantile':>8} {'k':>5} {'m':>6} {'variance':>9} {'sweeps':>8} {'relative':>9} {'longest':>8}"
        )
        for row in results[name]:
            print(
                f"{row['quantile']:8} {row['k']:5} {row['m']:6} {row['variance']:9.4g} {row['sweeps']:8.4g} "
                f"{row['relative_product']:9.3g} {row['longest_meeting_time']:8}"
            )
    picture, axes = figure(len(results))
    for axis, (name, table) in zip(axes[0], results.items(), strict=True):
        for multiple in MULTIPLES:
            rows = table[MULTIPLES.index(multiple) :: len(MULTIPLES)]
            axis.plot(
                [f"{row['quantile']:g}\nk={row['k']}" for row in rows],
                [row["relative_product"] for row in rows],
                marker="o",
                label=f"m = {multiple}k",
            )
        axis.set(yscale="log", title=name, xlabel="quantile of the meeting times")
    axes[0][0].set_ylabel("variance × sweeps, relative to k = m = 1")
    axes[0][0].legend()
    record = {
        "experiment": "variance and cost of H_{k:m}",
        "budget": arguments.budget,
        "pairs": pairs,
        "results": results,
    }
    write(arguments.out, record, picture)


if __name__ == "__main__":
    main()
