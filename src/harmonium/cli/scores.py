"""Scores of a machine on rows, after training and at looks during it: ln Z, likelihoods, predicted labels."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium import _checks
from harmonium.chains import Gibbs, run
from harmonium.cli.output import Listing, listening, working
from harmonium.data import DataSet, Rows
from harmonium.ladder import Ladder, LadderPartition, likelihood_curve, log_partitions
from harmonium.likelihood import (
    LogPartition,
    ais,
    describe_excess,
    exact_log_likelihood,
    exact_log_partition,
    excess_of_rows,
    log_likelihood,
    missing_pseudo_likelihood,
    predictive_log_score,
    pseudo_log_likelihood,
    variational_bound,
)
from harmonium.machine import BoltzmannMachine
from harmonium.report.moments import PairStatistics
from harmonium.sums import affordable, unit_updates
from harmonium.tables import Codec, Labels, Place, score_separate, separate
from harmonium.tasks import log_probabilities

BASE_ROWS = 10_000  # of the base of annealing: its means are then known to a percent
_PSEUDO_UNITS = 200_000  # visible units drawn for the pseudo-likelihood, over all rows
CHUNK_ROWS = 2048  # scored at a time: 16 MiB of 1,000 columns in float64
_TOLERANCE = 1e-4  # Means of the posterior that are wrong by so much change the bound by its square.

CORRELATION = "pair_correlation"
"""Name of the metric of --until-correlation."""
_NOISE_CHAINS, _NOISE_SWEEPS = 1000, 50  # of it: where the curves of decision 18 had their highest points

METRICS = ("pseudo-likelihood", "likelihood", "label", "predictive")
"""Names of what --metric follows on held-out rows; a look is to take tens of milliseconds."""
Metric = Callable[[BoltzmannMachine, Tensor], float]
_LOOK_UNITS = 20_000  # visible units drawn for one pseudo-likelihood, over all rows
_HIDDEN_CELLS = 10_000  # at least, of which a tenth is hidden and asked for: few rows are asked repeatedly
_LOOK_ROWS = 1000  # of a likelihood or a bound, evenly spaced
_LOOK_SHARE = 1 / 32  # of the work that "auto" sums, at every look
LOOK_ANNEALING = 50, 300  # chains and temperatures
_ROUGH_TOLERANCE = 1e-3  # of the posterior at a look, which is one number among many


def estimate(
    machine: BoltzmannMachine,
    base_rows: Rows | None,
    base: str | None,
    seed: int,
    *,
    method: str = "auto",
    chains: int = 100,
    temperatures: int = 1000,
    reverse: bool = True,
    kept: Ladder | None = None,
) -> tuple[LogPartition, dict[str, Any], list[str]]:
    """ln Z by the ``method``, what is to be said of it in a table, and notes."""
    exact = method == "exact" or (
        method == "auto" and affordable(unit_updates(machine.hamiltonian(forbidden=True)))
    )
    table: dict[str, Any]
    if exact:
        with working("enumerating states for ln Z"):
            log_partition = LogPartition.exact(exact_log_partition(machine))
        table = {"method": "exact", "value": log_partition.value, "standard_error": 0.0}
        return log_partition, table, []
    visible = None if base_rows is None else spread(base_rows, BASE_ROWS).to(machine.device)
    if method == "ladder":
        with listening(f"running {chains} chains on a ladder for ln Z") as notes:
            found = log_partitions(machine, kept, data=visible, chains=chains, seed=seed, progress=False)
        log_partition, seen = found.log_partition, found.traffic
        table = {
            "method": "ladder",
            **{name: x for name, x in log_partition._asdict().items() if name not in ("lower", "upper")},
            "chains": chains,
            "rungs": len(found.values),
            "overlap": float(found.overlaps.min()),
            "renewed": seen.renewed,
            "round_trips": seen.round_trips,
            "integrated": float(found.integrated[-1]),
            "base": base or "noise",
            "made": "along the couplings" if kept is None else "along the training",
        }
        if kept is not None and kept.ages is not None:
            table["along"] = along(machine, [*kept.ages, None], found, visible)
    else:
        with listening(f"annealing {chains} chains over {temperatures} temperatures for ln Z") as doubts:
            log_partition = ais(machine, chains, temperatures, data=visible, reverse=reverse, seed=seed)
        notes = [doubt.replace("more temperatures", "more --temperatures") for doubt in doubts]
        if log_partition.lower <= log_partition.upper < log_partition.value:
            notes.append(
                "log_partition: the upper bound lies below the estimate; by chance, or as the chains of the "
                "reverse run are not mixed"
            )
        numbers = log_partition._asdict()
        ends = {name: numbers.pop(name) for name in ("lower", "upper")}
        table = {"method": "ais", **{name: x if isfinite(x) else None for name, x in ends.items()}, **numbers}
        table.update(chains=chains, temperatures=temperatures)
        table["base"] = base or "pilot run of the machine"
    return log_partition, table, notes


def ages_of(kept: Ladder) -> list[float]:
    """Returns the updates of all machines of a ladder, or their numbers; the top has the last rung's."""
    assert kept.rungs is not None
    ages = list(map(float, range(len(kept.rungs)))) if kept.ages is None else list(kept.ages)
    return [*ages, ages[-1]]


