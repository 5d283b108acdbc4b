"""scikit-learn's own checks, none expected to fail."""

from __future__ import annotations

import pytest
import torch
from sklearn.base import clone
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from harmonium.estimators import DBM, RBM, RBMClassifier, RBMImputer, RBMOutlier

torch.set_num_threads(1)

# Among the checks weights are compared with repetitions to 1e-7: in float32 the order of a sum shows, and the
# start off the saddle of Gaussian units, without ``initial_std``, draws rows by their place.
EXACT = {"dtype": "float64", "initial_std": 0.03, "method": "chains"}  # two epochs, where tables take seconds


# What learning has to come to; the other checks ask for no more than a fit.
EPOCHS = {"check_classifiers_train": 20, "check_classifiers_classes": 20, "check_outliers_train": 5}


@parametrize_with_checks(
    [
        RBM(n_hidden=4, epochs=2, **EXACT),
        DBM(n_hidden=(4, 3), epochs=2, **EXACT),
        RBMClassifier(n_hidden=4, epochs=2, learning_rate=0.1, method="chains", dtype="float64"),
        RBMImputer(RBM(n_hidden=4, epochs=2, **EXACT)),
        RBMOutlier(n_hidden=4, epochs=2, **EXACT),
    ]
)
@pytest.mark.mostly_nightly(33)
@pytest.mark.usefixtures("short_fits")
def test_scikit_learn_check(estimator, check):
    name = check.func.__name__
    if isinstance(estimator, DBM) and name.startswith("check_sample_weight_equivalence"):
        estimator = clone(estimator).set_params(rule="mean_field_pcd")  # whose clamped phase draws nothing
    changed = name in EPOCHS and "epochs" in estimator.get_params()
    check(estimator.set_params(epochs=EPOCHS[name]) if changed else estimator)


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_fit_score_takes_y,
        estimator_checks.check_methods_sample_order_invariance,
        estimator_checks.check_methods_subset_invariance,
        estimator_checks.check_pipeline_consistency,
    ],
    ids=lambda check: check.__name__,
)
def test_scores_by_annealing(check):
    """What scikit-learn checks of scores, for a machine with too many states to count them."""
    check("RBM", RBM(n_hidden=100, epochs=2, ais_temperatures=20, **EXACT))
