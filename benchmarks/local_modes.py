"""A gradient of unbiased contrastive divergence from local modes, both phases, with coupled chains."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import harmonium as hm
from benchmarks.race import Table, compare, on_one_thread, repeat
from benchmarks.targets import HARMONIUM, ONE_THREAD, PLAIN

SIZE = 784


def ucd_lmi_small(quick: bool) -> Table:
    return _ucd_lmi("ucd-lmi-small", quick, 64)


def ucd_lmi_large(quick: bool) -> Table:
    return _ucd_lmi("ucd-lmi-large", quick, 1000)


def _ucd_lmi(name: str, quick: bool, batch: int) -> Table:
    table = Table(name, f"UCD-LMI, {SIZE}-{SIZE}-{SIZE} ±1 units, batch {batch}: one gradient")
    machine = hm.BoltzmannMachine([hm.Spin(SIZE) for _ in range(3)])
    generator = torch.Generator().manual_seed(0)
    hm.machine.orthogonal_(machine, 1.0, generator)
    hm.machine.logistic_biases_(machine, generator)
    v = machine.random_states(batch, seed=generator)[0]
    rule = hm.rules.ucd_lmi()
    contestants = {
        HARMONIUM: repeat(lambda: rule.gradient(machine, v, seed=generator), 2),
        PLAIN: repeat(_plain_torch(machine, v, generator), 1),
    }
    if batch == 1000 and torch.get_num_threads() > 1:
        contestants[ONE_THREAD] = on_one_thread(contestants[HARMONIUM])
    table.notes.append(
        "plain torch: searches in dense products over the chains that have not arrived, a Gibbs sweep, "
        "a Metropolis step, the marginalised energies by autograd; one chain, nothing is coupled"
    )
    return compare(table, contestants, 2 if quick else 9 if batch < 1000 else 5)


def _plain_torch(
    machine: hm.BoltzmannMachine, data: Tensor, generator: torch.Generator
) -> Callable[[], object]:
    W, R = (coupling.weight.detach().clone().requires_grad_() for coupling in machine.couplings)
    a, b, c = (layer.bias.detach().clone().requires_grad_() for layer in machine.layers)
    parameters = (W, R, a, b, c)

    def fields(v: Tensor, h: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return a + h @ W.t(), b + v @ W + k @ R.t(), c + h @ R

    def noise() -> Tensor:
        return torch.rand(len(data), SIZE, generator=generator)

    def sign(x: Tensor) -> Tensor:
        return (x >= 0).to(x.dtype) * 2 - 1

    def log_cosh(x: Tensor) -> Tensor:
        return torch.nn.functional.softplus(2 * x) - x

    @torch.no_grad()
    def sample(clamped: bool) -> tuple[Tensor, Tensor, Tensor]:
        v, h, k = (sign(noise() - 0.5) for _ in range(3))
        if clamped:
            v = data
        searching = torch.arange(len(data))
        while len(searching):
            old = [part[searching] for part in (v, h, k)]
            v_field, _, k_field = fields(*old)
            x, z = old[0] if clamped else sign(v_field), sign(k_field)
            y = sign(fields(x, old[1], z)[1])
            if not clamped:
                v[searching] = x
            h[searching], k[searching] = y, z
            moved = torch.stack([(was != now).any(1) for was, now in zip(old, (x, y, z), strict=True)]).any(0)
            searching = searching[moved]
        v_field, _, k_field = fields(v, h, k)
        if not clamped:
            v = sign(torch.sigmoid(2 * v_field) - noise())
        k = sign(torch.sigmoid(2 * k_field) - noise())
        h = sign(torch.sigmoid(2 * fields(v, h, k)[1]) - noise())
        new = [data if clamped else sign(noise() - 0.5), *(sign(noise() - 0.5) for _ in range(2))]
        gain = energy(v, h, k) - energy(*new)
        accept = (torch.rand(len(data), generator=generator).log() < gain).unsqueeze(-1)
        return tuple(torch.where(accept, x, y) for x, y in zip(new, (v, h, k), strict=True))

    def energy(v: Tensor, h: Tensor, k: Tensor) -> Tensor:
        return -(v @ a) - h @ b - k @ c - ((v @ W + k @ R.t()) * h).sum(-1)

    def marginal(v: Tensor, h: Tensor, k: Tensor, clamped: bool) -> Tensor:
        v_field, h_field, k_field = fields(v, h, k)
        even = v @ a + k @ c + log_cosh(h_field).sum(-1)
        below = v @ a + ((v @ W) * h).sum(-1) if clamped else log_cosh(v_field).sum(-1)
        odd = h @ b + below + log_cosh(k_field).sum(-1)
        return 0.5 * (even + odd).mean()

    def step() -> object:
        difference = marginal(*sample(True), True) - marginal(*sample(False), False)
        return torch.autograd.grad(difference, parameters)

    return step
