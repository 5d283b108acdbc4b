"""Tasks: what a trained machine is used for."""

import harmonium.ladder  # noqa: F401  (so that ``Kernel.registry`` has all kernels)
from harmonium.tasks.channel import (
    GaussianChannel as GaussianChannel,
    SymmetricChannel as SymmetricChannel,
    noise_in_states as noise_in_states,
)
from harmonium.tasks.denoising import (
    DENOISE_METHODS as DENOISE_METHODS,
    Denoised as Denoised,
    denoise as denoise,
)
from harmonium.tasks.evaluation import (
    evaluate_rows as evaluate_rows,
    score_cells as score_cells,
    unit_offsets as unit_offsets,
)
from harmonium.tasks.imputation import (
    IMPUTE_METHODS as IMPUTE_METHODS,
    Imputation as Imputation,
    impute as impute,
    impute_cells as impute_cells,
    unobserved as unobserved,
    visible_means as visible_means,
)
from harmonium.tasks.interactions import (
    EFFECTIVE_METHODS as EFFECTIVE_METHODS,
    EffectiveCouplings as EffectiveCouplings,
    effective_couplings as effective_couplings,
)
from harmonium.tasks.metrics import (
    METRICS as METRICS,
    metrics_for as metrics_for,
)
from harmonium.tasks.minimisation import (
    MINIMISE_METHODS as MINIMISE_METHODS,
    LowStates as LowStates,
    minimise as minimise,
)
from harmonium.tasks.prediction import (
    PREDICT_METHODS as PREDICT_METHODS,
    ColumnPrediction as ColumnPrediction,
    log_probabilities as log_probabilities,
    predict as predict,
    predict_column as predict_column,
)
from harmonium.tasks.sampling import Sample as Sample, sample as sample, usual_sweeps as usual_sweeps
from harmonium.tasks.singular_vectors import Directions as Directions, directions as directions
from harmonium.tasks.sites import (
    APART as APART,
    GAUGES as GAUGES,
    TOUCHING as TOUCHING,
    Pairs as Pairs,
    contact_precision as contact_precision,
    contacts as contacts,
    mutations as mutations,
    potts_machine as potts_machine,
    rank_pairs as rank_pairs,
)
from harmonium.tasks.sparse import activate as activate, decimate as decimate
from harmonium.tasks.unusual import UnusualCell as UnusualCell, unusual_cells as unusual_cells
