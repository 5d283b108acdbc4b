"""The state of a run, by which it goes on as if it had never stopped; how it is recognised; its result."""

from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, final

import torch
from torch import Tensor

from harmonium import _checks, _html, _random, backends
from harmonium._states import leaves, map_leaves, require_alike
from harmonium.chains import KernelState
from harmonium.data import Rows
from harmonium.distributed import Group, as_group, count_started
from harmonium.ladder import Ladder
from harmonium.learning import Rule
from harmonium.machine import BoltzmannMachine, require_distribution
from harmonium.training.batch_source import RowBatches, check_rows
from harmonium.training.divergence import TrainingDiverged
from harmonium.training.history import CLIPPED, History, Record
from harmonium.training.lbfgs import check_search
from harmonium.training.optimizers import Ascent, RunningAverage, factors_of
from harmonium.training.seeds import stream_seed
from harmonium.training.settings import Settings, move

Status = Literal["completed", "stopped", "interrupted"]


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """The outcome of ``train``.

    Attributes:
        machine: the trained machine, the object that was passed in.
        averaged_machine: a machine with the running average of the parameters; None without ``averaging``.
        history: records in order, dicts with ``step``, ``seconds``, ``learning_rate``, the means since the
            record before of ``gradient_norm`` and of the rule's diagnostics, with ``clip_norm`` the share
            of updates that were ``clipped``, ``weight_norm`` (of all couplings together), and the metrics
            where they were evaluated.
        status: "completed"; "stopped" by a callback; "interrupted" by Ctrl-C or SIGTERM.
        updates: updates made, those before a resume included.
        seconds: time in training, likewise; of exact training with the search for its model.
        run_dir: the folder of the run, None where there is none.
        rule_state: what the rule keeps between updates, such as persistent chains with the number of their
            sweeps; pass it to ``rule.gradient`` or to another ``train``. Of several processes it has the
            chains of all, without what a kernel keeps beside them.
        metrics: the last value of each metric.
        signal: the number of the signal that came meanwhile, None otherwise; at its last update a run is
            completed all the same.
        ladder: Ladder from independent units to the machine along the training; None without ``ladder``, or
            where the run was interrupted.
        engine: What made the updates: "compiled", "recorded" (on a GPU), or "torch", one by one, and on a GPU
            why they were not recorded.
    """

    machine: BoltzmannMachine
    averaged_machine: BoltzmannMachine | None
    history: list[Record] = field(repr=False)
    status: Status
    updates: int
    seconds: float
    run_dir: Path | None
    rule_state: Any = field(repr=False)
    metrics: dict[str, float]
    signal: int | None = None
    ladder: Ladder | None = field(default=None, repr=False)
    engine: str = "torch"

    @property
    def clipped(self) -> float | None:
        """The share of all updates that ``clip_norm`` shortened; None without it."""
        noted = [record for record in self.history if CLIPPED in record]
        steps = [0, *(record["step"] for record in noted)]
        clipped_updates = (x[CLIPPED] * (x["step"] - before) for x, before in zip(noted, steps, strict=False))
        return sum(clipped_updates) / steps[-1] if noted else None

    def whole(self) -> TrainingRun:
        """This run, where no signal cut it short: what a script of several runs has to know.

        A first Ctrl-C or SIGTERM ends a training between two updates, and a loop over seeds would go on with
        the next one, half a run among its results: ``run = hm.train(...).whole()``.

        Raises:
            KeyboardInterrupt: after a Ctrl-C.
            SystemExit: after a SIGTERM, with the status of a process that it ended, 143.
        """
        if self.status != "interrupted":
            return self
        if self.signal == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [
            ("updates", f"{self.updates:,}"),
            ("seconds", f"{self.seconds:.1f}"),
        ]
        rows += [(name, f"{value:.4g}") for name, value in self.metrics.items()]
        rows += [("folder", self.run_dir)] if self.run_dir else []
        return _html.table(f"Run, {self.status}", rows)


