"""Unbiased CD beside CD-1 and PCD on images, 784x1000 (Qiu et al. 2020, Figs. 4 and 11).

    python experiments/mnist_ucd.py --budget quick                                     # 100 updates, minutes
    python experiments/mnist_ucd.py --budget paper                                     # 10,000 updates
    python experiments/mnist_ucd.py --data train-images-idx3-ubyte.gz --test t10k-images-idx3-ubyte.gz

Pixels are Bernoulli draws with the grey level as probability, drawn once; 1000 hidden units, parameters from
N(0, 0.01²), batches of 1000, 1000 chains, SGD at the constant rate 0.1. Pairs are given up after 100 sweeps,
and the fraction of such pairs is recorded: early on the machine has phases that hold pairs apart.
The paper's data are Fashion-MNIST, whose files have MNIST's form and may be given; MNIST stands in for them.
Its mean meeting time settles near 30 after 2000 updates. The test log-likelihood is estimated by annealed
importance sampling with its standard error; the paper's own estimate starts chains at the scored rows and is
no likelihood.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from ucd_common import earlier, figure, normal_machine, parser, write

import harmonium as hm

HIDDEN, BATCH, CHAINS, RATE, POINTS = 1000, 1000, 1000, 0.1, 4
UPDATES = {"quick": 100, "paper": 10_000}
AIS = {"quick": 500, "paper": 10_000}
PUBLISHED_MEETING_TIME = 30  # Fashion-MNIST, after 2000 updates
RECIPES = {"ucd": hm.rules.ucd(max_steps=100), "pcd-1": hm.rules.pcd(1, CHAINS), "cd-1": hm.rules.cd(1)}


def learn(
    name: str, X: np.ndarray, test: torch.Tensor, base: torch.Tensor, updates: int, temperatures: int
) -> list[dict[str, Any]]:
    """Trains one machine and returns a record for each of its points."""
    machine = normal_machine(X.shape[1], HIDDEN, 0.01, torch.Generator().manual_seed(0))
    points, seconds, state, every = [], 0.0, None, updates // POINTS
    for number in range(POINTS):
        started = time.process_time()
        run = hm.train(
            machine, X, rule=RECIPES[name], updates=every, batch_size=BATCH, learning_rate=RATE,
            rule_state=state, seed=number, record_every=max(1, every // 5),
        )  # fmt: skip
        state = run.rule_state
        seconds += time.process_time() - started
        partition = hm.likelihood.ais(machine, 100, temperatures, data=base, seed=0)
        value = float(hm.likelihood.log_likelihood(machine, test, partition).mean())
        points.append(
            {
                "updates": (number + 1) * every,
                "cpu_seconds": seconds,
                "test_log_likelihood": value,
                "standard_error": partition.standard_error,
                "sample_size": partition.ess,
                "reverse_bound_minus_estimate": partition.upper - partition.value,
                "meeting_times": [
                    [number * every + r["step"], r["meeting_time"], r["longest_meeting_time"], r["capped"]]
                    for r in run.history
                    if "meeting_time" in r
                ],
            }
        )
        print(
            f"{name}: {points[-1]['updates']} updates, test {value:.2f} ± {partition.standard_error:.2f}, "
            f"mean meeting time {run.history[-1].get('meeting_time', float('nan')):.2f}, {seconds:.0f} CPU s",
            flush=True,
        )
    return points


def main() -> None:
    made = parser(__doc__, "mnist_ucd")
    made.add_argument("--data", default="mnist", help="training images, such as Fashion-MNIST's IDX file")
    made.add_argument("--test", default="mnist-test", help="test images")
    made.add_argument("--updates", type=int, help="overrides the budget's")
    made.add_argument("--only", action="append", choices=list(RECIPES), help="repeatable")
    arguments = made.parse_args()
    torch.set_num_threads(arguments.threads)
    updates = arguments.updates or UPDATES[arguments.budget]
    if updates < POINTS:
        made.error(f"--updates: expected at least {POINTS}, received {updates}")
    X = hm.data.bernoulli_binarise(np.asarray(hm.data.read(arguments.data).samples), 0)
    rows = hm.data.bernoulli_binarise(np.asarray(hm.data.read(arguments.test).samples), 1)
    test, base = (torch.from_numpy(each).float() for each in (rows, X[:10_000]))
    temperatures = AIS[arguments.budget]
    settings = {
        "experiment": "784x1000 on binarised images: unbiased CD, PCD-1, CD-1 at rate 0.1",
        "data": arguments.data if arguments.data in ("mnist", "mnist-test") else "given as a file",
        "budget": arguments.budget,
        "updates": updates,
        "temperatures": temperatures,
        "reduced": updates < UPDATES["paper"],
        "published_meeting_time_after_2000_updates_on_fashion_mnist": PUBLISHED_MEETING_TIME,
    }
    results = earlier(arguments.out, settings)
    for name in arguments.only or RECIPES:
        if name not in results:
            results[name] = learn(name, X, test, base, updates, temperatures)
    if updates < UPDATES["paper"]:
        print(f"a reduced experiment: {updates} updates, AIS with {temperatures} temperatures")

    picture, axes = figure(2)
    for name, points in results.items():
        x = [point["updates"] for point in points]
        (line,) = axes[0][0].plot(x, [p["test_log_likelihood"] for p in points], marker=".", label=name)
        times = [entry for point in points for entry in point["meeting_times"]]
        if times:
            steps, means, longest, _ = zip(*times, strict=True)
            axes[0][1].plot(steps, means, color=line.get_color(), label="mean")
            axes[0][1].plot(steps, longest, ":", color=line.get_color(), label="longest of 1000 pairs")
            axes[0][1].legend(fontsize="x-small")
    axes[0][0].set(xlabel="updates", ylabel="test log-likelihood (AIS)")
    axes[0][0].legend(fontsize="x-small")
    axes[0][1].set(xlabel="updates", ylabel="meeting time", yscale="log")
    write(arguments.out, {**settings, "results": results}, picture)


if __name__ == "__main__":
    main()
