"""Estimates of expected sufficient statistics: by enumeration, quadrature and chains."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, final

import torch
from torch import Tensor

from harmonium import _checks, _device
from harmonium._random import as_generator
from harmonium.chains import (
    Gibbs,
    Info,
    Kernel,
    KernelState,
    check_chains,
    fill_hidden,
    not_a_step,
    relax_alone,
    run_kernel,
)
from harmonium.distributed import Group
from harmonium.machine import Hamiltonian, Statistics
from harmonium.sums import MAX_MISSING_STATES, HiddenStates, expect, few_states, lists_hidden_states

Start = Literal["data", "persistent", "noise"]

ALONE = Group()
"""The one process of a request that no others share."""
FILLING_SWEEPS = 10
"""Least Gibbs sweeps that draw what a row does not observe, from independent units (docs/decisions/0002)."""


class Outcome(NamedTuple):
    """The result of an expectation beside the statistics that it added.

    Attributes:
        state: State for its next call, or None.
        diagnostics: numbers about the estimate.
        is_plain_mean: Whether the estimate is a simple average over independent chains. Centred rules then
            use the midpoint of data and chain means as offsets (``rules.centred``).
        initial_means: Layer means, (width_l,), of the first states of the chains. Give them only if the
            estimate is unbiased for any choice of these states; else None. Offsets may depend on them.
    """

    state: Any
    diagnostics: Mapping[str, float | Tensor]
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
@dataclass(eq=False)
class ExpectationRequest:
    """The request of an expectation: to add weight times E[S], the mean over rows, to a sum.

    Attributes:
        hamiltonian: the machine.
        v: data, (batch, visible_width); NaN is not observed.
        generator: source of all noise.
        into: where to add.
        weight: +1 for the clamped phase of a gradient, -1 for the free phase.
        state: what the last call returned, None at first.
        row_weights: Weights of the rows of v, (batch,), above 0 and of mean 1; None means uniform.
        complete: whether every entry of v is observed.
        fields: Fields of hidden layers given v, where one side of a gradient has made them for the other.
        tables: Hidden states that one side of a gradient has listed, for the other too; none: it has not.
        group: processes that share the rows and chains; ``weight`` has this one's share of the rows.
        parameters: the learnable parameters by name, for what may ask to go back to them (``control``); None
            where they are not known.
        supported: whether all entries of v that are observed are known to be states of their units.
    """

    hamiltonian: Hamiltonian
    v: Tensor
    generator: torch.Generator
    into: Statistics
    complete: bool
    weight: float = 1.0
    state: Any = None
    row_weights: Tensor | None = None
    fields: dict[int, Tensor] = field(default_factory=dict)
    tables: list[HiddenStates] = field(default_factory=list)
    group: Group = ALONE
    parameters: Mapping[str, Tensor] | None = None
    supported: bool = False

    def own_chains(self, number: int | None, name: str) -> int:
        """Returns the chains of this process where ``number`` are those of all; None: one a row."""
        return len(self.v) if number is None else self.group.share(number, name)

    @property
    def row_weight(self) -> float | Tensor:
        """The weight of every row, a number or (batch,)."""
        # Each phase divides by its own rows: both go into one signed sum, which is never divided again.
        weight = self.weight / self.v.shape[0]
        return weight if self.row_weights is None else weight * self.row_weights

    @cached_property
    def exact(self) -> bool:
        """True if nothing is left to sample once the data are clamped.

        All hidden layers can be summed out, and unobserved entries, if any, have few states
        (``sums.MAX_MISSING_STATES``), such as those of a label.
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
        # Which patterns go together best is a covering problem; the commonest first serve most rows.
        if self.exact:
            together = ~together
        elif self.hamiltonian.graph.independent:
            patterns, counts = torch.unique(missing, dim=0, return_counts=True)
            for pattern in patterns[counts.argsort(descending=True, stable=True)]:
                if self._few((together | pattern).tolist()):
                    together |= pattern
        # Exact parts apart from sampled ones: a row that needs no chain must not get the noise of one.
        lacks, sampled = missing.any(-1), (missing & ~together).any(-1)
        chosen = (~lacks, lacks & ~sampled, sampled)
        return [self.select_rows(rows, rows is chosen[0]) for rows in chosen if bool(rows.any())]

    def select_rows(self, rows: Tensor, complete: bool) -> ExpectationRequest:
        """The part of some rows, (batch,) booleans: weights of all parts add up to the whole."""
        places = _device.selected_indices(rows, self.v.device)
        v = self.v[places]
        # Weights have mean 1 in every part, as a request promises; the part's weight has their mean.
        share, weights = len(v) / len(self.v), None
        if self.row_weights is not None:
            mean = float(self.row_weights[places].mean())
            share, weights = share * mean, self.row_weights[places] / mean
        weight = self.weight * share
        return replace(self, v=v, complete=complete, weight=weight, row_weights=weights, fields={})

    def add_exact(self) -> Outcome | None:
        """Adds E[S | v] as it is: hidden layers are summed out, what is left or missing is enumerated.

        Returns:
            What an expectation returns then; None, and adds nothing, where something is left to sample.
        """
        hamiltonian, v = self.hamiltonian, self.v
        if self.complete and hamiltonian.graph.independent:  # E[S | v] by ψ alone; chains from v reuse fields
            states, summed = hamiltonian.split(v), hamiltonian.graph.summed
            new_fields = self.into.add(
                hamiltonian, states, self.row_weight, summed, self.fields, self.supported
            )
            self.fields.update(new_fields)
        elif self.exact:
            expect(hamiltonian, self.into, self.row_weight, v, complete=self.complete)
        else:
            return None
        return Outcome(None, {})

    def find_label(self, layers: Collection[int]) -> int | None:
        """Returns the one visible layer besides these, if ``add_labels`` takes it.

        It has few states, and one hidden layer, without edges of its own, is joined to layers that all rows
        show. None: there is no such layer.
        """
        graph = self.hamiltonian.graph
        rest = [l for l in graph.visible if l not in layers]
        if len(graph.hidden) != 1 or graph.inner or len(rest) != 1:
            return None
        unit, split = self.hamiltonian.layers[rest[0]], self.hamiltonian.split(self.v)
        few = unit.n_units == 1 and unit.n_states is not None and unit.n_states <= MAX_MISSING_STATES
        shown = self.complete or not any(bool(split[l].isnan().any()) for l in layers)
        return rest[0] if few and shown else None

    def add_labels(self, label: int, joint: float) -> None:
        """Adds E[S | v] - (1 - joint) E[S | v without its label] at once, by the states of the label.

        Given all else the hidden units are independent, so that their joint states need no sum. Of joint = 0
        the fields of what is not the label then have a gradient of 0 but for the last digit of their sum.
        """
        # One table of (row, label) for both sides: their difference is then exact to the last digits, where
        # two tables would leave the rounding of each.
        hamiltonian, v, count = self.hamiltonian, self.v, len(self.v)
        (hidden,), values = hamiltonian.graph.hidden, hamiltonian.layers[label].values().to(v)
        states = [x.repeat_interleave(len(values), 0) for x in hamiltonian.split(v)]
        labels, states[label] = hamiltonian.split(v)[label], values.repeat(count, 1)
        fields = {hidden: hamiltonian.field(hidden, states)}
        log_weights = -hamiltonian.free_energy(states, (hidden,), fields).view(count, -1)
        # A row without a label is unlike no state: its two terms are then equal but for ``joint``.
        unlike = (labels.unsqueeze(1) != values).any(2) & ~labels.isnan().any(1, keepdim=True)
        seen = log_weights.masked_fill(unlike, -math.inf).softmax(1)
        weights = self.row_weight * (seen - (1 - joint) * log_weights.softmax(1)).t()
        self.into.add(hamiltonian, states, weights.t().flatten(), (hidden,), fields)


