"""Estimators: the scikit-learn face."""

from harmonium.estimators.rbm import RBM

__all__ = ["RBM"]
