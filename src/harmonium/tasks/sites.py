"""Contacts of a family of sequences, and the effect of mutations, by a machine that has learned it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from harmonium import _checks
from harmonium.couplings import Dense
from harmonium.layers import Categorical
from harmonium.machine import BoltzmannMachine
from harmonium.sums import log_weights
from harmonium.tables import Codec
from harmonium.tasks.interactions import effective_couplings

APART = 5
"""Distance along the chain from which on contacts tell of the fold: |i - j| > 4 (Morcos et al. 2011)."""
TOUCHING = 8.0
"""Distance in Å below which two residues touch, the usual bound (Morcos et al. 2011)."""
GAUGES = ("zero-sum", "lattice-gas")
"""Gauges of ``potts_machine``."""


class Pairs(NamedTuple):
    """Pairs of sites, the strongest first.

    Attributes:
        sites: (pairs, 2) int64, from 0, the smaller one first.
        scores: (pairs,).
    """

    sites: Tensor
    scores: Tensor


@torch.no_grad()
def contacts(
    machine: BoltzmannMachine,
    *,
    gap: int | Literal["auto"] | None = "auto",
    correct: bool = True,
) -> Tensor:
    """Returns how strongly every two sites are coupled: close ones in a fold are.

    The Frobenius norm of the block of couplings of two sites in the zero-sum gauge, without the gap, less
    what sites that are strong with all others would have (average-product correction; Dunn et al. 2008,
    Ekeberg et al. 2013). Couplings are the machine's own, and those through its hidden units
    (``effective_couplings``).

    Args:
        machine: one layer of categorical visible units, with or without hidden ones.
        gap: the state that is left out of the norm; None: none. "auto": that of "-" among the letters that
            the machine has learned, and of machines without letters the first one.
        correct: whether to apply the correction.

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
    sites, states = _require_sites(machine, label=True)
    if gap == "auto":
        letters = Codec.of(machine).alphabet
        gap_index = 0 if letters is None else letters.find("-")
        gap = None if gap_index < 0 else gap_index
    if gap is not None and not 0 <= _checks.positive_int(gap, "gap", minimum=0) < states:
        raise ValueError(f"gap: expected a state from 0 to {states - 1}, or None, received {gap}")
    width = sites * states  # a label stands behind the sites
    pairs = effective_couplings(machine).pairs[:width, :width]
    pairs = pairs.view(sites, states, sites, states)
    letters_only = [a for a in range(states) if a != gap]
    score = pairs[:, letters_only][..., letters_only].square().sum((1, 3)).sqrt()
    if not correct or sites < 3:
        return score
    # Means over the pairs that there are: the diagonal is none.
    mean = score.sum(1) / (sites - 1)
    score = score - torch.outer(mean, mean) / mean.mean().clamp(min=torch.finfo(score.dtype).tiny)
    score.fill_diagonal_(0.0)
    return score


def rank_pairs(scores: Tensor, *, apart: int = APART) -> Pairs:
    """Lists pairs of sites by their scores, the strongest first.

    Args:
        scores: (sites, sites), symmetric, such as ``contacts`` returns.
        apart: Smallest |i - j| of a pair; nearer ones are close in the chain anyway.

    Raises:
        ValueError: another shape, or no pair that far apart.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> scores = torch.tensor([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]])
        >>> hm.tasks.rank_pairs(scores, apart=1).sites.tolist()
        [[0, 2], [1, 2], [0, 1]]
    """
    if scores.dim() != 2 or scores.shape[0] != scores.shape[1]:
        raise ValueError(f"scores: expected (sites, sites), received shape {tuple(scores.shape)}")
    apart = _checks.positive_int(apart, "apart")
    if apart >= len(scores):
        raise ValueError(f"apart: expected less than the {len(scores)} sites, received {apart}")
    i, j = torch.triu_indices(len(scores), len(scores), apart, device=scores.device)
    order = scores[i, j].argsort(descending=True, stable=True)
    return Pairs(torch.stack([i, j], 1)[order], scores[i, j][order])


def contact_precision(
    scores: Tensor, distances: Tensor, *, apart: int = APART, touching: float = TOUCHING
) -> Tensor:
    """Returns the share of true contacts among the n strongest pairs, for n = 1, 2, …

    Args:
        scores: (sites, sites), such as ``contacts`` returns.
        distances: (sites, sites), symmetric, in Å; NaN where a structure shows none: such pairs are passed
            over.
        apart: Smallest |i - j| of a pair.
        touching: Distance below which two sites touch.

    Returns:
        (pairs,) float64: entry n - 1 is of the n strongest ones.

    Raises:
        ValueError: shapes that do not fit, or no pair of a known distance.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> scores = torch.tensor([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]])
        >>> distances = torch.tensor([[0.0, 3.0, 6.0], [3.0, 0.0, 9.0], [6.0, 9.0, 0.0]])
        >>> hm.tasks.contact_precision(scores, distances, apart=1)
        tensor([1.0000, 0.5000, 0.6667], dtype=torch.float64)
    """
    if distances.shape != scores.shape:
        raise ValueError(
            f"distances: expected {tuple(scores.shape)} as the scores, received {tuple(distances.shape)}"
        )
    touching = _checks.real(touching, "touching", low=0.0)
    i, j = rank_pairs(scores, apart=apart).sites.t()
    ranked = distances.to(scores.device)[i, j]
    ranked = ranked[~ranked.isnan()]
    if not len(ranked):
        raise ValueError("distances: expected that of some pair, received NaN for all")
    return (ranked < touching).double().cumsum(0) / torch.arange(1, len(ranked) + 1, device=ranked.device)


