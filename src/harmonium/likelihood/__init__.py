"""Likelihood: exact by enumeration, by annealed importance sampling, and the pseudo-likelihood."""

from harmonium.likelihood.ais import ais
from harmonium.likelihood.exact import add_exact_expectation, exact_log_likelihood, exact_log_partition
from harmonium.likelihood.likelihood import log_likelihood
from harmonium.likelihood.log_partition import LogPartition
from harmonium.likelihood.pseudo import pseudo_log_likelihood

__all__ = [
    "LogPartition",
    "add_exact_expectation",
    "ais",
    "exact_log_likelihood",
    "exact_log_partition",
    "log_likelihood",
    "pseudo_log_likelihood",
]
