"""The offsets of centring for rules whose estimate is no mean over chains: means of earlier batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.learning.expectation import Task
from harmonium.machine import Hamiltonian

_SWEEPS = 2  # docs/design_notes.md, "Centring", has what more of them bring
_LEAST = 0.01  # that a batch counts in the running means (Melchior et al. 2016)
_KEYS = {"offsets", "batches", "rest"}


@final
@dataclass(frozen=True)
class Earlier:
    """Running means of the batches before, as offsets μ_l of this one.

    Centring is linear in the estimate at fixed offsets, and leaves unbiased what is unbiased, over chains and
    over batches. Offsets that know the chains, as a midpoint estimated from them does, put a bias into it.
    Those that know the rows take 2/B of the covariance of units given the data where B rows are drawn anew
    for every batch, and shrink couplings. These know neither. The first batch has none before it, and its
    offsets are means of its own.

    Attributes:
        means: (width_l,) for every layer; None before the first batch.
        batches: how many there were.
        rest: the state of the rule without its offsets.
    """

    means: Sequence[Tensor] | None
    batches: int
    rest: Any

    @classmethod
    def of(cls, state: Any) -> Earlier:
        """From what ``state`` made, or from the state of a rule that is not centred, such as chains."""
        if isinstance(state, dict) and state.keys() == _KEYS:
            return cls(state["offsets"], state["batches"], state["rest"])
        return cls(None, 0, state)

    def with_batch(self, task: Task) -> tuple[list[Tensor], Earlier]:
        """The offsets of a batch times the weight of its task, and what the next one is to know.

        Args:
            task: what the clamped phase was asked for and has added.
        """
        own = given_data(task)
        share = max(_LEAST, 1.0 / (self.batches + 1))
        if self.means is None:
            return own, Earlier([x / task.weight for x in own], 1, self.rest)
        after = [x + share * (y / task.weight - x) for x, y in zip(self.means, own, strict=True)]
        return [task.weight * x for x in self.means], Earlier(after, self.batches + 1, self.rest)

    def state(self, rest: Any) -> dict[str, Any]:
        """For the next call of the rule, with the state that all else has returned."""
        return {"offsets": self.means, "batches": self.batches, "rest": rest}

    def check(self, hamiltonian: Hamiltonian) -> None:
        """Refuses means, read from a file, that are not those of this machine."""
        if self.means is None:
            return
        _checks.positive_int(self.batches, "state['batches']")
        widths = [(layer.width,) for layer in hamiltonian.layers]
        if not isinstance(self.means, Sequence) or [getattr(x, "shape", None) for x in self.means] != widths:
            raise ValueError("state['offsets']: expected a mean of every unit of every layer")
        if not all(bool(torch.isfinite(x).all()) for x in self.means):
            raise ValueError("state['offsets']: expected finite means")


def given_data(task: Task) -> list[Tensor]:
    """The mean over the batch of every layer given the data, which knows nothing of the estimate's noise.

    Where nothing is left to sample it is exact, and the clamped phase holds it already. Elsewhere it takes
    two sweeps of naive mean field, from hidden units uniform over their states: the nearer to the means the
    better the coordinates, but every choice of offsets is right.

    Args:
        task: what the clamped phase was asked for and has added.

    Returns:
        For every layer, (width_l,), times the weight of the task.
    """
    if task.exact:
        return task.into.means()
    rows, law = len(task.v), task.hamiltonian.given(task.v, len(task.v), task.complete)
    means = law.split(task.v)
    for l, layer in enumerate(law.layers):
        # The middle of the states, so that it is the same units whichever of two states is called 1.
        no_field = torch.zeros(1, layer.width, dtype=law.dtype, device=law.device)
        middle = layer.moments(no_field, theta=layer.reference()).mean
        means[l] = law.hold(l, middle.expand(rows, -1))
    for _ in range(_SWEEPS):
        for l in (*law.graph.visible, *law.graph.order):
            if not law.fixes(l):
                means[l] = law.hold(l, law.mean(l, law.field(l, means)))
    weights = task.row_weights
    return [task.weight * (x.mean(0) if weights is None else weights @ x / rows) for x in means]
