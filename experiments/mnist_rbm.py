"""The classic: a Bernoulli RBM with 500 hidden units on binarised MNIST, its test log-likelihood by AIS.

    python experiments/mnist_rbm.py --budget quick   # a reduced experiment, minutes
    python experiments/mnist_rbm.py --budget paper   # the whole job
    python experiments/mnist_rbm.py --budget best    # four times as long
    python experiments/mnist_rbm.py --offsets earlier  # centring by means of the batch before, or
    python experiments/mnist_rbm.py --offsets batch    # of the batch itself, which shrinks couplings

Published for 784x500 (Salakhutdinov & Murray 2008, Table 1): CD-25 -86.34, CD-3 -105.5, CD-1 -125.5 nats.
Their pixels and ours are Bernoulli draws with the grey level as probability; the draws differ. The test
pixels are drawn once. The training pixels are drawn anew at every update, or once with --pixels fixed.

MNIST is read from $HARMONIUM_DATA or ../shared/data. Results, a picture of samples and the checkpoint go
to --out; an interrupted run continues when the same command is given again.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import harmonium as hm
from harmonium.report import image_grid

PUBLISHED = {"CD-1": -125.5, "CD-3": -105.5, "CD-25": -86.34}
BUDGETS = {
    "quick": {"updates": 10_000, "temperatures": 2_000, "ais_chains": 100},
    "paper": {"updates": 100_000, "temperatures": 10_000, "ais_chains": 500},
    "best": {"updates": 400_000, "temperatures": 20_000, "ais_chains": 500},
}


class Unsaid(hm.learning.Expectation):
    """Chains that do not say that they are, so that offsets of centring are means of the batch before."""

    def __init__(self, chains: hm.learning.Expectation) -> None:
        self.chains = chains

    def add(self, request: hm.learning.ExpectationRequest) -> hm.learning.Outcome:
        return self.chains.add(request)._replace(sampled=False)


class Forgetful:
    """A centred rule that keeps no rows of the batch before, and so takes those of each batch for itself."""

    def __init__(self, rule: hm.learning.Rule) -> None:
        self.rule = rule

    def gradient(self, machine: hm.BoltzmannMachine, v: Any, state: Any = None, **own: Any) -> Any:
        estimate = self.rule.gradient(machine, v, state, **own)
        return estimate._replace(state=estimate.state.free)

    def __repr__(self) -> str:
        return f"{self.rule}, forgotten"


def evaluate(
    machine: hm.BoltzmannMachine, sets: dict[str, torch.Tensor], budget: dict[str, int]
) -> dict[str, float]:
    """ln Z by AIS with both bounds, and the mean log-likelihood of each set."""
    started = time.perf_counter()
    partition = hm.likelihood.ais(
        machine, budget["ais_chains"], budget["temperatures"], data=sets["train"], seed=1
    )
    result = {f"log_partition_{name}": value for name, value in partition._asdict().items()}
    for name, X in sets.items():
        result[f"{name}_log_likelihood"] = float(hm.likelihood.log_likelihood(machine, X, partition).mean())
    result["evaluation_seconds"] = time.perf_counter() - started
    return result


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--budget", choices=sorted(BUDGETS), default="quick")
    parser.add_argument("--pixels", choices=("redrawn", "fixed"), default="redrawn")
    parser.add_argument(
        "--offsets", choices=("midpoint", "earlier", "batch", "none"), default="midpoint", help="of centring"
    )
    parser.add_argument("--updates", type=int, help="in place of the budget's, which is then reduced")
    parser.add_argument("--out", type=Path, default=None, help="default: runs/mnist_rbm_BUDGET")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    budget = dict(BUDGETS[arguments.budget])
    budget["updates"] = arguments.updates or budget["updates"]
    rule: Any = hm.rules.pcd(1, chains=100)
    if arguments.offsets != "none":
        rule = hm.rules.centred(rule)
    if arguments.offsets in ("earlier", "batch"):  # another name, so another run
        rule = replace(rule, free=Unsaid(rule.free), name=f"{rule} with means of the batch before")
    if arguments.offsets == "batch":
        rule = Forgetful(rule)
    out = arguments.out or Path("runs") / f"mnist_rbm_{arguments.budget}"

    grey = np.asarray(hm.data.read("mnist").samples)
    grey_test = np.asarray(hm.data.read("mnist-test").samples)
    X, test = hm.data.bernoulli_binarise(grey, 0), hm.data.bernoulli_binarise(grey_test, 1)
    machine = hm.BoltzmannMachine([hm.Bernoulli(784), hm.Bernoulli(500)], seed=arguments.seed)
    hm.machine.init_visible_biases_(machine, hm.data.Rows.of(X))
    begun = time.process_time()
    run = hm.train(
        machine,
        hm.tables.Codec(hm.data.Standardise(0.0, 255.0), ()).rows(grey, keep=False)
        if arguments.pixels == "redrawn"
        else X,
        transform=hm.data.bernoulli_binarise if arguments.pixels == "redrawn" else None,
        rule=rule,
        updates=budget["updates"],
        batch_size=100,
        learning_rate=0.05,
        schedule="linear",
        averaging=0.999,
        seed=arguments.seed,
        device=arguments.device,
        run_dir=out,
        resume=True,
    )
    if run.status != "completed":
        raise SystemExit(f"{run.status} after {run.updates} updates; the same command continues")
    cpu_seconds = time.process_time() - begun  # of this process: not those before a run was resumed
    print(f"trained in {run.seconds:.0f} s of {budget['updates']} updates, {cpu_seconds:.0f} CPU s here")

    averaged = run.averaged_machine
    sets = {
        "test": torch.from_numpy(test).float().to(averaged.device),
        "train": torch.from_numpy(X[:10_000]).float().to(averaged.device),
    }
    record = {
        "experiment": f"784x500 Bernoulli RBM, binarised MNIST, {rule}, averaged parameters",
        "settings": {**budget, "training_pixels": arguments.pixels, "offsets": arguments.offsets},
        "budget": arguments.budget,
        "reduced": arguments.budget == "quick" or arguments.updates is not None,
        "training_seconds": run.seconds,
        "training_cpu_seconds": cpu_seconds,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "threads": arguments.threads,
        "seed": arguments.seed,
        "versions": {
            "harmonium": hm.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        **evaluate(averaged, sets, budget),
    }
    (out / "result.json").write_text(json.dumps(record, indent=2) + "\n")

    # The persistent chains are the model's own samples; shown as p(v = 1 | h).
    kept = run.rule_state
    states = hm.chains.run(
        averaged,
        hm.chains.Gibbs(),
        getattr(kept, "free", kept).states,
        1000,
        seed=torch.Generator(averaged.device).manual_seed(arguments.seed),
    )
    hamiltonian = averaged.hamiltonian()
    with torch.no_grad():
        means = hamiltonian.mean(0, hamiltonian.field(0, states))
    image_grid(means.cpu().numpy(), (28, 28), 10, path=out / "samples.png")

    print(f"ln Z {record['log_partition_value']:.3f} ± {record['log_partition_standard_error']:.3f}", end="")
    print(f" (effective sample size {record['log_partition_ess']:.0f} of {budget['ais_chains']},", end="")
    print(f" reverse bound {record['log_partition_upper']:.3f})")
    print(f"mean log-likelihood: test {record['test_log_likelihood']:.3f},", end="")
    print(f" train (first 10,000) {record['train_log_likelihood']:.3f} nats")
    print("published: " + ", ".join(f"{name} {value}" for name, value in PUBLISHED.items()))
    if record["reduced"]:
        print("a reduced experiment: the published figures belong to the full one")
    print(f"written to {out}: result.json, samples.png, averaged.safetensors")


if __name__ == "__main__":
    main()
