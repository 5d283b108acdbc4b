"""The offsets of centring for rules whose estimate is not the mean over states of independent chains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from harmonium._states import record
from harmonium.learning.expectation import ExpectationRequest
from harmonium.machine import Hamiltonian, States

_SWEEPS = 2  # Sweeps of mean field that find the means of a deep machine (docs/decisions/0004).


@final
@record
@dataclass(frozen=True)
class PreviousBatch:
    """The rows of the batch before, whose means under the present machine are offsets μ_l of this batch.

    Centring is linear in the estimate at fixed offsets. It leaves unbiased what is unbiased, over chains and
    over batches, as long as the offsets depend neither on the noise of the estimate nor on the rows of the
    batch. Means of the batch itself take 2/B of the covariance of units given the data where B rows are drawn
    again for every batch, and shrink couplings. Means kept from earlier updates lag behind the machine. The
    first batch has none before it and takes its own rows.

    Attributes:
        rows: (batch, visible_width), with means for what was not observed; None before the first batch.
        weights: Row weights, (batch,), above 0 and of mean 1; None means uniform.
        free: the state of the free side of the rule.
    """

    rows: Tensor | None = None
    weights: Tensor | None = None
    free: Any = None

    @staticmethod
    def of(state: Any) -> PreviousBatch:
        """Returns the state of a rule that is centred; any other is that of the free side alone."""
        return state if isinstance(state, PreviousBatch) else PreviousBatch(free=state)

    @staticmethod
    def from_request(request: ExpectationRequest, free: Any = None) -> PreviousBatch:
        """Returns the rows of a request, with the state of the free side."""
        hamiltonian = request.hamiltonian
        v = (
            request.v.clone()
            if request.complete
            else hamiltonian.visible_states(given_data(hamiltonian, request.v, complete=False))
        )
        return PreviousBatch(v, request.row_weights, free)

    def means(self, hamiltonian: Hamiltonian) -> list[Tensor]:
        """Returns the mean over the rows of every layer given them, (width_l,)."""
        assert self.rows is not None
        means, weights = given_data(hamiltonian, self.rows, complete=True), self.weights
        return [x.mean(0) if weights is None else weights @ x / len(x) for x in means]

    def check(self, hamiltonian: Hamiltonian) -> None:
        """Refuses rows of another machine; whether they are finite is not looked at."""
        if self.rows is None:
            return
        expected = (hamiltonian.visible_width, hamiltonian.dtype)
        received = (tuple(getattr(self.rows, "shape", ()))[1:], getattr(self.rows, "dtype", None))
        if received != ((expected[0],), expected[1]) or len(self.rows) == 0:
            raise ValueError(
                f"state.rows: expected rows of width and type {expected}, received {received}; "
                "hand in the state of a rule for this machine, or None"
            )
        if self.weights is not None and getattr(self.weights, "shape", None) != (len(self.rows),):
            raise ValueError(f"state.weights: expected one for each of {len(self.rows)} rows, or None")


def given_data(hamiltonian: Hamiltonian, v: Tensor, *, complete: bool) -> States:
    """Returns the mean of every unit given each row, without noise.

    It is exact where nothing is left to sample. Elsewhere it takes two sweeps of naive mean field, from units
    uniform over their states: the nearer to the means the better the coordinates, but every choice of
    offsets is right.

    Args:
        hamiltonian: the machine.
        v: data, (rows, visible_width), NaN where not observed.
        complete: whether all of it is.

    Returns:
        For every layer, (rows, width_l).
    """
    clamped = hamiltonian.clamp(v, len(v), complete)
    means = clamped.split(v)
    for l, layer in enumerate(clamped.layers):
        # The middle of the states, so that it is the same units whichever of two states is called 1.
        no_field = torch.zeros(1, layer.width, dtype=clamped.dtype, device=clamped.device)
        middle = layer.moments(no_field, theta=layer.reference()).mean
        means[l] = clamped.apply_clamp(l, middle.expand(len(v), -1))
    for _ in range(1 if complete and clamped.graph.independent else _SWEEPS):
        for l in (*clamped.graph.visible, *clamped.graph.order):
            if not clamped.is_clamped(l):
                means[l] = clamped.apply_clamp(l, clamped.mean(l, clamped.field(l, means)))
    return means
