"""``harmonium evaluate``."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from math import exp2, inf
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from harmonium import _checks
from harmonium.cli import completion, options
from harmonium.cli.coding import codec_of, read_for, rows_of
from harmonium.cli.mixing import chains_from_noise, mixing
from harmonium.cli.output import check_target, show, working
from harmonium.cli.predict import probabilities
from harmonium.cli.pseudo import bounded_pseudo_likelihood, visible_units
from harmonium.cli.runs import load_machine
from harmonium.cli.tap import STARTS, notes_on, tap_partition
from harmonium.data import Codec, Rows
from harmonium.likelihood import (
    LogPartition,
    TapPartition,
    ais,
    exact_log_likelihood,
    exact_log_partition,
    log_likelihood,
    missing_pseudo_likelihood,
    tap_log_likelihood,
    variational_bound,
)
from harmonium.likelihood.exact import MAX_LOG2_STATES, log2_states, log2_states_of
from harmonium.machine import BoltzmannMachine
from harmonium.report import mixing_curve
from harmonium.report._figure import require_figures
from harmonium.report.page import verdict

_METHODS = ("auto", "exact", "ais")
_AFFORDABLE = 2.0**28  # units updated by an enumeration that nobody asked for: a few seconds
_BASE_ROWS = 10_000
_FEWEST = 100  # whole rows, among others, that make a base
_PSEUDO_UNITS = 200_000  # visible units drawn for the pseudo-likelihood, over all rows
_CHUNK_ROWS = 2048
_TOLERANCE = 1e-4  # of the posterior: what it still moves changes the bound in the second order


def evaluate(
    run: options.Run,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATA]...",
            autocompletion=completion.data,
            help="Data to evaluate, such as a training and a test set.",
        ),
    ] = None,
    averaged: options.Averaged = False,
    method: Annotated[
        str,
        typer.Option(
            help="For ln Z: auto (exact where that takes seconds), exact, or ais.",
            autocompletion=completion.words(_METHODS),
        ),
    ] = "auto",
    chains: Annotated[int, typer.Option(help="Annealing runs of AIS.")] = 100,
    temperatures: Annotated[int, typer.Option(help="Temperatures of AIS.")] = 1000,
    reverse: Annotated[bool, typer.Option(help="Bound ln Z from above by reverse annealing too.")] = True,
    base: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="For the base of AIS, best the training set; else the first DATA."),
    ] = None,
    with_tap: Annotated[
        bool, typer.Option("--tap", help="Also ln Z and log-likelihoods by TAP, from rows of the base.")
    ] = False,
    with_mixing: Annotated[
        bool, typer.Option("--mixing", help="Do chains from noise mix, and did training keep to equilibrium?")
    ] = False,
    mixing_steps: Annotated[
        int, typer.Option(help="Sweeps after which --mixing gives a pair of chains up.")
    ] = 10_000,
    mixing_plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the bounds of --mixing, which it implies, as a PNG file."),
    ] = None,
    unknown: options.Unknown = None,
    overwrite: options.Overwrite = False,
    seed: options.Seed = 0,
    device: options.Device = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Evaluate a machine: ln Z, and the mean log-likelihood and pseudo-likelihood of DATA, in nats.

    The likelihood has two errors: the rows' standard error, from their spread, and that of ln Z, which
    shifts all rows alike and is bounded from both sides where ln Z is estimated.
    """
    options.set_threads(threads)
    _checks.one_of(method, "method", _METHODS)
    if mixing_plot is not None:
        check_target(mixing_plot, "mixing_plot", (".png",), overwrite)
        require_figures("--mixing-plot")
    machine, source = load_machine(run, averaged, options.as_device(device))
    coding = codec_of(machine, options.unknown_of(unknown))
    sets = [(name, rows_of(coding, read_for(coding, name), missing=True)) for name in data or []]
    chosen = [(base, rows_of(coding, read_for(coding, base), missing=True))] if base is not None else sets[:1]
    base_rows = whole(chosen[0][1]) if chosen else None
    if base is not None and base_rows is None:
        raise ValueError(f"base: expected rows without missing cells, received none in {base}")
    if base_rows is not None and base is None and len(base_rows) < min(_FEWEST, len(chosen[0][1])):
        base_rows = None
    base = None if base_rows is None else chosen[0][0]
    settings: dict[str, Any] = {"chains": chains, "temperatures": temperatures, "reverse": reverse}
    log_partition, table, notes = estimate(machine, base_rows, base, seed, method=method, **settings)
    if chosen and chosen[0][1].missing and table["method"] == "ais":
        used = 0 if base_rows is None else len(base_rows)
        notes.append(
            f"log_partition: the base of annealing is made of whole rows, {used} of {len(chosen[0][1])}"
            + ("" if used else f", as fewer than {_FEWEST} are; --base takes others")
        )
    layers = [str(layer) for layer in machine.layers]
    result: dict[str, Any] = {"machine": str(source), "layers": layers, "log_partition": table}
    tap = None
    if with_tap:
        starts = None if base_rows is None else spread(base_rows, STARTS).to(machine.device)
        with working("solving the TAP equations"):
            tap, result["tap"] = tap_partition(machine, starts)
        notes += notes_on(tap)
    results = []
    for name, rows in sets:
        with working(f"evaluating {name}"):
            results.append({"data": name, **evaluate_rows(coding, rows, log_partition, seed, notes)})
            if tap is not None:
                results[-1]["tap_log_likelihood"] = _tap_mean(coding, rows, tap, notes)
    if with_mixing or mixing_plot is not None:
        with working("running coupled chains until they meet"):
            result["mixing"], remarks, meetings = mixing(machine, mixing_steps, seed)
        notes += remarks
        if mixing_plot is not None:
            mixing_curve(meetings, mixing_plot)
            result["mixing"]["plot"] = mixing_plot
        if (remark := verdict.annealing_remark(table, result["mixing"])) is not None:
            notes.insert(0, f"log_partition: {remark.text}")
        if verdict.unmixed(table, result["mixing"]):
            table["standard_error"] = None
            results = [{**row, "log_partition_standard_error": None} for row in results]
        others = [whole(rows) for name, rows in sets if chosen and name != chosen[0][0]]
        states = [None if each is None else spread(each, _BASE_ROWS) for each in (base_rows, *others[:1])]
        with working("running chains from noise"):
            result |= chains_from_noise(machine, states, mixing_steps, seed, notes)
    if results:
        result["results"] = results
    if notes:
        result["notes"] = list(dict.fromkeys(notes))
    show(result, as_json)


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
) -> tuple[LogPartition, dict[str, Any], list[str]]:
    """ln Z by the ``method``, what is to be said of it in a table, and notes.

    Args:
        machine: any machine.
        base_rows: states for the base of AIS, or None for a pilot run of the machine.
        base: what these rows are called.
        seed: of AIS, which the other arguments describe as the command's options.
    """
    exact = method == "exact" or (
        method == "auto" and enumeration_cost(machine, range(len(machine.layers))) <= _AFFORDABLE
    )

    table: dict[str, Any]
    notes: list[str] = []
    if exact:
        with working("enumerating states for ln Z"):
            log_partition = LogPartition.exact(exact_log_partition(machine))
        table = {"method": "exact", "value": log_partition.value, "standard_error": 0.0}
    else:
        visible = None if base_rows is None else spread(base_rows, _BASE_ROWS).to(machine.device)
        annealing = working(f"annealing {chains} chains over {temperatures} temperatures for ln Z")
        with annealing, warnings.catch_warnings(record=True) as doubts:
            warnings.simplefilter("always", RuntimeWarning)
            log_partition = ais(machine, chains, temperatures, data=visible, reverse=reverse, seed=seed)
        notes += [str(doubt.message).replace("more temp", "more --temp") for doubt in doubts]
        if log_partition.lower <= log_partition.upper < log_partition.value:
            notes.append(
                "log_partition: the upper bound lies below the estimate; by chance, or as the chains of the "
                "reverse run are not mixed"
            )
        numbers = log_partition._asdict()
        table = {"method": "ais", "lower": numbers.pop("lower"), "upper": numbers.pop("upper"), **numbers}
        table.update(chains=chains, temperatures=temperatures)
        table["base"] = base or "pilot run of the machine"
        if not reverse:
            table["upper"] = None
    return log_partition, table, notes


