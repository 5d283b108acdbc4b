"""Exact sums over hidden units and missing entries: ln Z, ln p of rows, expected statistics, exact draws."""

from harmonium.sums.given_hidden import couplings_of_columns as couplings_of_columns
from harmonium.sums.hidden_states import (
    HiddenStates as HiddenStates,
    Posterior as Posterior,
    has_hidden_states as has_hidden_states,
    list_states as list_states,
    visible_means_given as visible_means_given,
)
from harmonium.sums.limits import (
    FEW_STATES as FEW_STATES,
    LIMIT as LIMIT,
    LIMIT_TEXT as LIMIT_TEXT,
    TABLE_STATES as TABLE_STATES,
    UNASKED as UNASKED,
)
from harmonium.sums.listing import (
    Listing as Listing,
    check_plane as check_plane,
    expect as expect,
    few_states as few_states,
    log2_states as log2_states,
    log_weights as log_weights,
    unit_log_weights as unit_log_weights,
    work as work,
)
