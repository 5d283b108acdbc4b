"""Estimators: the scikit-learn face."""

from harmonium.estimators.classifier import RBMClassifier
from harmonium.estimators.dbm import DBM
from harmonium.estimators.imputer import RBMImputer
from harmonium.estimators.outlier import RBMOutlier
from harmonium.estimators.rbm import RBM

__all__ = ["DBM", "RBM", "RBMClassifier", "RBMImputer", "RBMOutlier"]
