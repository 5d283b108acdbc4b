"""``python -m benchmarks quality``: held-out log-likelihood over CPU seconds of training, on one thread.

Every contestant has the same grid of learning rates and schedules, of which the best go on to longer runs.
Every machine is evaluated alike, and evaluation is not charged. Each run is in the record as soon as it is
over, and the same command makes those that are missing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from time import process_time
from typing import Any

import torch
from threadpoolctl import threadpool_limits

import harmonium as hm
from benchmarks import (
    peers,
    quality_contestants as contestants,
    quality_records as records,
    quality_sets as sets,
    system,
)
from benchmarks.quality_contestants import Option
from benchmarks.quality_records import Record, Results, Run
from benchmarks.quality_sets import DataSet

_EXACT = 20  # hidden units of which all states are enumerated
_REVERSE = 1000  # rows that annealing starts its reverse runs from


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command with the arguments that follow ``quality``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks quality", description=__doc__)
    names = contestants.CONTESTANTS
    parser.add_argument("--only", action="append", choices=sets.SETS, help="a data set; may be repeated")
    parser.add_argument("--contestant", action="append", choices=names, help="one of them; may be repeated")
    parser.add_argument("--again", action="store_true", help="forget earlier runs of what is chosen")
    parser.add_argument(
        "--limit", type=float, default=300.0, metavar="SECONDS", help="of CPU time of one run (default 300)"
    )
    parser.add_argument("--quick", action="store_true", help="small data, to see that it runs")
    parser.add_argument(
        "--results", type=Path, metavar="FOLDER", help="of the record (default: the project's, or a new one)"
    )
    chosen = parser.parse_args(arguments)
    if chosen.quick and (chosen.only or (chosen.results and chosen.results.resolve() == records.FOLDER)):
        parser.error("--quick: has data sets and a record of its own; leave out --only, name other --results")
    if not chosen.limit > 0:
        parser.error(f"--limit: expected more than 0, received {chosen.limit:g}")

    folder = chosen.results or (Path(tempfile.mkdtemp()) if chosen.quick else records.FOLDER)
    fresh = Record(system.processor(), os.cpu_count())
    try:
        records.kept(folder, fresh)
    except ValueError as error:
        parser.error(str(error))
    command = {**system.describe(), "load": system.load()}
    taking_part = [each for each in contestants.available() if each in (chosen.contestant or names)]
    for absent in set(chosen.contestant or names) - set(taking_part):
        print(f"{absent}: left out; {peers.HOW_TO_GET_RBMS}", flush=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            for name, make in (sets.QUICK if chosen.quick else sets.SETS).items():
                if chosen.only and name not in chosen.only:
                    continue
                try:
                    data = make()
                except FileNotFoundError as error:
                    print(f"{name}: left out; {error}", flush=True)
                    continue
                found = _begun(records.kept(folder, fresh), data, taking_part if chosen.again else [])
                for run in missing(found, data, taking_part, command["date"], chosen.limit):
                    found.runs.append(run)
                    record = records.kept(folder, fresh)  # with what a command on other data has written
                    record.results[name] = found
                    record.commands[command["date"]] = command
                    record.write(folder)
                    print(f"{name}: {_line(run)}", flush=True)
    finally:
        torch.set_num_threads(threads)
    print(f"kept in {folder / fresh.file_name}")
    if folder.resolve() == records.FOLDER:
        from benchmarks import page

        page.write()


def _begun(record: Record, data: DataSet, forgotten: Sequence[str]) -> Results:
    """Returns the results so far, without those of some contestants."""
    found = record.results.setdefault(data.name, Results(data.title, [], []))
    found.title, found.notes, found.targets = data.title, list(data.notes), list(data.targets)
    found.runs = [run for run in found.runs if run.contestant not in forgotten]
    return found


def missing(
    found: Results, data: DataSet, taking_part: Sequence[str], command: str, limit: float
) -> Iterator[Run]:
    """Makes the runs that are not there, one at a time, contestants in turns.

    Args:
        found: the runs that are; it has to take up what is yielded before it asks for more.
        data: to learn and to hold out.
        taking_part: names of contestants.
        command: the date of the command.
        limit: CPU seconds; a run that would take longer, by a shorter one of its kind, is not made.
    """
    warm: set[str] = set()
    for contestant, option, passes in _wanted(found, data, taking_part, limit):
        if contestant not in warm:
            contestants.warm_up(contestant, data)
            warm.add(contestant)
        yield _run(data, contestant, option, passes, command)


def _wanted(
    found: Results, data: DataSet, taking_part: Sequence[str], limit: float
) -> Iterator[tuple[str, Option | None, int | None]]:
    before: int | None = None
    for stage in data.stages:
        most = max(len(contestants.grid(each)) for each in contestants.CHOOSING)
        for place in range(stage.options or most):
            for contestant in taking_part:
                if contestant == contestants.DEFAULTS:
                    continue
                options, expected = list(contestants.grid(contestant)), 0.0
                if before is not None:
                    ranked = found.ranked(contestant, before)
                    options = [run.option for run in ranked if run.option]
                if place >= len(options):
                    continue
                if before is not None:
                    expected = (ranked[place].seconds or 0.0) * stage.passes / before
                option = options[place]
                if expected <= limit and found.find(contestant, option, stage.passes) is None:
                    yield contestant, option, stage.passes
        before = stage.passes
    if contestants.DEFAULTS in taking_part and found.find(contestants.DEFAULTS, None, None) is None:
        yield contestants.DEFAULTS, None, None


def _run(data: DataSet, contestant: str, option: Option | None, passes: int | None, command: str) -> Run:
    told: dict[str, Any] = {"contestant": contestant, "command": command}
    start = process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a machine still learns, at lengths that are not its own
            if option is None or passes is None:
                machine = contestants.defaults(data)
            else:
                told |= {**asdict(option), "passes": passes, "updates": contestants.updates(data, passes)}
                machine = contestants.CHOOSING[contestant](data, option, passes)
    except hm.training.TrainingDiverged as error:
        return Run(**told, seconds=_rounded(process_time() - start), failed=str(error).partition(":")[0])
    told["seconds"] = _rounded(process_time() - start)
    if not all(bool(torch.isfinite(each).all()) for each in machine.parameters()):
        return Run(**told, failed="parameters are no longer finite")
    return Run(**told, **{key: _rounded(value) for key, value in evaluate(machine, data, passes).items()})


def _rounded(value: float) -> float:
    """Returns five digits, at once and not where a record is written: a command that goes on ranks alike."""
    return float(f"{value:.5g}")


def evaluate(machine: hm.BoltzmannMachine, data: DataSet, passes: int | None) -> dict[str, float]:
    """Returns the mean log-likelihood of the rows held out: the estimate, between its bounds, and the ESS.

    Args:
        machine: trained.
        data: what on.
        passes: the length of the run, which says how many temperatures; None: as the longest.
    """
    if data.hidden <= _EXACT:
        exact = hm.likelihood.exact_log_partition(machine)
        value = float(hm.likelihood.log_likelihood(machine, data.test, exact).mean())
        return {"test": value, "low": value, "high": value}
    temperatures = next(
        (stage.temperatures for stage in data.stages if stage.passes == passes), data.stages[-1].temperatures
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the bounds and the sample size are in the record
        z = hm.likelihood.ais(machine, data.chains, temperatures, data=data.train[:_REVERSE], seed=1)
    test = float(hm.likelihood.log_likelihood(machine, data.test, z.value).mean())
    return {
        "test": test,
        "low": test + z.value - max(z.value, z.upper),
        "high": test + z.value - z.lower,
        "ess": z.ess,
    }


def _line(run: Run) -> str:
    settings = "" if run.option is None else f", {run.option}, {run.passes} passes"
    seconds = f"{run.seconds:.2f} s"
    if run.failed:
        return f"{run.contestant}{settings}: {seconds}, {run.failed}"
    return f"{run.contestant}{settings}: {seconds}, {run.test:.2f} ({run.low:.2f} to {run.high:.2f}) nats"
