"""The mean log-likelihood and its gradient at once, for optimisers that search along lines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import inf

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._checks import Numbers
from harmonium.learning.parametrisation import Parametrisation
from harmonium.machine import BoltzmannMachine, Hamiltonian, Statistics
from harmonium.sums import MAX_MISSING_STATES, HiddenStates


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
        weights: Row weights, (rows,), at least 0 and not all 0; None means uniform.
        roots: see ``rules.exact``; the likelihood is that of the columns before they are turned.
        condition_on: visible layers, but not all, as of ``rules.hybrid``.
        joint: A number in [0, 1], not read without ``condition_on``.

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
    parametrisation = machine if isinstance(machine, Parametrisation) else Parametrisation(machine)
    v = _checks.tensor(X, "X", parametrisation.machine.dtype, parametrisation.machine.device)
    if v.dim() != 2 or v.shape[1] != parametrisation.machine.visible_width or len(v) == 0:
        raise ValueError(
            f"X: expected (rows, {parametrisation.machine.visible_width}) with at least one row, "
            f"received {tuple(v.shape)}"
        )
    checked = _checks.weights(weights, "weights", len(v))
    row_weights = (
        v.new_ones(len(v), dtype=torch.float64) if checked is None else checked.to(v.device, torch.float64)
    )
    hamiltonian = parametrisation.hamiltonian()
    sums, row_weights = Statistics(hamiltonian), row_weights / row_weights.sum()
    layers = tuple(condition_on)
    if layers:
        parametrisation.machine.check_condition(layers)
    joint = _checks.real(joint, "joint", low=0.0, high=1.0) if layers else 1.0
    label = _find_label(hamiltonian, v, layers) if joint < 1 and not roots else None
    if label is not None:
        value = _add_labels(hamiltonian, sums, row_weights, v, label, joint)
        if joint == 0:
            return float(value), parametrisation.pullback(sums)
    table = HiddenStates(hamiltonian, roots)
    if label is None:
        value = table.expect(sums, row_weights, v)
        if joint < 1:
            value += table.expect(sums, (joint - 1) * row_weights, hamiltonian.observe_only(layers, v))
    if joint > 0:
        value += table.expect(sums, -joint)
    return float(value), parametrisation.pullback(sums)


def _find_label(hamiltonian: Hamiltonian, v: Tensor, layers: Collection[int]) -> int | None:
    """Returns the one layer besides these, of one unit with few states, if hidden units are free beside it.

    That is where one hidden layer, without edges of its own, is joined to layers that all rows show. None:
    there is no such layer.
    """
    graph = hamiltonian.graph
    rest = [l for l in graph.visible if l not in layers]
    if len(graph.hidden) != 1 or graph.inner or len(rest) != 1:
        return None
    unit, split = hamiltonian.layers[rest[0]], hamiltonian.split(v)
    few = unit.n_units == 1 and unit.n_states is not None and unit.n_states <= MAX_MISSING_STATES
    return None if not few or any(bool(split[l].isnan().any()) for l in layers) else rest[0]


def _add_labels(
    hamiltonian: Hamiltonian, into: Statistics, row_weights: Tensor, v: Tensor, label: int, joint: float
) -> Tensor:
    """Adds E[S | row] - (1 - joint) E[S | row without its label], with weights: by the states of the label.

    Given all else the hidden units are independent, so that their joint states need no sum.

    Returns:
        The sum of which that is the derivative, () float64.
    """
    (hidden,), values, count = hamiltonian.graph.hidden, hamiltonian.layers[label].values().to(v), len(v)
    states = [x.repeat_interleave(len(values), 0) for x in hamiltonian.split(v)]
    labels, states[label] = hamiltonian.split(v)[label], values.repeat(count, 1)
    fields = {hidden: hamiltonian.field(hidden, states)}
    log_weights = -hamiltonian.free_energy(states, (hidden,), fields).view(count, -1)
    unlike = (labels.unsqueeze(1) != values).any(2) & ~labels.isnan().any(1, keepdim=True)
    seen = log_weights.masked_fill(unlike, -inf)
    weights = seen.softmax(1) - (1 - joint) * log_weights.softmax(1)
    into.add(hamiltonian, states, (row_weights.unsqueeze(1) * weights).flatten(), (hidden,), fields)
    return row_weights @ (seen.logsumexp(1) - (1 - joint) * log_weights.logsumexp(1))