_STEADY = StepControl()


class Expectation(ABC):
    """An estimate of E[S], of the free machine or of the machine with its visible layers clamped to data.

    All estimates of a gradient differ only in this (docs/design.md). It holds settings only.
    """

    controls: ClassVar[bool] = False
    """True if ``control`` may ask for anything."""
    noiseless: ClassVar[bool] = False
    """True if ``add`` draws nothing: equal requests get equal bits, and the mean has no error."""

    @abstractmethod
    def add(self, request: ExpectationRequest) -> Outcome:
        """Adds what the request asks for, as well as this expectation can."""

    def parts(self, request: ExpectationRequest) -> list[ExpectationRequest]:
        """Returns the parts of a clamped request that ``add`` treats alike."""
        return request.split_by_missing()

    @property
    def is_steady(self) -> bool:
        """True if ``add`` makes the same operations for all complete data, and asks for no value."""
        return False

    def control(self, state: Any) -> StepControl:
        """Returns what is asked of the step after ``add`` has returned a state: as a rule, nothing."""
        return _STEADY

    def check_state(self, hamiltonian: Hamiltonian, state: Any) -> None:  # noqa: B027
        """Refuses a state, read from a file, that ``add`` could not have returned for this machine.

        An expectation that keeps none has nothing to refuse.

        Raises:
            TypeError, ValueError: naming what is wrong with it.
        """


