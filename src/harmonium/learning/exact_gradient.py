"""The mean log-likelihood and its gradient at once, for optimisers that search along lines."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._checks import Numbers
from harmonium.learning.pullback import Parametrisation
from harmonium.likelihood import HiddenStates
from harmonium.machine import BoltzmannMachine, Statistics


@torch.no_grad()
def exact_gradient(
    machine: BoltzmannMachine | Parametrisation,
    X: Numbers,
    weights: Tensor | None = None,
    *,
    roots: Mapping[int, Tensor] | None = None,
) -> tuple[float, dict[str, Tensor]]:
    """Returns the mean of ln p of what rows show, and its gradient, by a sum over the hidden states.

    Both are without noise. The gradient is that of ``rules.exact``, and the value costs next to nothing
    beside it. A float64 machine has the digits that a search along a line asks for.

    Args:
        machine: that ``likelihood.HiddenStates`` takes; or its parametrisation, where it is asked again and
            again.
        X: visible states, (rows, visible_width), NaN where missing. Their support is not looked at.
        weights: of the rows, (rows,), at least 0 and not all 0; None: all count alike.
        roots: see ``rules.exact``; the likelihood is that of the columns x.

    Returns:
        The mean in nats, and for the name of every learnable parameter its gradient, of its shape.

    Raises:
        ValueError: another machine, X of another shape, or weights that do not fit.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(2), hm.Bernoulli(3)], seed=0).double()
        >>> value, gradient = hm.learning.exact_gradient(machine, torch.tensor([[1.0, torch.nan]]))
        >>> round(value, 1), list(gradient)  # near ln 1/2
        (-0.7, ['layers.0.bias', 'layers.1.bias', 'couplings.0.weight'])
    """
    law = machine if isinstance(machine, Parametrisation) else Parametrisation(machine)
    v = _checks.tensor(X, "X", law.machine.dtype, law.machine.device)
    if v.dim() != 2 or v.shape[1] != law.machine.visible_width or len(v) == 0:
        raise ValueError(
            f"X: expected (rows, {law.machine.visible_width}) with at least one row, "
            f"received {tuple(v.shape)}"
        )
    given = _checks.weights(weights, "weights", len(v))
    each = v.new_ones(len(v), dtype=torch.float64) if given is None else given.to(v.device, torch.float64)
    hamiltonian = law.hamiltonian()
    table, sums = HiddenStates(hamiltonian, roots), Statistics(hamiltonian)
    value = table.add_expectation(sums, each / each.sum(), v) + table.add_expectation(sums, -1.0)
    return float(value), law.pullback(sums)
