"""Everything a run must know to go on as if it had never stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from harmonium import products
from harmonium._alike import require_alike
from harmonium.distributed import Group
from harmonium.machine import BoltzmannMachine
from harmonium.training.batch_source import BatchSource
from harmonium.training.checkpoint import leaves
from harmonium.training.divergence import Problem
from harmonium.training.history import History, Record
from harmonium.training.optimizers import Ascent
from harmonium.training.seeds import stream_seed


@dataclass
class TrainingState:
    """The state of a run between two updates."""

    machine: BoltzmannMachine
    averaged: BoltzmannMachine | None
    optimizer: Ascent
    generator: torch.Generator
    callbacks: Sequence[Any]
    rule: Any
    batches: BatchSource
    history: History = field(default_factory=History)
    rule_state: Any = None
    step: int = 0
    seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    stopped: bool = False

    def state_dict(self) -> dict[str, Any]:
        """Returns the state as a checkpoint keeps it."""
        return {
            "step": self.step,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "metrics": dict(self.metrics),
            "threads": torch.get_num_threads(),
            "products": products.backend_name(),
            "history": self.history.state_dict(),
            "generator": self.generator.get_state(),
            "machine": dict(self.machine.state_dict()),
            "averaged": None if self.averaged is None else dict(self.averaged.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "rule": self.rule_state,
            "data": self.batches.state_dict(),
            "callbacks": [[type(each).__name__, each.state_dict()] for each in self._stateful()],
        }

    def begin_from(self, rule_state: Any) -> None:
        """Begins with the state that a rule has left elsewhere, if any.

        Raises:
            TypeError, ValueError: it is not one of this rule for this machine.
        """
        if rule_state is not None and hasattr(self.rule, "check_state"):
            self.rule.check_state(self.machine, rule_state)
        self.rule_state = _moved(rule_state, self.machine.device)

    def require_callbacks(self, content: dict[str, Any]) -> None:
        """Refuses to go on with other callbacks.

        Raises:
            ValueError: the callbacks that keep a state are not those of the checkpoint.
        """
        kinds = [kind for kind, _ in content["callbacks"]]
        received = [type(each).__name__ for each in self._stateful()]
        if kinds != received:
            raise ValueError(
                f"callbacks: the checkpoint holds the state of {kinds}, this call has {received}"
            )

    def load_state_dict(self, content: dict[str, Any], records: list[Record]) -> None:
        """Takes over the state of a checkpoint, the machine once all else has turned out to fit.

        Args:
            content: as ``read_checkpoint`` returns it, of a run with these settings and callbacks.
            records: the history up to there.

        Raises:
            ValueError: naming what does not fit. The machine is as before.
            Exception: what else a damaged state leads a callback or a stream to.
        """
        device = self.machine.device
        machines = {"machine": self.machine, "averaged": self.averaged}
        for name, machine in machines.items():
            own = None if machine is None else dict(machine.state_dict())
            require_alike(content[name], own, name)
        rule_state = _moved(content["rule"], device)
        if where := _not_finite(rule_state, "rule"):
            raise ValueError(f"{where}: holds values that are not finite")
        self.begin_from(rule_state)
        self.optimizer.load_state_dict(content["optimizer"])
        self.batches.load_state_dict(content["data"])
        for each, (_, state) in zip(self._stateful(), content["callbacks"], strict=True):
            each.load_state_dict(_moved(state, device))
        settings = content.get("settings", {})
        if self.generator.device.type == settings.get("device", "cpu") == "cpu":
            try:
                self.generator.set_state(content["generator"])
            except RuntimeError as error:
                raise ValueError(f"generator: {error}") from error
        elif settings:  # between devices the noise goes on by its key
            self.generator.manual_seed(stream_seed(settings["seed"], "rule", content["step"]))
        self.history.load_state_dict(content["history"], records)
        self.step, self.seconds = content["step"], content["seconds"]
        self.metrics, self.stopped = content["metrics"], content["stopped"]
        for name, machine in machines.items():
            if machine is not None:
                machine.load_state_dict(content[name])

    def follow(self, group: Group) -> None:
        """Takes over the state of rank 0."""
        content, records = group.broadcast((self.state_dict(), self.history.records))
        if not group.is_rank_zero:
            self.load_state_dict({**content, "callbacks": []}, records)

    def find_problem(self) -> Problem | None:
        """Finds a value that is not finite in the rest of the state: averages, optimiser and rule."""
        kept = {"averaged": self.averaged, "optimizer": self.optimizer}
        parts = {name: each.state_dict() for name, each in kept.items() if each is not None}
        where = _not_finite({**parts, "rule": self.rule_state})
        return Problem(where, f"the state {where} is not finite") if where else None

    def _stateful(self) -> list[Any]:
        return [each for each in self.callbacks if hasattr(each, "state_dict")]


def _not_finite(value: Any, where: str = "") -> str:
    """Returns the place of the first tensor that is not finite in a nested value; else nothing."""
    for place, leaf in leaves(value, where):
        if isinstance(leaf, Tensor) and not bool(torch.isfinite(leaf).all()):
            return place
    return ""


def _moved(value: Any, device: torch.device) -> Any:
    """Returns nested lists, tuples and dicts with their tensors on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _moved(item, device) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(item, device) for item in value)
    return value
