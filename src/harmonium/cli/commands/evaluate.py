"""``harmonium evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from harmonium._settings import Setting
from harmonium._storage import replace_file
from harmonium.cli import options
from harmonium.cli.coding import learned_weights, rows_of
from harmonium.cli.mixing import Weighted, chains_from_noise, equilibrium, mixing
from harmonium.cli.output import check_target, working
from harmonium.cli.run_file import settings_of_run
from harmonium.cli.scores import (
    BASE_ROWS,
    estimate,
    evaluate_rows,
    separate_columns,
    spread_weighed,
    whole,
)
from harmonium.data import DataSet, Rows
from harmonium.report import mixing_curve, model_card
from harmonium.report.page import verdict
from harmonium.report.plots import require_figures
from harmonium.tables import Codec

EXAMPLES = (
    "harmonium evaluate runs/digits digits",
    "harmonium evaluate runs/digits train.npy test.npy --temperatures 10000 --json",
    "harmonium evaluate runs/digits digits --mixing-plot mixing.png",
    "harmonium evaluate runs/digits digits --card README.md",
    "harmonium evaluate network.uai --evidence network.uai.evid",
)

_FEWEST = 100  # whole rows, among others, that make a base
_LOOK = 256  # sweeps of the chains from noise that are run unasked: RF00379 falls by 0.07 within them


def evaluate(
    run: options.Trained,
    data: Annotated[
        list[str] | None, Setting(metavar="[DATA]...", argument=True, complete=options.complete_data)
    ] = None,
    method: Literal["auto", "exact", "ais", "ladder"] = "auto",
    chains: int = 100,
    temperatures: int = 1000,
    reverse: bool = True,
    base: options.OtherData | None = None,
    with_mixing: Annotated[bool, Setting(option="--mixing")] = False,
    mixing_sweeps: int = 10_000,
    mixing_plot: Annotated[Path | None, Setting(metavar="FILE")] = None,
    card: Annotated[Path | None, Setting(metavar="FILE")] = None,
    evidence: options.Evidence | None = None,
    unknown: options.Unknown | None = None,
    overwrite: options.Overwrite = False,
    seed: options.Seed = 0,
) -> dict[str, Any]:
    """Evaluate a machine: ln Z, and the mean log-likelihood and pseudo-likelihood of DATA, in nats.

    The likelihood has two errors: the rows' standard error, from their spread, and that of ln Z, which
    shifts all rows alike and is bounded from both sides where ln Z is estimated. Beside it stands the
    likelihood of independent columns, fitted to the training data, or to the base where these are gone.

    Args:
        data: data to evaluate, such as a training and a test set.
        method: for ln Z: auto (exact where that takes seconds), exact, ais, or ladder, along the training
            where the run has kept one (train --ladder).
        chains: annealing runs of AIS, or chains of a ladder.
        temperatures: temperatures of AIS.
        reverse: bound ln Z from above by reverse annealing too.
        base: for the base of AIS and the top of a ladder, best the training set; else the first DATA.
        with_mixing: do chains from noise mix, and did training keep to equilibrium?
        mixing_sweeps: sweeps after which --mixing gives a pair of chains up.
        mixing_plot: draw the bounds of --mixing, which it implies, as a PNG file.
        card: write a model card to publish beside the machine, a .md file.
    """
    if mixing_plot is not None:
        check_target(mixing_plot, "mixing_plot", (".png",), overwrite)
        require_figures("--mixing-plot")
    if card is not None:
        check_target(card, "card", (".md",), overwrite)
    coding, source = run.load(unknown, evidence)
    machine = coding.machine
    read = {name: coding.read(name) for name in data or []}
    scored = {"missing": True, "beyond": "tail"}
    sets = [(name, rows_of(coding, dataset, **scored)) for name, dataset in read.items()]
    if base is not None and base not in read:
        read[base] = coding.read(base)
    chosen = sets[:1] if base is None else [(base, rows_of(coding, read[base], **scored))]
    base_rows = whole(chosen[0][1]) if chosen else None
    if base is not None and base_rows is None:
        raise ValueError(f"base: expected rows without missing cells, received none in {base}")
    if base_rows is not None and base is None and len(base_rows) < min(_FEWEST, len(chosen[0][1])):
        base_rows = None
    base = None if base_rows is None else chosen[0][0]
    kept = run.ladder(machine) if method == "ladder" else None
    settings: dict[str, Any] = {
        "chains": chains, "temperatures": temperatures, "reverse": reverse, "kept": kept
    }  # fmt: skip
    log_partition, table, notes = estimate(machine, base_rows, base, seed, method=method, **settings)
    if chosen and chosen[0][1].missing and table["method"] == "ais":
        used = 0 if base_rows is None else len(base_rows)
        notes.append(
            f"log_partition: the base of annealing is made of whole rows, {used} of {len(chosen[0][1])}"
            + ("" if used else f", as fewer than {_FEWEST} are; --base takes others")
        )
    layers = [str(layer) for layer in machine.layers]
    result: dict[str, Any] = {"machine": source, "layers": layers, "log_partition": table}
    if "along" in table:
        result["along"] = table.pop("along")
    results = []
    if sets:
        with working("fitting independent columns"):
            alone, fitted = separate_columns(coding, dict([*chosen, *sets]), chosen[0][0])
    for name, rows in sets:
        with working(f"evaluating {name}"):
            by_column = [coding.log_shares(read[name], each) for each in (machine, alone)]
            shares, shares_alone = (None if part is None else part.sum(1) for part in by_column)
            scores = evaluate_rows(coding, rows, log_partition, seed, notes, shares, alone, shares_alone)
            results.append({"data": name, **scores})
    if sets:
        notes.append(f"independent_columns_log_likelihood: of columns that nothing joins, fitted to {fitted}")
        if "sweeps_from_noise" in machine.metadata:
            notes.append("log_likelihood: the machine has learned a sampler from noise, and no density")
    mixed: dict[str, Any] = {}
    if with_mixing or mixing_plot is not None:
        with working("running coupled chains until they meet"):
            result["mixing"], remarks, meetings = mixing(machine, mixing_sweeps, seed)
        notes += remarks
        if mixing_plot is not None:
            mixing_curve(meetings, mixing_plot)
            result["mixing"]["plot"] = mixing_plot
        with working("running chains from noise"):
            beside = [(name, rows) for name, rows in sets if name != chosen[0][0]][:1]
            weighed = [_weighed(coding, read[name], rows) for name, rows in beside]
            first = None if base is None else _weighed(coding, read[base], chosen[0][1])
            result |= chains_from_noise(machine, [first, *weighed], mixing_sweeps, seed, notes)
        mixed = result["mixing"] | result.get("equilibrium", {})
    elif coding.alphabet is not None and table["method"] != "exact" and base is not None:
        first = _weighed(coding, read[base], chosen[0][1])
        if first is not None:
            with working("running chains from noise"):  # a family trained too fast has a tight ln Z too
                mixed = equilibrium(machine, *first, _LOOK, seed)[0]
            mixed = mixed if mixed["falls"] else {}
    if mixed and (remark := verdict.annealing_remark(table, mixed)) is not None:
        notes.insert(0, f"log_partition: {remark.text}")
    if verdict.unmixed(table, mixed or None):
        table["standard_error"] = None
        results = [{**row, "log_partition_standard_error": None} for row in results]
    if results:
        result["results"] = results
    if notes:
        result["notes"] = list(dict.fromkeys(notes))
    if card is not None:
        text = model_card(machine, result, settings_of_run(run.run), title=run.run.stem, file=source.name)
        replace_file(card, text.encode())
    return result


def _weighed(coding: Codec, dataset: DataSet, rows: Rows) -> Weighted | None:
    """Returns some of the rows that lack no cell, with their weights as in training; None: there are none."""
    found = spread_weighed(rows, learned_weights(coding, dataset), BASE_ROWS)
    return None if found is None else (found[0].to(coding.machine.device), found[1])
