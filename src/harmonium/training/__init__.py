"""Training: the loop, schedules, optimisers, callbacks, checkpoints and exact resume."""

from harmonium.training import callbacks as callbacks
from harmonium.training.batch_source import check_rows as check_rows
from harmonium.training.callbacks import (
    STOP as STOP,
    Callback as Callback,
    EarlyStopping as EarlyStopping,
    Update as Update,
)
from harmonium.training.checkpoint import (
    DamagedCheckpoint as DamagedCheckpoint,
    read_checkpoint as read_checkpoint,
    read_last as read_last,
)
from harmonium.training.divergence import TrainingDiverged as TrainingDiverged
from harmonium.training.exact_training import (
    EXACT_BATCH as EXACT_BATCH,
    BestFit as BestFit,
    Objective as Objective,
    count_rows as count_rows,
    mean_score as mean_score,
    take_rows as take_rows,
    train_exact as train_exact,
    train_exact_until_best as train_exact_until_best,
    unit_means as unit_means,
)
from harmonium.training.history import (
    RESERVED as RESERVED,
    Metric as Metric,
    Record as Record,
    read_lines as read_lines,
)
from harmonium.training.lbfgs import LBFGS as LBFGS
from harmonium.training.optimizers import OPTIMIZERS as OPTIMIZERS, OptimizerFactory as OptimizerFactory
from harmonium.training.penalties import (
    L1 as L1,
    L2 as L2,
    FieldL2 as FieldL2,
    GroupLasso as GroupLasso,
    L1Squared as L1Squared,
    Penalty as Penalty,
)
from harmonium.training.run_directory import (
    AVERAGED as AVERAGED,
    RunDirectory as RunDirectory,
    refuse_run as refuse_run,
)
from harmonium.training.run_toml import (
    RUN_FILE as RUN_FILE,
    as_toml as as_toml,
    key_of as key_of,
    made_with as made_with,
    read_run_file as read_run_file,
    setting_lines as setting_lines,
)
from harmonium.training.schedules import SCHEDULES as SCHEDULES, Schedule as Schedule
from harmonium.training.seeds import stream_seed as stream_seed
from harmonium.training.settings import Settings as Settings, Steps as Steps, Watching as Watching
from harmonium.training.state import TrainingRun as TrainingRun
from harmonium.training.trainer import train as train
