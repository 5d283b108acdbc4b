"""scikit-learn's own checks, none expected to fail."""

from __future__ import annotations

import torch
from sklearn.utils.estimator_checks import parametrize_with_checks

from harmonium.estimators import DBM, RBM, RBMClassifier

torch.set_num_threads(1)


@parametrize_with_checks(
    [
        RBM(n_hidden=4, epochs=3),
        RBM(n_hidden=100, epochs=2, ais_temperatures=20),
        DBM(n_hidden=(4, 3), epochs=3),
        RBMClassifier(n_hidden=4, epochs=20, learning_rate=0.1),
    ]
)
def test_scikit_learn_check(estimator, check):
    check(estimator)
