"""The offsets of centring for rules whose estimate is no mean over states: running means given the data."""

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


@final
@dataclass(frozen=True)
class RunningMeans:
    """Means given the data of the batches before, as offsets μ_l of this one.

    Centring is linear in the estimate at fixed offsets, and leaves unbiased what is unbiased, over chains and
    over batches. Offsets that know the chains, as a midpoint estimated from them does, put a bias into it.
    Those that know the rows take 2/B of the covariance of units given the data where B rows are drawn anew
    for every batch, and shrink couplings. These know neither. The first batch has none before it, and its
    offsets are means of its own.

    Attributes:
        offsets: (width_l,) for every layer; None before the first batch.
        batches: how many there were.
    """

    offsets: Sequence[Tensor] | None = None
    batches: int = 0

    def with_batch(self, own: Sequence[Tensor]) -> tuple[Sequence[Tensor], RunningMeans]:
        """The offsets of a batch whose own means are these, and what the next one is to know."""
        if self.offsets is None:
            return own, RunningMeans(own, 1)
        share = max(_LEAST, 1.0 / (self.batches + 1))
        after = [x + share * (y - x) for x, y in zip(self.offsets, own, strict=True)]
        return self.offsets, RunningMeans(after, self.batches + 1)

    def state(self, free: Any) -> dict[str, Any]:
        """For the next call of the rule, with the state of its free side."""
        return {"offsets": self.offsets, "batches": self.batches, "free": free}

    def require_fitting(self, hamiltonian: Hamiltonian) -> None:
        """Refuses means of another machine; whether they are finite is not looked at."""
        if self.offsets is None:
            return
        expected = [((layer.width,), hamiltonian.dtype) for layer in hamiltonian.layers]
        received: Any = type(self.offsets).__name__
        if isinstance(self.offsets, Sequence):
            received = [(tuple(getattr(x, "shape", ())), getattr(x, "dtype", None)) for x in self.offsets]
        if received != expected:
            raise ValueError(
                f"state['offsets']: expected means of shape and type {expected}, received {received}"
            )

    def check(self, hamiltonian: Hamiltonian) -> None:
        """Refuses means, read from a file, that are not those of batches of this machine."""
        self.require_fitting(hamiltonian)
        if self.offsets is None:
            if self.batches != 0:
                raise ValueError(f"state['batches']: expected 0 without offsets, received {self.batches!r}")
            return
        _checks.positive_int(self.batches, "state['batches']")
        if not all(bool(torch.isfinite(x).all()) for x in self.offsets):
            raise ValueError("state['offsets']: expected finite means")


def parted(state: Any) -> tuple[RunningMeans, Any]:
    """What ``RunningMeans.state`` put together; any other state is that of a free side, such as chains."""
    if isinstance(state, dict) and state.keys() == {"offsets", "batches", "free"}:
        return RunningMeans(state["offsets"], state["batches"]), state["free"]
    return RunningMeans(), state


def given_data(task: Task, sums: Sequence[Tensor]) -> list[Tensor]:
    """The mean over the batch of every layer given the data, which knows nothing of the estimate's noise.

    Where nothing is left to sample it is exact, and the clamped phase holds it already. Elsewhere it takes
    two sweeps of naive mean field, from hidden units uniform over their states: the nearer to the means the
    better the coordinates, but every choice of offsets is right.

    Args:
        task: what the clamped phase was asked for.
        sums: what it has added of every layer, its means times the task's weight.

    Returns:
        For every layer, (width_l,).
    """
    if task.exact:
        return [x / task.weight for x in sums]
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
    return [x.mean(0) if weights is None else weights @ x / rows for x in means]
