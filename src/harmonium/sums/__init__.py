"""Exact sums over all that rows do not show: listed states, layers summed out by ψ, integrals."""

from harmonium.sums.given_hidden import couplings_of_columns
from harmonium.sums.hidden_states import (
    HiddenStates,
    Posterior,
    has_hidden_states,
    list_states,
    visible_means_given,
)
from harmonium.sums.limits import FEW_STATES, LIMIT, LIMIT_TEXT, TABLE_STATES, UNASKED
from harmonium.sums.listing import (
    Listing,
    check_plane,
    expect,
    few_states,
    log2_states,
    log_weights,
    unit_log_weights,
    work,
)

__all__ = [
    "FEW_STATES",
    "LIMIT",
    "LIMIT_TEXT",
    "TABLE_STATES",
    "UNASKED",
    "HiddenStates",
    "Listing",
    "Posterior",
    "check_plane",
    "couplings_of_columns",
    "expect",
    "few_states",
    "has_hidden_states",
    "list_states",
    "log2_states",
    "log_weights",
    "unit_log_weights",
    "visible_means_given",
    "work",
]
