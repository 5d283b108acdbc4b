"""What one call of an estimator's training leaves to the next."""

from __future__ import annotations

from collections.abc import Callable
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
        """The chains for a rule to go on with, where they are its own; else None."""
        return self.chains if rule.name == self.rule else None


def optimizer_factory(
    optimizer: str | OptimizerFactory, learning_rate: float, earlier: Progress | None
) -> Callable[[list[Parameter]], torch.optim.Optimizer]:
    """A factory of optimisers with these settings and the memory of the earlier one of the same kind."""

    def build(parameters: list[Parameter]) -> torch.optim.Optimizer:
        if isinstance(optimizer, str):
            built: torch.optim.Optimizer = OPTIMIZERS[optimizer](parameters, lr=learning_rate, fused=True)
        else:
            built = optimizer(parameters)
        if earlier is not None and isinstance(built, type(earlier.optimizer)):
            built.load_state_dict({**built.state_dict(), "state": earlier.optimizer.state_dict()["state"]})
        return built

    return build
