"""Estimates of expected sufficient statistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, final

import torch
from torch import Tensor

from harmonium import _checks, _device
from harmonium.distributed import Shards
from harmonium.machine import Hamiltonian, Statistics
from harmonium.sums import expect, few_states


class Outcome(NamedTuple):
    """The result of an expectation beside the statistics that it added.

    Attributes:
        state: for its next call, or None.
        diagnostics: numbers about the estimate.
        is_plain_mean: whether it is the plain mean over states of independent chains, as that of the data is
            over rows, and not exact, say, or a sum over coupled chains. Offsets of centring depend on it
            (``rules.centred``).
        initial_means: the mean of every layer, (width_l,), over the states where chains begin, if the
            estimate is right on average given these states; None otherwise. Offsets of centring may depend on
            them.
    """

    state: Any
    diagnostics: dict[str, float]
    is_plain_mean: bool = False
    initial_means: Sequence[Tensor] | None = None


class StepControl(NamedTuple):
    """Changes that an expectation asks for in the next step of the optimiser.

    Attributes:
        rate: factor of all learning rates.
        restart: learnable parameters by name, in their shapes, to go back to in place of a step; the
            optimiser then forgets its momenta. None: a step.
        stop: why the run should end; None: it goes on.
    """

    rate: float = 1.0
    restart: Mapping[str, Tensor] | None = None
    stop: str | None = None


@final
@dataclass(frozen=True)
class ExpectationRequest:
    """The request of an expectation: to add weight times E[S], the mean over rows, to a sum.

    Attributes:
        hamiltonian: the machine.
        v: data, (batch, visible_width); NaN is not observed.
        generator: source of all noise.
        into: where to add.
        weight: +1 for the clamped phase of a gradient, -1 for the free phase.
        state: what the last call returned, None at first.
        row_weights: of the rows of v, (batch,), above 0 and of mean 1; None where all count alike.
        fields: of hidden layers given v, where one side of a gradient has made them for the other.
        observed: whether all of v is; None: not known yet, to be looked at where it matters.
        shards: of which this request is one; ``weight`` has its share of the rows. None: it is all.
        parameters: the learnable parameters by name, for what may ask to go back to them (``control``); None
            where they are not known.
    """

    hamiltonian: Hamiltonian
    v: Tensor
    generator: torch.Generator
    into: Statistics
    weight: float = 1.0
    state: Any = None
    row_weights: Tensor | None = None
    fields: dict[int, Tensor] = field(default_factory=dict)
    shards: Shards | None = None
    observed: bool | None = None
    parameters: Mapping[str, Tensor] | None = None

    def chains_of_this_shard(self, number: int | None, name: str) -> int:
        """Returns the number of this shard's chains; None: one a row.

        Args:
            number: for all shards together.
            name: of the argument, for messages.
        """
        if number is None:
            return len(self.v)
        return number if self.shards is None else self.shards.divide(number, name)

    @property
    def row_weight(self) -> float | Tensor:
        """The weight of every row, a number or (batch,)."""
        each = self.weight / self.v.shape[0]
        return each if self.row_weights is None else each * self.row_weights

    @cached_property
    def complete(self) -> bool:
        """True if every entry of the data is observed."""
        return _checks.observed(self.v) if self.observed is None else self.observed

    @cached_property
    def exact(self) -> bool:
        """True if nothing is left to sample once the data are clamped.

        All hidden layers can be summed out, and unobserved entries, if any, have few states
        (``sums.FEW_STATES``), such as those of a label.
        """
        if self.complete or not self.hamiltonian.graph.independent:
            return self.complete and self.hamiltonian.graph.independent
        return self._few(self.hamiltonian.unobserved(self.v).any(0).tolist())

    def _few(self, missing: Sequence[bool]) -> bool:
        visible = self.hamiltonian.graph.visible
        lacking = [l for l, lacks in zip(visible, missing, strict=True) if lacks]
        return few_states(self.hamiltonian, lacking)

    def split_by_missing(self) -> list[ExpectationRequest]:
        """The complete rows, the others that are exact nevertheless, and what has to be sampled.

        Rows that lack entries of different layers are enumerated together as far as that takes few states,
        those of the commonest pattern first.
        """
        if self.complete:
            return [self]
        missing = self.hamiltonian.unobserved(self.v).cpu()  # a GPU is waited for once
        together = torch.zeros_like(missing[0])
        if self.exact:
            together = ~together
        elif self.hamiltonian.graph.independent:
            patterns, counts = torch.unique(missing, dim=0, return_counts=True)
            for pattern in patterns[counts.argsort(descending=True, stable=True)]:
                if self._few((together | pattern).tolist()):
                    together |= pattern
        lacks, sampled = missing.any(-1), (missing & ~together).any(-1)
        chosen = (~lacks, lacks & ~sampled, sampled)
        return [self.select_rows(rows) for rows in chosen if bool(rows.any())]

    def select_rows(self, rows: Tensor) -> ExpectationRequest:
        """The part of some of the rows, (batch,) booleans: weights of all parts add up to the whole."""
        places = _device.selected_indices(rows, self.v.device)
        share, weights = len(places) / len(rows), None
        if self.row_weights is not None:
            mean = float(self.row_weights[places].mean())
            share, weights = share * mean, self.row_weights[places] / mean
        v = self.v[places]
        return replace(
            self,
            v=v,
            weight=self.weight * share,
            row_weights=weights,
            fields={},
            observed=self.observed or None,
        )

    def add_exact(self) -> Outcome:
        """Adds E[S | v] as it is: hidden layers are summed out, what is left or missing is enumerated."""
        hamiltonian, v = self.hamiltonian, self.v
        if self.complete and hamiltonian.graph.independent:
            states, summed = hamiltonian.split(v), hamiltonian.graph.summed
            for l in summed:
                if l not in self.fields:
                    self.fields[l] = hamiltonian.field(l, states)
            self.into.add(hamiltonian, states, self.row_weight, summed=summed, fields=self.fields)
        else:
            expect(hamiltonian, self.into, self.row_weight, v, complete=self.complete)
        return Outcome(None, {})


_STEADY = StepControl()


class Expectation(ABC):
    """An estimate of E[S], of the free machine or of the machine with its visible layers clamped to data.

    All estimates of a gradient differ only in this (docs/design.md). It holds settings only.
    """

    controls: ClassVar[bool] = False
    """True if ``control`` may ask for anything."""

    @abstractmethod
    def add(self, request: ExpectationRequest) -> Outcome:
        """Adds what the request asks for, as well as this expectation can."""

    def control(self, state: Any) -> StepControl:
        """Returns what is asked of the step after ``add`` has returned a state: as a rule, nothing."""
        return _STEADY

    def check_state(self, hamiltonian: Hamiltonian, state: Any) -> None:  # noqa: B027
        """Refuses a state, read from a file, that ``add`` could not have returned for this machine.

        An expectation that keeps none has nothing to refuse.

        Raises:
            TypeError, ValueError: naming what is wrong with it.
        """
