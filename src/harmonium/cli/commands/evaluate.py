"""``harmonium evaluate``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from torch import Tensor

from harmonium._settings import Setting
from harmonium.cli import options
from harmonium.cli.output import listening, partition_table, working
from harmonium.data import BUILT_IN, DataSet, Rows
from harmonium.likelihood import BASE_ROWS, find_log_partition
from harmonium.machine import BoltzmannMachine
from harmonium.report import resampling
from harmonium.report.page import verdict
from harmonium.tables import Codec
from harmonium.tasks import evaluate_rows

EXAMPLES = (
    "harmonium evaluate runs/digits digits",
    "harmonium evaluate runs/digits train.npy test.npy --temperatures 10000 --json",
    "harmonium evaluate network.uai --evidence network.uai.evid",
)

_FEWEST = 100  # whole rows, among others, that make a base
_LOOK = 256  # sweeps of chains from noise beside an annealed family: RF00379 falls by 0.07 within them


def evaluate(
    run: options.Trained,
    data: Annotated[list[str] | None, Setting(metavar="[DATA]...", argument=True, suggests=BUILT_IN)] = None,
    method: Literal["auto", "exact", "ais"] = "auto",
    chains: int = 100,
    temperatures: int = 1000,
    evidence: options.Evidence | None = None,
    unknown: options.Unknown | None = None,
    seed: options.Seed = 0,
) -> dict[str, Any]:
    """Evaluate a machine: ln Z, and the mean log-likelihood and pseudo-likelihood of DATA, in nats.

    The likelihood has the rows' standard error, from their spread, and that of ln Z, which shifts all rows
    alike. Independent columns beside it are fitted to the training data, from which annealing starts too; the
    first DATA stand in for these where they are gone. harmonium report judges how chains mix.

    Args:
        data: data to evaluate, such as a training and a test set.
        method: for ln Z: auto (exact where that takes seconds), exact, or ais.
        chains: annealing runs of AIS.
        temperatures: temperatures of AIS.
    """
    coding, source = run.load(unknown, evidence)
    machine, names = coding.machine, data or []
    read, rows, training = _read(coding, names)
    base, weights = _find_base(coding, training, read, rows)
    with listening() as doubts:
        settings: dict[str, Any] = {"chains": chains, "temperatures": temperatures}
        partition = find_log_partition(machine, base, method, **settings, seed=seed)
    settings["base"] = "pilot run of the machine" if base is None else training
    table = partition_table(partition, **settings)
    notes, results = list(doubts), list[dict[str, Any]]()
    for name in names:
        with working(f"evaluating {name}"):
            evaluation = evaluate_rows(
                coding, read[name], partition, training=rows[str(training)], states=rows[name], seed=seed
            )
        results.append({"data": name, **evaluation.entries()})
        notes += evaluation.doubts
    if names:
        notes.append(f"independent_columns_log_likelihood: of independent columns, fitted to {training}")
    if names and "sweeps_from_noise" in machine.metadata:
        notes.append("log_likelihood: the machine has learned a sampler from noise, and no density")
    # A family that was trained too fast has a tight ln Z too.
    if coding.alphabet and base is not None and table["method"] != "exact":
        notes = [*_judge_annealing(machine, table, base, weights, seed), *notes]
    if table["standard_error"] is None:
        results = [{**row, "log_partition_standard_error": None} for row in results]
    tables = {"results": results} if results else {}
    return {"machine": source, "log_partition": table, **tables, "notes": list(dict.fromkeys(notes))}


def _read(coding: Codec, names: Sequence[str]) -> tuple[dict[str, DataSet], dict[str, Rows], str | None]:
    """Reads data and their rows, also those of the training, whose name it returns, or that of the first."""
    read = {name: coding.read(name) for name in names}
    rows = {name: coding.observed_rows(read[name], missing=True, beyond="tail") for name in names}
    source = coding.source
    if source is None or source in read:
        return read, rows, source or next(iter(names), None)
    try:
        with warnings.catch_warnings(), working("reading the training data"):
            warnings.simplefilter("ignore")  # the training has told them
            training = coding.read(source)
            rows[source] = coding.observed_rows(training, missing=True, beyond="tail")
            read[source] = training
    except (ValueError, OSError, ImportError):
        source = next(iter(names), None)
    return read, rows, source


def _find_base(
    coding: Codec, name: str | None, read: dict[str, DataSet], rows: dict[str, Rows]
) -> tuple[Tensor | None, Tensor | None]:
    """Returns whole rows for the base of annealing, None where they are few, and their weights."""
    if name is None:
        return None, None
    every, whole = rows[name], rows[name].spread(BASE_ROWS, whole=True)
    if len(whole) < min(_FEWEST, len(every)):
        return None, None
    weights = coding.learned_weights(read[name])
    base = every.take(whole).to(coding.machine.device)
    return base, None if weights is None else weights[whole]


def _judge_annealing(
    machine: BoltzmannMachine, table: dict[str, Any], base: Tensor, weights: Tensor | None, seed: int
) -> list[str]:
    """Takes an error of ln Z back that chains from noise beside the rows refute; returns notes on both."""
    try:
        with working("running chains from noise"):
            resampled = resampling(machine, base, weights=weights, sweeps=_LOOK, seed=seed)
    except ValueError as error:  # rows whose pairs of sites are all alike
        return [f"equilibrium: not available, {error}"]
    mixed = {"falls": resampled.falls, "peak": resampled.peak}
    annealed = [f"log_partition: {remark.text}" for remark in verdict.annealing_remarks(table, mixed)]
    if verdict.unmixed(table, mixed):
        table["standard_error"] = None
    trained = [f"equilibrium: {remark.text}" for remark in verdict.equilibrium_remarks(resampled)]
    return [*annealed, *trained]
