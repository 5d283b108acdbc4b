"""Train, evaluate and sample a real machine: an RBM on handwritten digits, in about a minute.

The digits are those that come with scikit-learn, 8 by 8 pixels, cut at half intensity. A part is held out;
the machine is judged by its log-likelihood there, with ln Z from annealed importance sampling, against a
baseline of independent pixels. Results go to demo/ in the current folder, where a repeated run replaces its
own files; demo/digits/report.html tells of the run in one page.

    python examples/demo.py [--budget full|small]        (or DEMO_BUDGET=small)
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import time
from pathlib import Path

import torch

import harmonium as hm
from harmonium.cli import main as command
from harmonium.report import image_panels, learning_curve

FOLDER = Path("demo")
RUN = FOLDER / "digits"
HIDDEN, HELD_OUT = 100, 297
CURVE = 50, 1000  # annealing runs and temperatures for a point of the curve
POINTS = 10
BUDGETS = {  # updates, annealing runs and temperatures of AIS, sweeps before a sample
    "full": (20_000, 500, 2000, 5000),
    "small": (1_500, 100, 500, 500),
}


def main(budget: str) -> None:
    updates, ais_chains, temperatures, sweeps = BUDGETS[budget]
    started = time.perf_counter()
    FOLDER.mkdir(exist_ok=True)
    torch.set_num_threads(1)  # the machine is small: one thread is fastest

    grey, _ = hm.data.digits()
    X = torch.from_numpy(hm.data.threshold(grey))
    X = X[torch.randperm(len(X), generator=torch.Generator().manual_seed(0))]
    training, test = X[HELD_OUT:], X[:HELD_OUT]

    machine = hm.BoltzmannMachine([hm.Bernoulli(64), hm.Bernoulli(HIDDEN)], seed=0)
    hm.machine.init_visible_biases_(machine, training)
    machine.metadata = {
        "encoder": hm.data.Threshold().to_dict(),
        "data": {"name": "digits", "source": "digits", "image_shape": [8, 8]},
    }
    # Before training the couplings are all but zero: the visible layer alone is the baseline.
    baseline = machine.layers[0].log_conditional(test, torch.zeros_like(test)).sum(1).mean().item()

    def held_out_log_likelihood(machine: hm.BoltzmannMachine, X: torch.Tensor) -> float:
        log_partition = hm.likelihood.ais(machine, *CURVE, data=training, reverse=False, seed=2)
        return hm.likelihood.log_likelihood(machine, X, log_partition).mean().item()

    rule = hm.rules.pcd(k=1, chains=100)
    print(f"training an RBM of 64 x {HIDDEN} binary units on {len(training)} digits, {updates} updates ...")
    run = hm.train(
        machine,
        training,
        rule=rule,
        updates=updates,
        batch_size=100,
        learning_rate=0.1,
        schedule="linear",
        weight_decay=1e-3,
        seed=0,
        validation=test,
        metrics={"held-out log-likelihood": held_out_log_likelihood},
        evaluate_every=updates // POINTS,
        run_dir=RUN,
        overwrite=True,
    )

    print(f"estimating ln Z with {ais_chains} annealing runs over {temperatures} temperatures ...")
    log_partition = hm.likelihood.ais(machine, ais_chains, temperatures, data=training, seed=3)
    likelihood = {
        name: hm.likelihood.log_likelihood(machine, rows, log_partition)
        for name, rows in (("training", training), ("held-out", test))
    }

    print("sampling ...")
    generator = torch.Generator().manual_seed(4)
    noise = machine.random_states(40, seed=generator)
    samples = hm.chains.run(machine, hm.chains.Gibbs(), noise, sweeps=sweeps, seed=generator)[0]

    title = "Digits that the machine has not seen, and samples of it"
    image_panels({"held-out": test[:40], "samples": samples}, (8, 8), FOLDER / "samples.png", title=title)
    learning_curve(run.history, FOLDER / "learning_curve.png", references={"independent pixels": baseline})

    mean = {name: values.mean().item() for name, values in likelihood.items()}
    error = {name: values.std().item() / len(values) ** 0.5 for name, values in likelihood.items()}
    results = {
        "ln Z, bounds": f"{log_partition.lower:.3f} to {log_partition.upper:.3f}",
        "ln Z": f"{log_partition.value:.3f} ± {log_partition.standard_error:.3f} (AIS standard error)",
        "effective sample size": f"{log_partition.ess:.0f} of {ais_chains}",
        **{
            f"log-likelihood, {name} digits": f"{mean[name]:.2f} ± {error[name]:.2f} nats (rows' spread)"
            for name in mean
        },
        "held-out digits, independent pixels": f"{baseline:.2f} nats",
    }
    settings = {
        "machine": f"64 x {HIDDEN} binary units",
        "rule": rule.name,
        "updates": updates,
        "learning rate": "0.1, falling to 0 along a line",
        "weight decay": "0.001",
    }
    lines = ["# A restricted Boltzmann machine of handwritten digits"]
    for heading, values in (("Settings", settings), ("Results", results)):
        lines += [f"\n## {heading}\n", "| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in values.items())]
    lines += ["\n![Held-out digits, and samples of the machine below them](samples.png)"]
    lines += ["\n![Learning curve](learning_curve.png)\n"]
    (FOLDER / "summary.md").write_text("\n".join(lines), encoding="utf-8")

    print("writing the report ...")
    with contextlib.redirect_stdout(io.StringIO()):  # its remarks stand on the page
        status = command(
            ["report", str(RUN), "--overwrite", "--sweeps", str(sweeps), "--mixing-sweeps", "10000"]
        )
    if status:
        raise SystemExit("the report could not be written")

    print()
    for name, value in results.items():
        print(f"  {name:38s}{value}")
    print(f"\nin {time.perf_counter() - started:.0f} s, written to {FOLDER.resolve()}:")
    for file in ("summary.md", "samples.png", "learning_curve.png", RUN.name + "/machine.safetensors"):
        print(f"  {file}")
    print(f"\nOpen {(RUN / 'report.html').resolve()} in a browser: curves, samples and a verdict on the run.")
    ratio = math.exp(mean["held-out"] - baseline)
    print(
        f"\nA digit that it has not seen is {ratio:,.0f} times as probable under the machine as under"
        " independent pixels"
        f"\n({mean['held-out']:.2f} nats against {baseline:.2f}, the mean over {HELD_OUT})."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train, evaluate and sample an RBM of handwritten digits.")
    parser.add_argument("--budget", choices=BUDGETS, default=os.environ.get("DEMO_BUDGET", "full"))
    chosen = parser.parse_args().budget
    if chosen not in BUDGETS:  # argparse does not check defaults
        parser.error(f"DEMO_BUDGET: expected one of {', '.join(BUDGETS)}, received {chosen!r}")
    main(chosen)
