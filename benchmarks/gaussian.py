"""A whole update of contrastive divergence with real visible units."""

from __future__ import annotations

import torch
from torch import Tensor

import harmonium as hm
from benchmarks import peers
from benchmarks.race import Contestant, Table, compare, repeat
from benchmarks.targets import HARMONIUM, PLAIN

VISIBLE, HIDDEN, BATCH = 784, 500, 100
UPDATES = 80


def gaussian_cd(quick: bool) -> Table:
    table = Table("gaussian-cd", f"CD-1, {VISIBLE} Gaussian × {HIDDEN}, batch {BATCH}: one update")
    X = torch.randn(10_000, VISIBLE, generator=torch.Generator().manual_seed(0))
    machine = hm.BoltzmannMachine([hm.Gaussian(VISIBLE), hm.Bernoulli(HIDDEN)], seed=0)
    plain = _plain_torch(X, machine, UPDATES)
    contestants = {HARMONIUM: peers.training(machine, X, hm.rules.cd(1), BATCH, UPDATES), PLAIN: plain}
    table.notes.append("couplings, biases, means and variances are learned")
    return compare(table, contestants, 3 if quick else 9)


def _plain_torch(X: Tensor, machine: hm.BoltzmannMachine, updates: int) -> Contestant:
    """The update as one writes it down in torch, in the parametrisation of Liao et al. (2022)."""
    generator = torch.Generator().manual_seed(0)
    W = machine.couplings[0].weight.detach().clone()
    mean, log_variance = torch.zeros(VISIBLE), torch.zeros(VISIBLE)
    c = machine.layers[1].bias.detach().clone()
    rate = peers.LEARNING_RATE / BATCH

    @torch.no_grad()
    def update() -> None:
        v = X[torch.randperm(len(X), generator=generator)[:BATCH]]
        precision, deviation = torch.exp(-log_variance), torch.exp(0.5 * log_variance)
        scaled = v * precision
        hidden = torch.sigmoid(torch.addmm(c, scaled, W))
        h = torch.bernoulli(hidden, generator=generator)
        noise = torch.randn(BATCH, VISIBLE, generator=generator)
        x = torch.addmm(mean, h, W.t()).addcmul_(noise, deviation)
        x_scaled = x * precision
        free = torch.sigmoid(torch.addmm(c, x_scaled, W))
        gradient = (scaled.t() @ hidden).addmm_(x_scaled.t(), free, alpha=-1)
        # -∂E/∂(ln σ²) of a state is ((v - mean)²/2 - v · (W h)) / σ².
        squares = (v - mean).square_().sum(0) - (x - mean).square_().sum(0)
        spread = (0.5 * squares * precision).sub_((W * gradient).sum(1))
        W.add_(gradient, alpha=rate)
        c.add_(hidden.sum(0) - free.sum(0), alpha=rate)
        mean.add_(scaled.sum(0) - x_scaled.sum(0), alpha=rate)
        log_variance.add_(spread, alpha=rate)

    return repeat(update, updates)
