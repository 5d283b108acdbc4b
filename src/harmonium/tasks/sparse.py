"""Sparse machines: pairs of units that are let go, or taken up, between one training and the next."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._checks import Numbers
from harmonium.couplings import Coupling, Masked, Sparse
from harmonium.layers import Layer
from harmonium.machine import BoltzmannMachine, to_zero_sum_

_UNIFORM = 0.01  # share of uniform noise in frequencies of states, of which some were not seen


@torch.no_grad()
def decimate(machine: BoltzmannMachine, pairs: int, *, edge: int = 0) -> BoltzmannMachine:
    """Returns a machine that keeps the strongest pairs of units of one coupling, on ``Sparse`` or ``Masked``.

    The strength of a pair is the Frobenius norm of its block in the zero-sum gauge, in which the machine
    comes back. Train it on before more pairs are let go, a small share at a time (decimation; compare
    Barrat-Charlaix et al. 2021, who let go of single entries).

    Args:
        machine: on any graph; it is left as it is. Couplings of categorical units have to be dense or masked.
        pairs: how many are kept; of a coupling with fewer all are.
        edge: number of the coupling in ``machine.edges``.

    Raises:
        TypeError, ValueError: no such coupling, or a number of pairs below 0.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Categorical(6, 5)], {(0, 0): hm.Dense()}, [0], seed=0)
        >>> sparse = hm.tasks.decimate(machine, 4)
        >>> int(sparse.couplings[0].joined.sum()) // (2 * 5 * 5)
        4
    """
    pairs = _checks.positive_int(pairs, "pairs", minimum=0)
    _check_edge(machine, edge)
    machine.hamiltonian()  # refuses numbers that are not finite
    decimated = deepcopy(machine)
    to_zero_sum_(decimated)
    by_pair = decimated.couplings[edge]
    if isinstance(by_pair, Sparse):
        strengths = by_pair.weight.view(len(by_pair.pairs), -1).square().sum(1)
        strongest = strengths.topk(min(pairs, len(strengths))).indices.sort().values
        decimated = _on(decimated, edge, Sparse(by_pair.pairs[strongest.cpu()]))
        decimated.couplings[edge].fill_(by_pair.weight[strongest])
        return decimated
    below, above, joined = _sides(machine, edge)
    strength = _by_unit(decimated.couplings[edge].matrix(), below, above).square().sum((1, 3))
    mask = _largest(strength.cpu().masked_fill(~joined, -1), min(pairs, int(joined.sum())))
    return _on(decimated, edge, Masked(mask))


@torch.no_grad()
def activate(
    machine: BoltzmannMachine,
    pairs: int,
    X: Numbers,
    states: Numbers,
    *,
    weights: Tensor | None = None,
    edge: int = 0,
) -> BoltzmannMachine:
    """Returns a machine that joins more pairs of visible units: those that it is most wrong about.

    The gain of a pair is the Kullback-Leibler divergence of its states in the rows from those in the
    machine's own draws: what the best coupling and fields of that pair alone would add to the mean ln p
    (activation; Calvanese et al. 2024). New couplings begin at 0: train the machine on before the next pairs.

    Args:
        machine: Machine with a coupling of visible units that are categorical or have two values; it stays.
        pairs: how many are taken up.
        X: (rows, visible_width).
        states: draws of the machine, (draws, visible_width).
        weights: Row weights, (rows,), at least 0 and some above; None means uniform.
        edge: number of the coupling in ``machine.edges``, such as one on ``Masked`` without any pair.

    Raises:
        TypeError, ValueError: no such coupling, more pairs than are free, or rows that do not fit.
    """
    below, above, joined = _sides(machine, edge)
    l, m = machine.edges[edge]
    if not {l, m} <= set(machine.visible) or not all(x.one_hot or x.two_values for x in (below, above)):
        raise ValueError(f"edge: expected one of visible units with few states, received {below} and {above}")
    free = ~joined
    if l == m:
        free = free.triu(1)
    pairs = _checks.positive_int(pairs, "pairs", minimum=0)
    if pairs > int(free.sum()):
        raise ValueError(f"pairs: expected at most {int(free.sum())} that are not joined, received {pairs}")
    hamiltonian = machine.hamiltonian()
    pair_shares = []
    for name, values, row_weights in (("X", X, weights), ("states", states, None)):
        rows = machine.visible_rows(values, name)
        share = _checks.weights(row_weights, "weights", len(rows))
        share = torch.ones(len(rows)) if share is None else share
        share = (share / share.sum()).to(rows.device, torch.float64)
        parts = hamiltonian.split(rows)
        a, b = (_one_hot(layer, parts[k]) for layer, k in ((below, l), (above, m)))
        both = torch.einsum("r,ris,rjt->ijst", share, a, b)
        pair_shares.append((1 - _UNIFORM) * both + _UNIFORM / both[0, 0].numel())
    gain = (pair_shares[0] * (pair_shares[0] / pair_shares[1]).log()).sum((2, 3))
    taken = _largest(gain.cpu().masked_fill(~free, -1), pairs)
    by_pair = machine.couplings[edge]
    if isinstance(by_pair, Sparse):
        activated = _on(deepcopy(machine), edge, Sparse(torch.cat((by_pair.pairs, taken.nonzero()))))
        activated.couplings[edge].weight[: len(by_pair.pairs)] = by_pair.weight
        return activated
    return _on(deepcopy(machine), edge, Masked(joined | taken))


def _sides(machine: BoltzmannMachine, edge: int) -> tuple[Layer, Layer, Tensor]:
    """Returns the layers of an edge, and which of their units it joins, on the CPU as masks are.

    Within a layer these stand above the diagonal.
    """
    number = _check_edge(machine, edge)
    below, above = (machine.layers[l] for l in machine.edges[number])
    joined = machine.couplings[number].joined
    if joined is None:
        joined = torch.ones(below.width, above.width, dtype=torch.bool)
    units = _by_unit(joined.cpu(), below, above).any(3).any(1)
    return below, above, units.triu(1) if below is above else units


def _check_edge(machine: BoltzmannMachine, edge: int) -> int:
    """Returns the number of a coupling that the machine has."""
    number = _checks.positive_int(edge, "edge", minimum=0)
    if number >= len(machine.edges):
        raise ValueError(f"edge: expected one below {len(machine.edges)}, received {edge}")
    return number


def _by_unit(W: Tensor, below: Layer, above: Layer) -> Tensor:
    """Returns a matrix of couplings as blocks, (units below, states, units above, states)."""
    return W.view(below.n_units, -1, above.n_units, above.columns_per_unit)


def _largest(scores: Tensor, number: int) -> Tensor:
    """Returns which entries are the largest, booleans."""
    chosen = torch.zeros(scores.numel(), dtype=torch.bool)
    chosen[scores.flatten().topk(number).indices] = True
    return chosen.view_as(scores)


def _one_hot(layer: Layer, x: Tensor) -> Tensor:
    """Returns states as indicators, (rows, units, states) float64."""
    if layer.one_hot:
        return x.double().view(len(x), layer.n_units, -1)
    return torch.stack([x == value for value in layer.two_values or ()], -1).double()


def _on(machine: BoltzmannMachine, edge: int, changed: Coupling) -> BoltzmannMachine:
    """Returns a machine with the parameters of another, of which one coupling joins other pairs of units.

    Its weights are left at 0 where they are stored by pair.
    """
    kinds = [type(coupling)(**coupling.config()) for coupling in machine.couplings]
    kinds[edge] = changed
    edges = dict(zip(machine.edges, kinds, strict=True))
    changed_machine = BoltzmannMachine(machine.layers, edges, machine.visible, seed=None)
    changed_machine.to(machine.device, machine.dtype)
    for coupling, before in zip(changed_machine.couplings, machine.couplings, strict=True):
        if coupling.sparsity is None:
            coupling.fill_(before.matrix())
        elif coupling is not changed:
            coupling.fill_(before.weight)
        coupling.weight.requires_grad_(before.weight.requires_grad)
    changed_machine.metadata = deepcopy(machine.metadata)
    return changed_machine