@final
class TrainingState:
    """The parts of a run and its state between two updates.

    Attributes:
        group: processes that train; one without ``distributed``.
        learned: Parameters that learn, by their names in the machine.
        total: Updates of the run.
        average: Running average of the parameters, which follows every update; None: there is none.
        averaged: Machine with these; None: there is none.
        callbacks: those of this process.
        rule_states: what the rule of every process keeps, where the run begins: in one element what was
            handed in, or in as many as wrote the checkpoint.
        rule_state: what the rule of this process keeps between updates, from ``follow`` on.
        limit: of the monitor of divergence, which it finds where the run begins; NaN before.

    Raises:
        TypeError, ValueError: as ``train``. Nothing was trained.
    """

    def __init__(self, machine: BoltzmannMachine, X: Any, settings: Settings) -> None:
        if settings.distributed is None and count_started() > 1:
            raise ValueError(
                f'distributed: expected "auto" in one of {count_started()} processes (WORLD_SIZE), received '
                "None, with which each would train a machine of its own; call "
                'torch.distributed.init_process_group("gloo") and write distributed="auto"'
            )
        self.machine, self.settings, self.group = machine, settings, as_group(settings.distributed)
        rule = settings.rule
        if self.group.size > 1:
            _checks.instance(rule, "rule", Rule, "a harmonium.learning.Rule with several processes")
            if rule.free.controls:
                raise ValueError(f"rule: expected another one with several processes, received {rule}")
        move(machine, settings.device)
        self.learned = {name: p for name, p in machine.named_parameters() if p.requires_grad}
        if not self.learned:
            raise ValueError("machine: expected a parameter with requires_grad=True, received none")
        require_distribution(machine.hamiltonian())
        if isinstance(rule, Rule) and rule.condition_on is not None:
            machine.check_condition(rule.condition_on)
        rate, momentum, radius = settings.learning_rate, settings.momentum, settings.radius
        factors = factors_of(settings.rates, self.learned)
        self.optimizer = Ascent(settings.optimizer, self.learned.values(), rate, momentum, radius, factors)
        if self.optimizer.search:
            check_search(rule, settings.schedule, settings.clip_norm, radius)
        rows = Rows.of(X, dtype=machine.dtype, name="X", missing=True)
        self.batches = RowBatches(
            rows,
            sys.maxsize if self.optimizer.search else settings.batch_size,
            settings.root,
            _checks.weights(settings.weights, "weights", len(rows)),
            observed=settings.transform is None and check_rows(machine, rows, "X"),
            checked=settings.transform is None and rows.in_memory,
        )
        if self.group.size > 1:
            self.batches.part = self.group.rows(self.batches.size, "batch_size")
        updates = settings.updates
        self.total = self.batches.updates(int(settings.epochs or 1)) if updates is None else int(updates)
        self.average = None if settings.averaging is None else RunningAverage(machine, settings.averaging)
        self.averaged = None if self.average is None else self.average.machine
        self.generator = _random.as_generator(stream_seed(settings.root, "rule"), machine.device)
        self.callbacks: Sequence[Any] = ()
        self.history, self.rule_state = History(), cast(Any, None)
        self.begin_from([settings.rule_state])
        self.step, self.seconds, self.stopped = 0, 0.0, False
        self.metrics, self.limit = dict[str, float](), math.nan

    def content(self, rule_states: Sequence[Any]) -> dict[str, Any]:
        """Returns the state as a checkpoint keeps it, with what the rule of every process keeps."""
        return {
            "step": self.step,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "limit": self.limit,
            "metrics": dict(self.metrics),
            "products": backends.backend_name(),
            "history": self.history.state_dict(),
            "generator": self.generator.get_state(),
            "description": _description(self.machine),
            "machine": dict(self.machine.state_dict()),
            "averaged": None if self.averaged is None else dict(self.averaged.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "processes": len(rule_states),
            "rule": rule_states[0] if len(rule_states) == 1 else list(rule_states),
            "callbacks": [callback.state_dict() for callback in _stateful(self.callbacks)],
        }

    def begin_from(self, rule_states: Sequence[Any]) -> None:
        """Begins with what the rule of every process has left elsewhere; None: it begins with none.

        Raises:
            TypeError, ValueError: it is not one of this rule for this machine.
        """
        for rule_state in rule_states:
            if rule_state is not None and hasattr(self.settings.rule, "check_state"):
                self.settings.rule.check_state(self.machine, rule_state)
        self.rule_states = [_move(rule_state, self.machine.device) for rule_state in rule_states]

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Takes over the state of a checkpoint, as ``read_checkpoint`` returns it for these settings.

        Raises:
            Exception: whatever a damaged state leads to. Parameters of another machine, or numbers that are
                not finite, leave the machine as it was.
        """
        machines = {"machine": self.machine, "averaged": self.averaged}
        for name, machine in machines.items():
            expected = None if machine is None else dict(machine.state_dict())
            require_alike(content[name], expected, name)
        if problem := find_problem(content):
            raise problem
        several = content.get("processes", 1) > 1
        self.begin_from(content["rule"] if several else [content["rule"]])
        self.optimizer.load_state_dict(content["optimizer"])
        for callback, state in zip(_stateful(self.callbacks), content["callbacks"], strict=True):
            callback.load_state_dict(_move(state, self.machine.device))
        settings = content.get("settings", {})
        if self.generator.device.type == settings.get("device", "cpu") == "cpu":
            self.generator.set_state(content["generator"])
        elif settings:  # between devices the noise goes on by its key
            self.generator.manual_seed(stream_seed(settings["seed"], "rule", content["step"]))
        self.history.load_state_dict(content["history"])
        self.step, self.seconds = content["step"], content["seconds"]
        self.metrics, self.stopped = content["metrics"], content["stopped"]
        self.limit = content["limit"]
        for name, machine in machines.items():
            if machine is not None:
                machine.load_state_dict(content[name])

    def follow(self) -> None:
        """Takes over the state of rank 0, which has read the checkpoint, and this process's chains of it."""
        if self.group.size > 1:
            content = self.group.broadcast(self.content(self.rule_states))
            if not self.group.is_rank_zero:
                self.load_state_dict({**content, "callbacks": []})
        self.rule_state = deal(self.rule_states, self.group)


def deal(rule_states: Sequence[Any], group: Group) -> Any:
    """Returns what the rule of this process goes on with, of what it has kept in some processes.

    Where they were as many, that is its own. Else the chains of all are dealt out again, in their order, and
    what a kernel keeps beside them, such as replicas, begins again.

    Raises:
        ValueError: fewer chains than processes.
    """
    if len(rule_states) == group.size:
        return rule_states[group.rank]

    def begun(x: Any) -> Any:
        return x.states if isinstance(x, KernelState) and x.memory is not None else x

    def dealt(*parts: Any) -> Any:
        if isinstance(parts[0], Tensor):
            return torch.cat(parts)[group.rows(sum(map(len, parts)), "rule_state")]
        return None if parts[0] is None else max(parts)

    chains = [map_leaves(begun, state, is_leaf=lambda x: isinstance(x, KernelState)) for state in rule_states]
    return map_leaves(dealt, *chains)


def _stateful(callbacks: Sequence[Any]) -> list[Any]:
    """Returns the callbacks of which checkpoints keep a state."""
    return [callback for callback in callbacks if hasattr(callback, "state_dict")]


def find_problem(content: Mapping[str, Any]) -> TrainingDiverged | None:
    """Finds a tensor that is not finite in what a checkpoint keeps beside the machine."""
    for key, leaf in leaves({name: content[name] for name in ("averaged", "optimizer", "rule")}):
        if isinstance(leaf, Tensor) and not bool(torch.isfinite(leaf).all()):
            return TrainingDiverged(f"the state {key} is not finite")
    return None


def _description(machine: BoltzmannMachine) -> dict[str, Any]:
    """Returns layers and metadata of a machine, as they come back from JSON."""
    try:
        text = json.dumps({**machine.config(), "metadata": machine.metadata})
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"machine: expected metadata of values that JSON has, {error}") from error
    description: dict[str, Any] = json.loads(text)
    return description


