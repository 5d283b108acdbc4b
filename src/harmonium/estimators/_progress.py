"""Chains and optimiser that one call of an estimator's training passes to the next."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch.nn import Parameter

from harmonium.learning import Rule
from harmonium.training.optimizers import OPTIMIZERS, OptimizerFactory


class Progress(NamedTuple):
    """Chains and optimiser at the end of a run.

    Attributes:
        rule: the name of the rule, with its settings, that the chains belong to.
        chains: ``TrainingRun.rule_state``.
        optimizer: the optimiser, with what it remembers.
    """

    rule: str
    chains: Any
    optimizer: torch.optim.Optimizer

    def chains_of(self, rule: Rule) -> Any:
        """Returns a copy of the chains for a rule to go on with, where they are its own; else None."""
        return deepcopy(self.chains) if rule.name == self.rule else None


def optimizer_factory(
    optimizer: str | OptimizerFactory, learning_rate: float, earlier: Progress | None
) -> Callable[[list[Parameter]], torch.optim.Optimizer]:
    """Returns a factory of optimisers with a copy of the memory of the earlier one of the same kind."""

    def build(parameters: list[Parameter]) -> torch.optim.Optimizer:
        if isinstance(optimizer, str):
            built: torch.optim.Optimizer = OPTIMIZERS[optimizer](parameters, lr=learning_rate, fused=True)
        else:
            built = optimizer(parameters)
        if earlier is not None and isinstance(built, type(earlier.optimizer)):
            memory = deepcopy(earlier.optimizer.state_dict()["state"])  # else the tensors would be shared
            built.load_state_dict({**built.state_dict(), "state": memory})
        return built

    return build
