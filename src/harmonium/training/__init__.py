"""Training: the loop, schedules, optimisers, callbacks, checkpoints and exact resume."""

from harmonium.training import callbacks
from harmonium.training.batch_source import Stream
from harmonium.training.batch_source import check_batch as check_batch
from harmonium.training.batch_source import check_rows as check_rows
from harmonium.training.callbacks import STOP, Callback, EarlyStopping, Update
from harmonium.training.checkpoint import DamagedCheckpoint as DamagedCheckpoint
from harmonium.training.checkpoint import read_checkpoint as read_checkpoint
from harmonium.training.correlated import fit_normal, fit_residuals, fold
from harmonium.training.divergence import TrainingDiverged
from harmonium.training.exact_fit import ExactFit, Objective, fit_exact
from harmonium.training.history import RESERVED as RESERVED
from harmonium.training.history import Record
from harmonium.training.history import read_lines as read_lines
from harmonium.training.label_fit import fit_labels
from harmonium.training.optimizers import OPTIMIZERS, OptimizerFactory
from harmonium.training.penalties import L1, L2, Group, L1Squared, Penalty
from harmonium.training.pretraining import pretrain
from harmonium.training.recipe import (
    DEEP,
    LABEL,
    METHODS,
    OBJECTIVES,
    PLAIN,
    Recipe,
    choose,
    make_rule,
    say_unused,
    share_of,
)
from harmonium.training.recipe import as_root as as_root
from harmonium.training.run_directory import PREVIOUS as PREVIOUS
from harmonium.training.run_directory import RunDirectory as RunDirectory
from harmonium.training.run_directory import remove_leftovers as remove_leftovers
from harmonium.training.schedules import SCHEDULES, Schedule
from harmonium.training.seeds import stream_seed as stream_seed
from harmonium.training.settings import Steps
from harmonium.training.state import TrainingRun
from harmonium.training.table_fit import fit_table
from harmonium.training.trainer import train

__all__ = [
    "DEEP",
    "L1",
    "L2",
    "LABEL",
    "METHODS",
    "OBJECTIVES",
    "OPTIMIZERS",
    "PLAIN",
    "SCHEDULES",
    "STOP",
    "Callback",
    "EarlyStopping",
    "ExactFit",
    "Group",
    "L1Squared",
    "Objective",
    "OptimizerFactory",
    "Penalty",
    "Recipe",
    "Record",
    "Schedule",
    "Steps",
    "Stream",
    "TrainingDiverged",
    "TrainingRun",
    "Update",
    "callbacks",
    "choose",
    "fit_exact",
    "fit_labels",
    "fit_normal",
    "fit_residuals",
    "fit_table",
    "fold",
    "make_rule",
    "pretrain",
    "say_unused",
    "share_of",
    "train",
]
