"""Likelihood: exact by enumeration, by annealing and by TAP, bounds for deep machines,
pseudo-likelihood, and how well hidden cells are told."""

from harmonium.likelihood.annealing import ais
from harmonium.likelihood.exact import (
    Mixture,
    conditional_log_likelihood,
    exact_log_likelihood,
    exact_log_partition,
    mixture,
    quadrature_log_partition,
)
from harmonium.likelihood.likelihood import (
    annealed_bound,
    log_likelihood,
    tap_log_likelihood,
    variational_bound,
)
from harmonium.likelihood.log_partition import LogPartition, TapPartition, tap_log_partition
from harmonium.likelihood.pseudo import missing_pseudo_likelihood, predictive_log_score, pseudo_log_likelihood
from harmonium.sums import HiddenStates, Posterior, has_hidden_states

__all__ = [
    "HiddenStates",
    "LogPartition",
    "Mixture",
    "Posterior",
    "TapPartition",
    "ais",
    "annealed_bound",
    "conditional_log_likelihood",
    "exact_log_likelihood",
    "exact_log_partition",
    "has_hidden_states",
    "log_likelihood",
    "missing_pseudo_likelihood",
    "mixture",
    "predictive_log_score",
    "pseudo_log_likelihood",
    "quadrature_log_partition",
    "tap_log_likelihood",
    "tap_log_partition",
    "variational_bound",
]