def _move(value: Any, device: torch.device) -> Any:
    """Returns a tree with its tensors on a device."""
    return map_leaves(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, value)


def fingerprint(state: TrainingState, engine: str) -> dict[str, Any]:
    """Returns all that determines the bits of a run, as numbers and strings by the name of the argument.

    Data are identified by their shape and three rows, their weights by a digest of all, callables by their
    names: two lambdas look alike.
    """
    machine, optimizer, settings = state.machine, state.optimizer.optimizer, state.settings
    content = settings.as_dict()
    del content["updates"], content["epochs"]
    if not isinstance(settings.optimizer, str):
        content["optimizer"] = f"{type(optimizer).__name__}({optimizer.defaults})"
    config, device, metadata = machine.config(), machine.device, _description(machine)["metadata"]
    graph = [config["edges"], config["visible"]] if "edges" in config else []  # no chain of dense couplings
    return {
        **{name: metadata.get(name) for name in ("encoder", "label", "objective")},
        **content,
        **state.batches.identity(),
        "machine": [str(layer) for layer in machine.layers] + graph,
        "requires_grad": [name for name, parameter in machine.named_parameters() if parameter.requires_grad],
        "dtype": str(machine.dtype),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "updates": state.total,
        "engine": engine,
    }


def fingerprint_here(state: TrainingState) -> dict[str, Any]:
    """Returns what of the process that writes has to be alike on resuming, and may differ in others."""
    kinds = [type(callback).__name__ for callback in _stateful(state.callbacks)]
    threads = torch.get_num_threads()
    return {"callbacks": kinds or None, "threads": threads, "processes": state.group.size}


