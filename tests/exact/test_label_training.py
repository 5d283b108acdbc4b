"""Tables with labels begin at a logistic regression, and held-out rows tell how far to leave it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import harmonium as hm
from harmonium.tables import train_table
from harmonium.tables.label_start import regression_start
from harmonium.tasks import log_probabilities
from harmonium.training import Objective

torch.set_num_threads(1)
ROWS = 240
RANDOM = np.random.default_rng(0)


def drawn(classes: int) -> tuple[hm.BoltzmannMachine, torch.Tensor, np.ndarray]:
    """A machine, complete rows of two real columns, a category and a bit, and labels linear in them."""
    x = RANDOM.normal(size=(ROWS, 2))
    letter, bit = RANDOM.integers(0, 3, ROWS), RANDOM.integers(0, 2, ROWS)
    scores = np.outer(x[:, 0] + letter - bit, np.arange(classes)) - 0.5 * np.arange(classes) ** 2
    y = (scores + RANDOM.gumbel(size=scores.shape)).argmax(1)
    parts = [x, np.eye(3)[letter], bit[:, None], np.eye(classes)[y]]
    visible = [hm.Gaussian(2), hm.Categorical(1, 3), hm.Bernoulli(1), hm.Categorical(1, classes)]
    machine = hm.machine.join_layers(visible, [hm.Bernoulli(6)]).double()
    return machine, torch.from_numpy(np.hstack(parts)), y


def told(machine: hm.BoltzmannMachine, v: torch.Tensor) -> np.ndarray:
    return log_probabilities(machine, v, machine.visible[-1], 0)[0][:, 0].exp().numpy()


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_the_start_tells_labels_as_the_regression_does(classes: int) -> None:
    machine, v, y = drawn(classes)
    begun = regression_start(machine, v, None, 0)
    x = v[:, :6].numpy() - v[:, :6].numpy().mean(0)
    x[:, :2] /= x[:, :2].std(0, ddof=1)
    expected = LogisticRegression(max_iter=1000).fit(x, y).predict_proba(x)
    off = np.abs(told(begun, v) - expected)
    assert off.mean() < 0.04 and off.max() < 0.15  # the other units are small and curved
    alone = np.bincount(y) / ROWS
    assert np.abs(expected - alone).max() > 0.4  # there is something to tell


def test_a_start_of_too_few_hidden_units_or_rows_is_small() -> None:
    machine, v, _ = drawn(6)
    few = hm.machine.join_layers([machine.layers[l] for l in machine.visible], [hm.Bernoulli(5)]).double()
    for begun in (regression_start(few, v, None, 0), regression_start(machine, v[:3], None, 0)):
        assert max(float(coupling.weight.detach().abs().max()) for coupling in begun.couplings) < 2
        np.testing.assert_allclose(told(begun, v[:9]).sum(1), 1)


@pytest.mark.nightly
def test_held_out_rows_leave_the_regression_for_what_it_cannot_tell() -> None:
    machine, v, _ = drawn(2)
    far = (v[:, 0] * v[:, 1] > 0).double()  # of which a line tells nothing
    v[:, 6:] = torch.stack([1 - far, far], 1)
    may_hold_out = torch.ones(ROWS, dtype=torch.bool)
    done = train_table(machine, v, objective=Objective([0, 1, 2], 0.03), may_hold_out=may_hold_out)
    scores = [record["validation_score"] for record in done.history if "validation_score" in record]
    assert scores[-1] == max(scores)
    p = told(done.machine, v)[np.arange(ROWS), far.numpy().astype(int)]
    assert np.log(p).mean() > -0.55 and scores[0] < -0.65, scores


@pytest.mark.nightly
def test_labels_that_nothing_tells_are_told_by_their_share() -> None:
    machine, v, _ = drawn(2)
    y = RANDOM.random(ROWS) < 0.3
    v[:, 6:] = torch.from_numpy(np.stack([~y, y], 1) * 1.0)
    v[:40, :2] = torch.nan
    may_hold_out = torch.arange(ROWS) >= 20
    done = train_table(
        machine,
        v,
        torch.linspace(0.5, 1.5, ROWS),
        objective=Objective([0, 1, 2], 0.03),
        may_hold_out=may_hold_out,
    )
    assert np.abs(told(done.machine, v)[:, 1] - 0.3).mean() < 0.15
