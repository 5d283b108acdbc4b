"""The free expectation of pseudo-likelihood: every visible layer drawn anew given the others."""

from __future__ import annotations

from typing import final

from torch import Tensor

from harmonium.backends import product
from harmonium.learning.expectation import Expectation, ExpectationRequest, Outcome


@final
class Conditionals(Expectation):
    """Replaces E[S] in the gradient, for the pseudo-likelihood Σ_i ln p(x_i | x_without_i) (Besag 1975).

    Of a machine without hidden layers, with m_i = E[x_i | x_without_i], averaged over the data: E[t(x_i) |
    x_without_i] for every unit, and m_l ⊗ x_m + x_l ⊗ m_m - x_l ⊗ x_m for an edge, whose coupling is in the
    laws of both ends; for an inner edge half of it, as in ``Statistics``. No sampling and no ln Z: the cost
    is that of a mean given its field.
    """

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
        # Every row by its weight once, on one side of each product.
        weight = request.row_weight
        row_weights = weight.to(v).unsqueeze(-1) if isinstance(weight, Tensor) else weight
        weighted = [x * row_weights for x in states]
        thetas, means = [], []
        for l, layer in enumerate(hamiltonian.layers):
            expected = layer.expected_statistics(hamiltonian.field(l, states), theta=hamiltonian.thetas[l])
            thetas.append([(t * row_weights).sum(0) for t in expected])
            means.append(expected[0])
        couplings = []
        for l, m in hamiltonian.graph.edges:
            pair = product((means[l] - states[l]).t(), weighted[m]) + product(weighted[l].t(), means[m])
            couplings.append(pair / 2 if l == m else pair)
        request.into.add_sums(thetas, couplings)
        return Outcome(None, {})
