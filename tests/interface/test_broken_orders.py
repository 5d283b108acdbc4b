"""Columns whose order draws break are named, and no others."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)


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
