"""The parameters that all estimators share, and how an estimator declares one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from numbers import Integral, Real
from typing import Any

import torch
from sklearn.utils._param_validation import Interval, StrOptions

from harmonium._settings import any_given
from harmonium.data import BernoulliBinarise, Encoder
from harmonium.layers import Layer
from harmonium.learning import Rule, rules
from harmonium.tables import UNKNOWN
from harmonium.training import FEW_UNITS, OPTIMIZERS, SCHEDULES, OptimizerFactory, Schedule, suits_fit_table

BINARISE: dict[str, Encoder] = {"sample": BernoulliBinarise(0)}

COUNT = Interval(Integral, 1, None, closed="left")
FROM_0 = Interval(Real, 0, None, closed="left")
_SHARE = Interval(Real, 0, 1, closed="neither")
_CHAINS = (  # parameters of training by chains: one that is not at its default asks for them
    *("rule", "sweeps", "n_chains", "batch_size", "epochs", "max_updates", "centred", "learning_rate"),
    *("optimizer", "schedule", "clip_norm", "weight_decay", "averaging", "initial_std", "early_stopping"),
    *("validation_fraction", "n_iter_no_change", "warm_start", "hidden", "hidden_states", "binarise"),
)
_KINDS = StrOptions(Layer.registry.keys())  # units of users too


def option(default: Any, *allowed: Any, train: bool = False) -> Any:
    """Declares a parameter of an estimator as a field of its dataclass.

    Args:
        default: the value where none is given.
        *allowed: what it may be, in the terms of scikit-learn's ``_parameter_constraints``. A subclass that
            only changes the default repeats none of it.
        train: whether ``harmonium.train`` takes it as a keyword of the same name.
    """
    return field(default=default, metadata={"allowed": list(allowed), "train": train})


@dataclass(kw_only=True, eq=False, repr=False)
class Options:
    """The parameters of every estimator; ``RBM`` documents each.

    scikit-learn reads them off the signature, which ``dataclass`` makes of these fields and of those that an
    estimator adds, or gives another default.
    """

    visible: str | Mapping[Any, str] = option("auto", StrOptions({"auto"}), _KINDS, Mapping)
    unknown: str = option("missing", StrOptions(set(UNKNOWN)))
    binarise: str | None = option(None, StrOptions(set(BINARISE)), None)
    hidden: str = option("bernoulli", _KINDS)
    hidden_states: int = option(2, Interval(Integral, 2, None, closed="left"))
    rule: str | Rule = option("pcd", StrOptions(set(rules.RECIPES)), Rule)
    sweeps: int | None = option(None, COUNT, None)
    n_chains: int | None = option(None, COUNT, None)
    batch_size: int = option(100, COUNT, train=True)
    epochs: int | None = option(None, COUNT, None)
    max_updates: int | None = option(None, COUNT, None)
    centred: bool = option(True, "boolean")
    learning_rate: float | None = option(0.1, FROM_0)
    optimizer: str | OptimizerFactory = option("sgd", StrOptions(set(OPTIMIZERS)), callable)
    schedule: str | Schedule = option("linear", StrOptions(set(SCHEDULES)), callable)
    clip_norm: float | None = option(1.0, Interval(Real, 0, None, closed="neither"), None, train=True)
    weight_decay: float = option(0.0, FROM_0, train=True)
    averaging: float | None = option(None, _SHARE, None, train=True)
    initial_std: float | None = option(None, FROM_0, None)
    early_stopping: bool = option(False, "boolean")
    validation_fraction: float = option(0.1, _SHARE)
    n_iter_no_change: int = option(10, COUNT)
    on_divergence: str = option("slower", StrOptions({"slower", "raise"}))
    warm_start: bool = option(False, "boolean")
    log_partition: str = option("auto", StrOptions({"auto", "exact", "ais"}))
    ais_chains: int = option(100, Interval(Integral, 2, None, closed="left"))
    ais_temperatures: int = option(1000, COUNT)
    dtype: str | None = option(None, StrOptions({"float32", "float64"}), None)
    verbose: int = option(0, "verbose")
    device: str | torch.device | None = option(None, str, torch.device, None, train=True)
    random_state: Any = option(None, "random_state")

    def _trains_exactly(self, encoder: Encoder, layers: list[Layer], rows: int) -> bool:
        """Returns whether ``fit`` trains without chains: a table that it suits, and no parameter of chains.

        Args:
            encoder: of the rows.
            layers: the visible layers.
            rows: their number.
        """
        if any_given(self, _CHAINS):
            return False
        size = getattr(self, "n_hidden", None)
        size = FEW_UNITS if size is None else size
        return isinstance(size, Integral) and suits_fit_table(encoder, layers, rows, int(size))

    @property
    def _parameter_constraints(self) -> dict[str, list[Any]]:
        """The values that each parameter may have, as scikit-learn checks them."""
        return {name: declared["allowed"] for name, declared in self._declared().items()}

    def _train_settings(self) -> dict[str, Any]:
        """Returns the parameters that ``harmonium.train`` takes by their names."""
        return {name: getattr(self, name) for name, declared in self._declared().items() if declared["train"]}

    def _declared(self) -> dict[str, Mapping[str, Any]]:
        """Returns what ``option`` was told of each parameter, by the class nearest to the estimator's own."""
        classes = [each for each in reversed(type(self).__mro__) if is_dataclass(each)]
        return {known.name: known.metadata for each in classes for known in fields(each) if known.metadata}
