"""The free expectation on a grid."""

from __future__ import annotations

from typing import final

from harmonium.learning.expectation import Expectation, Outcome, Task
from harmonium.likelihood import add_quadrature_expectation


@final
class Quadrature(Expectation):
    """E[S] of a machine with one to three Gaussian visible units, by quadrature over them."""

    def add(self, task: Task) -> Outcome:
        add_quadrature_expectation(task.hamiltonian, task.into, task.weight)
        return Outcome(None, {})
