"""Training of tables without chains keeps what it has found, and learns from all rows at the end."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium.tables import fit_table, table_fit
from harmonium.tables.table_fit import change_roots


def pairs(equal: int, unequal: int) -> Tensor:
    """Rows of two 0/1 columns, half of them with each state of the first."""
    first = torch.arange(equal + unequal) % 2
    second = torch.where(torch.arange(equal + unequal) < equal, first, 1 - first)
    return torch.stack([first, second], 1).double()


def learned(rows: Tensor, may_hold_out: Tensor | None = None) -> float:
    """P(the columns are equal) in the machine that is learned."""
    machine = hm.machine.join_layers([hm.Bernoulli(2)], [hm.Bernoulli(4)]).double()
    made = fit_table(machine, rows, None, seed=1, may_hold_out=may_hold_out).machine
    return float(hm.likelihood.exact_log_likelihood(made, pairs(2, 0)).exp().sum())


def test_all_rows_are_learned_where_those_held_out_deny_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows held out that deny a link of many others are no reason to learn nothing at all."""
    rows, may_hold_out = torch.cat([pairs(60, 0), pairs(0, 14)]), torch.arange(74) >= 60
    found = learned(rows, may_hold_out)
    monkeypatch.setattr(table_fit, "_LAST_RATE", 0.0)
    assert found - 0.5 > 3 * abs(learned(rows, may_hold_out) - 0.5)


def test_links_of_states_have_a_wide_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = learned(pairs(100, 0))
    monkeypatch.setattr(table_fit, "_STATES_DECAY", 1.0)
    assert learned(pairs(100, 0)) < wide - 0.01


@torch.no_grad()
def test_another_root_leaves_a_hidden_unit_its_distribution() -> None:
    """By enumeration; what hidden units tell of x stays, too."""
    machine = hm.machine.join_layers([hm.Gaussian(3), hm.Categorical(1, 3)], [hm.Bernoulli(1)]).double()
    hm.machine.normal_(machine, 1.5, 3)
    generator = torch.Generator().manual_seed(4)
    before, after = (torch.eye(3).double() + torch.rand(3, 3, generator=generator).tril() for _ in range(2))

    def hamiltonian(made: hm.BoltzmannMachine, root: Tensor) -> tuple[Tensor, Tensor]:
        table = hm.likelihood.HiddenStates(hm.tables.fold(made, {0: root}).hamiltonian())
        nothing = table.posterior(table.nothing_seen(1))
        return nothing.probabilities[0], table.parts[0].means

    moved = change_roots(machine, {0: before}, {0: after})
    for one, other in zip(hamiltonian(machine, before), hamiltonian(moved, after), strict=True):
        torch.testing.assert_close(one, other)
    several = hm.machine.join_layers([hm.Gaussian(3)], [hm.Bernoulli(2)]).double()
    hm.machine.normal_(several, 0.3, 3)
    p, q = (
        hamiltonian(several, before)[0],
        hamiltonian(change_roots(several, {0: before}, {0: after}), after)[0],
    )
    assert float((p - q).abs().max()) < 0.1
