"""Estimators around trained machines, and in files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from harmonium import _checks
from harmonium.data import Encoder, Identity, Table, encoder_from_dict
from harmonium.estimators._intake import validated
from harmonium.estimators._progress import Progress
from harmonium.likelihood import LogPartition
from harmonium.machine import BoltzmannMachine, load
from harmonium.machine.storage import checksum

_PLAIN = (str, int, float, bool, type(None))


class Stored(ABC):
    """Makes estimators from machines and from files of machines, and saves them. Abstract."""

    random_state: Any
    _CALIBRATED: ClassVar[tuple[str, ...]] = ()
    """Fitted values that ``_calibrate`` finds for the machine as it is."""
    _rows_kept: Tensor | None = None
    """Some rows that the machine has learnt, as visible states; None: there are none."""

    @classmethod
    @abstractmethod
    def _sizes(cls, machine: BoltzmannMachine) -> Any:
        """``n_hidden`` of a machine; ValueError for one that is not of this estimator."""

    @abstractmethod
    def _calibrate(self, X: Any, weights: Any) -> None:
        """Sets the fitted values in ``_CALIBRATED`` from validated rows, once the machine is trained."""

    @abstractmethod
    def _keep_rows(self, X: Any) -> None:
        """Keeps some validated rows as those that the machine has learnt."""

    @abstractmethod
    def _adopt(self, machine: BoltzmannMachine) -> None:
        """Reads fitted values from a machine, beside its sizes; ValueError for one of another form."""

    @classmethod
    def from_machine(
        cls, machine: BoltzmannMachine, X: Any = None, *, encoder: Encoder | None = None, **parameters: Any
    ) -> Self:
        """An estimator that was fitted elsewhere: by ``harmonium.train``, or by the command line.

        Args:
            machine: trained; the estimator works on it, not on a copy.
            X: rows that the machine has learnt: annealing is checked on up to 1,000 of them, and the
                ``offset_`` of ``RBMOutlier`` is found on them. None: none, so that nothing vouches for an
                annealed ln Z.
            encoder: between data and states; None: the one in the machine's metadata, which makes frames of
                a table that the command line read from a file, or none at all, so that rows are states.
            **parameters: of the estimator, other than those that the machine shows.

        Raises:
            TypeError: no machine.
            ValueError: a machine of another form, or parameters out of range.
        """
        _checks.instance(machine, "machine", BoltzmannMachine, "a BoltzmannMachine")
        stored = machine.metadata.get("encoder")
        if encoder is None:
            encoder = Identity() if stored is None else encoder_from_dict(stored)
            if isinstance(encoder, Table):
                encoder = encoder.in_frames()
        hidden = machine.layers[machine.hidden[0]] if machine.hidden else None
        shown = {
            "n_hidden": cls._sizes(machine),
            "hidden": hidden.kind if hidden is not None else "bernoulli",
        }
        estimator = cls(**{**shown, **parameters})
        estimator._validate_params()  # type: ignore[attr-defined]
        estimator.machine_, estimator.encoder_ = machine, encoder  # type: ignore[attr-defined]
        estimator._generative = True
        estimator._data_width = machine.visible_width
        estimator._adopt(machine)
        estimator._remember(encoder)
        if X is not None:
            rows = validated(estimator, X, reset=False)
            estimator._keep_rows(rows)
            estimator._calibrate(rows, None)
        machine.metadata["encoder"] = encoder.to_dict()
        return estimator

    def _remember(self, encoder: Encoder) -> None:
        """Sets the attributes that ``fit`` leaves beside the machine, for a machine trained elsewhere."""
        decoded = encoder.decode(torch.zeros(1, self._data_width, dtype=torch.float64, device="cpu"))
        self.n_features_in_ = int(decoded.shape[1])
        names = encoder.names if isinstance(encoder, Table) else self._names_of_data()
        if len(names) == self.n_features_in_ and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(names, dtype=object)
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.history_: list[dict[str, Any]] = []
        self.n_updates_ = 0
        self._progress: Progress | None = None
        self._log_partition: tuple[Any, LogPartition] | None = None

    @classmethod
    def _kept(cls) -> tuple[str, ...]:
        """Names of fitted numbers that a file keeps."""
        return ("n_updates_", *cls._CALIBRATED)

    def _names_of_data(self) -> list[Any]:
        """Returns the names of the training data's columns but the label, from the machine's metadata."""
        metadata: dict[str, Any] = self.machine_.metadata  # type: ignore[attr-defined]
        about, label = (metadata.get(key) for key in ("data", "label"))
        names = about.get("names") if isinstance(about, dict) else None
        other = label.get("name") if isinstance(label, dict) else None
        return [name for name in names if name != other] if isinstance(names, (list, tuple)) else []

    _data_width: int
    _generative: bool

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the machine, with its encoder and the parameters, to a file of ``BoltzmannMachine.save``.

        ``harmonium.load`` reads the machine alone, and the command line takes the file for a run. ln Z is
        kept where it has been found. Not kept are the rows that it is checked on, the chains and the
        optimiser (pickle keeps them), and parameters that are objects of Python: a ``Rule``, a callable, a
        ``RandomState``.

        Args:
            path: of the file.
            overwrite: whether to replace a file that is there.

        Raises:
            FileExistsError: there is a file, and no ``overwrite``.
        """
        check_is_fitted(self)
        given = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        parameters = {name: x.item() if isinstance(x, np.generic) else x for name, x in given.items()}
        kept = {name: vars(self)[name] for name in self._kept() if name in vars(self)}
        machine: BoltzmannMachine = self.machine_  # type: ignore[attr-defined]
        about = {
            "name": type(self).__name__,
            "parameters": {name: x for name, x in parameters.items() if _is_plain(x)},
            "machine": digest_of(machine),
            "fitted": {"_generative": self._generative, **kept},
        }
        if self._log_partition is not None:
            settings, found = self._log_partition
            about["log_partition"] = {
                "settings": [x.item() if isinstance(x, np.generic) else x for x in settings],
                "found": found._asdict(),
            }
        described = copy(machine)  # with metadata of its own: a refused path changes nothing
        described.metadata = {**machine.metadata, "estimator": about}
        described.save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, *, device: torch.device | str = "cpu") -> Self:
        """The estimator that ``save`` wrote, or one around the machine of a run's folder.

        Args:
            path: the file, or the folder.
            device: where to put the machine.

        Raises:
            OSError, ValueError: as ``harmonium.load``, or the machine of another estimator.
        """
        machine = load(path, device=device)
        about = machine.metadata.get("estimator", {})
        try:
            name, parameters = about.get("name", cls.__name__), dict(about.get("parameters", {}))
            if name != cls.__name__:
                raise ValueError(
                    f"expected the machine of a {cls.__name__}, received a {name}'s; {name}.load reads it"
                )
            known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
            unknown = sorted(set(parameters) - known)
            if unknown:
                raise ValueError(f"expected parameters of {cls.__name__}, received {', '.join(unknown)}")
            estimator = cls.from_machine(machine, **parameters)
            kept = {"_generative"}
            if about.get("machine") in (None, digest_of(machine)):  # else it has learnt since
                kept |= {"n_updates_", *cls._CALIBRATED}
            for key, value in about.get("fitted", {}).items():
                if key in kept and isinstance(value, (bool, int, float)):
                    setattr(estimator, key, value)
            stored = about.get("log_partition")
            if stored is not None:
                found = LogPartition(**stored["found"])
                found = found._replace(doubts=tuple(found.doubts))
                estimator._log_partition = (tuple(stored["settings"]), found)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"path: {path}: {error}") from error
        return estimator


def digest_of(machine: BoltzmannMachine) -> str:
    """Returns a digest of layers, edges and parameters, by which numbers are known to be of a machine."""
    return checksum(machine.config(), {name: x.detach().cpu() for name, x in machine.state_dict().items()})


def _is_plain(value: Any) -> bool:
    """Returns whether JSON keeps a value as it is."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and type(x) in _PLAIN for key, x in value.items())
    if isinstance(value, (list, tuple)):
        return all(type(x) in _PLAIN for x in value)
    return type(value) in _PLAIN
