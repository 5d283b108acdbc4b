"""Everything a run must know to go on as if it had never stopped."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from harmonium.machine import BoltzmannMachine
from harmonium.training.checkpoint import leaves
from harmonium.training.divergence import Fault
from harmonium.training.history import History, Record


@dataclass
class TrainingState:
    """The state of a run between two updates."""

    machine: BoltzmannMachine
    averaged: BoltzmannMachine | None
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    callbacks: Sequence[Any]
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
            "history": self.history.state_dict(),
            "generator": self.generator.get_state(),
            "machine": dict(self.machine.state_dict()),
            "averaged": None if self.averaged is None else dict(self.averaged.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "rule": self.rule_state,
            "callbacks": [[type(each).__name__, each.state_dict()] for each in self._stateful()],
        }

    def restore(self, content: dict[str, Any], records: list[Record]) -> None:
        """Take over the state of a checkpoint.

        Raises:
            ValueError: the callbacks that keep a state are not those of the checkpoint.
        """
        kinds = [kind for kind, _ in content["callbacks"]]
        received = [type(each).__name__ for each in self._stateful()]
        if kinds != received:
            raise ValueError(
                f"callbacks: the checkpoint holds the state of {kinds}, this call has {received}"
            )
        if content["threads"] != torch.get_num_threads():
            warnings.warn(
                f"the checkpoint was made with {content['threads']} torch threads and this process has "
                f"{torch.get_num_threads()}: the run goes on, but not bit for bit",
                stacklevel=4,
            )
        device = self.machine.device
        self.machine.load_state_dict(content["machine"])
        if self.averaged is not None:
            self.averaged.load_state_dict(content["averaged"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.generator.set_state(content["generator"])
        self.rule_state = moved(content["rule"], device)
        for each, (_, state) in zip(self._stateful(), content["callbacks"], strict=True):
            each.load_state_dict(moved(state, device))
        self.history.load_state_dict(content["history"], records)
        self.step, self.seconds = content["step"], content["seconds"]
        self.metrics, self.stopped = content["metrics"], content["stopped"]

    def fault(self) -> Fault | None:
        """What is not finite beside the parameters."""
        kept = {"averaged": self.averaged, "optimizer": self.optimizer}
        parts = {name: each.state_dict() for name, each in kept.items() if each is not None}
        for where, value in leaves({**parts, "rule": self.rule_state}):
            if isinstance(value, Tensor) and not bool(torch.isfinite(value).all()):
                return Fault(where, f"the state {where} is not finite")
        return None

    def _stateful(self) -> list[Any]:
        return [each for each in self.callbacks if hasattr(each, "state_dict")]


def moved(value: Any, device: torch.device) -> Any:
    """Nested lists, tuples and dicts with their tensors on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: moved(item, device) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(moved(item, device) for item in value)
    return value
