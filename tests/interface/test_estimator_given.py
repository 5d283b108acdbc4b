"""Some columns given others: draws and predictions of columns, against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from harmonium.data import bars_and_stripes
from harmonium.estimators import DBM, RBM
from harmonium.likelihood import exact_log_likelihood

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)

RANDOM = np.random.default_rng(0)
BITS = bars_and_stripes(3).astype(np.float64)
GROUP = RANDOM.integers(0, 3, 120)
FRAME = pandas.DataFrame(
    {
        "height": RANDOM.normal(170.0 + 10 * GROUP, 3.0),
        "city": np.array(["Ulm", "Rom", "Bern"])[GROUP],
        "member": RANDOM.random(120) < 0.1 + 0.4 * GROUP,
    }
)


def small(kind=RBM, **settings):
    sizes = (4, 3) if kind is DBM else 4
    return kind(
        sizes, **{"method": "chains", "epochs": 60, "learning_rate": 0.3, "random_state": 0, **settings}
    )


@pytest.fixture(scope="module")
def rbm():
    return small(epochs=50).fit(FRAME)


def conditional_by_hand(estimator, rows: np.ndarray, given: list[int]) -> np.ndarray:
    """ln p(row) - ln p(its given cells), both from all states."""
    machine = estimator._fitted.double()
    every = np.array(list(itertools.product([0.0, 1.0], repeat=rows.shape[1])))
    log_p = exact_log_likelihood(machine, torch.from_numpy(every)).numpy()
    agrees = (rows[:, None, given] == every[None, :, given]).all(2)
    whole = (rows[:, None, :] == every[None]).all(2)
    return np.log(whole @ np.exp(log_p)) - np.log(agrees @ np.exp(log_p))


def test_scores_of_some_cells_are_those_of_enumeration() -> None:
    """ln p(rest | given) = ln p(row) - ln p(given), the score of rows that show what is given alone."""
    estimator = small().fit(BITS)
    for given in ([0], [1, 2, 5], list(range(8))):
        expected = conditional_by_hand(estimator, BITS, given)
        alone = np.where(np.isin(np.arange(9), given), BITS, np.nan)
        found = estimator.score_samples(BITS) - estimator.score_samples(alone)
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_draws_keep_what_is_given_and_follow_the_rest() -> None:
    rbm = small(epochs=300).fit(BITS)
    every = np.array(list(itertools.product([0.0, 1.0], repeat=9)))
    held = (every[:, 0] == 1) & (every[:, 4] == 0)
    p = np.exp(rbm.score_samples(every[held]))
    p /= p.sum()
    drawn = rbm.sample(4000, given={0: 1, 4: 0}, sweeps=30, random_state=1)
    assert (drawn[:, 0] == 1).all() and (drawn[:, 4] == 0).all()
    # A mean of 4000 draws is within 0.04 of its expectation but for a chance below 1e-5 each.
    np.testing.assert_allclose(drawn.mean(0), p @ every[held], atol=0.04)
    row = np.full((2, 9), np.nan)
    row[0, 2], row[1, 2] = 0, 1
    assert rbm.sample(3, given=row, sweeps=2)[:, 2].tolist() == [0, 0, 0, 1, 1, 1]


def test_a_column_given_the_others(rbm) -> None:
    hidden = FRAME.assign(city=None)
    told = rbm.impute(hidden)["city"]
    by_value = [rbm.score_samples(FRAME.assign(city=c)) for c in ("Bern", "Rom", "Ulm")]
    assert told.tolist() == np.array(["Bern", "Rom", "Ulm"])[np.argmax(by_value, 0)].tolist()
    agreement = (rbm.impute(hidden, method="gibbs", sweeps=60)["city"] == told).mean()
    assert agreement > 0.8 and (told == FRAME["city"]).mean() > 0.6
    height = rbm.impute(FRAME.assign(height=np.nan), value="mean", sweeps=60)["height"]
    assert np.corrcoef(height, FRAME["height"])[0, 1] > 0.5


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda r: r.sample(given={"town": "Ulm"}), "given: expected columns among 'height'.*'town'"),
        (
            lambda r: r.sample(given={"city": "Oslo"}),
            "column 'city': expected one of 'Bern'.*received 'Oslo'",
        ),
        (
            lambda r: r.sample(given={"city": ["Ulm"] * 2, "height": [1.0] * 3}),
            "given: expected one cell or 3",
        ),
    ],
    ids=range(3),
)
def test_what_cannot_be_given(rbm, use, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        use(rbm)


@pytest.fixture(scope="module")
def mixed():
    """A table whose columns of a kind are apart, and a machine of it."""
    random = np.random.default_rng(1)
    group = random.integers(0, 3, 90)
    table = pandas.DataFrame(
        {
            "height": 170 + 10.0 * group + random.normal(size=90),
            "city": np.array(["Ulm", "Rom", "Bern"])[group],
            "weight": 1000 + 100.0 * group + 10 * random.normal(size=90),
            "member": np.where(group > 1, "yes", "no"),
            "town": np.array(["a", "b", "c"])[group],
        }
    )
    return table, RBM(8, method="chains", epochs=200, learning_rate=0.3, random_state=0).fit(table)


@pytest.mark.parametrize("column", ["city", "height", "member"])
def test_a_column_of_a_table_whose_kinds_are_mixed(mixed, column: str) -> None:
    """Units of a kind stand together, columns do not: what is predicted is the column that was asked for."""
    table, rbm = mixed
    assert [unit.name for unit in rbm.encoder_.columns] == ["height", "weight", "city", "town", "member"]
    holes = table.assign(**{column: None})
    told = rbm.impute(holes, sweeps=20, random_state=0)[column]
    if column == "height":
        assert told.min() > 150 and told.max() < 220
    else:
        assert (told == table[column]).mean() > 0.8
