"""Exact answers by enumeration of all layers but those that can be summed out."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, prod

import torch
from torch import Tensor

from harmonium.machine import BoltzmannMachine, Hamiltonian, States, Statistics

MAX_LOG2_STATES = 26
_BLOCK_ELEMENTS = 1 << 21  # float64 numbers in the largest array of a block: 16 MiB


@torch.no_grad()
def exact_log_partition(machine: BoltzmannMachine) -> float:
    """ln Z in float64: layers that no edge joins are summed out with ψ, the states of the others enumerated.

    Args:
        machine: the layers that are left to enumerate must be discrete, with at most 2^26 joint states; what
            is summed out is chosen so that they are fewest (in a chain the even or the odd layers).

    Returns:
        ln Z of exp(-E), with E as in ``BoltzmannMachine.energy``.

    Raises:
        ValueError: too many states, or real units that cannot be summed out.
    """
    hamiltonian = machine.hamiltonian().to(torch.float64)
    return float(_log_normalisers(hamiltonian, None)[0])


@torch.no_grad()
def exact_log_likelihood(machine: BoltzmannMachine, X: Tensor) -> Tensor:
    """ln p(v) of every row by enumeration, at any depth: (batch,), float64.

    Args:
        machine: see ``exact_log_partition``.
        X: visible states, (batch, visible_width).
    """
    machine.check_rows(X, "X")
    hamiltonian = machine.hamiltonian().to(torch.float64)
    return _log_normalisers(hamiltonian, X.to(machine.device, torch.float64)) - _log_normalisers(
        hamiltonian, None
    )


@torch.no_grad()
def add_exact_expectation(
    hamiltonian: Hamiltonian, into: Statistics, weight: float | Tensor, v: Tensor | None = None
) -> None:
    """Adds weight · E[S], or with v the sum over its rows of weight · E[S | v_row], by enumeration.

    Args:
        hamiltonian: the machine, in float64 for exact answers.
        into: where to add.
        weight: the weight of every row, a number or (rows,).
        v: visible states (rows, visible_width) to clamp, or None for the free machine.
    """
    rows = 1 if v is None else len(v)
    normalisers = _log_normalisers(hamiltonian, v)
    enumerated, summed = _split(hamiltonian, clamped=v is not None)
    for states in _blocks(hamiltonian, enumerated, v):
        log_weights = -hamiltonian.free_energy(states, summed).view(rows, -1)
        probability = (log_weights - normalisers.unsqueeze(-1)).exp()
        probability *= weight.unsqueeze(-1) if isinstance(weight, Tensor) else weight
        into.add(hamiltonian, states, probability.flatten(), summed=summed)


def _log_normalisers(hamiltonian: Hamiltonian, v: Tensor | None) -> Tensor:
    rows = 1 if v is None else len(v)
    enumerated, summed = _split(hamiltonian, clamped=v is not None)
    total = torch.full((rows,), -inf, dtype=torch.float64, device=hamiltonian.device)
    for states in _blocks(hamiltonian, enumerated, v):
        log_weights = -hamiltonian.free_energy(states, summed).view(rows, -1)
        total = torch.logaddexp(total, log_weights.logsumexp(-1))
    return total


def _split(hamiltonian: Hamiltonian, *, clamped: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The layers to enumerate and the layers to sum out, none of them visible if these are clamped."""
    graph = hamiltonian.graph
    free = graph.hidden if clamped else tuple(range(graph.size))
    best: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    fewest = inf
    for summed in sorted(graph.independent_sets(free)) or [()]:
        enumerated = tuple(l for l in free if l not in summed)
        size = sum(hamiltonian.layers[l].log2_states for l in enumerated)
        if size < fewest:
            best, fewest = (enumerated, summed), size
    if fewest > MAX_LOG2_STATES:
        raise ValueError(
            "machine: expected layers that can be summed out beside discrete ones with at most "
            f"2^{MAX_LOG2_STATES} joint states, received at least 2^{fewest:.4g} "
            "states (2^inf: real units); use harmonium.likelihood.ais"
        )
    return best


def _blocks(hamiltonian: Hamiltonian, enumerated: tuple[int, ...], v: Tensor | None) -> Iterator[States]:
    """All states of the enumerated layers beside every row of v, row-major; summed layers empty."""
    layers = hamiltonian.layers
    radices = [n for l in enumerated for n in [layers[l].n_states or 0] * layers[l].n_units]
    count = prod(radices)
    rows = 1 if v is None else len(v)
    widest = max(layer.width for layer in layers)
    size = max(1, _BLOCK_ELEMENTS // (widest * rows))
    radix = torch.tensor(radices, dtype=torch.int64, device=hamiltonian.device)
    stride = radix.flip(0).cumprod(0).flip(0).div(radix, rounding_mode="floor") if radices else radix
    empty = torch.empty(0, dtype=hamiltonian.dtype, device=hamiltonian.device)
    for start in range(0, count, size):
        index = torch.arange(start, min(start + size, count), device=hamiltonian.device)
        digits = index.unsqueeze(-1).div(stride, rounding_mode="floor").remainder_(radix)
        states = [empty] * len(layers)
        first = 0
        for l in enumerated:
            own = digits[:, first : first + layers[l].n_units]
            states[l] = layers[l].from_digits(own).to(hamiltonian.dtype).repeat(rows, 1)
            first += layers[l].n_units
        if v is not None:
            seen = hamiltonian.split(v.to(hamiltonian.dtype))
            for l in hamiltonian.graph.visible:
                states[l] = seen[l].repeat_interleave(len(index), 0)
        yield states
