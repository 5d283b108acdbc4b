"""Contacts of a family of sequences, and the effect of mutations, by a machine that has learned it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.machine import BoltzmannMachine
from harmonium.sums import log_weights
from harmonium.tasks.interactions import effective_couplings


@torch.no_grad()
def contacts(
    machine: BoltzmannMachine, *, gap: int | None = 0, correct: bool = True, method: str = "auto"
) -> Tensor:
    """Returns how strongly every two sites are coupled: close ones in a fold are.

    The Frobenius norm of the block of couplings of two sites in the zero-sum gauge, without the gap, less
    what sites that are strong with all others would have (average-product correction; Dunn et al. 2008,
    Ekeberg et al. 2013). Couplings are the machine's own, and those through its hidden units
    (``effective_couplings``).

    Args:
        machine: one layer of categorical visible units, with or without hidden ones.
        gap: the state that is left out of the norm; None: none.
        correct: whether to apply the correction.
        method: Method of ``effective_couplings``.

    Returns:
        (sites, sites), symmetric, zero on the diagonal, float64. Pairs near in the sequence, |i - j| ≤ 4, are
        close anyway and usually left out.

    Raises:
        ValueError: other visible units, or a state that they have not.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Categorical(6, 5)], {(0, 0): hm.Dense()}, [0], seed=0)
        >>> hm.tasks.contacts(machine).shape
        torch.Size([6, 6])
    """
    sites, states = _require_sites(machine)
    if gap is not None and not 0 <= _checks.positive_int(gap, "gap", minimum=0) < states:
        raise ValueError(f"gap: expected a state from 0 to {states - 1}, or None, received {gap}")
    pairs = effective_couplings(machine, method=method).pairs.view(sites, states, sites, states)
    kept = [a for a in range(states) if a != gap]
    score = pairs[:, kept][..., kept].square().sum((1, 3)).sqrt()
    if not correct or sites < 3:
        return score
    # Means over the pairs that there are: the diagonal is none.
    mean = score.sum(1) / (sites - 1)
    score = score - torch.outer(mean, mean) / mean.mean().clamp(min=torch.finfo(score.dtype).tiny)
    score.fill_diagonal_(0.0)
    return score


@torch.no_grad()
def mutations(machine: BoltzmannMachine, sequence: Any) -> Tensor:
    """Returns ln p(mutant) - ln p(sequence) of every single mutation.

    No ln Z is needed, as it cancels. Where a value is negative, the mutant is less likely in the family.

    Args:
        machine: one layer of categorical visible units, with or without hidden ones.
        sequence: its states, (sites,), whole numbers.

    Returns:
        (sites, states) float64, zero at the states of the sequence itself.

    Raises:
        ValueError: other visible units, or states that they have not.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Categorical(6, 5), hm.Bernoulli(3)], seed=0)
        >>> hm.tasks.mutations(machine, [0, 1, 2, 3, 4, 0]).shape
        torch.Size([6, 5])
    """
    sites, states = _require_sites(machine)
    codes = torch.as_tensor(sequence, device=machine.device)
    if tuple(codes.shape) != (sites,) or bool((codes != codes.round()).any()):
        raise ValueError(f"sequence: expected ({sites},) whole numbers, received shape {tuple(codes.shape)}")
    if not bool(((codes >= 0) & (codes < states)).all()):
        raise ValueError(f"sequence: expected states 0 to {states - 1}, received {codes.tolist()}")
    law, layer = machine.hamiltonian().to(torch.float64), machine.layers[0]
    mutants = codes.long().repeat(sites * states + 1, 1)
    place = torch.arange(sites * states, device=machine.device)
    mutants[place, place // states] = place % states
    rows = layer.from_digits(mutants).to(torch.float64)
    scores = log_weights(law, rows)
    return (scores[:-1] - scores[-1]).view(sites, states)


def _require_sites(machine: BoltzmannMachine) -> tuple[int, int]:
    """Returns the numbers of sites and of their states; ValueError: the visible units are no sites."""
    layer = machine.layers[0]
    if machine.visible != (0,) or not layer.one_hot:
        visible = ", ".join(str(machine.layers[l]) for l in machine.visible)
        raise ValueError(f"machine: expected one layer of categorical visible units, received {visible}")
    return layer.n_units, layer.columns_per_unit