@torch.no_grad()
def potts_machine(machine: BoltzmannMachine, gauge: str = "zero-sum") -> BoltzmannMachine:
    """Returns the machine of fields and couplings of pairs alone that is nearest to a machine of sequences.

    Of a machine without hidden units it is the same machine in another gauge; of others it has the couplings
    that act through hidden units, without triples and more (``effective_couplings``).

    Args:
        machine: one layer of categorical visible units, with or without hidden ones.
        gauge: "zero-sum": couplings sum to zero over the states of either site; "lattice-gas": those of the
            gap are zero, or of the first state where there is no gap.

    Returns:
        A float64 machine without hidden units, with the metadata of the other one.

    Raises:
        ValueError: other visible units, or another gauge.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Categorical(6, 5), hm.Bernoulli(3)], seed=0)
        >>> hm.tasks.potts_machine(machine).edges
        ((0, 0),)
    """
    sites, states = _require_sites(machine)
    _checks.one_of(gauge, "gauge", GAUGES)
    couplings = effective_couplings(machine)
    h, J = couplings.fields.view(sites, states), couplings.pairs.view(sites, states, sites, states)
    if gauge == "lattice-gas":
        letters = Codec.of(machine).alphabet
        g = 0 if letters is None else max(0, letters.find("-"))
        h = h - h[:, g : g + 1] + (J[..., g] - J[:, g : g + 1, :, g]).sum(-1)
        J = J - J[:, g : g + 1] - J[..., g : g + 1] + J[:, g : g + 1, :, g : g + 1]
    potts = BoltzmannMachine([Categorical(sites, states)], {(0, 0): Dense()}, [0], seed=None).double()
    potts.layers[0].set_finite_(bias=h)
    # Either half has rounding errors of its own, and a pair has one value.
    potts.couplings[0].fill_(J.reshape(sites * states, -1).triu(1))
    potts.metadata = {
        name: machine.metadata[name] for name in ("encoder", "data") if name in machine.metadata
    }
    return potts


@torch.no_grad()
def mutations(machine: BoltzmannMachine, sequence: Any) -> Tensor:
    """Returns ln p(mutant) - ln p(sequence) of every single mutation.

    No ln Z is needed, as it cancels. Where a value is negative, the mutant is less likely in the family. A
    label that the machine has learned too is summed over.

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
    sites, states = _require_sites(machine, label=True)
    codes = torch.as_tensor(sequence, device=machine.device)
    if tuple(codes.shape) != (sites,) or bool((codes != codes.round()).any()):
        raise ValueError(f"sequence: expected ({sites},) whole numbers, received shape {tuple(codes.shape)}")
    if not bool(((codes >= 0) & (codes < states)).all()):
        raise ValueError(f"sequence: expected states 0 to {states - 1}, received {codes.tolist()}")
    hamiltonian, layer = machine.hamiltonian().to(torch.float64), machine.layers[0]
    mutants = codes.long().repeat(sites * states + 1, 1)
    index = torch.arange(sites * states, device=machine.device)
    mutants[index, index // states] = index % states
    rows = layer.from_digits(mutants).to(torch.float64)
    rows = nn.functional.pad(rows, (0, machine.visible_width - rows.shape[1]), value=torch.nan)  # the label
    scores = log_weights(hamiltonian, rows)
    return (scores[:-1] - scores[-1]).view(sites, states)


def _require_sites(machine: BoltzmannMachine, label: bool = False) -> tuple[int, int]:
    """Returns the numbers of sites and of their states; ValueError: the visible units are no sites.

    Args:
        machine: Machine whose first layer are the sites.
        label: whether a second visible layer may be a label.
    """
    layer, labelled = machine.layers[0], Codec.of(machine).label is not None
    if machine.visible != ((0, 1) if label and labelled else (0,)) or not layer.one_hot:
        visible = ", ".join(str(machine.layers[l]) for l in machine.visible)
        raise ValueError(
            "machine: expected one of sequences, whose visible units are one categorical layer of sites, "
            f"received {visible}; effective_couplings has the couplings of any discrete units"
        )
    return layer.n_units, layer.columns_per_unit
