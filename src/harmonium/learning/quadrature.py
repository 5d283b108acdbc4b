"""Expectations on a grid."""

from __future__ import annotations

from typing import final

from harmonium.learning.expectation import Expectation, Outcome, Task
from harmonium.likelihood import add_quadrature_expectation


@final
class Quadrature(Expectation):
    """E[S] of a machine with one to three Gaussian visible units, by quadrature over them.

    Args:
        clamped: whether visible units are clamped to the data. Quadrature is then over those alone that a
            row does not observe.
    """

    def __init__(self, *, clamped: bool) -> None:
        self.clamped = clamped

    def add(self, task: Task) -> Outcome:
        if not self.clamped:
            add_quadrature_expectation(task.hamiltonian, task.into, task.weight)
        elif task.exact:
            return task.add_exact()
        else:
            add_quadrature_expectation(task.hamiltonian, task.into, task.each, task.v)
        return Outcome(None, {})
