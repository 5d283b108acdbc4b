"""Exact sums: a plan says what is listed, what is summed by ψ and what is integrated, and answers."""

from harmonium.sums.base import FEW_STATES, LIMIT, LIMIT_TEXT, TABLE_STATES, UNASKED, Plan
from harmonium.sums.hidden_states import (
    HiddenStates,
    Posterior,
    Table,
    has_hidden_states,
    list_states,
    visible_means_given,
)
from harmonium.sums.listing import (
    Listing,
    check_plane,
    expect,
    few_states,
    log2_states,
    log_weights,
    plan,
    require,
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
    "Plan",
    "Posterior",
    "Table",
    "check_plane",
    "expect",
    "few_states",
    "has_hidden_states",
    "list_states",
    "log2_states",
    "log_weights",
    "plan",
    "require",
    "unit_log_weights",
    "visible_means_given",
    "work",
]
