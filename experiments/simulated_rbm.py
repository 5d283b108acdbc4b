"""Learning from a known machine: unbiased CD beside CD-k and PCD (Qiu et al. 2020, Figs. 3, 7, 8, 9, 12).

    python experiments/simulated_rbm.py --budget quick      # 1,500 updates, 5 seeds
    python experiments/simulated_rbm.py --budget paper      # 10,000 updates at the paper's rate

The truth is a 200x20 machine of 0/1 units with all parameters from N(0, 1). As its 2^20 hidden states can
be enumerated, the 1000 training and 1000 test rows are exact draws and its own likelihood is exact. A machine
with 100 hidden units learns from all rows at every update with 1000 chains, at the paper's constant rate of
0.2, which swings, and with --budget quick at a tenth of it too, where every rule is centred as well. "pcd
then ucd" is the warm start of Fig. 9: half of the updates by PCD, the other half by unbiased CD from the
chains of PCD, at the rate 0.02; with --budget paper 500 updates of PCD at 0.2, and then 1,000 of unbiased CD
at a tenth of it. A seed sets where learning starts, and its noise; the truth and its rows are always the
same. Every run is written as soon as it is over, and kept in --out at every point before; a repeated command
runs what is missing, and goes on from there.

The paper draws an approximate likelihood from chains that start at the scored rows; that says nothing about
the likelihood, so it is estimated by annealed importance sampling here, with its standard error, its sample
size and the reverse bound. The variance of Fig. 12 is that of the free phase over 1000 chains, read from
σ(Wh + b) hᵀ as in the paper (simulated_rbm_variance.json; other records: v E[h|v]ᵀ, 10 groups of chains).
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from ucd_common import PUBLISHED_PAIRS, earlier, figure, normal_machine, parser, write

import harmonium as hm
from harmonium.chains.kernel import KernelState
from harmonium.learning import ExpectationRequest
from harmonium.machine import Statistics

ROWS, CHAINS = 1000, 1000
UPDATES = {"quick": 1_500, "paper": 10_000}
POINTS = {"quick": 6, "paper": 10}
RATE, PUBLISHED = 0.02, 0.2
rules = hm.rules
RULES = {"ucd": rules.ucd(), "cd-1": rules.cd(1), "pcd-1": rules.pcd(1, CHAINS)}
ALG_3 = rules.ucd(pair_kernel=PUBLISHED_PAIRS)
CAPPED = rules.ucd(pair_kernel=PUBLISHED_PAIRS, max_sweeps=100)  # the cap of the authors' program
LONGER = {f"cd-{k}": rules.cd(k) for k in (2, 5, 10)}
WARM = rules.ucd(start="persistent")


class Stage(NamedTuple):
    """A part of a run: a rule, its rate, its updates, and after how many of them it is looked at.

    Its chains go on from those of the stage before ("on"), begin at every row once, as those of PCD in the
    authors' program ("rows"), or where the rule begins ("anew").
    """

    rule: hm.learning.Rule
    rate: float
    updates: int
    every: int
    begin: str = "on"


def stages_of(updates: int, points: int) -> dict[str, dict[str, list[Stage]]]:
    """Returns the recipes of both budgets."""
    every = updates // points
    once = {
        name: lambda rate, rule=rule: [Stage(rule, rate, updates, every)]
        for name, rule in (RULES | LONGER).items()
    }
    centred = {name: [Stage(rules.centred(rule), RATE, updates, every)] for name, rule in RULES.items()}
    halves = [Stage(rule, RATE, updates // 2, every) for rule in (RULES["pcd-1"], WARM)]
    return {
        "quick": {
            **{f"{name} {rate}": once[name](rate) for rate in (PUBLISHED, RATE) for name in RULES},
            **{f"centred {name} {RATE}": stages for name, stages in centred.items()},
            f"pcd then ucd {RATE}": halves,
        },
        "paper": {
            **{f"{name} {PUBLISHED}": once[name](PUBLISHED) for name in ("cd-1", "pcd-1", *LONGER)},
            "pcd then ucd": [Stage(RULES["pcd-1"], PUBLISHED, 500, 250), Stage(WARM, RATE, 1000, 250)],
            f"ucd {PUBLISHED}": once["ucd"](PUBLISHED),
            f"ucd alg. 3 {PUBLISHED}": [Stage(ALG_3, PUBLISHED, updates, every)],
            f"ucd alg. 3, capped {PUBLISHED}": [Stage(CAPPED, PUBLISHED, updates, every)],
            f"pcd-1 from rows {PUBLISHED}": [Stage(RULES["pcd-1"], PUBLISHED, updates, every, "rows")],
            "pcd from rows, then ucd alg. 3, capped": [
                Stage(RULES["pcd-1"], PUBLISHED, 500, 250, "rows"),
                Stage(CAPPED, RATE, 1000, 250, "anew"),
            ],
        },
    }


@torch.no_grad()
def exact_draws(machine: hm.BoltzmannMachine, rows: int, generator: torch.Generator) -> torch.Tensor:
    """Visible states from the machine's own distribution, by enumeration of the hidden ones."""
    hamiltonian = machine.hamiltonian()
    units = machine.layers[1].n_units
    digits = torch.arange(units)

    def states(numbers: torch.Tensor) -> torch.Tensor:
        return ((numbers.unsqueeze(1) >> digits) & 1).float()

    chunks = torch.arange(1 << units).split(1 << 14)
    log_weights = [-hamiltonian.free_energy([states(c), states(c)], (0,)) for c in chunks]
    drawn = torch.multinomial(torch.cat(log_weights).softmax(0), rows, True, generator=generator)
    h = states(drawn)
    return hamiltonian.sample(0, hamiltonian.field(0, [h, h]), generator)


