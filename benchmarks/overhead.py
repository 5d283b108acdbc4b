"""What ``hm.train`` adds to the rule's gradient."""

from __future__ import annotations

import torch
from torch import Tensor

import harmonium as hm
from benchmarks import peers
from benchmarks.race import Contestant, Table, compare, repeat

SIZES = ((16, 16, 10, 200), (784, 500, 100, 25), (784, 500, 1000, 4))
"""Visible and hidden units, rows of a batch and chains, updates in a round."""
CASES = tuple(f"{visible} × {hidden}, {batch}" for visible, hidden, batch, _ in SIZES)
PARTS = ("rule.gradient", "and a step of torch.optim.SGD", "hm.train")


def overhead(quick: bool) -> Table:
    table = Table(
        "overhead",
        "PCD-1: what a whole update of hm.train adds to rule.gradient",
        "÷ rule.gradient",
        notes=["the last number of a size: rows of the batch, and chains"],
    )
    for case, (visible, hidden, batch, updates) in zip(CASES, SIZES, strict=True):
        X = peers.rows(10_000, visible)
        work = (
            _gradient(X[:batch], hidden, updates, step=False),
            _gradient(X[:batch], hidden, updates, step=True),
            peers.harmonium_training(X, hidden, batch, batch, 1, updates),
        )
        compare(table, dict(zip(PARTS, work, strict=True)), 3 if quick else 15, group=case)
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
