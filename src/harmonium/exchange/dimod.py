"""dimod's binary and discrete quadratic models: what annealers take, and the samples that they give back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonium.couplings import Dense, Sparse
from harmonium.exchange._pairwise import Pairwise, of_machine, to_machine
from harmonium.exchange.exchange import misfit, refuse_infinite
from harmonium.layers import Bernoulli, Spin
from harmonium.machine import BoltzmannMachine, States


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
        machine: Machine of units with two values or categories. A variable is (layer, unit).

    Returns:
        Without categories a ``dimod.BinaryQuadraticModel``, whose variables are SPIN where all units are
        spins, else BINARY, 1 at a unit's upper value; with categories a ``dimod.DiscreteQuadraticModel``.

    Raises:
        ImportError: dimod is not installed.
        ValueError: a machine with other units.
    """
    dimod = _import_dimod()
    if any(layer.one_hot for layer in machine.layers):
        return _to_discrete(machine, dimod.DiscreteQuadraticModel())
    hamiltonian = machine.hamiltonian().to(torch.float64)
    if not all(layer.two_values for layer in machine.layers):
        raise misfit(machine, "units with two values or categories for dimod")
    ends = [layer.two_values or (0.0, 1.0) for layer in machine.layers]
    spins = all(end == (-1.0, 1.0) for end in ends)
    # x = middle + half · s of spins s, or low + width · b of bits b.
    shift = [0.0 if spins else low for low, _ in ends]
    scale = [1.0 if spins else high - low for low, high in ends]
    model = dimod.BinaryQuadraticModel("SPIN" if spins else "BINARY")
    linear = [theta[0].clone() for theta in hamiltonian.thetas]
    offset = sum(float((x * shift[l]).sum()) for l, x in enumerate(linear))
    field = [x * scale[l] for l, x in enumerate(linear)]
    for edge, (l, m) in enumerate(hamiltonian.graph.edges):
        pairs, blocks = hamiltonian.joined_units(edge)
        values, (rows, columns) = blocks.flatten(), pairs.t()
        offset += float(values.sum()) * shift[l] * shift[m]
        field[l].index_add_(0, rows, values, alpha=scale[l] * shift[m])
        field[m].index_add_(0, columns, values, alpha=scale[m] * shift[l])
        biases = (-scale[l] * scale[m] * values).tolist()
        for (i, j), bias in zip(pairs.tolist(), biases, strict=True):
            model.add_quadratic((l, i), (m, j), bias)
    for l, x in enumerate(field):
        for i, value in enumerate(x.tolist()):
            model.add_linear((l, i), -value)
    model.offset = -offset
    return model


def _to_discrete(machine: BoltzmannMachine, model: Any) -> Any:
    """Fills an empty ``dimod.DiscreteQuadraticModel``, and returns it."""
    pairwise = of_machine(machine, "dimod")
    names = [(l, i) for l, layer in enumerate(machine.layers) for i in range(layer.n_units)]
    for name, field in zip(names, pairwise.fields, strict=True):
        model.add_variable(len(field), label=name)
        model.set_linear(name, -field)
    for (i, j), table in pairwise.tables.items():
        model.set_quadratic(names[i], names[j], -table)
    return model


