"""``harmonium evaluate``."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from torch import Tensor

from harmonium._settings import Setting
from harmonium.chains import diagnose
from harmonium.cli import options
from harmonium.cli.output import listening, partition_table, working
from harmonium.coupled import mixing_times
from harmonium.data import BUILT_IN, DataSet, Rows
from harmonium.likelihood import BASE_ROWS, LogPartition, find_log_partition
from harmonium.machine import BoltzmannMachine
from harmonium.report import moment_errors, resampling
from harmonium.report.page import verdict
from harmonium.tables import Codec
from harmonium.tasks import evaluate_rows

EXAMPLES = (
    "harmonium evaluate runs/digits digits",
    "harmonium evaluate runs/digits train.npy test.npy --temperatures 10000 --json",
    "harmonium evaluate runs/digits digits --mixing",
    "harmonium evaluate network.uai --evidence network.uai.evid",
)

_FEWEST = 100  # whole rows, among others, that make a base
_LOOK = 256  # sweeps of the chains from noise that are run unasked: RF00379 falls by 0.07 within them


_Weighed = tuple[Tensor, Tensor | None]  # rows and their weights; None means uniform


def evaluate(
    run: options.Trained,
    data: Annotated[list[str] | None, Setting(metavar="[DATA]...", argument=True, suggests=BUILT_IN)] = None,
    method: Literal["auto", "exact", "ais"] = "auto",
    chains: int = 100,
    temperatures: int = 1000,
    reverse: bool = True,
    base: options.OtherData | None = None,
    with_mixing: Annotated[bool, Setting(option="--mixing")] = False,
    mixing_sweeps: int = 10_000,
    evidence: options.Evidence | None = None,
    unknown: options.Unknown | None = None,
    seed: options.Seed = 0,
) -> dict[str, Any]:
    """Evaluate a machine: ln Z, and the mean log-likelihood and pseudo-likelihood of DATA, in nats.

    The likelihood has two errors: the rows' standard error, from their spread, and that of ln Z, which
    shifts all rows alike and is bounded from both sides where ln Z is estimated. Beside it stands the
    likelihood of independent columns, fitted to the training data, or to the base where these are gone.

    Args:
        data: data to evaluate, such as a training and a test set.
        method: for ln Z: auto (exact where that takes seconds), exact, or ais.
        chains: annealing runs of AIS.
        temperatures: temperatures of AIS.
        reverse: bound ln Z from above by reverse annealing too.
        base: rows for the base of AIS, best the training set; else the first DATA.
        with_mixing: do chains from noise mix, and did training keep to equilibrium?
        mixing_sweeps: sweeps after which --mixing gives a pair of chains up.
    """
    coding, source = run.load(unknown, evidence)
    machine, names = coding.machine, data or []
    read = {name: coding.read(name) for name in [*names, *([] if base is None else [base])]}
    rows = {name: coding.observed_rows(read[name], missing=True, beyond="tail") for name in read}
    base, start, notes = _find_base(rows, names, base)
    with listening("finding ln Z") as doubts:
        settings: dict[str, Any] = {"chains": chains, "temperatures": temperatures}
        partition = find_log_partition(machine, start, method, **settings, reverse=reverse, seed=seed)
    table = partition_table(partition, **settings, base=base or "pilot run of the machine")
    notes = [*doubts, *([] if table["method"] == "exact" else notes)]
    notes = [note.replace("more temperatures", "more --temperatures") for note in notes]
    results = _score(coding, read, rows, names, base, partition, seed, notes)
    # A family that was trained too fast has a tight ln Z too, so that chains are run for sequences unasked.
    several = [base, *[name for name in names if name != (base or names[0])][:1]]
    several = several if with_mixing else [base if coding.alphabet and table["method"] != "exact" else None]
    weighed = [None if name is None else _weighed(coding, read[name], rows[name]) for name in several]
    mixing_tables, mixed = _mix(coding, table, weighed, mixing_sweeps if with_mixing else None, seed, notes)
    if verdict.unmixed(table, mixed or None):
        table["standard_error"] = None
        results = [{**row, "log_partition_standard_error": None} for row in results]
    layers = [str(layer) for layer in machine.layers]
    result = {"machine": source, "layers": layers, "log_partition": table, **mixing_tables}
    result |= {"results": results} if results else {}
    return result | ({"notes": list(dict.fromkeys(notes))} if notes else {})


def _find_base(
    rows: Mapping[str, Rows], names: Sequence[str], base: str | None
) -> tuple[str | None, Tensor | None, list[str]]:
    """Returns the name and whole rows of the base that was asked for or of the first data, and notes.

    Name and rows are None where there are no data, or too few whole rows that nobody asked for.
    """
    chosen = next(iter(names), None) if base is None else base
    if chosen is None:
        return None, None, []
    every, whole = rows[chosen], rows[chosen].spread(BASE_ROWS, whole=True)
    if base is not None and not len(whole):
        raise ValueError(f"base: expected rows without missing cells, received none in {base}")
    used = 0 if base is None and len(whole) < min(_FEWEST, len(every)) else len(whole)
    note = f"log_partition: the base of annealing is made of whole rows, {used} of {len(every)}"
    note += "" if used else f", as fewer than {_FEWEST} are; --base takes others"
    notes = [note] if every.missing else []
    return (chosen, every.take(whole), notes) if used else (None, None, notes)


def _score(
    coding: Codec,
    read: Mapping[str, DataSet],
    rows: Mapping[str, Rows],
    names: Sequence[str],
    base: str | None,
    partition: LogPartition,
    seed: int,
    notes: list[str],
) -> list[dict[str, Any]]:
    """Returns the scores of each of the named data, and adds notes."""
    if not names:
        return []
    with working("reading the training data"):
        training, fitted = _training_rows(coding, rows, base or names[0])
    results = list[dict[str, Any]]()
    for name in names:
        with working(f"evaluating {name}"):
            found = evaluate_rows(
                coding, read[name], partition, training=training, states=rows[name], seed=seed
            )
        results.append({"data": name, **found.entries()})
        notes += found.doubts
    notes.append(f"independent_columns_log_likelihood: of columns that nothing joins, fitted to {fitted}")
    if "sweeps_from_noise" in coding.machine.metadata:
        notes.append("log_likelihood: the machine has learned a sampler from noise, and no density")
    return results


def _training_rows(coding: Codec, rows: Mapping[str, Rows], base: str) -> tuple[Rows, str]:
    """Returns the training data and their name, or those of the base where they are not at hand."""
    source = coding.source
    if source is None:
        return rows[base], base
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the training has told them
            return rows.get(source) or coding.observed_rows(coding.read(source), missing=True), source
    except (ValueError, OSError, ImportError):
        return rows[base], base


def _mix(
    coding: Codec,
    table: dict[str, Any],
    rows: Sequence[_Weighed | None],
    sweeps: int | None,
    seed: int,
    notes: list[str],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns tables on mixing, and what they have on an annealed ln Z; puts remarks to the notes.

    Where nobody asks (``sweeps`` is None), chains from noise are run all the same where there are rows.
    """
    machine, tables, mixed = coding.machine, dict[str, Any](), dict[str, Any]()
    if sweeps is not None:
        with working("running coupled chains until they meet"):
            times = mixing_times(machine, max_sweeps=sweeps, seed=seed)
        tables["mixing"] = {name: value for name, value in times._asdict().items() if name != "meetings"}
        notes.append(f"mixing: {verdict.mixing_remark(times).text}")
        held_out = rows[1] if len(rows) > 1 else None
        with working("running chains from noise"):
            tables |= _from_noise(machine, rows[0], held_out, sweeps, seed, notes)
        mixed = tables["mixing"] | tables.get("equilibrium", {})
    elif rows[0] is not None:
        with working("running chains from noise"):
            found = resampling(machine, rows[0][0], weights=rows[0][1], sweeps=_LOOK, seed=seed)
        mixed = {"falls": True, "peak": found.peak} if found.falls else {}
    if mixed and (remark := verdict.annealing_remark(table, mixed)) is not None:
        notes.insert(0, f"log_partition: {remark.text}")
    return tables, mixed