def along(
    machine: BoltzmannMachine, ages: Sequence[float | None], partition: LadderPartition, rows: Tensor | None
) -> Listing:
    """ln Z with its standard error, and the mean log-likelihood of rows, of every machine of a ladder."""
    columns = {
        "updates": ages,
        "log_partition": partition.values.tolist(),
        "standard_error": partition.standard_errors.tolist(),
    }
    if rows is not None and machine.graph.independent:
        columns["log_likelihood"] = likelihood_curve(machine, partition, rows).tolist()
    return Listing(dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True))


def evaluate_rows(
    coding: Codec,
    rows: Rows,
    log_partition: LogPartition,
    seed: int,
    notes: list[str],
    shares: Tensor | None = None,
    alone: BoltzmannMachine | None = None,
    shares_alone: Tensor | None = None,
) -> dict[str, Any]:
    """Returns the scores of rows, means and their standard errors, in nats.

    ``shares`` are ln p(cells | states) of each row, (rows,), see ``Codec.log_shares``; None: 0. ``alone`` is
    the machine of ``separate_columns``, whose scores stand beside, with its own shares; None: they do not.
    """
    machine = coding.machine
    values: list[Tensor] = []
    simplest: list[Tensor] = []
    pseudo: list[Tensor] = []
    deep = not machine.graph.independent
    cost = work_of_rows(machine, rows)
    if deep:  # ln Z is then summed for every chunk too
        cost += unit_updates(machine.hamiltonian()) * -(-len(rows) // CHUNK_ROWS)
    unavailable = not affordable(cost)
    name = "variational_bound" if unavailable else "log_likelihood"
    lacking = missing_pseudo_likelihood(machine)
    notes += notes_of_rows(coding, rows, name)
    if rows.missing:
        lacking = lacking or "cells are missing"
    if unavailable:
        which = "with hidden layers that are joined" if deep else "of missing cells, or else of hidden units"
        notes.append(
            f"log_likelihood: not available, too many states to enumerate {which}; variational_bound is "
            "below it as far as ln Z is right"
        )
    if lacking:
        notes.append(f"pseudo_log_likelihood: not available, {lacking}")
    n_units = visible_units(machine)
    units = min(n_units, -(-_PSEUDO_UNITS // len(rows)))
    if not lacking and units < n_units:
        notes.append("pseudo_log_likelihood: from visible units drawn for every row, not from all")

    way: Literal["sums", "enumeration", "bound"]
    way = "bound" if unavailable else "enumeration" if deep else "sums"
    for number, chunk in enumerate(rows.chunks(CHUNK_ROWS)):
        v = chunk.to(machine.device)
        values.append(score_rows(coding, v, log_partition.value, way, _TOLERANCE))
        if alone is not None:
            simplest.append(torch.stack(score_separate(alone, v)).sum(0) + coding.log_slopes(v))
        if not lacking:
            pseudo.append(bounded_pseudo_likelihood(machine, v, units, seed + number))
    if shares is not None:
        values = [torch.cat(values).cpu() + shares]
    if shares_alone is not None:
        simplest = [torch.cat(simplest).cpu() + shares_alone]
    mean, error = _mean(values)
    enumerated = deep and not unavailable
    limits: dict[str, float | None] = {}
    if (
        not enumerated and log_partition.ess < inf and log_partition.is_bounded
    ):  # as ln Z rises, likelihoods fall
        lift, drop = (log_partition.value - z for z in (log_partition.lower, log_partition.upper))
        limits["log_likelihood_lower"] = None if mean is None or drop == -inf else mean + drop
        limits["log_likelihood_upper"] = None if mean is None or unavailable else mean + lift
    sure = coding.density or rows.missing or enumerated or log_partition.ess == inf
    excess = 0.0 if sure else excess_of_rows(torch.cat(values))
    if mean is not None and excess > 0:
        notes.append(describe_excess(log_partition.value, excess))
        if not unavailable:
            limits["log_likelihood_upper"] = mean - excess
    pseudo_mean, pseudo_error = _mean(pseudo)
    return {
        "rows": len(rows),
        **_of_labels(coding, rows, notes, seed, alone),
        **limits,
        "log_likelihood": None if unavailable else mean,
        "rows_standard_error": error,
        "log_partition_standard_error": 0.0 if enumerated else log_partition.standard_error,
        **({"variational_bound": mean} if unavailable else {}),
        **({"independent_columns_log_likelihood": _mean(simplest)[0]} if simplest else {}),
        "pseudo_log_likelihood": pseudo_mean,
        "pseudo_standard_error": pseudo_error,
    }


def separate_columns(coding: Codec, known: Mapping[str, Rows], base: str) -> tuple[BoltzmannMachine, str]:
    """Returns the machine of columns that nothing joins, and the name of the rows that it is fitted to.

    These are the training data, or the base where they are not at hand.

    Args:
        coding: Codec of the machine.
        known: Rows by the names of their data.
        base: one of these names.
    """
    source, rows = coding.source, known[base]
    if source is not None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the training has told them
                rows = known.get(source) or coding.observed_rows(coding.read(source), missing=True)
            base = source
        except (ValueError, OSError, ImportError):
            pass
    machine = coding.machine
    return separate(machine, spread(rows, BASE_ROWS).to(machine.device, torch.float64)), base


def notes_of_rows(coding: Codec, rows: Rows, name: str) -> list[str]:
    """Returns notes on what a score of this name compares in rows: observed cells, densities."""
    notes = [f"{name}: of rows with missing cells, of what they show"] if rows.missing else []
    if coding.density:
        of = "" if name == "log_likelihood" else "of "
        notes.append(f"{name}: {of}a density in the units of the data")
    return notes


def score_rows(
    coding: Codec,
    v: Tensor,
    log_partition: float,
    way: Literal["sums", "enumeration", "bound"],
    tolerance: float,
) -> Tensor:
    """Returns ln p of every row in the units of the data, (rows,) float64, or a bound below it.

    Args:
        coding: Codec of the machine and its data.
        v: visible states, (rows, visible_width).
        log_partition: ln Z.
        way: "sums" over missing cells and hidden layers that are not joined, "enumeration" also of joined
            ones, with their own ln Z, or the variational "bound".
        tolerance: Tolerance of the bound's posterior.
    """
    if way == "bound":
        values = variational_bound(coding.machine, v, log_partition, tolerance=tolerance)
    elif way == "enumeration":
        values = exact_log_likelihood(coding.machine, v)
    else:
        values = log_likelihood(coding.machine, v, log_partition)
    return values + coding.log_slopes(v)


def score_each(coding: Codec, rows: Rows, dataset: DataSet) -> tuple[str, Tensor]:
    """Scores every row: "log_likelihood" where ln Z can be summed in seconds, else "energy", (rows,) float64.

    The energy is that of hidden units summed out and of the units of the data: -ln p - ln Z.

    Raises:
        ValueError: hidden layers that are joined and too many to sum over.
    """
    machine = coding.machine
    known, deep = affordable(unit_updates(machine.hamiltonian())), not machine.graph.independent
    if deep and not known:
        raise ValueError(
            "RUN: expected hidden layers that no edge joins, or few hidden units, for score, received "
            "others; harmonium evaluate bounds their mean"
        )
    partition = exact_log_partition(machine) if known else 0.0
    way: Literal["sums", "enumeration"] = "enumeration" if deep else "sums"
    chunks = (chunk.to(machine.device) for chunk in rows.chunks(CHUNK_ROWS))
    values = torch.cat([score_rows(coding, v, partition, way, _TOLERANCE).cpu() for v in chunks])
    shares = coding.log_shares(dataset, machine)
    values = values if shares is None else values + shares.sum(1)
    return ("log_likelihood", values) if known else ("energy", -values)


def score_labels(coding: Codec, v: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores the prediction of the label given the rest of each row that has one.

    Returns:
        Whether the most probable label is the row's own, ln p of its own label, and whether chains drew what
        the row lacks, each (rows with a label,).
    """
    assert coding.label is not None
    place = coding.unit_of(str(coding.label.name))
    v = coding.within(v[~v[:, place.states].isnan().any(1)])
    if not len(v):
        return v.new_zeros(0).bool(), v.new_zeros(0), v.new_zeros(0).bool()
    log_p, drawn = log_probabilities(coding.machine, v, place.layer, place.unit, seed=seed)
    log_p, own = log_p[:, 0], v[:, place.states].argmax(1)
    return log_p.argmax(1) == own, log_p.gather(1, own.unsqueeze(1)).squeeze(1), drawn


def _of_labels(
    coding: Codec, rows: Rows, notes: list[str], seed: int, alone: BoltzmannMachine | None
) -> dict[str, float]:
    """Returns accuracy and mean ln p of the labels of rows, beside those of frequencies; adds notes."""
    if coding.label is None:
        return {}
    if coding.objective == "discriminative":
        notes.append(
            "log_likelihood: of a machine that has learned the label given the rest, and not the rest"
        )
    chunks = (chunk.to(coding.machine.device) for chunk in rows.chunks(CHUNK_ROWS))
    right, nats, drawn = map(torch.cat, zip(*(score_labels(coding, v, seed) for v in chunks), strict=True))
    if len(right) < len(rows):
        notes.append(f"label_accuracy: of the {len(right)} rows that have a label")
    if not len(right):
        return {}
    if bool(drawn.any()):
        notes.append("label_log_likelihood: by chains, as there are too many states to count")
    states = torch.cat([coding.split(v)[1].double() for v in rows.chunks(CHUNK_ROWS)])
    known = ~states.isnan().any(1)
    labels = coding.label.coding.decode(states[known].cpu().numpy())
    found = {
        "label_accuracy": float(right.double().mean()),
        "majority_class_accuracy": _share_of_commonest(labels),
        "label_log_likelihood": float(nats.mean()),
    }
    if alone is not None:
        by_frequency = [score_separate(alone, v.to(alone.device))[-1] for v in rows.chunks(CHUNK_ROWS)]
        mean = torch.cat(by_frequency)[known.to(alone.device)].mean()
        found["label_frequencies_log_likelihood"] = float(mean)
    return found


class CellScore(NamedTuple):
    """Score of a column beside that of its simplest prediction, over the rows that have a cell.

    Attributes:
        name: "accuracy", or "root_mean_square_error" of numbers.
        value: of what was predicted.
        simplest_name: "majority_class_accuracy", or "standard_deviation" of numbers.
        simplest: of the commonest label, or of the mean, of these rows.
        rows: their number.
    """

    name: str
    value: float
    simplest_name: str
    simplest: float
    rows: int

    def entries(self) -> dict[str, float]:
        """Returns the scores by their names, for a result."""
        return {self.name: self.value, self.simplest_name: self.simplest, "rows_scored": self.rows}


def score_cells(place: Place, truth: NDArray[Any], best: NDArray[Any]) -> CellScore | None:
    """Scores states of a column, (rows, states), over the rows that have it, NaN where they lack it.

    None where there are no such rows.
    """
    known = ~np.isnan(truth[:, 0])
    if not known.any():
        return None
    given, found = (place.column.coding.decode(states[known]) for states in (truth, best))
    if isinstance(place.column.coding, Labels):
        right = float(np.mean([a == b for a, b in zip(given, found, strict=True)]))
        return CellScore(
            "accuracy", right, "majority_class_accuracy", _share_of_commonest(given), int(known.sum())
        )
    error = float(np.sqrt(np.mean((given - found) ** 2)))
    return CellScore(
        "root_mean_square_error", error, "standard_deviation", float(np.std(given)), int(known.sum())
    )


def _share_of_commonest(labels: NDArray[Any]) -> float:
    """Returns the share of the commonest label, (rows, ...) of one column."""
    return max(Counter(map(str, labels)).values()) / len(labels)


def _mean(parts: list[Tensor]) -> tuple[float | None, float | None]:
    """Returns the mean of all values and its standard error, None where there are too few."""
    if not parts:
        return None, None
    values = torch.cat(parts)
    error = float(values.std()) / len(values) ** 0.5 if len(values) > 1 else None
    return float(values.mean()), error


def work_of_rows(machine: BoltzmannMachine, rows: Rows) -> float:
    """Returns the unit updates of a sum over what is left to sum over in rows; see ``sums.unit_updates``."""
    if machine.graph.independent and not rows.missing:
        return 0.0
    hamiltonian = machine.hamiltonian()
    return sum(unit_updates(hamiltonian, chunk.to(machine.device)) for chunk in rows.chunks(CHUNK_ROWS))


def whole(rows: Rows) -> Rows | None:
    """The rows of which nothing is missing; None: there are none."""
    if not rows.missing:
        return rows
    states = rows.take(torch.arange(len(rows)))
    states = states[~states.isnan().any(1)]
    return Rows.of(states, rows.dtype) if len(states) else None


def spread(rows: Rows, most: int) -> Tensor:
    """At most so many rows, evenly spaced, since data are often sorted."""
    if len(rows) <= most:
        return rows.take(torch.arange(len(rows)))
    return rows.take(torch.linspace(0, len(rows) - 1, most, dtype=torch.float64).long())


def spread_weighed(rows: Rows, weights: Tensor | None, most: int) -> tuple[Tensor, Tensor | None] | None:
    """Returns at most so many of the rows that lack no cell, with their weights; None: there are none."""
    complete = whole(rows)
    if complete is None or weights is None:
        return None if complete is None else (spread(complete, most), None)
    weights = weights[~rows.all().isnan().any(1)] if rows.missing else weights
    return spread(complete, most), spread(Rows.of(weights.unsqueeze(1), torch.float64), most)[:, 0]


def visible_units(machine: BoltzmannMachine) -> int:
    """Returns the number of units of all visible layers."""
    return sum(machine.layers[l].n_units for l in machine.visible)


def bounded_pseudo_likelihood(machine: BoltzmannMachine, X: Tensor, units: int, seed: int) -> Tensor:
    """Pseudo-log-likelihood of every row, from ``units`` drawn visible units a row or exactly from all."""
    if units >= visible_units(machine):
        return pseudo_log_likelihood(machine, X)
    return pseudo_log_likelihood(machine, X, sampled=units, seed=seed)


def metrics_of(coding: Codec, name: str | None, rows: Rows, seed: int) -> dict[str, Metric]:
    """Metrics by the name that they have in the history, the one to follow first.

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
        return _label_scores(seed)
    if chosen == "likelihood":
        return _likelihoods(coding, rows, seed)
    if chosen == "predictive":
        times = -(-_HIDDEN_CELLS // (len(rows) * visible_units(coding.machine)))
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
    units = -(-_LOOK_UNITS // len(rows))
    return {
        "pseudo_log_likelihood": lambda machine, X: float(
            bounded_pseudo_likelihood(machine, X, units, seed).mean()
        )
    }


def pair_correlation(machine: BoltzmannMachine, X: Rows, weights: Tensor | None, seed: int) -> Metric:
    """Returns the metric of ``train --until-correlation``: how well chains from noise have learned the data.

    It is Pearson's correlation of the pair covariances of 1,000 chains from noise with those of the training
    rows, which may have weights, (rows,).

    Raises:
        ValueError: no row without missing cells, or no two pairs of units of different covariances.
    """
    rows = spread_weighed(X, weights, BASE_ROWS)
    if rows is None:
        raise ValueError("until_correlation: expected rows without missing cells, received none")
    pairs = PairStatistics(machine, rows[0].to(machine.device), rows[1])
    if not pairs.varied:
        raise ValueError("until_correlation: expected data of which pairs of columns differ, received others")

    def correlate(judged: BoltzmannMachine, X: Tensor) -> float:
        start = judged.random_states(_NOISE_CHAINS, seed=seed)
        states = run(judged, Gibbs(), start, _NOISE_SWEEPS, seed=seed)
        return float(pairs.correlation(judged.hamiltonian().visible_states(states)))

    return correlate


def _has_labels(coding: Codec, rows: Rows) -> bool:
    """Returns whether any row has a label."""
    return any(not bool(coding.split(v)[1].isnan().any(1).all()) for v in rows.chunks(CHUNK_ROWS))


def _likelihoods(coding: Codec, rows: Rows, seed: int) -> dict[str, Metric]:
    """Returns the mean log-likelihood, or a bound where too much is to be summed, with ln Z by a short AIS.

    Where ln Z is estimated, its standard error in the value before stands beside it; the report draws a band.
    """
    exact = affordable(unit_updates(coding.machine.hamiltonian()), _LOOK_SHARE)
    asked = Rows.of(spread(rows, _LOOK_ROWS), rows.dtype, missing=rows.missing)
    independent = coding.machine.graph.independent
    summed = independent and affordable(work_of_rows(coding.machine, asked), _LOOK_SHARE)
    errors = [0.0]

    def mean(machine: BoltzmannMachine, X: Tensor) -> float:
        v = spread(Rows.of(X, X.dtype, missing=True), _LOOK_ROWS).to(machine.device)
        if exact:
            log_partition = LogPartition.exact(exact_log_partition(machine))
        else:
            complete = v[~v.isnan().any(1)]
            base = complete if len(complete) else None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the error in the history says it too
                log_partition = ais(machine, *LOOK_ANNEALING, data=base, reverse=False, seed=seed)
        errors[0] = log_partition.standard_error
        values = score_rows(coding, v, log_partition.value, "sums" if summed else "bound", _ROUGH_TOLERANCE)
        return float(values.mean())

    name = "log_likelihood" if summed else "variational_bound"
    return {name: mean} | ({} if exact else {f"{name}_standard_error": lambda machine, X: errors[0]})


def _label_scores(seed: int) -> dict[str, Metric]:
    """Returns scores of the prediction of the label given the rest of each row."""
    accuracy = [0.0]

    def mean(machine: BoltzmannMachine, X: Tensor) -> float:
        own, nats, _ = score_labels(Codec.of(machine), X, seed)
        accuracy[0] = float(own.double().mean())
        return float(nats.mean())

    return {"label_log_likelihood": mean, "label_accuracy": lambda machine, X: accuracy[0]}
