"""dimod's binary and discrete quadratic models: what annealers take, and the samples that they give back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium.couplings import Dense, Sparse
from harmonium.exchange._pairwise import Array, Pairwise, of_machine, to_machine
from harmonium.exchange._variables import Variable, name_variables, units_of, values_of, variables_of
from harmonium.layers import Bernoulli, Spin
from harmonium.machine import BoltzmannMachine, States, refuse_infinite


def _import_dimod() -> Any:
    try:
        import dimod
    except ImportError as error:
        raise ImportError('dimod is needed: pip install "harmonium[dimod]"') from error
    return dimod


@torch.no_grad()
def to_dimod(machine: BoltzmannMachine) -> Any:
    """Returns a machine as a model of dimod with the same energies.

    Args:
        machine: Machine of units with two values or categories. A variable is (layer, unit), or has the name
            and the place that it had in the model or file that the machine came from.

    Returns:
        Without categories a ``dimod.BinaryQuadraticModel``, whose variables are SPIN where all units are
        spins, else BINARY, 1 at a unit's upper value; with categories a ``dimod.DiscreteQuadraticModel``.

    Raises:
        ImportError: dimod is not installed.
        ValueError: a machine with other units, or with parameters that are not finite.
    """
    dimod = _import_dimod()
    refuse_infinite(machine, forbidden=False)
    names = [x.label for x in variables_of(machine) if x.unit]
    pairwise = of_machine(machine, "dimod")
    if any(layer.one_hot for layer in machine.layers):
        model = dimod.DiscreteQuadraticModel()
        for name, field in zip(names, pairwise.fields, strict=True):
            model.add_variable(len(field), label=name)
            model.set_linear(name, -field)
        for (i, j), table in pairwise.tables.items():
            model.set_quadratic(names[i], names[j], -table)
        model.offset = machine.constant
        return model
    spins = all(layer.two_values == (-1.0, 1.0) for layer in machine.layers)
    linear, quadratic, offset = _coefficients(pairwise, spins)
    model = dimod.BinaryQuadraticModel("SPIN" if spins else "BINARY")
    model.add_linear_from(zip(names, linear.tolist(), strict=True))  # first, which gives the order
    joined = zip(pairwise.tables, quadratic.tolist(), strict=True)
    model.add_quadratic_from((names[i], names[j], value) for (i, j), value in joined)
    model.offset = offset
    return model


def _coefficients(model: Pairwise, spins: bool) -> tuple[Array, Array, float]:
    """Returns coefficients of variables and of pairs, and the constant of the energy, of two values each."""
    fields, tables = np.stack(model.fields), np.reshape([*model.tables.values()], (-1, 2, 2))
    linear, mixed = fields[:, 0] - fields[:, 1], tables[:, 0, 1] + tables[:, 1, 0]
    quadratic = mixed - tables[:, 0, 0] - tables[:, 1, 1]
    if spins:  # each is the change from -1 to 1 of the mean over the values of the others
        return linear / 2, quadratic / 4, -model.constant
    pairs = np.array([*model.tables], dtype=np.int64).reshape(-1, 2)
    for side, change in enumerate((tables[:, 1, 0], tables[:, 0, 1])):  # from 0 to 1 at 0 of the others
        np.add.at(linear, pairs[:, side], tables[:, 0, 0] - change)
    return linear, quadratic, -model.constant - float(fields[:, 0].sum() + tables[:, 0, 0].sum())


@torch.no_grad()
def from_dimod(model: Any) -> BoltzmannMachine:
    """Returns a binary or discrete quadratic model of dimod as a fully visible machine, in float64.

    Its energies are those of the model, whose ``offset`` is the machine's ``constant``; the temperature is 1.
    ``to_dimod`` gives the variables their names and their order back.

    Args:
        model: ``dimod.BinaryQuadraticModel``, whose SPIN or BINARY variables become ``Spin`` or ``Bernoulli``
            units in their order; or ``dimod.DiscreteQuadraticModel``, with a layer of ``Categorical`` units
            for each number of cases.

    Raises:
        ImportError: dimod is not installed.
        TypeError, ValueError: another object, a model without variables or with numbers that are not finite,
            or labels that are no text, numbers or tuples of them.
    """
    dimod = _import_dimod()
    if not isinstance(model, dimod.BinaryQuadraticModel | dimod.DiscreteQuadraticModel):
        raise TypeError(
            "model: expected a BinaryQuadraticModel or DiscreteQuadraticModel, received "
            f"{type(model).__name__}"
        )
    names, offset = list(model.variables), _checks.real(float(model.offset), "model.offset")
    if not names:
        raise ValueError("model: expected variables, received none")
    if isinstance(model, dimod.DiscreteQuadraticModel):
        fields, tables = [-np.array(model.get_linear(name)) for name in names], dict[tuple[int, int], Any]()
        numbers = {name: i for i, name in enumerate(names)}
        for name, i in numbers.items():
            if len(fields[i]) < 2:
                raise ValueError(
                    f"model: expected at least two cases for every variable, received 1 for {name!r}"
                )
            for other in model.adj[name]:
                if i < numbers[other]:
                    tables[i, numbers[other]] = -np.array(model.get_quadratic(name, other, array=True))
        machine = to_machine(Pairwise(fields, tables, -offset), names, one_hot=True)
    else:
        machine = _of_two_values(model, names, offset)
    try:
        refuse_infinite(machine, forbidden=False)
    except ValueError as error:
        raise ValueError(f"model: {error}") from error
    machine.metadata["origin"] = {"form": "dimod"}
    return machine


def _of_two_values(model: Any, names: list[Any], offset: float) -> BoltzmannMachine:
    """Returns the machine of a model of bits or spins, sparse unless all pairs are joined."""
    n, (linear, (rows, columns, values), _) = len(names), model.to_numpy_vectors(names)
    joined = values != 0
    pairs = torch.from_numpy(np.stack([rows, columns], 1)[joined]).long().sort(1).values
    J = -torch.from_numpy(values[joined].astype(np.float64))
    whole = len(pairs) == n * (n - 1) // 2
    layer = Spin(n) if model.vartype.name == "SPIN" else Bernoulli(n)
    edges: Any = {(0, 0): Dense() if whole else Sparse(pairs)} if len(pairs) else []
    machine = BoltzmannMachine([layer], edges, [0], seed=None).double()
    machine.constant = offset
    layer.bias.copy_(-torch.from_numpy(linear.astype(np.float64)))
    if len(pairs):
        machine.couplings[0].fill_(J.new_zeros(n, n).index_put(tuple(pairs.t()), J) if whole else J)
    name_variables(machine, [Variable(label, (0, i)) for i, label in enumerate(names)])
    return machine


def states_from_dimod(machine: BoltzmannMachine, samples: Any) -> States:
    """Returns the samples of an annealer as states of a machine, for ``chains.run`` and rules to go on from.

    Args:
        machine: Machine that ``to_dimod`` made the model of.
        samples: a ``dimod.SampleSet`` of it; a sample that occurs n times comes n times.

    Returns:
        States of all layers, each (samples, width_l).

    Raises:
        ValueError: samples of other variables.
    """
    label_of = {x.unit: x.label for x in variables_of(machine)}
    names = [label_of[unit] for unit in units_of(machine)]
    columns = {name: j for j, name in enumerate(samples.variables)}
    if set(columns) != set(names):
        raise ValueError(
            f"samples: expected the {len(names)} variables of to_dimod, such as {names[0]!r}, received "
            f"{list(columns)[:5]}"
        )
    values = np.repeat(samples.record.sample, samples.record.num_occurrences, axis=0)
    digits = torch.from_numpy(values[:, [columns[name] for name in names]]).long()
    parts = torch.split(digits, [layer.n_units for layer in machine.layers], 1)
    return [
        layer.from_digits(part if layer.one_hot else (part > 0).long()).to(machine.device, machine.dtype)
        for layer, part in zip(machine.layers, parts, strict=True)
    ]


@torch.no_grad()
def states_to_dimod(machine: BoltzmannMachine, states: Sequence[Tensor], counts: Tensor | None = None) -> Any:
    """Returns states of a machine as samples of its model, with their energies.

    Args:
        machine: Machine of units with two values or categories.
        states: for each layer (samples, width_l), such as ``tasks.minimise`` returns.
        counts: Number of times that each occurs, (samples,); None: once.

    Returns:
        A ``dimod.SampleSet`` over the variables of ``to_dimod``.

    Raises:
        ImportError: dimod is not installed.
        ValueError: a machine with other units, or states that do not fit.
    """
    dimod = _import_dimod()
    model, states = to_dimod(machine), machine.check_states(states)
    spins = getattr(model, "vartype", None) is not None and model.vartype.name == "SPIN"
    variables = variables_of(machine)
    free = [i for i, x in enumerate(variables) if x.unit]
    digits = values_of(machine, states)[:, free].astype(np.int8 if spins else np.int64)
    names = [variables[i].label for i in free]
    return dimod.SampleSet.from_samples(
        (digits if spins else digits.clip(min=0), names),  # the lower value of a spin among bits
        vartype=model.vartype if hasattr(model, "vartype") else "DISCRETE",
        energy=machine.energy(states).numpy(force=True),
        num_occurrences=None if counts is None else counts.numpy(force=True),
    )
