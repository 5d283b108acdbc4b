"""Products that leave out zeros, and sweeps over units that few couplings join, against dense ones."""

from __future__ import annotations

import pytest
import torch

import harmonium as hm
from harmonium._products import times

from .graphs import _lattice


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.5, 1.0])
def test_products_with_a_known_matrix(share: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(60, 25, generator=generator, dtype=dtype)
    y[torch.rand(60, 25, generator=generator) >= share] = 0
    x = torch.randn(13, 60, generator=generator, dtype=dtype)
    actual = times(y)(x)
    assert actual.is_contiguous()
    torch.testing.assert_close(actual, x @ y)


@pytest.mark.parametrize("kind", [hm.Bernoulli, hm.Spin, lambda n: hm.Categorical(n, 3)])
def test_fields_of_parts_are_columns_of_the_field(kind) -> None:
    machine = hm.BoltzmannMachine([kind(48)], {(0, 0): hm.Masked(_lattice(6, 8))}).double()
    generator = torch.Generator().manual_seed(1)
    weight = machine.couplings[0].weight
    machine.couplings[0].fill_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    hamiltonian = machine.hamiltonian()
    states = machine.random_states(20, seed=generator)
    with torch.no_grad():
        whole = hamiltonian.field(0, states)
        parts = [part for colour in hamiltonian.graph.colours for part in colour]
        assert len(parts) == 2
        for part in parts:
            torch.testing.assert_close(hamiltonian.field(part, states), whole[:, part.columns])


def test_a_sweep_leaves_the_states_that_it_was_given_alone() -> None:
    machine = hm.BoltzmannMachine([hm.Spin(48)], {(0, 0): hm.Masked(_lattice(6, 8))})
    hamiltonian, generator = machine.hamiltonian(), torch.Generator().manual_seed(0)
    states = machine.random_states(20, seed=generator)
    before = [x.clone() for x in states]
    with torch.no_grad():
        moved = hm.chains.Gibbs().sweep(hamiltonian, states, generator).states
    assert torch.equal(states[0], before[0])
    assert moved[0].is_contiguous() and not torch.equal(moved[0], before[0])