@torch.no_grad()
def begun(stage: Stage, machine: hm.BoltzmannMachine, X: torch.Tensor, state: Any, seed: int) -> Any:
    """Returns what a stage begins with, after another one that ended with ``state``."""
    if stage.begin != "rows":
        return state if stage.begin == "on" else None
    hamiltonian = machine.hamiltonian()
    h = hamiltonian.sample(1, hamiltonian.field(1, [X, None]), torch.Generator().manual_seed(seed))
    return KernelState([X.clone(), h], 0)


@torch.no_grad()
def variances(
    machine: hm.BoltzmannMachine, rule: hm.learning.Rule, X: torch.Tensor, state: Any, seed: int
) -> dict[str, float]:
    """Of the free phase with 1000 chains: E ‖f - E f‖² for each group of parameters (Fig. 12)."""
    generator = torch.Generator().manual_seed(seed)
    hamiltonian = machine.hamiltonian()
    kept = getattr(state, "free", state)  # without offsets
    chains = getattr(kept, "states", kept)
    keeps = chains is not None
    estimates: list[list[torch.Tensor]] = []
    for group in torch.arange(ROWS).split(1):
        part = [x[group] for x in chains] if keeps else None
        total = Statistics(hamiltonian).in_readings([(0,)])
        request = ExpectationRequest(hamiltonian, X[group], generator, total, complete=True, state=part)
        rule.free.add(request)
        estimates.append([total.thetas[0][0], total.thetas[1][0], total.products[0]])
    names = ("visible_biases", "hidden_biases", "couplings")
    return {
        name: float(torch.stack(each).var(0).sum()) / ROWS
        for name, each in zip(names, zip(*estimates, strict=True), strict=True)
    }


