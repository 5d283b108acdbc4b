"""Small frames: early stopping sees something, weights are repetitions, labels come back as labels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import harmonium as hm

random = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": random.normal(40, 8, 60).round(1),
        "grade": np.array(["low", "mid", "high"])[random.integers(0, 3, 60)],
        "member": random.random(60) < 0.5,
    }
)
SMALL = {"n_hidden": 4, "max_updates": 8, "random_state": 0}


def test_early_stopping_sees_the_few_cells_of_a_small_table() -> None:
    holes = FRAME.mask(random.random(FRAME.shape) < 0.1).dropna(how="all")
    rbm = hm.RBM(4, early_stopping=True, epochs=200, random_state=0).fit(holes)
    scores = [record["validation_score"] for record in rbm.history_ if "validation_score" in record]
    assert len(set(scores)) == len(scores) > 1 and max(scores) < 0


def test_a_column_of_labels_that_is_lost_altogether_is_filled_with_labels() -> None:
    rbm = hm.RBM(**SMALL).fit(FRAME)
    for name in ("grade", "member"):
        lost = FRAME.head(4).assign(**{name: np.nan})
        assert lost[name].dtype == np.float64
        full = rbm.impute(lost)[name]
        assert full.isin(FRAME[name].unique()).all() and full.dtype == FRAME[name].dtype


def test_weights_of_rows_of_a_frame_are_repetitions() -> None:
    weights = np.r_[np.ones(30), 2 * np.ones(30)]
    weighted = hm.RBM(**SMALL).fit(FRAME, sample_weight=weights).encoder_.columns[0].coding
    repeated = hm.RBM(**SMALL).fit(pd.concat([FRAME, FRAME[30:]])).encoder_.columns[0].coding
    assert weighted.offset == pytest.approx(repeated.offset, rel=1e-12)
    assert weighted.scale == pytest.approx(repeated.scale, rel=1e-12)


def test_a_category_of_rows_that_do_not_count_is_none() -> None:
    frame = FRAME.assign(grade=np.r_[["other"], FRAME["grade"][1:]])
    rbm = hm.RBM(**SMALL).fit(frame, sample_weight=np.r_[0.0, np.ones(59)])
    assert set(rbm.sample(50, random_state=0)["grade"]) <= {"low", "mid", "high"}


def test_a_warm_start_refuses_another_number_of_hidden_units() -> None:
    rbm = hm.RBM(**SMALL, warm_start=True).fit(FRAME)
    rbm.fit(FRAME)
    with pytest.raises(ValueError, match=r"n_hidden: expected \[4\] as in the machine .* received \[7\]"):
        rbm.set_params(n_hidden=7).fit(FRAME)


def test_weights_of_a_table_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="weights: expected"):
        hm.data.Table.fit(FRAME, weights=np.ones(59))
    one = np.zeros(60)
    one[3] = 2.0
    assert (
        hm.data.Table.fit(FRAME, {"age": "gaussian"}, weights=one).columns[0].coding.offset == FRAME["age"][3]
    )
