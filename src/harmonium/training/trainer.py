"""The training loop."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium.distributed import SHARDS, Distributed, Group, as_shards
from harmonium.ladder import KeptLadder, Ladder
from harmonium.learning import Rule, Sharded, rules
from harmonium.machine import BoltzmannMachine
from harmonium.training.batch_source import digest, make_batch_source
from harmonium.training.callbacks import STOP, Callback, Update, offer, wants
from harmonium.training.compiled_updates import CompiledUpdates, served
from harmonium.training.divergence import DivergenceMonitor, Problem, TrainingDiverged
from harmonium.training.history import Metric, Validation
from harmonium.training.optimizers import Ascent, OptimizerFactory, RunningAverage, global_norm
from harmonium.training.penalties import Penalty
from harmonium.training.plausibility import warn_of_saddle
from harmonium.training.run import TrainingRun
from harmonium.training.run_directory import RunDirectory
from harmonium.training.schedules import Schedule
from harmonium.training.seeds import as_seed, stream_seed
from harmonium.training.settings import Settings, Transform, move
from harmonium.training.state import TrainingState, find_problem, fingerprint, require_one_run
from harmonium.training.terminal import Interruption, show_progress
from harmonium.training.updates import OneByOne, Updates

_CHECKPOINT_SECONDS = 60.0
_STREAM_EVALUATE = 1000  # updates between evaluations where nobody knows an epoch


def train(
    machine: BoltzmannMachine,
    X: Any,
    *,
    rule: Rule | str,
    sample_weight: Any = None,
    updates: int | None = None,
    epochs: int | None = None,
    batch_size: int = 100,
    optimizer: str | OptimizerFactory = "sgd",
    learning_rate: float = 0.05,
    schedule: str | Schedule = "constant",
    momentum: float = 0.0,
    clip_norm: float | None = None,
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
    validation_weight: Any = None,
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
    Long runs of small machines have noise of their own (docs/decisions/0009): those from 200 updates on.
    With ``distributed`` that holds for any number of processes that divides ``shards``.

    Args:
        machine: trained in place; parameters with ``requires_grad=False`` stay as they are.
        X: (rows, width) data in the support of the visible layers: a NumPy array or memory map, a torch
            tensor, a scipy sparse matrix or an h5py dataset; or a ``training.Stream`` of batches with a
            state, with ``updates`` and without ``sample_weight`` and ``batch_size``. Data in memory are
            checked before the first update, others batch by batch. NaN is an entry that was not observed (all
            columns of a unit): the likelihood is that of what was, and a row may have nothing observed.
        rule: estimates the gradient, for instance ``harmonium.rules.pcd()``; or the name of a recipe,
            ``"pcd"``, for its own settings.
        sample_weight: of the rows, (rows,), finite, at least 0 and not all 0; only their ratios count. The
            mean is Σ w ln p(v) / Σ w, of which a batch gives an unbiased estimate. Rows of weight 0 are never
            read but to be checked, and belong to no epoch. None: all count alike.
        updates: length of the run, >= 1; or
        epochs: passes over the data, >= 1. Exactly one of the two.
        batch_size: rows of each update, >= 1. Batches are cut from a concatenation of random permutations,
            one an epoch, so that all are full and every row appears once an epoch; a batch of at least all
            rows is the whole data set in its own order. Permutations of more than 4,194,304 rows are not
            drawn from all, but computed from a key (``docs/distributed.md``).
        optimizer: ``"sgd"``, ``"adam"``, or a callable ``parameters -> torch.optim.Optimizer`` that
            minimises, which then sets its own learning rates.
        learning_rate: of the named optimisers, >= 0.
        schedule: multiplies the learning rates: ``"constant"``, ``"cosine"`` and ``"linear"`` (to 0 at the
            end), ``"warmup_cosine"`` (rising over the first twentieth), ``"inverse_sqrt"``
            (1 / sqrt(1 + step / 1000)), or a callable ``(step, total) -> factor``.
        momentum: of ``"sgd"``, in [0, 1).
        clip_norm: largest Euclidean norm of the gradient, over all parameters together and after decay terms.
        weight_decay: >= 0; adds -weight_decay · W to the gradient of the couplings W, and of nothing else.
        l1: >= 0; adds -l1 · sign(W) to the gradient of the couplings, and of nothing else.
        penalties: others on the couplings, such as ``training.Group(0.01)``, or ``"group=0.01"``.
        averaging: decay in (0, 1) of a running average of the parameters. Its first updates weigh equally, so
            that it forgets where the machine started.
        ladder: True keeps running averages of the machine along the way as rungs of a ``ladder.Ladder``, for
            samples and ln Z of every age: ``TrainingRun.ladder`` and ``ladder.safetensors`` in ``run_dir``
            (FORMULAS §8). A ``Ladder`` without rungs says how they are spaced and how many they may be.
        transform: makes visible states of a batch, ``(rows, generator) -> states``, anew at every update: for
            instance ``harmonium.data.bernoulli_binarise`` on intensities. Its noise is a function of the seed
            and the step. None: the rows are states.
        rule_state: what the rule starts with, ``TrainingRun.rule_state`` of an earlier run: its chains go on
            from there. A resumed run goes on with its own. None: the rule starts afresh.
        seed: of the order of the rows and of the rule's noise: an int in [0, 2**63), or a generator, of which
            one is drawn. To resume, the generator has to be where it was.
        device: where to train; the machine is moved there. None: where it is. Data stay where they are, and
            batches are sent.
        precision: of the fields that the rule computes: "float32", "tf32" or "bf16", see
            ``harmonium.backends.precision``. Statistics and parameters are in the machine's own.
        validation: rows for the metrics, as ``X``, few enough to be held as floats. Metrics get them as they
            are, NaN where not observed.
        validation_weight: of these rows, as ``sample_weight``. Metrics do not get it, nor rows of weight 0.
        metrics: callables ``(machine, validation)`` by name that return a value for every row, such as
            ``harmonium.likelihood.pseudo_log_likelihood``, of which the weighted mean is recorded; without
            ``validation_weight`` also a number. With ``averaging`` they judge the average.
        evaluate_every: updates between two evaluations; None: an epoch, 1000 with a stream. The end
            of the run is always evaluated.
        record_every: updates between two records of the history; None: 100, or a hundredth of a shorter run.
        callbacks: called with an ``Update`` after every update; see ``harmonium.training.callbacks``.
        run_dir: folder for ``config.json``, ``checkpoint.safetensors`` and the one before,
            ``checkpoint-previous.safetensors``, ``history.jsonl``, and at the end of the run
            ``machine.safetensors``, with averaging ``averaged.safetensors``, with ``ladder``
            ``ladder.safetensors``. One process at a
            time trains in it, the one that its ``lock.json`` names.
        checkpoint_every: updates between two checkpoints; None: about a minute of training. One is also
            written at the end, on Ctrl-C and on SIGTERM.
        resume: continue from the checkpoint in ``run_dir``, or start where it holds none. Where the last one
            is damaged, the one before is taken, with a warning. The settings must be the same; ``updates`` or
            ``epochs`` may change under a schedule that does not depend on them. A run that a callback stopped
            stays stopped.
        overwrite: remove the files of the run that ``run_dir`` holds, at the first record or checkpoint.
        progress: True shows a progress line on stderr, False none; None: in a terminal or a notebook.
        distributed: ``"auto"``: all processes of the default group of ``torch.distributed`` train one
            machine; or a ``ProcessGroup``. All have to make this call alike. The first of them writes, shows,
            evaluates and calls callbacks; a signal to any of them ends the run in all. None: this process by
            itself, with one stream of noise in place of one for each shard.
        shards: with ``distributed``, into how many parts each batch and its chains are cut, each with noise
            of its own: a power of two that the number of processes divides and that divides every number of
            chains, at most the rows of a batch. Another number gives other bits of the same law.

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
    rule, seed = rules.from_options(rule), as_seed(seed)
    dealt = as_shards(distributed, shards)
    sharded = None if dealt is None else Sharded(rule, dealt)
    worker, group = sharded or rule, Group() if dealt is None else dealt.group
    settings = Settings(
        rule=rule,
        updates=updates,
        epochs=epochs,
        batch_size=batch_size,
        optimizer=optimizer,
        learning_rate=learning_rate,
        schedule=schedule,
        momentum=momentum,
        clip_norm=clip_norm,
        weight_decay=weight_decay,
        l1=l1,
        penalties=penalties,
        averaging=averaging,
        ladder=ladder is not False,
        transform=transform,
        seed=seed,
        precision=precision,
        shards=None if sharded is None else shards,
    )
    for name, every in (
        ("evaluate", evaluate_every),
        ("record", record_every),
        ("checkpoint", checkpoint_every),
    ):
        if every is not None:
            _checks.positive_int(every, f"{name}_every")
    if run_dir is None and (resume or overwrite):
        raise ValueError("run_dir: expected a folder with resume=True or overwrite=True, received None")
    if resume and overwrite:
        raise ValueError("resume, overwrite: expected at most one of them to be True")

    move(machine, device)
    evaluate = Validation(validation, validation_weight, metrics, machine)
    if not group.is_rank_zero:
        callbacks, progress = (), False
    keeper = None
    if group.is_rank_zero and ladder is not False:
        _checks.instance(ladder, "ladder", bool | Ladder, "True, False or a ladder.Ladder")
        keeper = KeptLadder(
            Ladder() if isinstance(ladder, bool) else ladder, partial(stream_seed, seed, "ladder")
        )
        callbacks = (*callbacks, keeper)
    feed = make_batch_source(machine, X, sample_weight, batch_size, seed, transformed=transform is not None)
    total = int(updates) if updates is not None else feed.updates(int(epochs or 1))
    evaluate_every = evaluate_every or feed.per_epoch or _STREAM_EVALUATE
    record_every = record_every or max(1, min(100, total // 100))

    parameters = {
        name: parameter for name, parameter in machine.named_parameters() if parameter.requires_grad
    }
    if not parameters:
        raise ValueError("machine: expected a parameter with requires_grad=True, received none")
    climber = Ascent(optimizer, parameters.values(), learning_rate, momentum)
    average = None if averaging is None else RunningAverage(machine, averaging)
    generator = _random.as_generator(stream_seed(seed, "rule"), machine.device)

    averaged = average.machine if average else None
    judged = average.machine if average else machine
    for callback in callbacks:
        offer(callback, "begin", judged, tuple(evaluate.metrics))
    state = TrainingState(machine, averaged, climber, generator, callbacks, worker, feed)
    state.begin_from(rule_state)
    way: type[Updates] = CompiledUpdates if served(state, settings, total, climber) else OneByOne
    if isinstance(rule, Rule) and rule.condition_on is not None:
        machine.check_condition(rule.condition_on)
    directory = None
    rate = climber.learning_rate
    diagnostics: Mapping[str, float] = {}

    def require_sound(problem: Problem | None) -> None:
        if problem:
            checkpoint = directory.checkpoint if directory and directory.saved_step is not None else None
            raise TrainingDiverged(problem, state.step, rate, diagnostics, checkpoint, clip_norm)

    def begin(v: Tensor) -> None:
        """Looks at the first batch."""
        if sharded:
            require_one_run(group.all_gather({"first batch": digest(v)}))
        if state.step == 0 and group.is_rank_zero:
            warn_of_saddle(machine, v)

    def due(step: int) -> tuple[bool, bool]:
        """Returns whether metrics are evaluated after so many updates, and whether a record is made."""
        evaluating = bool(evaluate.metrics) and (step == total or step % evaluate_every == 0)
        return evaluating, evaluating or step == total or step % record_every == 0

    def quiet(step: int) -> bool:
        """Returns whether nothing but the next update is due after so many."""
        saves = checkpoint_every is not None and step % checkpoint_every == 0
        seen = any(wants(callback, step, total) for callback in callbacks)
        return not (seen or average or saves or any(due(step)) or monitor.is_due(step))

    def record(evaluating: bool) -> dict[str, float]:
        require_sound(monitor.check_parameters(state.step))
        values = evaluate(judged) if evaluating and group.is_rank_zero else {}
        state.metrics.update(values)
        couplings = [W.detach() for name, W in machine.named_parameters() if name.startswith("couplings")]
        measured = {"weight_norm": global_norm(couplings), **values}
        state.history.record(state.step, time.perf_counter() - started, rate, measured)
        if directory:
            directory.append(state)
        return values

    def save() -> None:
        """Writes a checkpoint, in which rank 0 puts what the rule keeps of all shards."""
        if run_dir is None:
            return
        state.seconds = time.perf_counter() - started
        content = state.state_dict()
        require_sound(monitor.check_machine(state.step) or find_problem(content))
        with group.on_rank_zero():
            if directory and state.step != directory.saved_step:
                directory.save(state, content)

    try:
        if run_dir is not None or sharded:
            identity = fingerprint(settings, state, total, way.engine)
            require_one_run(group.all_gather(identity))
        with group.on_rank_zero() as leads:
            if leads and run_dir is not None:
                directory = RunDirectory(run_dir, identity, resume=resume, overwrite=overwrite)
                if resume:
                    directory.restore(state, schedule)
                directory.write_config()
        state.follow(group)
        monitor = DivergenceMonitor(machine, parameters, state.step, clip_norm)
        density = getattr(rule, "density_share", float(getattr(rule, "generative", True)))
        maker = way(state, settings, total, climber, monitor, density, begin)
        started = time.perf_counter() - state.seconds
        with Interruption() as interruption, show_progress(total, state.step, progress) as display:
            saved_at = time.perf_counter()
            state.stopped, halted = group.all_reduce_any(state.stopped, interruption.signal is not None)
            while state.step < total and not state.stopped and not halted:
                rate, norm, diagnostics, problem, cause = maker.make(quiet)
                if problem:
                    require_sound(problem)
                if average:
                    average.update(state.step)

                last = state.step == total
                if last or monitor.is_due(state.step):
                    require_sound(monitor.check_machine(state.step))
                evaluating, recording = due(state.step)
                values = record(evaluating) if recording else {}
                if cause:
                    _checks.warn(f"rule: stopped after {state.step} updates: {cause}", RuntimeWarning)
                if callbacks:
                    epoch = feed.epoch(state.step)
                    update = Update(
                        state.step, total, epoch, machine, rate, norm, diagnostics, values, averaged
                    )
                    state.stopped = any([callback(update) is STOP for callback in callbacks])
                state.stopped = state.stopped or cause is not None
                if state.stopped and not recording:
                    record(bool(evaluate.metrics))
                if display:
                    display(state.step, {**state.metrics, "gradient_norm": norm})

                overdue = time.perf_counter() - saved_at >= _CHECKPOINT_SECONDS
                halted = interruption.signal is not None
                if group.size > 1:
                    state.stopped, halted, overdue = group.all_reduce_any(state.stopped, halted, overdue)
                if state.step % checkpoint_every == 0 if checkpoint_every else overdue:
                    save()
                    saved_at = time.perf_counter()

            save()
            rule_state = state.whole_rule_state()
        finished = state.stopped or state.step == total
        signal = None if finished else max(group.all_gather(interruption.signal or 0))
        if finished and group.is_rank_zero:
            monitor.warn()
            for callback in callbacks:
                offer(callback, "finish", judged)
            if directory:
                directory.save_machines(state, None if keeper is None else keeper.ladder)
    finally:
        feed.close()
        try:
            for callback in callbacks:
                offer(callback, "close")
        finally:
            if directory:
                directory.close()

    return TrainingRun(
        machine=machine,
        averaged_machine=averaged,
        ladder=None if keeper is None else keeper.ladder,
        history=state.history.records,
        status="stopped" if state.stopped else "completed" if finished else "interrupted",
        updates=state.step,
        seconds=time.perf_counter() - started,
        run_dir=directory.path if directory else None,
        rule_state=rule_state,
        metrics=state.metrics,
        signal=signal,
    )
