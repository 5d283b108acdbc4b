"""A whole update of a deep machine: mean field given the data, persistent chains free."""

from __future__ import annotations

import torch
from torch import Tensor

import harmonium as hm
from benchmarks import peers
from benchmarks.race import Contestant, Table, compare, repeat
from benchmarks.targets import HARMONIUM, PLAIN

SIZES = (784, 500, 500)
BATCH = 100
UPDATES = 40
TOLERANCE, MAX_SWEEPS = 1e-4, 50


def mean_field_pcd(quick: bool) -> Table:
    sizes = "-".join(map(str, SIZES))
    table = Table("mean-field-pcd", f"Mean-field PCD-1, {sizes}, batch and chains {BATCH}: one update")
    X = peers.rows(10_000, SIZES[0])
    machine = hm.BoltzmannMachine([hm.Bernoulli(size) for size in SIZES], seed=0)
    plain = _plain_torch(X, machine, UPDATES)
    rule = hm.rules.mean_field_pcd(1, BATCH, tolerance=TOLERANCE, max_sweeps=MAX_SWEEPS)
    contestants = {HARMONIUM: peers.training(machine, X, rule, BATCH, UPDATES), PLAIN: plain}
    table.notes.append("the plain loop ends its mean field once the whole batch has converged")
    return compare(table, contestants, 3 if quick else 9)


def _plain_torch(X: Tensor, machine: hm.BoltzmannMachine, updates: int) -> Contestant:
    """The update as one writes it down in torch (Salakhutdinov & Hinton 2009)."""
    generator = torch.Generator().manual_seed(0)
    W, R = (coupling.weight.detach().clone() for coupling in machine.couplings)
    a, b, c = (layer.bias.detach().clone() for layer in machine.layers)
    x, k = peers.rows(BATCH, SIZES[0]), peers.rows(BATCH, SIZES[2])
    rate = peers.LEARNING_RATE / BATCH

    @torch.no_grad()
    def update() -> None:
        nonlocal x, k
        v = X[torch.randperm(len(X), generator=generator)[:BATCH]]
        below = torch.addmm(b, v, W)
        top = torch.full((BATCH, SIZES[2]), 0.5)
        middle = torch.sigmoid(torch.addmm(below, top, R.t()))
        for _ in range(MAX_SWEEPS):
            top = torch.sigmoid(torch.addmm(c, middle, R))
            new = torch.sigmoid(torch.addmm(below, top, R.t()))
            change, middle = (new - middle).square().mean(1).max(), new
            if change < TOLERANCE**2:
                break
        h = torch.bernoulli(torch.sigmoid(torch.addmm(b, x, W).addmm_(k, R.t())), generator=generator)
        x = torch.bernoulli(torch.sigmoid(torch.addmm(a, h, W.t())), generator=generator)
        k = torch.bernoulli(torch.sigmoid(torch.addmm(c, h, R)), generator=generator)
        free = torch.sigmoid(torch.addmm(b, x, W).addmm_(k, R.t()))
        W.addmm_(v.t(), middle, alpha=rate).addmm_(x.t(), free, alpha=-rate)
        R.addmm_(middle.t(), top, alpha=rate).addmm_(free.t(), k, alpha=-rate)
        for bias, data, model in ((a, v, x), (b, middle, free), (c, top, k)):
            bias.add_(data.sum(0), alpha=rate).sub_(model.sum(0), alpha=rate)

    return repeat(update, updates)
