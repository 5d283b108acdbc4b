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
from harmonium.training.checkpoint import leaves, mapped
from harmonium.training.divergence import Fault
from harmonium.training.history import History, Record
from harmonium.training.optimizer_state import checked_state
from harmonium.training.seeds import stream_seed


@dataclass
class TrainingState:
    """The state of a run between two updates."""

    machine: BoltzmannMachine
    averaged: BoltzmannMachine | None
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    callbacks: Sequence[Any]
    rule: Any
    feed: BatchSource
    history: History = field(default_factory=History)
    rule_state: Any = None
    step: int = 0
    seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    stopped: bool = False

    def content(self) -> dict[str, Any]:
        """The state as a checkpoint keeps it."""
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
            "data": self.feed.state_dict(),
            "callbacks": [[type(each).__name__, each.state_dict()] for each in self._stateful()],
        }

    def begin_from(self, rule_state: Any) -> None:
        """Begin with the state that a rule has left elsewhere, if any.

        Raises:
            TypeError, ValueError: it is not one of this rule for this machine.
        """
        if rule_state is not None and hasattr(self.rule, "check_state"):
            self.rule.check_state(self.machine, rule_state)
        self.rule_state = moved(rule_state, self.machine.device)

    def require_callbacks(self, content: dict[str, Any]) -> None:
        """Refuse to go on with other callbacks.

        Raises:
            ValueError: the callbacks that keep a state are not those of the checkpoint.
        """
        kinds = [kind for kind, _ in content["callbacks"]]
        received = [type(each).__name__ for each in self._stateful()]
        if kinds != received:
            raise ValueError(
                f"callbacks: the checkpoint holds the state of {kinds}, this call has {received}"
            )

    def restore(self, content: dict[str, Any], records: list[Record]) -> None:
        """Take over the state of a checkpoint, once all of it is known to fit.

        Args:
            content: as ``read_checkpoint`` returns it, of a run with these settings and callbacks.
            records: the history up to there.

        Raises:
            ValueError: naming what does not fit. The machine is as before.
            Exception: what else a damaged state leads a callback or a stream to.
        """
        device = self.machine.device
        rule_state = moved(content["rule"], device)
        self._require_fitting(content, rule_state)
        optimizer = checked_state(self.optimizer, content["optimizer"])
        self.feed.load_state_dict(content["data"])
        for each, (_, state) in zip(self._stateful(), content["callbacks"], strict=True):
            each.load_state_dict(moved(state, device))
        settings = content.get("settings", {})
        if self.generator.device.type == settings.get("device", "cpu") == "cpu":
            try:
                self.generator.set_state(content["generator"])
            except RuntimeError as error:
                raise ValueError(f"generator: {error}") from error
        elif settings:  # between devices the noise goes on by its key
            self.generator.manual_seed(stream_seed(settings["seed"], "rule", content["step"]))
        self.machine.load_state_dict(content["machine"])
        if self.averaged is not None:
            self.averaged.load_state_dict(content["averaged"])
        self.optimizer.load_state_dict(optimizer)
        self.rule_state = rule_state
        self.history.load_state_dict(content["history"], records)
        self.step, self.seconds = content["step"], content["seconds"]
        self.metrics, self.stopped = content["metrics"], content["stopped"]

    def follow(self, group: Group) -> None:
        """Take over the state of the process that leads."""
        if group.size == 1:
            return
        shared = group.broadcast((self.content(), self.history.records))
        if not group.is_rank_zero:
            content, records = shared
            self.restore({**content, "callbacks": []}, records)

    def fault(self) -> Fault | None:
        """Finds a value that is not finite in the rest of the state: averages, optimiser and rule."""
        kept = {"averaged": self.averaged, "optimizer": self.optimizer}
        parts = {name: each.state_dict() for name, each in kept.items() if each is not None}
        for where, value in leaves({**parts, "rule": self.rule_state}):
            if isinstance(value, Tensor) and not bool(torch.isfinite(value).all()):
                return Fault(where, f"the state {where} is not finite")
        return None

    def _require_fitting(self, content: dict[str, Any], rule_state: Any) -> None:
        require_alike(content["machine"], dict(self.machine.state_dict()), "machine")
        averaged = None if self.averaged is None else dict(self.averaged.state_dict())
        require_alike(content["averaged"], averaged, "averaged")
        for where, value in leaves(rule_state, "rule"):
            if isinstance(value, Tensor) and not bool(torch.isfinite(value).all()):
                raise ValueError(f"{where}: holds values that are not finite")
        if hasattr(self.rule, "check_state"):
            self.rule.check_state(self.machine, rule_state)
        self.history.require_state(content["history"])
        for name, value in content["metrics"].items():
            if type(name) is not str or type(value) is not float:
                raise ValueError(f"metrics: expected numbers by name, received {value!r} for {name!r}")

    def _stateful(self) -> list[Any]:
        return [each for each in self.callbacks if hasattr(each, "state_dict")]


def moved(value: Any, device: torch.device) -> Any:
    """Nested lists, tuples and dicts with their tensors on a device."""
    return mapped(lambda x: x.to(device), value)
