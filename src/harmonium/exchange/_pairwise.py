"""Models of variables with a few values and tables for pairs of them, to machines and back.

A machine has a layer for each number of values, ``Bernoulli`` units for two and ``Categorical`` ones for
more, in the order in which they first come; all of them are visible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from harmonium.couplings import Dense, Sparse
from harmonium.exchange.exchange import misfit
from harmonium.layers import Bernoulli, Categorical, Layer
from harmonium.machine import BoltzmannMachine

Array = np.ndarray[Any, Any]


class Pairwise(NamedTuple):
    """A pairwise model: its log-weight is Σ fields[i][x_i] + Σ tables[i, j][x_i, x_j].

    Attributes:
        fields: for each variable, (values,).
        tables: for pairs i < j of variables, (values of i, values of j).
    """

    fields: Sequence[Array]
    tables: Mapping[tuple[int, int], Array]


def to_machine(model: Pairwise, names: Sequence[str]) -> tuple[BoltzmannMachine, float]:
    """Returns a machine in float64, and the constant that its energies are above those of the model.

    Args:
        model: Model with at least two values for each variable, which are finite.
        names: of its variables; ``metadata["variables"]`` has them in the order of the machine's units.
    """
    values = [len(field) for field in model.fields]
    members = {n: [i for i, m in enumerate(values) if m == n] for n in dict.fromkeys(values)}
    layers: list[Layer] = [
        Bernoulli(len(x)) if n == 2 else Categorical(len(x), n) for n, x in members.items()
    ]
    sizes = [1 if n == 2 else n for n in members]  # columns of a unit
    place = {i: (l, k) for l, x in enumerate(members.values()) for k, i in enumerate(x)}
    biases = [np.zeros((len(x), size)) for x, size in zip(members.values(), sizes, strict=True)]
    offset = 0.0

    def add_field(i: int, field: Array) -> float:
        l, k = place[i]
        binary = values[i] == 2
        biases[l][k] += field[1:] - field[0] if binary else field
        return float(field[0]) if binary else 0.0

    joined = dict[tuple[int, int], dict[tuple[int, int], Array]]()
    for i, field in enumerate(model.fields):
        offset += add_field(i, field)
    for pair, table in model.tables.items():
        if place[pair[0]][0] > place[pair[1]][0]:
            pair, table = (pair[1], pair[0]), table.T
        i, j = pair
        (l, a), (m, b) = place[i], place[j]
        if values[i] == 2:  # what the first value has is left to the field of the other
            offset += add_field(j, table[0])
            table = table[1:] - table[:1]
        if values[j] == 2:
            if values[i] == 2:
                biases[l][a] += table[0, 0]
            else:
                add_field(i, table[:, 0])
            table = table[:, 1:] - table[:, :1]
        joined.setdefault((l, m), {})[a, b] = table
    edges = dict[tuple[int, int], Any]()
    for (l, m), blocks in joined.items():
        n, k = layers[l].n_units, layers[m].n_units
        whole = len(blocks) == (n * (n - 1) // 2 if l == m else n * k)
        edges[l, m] = Dense() if whole else Sparse(list(blocks))
    machine = BoltzmannMachine(layers, edges or [], list(range(len(layers))), seed=None).double()
    for layer, bias in zip(machine.layers, biases, strict=True):
        layer.set_finite_(bias=torch.from_numpy(bias if layer.one_hot else bias[:, 0]))
    for edge, coupling in zip(machine.edges, machine.couplings, strict=True):
        tables = np.stack(list(joined[edge].values()))
        if coupling.sparsity is None:
            (l, m), (rows, columns) = edge, np.array(list(joined[edge])).T
            W = np.zeros((layers[l].n_units, layers[m].n_units, *tables.shape[1:]))
            W[rows, columns] = tables
            tables = W.transpose(0, 2, 1, 3)
        coupling.fill_(torch.from_numpy(tables.reshape(coupling.weight.shape)))
    machine.metadata["variables"] = [names[i] for x in members.values() for i in x]
    return machine, offset


def of_machine(machine: BoltzmannMachine, program: str) -> Pairwise:
    """Returns a machine of units with two values or categories as a pairwise model of all its units.

    Raises:
        ValueError: a machine with other units; the message names the program that has no place for it.
    """
    hamiltonian = machine.hamiltonian().to(torch.float64)
    if not all(layer.one_hot or layer.two_values for layer in machine.layers):
        raise misfit(machine, f"units with two values or categories for {program}")
    levels = [_levels(layer) for layer in machine.layers]
    first = np.cumsum([0, *(layer.n_units for layer in machine.layers)]).tolist()
    fields = [
        row
        for layer, level, theta in zip(machine.layers, levels, hamiltonian.thetas, strict=True)
        for row in theta[0].view(layer.n_units, -1).cpu().numpy() @ level.T
    ]
    tables = dict[tuple[int, int], Array]()
    for edge, (l, m) in enumerate(hamiltonian.graph.edges):
        pairs, blocks = hamiltonian.joined_units(edge)
        for (a, b), block in zip(pairs.tolist(), blocks.cpu().numpy(), strict=True):
            table = levels[l] @ block @ levels[m].T
            i, j = first[l] + a, first[m] + b
            tables[min(i, j), max(i, j)] = table if i < j else table.T
    return Pairwise(fields, tables)


def _levels(layer: Any) -> Array:
    """Returns a unit's columns for each of its values, (values, columns)."""
    return np.eye(layer.n_states) if layer.one_hot else np.array(layer.two_values)[:, None]