def learn(
    name: str, seed: int, sets: dict[str, torch.Tensor], stages: list[Stage], kept: Path
) -> list[dict[str, Any]]:
    """Trains one machine, from what ``kept`` holds of it, and returns a record for each of its points."""
    machine = normal_machine(200, 100, 0.1, torch.Generator().manual_seed(1 + seed))
    points: list[dict[str, Any]] = []
    state = None
    if kept.exists():
        parameters, state, points = pickle.loads(kept.read_bytes())
        machine.load_state_dict(parameters)
    seconds = points[-1]["cpu_seconds"] if points else 0.0
    total, step = sum(stage.updates for stage in stages), 0
    for stage in stages:
        rule, rate, updates, every, _ = stage
        for part in range(updates // every):
            if points and step < points[-1]["updates"]:
                step += every
                continue
            if part == 0:
                state = begun(stage, machine, sets["train"], state, seed)
            started = time.process_time()
            run = hm.train(
                machine, sets["train"], rule=rule, updates=every, batch_size=ROWS, learning_rate=rate,
                rule_state=state, seed=step + total * seed, record_every=every, progress=False,
            ).whole()  # fmt: skip
            state = run.rule_state
            seconds += time.process_time() - started
            step += every
            partition = hm.likelihood.ais(machine, 100, 500, data=sets["train"], seed=0)
            point = {
                "updates": step,
                "cpu_seconds": seconds,
                "standard_error": partition.standard_error,
                "sample_size": partition.ess,
                "reverse_bound_minus_estimate": partition.upper - partition.value,
                "meeting_time": run.history[-1].get("meeting_time"),
                "longest_meeting_time": run.history[-1].get("longest_meeting_time"),
                "rejected": run.history[-1].get("rejected"),
                "variance": variances(machine, rule, sets["train"], state, step),
            }
            for which, X in sets.items():
                point[which] = float(hm.likelihood.log_likelihood(machine, X, partition).mean())
            points.append(point)
            kept.write_bytes(pickle.dumps((machine.state_dict(), state, points)))
            print(
                f"{name}, seed {seed}: {step} updates, train {point['train']:.2f}, test {point['test']:.2f}",
                flush=True,
            )
    return points


def spread(values: list[float]) -> str:
    """Mean and standard deviation over seeds."""
    values_ = torch.tensor(values)
    return f"{values_.mean():8.2f} ±{values_.std() if len(values) > 1 else 0:5.2f}"


def main() -> None:
    made = parser(__doc__, "simulated_rbm")
    made.add_argument("--only", action="append", help="a recipe of the budget; repeatable")
    made.add_argument("--updates", type=int, help="overrides the budget's")
    made.add_argument("--seeds", type=int, default=5)
    arguments = made.parse_args()
    torch.set_num_threads(arguments.threads)
    updates = arguments.updates or UPDATES[arguments.budget]
    recipes = stages_of(updates, POINTS[arguments.budget])[arguments.budget]
    if unknown := set(arguments.only or ()) - set(recipes):
        raise SystemExit(f"--only: expected one of {', '.join(recipes)}, received {', '.join(unknown)}")
    generator = torch.Generator().manual_seed(0)
    truth = normal_machine(200, 20, 1.0, generator)
    drawn = exact_draws(truth, 2 * ROWS, generator)
    sets = {"train": drawn[:ROWS].clone(), "test": drawn[ROWS:].clone()}
    best = {name: float(hm.likelihood.exact_log_likelihood(truth, X).mean()) for name, X in sets.items()}
    print(f"the truth itself, exactly: train {best['train']:.2f}, test {best['test']:.2f} nats")
    settings = {
        "experiment": "simulated RBM: 1000 exact draws of a 200x20 machine, 100 hidden units learn them",
        "budget": arguments.budget,
        "updates": updates,
        "reduced": updates < UPDATES["paper"],
        "truth": best,
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = earlier(arguments.out, settings)
    for seed in range(arguments.seeds):
        for name in arguments.only or recipes:
            if len(results.setdefault(name, [])) == seed:
                kept = arguments.out / f"{name}, seed {seed}.pickle"
                results[name].append(learn(name, seed, sets, recipes[name], kept))
                write(arguments.out, {**settings, "results": results}, picture(results, best["test"]))
                kept.unlink()

    print(f"\n{'recipe':20} {'train':>15} {'test':>15} {'best test':>15} {'error':>6} {'CPU s':>6}")
    for name, runs in results.items():
        last = [points[-1] for points in runs]
        tops = [max(point["test"] for point in points) for points in runs]
        print(
            f"{name:20} {spread([p['train'] for p in last])} {spread([p['test'] for p in last])} "
            f"{spread(tops)} {max(p['standard_error'] for p in last):6.2f} "
            f"{sum(p['cpu_seconds'] for p in last) / len(last):6.0f}"
        )
    if updates < UPDATES["paper"]:
        print("a reduced experiment: fewer updates than --budget paper")


def picture(results: dict[str, list[list[dict[str, Any]]]], truth: float) -> Any:
    """Means over seeds."""
    made, axes = figure(3)
    for name, runs in results.items():
        x = [point["updates"] for point in runs[0]]

        def mean(value: Callable[[dict[str, Any]], float], runs: Any = runs) -> list[float]:
            return [sum(map(value, points)) / len(points) for points in zip(*runs, strict=True)]

        (line,) = axes[0][0].plot(x, mean(lambda p: p["test"]), marker=".", label=name)
        if runs[0][-1]["meeting_time"] is not None:
            timed = mean(lambda p: p["meeting_time"] or float("nan"))
            axes[0][1].plot(x, timed, marker=".", color=line.get_color(), label=name)
        axes[0][2].plot(x, mean(lambda p: p["variance"]["couplings"]), marker=".", label=name)
    axes[0][0].axhline(truth, linestyle="--", color="0.4", linewidth=1)
    axes[0][0].set(xlabel="updates", ylabel="test log-likelihood (AIS); dashed: the truth")
    axes[0][0].legend(fontsize="x-small")
    axes[0][1].set(xlabel="updates", ylabel="mean meeting time")
    axes[0][2].set(xlabel="updates", ylabel="gradient variance of the couplings", yscale="log")
    return made


if __name__ == "__main__":
    main()
