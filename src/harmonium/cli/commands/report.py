"""``harmonium report``."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, log2
from pathlib import Path
from typing import Annotated, Any, final

import torch
from torch import Tensor

from harmonium._html import format_value
from harmonium._settings import From0, Interval, Setting
from harmonium._storage import replace_file
from harmonium.chains import Gibbs, diagnose_chains, run as run_chains
from harmonium.cli import options
from harmonium.cli.output import check_target, listening, partition_table, working
from harmonium.coupled import Gibbs as PairGibbs, meet, mixing_times
from harmonium.data import DataSet, Rows
from harmonium.ladder import Ladder
from harmonium.likelihood import ais, find_log_partition
from harmonium.meanfield import Plefka, solve
from harmonium.report import resampling
from harmonium.report.hidden_units import SETTLING
from harmonium.report.page import template, verdict
from harmonium.report.page.figures import Chart, chart, interval
from harmonium.report.page.parts import Grid, Remark, Section
from harmonium.report.page.record import RunRecord, curves
from harmonium.report.page.sections import SECTIONS, STARTS, Subject, comparable, fill_landscape
from harmonium.report.plots import mixing_heights
from harmonium.sums import affordable, has_hidden_states, unit_updates
from harmonium.tables import Codec, Table
from harmonium.tasks import evaluate_rows, sample, usual_sweeps

EXAMPLES = (
    "harmonium report runs/digits",
    "harmonium report runs/digits --compare runs/slower --out both.html",
)

_ROWS = 10_000  # of the data, evenly spaced: what they show of the whole is then known to a percent
_IMAGES, _SAMPLES = 200, 1000  # chains; a table's columns want more for their histograms
_FROM_DATA = 20  # chains, two strips of images
_SECONDS, _TRAININGS = 60.0, 5.0  # of a page: at least, and as times of the training that it tells of
_LONG_PARTS = 5  # samples, pairs, equilibrium, likelihood and landscape: each gets as many of the seconds
_LEAST = 20  # steps of a part that are of use: fewer sweeps or temperatures show noise
_PROBE = 4  # steps that are timed
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
        seconds: about the time that the page may take, a fifth for each long part; if not given five times
            that of the training, and 60 at least. The page tells which parts were shortened or left out.
    """
    out = out or (run.run / "report.html" if run.run.is_dir() else run.run.with_suffix(".html"))
    records = [RunRecord.read(folder) for folder in (run.run, *(compare or ()))]
    check_target(out, (".html",), overwrite)
    page, (coding, source) = template(), run.load()
    coding.machine.requires_grad_(False)
    limit = max(_SECONDS, _TRAININGS * records[0].seconds) if seconds is None else seconds
    ladder = run.ladder(coding.machine)
    maker = _Maker(coding, ladder, temperatures, mixing_sweeps, limit / _LONG_PARTS)
    sections = maker.make(data, sweeps, seed)
    first = Section("verdict", "Verdict", remarks=verdict.training_remarks(records[0]))
    first.remarks += [remark for section in sections for remark in section.remarks]
    first.remarks += [Remark("note", f"{cut}.") for cut in maker.cuts]
    drawn = Section("curves", "Curves of the training", charts=list(curves(records)))
    if not records[0].history:
        drawn.absent = "There is no history.jsonl: RUN is a machine without its run."
    facts = {"machine": ", ".join(map(str, coding.machine.layers)), "updates": str(records[0].updates)}
    facts |= {"date": records[0].date, **maker.facts}
    title = f"{records[0].name}: a run of harmonium" + (f", with {len(compare)} more" if compare else "")
    sections = [first, drawn, *sections, _settings(records)]
    replace_file(out, page.render(title=title, facts=facts, sections=sections).encode())
    cautions = [remark.text for remark in first.remarks if remark.level == "caution"]
    return {"machine": source, "file": out, "notes": [*cautions, *maker.cuts]}


