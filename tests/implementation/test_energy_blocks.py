"""Energies of more rows than are summed at once, against numpy, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import harmonium as hm


@pytest.mark.parametrize("coupling", [hm.Dense(), hm.Sparse([(i, i + 1) for i in range(99)])], ids=str)
def test_energies_of_many_rows(coupling: hm.Coupling) -> None:
    """3,000 rows of 100 units are more than 2^18 numbers."""
    machine = hm.BoltzmannMachine([hm.Spin(100)], edges={(0, 0): coupling}, seed=0).double()
    W = torch.randn(100, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    apart = (torch.arange(100)[:, None] - torch.arange(100)).abs()
    joined = apart > 0 if isinstance(coupling, hm.Dense) else apart == 1
    machine.couplings[0].fill_((W + W.T) * joined)
    states = machine.random_states(3000, seed=1)[0]
    J = machine.couplings[0].matrix().detach().numpy()
    expected = -0.5 * np.einsum("ri,ij,rj->r", states.numpy(), J, states.numpy())
    energy = machine.energy([states])
    np.testing.assert_allclose(energy.detach().numpy(), expected, atol=1e-9)
    energy.sum().backward()
    weight = next(iter(machine.couplings[0].parameters()))
    few = hm.BoltzmannMachine.energy(machine, [states[:100]])
    np.testing.assert_allclose(few.detach().numpy(), expected[:100], atol=1e-9)
    assert weight.grad is not None and bool(weight.grad.isfinite().all())