@final
class Enumeration(Expectation):
    """The exact expectation, by enumeration; ``likelihood.exact_log_partition`` gives the limits.

    Args:
        clamped: whether the visible layer is clamped to the data.
        roots: Roots of columns of the data, see ``likelihood.HiddenStates``.
        grid: whether visible Gaussian units, one to three, or those that a row does not observe, are
            integrated by quadrature.
    """

    noiseless: ClassVar[bool] = True

    def __init__(
        self, *, clamped: bool, roots: Mapping[int, Tensor] | None = None, grid: bool = False
    ) -> None:
        if roots is not None:
            _checks.instance(roots, "roots", Mapping, "a mapping from layers to matrices")
        self.clamped, self.roots, self.grid = clamped, roots, grid

    def parts(self, request: ExpectationRequest) -> list[ExpectationRequest]:
        if self.grid:
            return request.split_by_missing()
        if self.roots or not request.hamiltonian.graph.independent:
            return [request]
        lacks = request.hamiltonian.unobserved(request.v).any(-1)
        if 2 * int(lacks.sum()) > len(lacks):  # then a table for all rows takes less
            return [request]
        sides = ((~lacks, True), (lacks, False))
        return [request.select_rows(rows, complete) for rows, complete in sides if bool(rows.any())]

    def add(self, request: ExpectationRequest) -> Outcome:
        hamiltonian, into = request.hamiltonian, request.into
        v, weight = (request.v, request.row_weight) if self.clamped else (None, request.weight)
        complete = self.clamped and request.complete
        # Of complete data with independent hidden units ψ is the whole sum: there is nothing to list.
        if complete and not self.roots and (exact := request.add_exact()):
            return exact
        if not (self.grid or request.tables) and (
            self.roots or lists_hidden_states(hamiltonian, v, complete)
        ):
            request.tables.append(HiddenStates(hamiltonian, self.roots))
        if request.tables:
            request.tables[0].expect(into, weight, v)
        else:
            grid = self.grid and not (self.clamped and request.exact)
            expect(hamiltonian, into, weight, v, complete=complete, grid=grid)
        return Outcome(None, {})


