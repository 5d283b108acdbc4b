"""Estimators keep rows that they have learnt, on which an annealed ln Z is checked."""

from __future__ import annotations

import pickle
import warnings
from copy import deepcopy
from math import exp, log, log1p
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.data import bars_and_stripes
from harmonium.estimators import DBM, RBM, RBMClassifier, RBMOutlier
from harmonium.likelihood import evaluation

torch.set_num_threads(1)

RANDOM = np.random.default_rng(0)
BITS = np.repeat(bars_and_stripes(3), 6, 0).astype(np.float64)
LABEL = (BITS.reshape(-1, 3, 3).std(1).max(1) > 0).astype(int)
ALL = (RBM, DBM, RBMClassifier, RBMOutlier)
ANNEALED = {"log_partition": "ais", "ais_chains": 20, "ais_temperatures": 20, "random_state": 0}


def small(kind: type, **settings: Any) -> Any:
    sizes = (4, 3) if kind is DBM else 4
    return kind(sizes, **{"max_updates": 5, "learning_rate": 0.05, **ANNEALED, **settings})


# Two modes far apart: without rows of both annealing misses one
# --------------------------------------------------------------------------------

UNITS, COUPLING, SHARE = 200, 4.0, 0.9


def two_modes() -> tuple[hm.BoltzmannMachine, float]:
    """A machine of which a narrow mode, all units on, has most of the weight, and ln Z."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(UNITS), hm.Bernoulli(1)]).double()
    wide, narrow = UNITS * log(2), UNITS * log1p(exp(COUPLING))
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.zero_()
        machine.couplings[0].weight.fill_(COUPLING)
        machine.layers[1].bias.fill_(wide - narrow + log(SHARE / (1 - SHARE)))
    return machine, wide - log(1 - SHARE)


def draw_normal(rows: int) -> np.ndarray:
    narrow = RANDOM.random((rows, 1)) < SHARE
    on = 1 / (1 + np.exp(-COUPLING * narrow))
    return (RANDOM.random((rows, UNITS)) < on).astype(np.float64)


@pytest.mark.parametrize(("kind", "holes"), [(RBM, False), (RBM, True), (RBMOutlier, False), (DBM, False)])
@pytest.mark.mostly_nightly(1)
def test_rows_of_both_modes_bound_the_truth(kind: type, holes: bool) -> None:
    """Bounds of three standard errors each; a false one has a chance of some per mille (``LogPartition``)."""
    machine, truth = two_modes()
    assert hm.likelihood.exact_log_partition(machine) == pytest.approx(truth, abs=1e-9)
    settings: dict[str, Any] = {"log_partition": "ais", "ais_temperatures": 500, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        alone = hm.likelihood.ais(machine, 100, 500, seed=0)
        X = draw_normal(2000)
        if holes:
            X[RANDOM.random(X.shape) < 0.1] = np.nan
        found = kind.from_machine(machine, X, **settings).log_partition_
    assert alone.value < truth - 1  # by which every row would be too likely
    assert found.lower - 0.05 < truth < found.upper + 0.05
    assert found.value == pytest.approx(truth, abs=0.3)


# What is kept
# --------------------------------------------------------------------------------


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The rows that annealing is given."""
    seen: list[Any] = []
    ais = evaluation.ais

    def spy(*arguments: Any, data: Any = None, **settings: Any) -> Any:
        seen.append(data)
        return ais(*arguments, data=data, **settings)

    monkeypatch.setattr(evaluation, "ais", spy)
    return seen


@pytest.mark.parametrize("kind", ALL)
def test_annealing_is_given_training_rows(kind: type, handed: list[Any]) -> None:
    made = small(kind).fit(BITS, LABEL)
    assert np.isfinite(made.score_samples(BITS)).all()
    (rows,) = handed
    assert rows.shape == (len(BITS), made.machine_.visible_width)
    assert {tuple(row) for row in rows[:, :9].tolist()} == {tuple(row) for row in BITS.tolist()}
    if kind is not RBMClassifier:
        small(kind).partial_fit(BITS).score_samples(BITS)
    else:
        y = [None if i % 2 else label for i, label in enumerate(LABEL)]  # a missing label is drawn
        small(kind).fit(BITS, y).score_samples(BITS)
    assert len(handed[1]) == len(BITS) and bool(handed[1].isfinite().all())


def test_at_most_a_thousand_rows_are_kept_and_those_of_earlier_batches_too() -> None:
    X = (RANDOM.random((1500, 6)) < 0.5).astype(np.float64)
    X[:, 0] = 0
    made = small(RBM).partial_fit(X)
    assert made._fitted.rows.shape == (1000, 6)
    X[:, 0] = 1
    made.partial_fit(X)
    # Half of 2,000 without replacement: its deviation is below 0.012.
    assert len(made._fitted.rows) == 1000 and abs(float(made._fitted.rows[:, 0].mean()) - 0.5) < 0.06
    assert float(made.set_params(warm_start=True).fit(X)._fitted.rows[:, 0].min()) == 1
    assert torch.equal(small(RBM).fit(X)._fitted.rows, small(RBM).fit(X)._fitted.rows)


def test_rows_with_missing_cells_are_completed(handed: list[Any]) -> None:
    holed = np.where(RANDOM.random(BITS.shape) < 0.3, np.nan, BITS)
    holed = holed[~np.isnan(holed).all(1)]
    made = small(RBM).fit(holed)
    assert bool(made._fitted.rows.isnan().any())
    made.score_samples(BITS)
    given = ~made._fitted.rows.isnan()
    assert bool(handed[0].isfinite().all()) and torch.equal(handed[0][given], made._fitted.rows[given])


def test_files_keep_no_rows(tmp_path: Path) -> None:
    """A threshold stays, whatever ln Z is found to be."""
    path = tmp_path / "judge.safetensors"
    made = small(RBMOutlier, random_state=None).fit(BITS)
    made.save(path)
    again = RBMOutlier.load(path)
    assert again._fitted.rows is None
    np.testing.assert_array_equal(again.decision_function(BITS), made.decision_function(BITS))
    copy = pickle.loads(pickle.dumps(made))
    assert torch.equal(copy._fitted.rows, made._fitted.rows)


@pytest.mark.parametrize("kind", [RBM, DBM, RBMOutlier])
def test_a_machine_that_its_owner_trains_further_has_another_ln_z(kind: type) -> None:
    made = small(kind, log_partition="exact").fit(BITS)
    around = kind.from_machine(made.machine_, log_partition="exact")
    for judge in (made, around):
        judge.score_samples(BITS)
    hm.train(made.machine_, BITS, rule="cd", updates=50, seed=0)
    truth = hm.likelihood.exact_log_partition(deepcopy(made.machine_).double())
    for judge in (made, around):
        assert judge.log_partition_.value == pytest.approx(truth, abs=1e-9)


def test_refused_rows_leave_a_machine_as_it_was() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(2)])
    for X in (np.full((3, 4), 2.0), np.zeros((3, 5))):
        with pytest.raises(ValueError, match="X"):
            RBMOutlier.from_machine(machine, X)
    assert machine.metadata == {}
