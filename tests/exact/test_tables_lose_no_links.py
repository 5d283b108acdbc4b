"""Training of tables without chains keeps what it has found, and learns from all rows at the end."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium.tables import table_training, train_table


def pairs(equal: int, unequal: int) -> Tensor:
    """Rows of two 0/1 columns, half of them with each state of the first."""
    first = torch.arange(equal + unequal) % 2
    second = torch.where(torch.arange(equal + unequal) < equal, first, 1 - first)
    return torch.stack([first, second], 1).double()


def learned(rows: Tensor, may_hold_out: Tensor | None = None) -> float:
    """P(the columns are equal) in the machine that is learned."""
    machine = hm.machine.join_layers([hm.Bernoulli(2)], [hm.Bernoulli(4)]).double()
    made = train_table(machine, rows, None, seed=1, may_hold_out=may_hold_out).machine
    return float(hm.likelihood.exact_log_likelihood(made, pairs(2, 0)).exp().sum())


def test_all_rows_are_learned_where_those_held_out_deny_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows held out that deny a link of many others are no reason to learn nothing at all."""
    rows, may_hold_out = torch.cat([pairs(60, 0), pairs(0, 14)]), torch.arange(74) >= 60
    found = learned(rows, may_hold_out)
    monkeypatch.setattr(table_training, "_ROWS", table_training._ROWS._replace(last_rate=0.0))
    assert found - 0.5 > 3 * abs(learned(rows, may_hold_out) - 0.5)


def test_links_of_states_have_a_wide_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = learned(pairs(100, 0))
    monkeypatch.setattr(table_training, "_STATES_DECAY", 1.0)
    assert learned(pairs(100, 0)) < wide - 0.01
