"""Metrics on held-out data while a machine trains."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.cli.evaluate import cost_of_rows, enumeration_cost, spread
from harmonium.cli.predict import probabilities
from harmonium.cli.pseudo import bounded_pseudo_likelihood, visible_units
from harmonium.data import Codec, Rows
from harmonium.likelihood import (
    LogPartition,
    ais,
    exact_log_partition,
    log_likelihood,
    missing_pseudo_likelihood,
    predictive_log_score,
    variational_bound,
)
from harmonium.machine import BoltzmannMachine

METRICS = ("pseudo-likelihood", "likelihood", "label", "predictive")

Metric = Callable[[BoltzmannMachine, Tensor], float]

_UNITS = 20_000  # visible units drawn for one pseudo-likelihood, over all rows
_CELLS = 10_000  # at least, of which a tenth is hidden and asked for: few rows are asked again and again
_ROWS = 1000  # of a likelihood or a bound, evenly spaced
_STATES = 2.0**23  # units updated by an enumeration: tens of milliseconds
_CHAINS, _TEMPERATURES = 50, 300
_TOLERANCE = 1e-3  # of posteriors: what it still moves changes a bound in the second order


def metrics_of(coding: Codec, name: str | None, rows: Rows, seed: int) -> dict[str, Metric]:
    """Metrics by the name that they have in the history, the one to follow first.

    Args:
        coding: of the machine in training.
        name: one of ``METRICS``; None: the label where the machine learns it most, else the predictive score
            where cells are missing, else the pseudo-likelihood where there is one, else the likelihood.
        rows: that they will be asked for.
        seed: of whatever they draw: one for all evaluations, so that a curve shows the machine's changes and
            not those of the draws.

    Raises:
        ValueError: an unknown name, or what the machine does not have.
    """
    missing = missing_pseudo_likelihood(coding.machine)
    labelled = coding.label is not None and coding.objective != "joint"
    missing = missing or ("cells of the validation rows are missing" if rows.missing else None)
    usual = "predictive" if rows.missing else "likelihood" if missing else "pseudo-likelihood"
    known = coding.label is not None and _has_labels(coding, rows)
    usual = "label" if labelled and known else usual
    chosen = _checks.one_of(usual if name is None else name, "metric", METRICS)
    if chosen == "label":
        if coding.label is None:
            raise ValueError("metric: expected label with --label COLUMN, received it without")
        if not known:
            raise ValueError("metric: expected validation rows that have labels for label, received none")
        label = _Label(coding, seed)
        return {"label_log_likelihood": label.nats, "label_accuracy": label.accuracy}
    if chosen == "likelihood":
        likelihood = _Likelihood(coding, rows, seed)
        followed: dict[str, Metric] = {likelihood.name: likelihood.value}
        if not likelihood.exact:
            followed[f"{likelihood.name}_standard_error"] = likelihood.error
        return followed
    if chosen == "predictive":
        times = -(-_CELLS // (len(rows) * visible_units(coding.machine)))
        return {
            "predictive_log_score": lambda machine, X: float(
                predictive_log_score(machine, X.to(machine.device).repeat(times, 1), seed=seed).mean()
            )
        }
    if missing:
        raise ValueError(
            f"metric: there is no pseudo-likelihood to follow: {missing}; likelihood and predictive are for "
            "any machine"
        )
    units = -(-_UNITS // len(rows))
    return {
        "pseudo_log_likelihood": lambda machine, X: float(
            bounded_pseudo_likelihood(machine, X, units, seed).mean()
        )
    }


def _has_labels(coding: Codec, rows: Rows) -> bool:
    """Returns whether any row has a label."""
    return any(not bool(coding.split(v)[1].isnan().any(1).all()) for v in rows.chunks(_ROWS))


@final
class _Likelihood:
    """The mean log-likelihood, or a bound where hidden layers are joined, with ln Z by a short AIS."""

    def __init__(self, coding: Codec, rows: Rows, seed: int) -> None:
        machine = coding.machine
        self._seed = seed
        self._coding = coding
        self._error = 0.0
        self.exact = enumeration_cost(machine, range(len(machine.layers))) <= _STATES
        asked = Rows.of(spread(rows, _ROWS), rows.dtype, missing=rows.missing)
        self._summed = machine.graph.independent and cost_of_rows(machine, asked) <= _STATES
        self.name = "log_likelihood" if self._summed else "variational_bound"

    def value(self, machine: BoltzmannMachine, X: Tensor) -> float:
        v = spread(Rows.of(X, X.dtype, missing=True), _ROWS).to(machine.device)
        log_partition = self._log_partition(machine, v)
        self._error = log_partition.standard_error
        if self._summed:
            values = log_likelihood(machine, v, log_partition)
        else:
            values = variational_bound(machine, v, log_partition, tolerance=_TOLERANCE)
        return float((values + self._coding.log_slopes(v)).mean())

    def error(self, machine: BoltzmannMachine, X: Tensor) -> float:
        """Of ln Z in the value asked for last; the report draws it as a band."""
        return self._error

    def _log_partition(self, machine: BoltzmannMachine, v: Tensor) -> LogPartition:
        if self.exact:
            return LogPartition.exact(exact_log_partition(machine))
        complete = v[~v.isnan().any(1)]
        base = complete if len(complete) else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the error in the history says it too
            return ais(machine, _CHAINS, _TEMPERATURES, data=base, reverse=False, seed=self._seed)


@final
class _Label:
    """Scores the prediction of the label given the rest of each row."""

    def __init__(self, coding: Codec, seed: int) -> None:
        assert coding.label is not None
        self._coding, self._seed = coding, seed
        self._place = coding.unit_of(str(coding.label.name))
        self._accuracy = 0.0

    def nats(self, machine: BoltzmannMachine, X: Tensor) -> float:
        X = X[~X[:, self._place.states].isnan().any(1)]
        p, _ = probabilities(self._coding, self._place, X, "auto", self._seed)
        own = X[:, self._place.states].argmax(1)
        self._accuracy = float((p.argmax(1) == own).double().mean())
        return float(p[torch.arange(len(p), device="cpu"), own].log().mean())

    def accuracy(self, machine: BoltzmannMachine, X: Tensor) -> float:
        """Returns the accuracy that the last call of ``nats`` found; the arguments are not read."""
        return self._accuracy
