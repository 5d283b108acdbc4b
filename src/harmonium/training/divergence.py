"""Stopping a run whose numbers are no longer finite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from harmonium.training.gradient import global_norm


class Fault(NamedTuple):
    """What is not finite: its name, and a description."""

    name: str
    cause: str


class TrainingDiverged(RuntimeError):
    """Training met a number that is not finite.

    A RuntimeError rather than a ValueError: every argument was well formed, their combination went wrong.
    The machine is left with its last finite parameters.

    Attributes:
        step: updates made.
        parameter: the parameter, diagnostic or state that is not finite.
        learning_rate: of the last update, or of the one that was refused.
        diagnostics: of the rule in that update.
        checkpoint: the last good checkpoint, None where none was written.
    """

    def __init__(
        self,
        fault: Fault,
        step: int,
        learning_rate: float,
        diagnostics: Mapping[str, float],
        checkpoint: Path | None,
    ) -> None:
        self.step = step
        self.parameter = fault.name
        self.learning_rate = learning_rate
        self.diagnostics = dict(diagnostics)
        self.checkpoint = checkpoint
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in diagnostics.items()) or "none"
        kept = f"the last good checkpoint is {checkpoint}" if checkpoint else "no checkpoint was written"
        super().__init__(
            f"training diverged after {step} updates: {fault.cause}; learning rate {learning_rate:.4g}; "
            f"diagnostics: {numbers}; {kept}. A smaller learning_rate or a clip_norm may help"
        )


class FiniteGuard:
    """Knows whether a machine's numbers are finite, and its last finite parameters.

    Gradients are checked at every update. Parameters are checked only now and then, as an update with a
    finite gradient hardly ever breaks them; a copy from the last check stands by for when one does.
    """

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        self._names = list(parameters)
        self._current = [parameter.detach() for parameter in parameters.values()]
        self._kept = [tensor.clone() for tensor in self._current]

    def gradient_fault(
        self, gradients: list[Tensor], norm: float, diagnostics: Mapping[str, float]
    ) -> Fault | None:
        """What is not finite in an update about to be made; parameters, where these are the cause."""
        if not math.isfinite(norm):
            name = self._worst(gradients)
            return self.parameter_fault() or Fault(name, f"the gradient of {name} is not finite")
        for name, value in diagnostics.items():
            if not math.isfinite(value):
                return self.parameter_fault() or Fault(name, f"the rule's diagnostic {name} is {value}")
        return None

    def parameter_fault(self) -> Fault | None:
        """What is not finite in the parameters; finite ones are noted, others put back to the last noted."""
        if math.isfinite(global_norm(self._current)):
            torch._foreach_copy_(self._kept, self._current)
            return None
        name = self._worst(self._current)
        torch._foreach_copy_(self._current, self._kept)
        return Fault(
            name, f"the values of {name} are not finite and were put back to the last that were noted"
        )

    def _worst(self, tensors: Sequence[Tensor]) -> str:
        """The first with an entry that is not finite; where only their norm overflows, the largest."""
        for name, tensor in zip(self._names, tensors, strict=True):
            if not bool(torch.isfinite(tensor).all()):
                return name
        norms = [float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) for tensor in tensors]
        return self._names[norms.index(max(norms))]
