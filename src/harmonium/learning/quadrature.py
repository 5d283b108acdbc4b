"""The free expectation on a grid."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from harmonium.learning.expectation import Expectation, Outcome
from harmonium.likelihood import add_quadrature_expectation
from harmonium.machine import Hamiltonian, Statistics


@final
class Quadrature(Expectation):
    """E[S] of a machine with one to three Gaussian visible units, by quadrature over them."""

    def add(
        self,
        hamiltonian: Hamiltonian,
        v: Tensor,
        state: Any,
        generator: torch.Generator,
        into: Statistics,
        weight: float,
    ) -> Outcome:
        add_quadrature_expectation(hamiltonian, into, weight)
        return Outcome(None, {})
