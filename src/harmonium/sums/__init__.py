"""Exact sums over hidden units and missing entries: ln Z, ln p of rows, expected statistics, exact draws."""

from harmonium.sums.hidden_states import (
    HiddenStates as HiddenStates,
    Posterior as Posterior,
    exact_hamiltonian as exact_hamiltonian,
    has_hidden_states as has_hidden_states,
    nothing_seen as nothing_seen,
    visible_means_given as visible_means_given,
)
from harmonium.sums.joined_gaussians import couplings_of_columns as couplings_of_columns
from harmonium.sums.limits import (
    AUTO_LIMIT as AUTO_LIMIT,
    EXPLICIT_LIMIT as EXPLICIT_LIMIT,
    LIMIT_TEXT as LIMIT_TEXT,
    LONG as LONG,
    MAX_HIDDEN_STATES as MAX_HIDDEN_STATES,
    MAX_MISSING_STATES as MAX_MISSING_STATES,
    affordable as affordable,
    in_words as in_words,
    seconds_of_joined as seconds_of_joined,
    seconds_of_table as seconds_of_table,
)
from harmonium.sums.listing import list_states as list_states
from harmonium.sums.plan import (
    expect as expect,
    few_states as few_states,
    find_mode as find_mode,
    has_posterior as has_posterior,
    lists_hidden_states as lists_hidden_states,
    log2_states as log2_states,
    log_weights as log_weights,
    posteriors as posteriors,
    unit_log_weights as unit_log_weights,
    unit_updates as unit_updates,
)
