"""The training loop."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from inspect import signature
from typing import Any, final

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._progress import show_progress
from harmonium.distributed import SHARDS, Distributed, Group, Shards, as_shards
from harmonium.ladder import KeptLadder, Ladder
from harmonium.learning import Rule, Sharded, rules
from harmonium.machine import BoltzmannMachine, require_distribution
from harmonium.training.batch_source import digest, make_batch_source
from harmonium.training.callbacks import STOP, Callback, Update, offer, wants
from harmonium.training.compiled_updates import CompiledUpdates, served
from harmonium.training.divergence import DivergenceMonitor, Problem, TrainingDiverged
from harmonium.training.history import Metric, Record, Validation
from harmonium.training.lbfgs import check_search
from harmonium.training.optimizers import Ascent, OptimizerFactory, RunningAverage, factors_of
from harmonium.training.penalties import Penalty
from harmonium.training.plausibility import warn_of_saddle
from harmonium.training.preconditioner import make_preconditioner
from harmonium.training.recorded_updates import RecordedUpdates, find_obstacle
from harmonium.training.run_directory import RunDirectory
from harmonium.training.schedules import Schedule
from harmonium.training.seeds import as_seed, stream_seed
from harmonium.training.settings import Settings, Transform, move
from harmonium.training.state import TrainingRun, TrainingState, find_problem, fingerprint, require_one_run
from harmonium.training.terminal import Interruption
from harmonium.training.updates import Due, Made, OneByOne, Updates

_CHECKPOINT_SECONDS = 60.0  # what a kill costs at most, beside which writing a checkpoint takes no time


def train(
    machine: BoltzmannMachine,
    X: Any,
    *,
    rule: Rule | str,
    weights: Any = None,
    updates: int | None = None,
    epochs: int | None = None,
    batch_size: int = 100,
    optimizer: str | OptimizerFactory = "sgd",
    learning_rate: float = 0.05,
    rates: Mapping[str, float] | Sequence[str] | None = None,
    schedule: str | Schedule = "constant",
    momentum: float = 0.0,
    clip_norm: float | None = None,
    radius: float | None = None,
    weight_decay: float = 0.0,
    l1: float = 0.0,
    penalties: Penalty | str | Sequence[Penalty | str] | None = None,
    averaging: float | None = None,
    ladder: bool | Ladder = False,
    transform: Transform | None = None,
    rule_state: Any = None,
    seed: int | torch.Generator = 0,
    device: str | torch.device | None = None,
    precision: str = "float32",
    validation: Any = None,
    validation_weights: Any = None,
    metrics: Mapping[str, Metric] | None = None,
    evaluate_every: int | None = None,
    record_every: int | None = None,
    callbacks: Sequence[Callback] = (),
    run_dir: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool | None = None,
    distributed: Distributed = None,
    shards: int = SHARDS,
) -> TrainingRun:
    """Train a machine by stochastic ascent of the mean log-likelihood, or of its weighted mean.

    The same arguments, device and number of threads give the same bits, also across a kill and a resume.
    Long runs of small machines have noise of their own (docs/decisions/0012): those from 200 updates on.
    With ``distributed`` that holds for any number of processes that divides ``shards``.

    Args:
        machine: Machine, trained in place; parameters with ``requires_grad=False`` stay as they are.
        X: (rows, width) data in the support of the visible layers: a NumPy array or memory map, a torch
            tensor, a scipy sparse matrix or an h5py dataset. Data in memory are checked before the first
            update, others batch by batch. NaN is an entry that was not observed (all columns of a unit): the
            likelihood is that of what was, and a row may have nothing observed.
        rule: Rule that estimates the gradient, for instance ``harmonium.rules.pcd()``; or the name of a
            recipe, ``"pcd"``, for its own settings.
        weights: Row weights, (rows,), finite, at least 0 and not all 0; only their ratios count. The
            mean is Σ w ln p(v) / Σ w, of which a batch gives an unbiased estimate. Rows of weight 0 are never
            read but to be checked, and belong to no epoch. None means uniform.
        updates: Length of the run, >= 1; or
        epochs: Passes over the data, >= 1. Exactly one of the two.
        batch_size: Rows of each update, >= 1. Batches are cut from a concatenation of random permutations,
            one an epoch, so that all are full and every row appears once an epoch; a batch of at least all
            rows is the whole data set in its own order.
        optimizer: ``"sgd"``, ``"adam"``, or a callable ``parameters -> torch.optim.Optimizer`` that
            minimises, which then sets its own learning rates. ``"lbfgs"`` is for rules without noise, such as
            pseudo_likelihood: it reads all rows at every update, whatever ``batch_size``, and ends the run
            where the gradient is within the tolerance of ``training.LBFGS``.
        learning_rate: Learning rate of the named optimisers, >= 0.
        rates: Factors >= 0 of the learning rate by parameter, such as ``{"log_variance": 0.01}``: the
            variances of Gaussian units fall much faster than local chains can follow (Melchior et al. 2017).
            A name is that of a parameter, ``"layers.0.log_variance"``, or the last part of it for all layers.
            Small machines then make their updates one by one, and not in compiled calls.
        schedule: Factor of the learning rates: ``"constant"``, ``"cosine"`` and ``"linear"`` (to 0 at the
            end), ``"warmup_cosine"`` (rising over the first twentieth), ``"inverse_sqrt"``
            (1 / sqrt(1 + step / 1000)), or a callable ``(step, total) -> factor``.
        momentum: Momentum of ``"sgd"``, in [0, 1).
        clip_norm: Largest Euclidean norm of the gradient, over all parameters together and after decay terms.
        radius: Radius of a ball around 0, > 0. Every update ends with the projection of all learned
            parameters together to it: their Euclidean norm is at most the radius. Unbiased gradients then
            have bounded second moments (Qiu et al. 2020, Alg. 2, Cor. 2). None: no projection.
        weight_decay: Strength >= 0; adds -weight_decay · W to the gradient of the couplings W.
        l1: Strength >= 0; adds -l1 · sign(W) to the gradient of the couplings.
        penalties: Other penalties on couplings, such as ``training.GroupLasso(0.01)``, or ``"group=0.01"``.
        averaging: Decay in (0, 1) of a running average of the parameters. Its first updates weigh equally, so
            that it forgets where the machine started.
        ladder: True keeps running averages of the machine along the way as rungs of a ``ladder.Ladder``, for
            samples and ln Z of every age: ``TrainingRun.ladder`` and ``ladder.safetensors`` in ``run_dir``
            (FORMULAS §8). A ``Ladder`` without rungs has their spacing and largest number.
        transform: Function that makes visible states of a batch at every update, ``(rows, generator) ->
            states``: for instance ``harmonium.data.bernoulli_binarise`` on intensities. Its noise is a
            function of the seed and the step. None: the rows are states.
        rule_state: State to start the rule with, ``TrainingRun.rule_state`` of an earlier run, whose chains
            go on. A resumed run goes on with its own. None: the rule starts afresh.
        seed: Seed of the order of the rows and of the rule's noise: an int in [0, 2**63), or a generator, of
            which one is drawn. To resume, the generator has to be where it was.
        device: Device to train on; the machine is moved there. None: where it is. Data stay where they are,
            and batches are sent.
        precision: Precision of the fields that the rule computes: "float32", "tf32" or "bf16", see
            ``harmonium.backends.precision``. Statistics and parameters are in the machine's own.
        validation: Rows for the metrics, as ``X``, few enough to be held as floats. Metrics get them as they
            are, NaN where not observed.
        validation_weights: Weights of these rows, as ``weights``. Metrics do not get them, nor rows of
            weight 0.
        metrics: Callables ``(machine, validation)`` by name that return a value for every row, such as
            ``harmonium.likelihood.pseudo_log_likelihood``, of which the weighted mean is recorded; without
            ``validation_weights`` also a number. With ``averaging`` they judge the average.
        evaluate_every: Updates between two evaluations; None: an epoch. The end of the run is always
            evaluated.
        record_every: Updates between two records of the history; None: 100, or a hundredth of a shorter run.
        callbacks: Objects called with an ``Update`` after every update; see ``harmonium.training.callbacks``.
        run_dir: Folder for ``config.json``, ``checkpoint.safetensors`` and the one before,
            ``checkpoint-previous.safetensors``, ``history.jsonl``, and at the end of the run
            ``machine.safetensors``, with averaging ``averaged.safetensors``, with ``ladder``
            ``ladder.safetensors``. One process at a time trains in it, that of its ``lock.json``.
        checkpoint_every: Updates between two checkpoints; None: about a minute of training. One is also
            written at the end, on Ctrl-C and on SIGTERM.
        resume: continue from the checkpoint in ``run_dir``, or start where it holds none. Where the last one
            is damaged, the one before is taken, with a warning. The settings must be the same; ``updates`` or
            ``epochs`` may change under a schedule that does not depend on them. A run that a callback stopped
            stays stopped.
        overwrite: remove the files of the run that ``run_dir`` holds, at the first record or checkpoint.
        progress: True shows a progress line on stderr, False none; None: in a terminal or a notebook, and
            elsewhere a plain line every half a minute.
        distributed: ``"auto"``: all processes of the default group of ``torch.distributed`` train one
            machine; or a ``ProcessGroup``. All have to make this call alike. The first of them writes, shows,
            evaluates and calls callbacks. A callback that stops, or a signal to any of them, ends the run in
            all after the next update. None: this process by itself, with one stream of noise in place of one
            for each shard.
        shards: Parts into which each batch and its chains are cut with ``distributed``, each with noise of
            its own: a power of two that the number of processes divides and that divides every number of
            chains, at most the rows of a batch. Another number gives other bits of the same distribution.

    Returns:
        The outcome. After a Ctrl-C or SIGTERM the status is "interrupted", and the current update was
        finished and saved; a second one acts at once, as it would without training. A signal that the process
        was told to ignore stays ignored, as under ``nohup``.

    Raises:
        TypeError, ValueError: a malformed argument, data outside the support, several processes without
            ``distributed`` or with other settings or data, a run that exists or that another process trains,
            a resume with other settings or from damaged files; the message names the argument or the file.
        TrainingDiverged: something is no longer finite, or the machine has run away from its data; it is left
            with its last good parameters. A run that ends with a machine that is merely useless, below
            uniform noise or saturated and hardly better than independent units, warns (RuntimeWarning).
        OSError: a file could not be written; the last good checkpoint is kept.

    Examples:
        >>> import harmonium as hm
        >>> X = hm.data.bars_and_stripes()
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(8)])
        >>> run = hm.train(machine, X, rule=hm.rules.pcd(), updates=50, learning_rate=0.1, progress=False)
        >>> run.status, run.updates
        ('completed', 50)
    """
    given, parts = dict(locals()), as_shards(distributed, shards)
    given |= {"rule": rules.from_options(rule), "seed": as_seed(seed)}
    watch = {name: value for name, value in given.items() if name in signature(Run).parameters}
    given |= {"ladder": ladder is not False, "shards": None if parts is None else shards}
    settings = Settings(**{setting.name: given[setting.name] for setting in fields(Settings)})
    return Run(**watch, settings=settings, parts=parts).train()


@final
class Run:
    """One training: ``prepare``, then ``step``, ``record`` and ``save`` in turns, then ``finish``.

    Args:
        machine: Machine, trained in place.
        X: Rows.
        settings: Settings by which a run is recognised; ``updates`` counts those before it too.
        parts: shards into which batches and chains are cut; None: they are not.
        show: makes what metrics, callbacks, files and the result get in place of the machine. None: the
            machine itself, or its running average.
        earlier: Records of updates that were made before; this run goes on counting from the last of them.
        notes: Numbers for the records after so many updates that are known before.
        spent: Seconds of the search that led to this run, from which its own go on; a resumed run has them.

    Further arguments are those of ``train``, which documents them.

    Raises:
        TypeError, ValueError: a malformed argument, as ``train``. Nothing was trained or written.
    """

    def __init__(
        self,
        machine: BoltzmannMachine,
        X: Any,
        settings: Settings,
        *,
        weights: Any = None,
        ladder: bool | Ladder = False,
        rule_state: Any = None,
        device: str | torch.device | None = None,
        validation: Any = None,
        validation_weights: Any = None,
        metrics: Mapping[str, Metric] | None = None,
        evaluate_every: int | None = None,
        record_every: int | None = None,
        callbacks: Sequence[Callback] = (),
        run_dir: str | os.PathLike[str] | None = None,
        checkpoint_every: int | None = None,
        resume: bool = False,
        overwrite: bool = False,
        progress: bool | None = None,
        parts: Shards | None = None,
        show: Callable[[BoltzmannMachine], BoltzmannMachine] | None = None,
        earlier: Sequence[Record] = (),
        notes: Mapping[int, Mapping[str, float]] | None = None,
        spent: float = 0.0,
    ) -> None:
        rhythm = {"evaluate": evaluate_every, "record": record_every, "checkpoint": checkpoint_every}
        for name, every in rhythm.items():
            if every is not None:
                _checks.positive_int(every, f"{name}_every")
        if run_dir is None and (resume or overwrite):
            raise ValueError("run_dir: expected a folder with resume=True or overwrite=True, received None")
        if resume and overwrite:
            raise ValueError("resume, overwrite: expected at most one of them to be True")
        self.machine, self.settings, self.show = machine, settings, show
        self.notes = notes or {}
        self.run_dir, self.resume, self.overwrite = run_dir, resume, overwrite
        rule, seed = settings.rule, settings.seed
        self.sharded = None if parts is None else Sharded(rule, parts)
        self.group = Group() if parts is None else parts.group
        move(machine, device)
        self.evaluate = Validation(validation, validation_weights, metrics, machine)
        self.progress = progress if self.group.is_rank_zero else False
        self.callbacks = tuple(callbacks) if self.group.is_rank_zero else ()
        self.keeper: KeptLadder | None = None
        if self.group.is_rank_zero and ladder is not False:
            _checks.instance(ladder, "ladder", bool | Ladder, "True, False or a ladder.Ladder")
            self.keeper = KeptLadder(
                Ladder() if isinstance(ladder, bool) else ladder, partial(stream_seed, seed, "ladder")
            )
            self.callbacks = (*self.callbacks, self.keeper)
        self.learned = {name: p for name, p in machine.named_parameters() if p.requires_grad}
        if not self.learned:
            raise ValueError("machine: expected a parameter with requires_grad=True, received none")
        require_distribution(machine.hamiltonian())
        assert settings.optimizer is not None and settings.learning_rate is not None  # Settings sees to it
        rate, momentum, radius = settings.learning_rate, settings.momentum, settings.radius
        factors = factors_of(settings.rates, self.learned)
        ascent = Ascent(settings.optimizer, self.learned.values(), rate, momentum, radius, factors)
        if ascent.search:
            check_search(rule, settings.schedule, settings.clip_norm, radius)
        size = sys.maxsize if ascent.search else settings.batch_size
        feed = make_batch_source(machine, X, weights, size, seed, transformed=settings.transform is not None)
        epochs, updates = settings.epochs, settings.updates
        self.total = feed.updates(int(epochs or 1)) if updates is None else int(updates)
        self.evaluate_every = evaluate_every or feed.per_epoch
        self.record_every = record_every or max(1, min(100, self.total // 100))
        self.checkpoint_every = checkpoint_every
        self.average = None if settings.averaging is None else RunningAverage(machine, settings.averaging)
        averaged = None if self.average is None else self.average.machine
        judged = self.judged
        for callback in self.callbacks:
            offer(callback, "begin", judged, tuple(self.evaluate.metrics))
        self.state = TrainingState(
            machine=machine,
            averaged=averaged,
            optimizer=ascent,
            generator=_random.as_generator(stream_seed(seed, "rule"), machine.device),
            callbacks=self.callbacks,
            rule=self.sharded or rule,
            batches=feed,
        )
        if earlier:
            self.state.history.records = [*earlier]
            self.state.step, self.state.seconds = earlier[-1]["step"], earlier[-1]["seconds"]
        self.state.seconds = max(self.state.seconds, spent)
        if rule_state is not None:
            self.state.begin_from(rule_state)
        compiled = served(self.state, settings, self.total, ascent)
        self.obstacle = find_obstacle(self.state, settings, self.total)
        recorded = RecordedUpdates if self.obstacle is None else OneByOne
        self.engine: type[Updates] = CompiledUpdates if compiled else recorded
        if isinstance(rule, Rule) and rule.condition_on is not None:
            machine.check_condition(rule.condition_on)
        self.directory: RunDirectory | None = None
        self.updates: Updates | None = None
        self.holds = False  # whether a checkpoint is due as soon as the machine is where the state says
        self.made = Made(ascent.learning_rate, 0.0, {}, None)

    @property
    def judged(self) -> BoltzmannMachine:
        """The machine as metrics, callbacks, files and the result have it."""
        machine = self.machine if self.average is None else self.average.machine
        return machine if self.show is None else self.show(machine)

    @property
    def ahead(self) -> bool:
        """True if the machine has gone further than the state says."""
        return self.updates is not None and self.updates.ahead

    def train(self) -> TrainingRun:
        """Makes all updates that are left; to be called once."""
        state, group = self.state, self.group
        try:
            self.prepare()
            started = self.started = time.perf_counter() - state.seconds
            shown = show_progress(self.total, state.step, self.progress, whole=not state.optimizer.search)
            with Interruption() as interruption, shown as bar:
                saved_at = time.perf_counter()
                state.stopped, halted = group.all_reduce_any(state.stopped, interruption.signal is not None)
                while state.step < self.total and not state.stopped and not halted:
                    self.step()
                    stops = self.record()
                    if bar and (time.monotonic() >= bar.due or state.step == self.total):
                        bar(state.step, lambda: {**state.metrics, "gradient_norm": self.made.norm})
                    overdue = time.perf_counter() - saved_at >= _CHECKPOINT_SECONDS
                    halted = interruption.signal is not None
                    self.holds = overdue or halted
                    if self.holds and self.ahead:
                        halted = False  # not before the machine is where the state says
                        continue
                    if self.sharded:
                        stops, halted, overdue = self.agree(stops, halted, overdue)
                    if stops:
                        self.stop()
                    if state.step % self.checkpoint_every == 0 if self.checkpoint_every else overdue:
                        self.save()
                        saved_at, self.holds = time.perf_counter(), False
                self.save()
                rule_state = state.whole_rule_state()
            finished = state.stopped or state.step == self.total
            signal = max(group.all_gather(interruption.signal or 0)) or None
            machine = self.finish() if finished else self.judged
        finally:
            self.close()
        return TrainingRun(
            machine=machine if self.average is None else self.machine,
            averaged_machine=None if self.average is None else machine,
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
        state, group, settings = self.state, self.group, self.settings
        if self.run_dir is not None or self.sharded:
            identity = fingerprint(settings, state, self.total, self.engine.engine)
            require_one_run(group.all_gather(identity))
        if self.run_dir is not None:
            with group.on_rank_zero() as leads:
                if leads:
                    self.directory = RunDirectory(
                        self.run_dir, identity, resume=self.resume, overwrite=self.overwrite
                    )
                    if self.resume:
                        self.directory.restore(state, settings.schedule)
                    self.directory.write_config()
        self.condition()
        if self.sharded:
            state.follow(group)
        self.monitor = DivergenceMonitor(self.machine, self.learned, state.step, settings.clip_norm)
        density = getattr(settings.rule, "density_share", float(getattr(settings.rule, "generative", True)))
        # Data of a machine whose chains are hot lie as many times further out, in units of its variances.
        density /= max(1.0, getattr(settings.rule, "temperature", 1.0))
        self.updates = self.engine(
            state, settings, self.total, state.optimizer, self.monitor, density, self.average,
            self.look_at_data,
        )  # fmt: skip

    def condition(self) -> None:
        """Gives a search its preconditioner, and at its start the parameters the gauge of least penalty."""
        search, rows = self.state.optimizer.search, self.state.batches
        if search is None or self.settings.transform is not None:
            return
        search.preconditioner = make_preconditioner(
            self.machine, self.learned, self.settings.pulls(), rows.take(0)
        )
        if search.preconditioner and not search.state:
            search.preconditioner.settle_(*self.learned.values())

    def look_at_data(self, v: Tensor) -> None:
        """Checks that all processes have the same first batch, and warns of a machine at a saddle."""
        if self.sharded:
            require_one_run(self.group.all_gather({"first batch": digest(v)}))
        if self.state.step == 0 and self.group.is_rank_zero:
            warn_of_saddle(self.machine, v)

    def step(self) -> None:
        """Makes the next update, or many at once where nothing else is due between them."""
        assert self.updates is not None  # prepared
        self.made, step = self.updates.make(self.due), self.state.step
        self.require_sound(self.made.problem)
        if step == self.total or self.monitor.is_due(step):
            self.require_sound(self.monitor.check_machine(step))

    def due_records(self, step: int) -> tuple[bool, bool]:
        """Returns whether metrics are evaluated after so many updates, and whether a record is made."""
        last = step == self.total
        evaluating = bool(self.evaluate.metrics) and (last or step % self.evaluate_every == 0)
        return evaluating, evaluating or last or step % self.record_every == 0

    def due(self, step: int) -> Due:
        """Returns what is due after so many updates: a record or check, and what reads the machine itself."""
        saves = self.checkpoint_every is not None and step % self.checkpoint_every == 0
        seen = any(wants(callback, step, self.total) for callback in self.callbacks)
        evaluating, recording = self.due_records(step)
        return Due(recording or self.monitor.is_due(step), self.holds or seen or saves or evaluating)

    def record(self) -> bool:
        """Records the update where that is due, and shows it to callbacks, one of which may ask to stop."""
        state, made = self.state, self.made
        evaluating, recording = self.due_records(state.step)
        values = self.write_record(evaluating) if recording else {}
        if made.stop:
            _checks.warn(f"rule: stopped after {state.step} updates: {made.stop}", RuntimeWarning)
        stops = False
        if self.callbacks and not self.ahead:  # else none of them wants this update
            update = Update(
                step=state.step,
                total=self.total,
                epoch=state.batches.epoch(state.step),
                machine=self.machine if self.show is None else self.judged,
                learning_rate=made.rate,
                gradient_norm=made.norm,
                diagnostics=made.diagnostics,
                metrics=values,
                averaged=state.averaged,
            )
            stops = any([callback(update) is STOP for callback in self.callbacks])
        search = state.optimizer.search
        return stops or made.stop is not None or (search is not None and search.converged)

    def agree(self, *flags: bool) -> list[bool]:
        """Returns the decisions of all processes, which travel with the sums of the next update.

        So a run that is to end after an update ends after the next one, in any number of processes.
        """
        assert self.sharded
        agreed = self.sharded.agree(*flags)
        if self.state.step < self.total:
            return agreed
        last = self.group.all_reduce_any(*flags)
        return [x or y for x, y in zip(agreed, last, strict=True)]

    def stop(self) -> None:
        """Ends the run for a callback or the rule, with a last record."""
        self.state.stopped = True
        if not self.due_records(self.state.step)[1]:
            self.write_record(bool(self.evaluate.metrics))

    def write_record(self, evaluating: bool) -> dict[str, float]:
        """Adds a record to the history; returns the metrics, where they are to be evaluated."""
        state = self.state
        self.require_sound(self.monitor.check_parameters(state.step))
        values = self.evaluate(self.judged) if evaluating and self.group.is_rank_zero else {}
        state.metrics.update(values)
        weight_norm = self.monitor.weight_norm(state.step)
        measured = {"weight_norm": weight_norm, **values, **self.notes.get(state.step, {})}
        state.history.record(state.step, time.perf_counter() - self.started, self.made.rate, measured)
        if self.directory:
            self.directory.append(state)
        return values

    def save(self) -> None:
        """Writes a checkpoint, in which rank 0 puts what the rule keeps of all shards."""
        if self.run_dir is None:
            return
        state, directory = self.state, self.directory
        state.seconds = time.perf_counter() - self.started
        content = state.state_dict()
        self.monitor.forget()  # callbacks have had the machine
        self.require_sound(self.monitor.check_machine(state.step) or find_problem(content))
        with self.group.on_rank_zero():
            if directory and state.step != directory.saved_step:
                directory.save(state, content)

    def finish(self) -> BoltzmannMachine:
        """Finishes callbacks, writes the files of a finished run and returns the judged machine."""
        judged = self.judged
        if self.group.is_rank_zero:
            self.monitor.warn()
            if self.state.optimizer.search:
                self.state.optimizer.search.warn()
            for callback in self.callbacks:
                offer(callback, "finish", judged)
            if self.directory:
                averaged = None if self.average is None else judged
                machine = judged if averaged is None else self.machine
                ladder = None if self.keeper is None else self.keeper.ladder
                self.directory.save_machines(machine, averaged, ladder)
        return judged

    def close(self) -> None:
        """Lets go of the data and the folder."""
        self.state.batches.close()
        if self.updates is not None:
            self.updates.close()
        try:
            for callback in self.callbacks:
                offer(callback, "close")
        finally:
            if self.directory:
                self.directory.close()

    def require_sound(self, problem: Problem | None) -> None:
        """Raises TrainingDiverged where there is a problem."""
        if problem:
            directory, made = self.directory, self.made
            checkpoint = directory.checkpoint if directory and directory.saved_step is not None else None
            raise TrainingDiverged(
                problem, self.state.step, made.rate, made.diagnostics, checkpoint, self.settings.clip_norm
            )
