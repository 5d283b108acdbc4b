"""Both sides of pseudo-likelihood: the data, less every visible layer drawn again given the others."""

from __future__ import annotations

from typing import ClassVar, final

import torch

from harmonium.learning.expectation import Expectation, ExpectationRequest, Outcome


@final
class DataUnits(Expectation):
    """Adds t(x_l) of the data for every unit; the products that belong to them are in ``Conditionals``."""

    noiseless: ClassVar[bool] = True

    def add(self, request: ExpectationRequest) -> Outcome:
        """Adds it.

        Raises:
            ValueError: as ``Conditionals.add``.
        """
        _require_complete_rows(request)
        states = request.hamiltonian.split(request.v)
        for l, layer in enumerate(request.hamiltonian.layers):
            request.into.add_terms(l, layer.statistics(states[l]), request.row_weight)
        return Outcome(None, {})


@final
class Conditionals(Expectation):
    """Replaces E[S] in the gradient, for the pseudo-likelihood Σ_i ln p(x_i | x_without_i) (Besag 1975).

    Of a machine without hidden layers, with m_i = E[x_i | x_without_i], averaged over the data: E[t(x_i) |
    x_without_i] for every unit, and m_l ⊗ x_m + x_l ⊗ m_m - 2 x_l ⊗ x_m for an edge, whose coupling is in the
    distributions of both ends: x_l ⊗ x_m of the data, which ``DataUnits`` leaves out, is taken off here. For
        an inner
    edge it is x ⊗ (m - x), whose symmetric part is half of that. No sampling and no ln Z: the cost is that of
    a mean given its field.
    """

    noiseless: ClassVar[bool] = True

    def add(self, request: ExpectationRequest) -> Outcome:
        """Adds it.

        Raises:
            ValueError: a machine with hidden layers, or data with entries that are not observed.
        """
        _require_complete_rows(request)
        hamiltonian = request.hamiltonian
        states = hamiltonian.split(request.v)
        weight = request.row_weight
        moved = []
        for l, layer in enumerate(hamiltonian.layers):
            expected = layer.expected_statistics(hamiltonian.field(l, states), theta=hamiltonian.thetas[l])
            request.into.add_terms(l, expected, weight)
            moved.append(torch.sub(expected[0], states[l]))
        for edge in hamiltonian.J.spare:  # all fields are known
            request.into.sum_in(edge, hamiltonian.J.take(edge))
        for edge, (l, m) in enumerate(hamiltonian.graph.edges):
            # States stand first: products with few rows of them go by their bits. Of a sum over an inner edge
            # the symmetric part alone counts.
            if l != m:
                request.into.add_products(edge, moved[l], states[m], weight)
            request.into.add_products(edge, states[l], moved[m], weight)
        return Outcome(None, {})


def _require_complete_rows(request: ExpectationRequest) -> None:
    hidden = request.hamiltonian.graph.hidden
    if hidden:
        raise ValueError(
            "machine: expected no hidden layers for the pseudo-likelihood, received "
            f"{list(hidden)}; leave hidden units out (--hidden 0), or use another rule, such as pcd"
        )
    if not request.complete:
        raise ValueError(
            "v: expected complete rows for the pseudo-likelihood, where every unit is predicted from all "
            "others, received NaN; use another rule, such as pcd"
        )
