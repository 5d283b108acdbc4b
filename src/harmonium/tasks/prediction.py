"""Prediction of a visible layer given observed units of others."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.machine import BoltzmannMachine, Hamiltonian, States
from harmonium.sums import HiddenStates, has_hidden_states, unit_log_weights
from harmonium.tasks.rows import average_chains, read_rows

PREDICT_METHODS = ("exact", "gibbs")

_ROWS = 1024  # beside their chains at a time


@torch.no_grad()
def predict(
    machine: BoltzmannMachine,
    X: Numbers,
    layer: int,
    method: str = "exact",
    *,
    unit: int | None = None,
    sweeps: int = 100,
    chains: int = 10,
    seed: int | torch.Generator = 0,
) -> Tensor:
    """Returns p(y_i | x) of every unit of a visible layer, given what is observed of the others.

    With a label for the layer and its pixels beside it, a machine is a classifier (Larochelle & Bengio 2008).

    Args:
        machine: a machine whose layer ``layer`` is visible and discrete.
        X: rows, (batch, visible_width). The columns of what is asked for are not read and may be NaN;
            elsewhere NaN is not observed, and is summed out.
        layer: index of the layer.
        method: "exact": by a sum over the hidden states where ``likelihood.HiddenStates`` takes the machine,
            and else by enumeration of what is left once all that can be is summed out: for one unit over
            hidden layers that no edge joins, of that unit's states alone. "gibbs": chains that hold what is
            observed, for several units and deep machines beyond enumeration; they average the units'
            conditional probabilities over the second half of their sweeps.
        unit: one unit of the layer, given also what is observed of its other units; None: all, of which none
            is read.
        sweeps: Sweeps of every chain, at least 2.
        chains: Chains of every row, at least 1.
        seed: Source of the chains: an int or a generator.

    Returns:
        (batch, n_units, n_states), or (batch, 1, n_states) with ``unit``, float64, in the order of
        ``Layer.values``; each unit's sum to 1.

    Raises:
        ValueError: a layer that is hidden or real, X that does not fit, or too many states to enumerate.
    """
    _checks.one_of(method, "method", PREDICT_METHODS)
    _checks.positive_int(sweeps, "sweeps", minimum=2)
    _checks.positive_int(chains, "chains")
    if type(layer) is not int or layer not in machine.visible:
        raise ValueError(
            f"layer: expected one of the visible layers {list(machine.visible)}, received {layer}"
        )
    if not machine.layers[layer].discrete:
        raise ValueError(f"layer: expected discrete units, received {machine.layers[layer]}")
    generator = _random.as_generator(seed, machine.device)
    hamiltonian = machine.hamiltonian()
    if method == "exact":
        hamiltonian = hamiltonian.to(torch.float64)
    X = read_rows(machine, X, "X", hamiltonian.dtype)
    kind = hamiltonian.layers[layer]
    asked = list(range(kind.n_units)) if unit is None else [unit]
    if unit is not None and (type(unit) is not int or unit not in range(kind.n_units)):
        raise ValueError(f"unit: expected one from 0 to {kind.n_units - 1} of {kind}, received {unit!r}")
    states = hamiltonian.split(X.clone())
    kind.by_unit(states[layer])[:, asked] = torch.nan
    X = hamiltonian.visible_states(states)
    if method == "gibbs":
        parts = [
            _run_chains(hamiltonian, rows, layer, sweeps, chains, generator)[:, asked]
            for rows in torch.split(X, _ROWS)
        ]
        return torch.cat(parts)
    if has_hidden_states(hamiltonian.graph, hamiltonian.layers):
        p = X.new_empty(len(X), len(asked), len(kind.values()))
        for place, posterior in HiddenStates(hamiltonian).blocks(X):
            for i, one in enumerate(asked):
                p[place, i] = posterior.unit_probabilities(layer, one)
        return p
    return torch.stack([unit_log_weights(hamiltonian, X, layer, one) for one in asked], 1).softmax(-1)


def _run_chains(
    hamiltonian: Hamiltonian, rows: Tensor, l: int, sweeps: int, chains: int, generator: torch.Generator
) -> Tensor:
    """Estimates p(unit = s) of every unit by chains that hold what is observed."""
    kind, v = hamiltonian.layers[l], rows.repeat(chains, 1)
    law = hamiltonian.clamp(v, len(v))
    values = kind.values().to(rows)

    def weigh(states: States) -> Tensor:
        """Returns p of every state of every unit given the rest, (chains, n_units, n_states)."""
        field = law.field(l, states)
        alike = [value.repeat(kind.n_units).expand_as(field) for value in values]
        return torch.stack([kind.log_conditional(x, field, law.thetas[l]).exp().double() for x in alike], -1)

    averaged = average_chains(law, v, sweeps, weigh, generator)
    mean = averaged.view(chains, len(rows), kind.n_units, -1).mean(0)
    return mean / mean.sum(-1, keepdim=True)
