"""Noise-started contrastive divergence with Gibbs-Langevin chains, for each update."""

from __future__ import annotations

from functools import partial
from math import cos, pi

import torch
from torch import Tensor

import harmonium as hm
from benchmarks.race import Table, compare, share
from benchmarks.targets import HARMONIUM, PLAIN
from harmonium.chains import GibbsLangevin

STEP, INNER = 0.1, 10


def gibbs_langevin_small(quick: bool) -> Table:
    """The size of the published mixtures."""
    return _race("gibbs-langevin-small", quick, visible=2, hidden=256, batch=100, sweeps=100)


def gibbs_langevin_large(quick: bool) -> Table:
    """The size of images; 5 of the published 100 sweeps, and the time of one."""
    return _race("gibbs-langevin-large", quick, visible=784, hidden=4096, batch=512, sweeps=5)


def _race(name: str, quick: bool, *, visible: int, hidden: int, batch: int, sweeps: int) -> Table:
    per_sweep = visible > 2
    what = "a sweep with its statistics" if per_sweep else f"an update of {sweeps} sweeps"
    table = Table(name, f"Gibbs-Langevin, {visible} × {hidden}, batch {batch}, {INNER} inner steps: {what}")
    machine = hm.BoltzmannMachine([hm.Gaussian(visible), hm.Bernoulli(hidden)])
    v = torch.randn(batch, visible, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    parts = sweeps if per_sweep else 1

    def update(correction: str) -> None:
        kernel = GibbsLangevin(STEP, INNER, correction)
        hm.rules.noise_cd(sweeps, kernel=kernel).gradient(machine, v, seed=generator)

    contestants = {
        f"{HARMONIUM}, {correction}": share(partial(update, correction), parts)
        for correction in ("exact", "none", "metropolis")
    }
    W, b = machine.couplings[0].weight.detach(), machine.layers[1].bias.detach()
    contestants[PLAIN] = share(partial(_plain, W, b, v, sweeps), parts)
    table.notes.append("the plain loop draws every inner step and has no Metropolis test")
    return compare(table, contestants, 2 if quick else 7)


@torch.no_grad()
def _plain(W: Tensor, b: Tensor, v: Tensor, sweeps: int) -> None:
    """The same chains with unit variances and zero means, and the statistics of all states."""
    data = (v.t() @ torch.sigmoid(v @ W + b), v.sum(0))
    v = torch.randn_like(v)
    h = torch.bernoulli(torch.sigmoid(v @ W + b))
    model = (torch.zeros_like(W), torch.zeros_like(v[0]))
    for _ in range(sweeps):
        for j in range(INNER):
            size = STEP * 0.5 * (1 + cos(pi * j / INNER))
            v = v - size * (v - h @ W.t()) + (2 * size) ** 0.5 * torch.randn_like(v)
        mean = torch.sigmoid(v @ W + b)
        h = torch.bernoulli(mean)
        model[0].addmm_(v.t(), mean)
        model[1].add_(v.sum(0))
    assert all(x.shape == y.shape for x, y in zip(data, model, strict=True))