def evaluate_rows(
    coding: Codec, rows: Rows, log_partition: LogPartition, seed: int, notes: list[str]
) -> dict[str, Any]:
    machine = coding.machine
    likelihoods: list[Tensor] = []
    bounds: list[Tensor] = []
    pseudo: list[Tensor] = []
    deep = not machine.graph.independent
    cost = cost_of_rows(machine, rows)
    if deep:  # which is enumerated for every chunk too
        cost += enumeration_cost(machine, range(len(machine.layers))) * -(-len(rows) // _CHUNK_ROWS)
    unavailable = cost > _AFFORDABLE
    lacking = missing_pseudo_likelihood(machine)
    if rows.missing:
        name = "variational_bound" if unavailable else "log_likelihood"
        notes.append(f"{name}: of rows with missing cells, of what they show")
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

    for number, chunk in enumerate(rows.chunks(_CHUNK_ROWS)):
        v = chunk.to(machine.device)
        slopes = coding.log_slopes(v)
        if unavailable:
            bounds.append(variational_bound(machine, v, log_partition, tolerance=_TOLERANCE) + slopes)
        elif deep:
            likelihoods.append(exact_log_likelihood(machine, v) + slopes)
        else:
            likelihoods.append(log_likelihood(machine, v, log_partition) + slopes)
        if not lacking:
            pseudo.append(bounded_pseudo_likelihood(machine, v, units, seed + number))
    mean, error = _mean(likelihoods)
    if mean is not None and coding.density:
        notes.append("log_likelihood: a density in the units of the data")
    bound, bound_error = _mean(bounds)
    if bound is not None and coding.density:
        notes.append("variational_bound: of a density in the units of the data")
    enumerated = deep and not unavailable
    limits: dict[str, float | None] = {}
    if not enumerated and log_partition.ess < inf:  # as ln Z rises, likelihoods fall
        lowest = bound if unavailable else mean  # with ln Z at its upper bound one below the log-likelihood
        lift, drop = (log_partition.value - z for z in (log_partition.lower, log_partition.upper))
        limits["log_likelihood_lower"] = None if lowest is None or drop == -inf else lowest + drop
        limits["log_likelihood_upper"] = None if mean is None else mean + lift
    pseudo_mean, pseudo_error = _mean(pseudo)
    return {
        "rows": len(rows),
        **limits,
        "log_likelihood": mean,
        "rows_standard_error": bound_error if unavailable else error,
        "log_partition_standard_error": 0.0 if enumerated else log_partition.standard_error,
        **({"variational_bound": bound} if unavailable else {}),
        **_of_labels(coding, rows, notes, seed),
        "pseudo_log_likelihood": pseudo_mean,
        "pseudo_standard_error": pseudo_error,
    }


def _of_labels(coding: Codec, rows: Rows, notes: list[str], seed: int) -> dict[str, float]:
    """Scores the prediction of the label given the rest of each row."""
    if coding.label is None:
        return {}
    if coding.objective == "discriminative":
        notes.append(
            "log_likelihood: of a machine that has learned the label given the rest, and not the rest"
        )
    place, right, nats, known, method = coding.unit_of(str(coding.label.name)), 0, 0.0, 0, ""
    for chunk in rows.chunks(_CHUNK_ROWS):
        states = chunk.to(coding.machine.device)
        states = states[~coding.split(states)[1].isnan().any(1)]
        if len(states):
            p, method = probabilities(coding, place, states, "auto", seed)
            own = coding.split(states)[1].argmax(1)
            right += int((p.argmax(1) == own).sum())
            nats += float(p[torch.arange(len(p), device="cpu"), own].log().sum())
            known += len(states)
    if known < len(rows):
        notes.append(f"label_accuracy: of the {known} rows that have a label")
    if not known:
        return {}
    if method == "gibbs":
        notes.append("label_log_likelihood: by chains, as there are too many states to count")
    return {"label_accuracy": right / known, "label_log_likelihood": nats / known}


def _tap_mean(coding: Codec, rows: Rows, partition: TapPartition, notes: list[str]) -> float | None:
    machine = coding.machine
    if rows.missing:
        notes.append("tap_log_likelihood: not available, cells are missing")
        return None
    chunks = (chunk.to(machine.device) for chunk in rows.chunks(_CHUNK_ROWS))
    values = [tap_log_likelihood(machine, v, partition) + coding.log_slopes(v) for v in chunks]
    return float(torch.cat(values).mean())


def _mean(parts: list[Tensor]) -> tuple[float | None, float | None]:
    if not parts:
        return None, None
    values = torch.cat(parts)
    error = float(values.std()) / len(values) ** 0.5 if len(values) > 1 else None
    return float(values.mean()), error


def enumeration_cost(machine: BoltzmannMachine, free: Collection[int]) -> float:
    """States that an enumeration of some layers passes through, times the columns of the machine."""
    width = sum(layer.width for layer in machine.layers)
    return width * exp2(min(log2_states(machine.graph, machine.layers, free), 1000.0))


def cost_of_rows(machine: BoltzmannMachine, rows: Rows) -> float:
    """As ``enumeration_cost``, of what is left to sum over in the rows that have such; inf where that cannot
    be."""
    if not rows.missing:
        each = 0.0 if machine.graph.independent else enumeration_cost(machine, machine.hidden)
        return each * len(rows)
    width, law = sum(layer.width for layer in machine.layers), machine.hamiltonian()
    found = [log2_states_of(law, chunk.to(machine.device)) for chunk in rows.chunks(_CHUNK_ROWS)]
    states = torch.cat(found)
    states = states[states > 0]
    return inf if bool((states > MAX_LOG2_STATES).any()) else width * float(states.exp2().sum())


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