def _read(coding: Codec, source: str) -> tuple[DataSet, str, Tensor, Tensor | None]:
    """Returns rows of data that lack no cell, at most 10,000 evenly spaced ones: data, name, states, weights.

    Raises:
        ValueError: each row lacks something.
    """
    dataset = coding.read(source)
    every = coding.observed_rows(dataset, missing=True, beyond="tail")
    index, complete = every.spread(_ROWS, whole=True), len(every.spread(len(every), whole=True))
    weights = coding.learned_weights(dataset)
    if not complete:
        raise ValueError(f"{dataset.name} has {len(every)} rows, and each of them lacks a label or a cell")
    lacking = f" ({complete} of its {len(every)} rows, which lack no cell)" if complete < len(every) else ""
    weights = None if weights is None else weights[index]
    rows = every.take(index).to(coding.machine.device)
    return dataset.take(index.numpy()), dataset.name + lacking, rows, weights


@final
@dataclass
class _Maker:
    """Makes the sections of a page; ``share`` are the seconds of a long part, and ``most`` are sweeps."""

    coding: Codec
    ladder: Ladder | None
    temperatures: int
    most: int
    share: float
    facts: dict[str, str] = field(default_factory=dict)
    cuts: list[str] = field(default_factory=list)
    mixed: dict[str, Any] = field(default_factory=dict)  # by chains, without which annealing is not judged
    scored: DataSet | None = None

    def make(self, data: str | None, sweeps: int | None, seed: int) -> list[Section]:
        """Makes all sections in the order of their worth; what cannot be shown says why."""
        subject = self._look(data, seed)
        with working("report: drawing samples"):
            self._draw(subject, sweeps)
        chainless = subject.exact and isinstance(subject.encoder, Table)
        fillers: list[tuple[str, str, Callable[[Section, Subject], None]]] = [
            ("mixing", "Mixing", self._mixing),
            ("equilibrium", "Equilibrium", self._equilibrium),
            ("likelihood", "Likelihood", self._likelihood),
            *((id, title, self._landscape if id == "landscape" else fill) for id, title, fill in SECTIONS),
        ]
        sections = []
        for id, title, fill in fillers:
            section = Section(id, title)
            try:
                if chainless and id in ("mixing", "equilibrium"):
                    raise ValueError("a table of this machine is drawn, filled in and scored without chains.")
                with working(f"report: {title}"):
                    fill(section, subject)
            except ValueError as error:
                section.absent = str(error)
            sections.append(section)
        sections.insert(0, sections.pop(2))  # the likelihood stands before what it rests on
        return sections

    def _look(self, data: str | None, seed: int) -> Subject:
        """Returns the machine with its data, and states from noise for samples."""
        coding, machine = self.coding, self.coding.machine
        shape, names, training = coding.image_shape, coding.names, None
        name, rows, weights, lacking = "", None, None, "the machine names none"
        judged = None if data is None else _read(coding, data)
        if coding.source is not None and coding.source != data:
            try:
                learned = _read(coding, coding.source)
                judged, training = (learned, None) if judged is None else (judged, learned[2])
            except (ValueError, OSError, ImportError) as error:
                lacking = str(error)
        if judged is not None:
            self.scored, name, rows, weights = judged
            shape, names = shape or self.scored.image_shape or (), names or self.scored.names
        lacking = "" if judged else f"This needs whole rows of data: {lacking}; --data FILE gives some."
        columns = [name for name in names or () if coding.label is None or name != coding.label.name]
        start = machine.random_states(_IMAGES if shape else _SAMPLES, seed=seed)
        return Subject(
            machine, coding.encoder, machine.visible_width - coding.label_width, shape, columns, name, rows,
            lacking, training, start, None, seed, weights,
        )  # fmt: skip

    def _fit(
        self, part: str, most: int, run: Callable[[int], object], unit: str = "sweeps", fewest: int = _LEAST
    ) -> int:
        """Returns how many steps of ``run(steps)`` fit into the share of a long part, and notes a cut.

        Raises:
            ValueError: too few to be of use.
        """
        times = [time.perf_counter()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of few steps
            for steps in (2, 2, 2 + _PROBE):  # the first compiles what it needs
                run(steps)
                times.append(time.perf_counter())
        seconds = (times[3] - 2 * times[2] + times[1]) / _PROBE  # without what a start takes
        if seconds * most <= self.share:
            return most
        limit, fewest = f"in {self.share:.3g} s, a fifth of --seconds", min(fewest, most)
        if seconds * fewest > self.share:
            self.cuts.append(f"{part}: left out, as {fewest} {unit} cannot be made {limit}")
            raise ValueError(f"{fewest} {unit} cannot be made {limit}.")
        steps = max(1, int(self.share / seconds))
        self.cuts.append(f"{part}: {steps} of {most} {unit} were made {limit}")
        return steps

    def _draw(self, subject: Subject, sweeps: int | None) -> None:
        """Draws the samples of the page, exactly or by chains, for each layer."""
        machine, seed, start = subject.machine, subject.seed, subject.samples
        sweeps = usual_sweeps(machine) if sweeps is None else sweeps
        if has_hidden_states(machine.graph, machine.layers):  # hidden states are drawn given these rows
            v = sample(machine, len(start[0]), method="exact", seed=seed).rows
            subject.samples = run_chains(machine, Gibbs(), start, max(sweeps, 1), v, seed=seed)
            return
        kernel = self.ladder or Gibbs()
        rounds = sweeps if self.ladder is None else -(-sweeps // len(self.ladder.rungs or ()))
        if rounds:
            step = partial(run_chains, machine, kernel, start, seed=seed)
            rounds = self._fit("Samples", rounds, step, fewest=0)
        subject.samples = run_chains(machine, kernel, start, rounds, seed=seed)
        subject.sweeps = rounds
        if subject.rows is not None and rounds:
            rows = subject.spread(_FROM_DATA)
            start = machine.random_states(len(rows), seed=seed)
            start = run_chains(machine, Gibbs(), start, SETTLING, rows, seed=seed)
            subject.from_data = machine.hamiltonian().visible_states(
                run_chains(machine, Gibbs(), start, rounds, seed=seed)
            )

    def _mixing(self, section: Section, subject: Subject) -> None:
        machine, seed = subject.machine, subject.seed
        start = machine.random_states(400, seed=seed)
        step = partial(meet, machine, PairGibbs(), start, 1, seed=seed)
        sweeps = self._fit("Pairs of chains", self.most, step)
        mixing = mixing_times(machine, max_sweeps=sweeps, seed=seed)
        diagnosis = diagnose_chains(machine, sweeps=min(max(40, 2 * sweeps), 2000), seed=seed)
        section.remarks = verdict.mixing_remarks(mixing, subject.sweeps)
        section.remarks += verdict.convergence_remarks(diagnosis)
        steps, heights, limits = mixing_heights(mixing.meetings)
        title, label = "Coupled chains until they meet", "fraction"
        lines = {"pairs still apart": _points(steps, heights)}
        if limits is not None:
            title, label = "How far chains may be from the distribution", "total variation"
            lines = {"bound": _points(steps, heights), "its upper 95 % limit": _points(steps, limits)}
        section.charts = [chart(title, lines, "sweeps", label, dashed=["its upper 95 % limit"])]
        self.mixed |= mixing._asdict()

    def _equilibrium(self, section: Section, subject: Subject) -> None:
        machine, seed, rows = subject.machine, subject.seed, subject.known_rows
        start = machine.random_states(1000, seed=seed)
        step = partial(run_chains, machine, Gibbs(), start, seed=seed)
        sweeps = self._fit("Equilibrium", min(self.most, 1000), step)
        resampled = resampling(machine, rows, weights=subject.weights, sweeps=sweeps, seed=seed)
        self.mixed |= {"falls": resampled.falls, "peak": resampled.peak}
        section.lead = (
            "1,000 chains from noise: the Pearson correlation of the covariances of their visible units with "
            f"those of {subject.data}. It rises and stays where training kept to equilibrium; a curve that "
            "falls again is a sign that it did not."
        )
        section.remarks = verdict.equilibrium_remarks(resampled)
        times, other = resampled.sweeps.double().log2(), f"other rows of {subject.data}"
        lines = {
            "chains from noise": _points(times, resampled.correlation),
            other: [(float(x), resampled.data) for x in (times[0], times[-1])],
        }
        errors = {"chains from noise": _points(times, resampled.drop_error)}
        ticks = [(log2(at), str(at)) for at in resampled.sweeps.tolist()]
        title, ticks = "Pair correlations, samples and data", ticks[:: -(-len(ticks) // 6)]
        section.charts = [
            chart(title, lines, "sweeps", "correlation", errors=errors, dashed=[other], x_ticks=ticks)
        ]

    def _likelihood(self, section: Section, subject: Subject) -> None:
        machine, seed, temperatures = subject.machine, subject.seed, self.temperatures
        if not affordable(unit_updates(machine.hamiltonian())):
            step = partial(ais, machine, _ANNEALED, data=subject.rows, seed=seed)
            temperatures = self._fit("Likelihood", temperatures, step, "temperatures")
        with listening() as notes:
            log_partition = find_log_partition(machine, subject.rows, temperatures=temperatures, seed=seed)
        base = subject.data or "pilot run of the machine"
        table = partition_table(log_partition, chains=_ANNEALED, temperatures=temperatures, base=base)
        mixed, row = self.mixed or None, dict[str, Any]()
        if subject.rows is not None:
            states = Rows.of(subject.rows.cpu(), machine.dtype)
            evaluation = evaluate_rows(self.coding, self.scored, log_partition, states=states, seed=seed)
            row, notes = {"data": subject.data, **evaluation.entries()}, [*notes, *evaluation.doubts]
        known, unmixed = row.get("log_likelihood") is not None, verdict.unmixed(table, mixed)
        if value := verdict.likelihood(row, table, mixed):
            self.facts["log-likelihood" if known else "variational bound"] = value
        if known and not unmixed:
            subject.score = evaluation.mean - evaluation.offset
        if unmixed:
            table["standard_error"] = None
            row |= {"log_partition_standard_error": None} if row else {}
        section.remarks = verdict.likelihood_remarks(table, row or None, mixed)
        section.lead = ". ".join([*dict.fromkeys(notes), ""]).strip() or "In nats, natural logarithms."
        section.lead += "" if row else f" {subject.lacking}"
        section.charts = _draw_interval(table)
        section.lead += f" {comparable(subject)}" if row else ""
        section.tables = [_table("ln Z", table), *([_table("mean over rows", row)] if row else [])]

    def _landscape(self, section: Section, subject: Subject) -> None:
        scheme, starts = Plefka(subject.machine.hamiltonian()), subject.spread(STARTS)
        sweeps = _SETTLING / len(starts)  # of all rows, which cost as much as one row does

        def settle(rows: int) -> None:
            solve(scheme, starts, max_sweeps=ceil(rows * sweeps))

        fill_landscape(section, subject, self._fit("Landscape", len(starts), settle, "rows"))


def _settings(records: Sequence[RunRecord]) -> Section:
    """Settings, side by side where there are several runs, with the rows marked that differ."""
    by_run = [record.settings() for record in records]
    names = dict.fromkeys(name for settings in by_run for name in settings)
    rows = [[name, *(settings.get(name, "none") for settings in by_run)] for name in names]
    marked = [len(set(row[1:])) > 1 for row in rows]
    lead = "As recorded when training began, or last went on. Rows that differ between runs are marked ≠."
    head = ["", *(f"{record.name} ({i})" for i, record in enumerate(records, 1))]
    return Section("settings", "Settings", lead, tables=[Grid(head, rows, marked)])


def _draw_interval(table: dict[str, Any]) -> list[Chart | None]:
    """Returns a chart of what encloses an annealed ln Z: two standard errors, and its bounds."""
    error, lower, upper = (table.get(name) for name in ("standard_error", "lower", "upper"))
    ends = {} if not error else {"± 2 SE": (table["value"] - 2 * error, table["value"] + 2 * error)}
    if lower is not None and upper is not None:
        ends["bounds"] = (lower, upper)
    return [interval("Where ln Z lies", ends, table["value"], "nats; dashed: the estimate")] if ends else []


def _table(title: str, values: dict[str, Any]) -> Grid:
    return Grid(
        [title, ""], [[name.replace("_", " "), format_value(value)] for name, value in values.items()]
    )


def _points(x: torch.Tensor, y: torch.Tensor) -> list[tuple[float, float]]:
    return list(zip(x.tolist(), y.tolist(), strict=True))
