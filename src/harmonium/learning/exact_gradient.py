"""The mean log-likelihood and its gradient at once, for optimisers that search along lines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

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
    condition_on: Iterable[int] = (),
    joint: float = 1.0,
) -> tuple[float, dict[str, Tensor]]:
    """Returns the mean of ln p of what rows show, and its gradient, by a sum over the hidden states.

    With x, the layers of ``condition_on``, and y, all others: of (1 - joint) ln p(y | x) + joint ln p(x, y).

    Both are without noise. The gradient is that of ``rules.exact``, and the value costs next to nothing
    beside it. A float64 machine has the digits that a search along a line asks for.

    Args:
        machine: that ``likelihood.HiddenStates`` takes; or its parametrisation, where it is asked again and
            again.
        X: visible states, (rows, visible_width), NaN where missing. Their support is not looked at.
        weights: of the rows, (rows,), at least 0 and not all 0; None: all count alike.
        roots: see ``rules.exact``; the likelihood is that of the columns before they are turned.
        condition_on: visible layers, but not all, as of ``rules.hybrid``.
        joint: in [0, 1]; without ``condition_on`` it says nothing.

    Returns:
        The mean in nats, and for the name of every learnable parameter its gradient, of its shape.

    Raises:
        ValueError: another machine, X of another shape, weights that do not fit, or layers that are not some
            of the visible ones.

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
    each = each / each.sum()
    layers = set(condition_on)
    joint = _checks.real(joint, "joint", low=0.0, high=1.0) if layers else 1.0
    value = table.add_expectation(sums, each, v)
    if joint < 1:
        value += table.add_expectation(sums, (joint - 1) * each, _keep_layers(law.machine, v, layers))
    if joint > 0:
        value += table.add_expectation(sums, -joint)
    return float(value), law.pullback(sums)


def _keep_layers(machine: BoltzmannMachine, v: Tensor, layers: Collection[int]) -> Tensor:
    """Returns rows, (rows, visible_width), that show these visible layers alone.

    Raises:
        ValueError: layers that are not some of the visible ones, or all of them.
    """
    if not set(layers) < set(machine.visible):
        raise ValueError(
            f"condition_on: expected some of the visible layers {list(machine.visible)} but not all, "
            f"received {sorted(layers)}"
        )
    widths = [machine.layers[l].width for l in machine.visible]
    parts = zip(machine.visible, torch.split(v, widths, 1), strict=True)
    return torch.cat([x if l in layers else torch.full_like(x, torch.nan) for l, x in parts], 1)
