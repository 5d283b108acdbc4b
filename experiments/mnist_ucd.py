"""Unbiased CD beside CD-1 and PCD on images, 784x1000 (Qiu et al. 2020, Figs. 4 and 11).

    python experiments/mnist_ucd.py --budget quick     # 100 updates, minutes
    python experiments/mnist_ucd.py --budget few       # 3,000 updates of 200 rows and 50 pairs, over an hour
    python experiments/mnist_ucd.py --budget long      # 3,000 updates of 1000 rows and pairs, hours
    python experiments/mnist_ucd.py --budget paper     # 10,000 updates
    python experiments/mnist_ucd.py --data train-images-idx3-ubyte.gz --test t10k-images-idx3-ubyte.gz

Pixels are Bernoulli draws with the grey level as probability, drawn once; 1000 hidden units. As published
("quick" and "paper"): all parameters from N(0, 0.01²), batches of 1000, 1000 chains, SGD at the constant rate
0.1, which swings. "few" and "long" have another schedule, the same for all rules: visible biases from the
data's means, SGD from 0.02 linearly to 0, in "long" every rule centred too; and CD and PCD also have as many
updates as take the CPU time of the unbiased rule. Pairs are given up after 100 sweeps, and the fraction of
such pairs is recorded: the machine has phases that hold pairs apart.
The paper's data are Fashion-MNIST, whose files have MNIST's form and may be given; MNIST stands in for them.
Its mean meeting time settles near 30 after 2000 updates. The test log-likelihood is estimated by annealed
importance sampling with its standard error; the paper's own estimate starts chains at the scored rows and is
no likelihood.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from ucd_common import earlier, figure, normal_machine, parser, write

import harmonium as hm

HIDDEN = 1000
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
    fair: bool = False  # from the data's means, the rate falls to 0, and at equal time
    centred: bool = False  # all rules that too

    def recipes(self) -> dict[str, hm.learning.Rule]:
        rules = {
            "ucd": hm.rules.ucd(chains=self.pairs, max_steps=100),
            "pcd-1": hm.rules.pcd(1, self.rows), "cd-1": hm.rules.cd(1),
        }  # fmt: skip
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
}


def learn(
    name: str, rule: hm.learning.Rule, X: np.ndarray, test: torch.Tensor, base: torch.Tensor, budget: Budget
) -> list[dict[str, Any]]:
    """Trains one machine and returns a record for each of its points."""
    machine = normal_machine(X.shape[1], HIDDEN, 0.01, torch.Generator().manual_seed(0))
    if budget.fair:
        hm.machine.init_visible_biases_(machine, hm.data.Rows.of(X))
    points, seconds, state, every = [], 0.0, None, budget.updates // budget.points
    for number in range(budget.points):
        begun = number * every

        def falling(step: int, total: int, begun: int = begun) -> float:
            return 1 - (begun + step) / budget.updates

        started = time.process_time()
        run = hm.train(
            machine, X, rule=rule, updates=every, batch_size=budget.rows, learning_rate=budget.rate,
            schedule=falling if budget.fair else "constant", rule_state=state, seed=number,
            record_every=max(1, every // 5), progress=False,
        ).whole()  # fmt: skip
        state = run.rule_state
        seconds += time.process_time() - started
        partition = hm.likelihood.ais(machine, 100, budget.temperatures, data=base, seed=0)
        value = float(hm.likelihood.log_likelihood(machine, test, partition).mean())
        points.append(
            {
                "updates": begun + every,
                "cpu_seconds": seconds,
                "test_log_likelihood": value,
                "standard_error": partition.standard_error,
                "sample_size": partition.ess,
                "reverse_bound_minus_estimate": partition.upper - partition.value,
                "meeting_times": [
                    [begun + r["step"], r["meeting_time"], r["longest_meeting_time"], r["capped"]]
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


def as_long(name: str, results: dict[str, Any], budget: Budget) -> Budget:
    """As many updates as take the CPU time of the unbiased rule, by those that both have made."""
    own = name.removesuffix(EQUAL_TIME)
    unbiased = "centred ucd" if own.startswith("centred") else "ucd"
    ratio = results[unbiased][-1]["cpu_seconds"] / results[own][-1]["cpu_seconds"]
    return replace(budget, updates=round(budget.updates * ratio))


def main() -> None:
    made = parser(__doc__, "mnist_ucd", BUDGETS)
    made.add_argument("--data", default="mnist", help="training images, such as Fashion-MNIST's IDX file")
    made.add_argument("--test", default="mnist-test", help="test images")
    made.add_argument("--updates", type=int, help="overrides the budget's")
    arguments = made.parse_args()
    torch.set_num_threads(arguments.threads)
    budget = BUDGETS[arguments.budget]
    budget = replace(budget, updates=arguments.updates or budget.updates)
    if budget.updates < budget.points:
        made.error(f"--updates: expected at least {budget.points}, received {budget.updates}")
    X = hm.data.bernoulli_binarise(np.asarray(hm.data.read(arguments.data).samples), 0)
    rows = hm.data.bernoulli_binarise(np.asarray(hm.data.read(arguments.test).samples), 1)
    test, base = (torch.from_numpy(each).float() for each in (rows, X[:10_000]))
    settings = {
        "experiment": "784x1000 on binarised images: unbiased CD, PCD-1, CD-1",
        "data": arguments.data if arguments.data in ("mnist", "mnist-test") else "given as a file",
        "budget": arguments.budget,
        **asdict(budget),
        "reduced": budget != BUDGETS["paper"],
        "published_meeting_time_after_2000_updates_on_fashion_mnist": PUBLISHED_MEETING_TIME,
    }
    results = earlier(arguments.out, settings)
    for name, rule in budget.recipes().items():
        if name not in results:
            length = as_long(name, results, budget) if name.endswith(EQUAL_TIME) else budget
            results[name] = learn(name, rule, X, test, base, length)
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
