"""Machines as programs of torch, which run where harmonium is not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from harmonium.machine import BoltzmannMachine


def to_program(machine: BoltzmannMachine) -> Any:
    """Returns a program of ``torch.export`` that maps visible states to hidden means and free energies.

    ``torch.export.save`` writes it, and ``torch.export.load(path).module()`` runs it, on any number of rows.
    It does not check them: they have to be complete, in the support of the visible units, and of the
    machine's dtype. Where ``onnx`` and ``onnxscript`` are installed, ``torch.onnx.export`` takes it too, with
    Bernoulli, Spin, Categorical and Gaussian units.

    Args:
        machine: Machine whose hidden layers are not joined to each other and have no inner edges, such as an
            RBM; or without hidden layers.

    Returns:
        A ``torch.export.ExportedProgram``: (rows, visible_width) to E[h | v], (rows, hidden width), the
        hidden layers side by side, and F(v) = -ln Σ_h exp(-E(v, h)), (rows,) float64.

    Raises:
        ValueError: hidden layers that cannot be summed out, or truncated hidden units, which ``torch.export``
            does not take.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=0)
        >>> means, energies = hm.exchange.to_program(machine).module()(machine.random_states(5, seed=0)[0])
        >>> means.shape, energies.shape
        (torch.Size([5, 2]), torch.Size([5]))
    """
    hidden = machine.graph.read_summed(machine.hidden)
    rows = machine.hamiltonian().visible_states(machine.random_states(2, seed=0))
    served, free = _Served(machine, hidden), ({0: torch.export.Dim("rows")},)
    try:
        with torch.no_grad():
            return torch.export.export(served, (rows,), dynamic_shapes=free, strict=False)
    except torch._dynamo.exc.UserError as error:  # of units that are integrated in blocks of rows
        kinds = ", ".join(str(machine.layers[l]) for l in hidden)
        raise ValueError(
            "machine: expected hidden units that torch.export takes with any number of rows, such as "
            f"Bernoulli, Spin, Categorical, Gaussian or ReLU, received {kinds}"
        ) from error


class _Served(nn.Module):
    """The computation that is exported."""

    def __init__(self, machine: BoltzmannMachine, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.machine, self._hidden = machine, hidden

    def forward(self, v: Tensor) -> tuple[Tensor, Tensor]:
        # By torch's own products: those of ``backends`` choose their way by the number of rows.
        hamiltonian, hidden = self.machine.hamiltonian(checked=False), self._hidden
        states = hamiltonian.split(v)
        fields, weights = (
            dict[int, Tensor](),
            [hamiltonian.log_weight(l, states[l]) for l in self.machine.visible],
        )
        for l, m, J in hamiltonian.edges:
            if m in hidden or l in hidden:
                below, above, J = (l, m, J) if m in hidden else (m, l, J.t())
                part = states[below] @ J
                fields[above] = fields[above] + part if above in fields else part
            else:  # of an inner edge every pair stands in J twice
                weights.append(((states[l] @ J) * states[m]).sum(-1) / (2 if l == m else 1))
        weights += [hamiltonian.log_partition(l, field) for l, field in fields.items()]
        means = [hamiltonian.mean(l, fields[l]) for l in hidden]
        F = -torch.stack([weight.double() for weight in weights]).sum(0) + hamiltonian.offset
        return torch.cat(means, -1) if means else v.new_zeros(v.shape[0], 0), F
