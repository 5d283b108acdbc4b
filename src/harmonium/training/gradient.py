"""From the rule's estimate to the gradient of an update."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import Parameter


def ascent(
    parameters: Mapping[str, Parameter],
    estimated: Mapping[str, Tensor],
    weight: float = 1.0,
    weight_decay: float = 0.0,
    l1: float = 0.0,
) -> list[Tensor]:
    """Returns the direction of an update for every parameter, in their order.

    It is the estimated gradient times the weight of its batch, and for every coupling W, and nothing else,
    less ``weight_decay · W + l1 · sign(W)``. Tensors of the estimate belong to the rule: where anything
    changes, new ones are made.

    Raises:
        ValueError: the rule left a parameter out, or returned another shape.
    """
    result = []
    for name, parameter in parameters.items():
        if name not in estimated:
            raise ValueError(f"rule: expected a gradient of {name}, received those of {sorted(estimated)}")
        gradient = estimated[name].detach()
        if gradient.shape != parameter.shape:
            raise ValueError(
                f"rule: expected a gradient of {name} of shape {tuple(parameter.shape)}, "
                f"received {tuple(gradient.shape)}"
            )
        if weight != 1:
            gradient = gradient * weight
        if (weight_decay or l1) and name.startswith("couplings"):
            W = parameter.detach()
            gradient = gradient.sub(W, alpha=weight_decay) if weight_decay else gradient
            gradient = gradient.sub(W.sign(), alpha=l1) if l1 else gradient
        result.append(gradient)
    return result


def global_norm(tensors: list[Tensor]) -> float:
    """Returns the Euclidean norm of all entries together; not finite where an entry is not."""
    return float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))) if tensors else 0.0
