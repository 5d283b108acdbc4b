"""The warning that new labels are taken as missing: once a call of any number of rows, never for numbers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import harmonium as hm

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)

ROWS = 5000  # more than are encoded at a time
RANDOM = np.random.default_rng(0)
FRAME = pandas.DataFrame(
    {
        "income": np.exp(RANDOM.normal(size=ROWS)),
        "age": RANDOM.integers(18, 80, ROWS).astype(float),
        "visits": RANDOM.poisson(2, ROWS).astype(float),
        "city": RANDOM.choice(["Bern", "Rom", "Ulm"], ROWS),
    }
)
LABEL = RANDOM.choice(["p", "q"], ROWS)
NEW = FRAME.assign(city=np.where(np.arange(ROWS) % 7, FRAME["city"], "Oslo"))
FAR = FRAME.assign(
    income=np.where(np.arange(ROWS) % 7, FRAME["income"], 1e6),
    age=np.where(np.arange(ROWS) % 5, FRAME["age"], 300.0),
    visits=np.where(np.arange(ROWS) % 9, FRAME["visits"], np.where(np.arange(ROWS) % 2, 99.0, 1.5)),
)
SMALL = {"n_hidden": 3, "method": "chains", "max_updates": 2, "random_state": 0}


def count_warnings(call) -> int:
    """Returns how often a call warns of cells that are taken as missing."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return sum("taken as missing" in str(warning.message) for warning in caught)


@pytest.mark.mostly_nightly(2)
@pytest.mark.parametrize(
    "make, method",
    [
        (hm.RBM, "fit"),
        (hm.RBM, "score_samples"),
        (hm.RBM, "transform"),
        (hm.RBM, "impute"),
        (hm.RBM, "partial_fit"),
        (hm.RBMOutlier, "fit"),
        (hm.RBMOutlier, "predict"),
        (hm.RBMClassifier, "predict_proba"),
        (hm.RBMClassifier, "fit"),
    ],
)
def test_a_call_warns_once_of_new_labels_and_never_of_numbers(make, method: str) -> None:
    estimator = make(**SMALL, warm_start=True).fit(FRAME, LABEL)
    labels = (LABEL,) if method == "fit" else ()
    assert count_warnings(lambda: getattr(estimator, method)(NEW, *labels)) == 1
    assert count_warnings(lambda: getattr(estimator, method)(FAR, *labels)) == 0
