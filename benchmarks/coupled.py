"""Updates of unbiased contrastive divergence: coupled chains until they meet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import mean
from unittest.mock import patch

import torch
from harmonium._products import product

import harmonium as hm
from benchmarks.race import Contestant, Table, compare, now

PAIRS = 1000
NOTE = "reference program, on a thread of such a machine, not run here: {} ms at a mean meeting time of {}"


def coupled_small(quick: bool) -> Table:
    """Bars and stripes in the state that plain training at the published rate reaches after 200 updates."""
    X = torch.from_numpy(hm.data.bars_and_stripes(4))
    machine = _machine(16, 16, 0.1)
    rule = hm.rules.ucd(chains=PAIRS, max_steps=100)
    hm.train(machine, X, rule=rule, updates=200, batch_size=len(X), learning_rate=0.1, seed=0)
    return _race("ucd-small", machine, X, rule, quick, NOTE.format(2.3, 2.2))


def coupled_large(quick: bool) -> Table:
    """A machine of the size of images, with couplings that let pairs meet after about ten sweeps."""
    machine = _machine(784, 1000, 0.038)
    v = torch.rand(PAIRS, 784, generator=torch.Generator().manual_seed(1)).round()
    return _race("ucd-large", machine, v, hm.rules.ucd(chains=PAIRS), quick, NOTE.format(2000, "about 10"))


def _machine(visible: int, hidden: int, scale: float) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine([hm.Bernoulli(visible), hm.Bernoulli(hidden)])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    return machine


def _race(
    name: str, machine: hm.BoltzmannMachine, v: torch.Tensor, rule: hm.learning.Rule, quick: bool, note: str
) -> Table:
    generator = torch.Generator().manual_seed(2)
    times: list[float] = []

    def update() -> float:
        start = now()
        estimate = rule.gradient(machine, v, seed=generator)
        taken = now() - start
        times.append(estimate.diagnostics["meeting_time"])
        return taken

    def eager() -> float:
        with _without_compiled_steps():
            return update()

    J = machine.couplings[0].weight.detach()
    start = torch.ones(PAIRS, J.shape[0])
    hidden = torch.ones(PAIRS, J.shape[1])

    def products() -> float:
        begun = now()
        for _ in range(10):
            product(start, J)
            product(hidden, J.t())
        return now() - begun

    contestants: dict[str, Contestant] = {
        "harmonium": update,
        "the same, eager tensor code alone": eager,
        "products of ten sweeps of the first chains": products,
    }
    title = f"UCD, {J.shape[0]} × {J.shape[1]}, {PAIRS} pairs: one gradient"
    table = compare(Table(name, title), contestants, 3 if quick else 11, {}, {})
    table.notes += [f"mean meeting time {mean(times):.1f}", note]
    table.data["meeting_time"] = mean(times)
    return table


@contextmanager
def _without_compiled_steps() -> Iterator[None]:
    with patch("harmonium.compiled.serving.COMPILED", False):
        yield