def _from_noise(
    machine: BoltzmannMachine,
    training: _Weighed | None,
    held_out: _Weighed | None,
    sweeps: int,
    seed: int,
    notes: list[str],
) -> dict[str, Any]:
    """Returns the convergence of chains from noise, and their statistics beside those of rows; adds notes."""
    diagnosis = diagnose(machine, sweeps=min(max(40, 2 * sweeps), 2000), seed=seed)
    notes.append(f"convergence: {verdict.convergence_remark(diagnosis).text}")
    names = ("draws", "r_hat", "ess", "passed")
    result: dict[str, Any] = {"convergence": {name: getattr(diagnosis, name) for name in names}}
    try:
        if training is None:
            raise ValueError("it needs DATA with whole rows")
        found = resampling(machine, training[0], weights=training[1], sweeps=min(sweeps, 1000), seed=seed)
    except ValueError as error:
        notes.append(f"equilibrium: not available, {error}")
        return result
    notes.append(f"equilibrium: {verdict.equilibrium_remark(found).text}")
    result["equilibrium"] = {
        "sweeps": found.sweeps.tolist(),
        "correlation": found.correlation.tolist(),
        "correlation_of_data": found.data,
        "peak": found.peak,
        "falls": found.falls,
        "rises": found.rises,
    }
    if held_out is not None:
        v, weights = machine.hamiltonian().visible_states(found.states), (held_out[1], training[1])
        errors = moment_errors(machine, v, held_out[0], training[0], weights=weights, seed=seed)
        result["moments"] = errors._asdict()
    return result


def _weighed(coding: Codec, dataset: DataSet, rows: Rows) -> _Weighed | None:
    """Returns some of the rows that lack no cell, with their weights as in training; None: there are none."""
    weights, index = coding.learned_weights(dataset), rows.spread(BASE_ROWS, whole=True)
    if not len(index):
        return None
    return rows.take(index).to(coding.machine.device), None if weights is None else weights[index]
