"""Pseudo-likelihood: every visible unit given all others."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium.likelihood.likelihood import require_independent_hidden
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
        machine: discrete visible layers, and hidden layers that no edge joins to each other.
        X: visible states, (batch, visible_width).
        sampled: how many units to draw for every row (with replacement); the sum is scaled up, so that its
            mean over draws is the exact value. None: all units, exactly.
        generator: source of the drawn units; needed if ``sampled`` is given.

    Returns:
        (batch,), float64, in nats.

    Raises:
        ValueError: hidden layers that are joined, real visible units, or no generator for a sampled value.
    """
    require_independent_hidden(machine, "exact_log_likelihood and bounds")
    visible = [machine.layers[l] for l in machine.visible]
    for layer in visible:
        if not layer.discrete:
            raise ValueError(f"machine: expected discrete visible units, received {layer}")
    n_units = sum(layer.n_units for layer in visible)
    X = machine.visible_rows(X, "X")
    hamiltonian = machine.hamiltonian()
    total = torch.zeros(len(X), dtype=torch.float64, device=X.device)
    if sampled is None:
        for unit in range(n_units):
            total += _log_conditional(hamiltonian, X, torch.full((len(X),), unit, device=X.device))
        return total
    _checks.positive_int(sampled, "sampled")
    if generator is None:
        raise ValueError(
            "generator: expected a torch.Generator for a sampled pseudo-likelihood, received None"
        )
    for _ in range(sampled):
        total += _log_conditional(hamiltonian, X, _random.integers(n_units, (len(X),), generator))
    return total * (n_units / sampled)


def _log_conditional(hamiltonian: Hamiltonian, X: Tensor, unit: Tensor) -> Tensor:
    """ln p(v_unit | others), (batch,), with another unit for every row if wished.

    Units are counted through the visible layers in their order.
    """
    value = torch.zeros(len(X), dtype=torch.float64, device=X.device)
    first = 0
    for l in hamiltonian.graph.visible:
        rows = ((unit >= first) & (unit < first + hamiltonian.layers[l].n_units)).nonzero().squeeze(-1)
        if len(rows):
            value[rows] = _log_conditional_of_layer(hamiltonian, l, X[rows], unit[rows] - first)
        first += hamiltonian.layers[l].n_units
    return value


def _log_conditional_of_layer(hamiltonian: Hamiltonian, l: int, X: Tensor, unit: Tensor) -> Tensor:
    graph, layer = hamiltonian.graph, hamiltonian.layers[l]
    states = hamiltonian.split(X)
    columns = layer.width // layer.n_units
    rows = torch.arange(len(X), device=X.device)
    own = unit.unsqueeze(-1) * columns + torch.arange(columns, device=X.device)  # (batch, columns)
    present = states[l][rows.unsqueeze(-1), own]
    fields = {h: hamiltonian.field(h, states) for h in graph.hidden}
    J = {
        joint.other: (
            hamiltonian.couplings[joint.edge] if joint.above else hamiltonian.transposed[joint.edge]
        )
        for joint in graph.joints[l]
        if joint.other in fields
    }
    # What every state of every unit weighs by itself, (states, n_units), and beside the other visible ones.
    alone = layer.unit_log_weights(layer.values().to(X).repeat(1, layer.n_units), hamiltonian.thetas[l])
    near = hamiltonian.field(l, states, graph.visible)[rows.unsqueeze(-1), own]
    log_weights = []
    for alternative, weight in zip(layer.values().to(X), alone, strict=True):
        shift = alternative - present  # (batch, columns)
        log_weight = weight[unit].double() + (shift * near).sum(-1)
        for h, coupling in J.items():
            moved = fields[h] + torch.einsum("bc,bch->bh", shift, coupling[own])
            log_weight = log_weight + hamiltonian.log_partition(h, moved)
        log_weights.append(log_weight)
    now = layer.unit_log_weights(states[l], hamiltonian.thetas[l])[rows, unit].double()
    for h in J:
        now = now + hamiltonian.log_partition(h, fields[h])
    return now - torch.stack(log_weights).logsumexp(0)
