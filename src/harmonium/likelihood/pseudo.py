"""Pseudo-likelihood: every visible unit given all others."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium.machine import BoltzmannMachine, Hamiltonian


@torch.no_grad()
def pseudo_log_likelihood(
    machine: BoltzmannMachine,
    X: Tensor,
    *,
    sampled: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Σ_i ln p(v_i | v_without_i) for every row, exactly or from randomly chosen units.

    Args:
        machine: one hidden layer and discrete visible units.
        X: visible states, (batch, width_0).
        sampled: how many units to draw for every row (with replacement); the sum is scaled up, so that its
            mean over draws is the exact value. None: all units, exactly.
        generator: source of the drawn units; needed if ``sampled`` is given.

    Returns:
        (batch,), float64, in nats.

    Raises:
        ValueError: a deeper machine, real visible units, or no generator for a sampled value.
    """
    visible = machine.layers[0]
    if len(machine.layers) != 2:
        raise ValueError(f"machine: expected one hidden layer, received {len(machine.layers) - 1}")
    if not visible.discrete:
        raise ValueError(f"machine: expected discrete visible units, received {visible}")
    X = machine.visible_rows(X, "X")
    hamiltonian = machine.hamiltonian()
    total = torch.zeros(len(X), dtype=torch.float64, device=X.device)
    if sampled is None:
        for unit in range(visible.n_units):
            total += _log_conditional(hamiltonian, X, torch.full((len(X),), unit, device=X.device))
        return total
    _checks.positive_int(sampled, "sampled")
    if generator is None:
        raise ValueError(
            "generator: expected a torch.Generator for a sampled pseudo-likelihood, received None"
        )
    for _ in range(sampled):
        total += _log_conditional(hamiltonian, X, _random.integers(visible.n_units, (len(X),), generator))
    return total * (visible.n_units / sampled)


def _log_conditional(hamiltonian: Hamiltonian, X: Tensor, unit: Tensor) -> Tensor:
    """ln p(v_unit | others), (batch,), with another unit for every row if wished."""
    layer, J = hamiltonian.layers[0], hamiltonian.couplings[0]
    columns = X.shape[1] // layer.n_units
    rows = torch.arange(len(X), device=X.device)
    own = unit.unsqueeze(-1) * columns + torch.arange(columns, device=X.device)  # (batch, columns)
    present = X[rows.unsqueeze(-1), own]
    field = hamiltonian.field(1, [X, X])
    # What every state of every unit weighs by itself, (states, n_units).
    alone = layer.unit_log_weights(layer.values().to(X).repeat(1, layer.n_units), hamiltonian.thetas[0])
    log_weights = []
    for alternative, weight in zip(layer.values().to(X), alone, strict=True):
        shift = alternative - present  # (batch, columns)
        moved = field + torch.einsum("bc,bch->bh", shift, J[own])
        log_weights.append(hamiltonian.log_partition(1, moved) + weight[unit])
    now = hamiltonian.log_partition(1, field) + layer.unit_log_weights(X, hamiltonian.thetas[0])[rows, unit]
    return now - torch.stack(log_weights).logsumexp(0)
