"""A machine that has learned nothing of columns that hang together says so, and no other does."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import harmonium as hm

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)

RANDOM = np.random.default_rng(0)
GROUP = RANDOM.integers(0, 3, 120)
LINKED = pandas.DataFrame(
    {
        "noise": RANDOM.random(120) < 0.5,
        "city": np.array(["Ulm", "Rom", "Bern"])[GROUP],
        "country": np.array(["D", "I", "CH"])[GROUP],
    }
)
APART = LINKED.assign(country=RANDOM.permutation(LINKED["country"]))
NUMBERS = RANDOM.normal(size=(120, 1)) + 0.5 * RANDOM.normal(size=(120, 3))
WORDS = "no better than independent columns"
SHORT: dict[str, Any] = {
    "n_hidden": 4,
    "method": "chains",
    "learning_rate": 1e-6,
    "max_updates": 2,
    "random_state": 0,
}


def said(model: Any, X: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X)
    return [str(w.message) for w in caught if w.category is ConvergenceWarning and WORDS in str(w.message)]


@pytest.mark.parametrize("X", [LINKED, LINKED.mask(RANDOM.random(LINKED.shape) < 0.1), NUMBERS])
def test_a_machine_that_learned_nothing_names_the_link_that_it_lost(X: Any) -> None:
    (words,) = said(hm.RBM(**SHORT, initial_std=0.01), X)
    names = ["columns 'city' and 'country'"] if X is not NUMBERS else [f"columns {i} and" for i in (0, 1)]
    assert words.startswith("RBM: ") and any(name in words for name in names)
    assert "another random_state" in words


@pytest.mark.parametrize(("kind", "sizes"), [(hm.DBM, (4, 3)), (hm.RBM, 20)])
def test_machines_that_are_not_summed_out_say_so_too(kind: Any, sizes: Any) -> None:
    assert len(said(kind(**{**SHORT, "n_hidden": sizes}), LINKED)) == 1


@pytest.mark.parametrize("X", [LINKED, NUMBERS])
@pytest.mark.nightly
def test_a_machine_that_learned_something_says_nothing(X: Any) -> None:
    assert said(hm.RBM(random_state=0), X) == []
    adam: dict[str, Any] = {"optimizer": "adam", "centred": False, "learning_rate": 0.03, "max_updates": 300}
    assert said(hm.RBM(4, **adam, random_state=0), X) == []


def test_a_machine_far_behind_pairs_of_columns_says_so() -> None:
    square = np.zeros((4, 8, 8))
    square[(0, 2), 1:4, 1:4] = 1
    square[(1, 2), 5:7, 4:8] = 1
    X = np.repeat(square.reshape(4, 64), 30, 0)
    short: dict[str, Any] = {"method": "chains", "max_updates": 20, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="pairs of columns alone raise ln p of a row by 11 nats"):
        hm.RBM(5, **short).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = hm.RBM(5, random_state=0).fit(X)  # by exact sums, of data that are no table
    assert (model.score_samples(X[::30]) > -2.0).all()  # each is a quarter: -1.39
    assert "validation_score" in model.history_[0]


def test_nothing_is_said_where_there_is_no_link_to_be_learned() -> None:
    assert said(hm.RBM(**SHORT), APART) == []
    assert said(hm.RBM(**SHORT), LINKED[:20]) == []


def trips(n: int, seed: int) -> Any:
    """Starts over a month, ends a quarter of an hour later, amounts of which one is a part of the other."""
    random = np.random.default_rng(seed)
    start = pandas.Timestamp("2024-03-01") + pandas.to_timedelta(
        random.uniform(0, 30 * 24 * 3600, n).round(), unit="s"
    )
    minutes = (60 * random.exponential(15, n)).round() / 60
    length = minutes * random.lognormal(0, 0.3, n)
    fare = (2 + length).round(1)
    return pandas.DataFrame(
        {
            "start": start,
            "end": start + pandas.to_timedelta(60 * minutes, unit="s"),
            "fare": fare,
            "total": fare + random.choice([0.5, 3.0], n),
            "kind": np.where(random.random(n) < 0.2, "late", "early"),
        }
    )


def orders_broken(X: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hm.RBM(random_state=0).fit(X)
    return [str(w.message) for w in caught if "in no row of the data" in str(w.message)]


@pytest.mark.nightly
def test_an_order_that_draws_break_is_named_with_what_to_do() -> None:
    table = trips(300, 1)
    (words,) = orders_broken(table)
    assert words.startswith("RBM: in ") and "of draws 'start' is above 'end'" in words
    assert "give the difference of the two" in words
    difference = (table["end"] - table["start"]) / pandas.Timedelta(minutes=1)
    apart = table.assign(end=difference)
    assert orders_broken(apart) == []
    assert (hm.RBM(random_state=0).fit(apart).sample(500)["end"] >= 0).all()


@pytest.mark.nightly
def test_orders_that_are_learned_or_mean_nothing_are_not_named() -> None:
    random = np.random.default_rng(2)
    x = random.normal(size=(200, 3))
    equal = pandas.DataFrame({"a": x[:, 0], "b": x[:, 0], "c": x[:, 1]})
    far = pandas.DataFrame({"a": x[:, 0], "b": x[:, 1] + 20})
    wide = pandas.DataFrame({"a": x[:, 0], "b": x[:, 0] + 2 + 0.3 * np.abs(x[:, 1])})
    unordered = pandas.DataFrame(x, columns=list("abc"))
    few = trips(40, 3)
    for table in (equal, far, wide, unordered, few):
        assert orders_broken(table) == []
    dates = trips(300, 4)[["start", "kind"]].assign(number=x[:1, 0].item() + np.arange(300) / 1e3)
    assert orders_broken(dates) == []  # a date is above no number
