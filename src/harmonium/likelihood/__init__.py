"""Likelihood: exact by enumeration, by annealing and by TAP, bounds for deep machines,
pseudo-likelihood, and how well hidden cells are told."""

from harmonium.likelihood.ais import ais
from harmonium.likelihood.exact import (
    MAX_LOG2_STATES,
    add_exact_expectation,
    conditional_log_likelihood,
    exact_log_likelihood,
    exact_log_partition,
    few_states,
    log2_states,
    log2_states_of,
    log_weight_of,
)
from harmonium.likelihood.hidden_states import (
    HiddenStates,
    Posterior,
    has_hidden_states,
    visible_means_given,
)
from harmonium.likelihood.likelihood import (
    annealed_bound,
    log_likelihood,
    tap_log_likelihood,
    variational_bound,
)
from harmonium.likelihood.log_partition import LogPartition, TapPartition, tap_log_partition
from harmonium.likelihood.pseudo import missing_pseudo_likelihood, predictive_log_score, pseudo_log_likelihood
from harmonium.likelihood.quadrature import (
    Mixture,
    add_quadrature_expectation,
    mixture,
    quadrature_log_partition,
)

__all__ = [
    "MAX_LOG2_STATES",
    "HiddenStates",
    "LogPartition",
    "Mixture",
    "Posterior",
    "TapPartition",
    "add_exact_expectation",
    "add_quadrature_expectation",
    "ais",
    "annealed_bound",
    "conditional_log_likelihood",
    "exact_log_likelihood",
    "exact_log_partition",
    "few_states",
    "has_hidden_states",
    "log2_states",
    "log2_states_of",
    "log_likelihood",
    "log_weight_of",
    "missing_pseudo_likelihood",
    "mixture",
    "predictive_log_score",
    "pseudo_log_likelihood",
    "quadrature_log_partition",
    "tap_log_likelihood",
    "tap_log_partition",
    "variational_bound",
    "visible_means_given",
]
