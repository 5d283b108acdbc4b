"""Exact answers for few real visible units, by quadrature."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import nan, prod

import torch
from torch import Tensor

from harmonium import _host
from harmonium.likelihood.exact import same_rows
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
    return float(_log_normalisers(hamiltonian, _unobserved(hamiltonian)))


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
    rows = _unobserved(hamiltonian) if v is None else v
    for alike in same_rows(rows.isnan()):
        seen, each = rows[alike], weight[alike] if isinstance(weight, Tensor) else weight
        totals = _log_normalisers(hamiltonian, seen)
        for x, log_cell in _blocks(hamiltonian, seen):
            log_weights = _log_weights(hamiltonian, x).view(len(seen), -1)
            probability = (log_weights + log_cell - totals.unsqueeze(-1)).exp()
            probability *= each.unsqueeze(-1) if isinstance(each, Tensor) else each
            states = hamiltonian.split(x)
            into.add(hamiltonian, states, probability.flatten(), summed=hamiltonian.graph.summed)


def _unobserved(hamiltonian: Hamiltonian) -> Tensor:
    """One row that observes nothing, (1, visible_width)."""
    return hamiltonian.thetas[0][0].detach().new_full((1, hamiltonian.visible_width), nan)


def _log_normalisers(hamiltonian: Hamiltonian, v: Tensor) -> Tensor:
    """ln of the integral over what the rows do not observe, all of them the same units, (rows,)."""
    parts = [
        (_log_weights(hamiltonian, x).view(len(v), -1) + log_cell).logsumexp(-1)
        for x, log_cell in _blocks(hamiltonian, v)
    ]
    return torch.stack(parts).logsumexp(0)


def _log_weights(hamiltonian: Hamiltonian, v: Tensor) -> Tensor:
    return -hamiltonian.free_energy(hamiltonian.split(v), hamiltonian.graph.summed)


def _blocks(hamiltonian: Hamiltonian, v: Tensor) -> Iterator[tuple[Tensor, float]]:
    """Every row beside the points of a grid over the units that it lacks, row-major, some points at a time.

    The rows, (rows, visible_width), lack the same units, as NaN. With the points comes ln of a cell's volume.
    """
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
    stride, radix = (_host.sent(torch.tensor(x, dtype=torch.int64), U.device) for x in (strides, counts))
    log_cell = float(spacing.log().sum())
    edges = [*range(0, prod(counts), size), prod(counts)]
    for first, last in pairwise(edges):
        index = torch.arange(first, last, device=U.device).unsqueeze(-1)
        digits = index.div(stride, rounding_mode="floor").remainder(radix)
        points = v.repeat_interleave(len(index), 0)
        points[:, lacking] = (low - _REACH * spacing + digits * spacing).to(v.dtype).repeat(len(v), 1)
        yield points, log_cell
