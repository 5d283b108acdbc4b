"""The parameters that all estimators share, and how an estimator declares one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from numbers import Integral, Real
from typing import Any

import torch
from sklearn.utils._param_validation import Interval, StrOptions

from harmonium import _checks
from harmonium.data import BernoulliBinarise, Encoder
from harmonium.layers import Layer
from harmonium.learning import Rule, rules
from harmonium.tables import UNKNOWN
from harmonium.training import (
    METHODS,
    OPTIMIZERS,
    PLAIN,
    SCHEDULES,
    OptimizerFactory,
    Schedule,
    say_unused,
)

BINARISE: dict[str, Encoder] = {"sample": BernoulliBinarise(0)}

COUNT = Interval(Integral, 1, None, closed="left")
FROM_0 = Interval(Real, 0, None, closed="left")
_SHARE = Interval(Real, 0, 1, closed="neither")
_KINDS = StrOptions(Layer.registry.keys())  # units of users too


def option(default: Any, *allowed: Any, method: str | None = None, train: bool = False) -> Any:
    """Declares a parameter of an estimator as a field of its dataclass.

    Args:
        default: the value where none is given.
        *allowed: what it may be, in the terms of scikit-learn's ``_parameter_constraints``. A subclass that
            only changes the default repeats none of it.
        method: the one method of training that uses it; None: all do.
        train: whether ``harmonium.train`` takes it as a keyword of the same name.
    """
    return field(default=default, metadata={"allowed": list(allowed), "method": method, "train": train})


def by_chains(default: Any, *allowed: Any, train: bool = False) -> Any:
    """Declares a parameter that training by chains alone uses, see ``option``."""
    return option(default, *allowed, method="chains", train=train)


@dataclass(kw_only=True, eq=False, repr=False)
class Options:
    """The parameters of every estimator; ``RBM`` documents each.

    scikit-learn reads them off the signature, which ``dataclass`` makes of these fields and of those that an
    estimator adds, or gives another default.
    """

    visible: str | Mapping[Any, str] = option("auto", StrOptions({"auto"}), _KINDS, Mapping)
    unknown: str = option("missing", StrOptions(set(UNKNOWN)))
    binarise: str | None = option(None, StrOptions(set(BINARISE)), None)
    hidden_kind: str = option("bernoulli", _KINDS)
    hidden_states: int = option(2, Interval(Integral, 2, None, closed="left"))
    method: str = option("auto", StrOptions(set(METHODS)))
    rule: str | Rule = by_chains("auto", StrOptions({*rules.RECIPES, "auto"}), Rule)
    sweeps: int | None = by_chains(None, COUNT, None)
    chains: int | None = by_chains(None, COUNT, None)
    batch_size: int = by_chains(100, COUNT, train=True)
    epochs: int | None = by_chains(None, COUNT, None)
    max_updates: int | None = by_chains(None, COUNT, None)
    centred: bool | None = by_chains(None, "boolean", None)
    learning_rate: float | None = by_chains(None, FROM_0, None)
    optimizer: str | OptimizerFactory = by_chains(
        "auto", StrOptions({*OPTIMIZERS, "auto"} - {"lbfgs"}), callable
    )
    schedule: str | Schedule = by_chains(PLAIN.schedule, StrOptions(set(SCHEDULES)), callable)
    clip_norm: float | str | None = by_chains(
        "auto", Interval(Real, 0, None, closed="neither"), StrOptions({"auto"}), None
    )
    weight_decay: float = by_chains(0.0, FROM_0, train=True)
    averaging: float | None = by_chains(PLAIN.averaging, _SHARE, None, train=True)
    initial_std: float | None = by_chains(PLAIN.initial_std, FROM_0, None)
    init: str | None = by_chains(None, str, None)
    early_stopping: bool = by_chains(False, "boolean")
    validation_fraction: float = by_chains(0.1, _SHARE)
    n_iter_no_change: int = by_chains(10, COUNT)
    on_divergence: str = by_chains("slower", StrOptions({"slower", "raise"}))
    warm_start: bool = option(False, "boolean")
    log_partition: str = option("auto", StrOptions({"auto", "exact", "ais"}))
    ais_chains: int = option(100, Interval(Integral, 2, None, closed="left"))
    ais_temperatures: int = option(1000, COUNT)
    dtype: str | None = option(None, StrOptions({"float32", "float64"}), None)
    verbose: int = option(0, "verbose")
    device: str | torch.device | None = option(None, str, torch.device, None, train=True)
    random_state: Any = option(None, "random_state")

    def _list_unused(self, method: str) -> list[str]:
        """Lists the parameters that are given and that a method of training does not use."""
        declared = self._declared()
        plain = {known.name: known.default for known in fields(self)}
        return [
            name
            for name, about in declared.items()
            if about["method"] not in (None, method) and getattr(self, name) != plain[name]
        ]

    def _warn_of_unused(self, method: str) -> None:
        """Warns of parameters that are given and that the method of training in force does not use."""
        if unused := self._list_unused(method):
            _checks.warn(f"{type(self).__name__}: {say_unused(unused, method)}")

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
