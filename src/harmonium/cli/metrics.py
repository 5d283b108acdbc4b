"""Metrics on held-out data while a machine trains."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.cli.coding import visible_units
from harmonium.cli.scores import (
    bounded_pseudo_likelihood,
    probabilities,
    spread,
    work_of_rows,
)
from harmonium.data import Rows
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
from harmonium.sums import UNASKED, work
from harmonium.tables import Codec

METRICS = ("pseudo-likelihood", "likelihood", "label", "predictive")

Metric = Callable[[BoltzmannMachine, Tensor], float]

_UNITS = 20_000  # visible units drawn for one pseudo-likelihood, over all rows
_CELLS = 10_000  # at least, of which a tenth is hidden and asked for: few rows are asked again and again
_ROWS = 1000  # of a likelihood or a bound, evenly spaced
_WORK = UNASKED / 32  # unit updates of a sum at every look: tens of milliseconds
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
        return _label_scores(coding, str(coding.label.name), seed)
    if chosen == "likelihood":
        return _likelihoods(coding, rows, seed)
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


def _likelihoods(coding: Codec, rows: Rows, seed: int) -> dict[str, Metric]:
    """Returns the mean log-likelihood, or a bound where too much is to be summed, with ln Z by a short AIS.

    Where ln Z is estimated, its standard error in the value before stands beside it; the report draws a band.
    """
    exact = work(coding.machine.hamiltonian()) <= _WORK
    asked = Rows.of(spread(rows, _ROWS), rows.dtype, missing=rows.missing)
    summed = coding.machine.graph.independent and work_of_rows(coding.machine, asked) <= _WORK
    errors = [0.0]

    def mean(machine: BoltzmannMachine, X: Tensor) -> float:
        v = spread(Rows.of(X, X.dtype, missing=True), _ROWS).to(machine.device)
        if exact:
            log_partition = LogPartition.exact(exact_log_partition(machine))
        else:
            complete = v[~v.isnan().any(1)]
            base = complete if len(complete) else None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the error in the history says it too
                log_partition = ais(machine, _CHAINS, _TEMPERATURES, data=base, reverse=False, seed=seed)
        errors[0] = log_partition.standard_error
        if summed:
            values = log_likelihood(machine, v, log_partition)
        else:
            values = variational_bound(machine, v, log_partition, tolerance=_TOLERANCE)
        return float((values + coding.log_slopes(v)).mean())

    name = "log_likelihood" if summed else "variational_bound"
    return {name: mean} | ({} if exact else {f"{name}_standard_error": lambda machine, X: errors[0]})


def _label_scores(coding: Codec, label: str, seed: int) -> dict[str, Metric]:
    """Returns scores of the prediction of the label given the rest of each row."""
    place, right = coding.unit_of(label), [0.0]

    def nats(machine: BoltzmannMachine, X: Tensor) -> float:
        X = X[~X[:, place.states].isnan().any(1)]
        p, _ = probabilities(coding, place, X, "auto", seed)
        own = X[:, place.states].argmax(1)
        right[0] = float((p.argmax(1) == own).double().mean())
        return float(p[torch.arange(len(p), device="cpu"), own].log().mean())

    return {"label_log_likelihood": nats, "label_accuracy": lambda machine, X: right[0]}
