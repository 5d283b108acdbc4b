"""Chains and optimiser that one call of an estimator's training passes to the next."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import torch

from harmonium.learning import Rule


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

    def remind(self, optimizer: torch.optim.Optimizer) -> None:
        """Gives an optimiser of the same kind a copy of the memory of this one."""
        if isinstance(optimizer, type(self.optimizer)):
            memory = deepcopy(self.optimizer.state_dict()["state"])  # else the tensors would be shared
            optimizer.load_state_dict({**optimizer.state_dict(), "state": memory})
