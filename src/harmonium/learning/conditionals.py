"""The free expectation of pseudo-likelihood: every visible layer drawn anew given the others."""

from __future__ import annotations

from typing import ClassVar, final

import torch

from harmonium.learning.expectation import Expectation, ExpectationRequest, Outcome


@final
class Conditionals(Expectation):
    """Replaces E[S] in the gradient, for the pseudo-likelihood Σ_i ln p(x_i | x_without_i) (Besag 1975).

    Of a machine without hidden layers, with m_i = E[x_i | x_without_i], averaged over the data: E[t(x_i) |
    x_without_i] for every unit, and m_l ⊗ x_m + x_l ⊗ m_m - x_l ⊗ x_m for an edge, whose coupling is in the
    laws of both ends. For an inner edge it is x ⊗ (m - x / 2), whose symmetric part is half of that. No
    sampling and no ln Z: the cost is that of a mean given its field.
    """

    noiseless: ClassVar[bool] = True

    def add(self, request: ExpectationRequest) -> Outcome:
        """Adds it.

        Raises:
            ValueError: a machine with hidden layers, or data with entries that are not observed.
        """
        hamiltonian, v = request.hamiltonian, request.v
        if hamiltonian.graph.hidden:
            raise ValueError(
                "machine: expected no hidden layers for the pseudo-likelihood, received "
                f"{list(hamiltonian.graph.hidden)}; leave hidden units out (--hidden 0), or use another "
                "rule, such as pcd"
            )
        if not request.complete:
            raise ValueError(
                "v: expected complete rows for the pseudo-likelihood, where every unit is predicted from all "
                "others, received NaN; use another rule, such as pcd"
            )
        states = hamiltonian.split(v)
        weight = request.row_weight
        means = []
        for l, layer in enumerate(hamiltonian.layers):
            expected = layer.expected_statistics(hamiltonian.field(l, states), theta=hamiltonian.thetas[l])
            request.into.add_terms(l, expected, weight)
            means.append(expected[0])
        for edge, (l, m) in enumerate(hamiltonian.graph.edges):
            x, y = states[l], states[m]
            # States stand first: products with few rows of them go by their bits. Of a sum over an inner edge
            # the symmetric part alone counts.
            if l == m:
                request.into.add_products(edge, x, torch.sub(means[l], x, alpha=0.5), weight)
            else:
                request.into.add_products(edge, means[l] - x, y, weight)
                request.into.add_products(edge, x, means[m], weight)
        return Outcome(None, {})
