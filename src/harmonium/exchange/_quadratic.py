"""Quadratic models of bits or spins, to machines and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium.couplings import Dense, Sparse
from harmonium.exchange._format import misfit
from harmonium.exchange._pairwise import of_machine
from harmonium.exchange._variables import Variable, name_variables
from harmonium.layers import Bernoulli, Spin
from harmonium.machine import BoltzmannMachine, refuse_infinite


class Quadratic(NamedTuple):
    """A model with E(x) = constant + Σ linear_i x_i + Σ values_k x_i x_j over pairs k = (i, j).

    Attributes:
        spins: whether x is -1 or 1, and not 0 or 1.
        linear: (variables,) float64.
        pairs: different pairs of different variables, (pairs, 2) int64.
        values: (pairs,) float64.
        constant: Energy beside no variable.
    """

    spins: bool
    linear: Tensor
    pairs: Tensor
    values: Tensor
    constant: float

    def to_machine(self, labels: Sequence[Any]) -> BoltzmannMachine:
        """Returns a fully visible machine in float64 with the energies of the model.

        Args:
            labels: Names of the variables.
        """
        n = len(self.linear)
        whole = len(self.pairs) == n * (n - 1) // 2
        layer = Spin(n) if self.spins else Bernoulli(n)
        edges: Any = {(0, 0): Dense() if whole else Sparse(self.pairs)} if len(self.pairs) else []
        machine = BoltzmannMachine([layer], edges, [0], seed=None).double()
        machine.constant = _checks.real(self.constant, "constant")
        layer.bias.copy_(-self.linear)
        if len(self.pairs):
            J = -self.values
            if whole:
                J = J.new_zeros(n, n).index_put(tuple(self.pairs.sort(1).values.t()), J)
            machine.couplings[0].fill_(J)
        name_variables(machine, [Variable(label, (0, i)) for i, label in enumerate(labels)])
        return machine

    @classmethod
    def of_machine(cls, machine: BoltzmannMachine) -> Quadratic:
        """Returns a machine of units with two values as a model of its variables, in their order.

        A machine of spins alone is a model of spins, any other one of bits.

        Args:
            machine: Machine of units with two values.

        Raises:
            ValueError: other units, or parameters that are not finite.
        """
        if not all(layer.two_values for layer in machine.layers):
            raise misfit(machine, "units with two values for dimod")
        refuse_infinite(machine, forbidden=False)
        model = of_machine(machine, "dimod")
        spins = all(layer.two_values == (-1.0, 1.0) for layer in machine.layers)
        pairs = torch.tensor(list(model.tables), dtype=torch.int64).view(-1, 2)
        fields = torch.from_numpy(np.stack(model.fields))
        tables = torch.from_numpy(np.reshape([*model.tables.values()], (-1, 2, 2)))
        constant = -model.constant
        if spins:  # each part is the change from -1 to 1 of the mean over the values of the others
            linear = (fields[:, 0] - fields[:, 1]) / 2
            values = (tables[:, 0, 1] + tables[:, 1, 0] - tables[:, 0, 0] - tables[:, 1, 1]) / 4
        else:  # from 0 to 1 at 0 of the others
            linear = fields[:, 0] - fields[:, 1]
            linear.index_add_(0, pairs[:, 0], tables[:, 0, 0] - tables[:, 1, 0])
            linear.index_add_(0, pairs[:, 1], tables[:, 0, 0] - tables[:, 0, 1])
            values = tables[:, 0, 1] + tables[:, 1, 0] - tables[:, 0, 0] - tables[:, 1, 1]
            constant -= float(fields[:, 0].sum() + tables[:, 0, 0].sum())
        return cls(spins, linear, pairs, values, constant)