@torch.no_grad()
def from_dimod(model: Any) -> BoltzmannMachine:
    """Returns a binary or discrete quadratic model of dimod as a fully visible machine, in float64.

    Its energies are those of the model less the constant ``metadata["origin"]["offset"]``, in which the
    ``offset`` of the model is; the temperature is 1.

    Args:
        model: ``dimod.BinaryQuadraticModel``, whose SPIN or BINARY variables become ``Spin`` or ``Bernoulli``
            units in their order; or ``dimod.DiscreteQuadraticModel``, with a layer for each number of cases,
            ``Bernoulli`` for two and ``Categorical`` for more. ``metadata["variables"]`` has the names as
            text, in the order of the units.

    Raises:
        ImportError: dimod is not installed.
        TypeError, ValueError: another object, or a model without variables.
    """
    dimod = _import_dimod()
    if not isinstance(model, dimod.BinaryQuadraticModel | dimod.DiscreteQuadraticModel):
        raise TypeError(
            "model: expected a BinaryQuadraticModel or DiscreteQuadraticModel, received "
            f"{type(model).__name__}"
        )
    names = list(model.variables)
    if not names:
        raise ValueError("model: expected variables, received none")
    if isinstance(model, dimod.DiscreteQuadraticModel):
        return _from_discrete(model, names)
    place = {name: i for i, name in enumerate(names)}
    layer = Spin(len(names)) if model.vartype.name == "SPIN" else Bernoulli(len(names))
    joined = [(*sorted((place[u], place[v])), -bias) for (u, v), bias in model.quadratic.items() if bias]
    pairs = torch.tensor([pair for *pair, _ in joined], dtype=torch.int64)
    J = torch.tensor([float(value) for *_, value in joined], dtype=torch.float64)
    whole = len(joined) == len(names) * (len(names) - 1) // 2
    edges: Any = {(0, 0): Dense() if whole else Sparse(pairs)} if joined else []
    machine = BoltzmannMachine([layer], edges, [0], seed=None).double()
    layer.set_finite_(bias=torch.tensor([-float(model.linear[name]) for name in names]).double())
    if edges and whole:
        machine.couplings[0].fill_(J.new_zeros(len(names), len(names)).index_put(tuple(pairs.t()), J))
    elif edges:
        machine.couplings[0].fill_(J)
    try:
        refuse_infinite(machine)
    except ValueError as error:
        raise ValueError(f"model: {error}") from error
    machine.metadata["variables"] = [str(name) for name in names]
    machine.metadata["origin"] = {"form": "dimod", "offset": float(model.offset)}
    return machine


def _from_discrete(model: Any, names: list[Any]) -> BoltzmannMachine:
    fields, tables = [-np.array(model.get_linear(name)) for name in names], dict[tuple[int, int], Any]()
    for name, field in zip(names, fields, strict=True):
        if len(field) < 2 or not np.isfinite(field).all():
            raise ValueError(
                "model: expected at least two cases with finite biases for every variable, received "
                f"{-field} for {name!r}"
            )
    place = {name: i for i, name in enumerate(names)}
    for name, i in place.items():
        for other in model.adj[name]:
            if i < place[other]:
                table = -np.array(model.get_quadratic(name, other, array=True))
                if not np.isfinite(table).all():
                    raise ValueError(
                        f"model: expected finite biases, received others for {name!r}, {other!r}"
                    )
                tables[i, place[other]] = table
    machine, offset = to_machine(Pairwise(fields, tables), [str(name) for name in names])
    machine.metadata["origin"] = {"form": "dimod", "offset": float(model.offset) - offset}
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
    names = [(l, i) for l, layer in enumerate(machine.layers) for i in range(layer.n_units)]
    columns = {name: j for j, name in enumerate(samples.variables)}
    if set(columns) != set(names):
        raise ValueError(
            f"samples: expected the {len(names)} variables (layer, unit) of the machine, received "
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
        A ``dimod.SampleSet`` over the variables (layer, unit) of ``to_dimod``.

    Raises:
        ImportError: dimod is not installed.
        ValueError: a machine with other units, or states that do not fit.
    """
    dimod = _import_dimod()
    model, given = to_dimod(machine), machine.check_states(states)
    spins = getattr(model, "vartype", None) is not None and model.vartype.name == "SPIN"
    parts = []
    for layer, x in zip(machine.layers, given, strict=True):
        if layer.one_hot:
            parts.append(layer.by_unit(x).argmax(-1))
        else:
            assert layer.two_values is not None
            upper = x == layer.two_values[1]
            parts.append(torch.where(upper, 1, -1) if spins else upper.long())
    names = [(l, i) for l, layer in enumerate(machine.layers) for i in range(layer.n_units)]
    digits = torch.cat(parts, 1).numpy(force=True).astype(np.int8 if spins else np.int64)
    return dimod.SampleSet.from_samples(
        (digits, names),
        vartype=model.vartype if hasattr(model, "vartype") else "DISCRETE",
        energy=machine.energy(given).numpy(force=True),
        num_occurrences=None if counts is None else counts.numpy(force=True),
    )
