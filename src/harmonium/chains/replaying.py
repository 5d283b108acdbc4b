"""Steps under a distribution that learns, by recordings on a device that serve every update again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from harmonium._states import map_leaves
from harmonium.backends import records
from harmonium.backends.recording import replay
from harmonium.backends.rounding import ASKED
from harmonium.machine import Hamiltonian


def replay_under(
    hamiltonian: Hamiltonian,
    owner: object,
    key: tuple[Hashable, ...],
    step: Callable[[Hamiltonian, Any], Any],
    inputs: Any,
    generators: Sequence[torch.Generator] = (),
    stays: bool = False,
) -> Any:
    """Makes a step under a distribution by a recording that an earlier call of the same owner may have made.

    Args:
        hamiltonian: the machine; its parameters may have changed since.
        owner: keeps its recordings as long as it lives; ``step`` must not hold it.
        key: whatever the operations depend on beside the distribution and the shapes of tensors.
        step: takes the distribution and the inputs, both at places that stay, and returns a tree of
            tensors.
        inputs: a tree of tensors.
        generators: sources of the step's noise.
        stays: whether to return copies of what a recording made.

    Returns:
        What the step made, by a recording where the device records; the next call writes over it if it is
        not to stay.
    """
    if not records(hamiltonian.device):
        return step(hamiltonian, inputs)
    like = hamiltonian.without_cache()

    def at(places: Any) -> Any:
        thetas, J, inputs = places
        return step(replace(like, thetas=thetas, J=J), inputs)

    machine = (
        id(hamiltonian.graph),
        *map(id, hamiltonian.layers),
        hamiltonian.dtype,
        hamiltonian.device,
        hamiltonian.beta,
        ASKED.get(),
    )
    result = replay(
        owner,
        (*machine, *key),
        at,
        (hamiltonian.thetas, tuple(hamiltonian.J), inputs),
        hamiltonian.device,
        generators,
    )
    return map_leaves(lambda x: x.clone() if isinstance(x, Tensor) else x, result) if stays else result