@final
class ClampedChains(Expectation):
    """Gibbs chains with the visible layers clamped, one for each datum, the layers of ``graph.summed``
    summed out.

    Where no two hidden layers are joined nothing is left to sample and the expectation is exact, also of rows
    whose missing entries have few states (``ExpectationRequest.exact``). Elsewhere chains start from hidden
    layers drawn nearest to the data first, and take at least ``FILLING_SWEEPS`` sweeps for rows that are
    observed in part.

    Args:
        sweeps: sweeps before the statistics are taken, at least 1.
    """

    def __init__(self, sweeps: int = 1) -> None:
        self.sweeps = _checks.positive_int(sweeps, "sweeps")

    @property
    def is_steady(self) -> bool:
        return True

    def add(self, request: ExpectationRequest) -> Outcome:
        if exact := request.add_exact():
            return exact
        sweeps = self.sweeps if request.complete else max(self.sweeps, FILLING_SWEEPS)
        hamiltonian = request.hamiltonian.clamp(request.v, len(request.v), request.complete)
        state = fill_hidden(hamiltonian, request.v, request.generator, observed=request.complete)
        state = state._replace(
            states=hamiltonian.clamp_states(state.states)
        )  # known by what is held, not by its values
        state = run_kernel(hamiltonian, Gibbs(), state, sweeps, request.generator)
        summed = hamiltonian.graph.summed
        request.into.add(
            request.hamiltonian, state.states, request.row_weight, summed=summed, fields=state.fields,
            exact=request.supported,
        )  # fmt: skip
        return Outcome(None, {})


