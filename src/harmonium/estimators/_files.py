"""Estimators around trained machines, and in files of machines."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from harmonium.data import Encoder
from harmonium.estimators._fitted import Fitted, digest_of
from harmonium.estimators._training import structure_of
from harmonium.likelihood import LogPartition
from harmonium.machine import BoltzmannMachine
from harmonium.tables import Codec, Table

_PLAIN = (str, int, float, bool, type(None))


def put_around(estimator: Any, machine: BoltzmannMachine, encoder: Encoder, label_width: int) -> None:
    """Sets the fitted attributes of an estimator to a machine that was trained elsewhere."""
    width = machine.visible_width - label_width
    decoded = encoder.decode(torch.zeros(1, width, dtype=torch.float64, device="cpu"))
    estimator.n_features_in_ = int(decoded.shape[1])
    names = encoder.names if isinstance(encoder, Table) else Codec.of(machine).own_names()
    if len(names) == estimator.n_features_in_ and all(isinstance(name, str) for name in names):
        estimator.feature_names_in_ = np.array(names, dtype=object)
    seed = int(check_random_state(estimator.random_state).randint(2**31 - 1))
    settings = structure_of(estimator, machine)
    generative = machine.metadata.get("objective") != "discriminative"
    estimator._fitted = Fitted(
        machine, encoder, seed, estimator.n_features_in_, width, settings, generative=generative
    )


def described(estimator: Any) -> BoltzmannMachine:
    """Returns the machine of a fitted estimator with what its file keeps of the estimator in the metadata."""
    fitted: Fitted = estimator._fitted
    parameters = {known.name: _item(getattr(estimator, known.name)) for known in fields(estimator)}
    kept = {"_generative": fitted.generative, "n_updates_": fitted.n_updates, **fitted.numbers}
    about = {
        "name": type(estimator).__name__,
        "parameters": {name: x for name, x in parameters.items() if _is_plain(x)},
        "machine": digest_of(fitted.machine),
        "fitted": kept,
    }
    if fitted.log_partition is not None:
        settings, found = fitted.log_partition
        about["log_partition"] = {"settings": [_item(x) for x in settings], "found": found._asdict()}
    machine = copy(fitted.machine)  # with metadata of its own: a refused path changes nothing
    machine.metadata = {**machine.metadata, "estimator": about}
    return machine


def restored(kind: Any, machine: BoltzmannMachine) -> Any:
    """Returns the estimator that ``described`` the machine, or one with default parameters."""
    about = machine.metadata.get("estimator", {})
    name, parameters = about.get("name", kind.__name__), dict(about.get("parameters", {}))
    if name != kind.__name__:
        raise ValueError(
            f"expected the machine of a {kind.__name__}, received a {name}'s; {name}.load reads it"
        )
    unknown = sorted(set(parameters) - {known.name for known in fields(kind)})
    if unknown:
        raise ValueError(f"expected parameters of {kind.__name__}, received {', '.join(unknown)}")
    estimator = kind.from_machine(machine, **parameters)
    fitted: Fitted = estimator._fitted
    kept: dict[str, Any] = {key: x for key, x in about.get("fitted", {}).items() if type(x) in _PLAIN}
    fitted.generative = kept.get("_generative", fitted.generative)
    if about.get("machine") in (None, digest_of(machine)):  # else it has learnt since
        fitted.n_updates = kept.get("n_updates_", 0)
        fitted.numbers = {key: kept[key] for key in kind._NUMBERS if key in kept}
    stored = about.get("log_partition")
    if stored is not None:
        found = LogPartition(**stored["found"])
        fitted.log_partition = (tuple(stored["settings"]), found._replace(doubts=tuple(found.doubts)))
    return estimator


def _item(x: Any) -> Any:
    return x.item() if isinstance(x, np.generic) else x


def _is_plain(value: Any) -> bool:
    """Returns whether JSON keeps a value as it is."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and type(x) in _PLAIN for key, x in value.items())
    if isinstance(value, (list, tuple)):
        return all(type(x) in _PLAIN for x in value)
    return type(value) in _PLAIN
