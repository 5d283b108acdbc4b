"""Empty sums, and sweeps over units that few couplings join, against dense ones."""

from __future__ import annotations

import pytest
import torch
from exact.graphs import _lattice, make

import harmonium as hm
from harmonium.backends import OuterProductSum, PreparedMatrix, SparsityPattern
from harmonium.chains import KernelState
from harmonium.machine import Statistics, coupling_matrices


def test_sums_over_no_rows_are_zero() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=0)
    assert torch.equal(Statistics(machine.hamiltonian()).products[0], torch.zeros(3, 2))


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_sum_at_some_places_takes_those_of_a_matrix(symmetric: bool) -> None:
    pattern = SparsityPattern(torch.tensor([[0, 1], [0, 3], [2, 3]]), (4, 4), (1, 1), symmetric)
    matrix, sums = torch.arange(16.0).view(4, 4), OuterProductSum(torch.zeros(3), pattern)
    sums.grow(matrix)
    sums.grow(torch.ones(3))
    both = matrix + matrix.t() if symmetric else matrix
    assert sums.total.tolist() == [float(both[i, j]) + 1 for i, j in pattern.pairs.tolist()]


@pytest.mark.parametrize("kind", [hm.Bernoulli, hm.Spin, lambda n: hm.Categorical(n, 3)])
def test_fields_of_parts_are_columns_of_the_field(kind) -> None:
    machine = hm.BoltzmannMachine([kind(48)], {(0, 0): hm.Masked(_lattice(6, 8))}).double()
    generator = torch.Generator().manual_seed(1)
    weight = machine.couplings[0].weight
    W = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    machine.couplings[0].fill_(machine.couplings[0].within(W))
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
        moved = hm.chains.Gibbs().step(hamiltonian, KernelState(states, 0), generator)[0].states
    assert torch.equal(states[0], before[0])
    assert moved[0].is_contiguous() and not torch.equal(moved[0], before[0])


def test_distributions_that_share_couplings_share_what_is_made_of_them(monkeypatch):
    """Other temperatures, rows or held entries of a machine make no factor anew."""
    machine = make("semi-restricted and sparse").float()
    made = []
    monkeypatch.setattr(
        coupling_matrices, "PreparedMatrix", lambda *y, **how: made.append(y) or PreparedMatrix(*y, **how)
    )
    hamiltonian = machine.hamiltonian()
    generator = torch.Generator().manual_seed(0)
    states = machine.random_states(4, seed=generator)
    with torch.no_grad():
        hm.chains.Gibbs().step(hamiltonian, KernelState(states, 0), generator)
        first = len(made)
        clamp = {1: torch.full((4, 4), torch.nan).index_fill(1, torch.tensor([0]), 1.0)}
        for other in (
            hamiltonian.tempered(0.5),
            hamiltonian.clamp(clamp, 4),
            hamiltonian.clamp(clamp, 4).select_rows(slice(0, 4)),
        ):
            hm.chains.Gibbs().step(other, KernelState(states, 0), generator)
            assert other.J.transposed is hamiltonian.J.transposed
        assert first > 0 and len(made) == first
        double = KernelState([x.double() for x in states], 0)
        hm.chains.Gibbs().step(hamiltonian.to(torch.float64), double, generator)
    assert len(made) > first