@final
class FreeChains(Expectation):
    """The average over chains of the free machine, with the layers of ``graph.summed`` summed out given the
    others.

    Args:
        kernel: what moves the chains.
        sweeps: sweeps of every call, at least 1.
        start: "data": fresh chains from the batch (CD); "persistent": chains continue from the last call, and
            begin as independent units at the machine's biases (PCD); "noise": fresh chains whose visible
            units are uniform or standard normal noise. The state of persistent chains is a ``KernelState``.
            A list of chains alone is taken as chains that begin.
        chains: how many; None is as many as the batch has rows. Chains from data always are.
        burn_in: sweeps left out of the average, which takes every later sweep; None keeps the last sweep
            only.
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        sweeps: int = 1,
        *,
        start: Start = "persistent",
        chains: int | None = None,
        burn_in: int | None = None,
    ) -> None:
        self.kernel = Gibbs() if kernel is None else kernel
        _checks.instance(self.kernel, "kernel", Kernel, "a kernel")
        self.sweeps = _checks.positive_int(sweeps, "sweeps")
        self.start = _checks.one_of(start, "start", ("data", "persistent", "noise"))
        self.chains = None if chains is None else _checks.positive_int(chains, "chains")
        self.burn_in = (
            self.sweeps - 1 if burn_in is None else _checks.positive_int(burn_in, "burn_in", minimum=0)
        )
        if self.burn_in >= self.sweeps:
            raise ValueError(f"burn_in: expected fewer than the {self.sweeps} sweeps, received {burn_in}")

    @property
    def is_steady(self) -> bool:
        return self.kernel.is_steady(self.start == "persistent")

    def add(self, request: ExpectationRequest) -> Outcome:
        hamiltonian, generator, kernel = request.hamiltonian, request.generator, self.kernel
        # Sweeps come before statistics: at the update's start persistent chains follow the machine as it was
        # before the last step, and one sweep takes back a part of that lag.
        if self.start == "persistent" and request.state is not None:
            state = request.state  # chains keep their number, whatever the batch
            if not isinstance(state, KernelState) or state.fields or state.cache is not None:
                state = self.go_on(hamiltonian, state, generator)
        else:
            chains = request.own_chains(None if self.start == "data" else self.chains, "chains")
            seen = request.complete if self.start == "data" else None
            fresh = begin(hamiltonian, request.v, chains, self.start, generator, request.fields, seen)
            state = kernel.init(hamiltonian, fresh.states, generator, self.sweeps)
        # Chains are an average of their own, whatever the rows weigh; only those that begin at rows inherit
        # their weights, as each then stands for its row.
        weight: float | Tensor = request.weight / (state.states[0].shape[0] * (self.sweeps - self.burn_in))
        if self.start == "data" and request.row_weights is not None:
            weight = weight * request.row_weights
        diagnostics: Mapping[str, float | Tensor]
        alone = None
        if isinstance(weight, float) and hamiltonian.layers[0].gaussian:
            alone = relax_alone(
                hamiltonian, kernel, state, self.sweeps, generator,
                into=request.into, weight=weight, burn_in=self.burn_in,
            )  # fmt: skip
        if alone is not None:
            state, diagnostics = alone
        else:
            summed = hamiltonian.graph.summed
            infos: list[Info] = []
            for sweep in range(self.sweeps):
                moved = kernel.step(hamiltonian, state, generator)
                if type(moved) is not tuple:
                    raise not_a_step(kernel, moved)
                state, info = moved
                if info:
                    infos.append(info)
                if sweep >= self.burn_in:
                    request.into.add(
                        hamiltonian, state.states, weight, summed=summed, fields=state.fields, exact=True
                    )
            diagnostics = _means(infos) if infos else {}
        sampled = self.burn_in == self.sweeps - 1  # states of one chain are not independent
        # Without fields: these belong to parameters that the step is about to change.
        if self.start == "persistent":
            return Outcome(KernelState(state.states, state.sweeps, state.memory, {}), diagnostics, sampled)
        return Outcome(None, diagnostics, sampled)

    def check_state(self, hamiltonian: Hamiltonian, state: Any) -> None:
        if state is not None and self.start == "persistent":
            if not isinstance(state, KernelState):
                check_chains(hamiltonian, state)  # the kernel is to begin with them
            begun = self.go_on(hamiltonian, state, as_generator(0, hamiltonian.device))
            self.kernel.check(hamiltonian, begun)

    @property
    def plain(self) -> bool:
        """True for Gibbs chains of which the last sweep counts, from the data or persistent, summed out."""
        last = self.burn_in == self.sweeps - 1
        return last and isinstance(self.kernel, Gibbs) and self.start != "noise"

    def go_on(self, hamiltonian: Hamiltonian, state: Any, generator: torch.Generator) -> KernelState:
        """Returns persistent chains; the distribution has changed since their last sweep: no caches."""
        if isinstance(state, KernelState):
            return state.without_caches()
        return self.kernel.init(hamiltonian, state, generator, self.sweeps)


def _means(infos: Sequence[Info]) -> dict[str, float | Tensor]:
    """Returns the means over sweeps of their diagnostics, which stay where they are."""
    noted: dict[str, list[float | Tensor]] = {}
    for info in infos:
        for name, value in info.items():
            noted.setdefault(name, []).append(value)
    return {name: sum(values[1:], values[0]) / len(values) for name, values in noted.items()}


def begin(
    hamiltonian: Hamiltonian,
    v: Tensor,
    chains: int,
    start: str,
    generator: torch.Generator,
    fields: Mapping[int, Tensor] | None = None,
    observed: bool | None = None,
) -> KernelState:
    """Returns fresh chains: at rows of v, at noise, or as independent units at the machine's biases.

    ``fields`` are those of hidden layers given v alone, where they are known; ``observed``: whether all of v
    is, None where that is not known.
    """
    if start == "data":
        observed = _checks.observed(v) if observed is None else observed
        state = fill_hidden(hamiltonian, v, generator, fields, observed)
        if not observed:
            clamped = hamiltonian.clamp(v, len(v))
            # Chains of CD begin at whole rows, so that missing entries are drawn given the others first.
            filled = run_kernel(clamped, Gibbs(), KernelState(state.states, 0), FILLING_SWEEPS, generator)
            state = KernelState(filled.states, 0)
        return state
    if start == "noise":  # visible noise, and hidden layers that fit it
        seen = [hamiltonian.pure_noise(l, chains, generator) for l in hamiltonian.graph.visible]
        return fill_hidden(hamiltonian, torch.cat(seen, -1), generator, observed=True)
    return KernelState(hamiltonian.draw_independent(chains, generator), 0)
