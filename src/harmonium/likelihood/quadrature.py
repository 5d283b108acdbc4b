"""Exact answers for few real visible units, by quadrature."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

import torch
from torch import Tensor

from harmonium import _host
from harmonium.machine import BoltzmannMachine, Hamiltonian, Statistics

MAX_POINTS = 1 << 24
_BLOCK_ELEMENTS = 1 << 21
_REACH = 8.0  # standard deviations beyond the outermost mean: what lies there is below 1e-15


@torch.no_grad()
def quadrature_log_partition(machine: BoltzmannMachine) -> float:
    """ln Z in float64 on a grid over the visible units, whatever the number of hidden units.

    Given the hidden units the visible ones are Gaussian, with means in a box that follows from the couplings.
    The grid covers the box and eight standard deviations more at a spacing of one: the trapezoid rule is then
    wrong by less than 1e-8 of Z.

    Args:
        machine: Gaussian visible units, one or two or perhaps three, and one hidden layer of discrete units.

    Raises:
        ValueError: another machine, or a grid of more than 2^24 points.
    """
    hamiltonian = machine.hamiltonian().to(torch.float64)
    return float(_log_partition(hamiltonian))


@torch.no_grad()
def add_quadrature_expectation(hamiltonian: Hamiltonian, into: Statistics, weight: float) -> None:
    """Adds weight · E[S] by the same quadrature.

    Args:
        hamiltonian: the machine, see ``quadrature_log_partition``.
        into: where to add.
        weight: the weight of the expectation.
    """
    total = _log_partition(hamiltonian)
    for v, log_cell in _blocks(hamiltonian):
        probability = (_log_weights(hamiltonian, v) + log_cell - total).exp() * weight
        into.add(hamiltonian, hamiltonian.split(v), probability, summed=hamiltonian.graph.summed)


def _log_partition(hamiltonian: Hamiltonian) -> Tensor:
    parts = [(_log_weights(hamiltonian, v) + cell).logsumexp(0) for v, cell in _blocks(hamiltonian)]
    return torch.stack(parts).logsumexp(0)


def _log_weights(hamiltonian: Hamiltonian, v: Tensor) -> Tensor:
    return -hamiltonian.free_energy(hamiltonian.split(v), hamiltonian.graph.summed)


def _blocks(hamiltonian: Hamiltonian) -> Iterator[tuple[Tensor, float]]:
    """The points of the grid, some rows at a time, and the log of a cell's volume."""
    layers = hamiltonian.layers
    chain = len(layers) == 2 and hamiltonian.graph.is_chain
    if not chain or not layers[0].gaussian or not layers[1].discrete:
        raise ValueError(
            "machine: expected Gaussian visible units and one hidden layer of discrete units for quadrature, "
            f"received {', '.join(layer.kind for layer in layers)}"
        )
    U, V = (theta.detach().double() for theta in hamiltonian.thetas[0])
    J = hamiltonian.couplings[0].detach().double() * hamiltonian.beta
    reach = layers[1].by_unit(J) @ layers[1].values().to(J).t()  # (n_0, n_1, n_states)
    low = (U + reach.amin(-1).sum(-1)) / V
    high = (U + reach.amax(-1).sum(-1)) / V
    spacing = V.rsqrt()
    counts = [int(n) for n in ((high - low) / spacing + 2 * _REACH).ceil().tolist()]
    if prod(counts) > MAX_POINTS:
        raise ValueError(
            f"machine: expected one whose grid has at most {MAX_POINTS} points, received {prod(counts)} "
            f"({' x '.join(map(str, counts))}); use harmonium.likelihood.ais"
        )
    size = max(1, _BLOCK_ELEMENTS // layers[1].width)
    strides = _host.sent(torch.tensor([prod(counts[i + 1 :]) for i in range(len(counts))]), U.device)
    radix = _host.sent(torch.tensor(counts), U.device)
    log_cell = float(spacing.log().sum())
    edges = [*range(0, prod(counts), size), prod(counts)]
    for first, last in pairwise(edges):
        index = torch.arange(first, last, device=U.device).unsqueeze(-1)
        digits = index.div(strides, rounding_mode="floor").remainder(radix)
        v = low - _REACH * spacing + digits * spacing
        yield v.to(hamiltonian.dtype), log_cell
