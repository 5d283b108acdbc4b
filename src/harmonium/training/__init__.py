"""Training: the loop, schedules, optimisers, callbacks, checkpoints and exact resume."""

from harmonium.training import callbacks
from harmonium.training.batch_source import Stream
from harmonium.training.callbacks import STOP, Callback, Update
from harmonium.training.correlated import fit_normal, fold
from harmonium.training.divergence import TrainingDiverged
from harmonium.training.pretrain import pretrain
from harmonium.training.run import TrainingRun
from harmonium.training.schedules import SCHEDULES, Schedule
from harmonium.training.trainer import train

__all__ = [
    "SCHEDULES",
    "STOP",
    "Callback",
    "Schedule",
    "Stream",
    "TrainingDiverged",
    "TrainingRun",
    "Update",
    "callbacks",
    "fit_normal",
    "fold",
    "pretrain",
    "train",
]