def require_one_run(fingerprints: Sequence[Mapping[str, Any]]) -> None:
    """Refuses processes that were to train one machine and have different arguments.

    Raises:
        ValueError: naming the first that differs.
    """
    first = fingerprints[0]
    for process, identity in enumerate(fingerprints):
        for name, value in first.items():
            if identity[name] != value:
                raise ValueError(
                    f"distributed: expected the same {name} in all processes, received {value!r} in rank 0 "
                    f"and {identity[name]!r} in rank {process}"
                )


def require_same(saved: Mapping[str, Any], now: Mapping[str, Any], step: int, schedule: Any) -> None:
    """Refuses to resume with other settings, but for the machinery, which makes other bits.

    Warns:
        RuntimeWarning: another device, engine or number of threads or processes.

    Raises:
        ValueError: naming the first setting that differs.
    """
    for name, value in now.items():
        if name in ("device", "engine", "threads", "processes") and saved.get(name) != value:
            _checks.warn(
                f"{name}: the run to resume was on {saved.get(name)} and goes on, on {value}, in the same "
                "distribution but not in the same bits",
                RuntimeWarning,
            )
        elif name != "updates" and saved.get(name) != value:
            raise ValueError(
                f"{name}: the run to resume has {saved.get(name)!r}, received {value!r}; to go on from its "
                "machine in another way, begin a run with it in another folder"
            )
    before, total = saved["updates"], now["updates"]
    if before != total and schedule not in ("constant", "inverse_sqrt"):
        raise ValueError(
            f"updates: the schedule depends on the length of the run, {before} updates in the run to resume; "
            f"received {total}. Only under the constant and inverse_sqrt schedules may it change"
        )
    if total < step:
        raise ValueError(
            f"updates: expected at least the {step} that the run to resume has made, received {total}"
        )
