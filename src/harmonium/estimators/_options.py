"""The parameters that all estimators share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import torch
from sklearn.utils._param_validation import Interval, StrOptions

from harmonium.data import BernoulliBinarise, Encoder
from harmonium.data.table import UNKNOWN
from harmonium.layers import Layer
from harmonium.learning import Rule
from harmonium.learning.rules import RECIPES
from harmonium.training import SCHEDULES, Schedule
from harmonium.training.optimizers import OPTIMIZERS, OptimizerFactory

BINARISE: dict[str, Encoder] = {"sample": BernoulliBinarise(0)}

COUNT = Interval(Integral, 1, None, closed="left")
_FROM_0 = Interval(Real, 0, None, closed="left")
_SHARE = Interval(Real, 0, 1, closed="neither")

CONSTRAINTS: dict[str, list[Any]] = {
    "visible": [StrOptions({"auto"}), StrOptions(Layer.registry.keys()), Mapping],  # units of users too
    "unknown": [StrOptions(set(UNKNOWN))],
    "binarise": [StrOptions(set(BINARISE)), None],
    "hidden": [StrOptions(Layer.registry.keys())],
    "hidden_states": [Interval(Integral, 2, None, closed="left")],
    "rule": [StrOptions(set(RECIPES)), Rule],
    "sweeps": [COUNT, None],
    "n_chains": [COUNT, None],
    "batch_size": [COUNT],
    "epochs": [COUNT, None],
    "max_updates": [COUNT, None],
    "centred": ["boolean"],
    "learning_rate": [_FROM_0],
    "optimizer": [StrOptions(set(OPTIMIZERS)), callable],
    "schedule": [StrOptions(set(SCHEDULES)), callable],
    "clip_norm": [Interval(Real, 0, None, closed="neither"), None],
    "weight_decay": [_FROM_0],
    "averaging": [_SHARE, None],
    "initial_std": [_FROM_0, None],
    "early_stopping": ["boolean"],
    "validation_fraction": [_SHARE],
    "n_iter_no_change": [COUNT],
    "warm_start": ["boolean"],
    "log_partition": [StrOptions({"auto", "exact", "ais"})],
    "ais_chains": [Interval(Integral, 2, None, closed="left")],
    "ais_temperatures": [COUNT],
    "dtype": [StrOptions({"float32", "float64"}), None],
    "verbose": ["verbose"],
    "device": [str, torch.device, None],
    "random_state": ["random_state"],
}


@dataclass(kw_only=True, eq=False, repr=False)
class Options:
    """The parameters of every estimator; ``RBM`` documents each.

    scikit-learn reads them off the signature, which ``dataclass`` makes of these fields and of those that an
    estimator adds, or gives another default.
    """

    visible: str | Mapping[Any, str] = "auto"
    unknown: str = "error"
    binarise: str | None = None
    hidden: str = "bernoulli"
    hidden_states: int = 2
    rule: str | Rule = "pcd"
    sweeps: int | None = None
    n_chains: int | None = None
    batch_size: int = 100
    epochs: int | None = None
    max_updates: int | None = None
    centred: bool = True
    learning_rate: float | None = 0.1
    optimizer: str | OptimizerFactory = "sgd"
    schedule: str | Schedule = "linear"
    clip_norm: float | None = 1.0
    weight_decay: float = 0.0
    averaging: float | None = None
    initial_std: float | None = None
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    warm_start: bool = False
    log_partition: str = "auto"
    ais_chains: int = 100
    ais_temperatures: int = 1000
    dtype: str | None = None
    verbose: int = 0
    device: str | torch.device | None = None
    random_state: Any = None
