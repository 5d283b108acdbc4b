"""The training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, final

from harmonium import _checks
from harmonium._progress import show_progress
from harmonium.distributed import Group, as_group
from harmonium.ladder import KeptLadder, Ladder
from harmonium.machine import BoltzmannMachine
from harmonium.training.batch_source import digest
from harmonium.training.callbacks import STOP, Update, needs_update, notify
from harmonium.training.checkpoint import read_last
from harmonium.training.compiled_updates import CompiledUpdates, served
from harmonium.training.divergence import CHECK_EVERY, DivergenceMonitor, TrainingDiverged, warn_of_saddle
from harmonium.training.history import Record, Validation
from harmonium.training.preconditioner import make_preconditioner
from harmonium.training.recorded_updates import RecordedUpdates, why_not_recorded
from harmonium.training.run_directory import RunDirectory
from harmonium.training.run_toml import describe
from harmonium.training.seeds import stream_seed
from harmonium.training.settings import Settings, with_settings
from harmonium.training.state import (
    TrainingRun,
    TrainingState,
    deal,
    find_problem,
    fingerprint,
    fingerprint_here,
    require_one_run,
)
from harmonium.training.terminal import Interruption
from harmonium.training.updates import DueWork, OneByOne, UpdateResult, Updates

_TIMES = 4  # that the rate is lowered: 1/81 of it is as good as none
_CHECKPOINT_SECONDS = 60.0  # what a kill costs at most, beside which writing a checkpoint takes no time


@with_settings(Settings)
def train(machine: BoltzmannMachine, X: Any, settings: Settings) -> TrainingRun:
    """Train a machine by stochastic ascent of the mean log-likelihood, or of its weighted mean.

    The same arguments, device and number of threads give the same bits, also across a kill and a resume.
    Long runs of small machines have noise of their own (docs/decisions/0012): those from 200 updates on.
    Another number of processes has other bits of the same distribution.

    Args:
        machine: Machine, trained in place; parameters with ``requires_grad=False`` stay as they are.
        X: (rows, width) data in the support of the visible layers: a NumPy array or memory map, a torch
            tensor, a scipy sparse matrix or an h5py dataset. Data in memory are checked before the first
            update, others batch by batch. NaN is an entry that was not observed (all columns of a unit): the
            likelihood is that of what was, and a row may have nothing observed.
        settings: keywords, those of ``training.Settings``; ``rule`` and one of ``updates`` and ``epochs``
            have to be given.

    Returns:
        The outcome. After a Ctrl-C or SIGTERM the status is "interrupted", and the current update was
        finished and saved; a second one acts at once, as it would without training. A signal that the process
        was told to ignore stays ignored, as under ``nohup``.

    Raises:
        TypeError, ValueError: a malformed argument, data outside the support, several processes without
            ``distributed`` or with other settings or data, a run that exists or that another process trains,
            a resume with other settings or from damaged files; the message names the argument or the file.
        TrainingDiverged: something is no longer finite, or the machine has run away from its data, at the
            last rate of ``on_divergence``; it is left with its last good parameters. A run that ends with
            data less likely than uniform noise warns (RuntimeWarning).
        OSError: a file could not be written; the last good checkpoint is kept.

    Examples:
        >>> import harmonium as hm
        >>> X = hm.data.bars_and_stripes()
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(8)])
        >>> run = hm.train(machine, X, rule=hm.rules.pcd(), updates=50, learning_rate=0.1, progress=False)
        >>> run.status, run.updates
        ('completed', 50)
    """
    slower = settings.on_divergence != "raise"
    number = _find_attempt(settings) if settings.resume and slower else 0
    number = as_group(settings.distributed).broadcast(number)  # of the process that writes the folder
    run = Run(machine, X, settings.slower(number) if slower else settings)
    begun = {name: tensor.clone() for name, tensor in machine.state_dict().items()} if slower else {}
    while True:
        try:
            return run.train()
        except TrainingDiverged as error:
            number += 1
            if not slower or number > _TIMES:
                raise
            _checks.warn(
                f"training diverged after {error.step} updates at a learning rate of "
                f"{error.learning_rate:.4g} and begins again at a third of it; a lower learning_rate needs "
                'no second attempt, and on_divergence="raise" makes none',
                RuntimeWarning,
            )
        machine.load_state_dict(begun)
        run = Run(machine, X, settings.slower(number, again=True))


def _find_attempt(settings: Settings) -> int:
    """Returns how often the rate of the run that a folder holds was lowered; 0 where it holds none."""
    with suppress(OSError, KeyError, ValueError):  # damaged, or of no attempt: the run itself will say so
        content, *_ = read_last(Path(str(settings.run_dir)))
        saved: Any = content["settings"].get("learning_rate") if content else None
        return [settings.slower(number).learning_rate for number in range(_TIMES + 1)].index(saved)
    return 0


@final
class Run:
    """One training: ``prepare``, then ``step``, ``record`` and ``save`` in turns, then ``finish``.

    Args:
        machine: Machine, trained in place.
        X: Rows.
        settings: its settings; ``updates`` counts those before it too.
        show: makes what metrics, callbacks, files and the result get in place of the machine. None: the
            machine itself, or its running average.
        earlier: Records of updates that were made before; this run goes on counting from the last of them.
            None: a training begins here.
        spent: Seconds of the search that led to this run, from which its own go on; a resumed run has them.

    Raises:
        TypeError, ValueError: a malformed argument, as ``train``. Nothing was trained or written.
    """

    def __init__(
        self,
        machine: BoltzmannMachine,
        X: Any,
        settings: Settings,
        *,
        show: Callable[[BoltzmannMachine], BoltzmannMachine] | None = None,
        earlier: Sequence[Record] | None = None,
        spent: float = 0.0,
    ) -> None:
        self.settings, self.show, self.run_dir = settings, show, settings.run_dir
        state = self.state = TrainingState(machine, X, settings)
        leads = state.group.is_rank_zero
        self.progress = settings.progress if leads else False
        self.keeper: KeptLadder | None = None
        if leads:
            state.callbacks = tuple(settings.callbacks)
        if leads and settings.ladder is not False:
            ladder = Ladder() if isinstance(settings.ladder, bool) else settings.ladder
            self.keeper = KeptLadder(ladder, partial(stream_seed, settings.root, "ladder"))
            state.callbacks = (*state.callbacks, self.keeper)
        self.shows = not all(
            hasattr(callback, "needs_update") for callback in state.callbacks
        )  # every update
        self.evaluate = Validation(
            settings.validation, settings.validation_weights, settings.metrics, machine
        )
        self.evaluate_every = settings.evaluate_every or state.batches.per_epoch
        self.record_every = settings.record_every or max(1, min(100, state.total // 100))
        judged = self.judged
        for callback in state.callbacks:
            notify(callback, "begin", judged, tuple(self.evaluate.metrics))
        if earlier:
            state.history.records = [*earlier]
            state.step, state.seconds = earlier[-1]["step"], earlier[-1]["seconds"]
        state.seconds = max(state.seconds, spent)
        self.obstacle = why_not_recorded(state)
        recorded = RecordedUpdates if self.obstacle is None else OneByOne
        self.engine: type[Updates] = CompiledUpdates if served(state) else recorded
        self.directory: RunDirectory | None = None
        self.begins = earlier is None
        self.updates: Updates
        self.holds = False  # whether a checkpoint is due as soon as the machine is where the state says
        self.last_result = UpdateResult(state.optimizer.learning_rate, 0.0, {}, None)
        self.due_now = DueWork(False, False, False, False)  # of the last update

    @property
    def judged(self) -> BoltzmannMachine:
        """The machine as metrics, callbacks, files and the result have it."""
        machine = self.state.averaged or self.state.machine
        return machine if self.show is None else self.show(machine)

    def train(self) -> TrainingRun:
        """Makes all updates that are left; to be called once."""
        state, group, every = self.state, self.state.group, self.settings.checkpoint_every
        try:
            self.prepare()
            started = self.started = time.perf_counter() - state.seconds
            shown = show_progress(state.total, state.step, self.progress, whole=not state.optimizer.search)
            with Interruption() as interruption, shown as bar:
                saved_at = time.perf_counter()
                state.stopped, halted = group.all_reduce_any(state.stopped, interruption.signal is not None)
                while state.step < state.total and not state.stopped and not halted:
                    self.step()
                    stops = self.record()
                    if bar:
                        bar(state.step, lambda: {**state.metrics, "gradient_norm": self.last_result.norm})
                    overdue = time.perf_counter() - saved_at >= _CHECKPOINT_SECONDS
                    halted = interruption.signal is not None
                    self.holds = overdue or halted
                    if self.holds and self.updates.runs_ahead:
                        halted = False  # not before the machine is where the state says
                        continue
                    if group.size > 1:
                        stops, halted, overdue = self.agree(stops, halted, overdue)
                    if stops:
                        self.stop()
                    if overdue if every is None else state.step % every == 0:
                        self.save()
                        saved_at, self.holds = time.perf_counter(), False
                self.save()
                rule_state = deal(group.all_gather(state.rule_state), Group())
            finished = state.stopped or state.step == state.total
            signal = max(group.all_gather(interruption.signal or 0)) or None
            machine = self.finish() if finished else self.judged
        finally:
            self.close()
        return TrainingRun(
            machine=machine if state.average is None else state.machine,
            averaged_machine=None if state.average is None else machine,
            ladder=None if self.keeper is None else self.keeper.ladder,
            history=state.history.records,
            status="stopped" if state.stopped else "completed" if finished else "interrupted",
            updates=state.step,
            seconds=time.perf_counter() - started,
            run_dir=None if self.directory is None else self.directory.path,
            rule_state=rule_state,
            metrics=state.metrics,
            signal=signal,
            engine=self.engine.engine + (f": {self.obstacle}" if self.obstacle else ""),
        )

    def prepare(self) -> None:
        """Opens the folder of the run and goes to where it has come."""
        state, group, settings = self.state, self.state.group, self.settings
        if self.run_dir is not None or group.size > 1:
            identity = fingerprint(state, self.engine.engine)
            require_one_run(group.all_gather(identity))
        if group.size > 1:
            require_one_run(group.all_gather({"first batch": digest(state.batches.take(0, whole=True).v)}))
        if self.run_dir is not None:
            with group.on_rank_zero() as leads:
                if leads:
                    identity |= fingerprint_here(state)
                    text, resume = settings.run_file or describe(settings), settings.resume
                    self.directory = RunDirectory(
                        self.run_dir, identity, text, resume=resume, overwrite=settings.overwrite
                    )
                    if settings.resume:
                        self.directory.restore(state, settings.schedule)
                    self.directory.write_config()
        if self.begins:
            for key in ("linear", "intervals"):  # of cells that are filled in, by the machine as it was
                state.machine.metadata.pop(key, None)
        search = state.optimizer.search
        if search and settings.transform is None:
            search.preconditioner = make_preconditioner(
                state.machine, state.learned, settings.pulls(), state.batches.take(0, whole=True)
            )
            if search.preconditioner and not search.state:  # the gauge of least penalty, to begin with
                search.preconditioner.settle_(*state.learned.values())
        state.follow()
        if state.step == 0 and group.is_rank_zero and settings.transform is None:
            warn_of_saddle(state)
        density = getattr(settings.rule, "density_share", float(getattr(settings.rule, "generative", True)))
        # Data of a machine whose chains are hot lie as many times further out, in units of its variances.
        slack = max(1.0, getattr(settings.rule, "temperature", 1.0)) / density if density else math.inf
        self.monitor = DivergenceMonitor(state, slack)
        self.updates = self.engine(state, self.monitor)

    def step(self) -> None:
        """Makes the next update, or many at once where nothing else is due between them, and checks it."""
        self.last_result = self.updates.make(self.due_after)
        if self.last_result.problem:
            self.refuse(self.last_result.problem)
        step, monitor = self.state.step, self.monitor
        self.due_now = self.due_after(step)
        if self.due_now.check:
            problem = monitor.check(step, gap=True)
            problem = problem or monitor.check_growth(step, self.last_result.norm, self.state.history.records)
            if problem:
                self.refuse(problem)

    def due_after(self, step: int) -> DueWork:
        """Returns what is due after so many updates."""
        state, every, last = self.state, self.settings.checkpoint_every, step == self.state.total
        evaluates = bool(self.evaluate.metrics) and (last or step % self.evaluate_every == 0)
        # Early runs diverge at once, later ones slowly: powers of 2, then every so many.
        checks = last or step & (step - 1) == 0 or step % CHECK_EVERY == 0
        reads = evaluates or self.holds or self.shows or (every is not None and step % every == 0)
        if not reads and state.callbacks:
            reads = any(needs_update(callback, step, state.total) for callback in state.callbacks)
        return DueWork(evaluates, evaluates or last or step % self.record_every == 0, checks, reads)

    def record(self) -> bool:
        """Records the update where that is due, and shows it to callbacks, one of which may ask to stop."""
        state, result = self.state, self.last_result
        values = self.write_record(self.due_now.evaluate) if self.due_now.record else {}
        if result.stop:
            _checks.warn(f"rule: stopped after {state.step} updates: {result.stop}", RuntimeWarning)
        stops = False
        if state.callbacks and not self.updates.runs_ahead:  # else none of them needs this update
            update = Update(
                step=state.step,
                total=state.total,
                epoch=state.batches.epoch(state.step),
                machine=state.machine if self.show is None else self.judged,
                learning_rate=result.rate,
                gradient_norm=result.norm,
                diagnostics=result.diagnostics,
                metrics=values,
                averaged=state.averaged,
            )
            stops = any([callback(update) is STOP for callback in state.callbacks])
        search = state.optimizer.search
        return stops or result.stop is not None or (search is not None and search.converged)

    def agree(self, *flags: bool) -> list[bool]:
        """Returns the decisions of all processes, which travel with the sums of the next update.

        So a run that is to end after an update ends after the next one.
        """
        agreed = self.state.group.agree(*flags)
        if self.state.step < self.state.total:
            return agreed
        last = self.state.group.all_reduce_any(*flags)
        return [x or y for x, y in zip(agreed, last, strict=True)]

    def stop(self) -> None:
        """Ends the run for a callback or the rule, with a last record."""
        self.state.stopped = True
        if not self.due_now.record:
            self.write_record(bool(self.evaluate.metrics))

    def write_record(self, evaluating: bool) -> dict[str, float]:
        """Adds a record to the history; returns the metrics, where they are to be evaluated."""
        state = self.state
        if problem := self.monitor.check(state.step):
            self.refuse(problem)
        values: dict[str, float] = {}
        if evaluating:
            with state.group.on_rank_zero() as leads:  # a metric that raises ends all processes
                values = self.evaluate(self.judged) if leads else {}
        state.metrics.update(values)
        measured = {"weight_norm": self.monitor.weight_norm, **values}
        state.history.record(state.step, time.perf_counter() - self.started, self.last_result.rate, measured)
        if self.directory:
            self.directory.append(state)
        return values

    def save(self) -> None:
        """Writes a checkpoint, in which rank 0 puts the chains of all processes."""
        if self.run_dir is None:
            return
        state, directory = self.state, self.directory
        state.seconds = time.perf_counter() - self.started
        content = state.content(state.group.all_gather(state.rule_state))
        # Anew: callbacks have had the machine.
        if problem := self.monitor.check(state.step, gap=True, again=True) or find_problem(content):
            self.refuse(problem)
        with state.group.on_rank_zero():
            if directory and state.step != directory.saved_step:
                directory.save(content)

    def finish(self) -> BoltzmannMachine:
        """Finishes callbacks, writes the files of a finished run and returns the judged machine."""
        judged, state = self.judged, self.state
        if state.group.is_rank_zero:
            self.monitor.warn()
            if state.optimizer.search:
                state.optimizer.search.warn()
            for callback in state.callbacks:
                notify(callback, "finish", judged)
            if self.directory:
                averaged = None if state.average is None else judged
                machine = judged if averaged is None else state.machine
                ladder = None if self.keeper is None else self.keeper.ladder
                self.directory.save_machines(machine, averaged, ladder)
        return judged

    def close(self) -> None:
        """Lets go of the data and the folder."""
        self.state.batches.close()
        if hasattr(self, "updates"):
            self.updates.close()
        try:
            for callback in self.state.callbacks:
                notify(callback, "close")
        finally:
            if self.directory:
                self.directory.close()

    def refuse(self, problem: TrainingDiverged) -> NoReturn:
        """Raises a problem, with where the run has come."""
        directory = self.directory
        checkpoint = directory.checkpoint if directory and directory.saved_step is not None else None
        raise replace(
            problem, step=self.state.step, learning_rate=self.last_result.rate, checkpoint=checkpoint
        )
