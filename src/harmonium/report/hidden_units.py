"""Hidden units: their receptive fields in the data, and their means given rows."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.chains import Gibbs, run
from harmonium.machine import BoltzmannMachine
from harmonium.sums import couplings_of_columns

SETTLING = 50  # sweeps of hidden layers that are joined to each other, given the data


def receptive_fields(machine: BoltzmannMachine) -> dict[int, Tensor]:
    """Returns the receptive fields: couplings, or their products on the shortest paths through layers.

    Returns:
        For each hidden layer (units, visible_width); of a machine without hidden layers the couplings of its
        visible ones.
    """
    hamiltonian = machine.hamiltonian()
    if not machine.hidden:
        return {l: x.T for l, x in machine.split(couplings_of_columns(hamiltonian)[0]).items()}
    eye = torch.eye(machine.visible_width, dtype=machine.dtype, device=machine.device)
    reached = {l: x.T for l, x in machine.split(eye).items()}  # (units, visible_width)
    frontier = set(reached)
    while frontier:
        following: dict[int, Tensor] = {}
        for l, m, J in hamiltonian.edges:
            for near, far, W in ((l, m, J.T), (m, l, J)):
                if near in frontier and far not in reached:
                    following[far] = following.get(far, 0) + W @ reached[near]
        reached |= following
        frontier = set(following)
    return {l: reached[l] for l in machine.hidden}


def field_norms(fields: Tensor, p: float = 0.1) -> Tensor:
    """Returns the ℓ_p norm of every receptive field, (Σ|W_i|^p)^(1/p), by which fields are ranked.

    For small p it measures how many units a field is spread over (Tramel et al. 2018, Fig. 4, with p = 0.1).
    Its 1/p-th power is taken in float64, where 784 entries of size 1 have a norm of 8.8e28.

    Args:
        fields: Fields, (units, width), such as ``machine.couplings[0].weight.T``.
        p: Exponent above 0; or 0, which counts the entries that are not 0.

    Returns:
        (units,), in float64.

    Raises:
        ValueError: a negative p, or fields of another shape.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> fields = torch.tensor([[4.0, 0.0], [1.0, 1.0]])
        >>> hm.report.field_norms(fields, 0), hm.report.field_norms(fields, 0.5)
        (tensor([1., 2.], dtype=torch.float64), tensor([4., 4.], dtype=torch.float64))
    """
    p = _checks.real(p, "p", 0.0)
    if fields.dim() != 2:
        raise ValueError(f"fields: expected (units, width), received {tuple(fields.shape)}")
    norms: Tensor = torch.linalg.vector_norm(fields.detach().double(), p, dim=1)
    return norms


def hidden_means(machine: BoltzmannMachine, rows: Tensor, generator: torch.Generator) -> dict[int, Tensor]:
    """Returns the mean of every hidden unit given each row, by layer (rows, width_l).

    Exact where no hidden layers are joined. Elsewhere the means are given a draw of the other hidden layers,
    after 50 sweeps with the row clamped.

    Args:
        machine: the machine.
        rows: complete rows, (rows, visible_width).
        generator: source of noise.
    """
    start = machine.random_states(len(rows), seed=generator)
    states = run(machine, Gibbs(), start, 1 if machine.graph.independent else SETTLING, rows, seed=generator)
    hamiltonian = machine.hamiltonian()
    return {l: hamiltonian.mean(l, hamiltonian.field(l, states)) for l in machine.hidden}
