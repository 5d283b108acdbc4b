"""``python -m benchmarks.page``: docs/benchmarks.md from the records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import gpu, quality_page, quality_records, records, targets
from benchmarks.quality_records import Record as QualityRecord
from benchmarks.race import Row, markdown, number
from benchmarks.records import Record
from benchmarks.suite import BENCHMARKS

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"

_HEAD = """\
<!-- Made by `python -m benchmarks.page` from records/, results/ and targets.py beside it: edit those. -->

# Benchmarks

Harmonium beside its peers, on every processor that it was timed on. Absolute times move from machine to
machine; what counts are ratios, which are taken within one process: each round runs every contestant once,
one after the other.

**How to read it.** A column is a processor with a number of threads, the same for every library. "ms" is the
median over rounds, in brackets the quartiles. "÷" is how many times as long a contestant takes as the one
that it is held against: the median over rounds of the ratio within one round. ✓ says that a target is met,
**✗** that it is missed; before the mark stands the measured value, behind it the target. "plain torch" is the
same update as one writes it down in torch. "The reference" is a program that was not run here: its time was
measured once, elsewhere, and is listed [at the end](#reference-programs).

**How to run it again.** `make bench` on an idle machine, or `make bench BENCH_ARGS="--threads 2"`: it writes
the record of the processor that it finds to `benchmarks/records/` and makes this page anew.
`make bench BENCH_ARGS="--only tap --record"` replaces one benchmark in that record.
"""


def text(found: Sequence[Record], quality: Sequence[QualityRecord] = ()) -> str:
    """The page of these records, and of those of ``python -m benchmarks quality``."""
    parts = [_HEAD, *filter(None, [quality_page.text(quality), gpu.text()])]
    return "\n".join([*parts, _processors(found), _summary(found), *_benchmarks(found), _references()])


def write() -> None:
    """Writes the page of the records in the repository, and draws its figures."""
    quality = quality_records.read_all()
    PAGE.write_text(text(records.read_all(), quality), encoding="utf-8")
    quality_page.draw(quality)


def _label(record: Record) -> str:
    processor = record.processor
    threads = f"{record.threads} thread" + ("s" if record.threads > 1 else "")
    return f"{processor.name} ({processor.family}/{processor.model}), {threads}"


def _processors(found: Sequence[Record]) -> str:
    heading = ["", *map(_label, found)]
    last = [record.runs[max(record.runs)] for record in found]

    def speeds(run: dict[str, Any]) -> str:
        return ", ".join(f"{name} {speed}" for name, speed in run.get("gflops", {}).items())

    def loads(record: Record) -> str:
        return "; ".join(" to ".join(map(str, run["load"])) for run in record.runs.values())

    rows = [
        ["family / model", *(f"{each.processor.family} / {each.processor.model}" for each in found)],
        ["instructions", *(", ".join(each.processor.flags) for each in found)],
        ["cores", *(str(each.cores) for each in found)],
        ["threads", *(str(each.threads) for each in found)],
        ["measured", *("; ".join(each.runs) for each in found)],
        ["load, start to end", *map(loads, found)],
        ["seconds", *("; ".join(str(run["seconds"]) for run in each.runs.values()) for each in found)],
        ["commit", *("; ".join(str(run["commit"]) for run in each.runs.values()) for each in found)],
        ["what multiplies", *(f"`{run['products']}`" for run in last)],
        ["10⁹ operations a second", *map(speeds, last)],
        *(
            [name, *(run["versions"].get(name, "") for run in last)]
            for name in dict.fromkeys(name for run in last for name in run["versions"])
        ),
    ]
    return "## Processors\n\n" + markdown(heading, rows)


def _summary(found: Sequence[Record]) -> str:
    parts = ["## Targets\n"]
    for record in found:
        missed, absent, met = [], [], 0
        for name in BENCHMARKS:
            for target in targets.of(name, record.processor.vendor):
                verdict = target.verdict(_row(record, name, target.contestant), record.processor.vendor)
                if verdict.met is None:
                    absent.append(f"{name}, {target.contestant}: {verdict.wanted}")
                elif verdict.met:
                    met += 1
                else:
                    missed.append(f"{name}, {target.contestant}: **{verdict.value} ✗** {verdict.wanted}")
        lines = [*missed, *(f"{each} (not measured)" for each in absent)]
        count = met + len(missed) + len(absent)
        parts.append(f"**{_label(record)}**: {met} of {count} met" + (", but not:\n" if lines else ".\n"))
        parts += [f"- {line}" for line in lines] + ([""] if lines else [])
    return "\n".join([*parts, *_speedups(found)])


def _speedups(found: Sequence[Record]) -> list[str]:
    """Lines on records with several threads, and one thread in turns with them."""
    lines = []
    for record in found:
        for speedup in targets.SPEEDUPS:
            value = _row(record, speedup.benchmark, targets.ONE_THREAD).ratio
            if record.threads == speedup.threads and value is not None:
                mark = "✓" if value >= speedup.bound else "✗"
                lines.append(
                    f"- {_label(record)}, {speedup.benchmark}: {number(value)} times as fast as one thread "
                    f"**{mark}** ≥ {speedup.bound:g}"
                )
    return [*lines, ""] if lines else []


def _benchmarks(found: Sequence[Record]) -> list[str]:
    names = [name for name in BENCHMARKS if any(name in each.tables for each in found)]
    return ["## Results\n", *(_benchmark(name, found) for name in names)]


def _benchmark(name: str, found: Sequence[Record]) -> str:
    tables = [each.tables[name] for each in found if name in each.tables]
    figures = list(dict.fromkeys(key for table in tables for row in table.rows for key in row.figures))
    timed = any(row.rounds for table in tables for row in table.rows)
    heading = [""]
    for record in found:
        columns = [*(["ms"] if timed else []), *figures, tables[-1].ratio]
        heading += [f"{_label(record)}: {columns[0]}", *columns[1:]]
    rows = []
    for contestant in BENCHMARKS[name].contestants:
        cells = [contestant]
        for record in found:
            row = _row(record, name, contestant)
            cells += [
                *([_milliseconds(row)] if timed else []),
                *(number(row.figures.get(key)) for key in figures),
            ]
            cells.append(_judged(record, name, row))
        rows.append(cells)
    notes = _notes(name, found)
    if name in targets.REFERENCES:
        reference = targets.REFERENCES[name]
        notes.append(f"- the reference: {reference.ms:g} ms, {reference.conditions}")
    title = f"### {tables[-1].title}\n\n`{name}`\n"
    return "\n".join([title, markdown(heading, rows), *notes, ""])


def _notes(name: str, found: Sequence[Record]) -> list[str]:
    """The lines below a table; what is not said on every processor names those on which it is."""
    saying: dict[str, list[str]] = {}
    measured = [each for each in found if name in each.tables]
    for record in measured:
        for note in record.tables[name].notes:
            saying.setdefault(note, []).append(_label(record))
    return [
        f"- {note}" if len(labels) == len(measured) else f"- {'; '.join(labels)}: {note}"
        for note, labels in saying.items()
    ]


def _row(record: Record, benchmark: str, contestant: str) -> Row:
    """A contestant's row, an empty one where it was not measured."""
    table = record.tables.get(benchmark)
    rows = table.rows if table else []
    return next((row for row in rows if row.contestant == contestant), Row(contestant))


def _milliseconds(row: Row) -> str:
    if row.median_ms is None or row.quartiles_ms is None:
        return ""
    return f"{number(row.median_ms)} ({' to '.join(map(number, row.quartiles_ms))})"


def _judged(record: Record, benchmark: str, row: Row) -> str:
    """The ratio, with a mark for every target of the row."""
    vendor = record.processor.vendor
    of_row = [each for each in targets.of(benchmark, vendor) if each.contestant == row.contestant]
    parts = [] if any(each.measure == "ratio" for each in of_row) else [number(row.ratio)]
    for target in of_row:
        verdict = target.verdict(row, vendor)
        if verdict.met is None:
            parts.append(f"not measured ({verdict.wanted})")
        else:
            value = f"{verdict.value} ✓" if verdict.met else f"**{verdict.value} ✗**"
            parts.append(f"{value} {verdict.wanted}")
    return "; ".join(part for part in parts if part)


def _references() -> str:
    rows = [
        [f"`{each.benchmark}`", each.program, f"{each.ms:g}", each.conditions]
        for each in targets.REFERENCES.values()
    ]
    return "## Reference programs\n\n" + markdown(["benchmark", "program", "ms", "measured on"], rows)


if __name__ == "__main__":
    write()
