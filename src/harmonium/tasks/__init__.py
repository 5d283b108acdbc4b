"""Tasks: what a trained machine is used for."""

from harmonium.tasks.impute import METHODS, Imputation, impute

__all__ = ["METHODS", "Imputation", "impute"]
