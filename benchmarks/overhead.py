"""What ``hm.train`` adds to the rule's gradient."""

from __future__ import annotations

from statistics import median

import torch
from torch import Tensor

import harmonium as hm
from benchmarks import peers
from benchmarks.race import Contestant, Table, race, ratio, repeat


def overhead(quick: bool) -> Table:
    table = Table(
        "overhead",
        "PCD-1: what a whole update of hm.train adds to rule.gradient",
        [
            "size, batch = chains",
            "gradient µs",
            "+ SGD step",
            "hm.train",
            "train adds µs",
            "train ÷ gradient",
        ],
        notes=["+ SGD step: gradient, then torch.optim.SGD(fused=True)", "medians; ratio within rounds"],
    )
    for visible, hidden, batch, updates in ((16, 16, 10, 200), (784, 500, 100, 25), (784, 500, 1000, 4)):
        X = peers.rows(10_000, visible)
        contestants = {
            "gradient": _gradient(X[:batch], hidden, updates, step=False),
            "step": _gradient(X[:batch], hidden, updates, step=True),
            "train": peers.harmonium_training(X, hidden, batch, batch, 1, updates),
        }
        seconds = race(contestants, 3 if quick else 15)
        micro = {name: 1e6 * median(taken) for name, taken in seconds.items()}
        added = micro["train"] - micro["gradient"]
        times = ratio(seconds, "train", "gradient")
        size = f"{visible} × {hidden}, {batch}"
        cells = [*micro.values(), added]
        table.rows.append([size, *(f"{cell:.0f}" for cell in cells), f"{times:.2f}"])
        table.data[size] = {**{f"{name}_microseconds": each for name, each in micro.items()}, "ratio": times}
    return table


def _gradient(v: Tensor, hidden: int, updates: int, *, step: bool) -> Contestant:
    machine = peers.machine(v.shape[1], hidden)
    rule = hm.rules.pcd(1, len(v))
    generator = torch.Generator().manual_seed(0)
    parameters = dict(machine.named_parameters())
    optimizer = torch.optim.SGD(parameters.values(), lr=peers.LEARNING_RATE, maximize=True, fused=True)
    state = None

    def update() -> None:
        nonlocal state
        estimate = rule.gradient(machine, v, state, seed=generator)
        state = estimate.state
        if step:
            for name, parameter in parameters.items():
                parameter.grad = estimate.parameters[name]
            optimizer.step()

    return repeat(update, updates)
