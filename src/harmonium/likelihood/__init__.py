"""Likelihood: exact, annealed, by TAP, bounded for deep machines, pseudo-likelihood; cells as predicted."""

from harmonium.likelihood.annealing import ais as ais
from harmonium.likelihood.evaluation import (
    BASE_ROWS as BASE_ROWS,
    CHUNK_ROWS as CHUNK_ROWS,
    Evaluation as Evaluation,
    evaluate as evaluate,
    find_log_partition as find_log_partition,
    note_rows as note_rows,
    read_rows as read_rows,
    score_states as score_states,
    work_of_rows as work_of_rows,
)
from harmonium.likelihood.exact import (
    conditional_log_likelihood as conditional_log_likelihood,
    exact_log_likelihood as exact_log_likelihood,
    exact_log_partition as exact_log_partition,
    quadrature_log_partition as quadrature_log_partition,
)
from harmonium.likelihood.independent import score_separate as score_separate, separate as separate
from harmonium.likelihood.likelihood import (
    annealed_bound as annealed_bound,
    excess_of_rows as excess_of_rows,
    log_likelihood as log_likelihood,
    tap_log_likelihood as tap_log_likelihood,
    variational_bound as variational_bound,
)
from harmonium.likelihood.log_partition import (
    WITHOUT_DATA as WITHOUT_DATA,
    LogPartition as LogPartition,
)
from harmonium.likelihood.pseudo import (
    missing_pseudo_likelihood as missing_pseudo_likelihood,
    predictive_log_score as predictive_log_score,
    pseudo_log_likelihood as pseudo_log_likelihood,
    unit_log_probabilities as unit_log_probabilities,
)
from harmonium.likelihood.tap_partition import (
    TapPartition as TapPartition,
    tap_log_partition as tap_log_partition,
)
from harmonium.sums import (
    HiddenStates as HiddenStates,
    Posterior as Posterior,
    has_hidden_states as has_hidden_states,
)
