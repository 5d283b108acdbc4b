"""Estimators with one hidden layer, whose densities are exact but for ln Z."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harmonium.data import Rows
from harmonium.estimators._density import DensityEstimator
from harmonium.estimators._estimator import BoltzmannEstimator
from harmonium.estimators._hidden_layers import hidden_layers
from harmonium.layers import Layer
from harmonium.likelihood import LogPartition, log_likelihood
from harmonium.machine import BoltzmannMachine
from harmonium.tasks.impute import unobserved


@dataclass(eq=False, repr=False)
class RestrictedEstimator(BoltzmannEstimator):
    """A machine with one hidden layer. Abstract."""

    n_hidden: int = 100

    def _hidden_layers(self, visible: Sequence[Layer]) -> list[Layer]:
        return hidden_layers(visible, self.hidden, [self.n_hidden], self.hidden_states)

    def _initialise(self, rows: Rows, weights: Tensor | None, generator: torch.Generator) -> None:
        self._random_start(rows, weights, generator)

    def _pretrain(self, states: Any, weights: Tensor | None) -> None:
        pass  # one pair of layers is all there is

    @classmethod
    def _sizes(cls, machine: BoltzmannMachine) -> int:
        if len(machine.hidden) != 1:
            raise ValueError(
                f"machine: expected one hidden layer for {cls.__name__}, received {len(machine.hidden)}; "
                "DBM takes more"
            )
        return machine.layers[machine.hidden[0]].n_units


@dataclass(eq=False, repr=False)
class RestrictedDensity(RestrictedEstimator, DensityEstimator):
    """A machine of rows without labels, with one hidden layer. Abstract."""

    @torch.no_grad()
    def _scores(self, machine: BoltzmannMachine, v: Tensor, constant: LogPartition) -> Tensor:
        scores = log_likelihood(machine, v, constant)
        return scores + self._log_slopes(~unobserved(machine, v))
