"""``python -m benchmarks``: tables of ratios, measured side by side in one process, and a record of them."""

from __future__ import annotations

import argparse
import os
import sys
from time import perf_counter
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # read while torch is imported
os.environ.pop(
    "OPENBLAS_CORETYPE", None
)  # read while NumPy is imported; peers get what their library chooses

import torch
from threadpoolctl import threadpool_limits

from benchmarks import gpu, page, quality, records, system, targets
from benchmarks.race import CLOCKS, Table, aligned, number, set_clock
from benchmarks.suite import BENCHMARKS


def main() -> None:
    if sys.argv[1:2] == ["quality"]:
        quality.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="python -m benchmarks quality: likelihood over CPU seconds; it has a --help of its own",
    )
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="one benchmark; may be repeated")
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that it runs")
    parser.add_argument("--threads", type=int, default=1, help="of every library alike (default 1)")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu: CPU time of the process, which on a busy machine and with one thread is what counts",
    )
    parser.add_argument(
        "--record",
        action=argparse.BooleanOptionalAction,
        help="whether to keep the numbers in this processor's record; a whole run by the wall clock is; "
        "with --only, what it says of other benchmarks stays",
    )
    parser.add_argument(
        "--device",
        default="cpu",
        help="cuda: the table of a GPU instead, in four minutes",
    )
    arguments = parser.parse_args()
    if arguments.device != "cpu":
        gpu.main(arguments.device, arguments.quick, arguments.record is not False)
        return

    whole = not (arguments.quick or arguments.only)
    recording = arguments.record
    if recording is None:
        recording = whole and arguments.clock == "wall"
    if recording and (arguments.quick or arguments.clock != "wall"):
        parser.error("--record: records are by the wall clock and not --quick")
    if arguments.clock == "cpu" and arguments.threads != 1:
        parser.error("--clock cpu adds up all threads: it goes with --threads 1")
    if arguments.threads < 1:
        parser.error(f"--threads: expected at least 1, received {arguments.threads}")

    record = records.Record(system.processor(), os.cpu_count(), arguments.threads)
    if recording:
        try:
            before = records.kept(records.FOLDER, record)
        except ValueError as error:
            parser.error(str(error))
        if before and not whole:
            record = before
    set_clock(arguments.clock)
    torch.set_num_threads(arguments.threads)
    begun = perf_counter()
    with threadpool_limits(arguments.threads):
        run = {
            **system.describe(),
            "clock": arguments.clock,
            "quick": arguments.quick,
            "load": [system.load()],
        }
        print(_text(record, run), flush=True)
        tables = []
        for name in arguments.only or BENCHMARKS:
            start = perf_counter()
            table = BENCHMARKS[name].run(arguments.quick)
            print(f"\n{_printed(table, record.processor.vendor)}", flush=True)
            print(f"({perf_counter() - start:.0f} s)", flush=True)
            tables.append(table)
    run["load"].append(system.load())
    run["seconds"] = round(perf_counter() - begun)
    if recording:
        record.add(run, tables)
        print(f"\nkept in {record.write(records.FOLDER)}")
        page.write()


def _text(record: records.Record, run: dict[str, Any]) -> str:
    """What the numbers are measured on, in a few lines."""
    processor = record.processor
    versions = ", ".join(f"{name} {each}" for name, each in run["versions"].items())
    return (
        f"{processor.name}, family {processor.family}, model {processor.model}: {' '.join(processor.flags)}\n"
        f"{record.cores} cores, load {run['load'][0]}, threads {record.threads}, {run['system']}\n"
        f"products by {run['products']}\n"
        f"{versions}, commit {run['commit']}\n"
        f"{run['clock']} time; ÷ is the median over rounds of the ratio in one round"
    )


def _printed(table: Table, vendor: str) -> str:
    """A table in text."""
    timed = any(row.rounds for row in table.rows)
    figures = list(dict.fromkeys(name for row in table.rows for name in row.figures))
    wanted = targets.of(table.name, vendor)
    heading = ["", *(["median ms", "quartiles", "fastest"] if timed else []), *figures]
    heading += [table.ratio, *(["target", ""] if wanted else [])]
    lines = []
    for row in table.rows:
        cells = [row.contestant]
        if timed:
            quartiles = "-".join(map(number, row.quartiles_ms or ()))
            cells += [number(row.median_ms), quartiles, number(row.fastest_ms)]
        cells += [number(row.figures.get(name)) for name in figures]
        cells.append("" if row.ratio is None else f"{row.ratio:.2f}")
        if wanted:
            found = [each.verdict(row, vendor) for each in wanted if each.contestant == row.contestant]
            cells += [
                ", ".join(each.wanted for each in found),
                ", ".join(f"{each.value} {'met' if each.met else 'missed'}" for each in found if each.value),
            ]
        lines.append(cells)
    notes = list(table.notes)
    if table.name in targets.REFERENCES:
        reference = targets.REFERENCES[table.name]
        notes.append(
            f"the reference, not run: {reference.program}, {reference.ms:g} ms; {reference.conditions}"
        )
    return "\n".join([table.title, "", aligned(heading, lines), *notes])


if __name__ == "__main__":
    main()
