"""From the rule's estimate to the gradient of an update.

Every step makes new tensors where it changes anything: those of the estimate belong to the rule.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import Parameter


def ascent(
    parameters: Mapping[str, Parameter], estimated: Mapping[str, Tensor], weight: float = 1.0
) -> list[Tensor]:
    """The estimated gradients in the order of the parameters, times the weight of their batch.

    Raises:
        ValueError: the rule left a parameter out, or returned another shape.
    """
    for name, parameter in parameters.items():
        if name not in estimated:
            raise ValueError(f"rule: expected a gradient of {name}, received those of {sorted(estimated)}")
        if estimated[name].shape != parameter.shape:
            raise ValueError(
                f"rule: expected a gradient of {name} of shape {tuple(parameter.shape)}, "
                f"received {tuple(estimated[name].shape)}"
            )
    gradients = [estimated[name].detach() for name in parameters]
    return gradients if weight == 1 else [gradient * weight for gradient in gradients]


def decayed(
    parameters: Mapping[str, Parameter], gradients: list[Tensor], weight_decay: float, l1: float
) -> list[Tensor]:
    """Take ``weight_decay · W + l1 · sign(W)`` from the gradient of every coupling W, and of nothing else."""
    if not (weight_decay or l1):
        return gradients
    result = []
    for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
        W = parameter.detach()
        if weight_decay and name.startswith("couplings"):
            gradient = gradient.sub(W, alpha=weight_decay)
        if l1 and name.startswith("couplings"):
            gradient = gradient.sub(W.sign(), alpha=l1)
        result.append(gradient)
    return result


def global_norm(tensors: list[Tensor]) -> float:
    """The Euclidean norm of all entries together; not finite where an entry is not."""
    return float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))) if tensors else 0.0


def clipped(gradients: list[Tensor], norm: float, limit: float | None) -> list[Tensor]:
    """Gradients of global norm ``norm``, scaled down to ``limit`` where it is exceeded."""
    if limit is None or norm <= limit:
        return gradients
    return [gradient * (limit / norm) for gradient in gradients]
