"""Exact answers for Gaussian visible units beside discrete hidden ones: by quadrature, and as a mixture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import nan, prod
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _device
from harmonium.layers import Layer
from harmonium.likelihood.exact import same_rows
from harmonium.likelihood.hidden_states import list_states
from harmonium.machine import BoltzmannMachine, Graph, Hamiltonian, Statistics

MAX_POINTS = 1 << 24
MAX_LOG2_COMPONENTS = 20
_BLOCK_ELEMENTS = 1 << 21
_REACH = 8.0  # standard deviations beyond the outermost mean: what lies there is below 1e-15


@torch.no_grad()
def quadrature_log_partition(machine: BoltzmannMachine) -> float:
    """Returns ln Z in float64 on a grid over the visible units, whatever the number of hidden units.

    Given the hidden units the visible ones are Gaussian, with means in a box that follows from the couplings.
    The grid covers the box and eight standard deviations more at a spacing of one: the trapezoid rule is then
    wrong by less than 1e-8 of Z.

    Args:
        machine: Gaussian visible units, one or two or perhaps three, and one hidden layer of discrete units.

    Raises:
        ValueError: another machine, or a grid of more than 2^24 points.
    """
    hamiltonian = machine.hamiltonian().to(torch.float64)
    return float(_normalise(hamiltonian, _make_unobserved(hamiltonian)))


@torch.no_grad()
def add_quadrature_expectation(
    hamiltonian: Hamiltonian, into: Statistics, weight: float | Tensor, v: Tensor | None = None
) -> None:
    """Adds weight · E[S], or with v the sum over its rows of weight · E[S | v_row], by the same quadrature.

    Args:
        hamiltonian: the machine, see ``quadrature_log_partition``.
        into: where to add.
        weight: the weight of every row, a number or (rows,).
        v: visible states (rows, visible_width) to clamp, NaN where not observed: rows that lack the same
            units are integrated together over these. None for the free machine.

    Raises:
        ValueError: another machine, or a grid of more than 2^24 points.
    """
    rows = _make_unobserved(hamiltonian) if v is None else v
    for alike in same_rows(rows.isnan()):
        seen, each = rows[alike], weight[alike] if isinstance(weight, Tensor) else weight
        totals = _normalise(hamiltonian, seen)
        for x, log_cell in _iterate_blocks(hamiltonian, seen):
            log_weights = _weigh(hamiltonian, x).view(len(seen), -1)
            probability = (log_weights + log_cell - totals.unsqueeze(-1)).exp()
            probability *= each.unsqueeze(-1) if isinstance(each, Tensor) else each
            states = hamiltonian.split(x)
            into.add(hamiltonian, states, probability.flatten(), summed=hamiltonian.graph.summed)


class Mixture(NamedTuple):
    """A mixture of Gaussians with one diagonal covariance.

    Attributes:
        log_weights: normalised, (components,).
        means: (components, n_0).
        variance: of every unit, in every component, (n_0,).
    """

    log_weights: Tensor
    means: Tensor
    variance: Tensor


@torch.no_grad()
def mixture(machine: BoltzmannMachine) -> Mixture:
    """Returns the density of Gaussian visible units, a component for every hidden state, in float64.

    Args:
        machine: Gaussian visible units and one hidden layer of discrete units with at most 2^20 joint states.

    Raises:
        ValueError: another machine.
    """
    layers = machine.layers
    _check_kinds(layers, machine.graph)
    if layers[1].log2_states > MAX_LOG2_COMPONENTS:
        raise ValueError(
            f"machine: expected at most 2^{MAX_LOG2_COMPONENTS} joint hidden states, "
            f"received 2^{layers[1].log2_states:.4g}"
        )
    hamiltonian = machine.hamiltonian().to(torch.float64)
    h = list_states(hamiltonian)[1]
    log_weights = -hamiltonian.free_energy([h, h], (0,))
    means = hamiltonian.mean(0, hamiltonian.field(0, [h, h]))
    return Mixture(log_weights.log_softmax(0), means, 1 / hamiltonian.thetas[0][1])


def _check_kinds(layers: Sequence[Layer], graph: Graph) -> None:
    """Refuses any machine but Gaussian visible units with one hidden layer of discrete units."""
    if not (graph.is_chain and len(layers) == 2 and layers[0].gaussian and layers[1].discrete):
        raise ValueError(
            "machine: expected Gaussian visible units and one hidden layer of discrete units, "
            f"received {', '.join(layer.kind for layer in layers)}"
        )


def _make_unobserved(hamiltonian: Hamiltonian) -> Tensor:
    """Returns one row that observes nothing, (1, visible_width)."""
    return hamiltonian.thetas[0][0].detach().new_full((1, hamiltonian.visible_width), nan)


def _normalise(hamiltonian: Hamiltonian, v: Tensor) -> Tensor:
    """Returns ln of the integral over what the rows do not observe, all of them the same units, (rows,)."""
    parts = [
        (_weigh(hamiltonian, x).view(len(v), -1) + log_cell).logsumexp(-1)
        for x, log_cell in _iterate_blocks(hamiltonian, v)
    ]
    return torch.stack(parts).logsumexp(0)


def _weigh(hamiltonian: Hamiltonian, v: Tensor) -> Tensor:
    """Returns -F of complete rows, (rows,)."""
    return -hamiltonian.free_energy(hamiltonian.split(v), hamiltonian.graph.summed)


def _iterate_blocks(hamiltonian: Hamiltonian, v: Tensor) -> Iterator[tuple[Tensor, float]]:
    """Yields every row beside points of a grid over the units that it lacks, row-major, some at a time.

    The rows, (rows, visible_width), lack the same units, as NaN. With the points comes ln of a cell's volume.
    """
    layers = hamiltonian.layers
    _check_kinds(layers, hamiltonian.graph)
    U, V = (theta.detach().double() for theta in hamiltonian.thetas[0])
    J = hamiltonian.J[0].detach().double() * hamiltonian.beta
    reach = layers[1].by_unit(J) @ layers[1].values().to(J).t()  # (n_0, n_1, n_states)
    lacking = v[0].isnan()
    low = ((U + reach.amin(-1).sum(-1)) / V)[lacking]
    high = ((U + reach.amax(-1).sum(-1)) / V)[lacking]
    spacing = V.rsqrt()[lacking]
    counts = [int(n) for n in ((high - low) / spacing + 2 * _REACH).ceil().tolist()]
    if prod(counts) > MAX_POINTS:
        raise ValueError(
            f"machine: expected one whose grid has at most {MAX_POINTS} points, received {prod(counts)} "
            f"({' x '.join(map(str, counts))}); use harmonium.likelihood.ais"
        )
    size = max(1, _BLOCK_ELEMENTS // (layers[1].width * len(v)))
    strides = [prod(counts[i + 1 :]) for i in range(len(counts))]
    stride, radix = (
        _device.to_device(torch.tensor(x, dtype=torch.int64), U.device) for x in (strides, counts)
    )
    log_cell = float(spacing.log().sum())
    edges = [*range(0, prod(counts), size), prod(counts)]
    for first, last in pairwise(edges):
        index = torch.arange(first, last, device=U.device).unsqueeze(-1)
        digits = index.div(stride, rounding_mode="floor").remainder(radix)
        points = v.repeat_interleave(len(index), 0)
        points[:, lacking] = (low - _REACH * spacing + digits * spacing).to(v.dtype).repeat(len(v), 1)
        yield points, log_cell
