"""``harmonium report``."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from math import log2
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from harmonium._html import format_value
from harmonium._settings import From0, Interval, Setting
from harmonium._storage import replace_file
from harmonium.chains import Gibbs, Kernel, run as run_chains
from harmonium.cli import options
from harmonium.cli.budget import Budget, Part, time_of_step
from harmonium.cli.coding import learned_weights, rows_of, source_of
from harmonium.cli.mixing import (
    CHAINS,
    PAIRS,
    SWEEPS,
    convergence,
    equilibrium,
    mixing,
    moments,
)
from harmonium.cli.output import check_target, listening, partition_table, working
from harmonium.coupled import Gibbs as PairGibbs, meet
from harmonium.data import DataSet, Rows
from harmonium.ladder import Ladder, ages_of, hamiltonians_along, log_partitions
from harmonium.likelihood import ais, find_log_partition
from harmonium.meanfield import Plefka, solve, tap
from harmonium.report.page import template, verdict
from harmonium.report.page.charts import chart
from harmonium.report.page.parts import Grid, Remark, Section
from harmonium.report.page.record import RunRecord, curves
from harmonium.report.page.sections import SECTIONS, STARTS, Subject, fill_landscape, fill_learned
from harmonium.report.plots import mixing_heights
from harmonium.sums import affordable, has_hidden_states, log_weights, unit_updates
from harmonium.tables import Codec, Table
from harmonium.tasks import LOOK_ANNEALING, evaluate_rows, sample, usual_sweeps

EXAMPLES = (
    "harmonium report runs/digits",
    "harmonium report runs/digits --compare runs/slower --out both.html",
)

_ROWS = 10_000  # of the data, evenly spaced: what they show of the whole is then known to a percent
_IMAGES, _SAMPLES = 200, 1000  # chains; a table's columns want more for their histograms
_SECONDS, _TRAININGS = 60.0, 5.0  # of a page: at least, and as times of the training that it tells of
_LEAST = 20  # steps of a part that are of use: fewer sweeps or temperatures show noise
_ANNEALED = 100  # chains of annealing
_SETTLING = 500  # sweeps that mean field takes until most rows have settled: 435 for RF00379


def report(
    run: options.Trained,
    out: Path | None = None,
    compare: Annotated[list[Path] | None, Setting(metavar="RUN")] = None,
    data: options.OtherData | None = None,
    sweeps: From0 | None = None,
    temperatures: int = 1000,
    mixing_sweeps: int = 1000,
    seconds: Annotated[float | None, Setting(Interval(0.0, closed="neither"))] = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Tell of a run in one HTML page: how it went, how good the machine is, what it has learned.

    The page needs no other file and no network. What cannot be shown is left out with a sentence that says
    why.

    Args:
        out: file for the page; report.html in the run's folder if not given.
        compare: another run for the curves and settings; repeatable.
        data: rows to judge the machine by; its training data if not given.
        sweeps: sweeps of the chains whose samples are shown; if not given those of harmonium sample; not read
            where exact draws are affordable.
        temperatures: temperatures of AIS, where ln Z is not exact.
        mixing_sweeps: sweeps after which a pair of coupled chains is given up; also of other chains.
        seconds: about the time that the page may take; if not given five times that of the training, and 60
            at least. Sweeps and temperatures are shortened to it, and the page tells which.
    """
    began = time.monotonic()
    out = out or (run.run / "report.html" if run.run.is_dir() else run.run.with_suffix(".html"))
    records = [RunRecord.read(each) for each in (run.run, *(compare or ()))]
    check_target(out, "out", (".html",), overwrite)
    page = template()
    coding, source = run.load()
    machine = coding.machine.requires_grad_(False)
    rows, dataset, lacking = _rows(coding, data)
    training, learned = None, None
    if data not in (None, source_of(machine)[0]):
        training, learned, _ = _rows(coding, None)
    shape, names = source_of(machine)[1], coding.names
    if dataset is not None:
        shape, names = shape or dataset.image_shape or (), names or dataset.names
    kept = run.ladder(machine)
    exact = has_hidden_states(machine.graph, machine.layers)
    sweeps = usual_sweeps(machine) if sweeps is None else sweeps
    rounds = sweeps if kept is None else -(-sweeps // len(kept.rungs or ()))  # sweeps of all rungs together
    record = records[0]
    subject = Subject(
        machine,
        coding.encoder,
        machine.visible_width - coding.label_width,
        shape,
        [name for name in names or () if coding.label is None or name != coding.label.name],
        _name_of(dataset, rows),
        None if rows is None else rows.take(rows.spread(_ROWS)).to(machine.device),
        lacking,
        None if training is None else training.take(training.spread(_ROWS)).to(machine.device),
        machine.random_states(_IMAGES if shape else _SAMPLES, seed=seed),
        None if exact else rounds,
        seed,
        _weights(coding, dataset),
        _weights(coding, learned),
    )
    limit = max(_SECONDS, _TRAININGS * record.seconds) if seconds is None else seconds
    with working("measuring the cost"):
        costs = _costs(subject, kept, temperatures, mixing_sweeps)
    budget = Budget(max(limit / 2, limit - (time.monotonic() - began)), costs)  # without what was measured
    shown = None if dataset is None or rows is None else dataset.take(_find_shown(coding, dataset).numpy())
    first, drawn = Section("verdict", "Verdict"), Section("curves", "Curves of the training")
    first.remarks = verdict.training_remarks(record)
    drawn.charts = list(curves(records))
    drawn.absent = "" if record.history else "There is no history.jsonl: RUN is a machine without its run."
    facts = {"machine": ", ".join(map(str, machine.layers)), "updates": str(record.updates)}
    facts["date"] = record.date
    parts = [first, drawn]
    met: dict[
        str, Any
    ] = {}  # by pairs of chains and by those from noise, without which annealing is not judged
    scores: dict[str, float] = {}  # the mean ln p of rows, in nats of the states
    cut = budget.steps("likelihood", temperatures), temperatures
    likely = partial(_likelihood, facts, coding, record, cut, met, scores, shown)
    others = {"landscape": partial(fill_landscape, starts=budget.steps("landscape"))}
    fillers: list[tuple[str, str, Callable[[Section, Subject], None]]] = [
        ("mixing", "Mixing", partial(_mixing, met, most=mixing_sweeps, pairs=budget.steps("pairs"))),
        ("equilibrium", "Equilibrium", partial(_equilibrium, met, most=budget.steps("equilibrium"))),
        ("likelihood", "Likelihood", likely),
        ("learned", "Was it learned?", partial(fill_learned, scores)),
        *([] if kept is None else [("along", "Along the training", partial(_along, kept))]),
        *((id, title, others.get(id, fill)) for id, title, fill in SECTIONS),
    ]
    with budget.working("report") as begin:
        begin("samples")
        _draw(subject, kept or Gibbs(), max(1, budget.steps("samples")), max(sweeps, 1))
        for id, title, fill in fillers:
            cost = "pairs" if id == "mixing" else id
            begin(cost)
            part = Section(id, title)
            if id in ("mixing", "equilibrium") and exact and isinstance(coding.encoder, Table):
                part.absent = "A table of this machine is drawn, filled in and scored without chains."
            elif id in costs and not budget.steps(id):
                part.absent = f"{budget.remarks[id].capitalize()}."
            else:
                try:
                    fill(part, subject)
                except ValueError as error:
                    part.absent = f"Left out: {error}"
                if not part.absent and cost in budget.remarks:
                    part.remarks.append(Remark("note", f"{cost.capitalize()}: {budget.remarks[cost]}."))
            parts.append(part)
    parts[2:6] = [*parts[4:6], *parts[2:4]]  # the likelihood stands before what it rests on
    first.remarks += [remark for part in parts[2:] for remark in part.remarks]
    parts.append(_settings(records))
    title = f"{record.name}: a run of harmonium" + (f", with {len(records) - 1} more" if compare else "")
    replace_file(out, page.render(title=title, facts=facts, sections=parts).encode())
    cautions = [remark.text for remark in first.remarks if remark.level == "caution"]
    shortened = [f"{title}: {text}" for title, text in budget.remarks.items()]
    return {"machine": source, "file": out, "notes": [*cautions, *shortened]}


def _costs(subject: Subject, kept: Ladder | None, temperatures: int, most: int) -> dict[str, Part]:
    """Measures what the parts of the page take that are made of many steps."""
    machine, seed, rows = subject.machine, subject.seed, subject.rows
    parts: dict[str, Part] = {}
    start = machine.random_states(_SAMPLES, seed=seed)
    sweep = time_of_step(lambda n: run_chains(machine, Gibbs(), start, n, seed=seed))
    if subject.sweeps:
        chains, own = subject.samples, sweep * len(subject.samples[0]) / _SAMPLES
        if kept is not None:
            own = time_of_step(lambda n: run_chains(machine, kept, chains, n, seed=seed))
        parts["samples"] = Part(subject.sweeps, 1, own)
    if not (subject.exact and isinstance(subject.encoder, Table)):
        pairs = [x[:PAIRS] for x in start]
        pair_sweep = time_of_step(lambda n: meet(machine, PairGibbs(), pairs, max_sweeps=n, seed=seed))
        parts["pairs"] = Part(most, _LEAST, 2 * pair_sweep)
        if rows is not None:
            parts["equilibrium"] = Part(min(most, SWEEPS), _LEAST, sweep * CHAINS / _SAMPLES)
    if not affordable(unit_updates(machine.hamiltonian())):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of few temperatures
            each = time_of_step(lambda n: ais(machine, _ANNEALED, n, data=rows, seed=seed))
        parts["likelihood"] = Part(temperatures, min(_LEAST, temperatures), each, "temperatures")
    if rows is not None:
        scheme, starts = Plefka(machine.hamiltonian()), subject.spread(STARTS)
        settling = time_of_step(lambda n: solve(scheme, starts, max_sweeps=n)) * _SETTLING / len(starts)
        few, began = starts[:_LEAST], time.monotonic()
        tap(machine, few, max_sweeps=1)  # judges the solutions, which takes longer than a sweep
        each = settling + (time.monotonic() - began) / len(few)
        parts["landscape"] = Part(STARTS, _LEAST, each, "rows")
    return parts


def _draw(subject: Subject, mover: Kernel, rounds: int, sweeps: int) -> None:
    """Draws the samples of the page, by chains of so many rounds, or exactly, for each layer."""
    machine, seed, number = subject.machine, subject.seed, len(subject.samples[0])
    if subject.exact:  # the hidden states are drawn given these rows
        v = sample(machine, number, method="exact", seed=seed).rows
        subject.samples = run_chains(machine, Gibbs(), subject.samples, sweeps, v, seed=seed)
    else:
        subject.samples = run_chains(machine, mover, subject.samples, rounds, seed=seed)
        subject.sweeps = rounds


def _rows(coding: Codec, source: str | None) -> tuple[Rows | None, DataSet | None, str]:
    """The whole rows of DATA or of the training data, and where they are from; or why there are none."""
    named = source or source_of(coding.machine)[0]
    if named is None:
        return None, None, "This needs data, and the machine names none; --data FILE gives some."
    try:
        dataset = coding.read(named)
        return _whole(coding, dataset), dataset, ""
    except (ValueError, OSError, ImportError) as error:
        if source is not None:
            raise
        if isinstance(error, _NoWholeRow):
            return None, None, f"This needs rows that lack no cell: {error}."
        lacking = f"This needs the training data, which are not at hand ({error}); --data FILE gives some."
        return None, None, lacking


def _name_of(dataset: DataSet | None, rows: Rows | None) -> str:
    """Names the rows, with how many of the data they are where some lack a cell."""
    if dataset is None or rows is None or len(rows) == dataset.samples.shape[0]:
        return "" if dataset is None else dataset.name
    return f"{dataset.name} ({len(rows)} of its {dataset.samples.shape[0]} rows, which lack no cell)"


def _whole(coding: Codec, dataset: DataSet) -> Rows:
    """The rows without missing cells."""
    every = rows_of(coding, dataset, missing=True, beyond="tail")
    index = every.spread(len(every), whole=True)
    if not len(index):
        raise _NoWholeRow(f"{dataset.name} has {len(every)} rows, and each of them lacks a label or a cell")
    return every if len(index) == len(every) else Rows.of(every.take(index), every.dtype)


def _weights(coding: Codec, dataset: DataSet | None) -> Tensor | None:
    """Returns the weights of those whole rows that are shown, (rows,), as in training."""
    weights = None if dataset is None else learned_weights(coding, dataset)
    return None if dataset is None or weights is None else weights[_find_shown(coding, dataset)]


def _find_shown(coding: Codec, dataset: DataSet) -> Tensor:
    """Returns the numbers of those whole rows that are shown."""
    return rows_of(coding, dataset, missing=True).spread(_ROWS, whole=True)


class _NoWholeRow(ValueError):
    """Every row lacks something."""


def _likelihood(
    facts: dict[str, str],
    coding: Codec,
    record: RunRecord,
    cut: tuple[int, int],
    met: dict[str, Any],
    scores: dict[str, float],
    shown: DataSet | None,
    section: Section,
    subject: Subject,
) -> None:
    with listening("finding ln Z") as notes:
        log_partition = find_log_partition(
            subject.machine, subject.rows, temperatures=cut[0], seed=subject.seed
        )
    base = subject.data or "pilot run of the machine"
    table = partition_table(log_partition, chains=_ANNEALED, temperatures=cut[0], base=base)
    if cut[0] < cut[1]:
        table["shortened"] = f"{cut[0]} of {cut[1]} temperatures"
    row = None
    if subject.rows is not None:
        states = Rows.of(subject.rows.cpu(), subject.machine.dtype)
        found = evaluate_rows(coding, shown, log_partition, states=states, seed=subject.seed)
        row, notes = {"data": subject.data, **found.entries()}, [*notes, *found.doubts]
        if not found.is_bound and not verdict.unmixed(table, met or None):
            scores["mean"] = found.mean - found.offset
        what = "log-likelihood" if row.get("log_likelihood") is not None else "variational bound"
        value = verdict.likelihood(row, table, met or None)
        followed = record.points(what.replace("-", "_").replace(" ", "_"))
        if cut[0] < cut[1] and followed and cut[0] < LOOK_ANNEALING["temperatures"]:
            facts[what] = f"{followed[-1][1]:.2f} nats on held-out rows, as the run recorded it"
        elif value:
            facts[what] = value
    if verdict.unmixed(table, met or None):
        table["standard_error"] = None
        row = row and {**row, "log_partition_standard_error": None}
    section.remarks = verdict.likelihood_remarks(table, row, met or None)
    section.lead = ". ".join([*dict.fromkeys(notes), ""]).strip() or "In nats, natural logarithms."
    if row is None:
        section.lead += " " + subject.lacking
    section.tables = [_table("ln Z", table), *([] if row is None else [_table("mean over rows", row)])]


def _mixing(met: dict[str, Any], section: Section, subject: Subject, most: int, pairs: int) -> None:
    if pairs:
        table, notes, meetings = mixing(subject.machine, pairs, subject.seed)
        met.update(table)
        steps, heights, limits = mixing_heights(meetings)
        title, lines = "Coupled chains until they meet", {"pairs still apart": _points(steps, heights)}
        if limits is not None:
            title = "How far chains may be from the distribution"
            lines = {"bound": lines.popitem()[1], "its upper 95 % limit": _points(steps, limits)}
        label = "total variation" if limits is not None else "fraction"
        section.lead = ". ".join([*notes, ""]).strip()
        section.remarks = verdict.mixing_remarks(table, subject.sweeps)
        section.charts = [chart(title, lines, "sweeps", label, dashed=["its upper 95 % limit"])]
        section.tables = [_table("pairs of chains", table)]
    converged, diagnosis = convergence(subject.machine, most, subject.seed)
    section.remarks.append(verdict.convergence_remark(converged))
    each = [
        [name, f"{c.r_hat:.3f}", f"{c.ess_bulk:.0f}", f"{c.ess_tail:.0f}"]
        for name, c in diagnosis.quantities.items()
    ]
    head = [f"of {diagnosis.draws} draws", "R̂", "ess (bulk)", "ess (tail)"]
    section.tables.append(Grid(head, each))


def _equilibrium(met: dict[str, Any], section: Section, subject: Subject, most: int) -> None:
    rows = subject.given, subject.weights
    table, found = equilibrium(subject.machine, *rows, most, subject.seed)
    met.update({name: table[name] for name in ("falls", "peak")})
    section.lead = (
        f"{table['chains']} chains from noise: the Pearson correlation of the covariances of their visible "
        f"units with those of {subject.data}. It rises and stays where training kept to equilibrium; a curve "
        "that falls again is a sign that it did not."
    )
    section.remarks = [verdict.equilibrium_remark(table)]
    times = [log2(sweeps) for sweeps in table["sweeps"]]
    data = f"other rows of {subject.data}"
    lines = {
        "chains from noise": list(zip(times, table["correlation"], strict=True)),
        data: [(x, table["correlation_of_data"]) for x in (times[0], times[-1])],
    }
    errors = {"chains from noise": list(zip(times, found.drop_error.tolist(), strict=True))}
    ticks = [(x, str(sweeps)) for x, sweeps in zip(times, table["sweeps"], strict=True)]
    ticks = ticks[:: -(-len(ticks) // 6)]
    title = "Pair correlations, samples and data"
    section.charts = [
        chart(title, lines, "sweeps", "correlation", errors=errors, dashed=[data], x_ticks=ticks)
    ]
    training = None if subject.training is None else (subject.training, subject.training_weights)
    scaled, about = moments(subject.machine, found, rows, training, subject.seed)
    remark = verdict.moments_remark(scaled._asdict(), about)
    section.remarks += [] if remark is None else [remark]
    section.tables = [_table(f"moments beside {about}", scaled._asdict())]


def _along(kept: Ladder, section: Section, subject: Subject) -> None:
    """Draws ln Z and likelihood of the machines that the run has kept."""
    with listening("") as doubts:
        found = log_partitions(subject.machine, kept, data=subject.rows, seed=subject.seed, progress=False)
    seen = found.traffic
    columns = {
        "updates": ages_of(kept),
        "log_partition": found.values.tolist(),
        "standard_error": found.standard_errors.tolist(),
    }
    if subject.rows is not None and subject.machine.graph.independent:
        rungs = zip(hamiltonians_along(subject.machine, kept), columns["log_partition"], strict=True)
        columns["log_likelihood"] = [
            float(log_weights(rung, subject.rows).mean()) - value for rung, value in rungs
        ]
    section.lead = (
        f"{len(found.values) - 1} running averages of the machine are the rungs of a ladder, on which chains "
        f"change places with acceptances from {float(seen.acceptance.min()):.2f} to "
        f"{float(seen.acceptance.max()):.2f} and travel from the bottom to the top "
        f"{seen.round_trips:.2g} times a round; the samples of this page come from it."
    )
    section.remarks = [Remark("caution", doubt) for doubt in doubts]
    for name, title in (("log_likelihood", "Likelihood by ladder"), ("log_partition", "ln Z by ladder")):
        if name in columns:
            ends = columns[name], columns["standard_error"]
            points, errors = ({title: list(zip(columns["updates"], y, strict=True))} for y in ends)
            section.charts.append(chart(title, points, "updates", "nats", errors=errors))
    section.tables = [
        Grid(
            [name.replace("_", " ") for name in columns],
            [[f"{x:.6g}" for x in line] for line in zip(*columns.values(), strict=True)],
        )
    ]


def _settings(records: Sequence[RunRecord]) -> Section:
    """Settings, side by side where there are several runs, with the rows marked that differ."""
    each = [record.settings() for record in records]
    names = list(dict.fromkeys(name for settings in each for name in settings))
    texts = [[settings.get(name, "none") for settings in each] for name in names]
    marked = [len(set(row)) > 1 for row in texts]
    head = ["", *(f"{record.name} ({i + 1})" for i, record in enumerate(records))] if len(records) > 1 else []
    lead = "As recorded when training began, or last went on."
    if head:
        lead += " Rows that differ are marked ≠."
    table = Grid(head, [[name, *row] for name, row in zip(names, texts, strict=True)], marked)
    return Section("settings", "Settings", lead, tables=[table])


def _table(title: str, values: dict[str, Any]) -> Grid:
    return Grid(
        [title, ""], [[name.replace("_", " "), format_value(value)] for name, value in values.items()]
    )


def _points(x: torch.Tensor, y: torch.Tensor) -> list[tuple[float, float]]:
    return list(zip(x.tolist(), y.tolist(), strict=True))
