"""dimod's binary quadratic models: what annealers take, and the samples that they give back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from harmonium.couplings import Dense, Masked
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
    """Returns a machine as a ``dimod.BinaryQuadraticModel`` of the same energies.

    Args:
        machine: Machine of units with two values. A variable is (layer, unit); all of them are SPIN where all
            units are spins, else BINARY, 1 at a unit's upper value.

    Raises:
        ImportError: dimod is not installed.
        ValueError: a machine with other units.
    """
    dimod, law = _import_dimod(), machine.hamiltonian().to(torch.float64)
    if not all(layer.two_values for layer in machine.layers):
        raise misfit(machine, "units with two values for dimod")
    ends = [layer.two_values or (0.0, 1.0) for layer in machine.layers]
    spins = all(end == (-1.0, 1.0) for end in ends)
    # x = middle + half · s of spins s, or low + width · b of bits b.
    shift = [0.0 if spins else low for low, _ in ends]
    scale = [1.0 if spins else high - low for low, high in ends]
    model = dimod.BinaryQuadraticModel("SPIN" if spins else "BINARY")
    linear = [theta[0].clone() for theta in law.thetas]
    offset = sum(float((x * shift[l]).sum()) for l, x in enumerate(linear))
    field = [x * scale[l] for l, x in enumerate(linear)]
    for l, m, J in law.edges:
        joined = J.triu(1) if l == m else J
        offset += float(joined.sum()) * shift[l] * shift[m]
        field[l] += joined.sum(1) * scale[l] * shift[m]
        field[m] += joined.sum(0) * scale[m] * shift[l]
        for i, j in joined.nonzero().tolist():
            model.add_quadratic((l, i), (m, j), -float(joined[i, j]) * scale[l] * scale[m])
    for l, x in enumerate(field):
        for i, value in enumerate(x.tolist()):
            model.add_linear((l, i), -value)
    model.offset = -offset
    return model


@torch.no_grad()
def from_dimod(model: Any) -> BoltzmannMachine:
    """Returns a ``dimod.BinaryQuadraticModel`` as a fully visible machine, in float64.

    Its energies are those of the model less the constant ``offset`` of the model; the temperature is 1.

    Args:
        model: Model of SPIN or BINARY variables, which become ``Spin`` or ``Bernoulli`` units in their order;
            ``metadata["variables"]`` has their names as text.

    Raises:
        ImportError: dimod is not installed.
        TypeError, ValueError: another object, or a model without variables.
    """
    if not isinstance(model, _import_dimod().BinaryQuadraticModel):
        raise TypeError(f"model: expected a BinaryQuadraticModel, received {type(model).__name__}")
    names = list(model.variables)
    if not names:
        raise ValueError("model: expected variables, received none")
    place = {name: i for i, name in enumerate(names)}
    layer = Spin(len(names)) if model.vartype.name == "SPIN" else Bernoulli(len(names))
    J = torch.zeros(len(names), len(names), dtype=torch.float64)
    for (u, v), value in model.quadratic.items():
        J[place[u], place[v]] = J[place[v], place[u]] = -float(value)
    whole = model.num_interactions == len(names) * (len(names) - 1) // 2
    edges: Any = {(0, 0): Dense() if whole else Masked(J != 0)} if bool(J.any()) else []
    machine = BoltzmannMachine([layer], edges, [0], seed=None).double()
    layer.set_finite_(bias=torch.tensor([-float(model.linear[name]) for name in names]).double())
    if edges:
        machine.couplings[0].fill_(J)
    try:
        refuse_infinite(machine)
    except ValueError as error:
        raise ValueError(f"model: {error}") from error
    machine.metadata["variables"] = [str(name) for name in names]
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
    high = torch.from_numpy(values[:, [columns[name] for name in names]] > 0)
    parts = torch.split(high.long(), [layer.n_units for layer in machine.layers], 1)
    return [
        layer.from_digits(digits).to(machine.device, machine.dtype)
        for layer, digits in zip(machine.layers, parts, strict=True)
    ]
