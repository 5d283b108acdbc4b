"""Naive mean field: the best factorised law, a lower bound on ln Z."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.machine import BoltzmannMachine, Hamiltonian
from harmonium.meanfield.solution import Solution


@torch.no_grad()
def naive(
    machine: BoltzmannMachine,
    start: Tensor,
    clamp: Tensor | None = None,
    *,
    tolerance: float = 1e-6,
    damping: float = 0.0,
    max_sweeps: int = 1000,
) -> Solution:
    """Solves a_l = E[x_l | B_l], B_l = the field of the neighbours' means, for every free layer.

    Even and odd layers are updated in turn, which never raises the free energy when undamped. -free_energy is
    a lower bound on ln Z at every sweep, converged or not; with ``clamp`` it bounds ln p̃(v), so that minus
    ln Z it is the variational bound on ln p(v) (Salakhutdinov & Larochelle 2010).

    Args:
        machine: the machine.
        start: visible means to start from, (batch, width_0); hidden layers start from them upwards.
        clamp: visible values to hold, (batch, width_0); they then stand in the place of ``start``.
        tolerance: a row has converged when its mean squared change in a sweep is at most this squared; > 0.
        damping: weight of the old field in a new one, in [0, 1).
        max_sweeps: at least 1.

    Returns:
        The solution; rows that did not converge say so in ``converged``.

    Raises:
        ValueError: shapes or numbers out of range.
    """
    width = machine.layers[0].width
    for name, x in (("start", start), ("clamp", start if clamp is None else clamp)):
        _checks.instance(x, name, Tensor, "a torch tensor")
        if x.dim() != 2 or x.shape[1] != width or len(x) == 0:
            raise ValueError(
                f"{name}: expected (batch, {width}) with at least one row, received {tuple(x.shape)}"
            )
        _checks.finite(x, name)
    v = start
    if clamp is not None:
        machine.layers[0].check(clamp, "clamp")
        v = clamp
    return solve(
        machine.hamiltonian(), v.to(machine.device, machine.dtype, copy=True), clamped=clamp is not None,
        tolerance=tolerance, damping=damping, max_sweeps=max_sweeps,
    )  # fmt: skip


def solve(
    hamiltonian: Hamiltonian, v: Tensor, *, clamped: bool, tolerance: float, damping: float, max_sweeps: int
) -> Solution:
    """``naive`` on a machine in natural parameters; with ``clamped`` the visible layer stays at v."""
    _checks.real(tolerance, "tolerance", low=torch.finfo(torch.float64).tiny)
    _checks.real(damping, "damping", low=0.0, high=0.999999)
    _checks.positive_int(max_sweeps, "max_sweeps")
    depth = len(hamiltonian.layers)
    means = [v]
    fields: list[Tensor | None] = [None]
    for l in range(1, depth):
        field = hamiltonian.lowest(l + 1).field(l, means)
        fields.append(field)
        means.append(hamiltonian.mean(l, field))

    free = [l for l in (*hamiltonian.parity("odd"), *hamiltonian.parity("even")) if not (clamped and l == 0)]
    units = sum(hamiltonian.layers[l].width for l in free)
    active = torch.arange(len(v), device=v.device)
    sweeps = torch.full((len(v),), max_sweeps, device=v.device)
    converged = torch.zeros(len(v), dtype=torch.bool, device=v.device)
    for sweep in range(1, max_sweeps + 1):
        current = [a[active] for a in means]
        change = torch.zeros(len(active), dtype=torch.float64, device=v.device)
        for l in free:
            field = hamiltonian.field(l, current)
            old = fields[l]
            if damping and old is not None:
                field = damping * old[active] + (1 - damping) * field
            mean = hamiltonian.mean(l, field)
            change += (mean - current[l]).square().sum(-1, dtype=torch.float64)
            current[l] = mean
            means[l] = means[l].index_copy(0, active, mean)
            fields[l] = field if old is None else old.index_copy(0, active, field)
        done = change <= units * tolerance**2
        converged[active[done]] = True
        sweeps[active[done]] = sweep
        active = active[~done]
        if len(active) == 0:
            break
    return Solution(
        means,
        [_variance(hamiltonian, l, field, means[l]) for l, field in enumerate(fields)],
        _free_energy(hamiltonian, means, fields),
        converged,
        sweeps,
    )


def _variance(hamiltonian: Hamiltonian, l: int, field: Tensor | None, mean: Tensor) -> Tensor:
    if field is None:
        return torch.zeros_like(mean)
    return hamiltonian.layers[l].moments(field, theta=hamiltonian.thetas[l]).variance


def _free_energy(hamiltonian: Hamiltonian, means: list[Tensor], fields: list[Tensor | None]) -> Tensor:
    # -F = Σ_units [ψ(B) - B a] + Σ_pairs J a a (FORMULAS §6, first order), where a = E[x | B] for whatever B
    # made it.
    total = hamiltonian.coupling_energy(means)
    for l, field in enumerate(fields):
        if field is None:
            total = total + hamiltonian.log_weight(l, means[l])
        else:
            total = total + hamiltonian.log_partition(l, field)
            total = total - (field * means[l]).sum(-1, dtype=torch.float64)
    return -total
