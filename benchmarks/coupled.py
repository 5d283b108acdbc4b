"""Updates of unbiased contrastive divergence: coupled chains until they meet."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean

import torch
from torch import Tensor
from torch.nn.functional import softplus

import harmonium as hm
from benchmarks.race import Table, compare, now, repeat
from benchmarks.targets import HARMONIUM, PLAIN

PAIRS = 1000


def coupled_small(quick: bool) -> Table:
    """Bars and stripes in the state that plain training at the published rate reaches after 200 updates."""
    X = torch.from_numpy(hm.data.bars_and_stripes(4))
    machine = _machine(16, 16, 0.1)
    rule = hm.rules.ucd(chains=PAIRS, max_sweeps=100)
    hm.train(machine, X, rule=rule, updates=200, batch_size=len(X), learning_rate=0.1, seed=0)
    return _race("ucd-small", machine, X, rule, 100, quick)


def coupled_large(quick: bool) -> Table:
    """A machine of the size of images, with couplings that let pairs meet after about ten sweeps."""
    machine = _machine(784, 1000, 0.0371)
    v = torch.rand(PAIRS, 784, generator=torch.Generator().manual_seed(1)).round()
    return _race("ucd-large", machine, v, hm.rules.ucd(chains=PAIRS), None, quick)


def _machine(visible: int, hidden: int, scale: float) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine([hm.Bernoulli(visible), hm.Bernoulli(hidden)])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    return machine


def _race(
    name: str,
    machine: hm.BoltzmannMachine,
    v: Tensor,
    rule: hm.learning.Rule,
    max_sweeps: int | None,
    quick: bool,
) -> Table:
    generator = torch.Generator().manual_seed(2)
    own_times: list[float] = []
    plain_times: list[float] = []

    def update() -> float:
        start = now()
        estimate = rule.gradient(machine, v, seed=generator)
        taken = now() - start
        own_times.append(estimate.diagnostics["meeting_time"])
        return taken

    plain = _plain_torch(machine, v, max_sweeps)
    contestants = {HARMONIUM: update, PLAIN: repeat(lambda: plain_times.append(plain()), 1)}
    visible, hidden = (layer.n_units for layer in machine.layers)
    table = Table(name, f"UCD, {visible} × {hidden}, {PAIRS} pairs: one gradient")
    compare(table, contestants, 3 if quick else 9)
    table.notes += [
        f"mean meeting time {mean(own_times):.1f}; of the plain loop {mean(plain_times):.1f}",
        "the plain loop: maximally coupled half-steps with common noise, the pairs that have met left out",
    ]
    return table


def _plain_torch(machine: hm.BoltzmannMachine, v: Tensor, max_sweeps: int | None) -> Callable[[], float]:
    """A gradient by dense products over the pairs that are still apart; returns the mean meeting time."""
    W = machine.couplings[0].weight.detach()
    b, c = (layer.bias.detach() for layer in machine.layers)
    generator = torch.Generator().manual_seed(3)

    def rand(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator)

    def couple(f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Units with the fields f and g, (pairs, n), that are the same as often as they can be."""
        p, q = torch.sigmoid(f), torch.sigmoid(g)
        difference, constant = g - f, (softplus(g) - softplus(f)).sum(1)
        x = (rand(*f.shape) < p).float()
        y = x.clone()
        open_x = rand(len(f)).log() > (x * difference).sum(1) - constant
        open_y = open_x.clone()
        while len(rows := (open_x | open_y).nonzero().squeeze(1)):
            noise, level = rand(len(rows), f.shape[1]), rand(len(rows)).log()
            proposals = (noise < p[rows]).float(), (noise < q[rows]).float()
            for out, still, proposal, sign in ((x, open_x, proposals[0], 1), (y, open_y, proposals[1], -1)):
                gain = sign * ((proposal * difference[rows]).sum(1) - constant[rows])
                taken = still[rows] & (level > gain)
                out[rows[taken]] = proposal[taken]
                still[rows[taken]] = False
        return x, y

    @torch.no_grad()
    def gradient() -> float:
        data = torch.sigmoid(torch.addmm(c, v, W))
        first = v[torch.randint(len(v), (PAIRS,), generator=generator)]
        y = first
        h_field = torch.addmm(c, y, W)
        h = (rand(*h_field.shape) < torch.sigmoid(h_field)).float()
        x = (rand(*y.shape) < torch.sigmoid(torch.addmm(b, h, W.t()))).float()
        x_field, y_field = torch.addmm(c, x, W), h_field
        x_mean = torch.sigmoid(x_field)
        weights, visible, hidden = x.t() @ x_mean, x.sum(0), x_mean.sum(0)
        steps, total = 1, 0
        while max_sweeps is None or steps < max_sweeps:
            apart = (x != y).any(1)
            total += steps * int((~apart).sum())
            if not bool(apart.any()):
                break
            x_h, y_h = couple(x_field[apart], y_field[apart])
            x, y = couple(torch.addmm(b, x_h, W.t()), torch.addmm(b, y_h, W.t()))
            x_field, y_field = torch.addmm(c, x, W), torch.addmm(c, y, W)
            x_mean, y_mean = torch.sigmoid(x_field), torch.sigmoid(y_field)
            weights.addmm_(x.t(), x_mean).addmm_(y.t(), y_mean, alpha=-1)
            visible += (x - y).sum(0)
            hidden += (x_mean - y_mean).sum(0)
            steps += 1
        else:
            total += steps * len(x)
        torch.addmm(weights, v.t(), data, beta=-1 / PAIRS, alpha=1 / len(v))
        return total / PAIRS

    return gradient
