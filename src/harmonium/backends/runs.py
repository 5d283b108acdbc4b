"""Runs that compiled code makes whole, on a CPU: each returns None where it does not serve."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium.backends import calls, choice
from harmonium.backends.choice import Machine

_SHARES = 64  # of the rows that are compared, for threads


@torch.no_grad()
def couple(p: Any, q: Any, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor] | None:
    """Draws from two ``coupled.Block``, maximally coupled with common noise: x, y, and proposals of each row.

    States are (rows, columns of all parts).
    """
    if not choice.two_valued(p.fields[0], p.values):
        return None
    units = calls.units_of([p.hamiltonian.units(part)[1][0] for part in p.parts], p.values)
    x, y = p.fields[0].new_empty(2 * p.rows, len(units[0])).chunk(2)
    tries = x.new_empty(p.rows, dtype=torch.int64)
    calls.over("per_row.couple", p.rows, p.field, q.field, *units, calls.key(generator), x, y, tries)
    return x, y, tries


def run(
    engine: Literal["pairs", "langevin"],
    machine: Machine,
    states: Sequence[Tensor],
    generator: torch.Generator,
    **settings: Any,
) -> Any:
    """Runs chains of a small machine from end to end, each alone.

    Args:
        engine: The file whose ``run`` makes them: "pairs", Gibbs chains by ``coupled.Gibbs()`` or Alg. 3 of
            Qiu et al. (2020) until each pair has met, or "langevin", chains of Gaussian visible units.
        machine: the machine in natural parameters.
        states: where to begin, for each layer (chains, width_l).
        generator: source of noise.
        settings: the other arguments of the file's ``run``.

    Returns:
        What that returns; None where the machine is not small, or of other units.
    """
    serves = choice.small_pairs if engine == "pairs" else choice.small_chains
    if not serves(machine):
        return None
    made = import_module(f"harmonium.backends.{engine}")  # needs numba
    return made.run(machine, states, calls.key(generator), **settings)


def climb(
    machine: Machine, sides: Sequence[Sequence[int]], states: list[Tensor], fields: dict[int, Tensor],
    half: int, patience: int,
) -> Tensor | None:  # fmt: skip
    """Goes on with a search for local modes, chain by chain; replaces ``states`` and fills ``fields``.

    Args:
        machine: the machine in natural parameters.
        sides: the free layers of either colour.
        states: for each layer (chains, width_l).
        fields: fields of some free layers, (chains, width_l), which the states beside them agree with.
        half: half-steps that all have made.
        patience: half-steps from which on a chain is stopped where it comes back.

    Returns:
        How many each has made in the end, (chains,).
    """
    layers = [l for side in sides for l in side]
    if not choice.search(machine, layers):
        return None
    kinds = [machine.layers[l] for l in layers]
    widths = [kind.width for kind in kinds]
    units = {l: (end - width, end) for l, width, end in zip(layers, widths, accumulate(widths), strict=True)}
    parts: list[tuple[int, ...]] = []
    ways: list[tuple[int, int]] = []
    couplings = []
    for l in layers:
        first_way = len(ways)
        for edge, neighbour, above in machine.graph.joints[l]:
            if neighbour in units:
                ways.append(units[neighbour])
                J = machine.J.matrix(edge).contiguous() if above else machine.J.transposed[edge]
                couplings.append(J.detach().numpy())
        parts.append((*units[l], l in sides[1], first_way, len(ways)))
        if l not in fields:
            fields[l] = machine.field(l, states)
    bias, _, low = calls.units_of([machine.thetas[l][0] for l in layers], [kind.two_values for kind in kinds])
    x, B = (torch.cat([tensors[l] for l in layers], -1) for tensors in (states, fields))
    halves = torch.empty(len(x), dtype=torch.int64, device="cpu")
    graph = np.array(parts), np.array(ways), tuple(couplings)
    beta = bias.dtype.type(machine.beta)
    calls.over("per_row.climb", len(x), half, patience, *graph, beta, bias, low, x, B, halves)
    for l, mode, field in zip(layers, torch.split(x, widths, -1), torch.split(B, widths, -1), strict=True):
        states[l], fields[l] = mode, field
    return halves


def count_alike(codes: NDArray[np.uint8], least: int) -> NDArray[np.int64] | None:
    """Counts the rows that agree with each, itself among them, in at least ``least`` columns: (rows,)."""
    if not choice.COMPILED:
        return None
    counts = np.zeros((min(_SHARES, len(codes)), len(codes)), np.int64)
    calls.over("similarity.count_alike", len(counts), codes, least, counts)
    alike: NDArray[np.int64] = 1 + counts.sum(0)
    return alike


def join_alike(codes: NDArray[np.uint8], least: int) -> NDArray[np.int64] | None:
    """Returns the smallest row that is joined to each, (rows,), by rows that agree in ``least`` columns."""
    if not choice.COMPILED:
        return None
    group = np.empty(len(codes), np.int64)
    import_module("harmonium.backends.similarity").join_alike(codes, least, group)  # needs numba
    return group
