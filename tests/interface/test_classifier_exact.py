"""The classifier on tables trains without chains by default, and what it answers is exact."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from harmonium.estimators import RBMClassifier, RBMOutlier
from harmonium.estimators._intake import validated
from harmonium.likelihood import HiddenStates

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)
short = pytest.mark.usefixtures("short_fits")

ROWS = 200
RANDOM = np.random.default_rng(0)
GROUP = RANDOM.integers(0, 3, ROWS)
LABEL = np.array(["ash", "beech", "cedar"])[GROUP]
HEIGHT = RANDOM.normal(size=ROWS)
FRAME = pandas.DataFrame(
    {
        "height": 170 + 10 * HEIGHT + 5 * GROUP,
        "width": 70 + 9 * HEIGHT + RANDOM.normal(size=ROWS),
        "soil": np.array(["clay", "sand", "chalk"])[np.where(RANDOM.random(ROWS) < 0.7, GROUP, 0)],
    }
)
GAPS = RANDOM.random(FRAME.shape) < 0.2
GAPS[GAPS.all(1), 0] = False
HOLED = FRAME.mask(GAPS)


def is_exact(made: RBMClassifier | RBMOutlier) -> bool:
    return len(made.history_) > 0 and made._fitted.rule == ""


def states_of(made: RBMClassifier, rows: pandas.DataFrame) -> torch.Tensor:
    return made._fitted.visible(validated(made, rows))


def by_states(made: RBMClassifier, rows: pandas.DataFrame) -> np.ndarray:
    """p(y | what rows show) from the likelihood of rows with each label."""
    v, classes = states_of(made, rows), len(made.classes_)
    table, each = HiddenStates.of(made.machine_), []
    for y in torch.eye(classes).double():
        v[:, -classes:] = y
        each.append(table.log_likelihood(v))
    return torch.stack(each, 1).softmax(1).numpy()


@short
def test_a_table_gets_few_hidden_units_and_no_chains() -> None:
    trees, again = (RBMClassifier(random_state=0).fit(HOLED, LABEL) for _ in range(2))
    assert is_exact(trees) and trees.machine_.layers[-1].n_units == 8
    assert trees.n_updates_ > 0
    assert np.array_equal(again.predict_proba(HOLED), trees.predict_proba(HOLED))


@cache
def fitted(objective: str) -> RBMClassifier:
    return RBMClassifier(random_state=0, objective=objective).fit(FRAME, LABEL)


@short
@pytest.mark.parametrize("objective", ["hybrid", "discriminative", "joint"])
def test_labels_given_what_a_row_shows_are_exact(objective: str) -> None:
    made = fitted(objective)
    assert is_exact(made)
    np.testing.assert_allclose(made.predict_proba(HOLED), by_states(made, HOLED), atol=1e-9)
    assert made.score(FRAME, LABEL) > 0.75  # by the soil alone: 0.7 + 0.3 / 3


def test_rows_without_a_label_are_not_held_out() -> None:
    made = RBMClassifier(random_state=0).fit(FRAME, [x if i % 3 else None for i, x in enumerate(LABEL)])
    assert "validation_score" in made.history_[0]  # by which the rows that are held out chose a machine


@short
def test_joined_columns_are_summed() -> None:
    made = fitted("joint")
    assert (0, 0) in made.machine_.edges  # height and width, nearly functions of each other
    rows, labels = made.sample(300, label="cedar", random_state=0)
    assert set(labels) == {"cedar"} and np.corrcoef(rows["height"], rows["width"])[0, 1] > 0.9
    assert np.isfinite(made.score_samples(HOLED)).all()


@short
def test_columns_beside_the_label_are_called_rough_where_they_are_asked_for() -> None:
    made, joint = fitted("hybrid"), fitted("joint")
    asked: list[Callable[[RBMClassifier], Any]] = [
        lambda trees: trees.sample(2),
        lambda trees: trees.impute(HOLED),
        lambda trees: trees.imputations(HOLED, 2),
    ]
    for ask in asked:
        with pytest.warns(UserWarning, match="the objective joint") as told:
            ask(made)
        assert len(told) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ask(joint)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.sample(1, given=FRAME.iloc[:2]), made.impute(FRAME), made.predict(HOLED)


def test_outliers_of_tables_are_found_without_chains() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 2)) @ np.array([[1.0, 1.0], [0.0, 0.1]])
    judge = RBMOutlier(random_state=0).fit(rows)
    assert is_exact(judge) and judge.machine_.layers[-1].n_units == 8
    assert judge.predict([[0.0, 0.0], [1.0, 1.0], [1.0, -1.0]]).tolist() == [1, 1, -1]
    assert judge.predict([[np.nan, 0.0], [np.nan, 9.0]]).tolist() == [1, -1]
