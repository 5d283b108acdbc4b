"""Models of variables with a few values and tables for pairs of them, to machines and back.

A machine has a layer for each number of values, ``Bernoulli`` units for two and ``Categorical`` ones for
more, or where a value is forbidden, in the order in which they first come; all of them are visible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
import torch

from harmonium.couplings import Dense, Sparse
from harmonium.exchange._format import misfit
from harmonium.exchange._variables import Variable, name_variables, variables_of
from harmonium.layers import Bernoulli, Categorical, Layer
from harmonium.machine import BoltzmannMachine, penalise

Array = np.ndarray[Any, Any]


class Pairwise(NamedTuple):
    """A pairwise model: its log-weight is Σ fields[i][x_i] + Σ tables[i, j][x_i, x_j] + constant.

    Attributes:
        fields: for each variable, (values,); -inf is forbidden.
        tables: for pairs i < j of variables, (values of i, values of j); -inf is forbidden.
        constant: Log-weight beside no variable.
    """

    fields: Sequence[Array]
    tables: Mapping[tuple[int, int], Array]
    constant: float = 0.0


def to_machine(
    model: Pairwise,
    labels: Sequence[Any] | None = None,
    observed: Mapping[int, int] | None = None,
    one_hot: bool = False,
) -> BoltzmannMachine:
    """Returns a machine in float64 with the energies of a model.

    Args:
        model: Model with at least two values for each variable.
        labels: of its variables, in their order, with those that were observed among them; None: none.
        observed: Values of variables that are none of the model's, by their number among the labels.
        one_hot: whether variables of two values become ``Categorical`` units too.
    """
    forbids = {i for i, field in enumerate(model.fields) if not np.isfinite(field).all()}
    forbids.update(i for pair, table in model.tables.items() if not np.isfinite(table).all() for i in pair)
    # Columns of each variable's unit: 0 times -inf is no number, so that what forbids has one for each value.
    values = [
        1 if len(x) == 2 and not one_hot and i not in forbids else len(x) for i, x in enumerate(model.fields)
    ]
    members = {n: [i for i, m in enumerate(values) if m == n] for n in dict.fromkeys(values)}
    layers: list[Layer] = [
        Bernoulli(len(x)) if n == 1 else Categorical(len(x), n) for n, x in members.items()
    ]
    unit_of = {i: (l, k) for l, x in enumerate(members.values()) for k, i in enumerate(x)}
    biases = [np.zeros((len(x), size)) for size, x in members.items()]
    constant = model.constant

    def add_field(i: int, field: Array) -> float:
        l, k = unit_of[i]
        binary = values[i] == 1
        biases[l][k] += field[1:] - field[0] if binary else field
        return float(field[0]) if binary else 0.0

    joined = dict[tuple[int, int], dict[tuple[int, int], Array]]()
    for i, field in enumerate(model.fields):
        constant += add_field(i, field)
    for pair, table in model.tables.items():
        if unit_of[pair[0]][0] > unit_of[pair[1]][0]:
            pair, table = (pair[1], pair[0]), table.T
        i, j = pair
        (l, a), (m, b) = unit_of[i], unit_of[j]
        if values[i] == 1:  # what the first value has is left to the field of the other
            constant += add_field(j, table[0])
            table = table[1:] - table[:1]
        if values[j] == 1:
            if values[i] == 1:
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
        layer.get_parameter("bias").copy_(torch.from_numpy(bias if layer.one_hot else bias[:, 0]))
    for edge, coupling in zip(machine.edges, machine.couplings, strict=True):
        tables = np.stack(list(joined[edge].values()))
        if coupling.sparsity is None:
            (l, m), (rows, columns) = edge, np.array(list(joined[edge])).T
            W = np.zeros((layers[l].n_units, layers[m].n_units, *tables.shape[1:]))
            W[rows, columns] = tables
            tables = W.transpose(0, 2, 1, 3)
        coupling.fill_(torch.from_numpy(tables.reshape(coupling.weight.shape)))
    machine.constant = -constant
    if labels is not None:
        observed, units = observed or {}, (unit_of[i] for i in range(len(values)))
        variables = [
            Variable(x, None, observed[i]) if i in observed else Variable(x, next(units))
            for i, x in enumerate(labels)
        ]
        name_variables(machine, variables)
    return machine


def of_machine(machine: BoltzmannMachine, program: str) -> Pairwise:
    """Returns a machine of units with two values or categories as a pairwise model, variables in their order.

    Raises:
        ValueError: a machine with other units; the message names the program that has no place for it.
    """
    hamiltonian, penalty = penalise(machine.hamiltonian(forbidden=True).to(torch.float64))
    if not all(layer.one_hot or layer.two_values for layer in machine.layers):
        raise misfit(machine, f"units with two values or categories for {program}")
    levels = [_levels(layer) for layer in machine.layers]
    units = [x.unit for x in variables_of(machine) if x.unit]
    number_of = {unit: i for i, unit in enumerate(units)}

    def allowed(table: Array) -> Array:
        return np.where(table < -penalty / 2, -inf, table) if penalty else table

    fields = [
        allowed(levels[l] @ hamiltonian.thetas[l][0].view(machine.layers[l].n_units, -1)[i].cpu().numpy())
        for l, i in units
    ]
    tables = dict[tuple[int, int], Array]()
    for edge, (l, m) in enumerate(hamiltonian.graph.edges):
        pairs, blocks = hamiltonian.joined_units(edge)
        for (a, b), block in zip(pairs.tolist(), blocks.cpu().numpy(), strict=True):
            table = allowed(levels[l] @ block @ levels[m].T)
            i, j = number_of[l, a], number_of[m, b]
            tables[min(i, j), max(i, j)] = table if i < j else table.T
    return Pairwise(fields, tables, -machine.constant)


def _levels(layer: Any) -> Array:
    """Returns a unit's columns for each of its values, (values, columns)."""
    return np.eye(layer.n_states) if layer.one_hot else np.array(layer.two_values)[:, None]
