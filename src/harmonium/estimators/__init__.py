"""Estimators: the scikit-learn face."""

from harmonium.estimators.classifier import RBMClassifier as RBMClassifier
from harmonium.estimators.dbm import DBM as DBM
from harmonium.estimators.imputer import RBMImputer as RBMImputer
from harmonium.estimators.outlier import RBMOutlier as RBMOutlier
from harmonium.estimators.rbm import RBM as RBM
