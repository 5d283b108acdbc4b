"""Metrics of held-out rows that a training follows; each takes tens of milliseconds."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._checks import Numbers
from harmonium.data import Rows
from harmonium.likelihood import (
    CHUNK_ROWS,
    find_log_partition,
    missing_pseudo_likelihood,
    predictive_log_score,
    pseudo_log_likelihood,
    read_rows,
    score_states,
    work_of_rows,
)
from harmonium.machine import BoltzmannMachine
from harmonium.sums import affordable, unit_updates
from harmonium.tables import Codec
from harmonium.tasks.evaluation import evaluate_labels
from harmonium.training import Metric

METRICS = ("pseudo-likelihood", "likelihood", "label", "predictive")
"""Names of metrics."""
_LOOK_ANNEALING: dict[str, Any] = {"chains": 50, "temperatures": 300}  # for one value of a metric
_LOOK_UNITS = 20_000  # visible units drawn for one pseudo-likelihood, over all rows
_HIDDEN_CELLS = 10_000  # at least, of which a tenth is hidden and asked for: few rows are asked repeatedly
_LOOK_ROWS = 1000  # of a likelihood or a bound, evenly spaced
_LOOK_SHARE = 1 / 32  # of the work that "auto" sums, for every value


def metrics_for(
    machine: BoltzmannMachine, X: Numbers | Rows, name: str | None = None, *, seed: int | torch.Generator = 0
) -> dict[str, Metric]:
    """Returns metrics of held-out rows for ``harmonium.train``, by their names in the history.

    Args:
        machine: Machine to be trained; its metadata may have a label.
        X: the held-out rows, visible states (rows, visible_width), NaN where missing.
        name: one of ``METRICS``; None: the first that applies: of the label where the machine learns to tell
            it, predictive of rows that lack cells, pseudo-likelihood, likelihood.
        seed: Seed of what is drawn, the same for every value.

    Returns:
        Functions of a machine and the held-out rows, the one to follow first.

    Raises:
        ValueError: an unknown name, or a metric that the machine does not have.

    Examples:
        >>> import harmonium as hm
        >>> machine, X = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(4)]), hm.data.bars_and_stripes()
        >>> metrics = hm.tasks.metrics_for(machine, X, "likelihood")
        >>> run = hm.train(machine, X, rule="pcd", updates=2, validation=X, metrics=metrics, progress=False)
        >>> list(run.metrics)
        ['log_likelihood']
    """
    codec, rows = Codec.of(machine), read_rows(machine, X)
    lacking = missing_pseudo_likelihood(machine)
    lacking = lacking or ("cells of the validation rows are missing" if rows.missing else None)
    labelled = codec.label is not None and any(
        not bool(codec.split(v)[1].isnan().any(1).all()) for v in rows.chunks(CHUNK_ROWS)
    )
    usual = "predictive" if rows.missing else "likelihood" if lacking else "pseudo-likelihood"
    usual = "label" if labelled and codec.objective != "joint" else usual
    chosen = _checks.one_of(usual if name is None else name, "metric", METRICS)
    if chosen == "label":
        if codec.label is None:
            raise ValueError("metric: expected another than label for a machine without one, received label")
        if not labelled:
            raise ValueError("metric: expected validation rows that have labels for label, received none")
        return _label_scores(seed)
    if chosen == "likelihood":
        return _likelihoods(codec, rows, seed)
    if chosen == "predictive":
        times = -(-_HIDDEN_CELLS // (len(rows) * sum(machine.layers[l].n_units for l in machine.visible)))
        return {
            "predictive_log_score": lambda machine, X: float(
                predictive_log_score(machine, X.to(machine.device).repeat(times, 1), seed=seed).mean()
            )
        }
    if lacking:
        raise ValueError(
            f"metric: there is no pseudo-likelihood to follow: {lacking}; likelihood and predictive are for "
            "any machine"
        )
    drawn = -(-_LOOK_UNITS // len(rows))
    units = drawn if drawn < sum(machine.layers[l].n_units for l in machine.visible) else None
    return {
        "pseudo_log_likelihood": lambda machine, X: float(
            pseudo_log_likelihood(machine, X, sampled=units, seed=seed).mean()
        )
    }


def _likelihoods(codec: Codec, rows: Rows, seed: int | torch.Generator) -> dict[str, Metric]:
    """Returns the mean log-likelihood, or a bound where too much is to be summed, with ln Z by a short AIS.

    Where ln Z is estimated, its standard error in the value before stands beside it; the report draws a band.
    """
    machine = codec.machine
    exact = affordable(unit_updates(machine.hamiltonian()), _LOOK_SHARE)
    some = Rows.of(rows.take(rows.spread(_LOOK_ROWS)), rows.dtype, missing=rows.missing)
    summed = machine.graph.independent and affordable(work_of_rows(machine, some), _LOOK_SHARE)
    method = "exact" if exact else "ais"
    errors = [0.0]

    def mean(machine: BoltzmannMachine, X: Tensor) -> float:
        every = Rows.of(X, X.dtype, missing=True)
        v = every.take(every.spread(_LOOK_ROWS)).to(machine.device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the error in the history says it too
            partition = find_log_partition(machine, v, method, reverse=False, seed=seed, **_LOOK_ANNEALING)
        errors[0] = partition.standard_error
        values = score_states(machine, v, partition.value, not summed) + codec.log_slopes(v)
        return float(values.mean())

    name = "log_likelihood" if summed else "variational_bound"
    return {name: mean} | ({} if exact else {f"{name}_standard_error": lambda machine, X: errors[0]})


def _label_scores(seed: int | torch.Generator) -> dict[str, Metric]:
    """Returns scores of the prediction of the label given the rest of each row."""
    scores: dict[str, float] = {}

    def mean(machine: BoltzmannMachine, X: Tensor) -> float:
        scores.update(evaluate_labels(Codec.of(machine), Rows.of(X, X.dtype, missing=True), seed=seed)[0])
        return scores["label_log_likelihood"]

    return {"label_log_likelihood": mean, "label_accuracy": lambda machine, X: scores["label_accuracy"]}
