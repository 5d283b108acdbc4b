"""MNIST by a machine with the label beside the pixels (Larochelle & Bengio 2008, Table 1).

    python experiments/mnist_classifier.py                                          # discriminative
    python experiments/mnist_classifier.py --joint 0.01 --hidden 700 --epochs 12    # hybrid

784 pixels and a label, both joined to one hidden layer. Grey levels are probabilities: every update draws
0/1 images from them, and p(y | x) is read at the grey levels themselves. 10,000 of the training images are
held out to choose the epoch whose parameters are kept; test images are looked at once, at the end.

MNIST is read from $HARMONIUM_DATA or ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import harmonium as hm
from harmonium.training.callbacks import EarlyStopping

HELD_OUT = 10_000


def images(name: str) -> tuple[Tensor, Tensor]:
    """Grey levels in [0, 1] beside one-hot labels, (rows, 794), and the labels."""
    data = hm.data.read(name)
    labels = torch.from_numpy(np.asarray(data.labels).astype(np.int64))
    grey = hm.data.Standardise(0.0, 255.0).encode(torch.from_numpy(np.array(data.samples)))
    return torch.cat([grey, torch.eye(10)[labels]], 1), labels


def drawn(rows: Tensor, generator: torch.Generator) -> Tensor:
    """0/1 images from grey levels, and the labels as they are."""
    return torch.cat([hm.data.bernoulli_binarise(rows[:, :784], generator), rows[:, 784:]], 1)


@torch.no_grad()
def log_weights(machine: hm.BoltzmannMachine, v: Tensor) -> Tensor:
    """ln p(y | x) up to a constant of every row, its pixels at their grey levels: (rows, 10)."""
    hamiltonian = machine.hamiltonian()
    parts = []
    for rows in torch.split(v, 1000):
        states = hamiltonian.split(rows)
        heard = hamiltonian.field(2, states, neighbours=[0])
        weights = []
        for label in torch.eye(10):
            states[1] = label.expand(len(rows), -1)
            field = heard + hamiltonian.field(2, states, neighbours=[1])
            weights.append(-hamiltonian.free_energy(states, (2,), {2: field}))
        parts.append(torch.stack(weights, 1))
    return torch.cat(parts)


def errors(machine: hm.BoltzmannMachine, v: Tensor) -> Tensor:
    """Whether the most probable label is another than the row's: (rows,)."""
    return (log_weights(machine, v).argmax(1) != v[:, 784:].argmax(1)).double()


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--joint", type=float, default=0.0)
    parser.add_argument("--hidden", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--rate", type=float, default=0.002)
    parser.add_argument("--decay", type=float, default=0.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=Path("experiments/results/mnist_classifier.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    v, _ = images("mnist")
    test, _ = images("mnist-test")
    for seed in arguments.seeds:
        order = torch.randperm(len(v), generator=torch.Generator().manual_seed(seed))
        held_out, train = v[order[:HELD_OUT]], v[order[HELD_OUT:]]
        layers = [hm.Bernoulli(784), hm.Categorical(1, 10), hm.Bernoulli(arguments.hidden)]
        machine = hm.BoltzmannMachine(layers, edges=[(0, 2), (1, 2)], visible=[0, 1], seed=seed)
        hm.machine.init_visible_biases_(machine, drawn(train, torch.Generator().manual_seed(seed)))
        best = EarlyStopping("error", arguments.epochs, larger_is_better=False)
        started = time.process_time()
        run = hm.train(
            machine, train,
            rule=hm.rules.hybrid(hm.rules.pcd(chains=100), condition_on=[0], joint=arguments.joint),
            epochs=arguments.epochs, batch_size=100, optimizer="adam", learning_rate=arguments.rate,
            schedule="linear", weight_decay=arguments.decay, transform=drawn,
            validation=drawn(held_out[:1], torch.Generator().manual_seed(seed)),
            metrics={"error": lambda machine, _, grey=held_out: float(errors(machine, grey).mean())},
            callbacks=[best], seed=seed, progress=False,
        ).whole()  # fmt: skip
        seconds = time.process_time() - started
        curve = [round(float(each["error"]), 4) for each in run.history if "error" in each]
        found = {
            "joint": arguments.joint,
            "hidden": arguments.hidden,
            "epochs": arguments.epochs,
            "learning_rate": arguments.rate,
            "weight_decay": arguments.decay,
            "seed": seed,
            "validation_error": round(float(best.best), 4),
            "test_error": round(float(errors(machine, test).mean()), 4),
            "cpu_seconds": round(seconds),
            "validation_errors": curve,
        }
        print(json.dumps(found), flush=True)
        records = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
        arguments.out.write_text(json.dumps([*records, found], indent=1) + "\n")


if __name__ == "__main__":
    main()
