"""Training: the loop, schedules, optimisers, callbacks, checkpoints and exact resume."""

from harmonium.training import callbacks
from harmonium.training.batch_source import Stream
from harmonium.training.callbacks import STOP, Callback, EarlyStopping, Update
from harmonium.training.correlated import fit_normal, fit_residuals, fold
from harmonium.training.divergence import TrainingDiverged
from harmonium.training.exact_fit import ExactFit, fit_exact
from harmonium.training.history import Record
from harmonium.training.label_fit import fit_labels
from harmonium.training.optimizers import OPTIMIZERS, OptimizerFactory
from harmonium.training.penalties import L1, L2, Group, L1Squared, Penalty
from harmonium.training.pretrain import pretrain
from harmonium.training.run import TrainingRun
from harmonium.training.schedules import SCHEDULES, Schedule
from harmonium.training.settings import Steps
from harmonium.training.table_fit import FEW_UNITS, Aim, TableFit, fit_table, suits_fit_table
from harmonium.training.trainer import train

__all__ = [
    "FEW_UNITS",
    "L1",
    "L2",
    "OPTIMIZERS",
    "SCHEDULES",
    "STOP",
    "Aim",
    "Callback",
    "EarlyStopping",
    "ExactFit",
    "Group",
    "L1Squared",
    "OptimizerFactory",
    "Penalty",
    "Record",
    "Schedule",
    "Steps",
    "Stream",
    "TableFit",
    "TrainingDiverged",
    "TrainingRun",
    "Update",
    "callbacks",
    "fit_exact",
    "fit_labels",
    "fit_normal",
    "fit_residuals",
    "fit_table",
    "fold",
    "pretrain",
    "suits_fit_table",
    "train",
]
