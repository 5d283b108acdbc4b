"""The foundation's expectations: enumeration and chains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, final

import torch
from torch import Tensor

from harmonium import _checks, _host, products
from harmonium._random import as_generator
from harmonium.chains import Gibbs, GibbsLangevin, Kernel, Langevin, Step, advance, captured, completed
from harmonium.compiled import serving
from harmonium.learning.expectation import Expectation, Outcome, Task
from harmonium.likelihood import add_exact_expectation
from harmonium.machine import Hamiltonian, States, Statistics
from harmonium.machine.hamiltonian import Couplings

Noted = dict[str, list[float | Tensor]]
"""Diagnostics of every sweep by name."""
_SMALL = (Gibbs, Langevin, GibbsLangevin)  # kernels that ``chains.small`` knows

Start = Literal["data", "persistent", "noise"]

FILLING_SWEEPS = 10
"""Gibbs sweeps, at least, that draw what a row does not observe, from independent units (design notes)."""


@final
class Enumeration(Expectation):
    """The exact expectation, by enumeration; ``likelihood.exact_log_partition`` gives the limits.

    Args:
        clamped: whether the visible layer is clamped to the data.
    """

    def __init__(self, *, clamped: bool) -> None:
        self.clamped = clamped

    def add(self, task: Task) -> Outcome:
        if self.clamped:
            add_exact_expectation(task.hamiltonian, task.into, task.each, task.v, task.complete)
        else:
            add_exact_expectation(task.hamiltonian, task.into, task.weight)
        return Outcome(None, {})


@final
class ClampedChains(Expectation):
    """Gibbs chains with the visible layers clamped, one for each datum, the layers of ``graph.summed``
    summed out.

    Where no two hidden layers are joined nothing is left to sample and the expectation is exact, also of rows
    whose missing entries have few states (``Task.exact``). Elsewhere chains start from hidden layers drawn
    nearest to the data first, and take at least ``FILLING_SWEEPS`` sweeps for rows that are observed in part.

    Args:
        sweeps: sweeps before the statistics are taken, at least 1.
        marginal: whether layers are summed out; if not, they are drawn, as in the gradient of the
            joint density (noisier, with the same expectation).
    """

    def __init__(self, sweeps: int = 1, *, marginal: bool = True) -> None:
        self.sweeps = _checks.positive_int(sweeps, "sweeps")
        self.marginal = marginal

    def add(self, task: Task) -> Outcome:
        if task.exact and (self.marginal or not task.complete):
            return task.add_exact()
        sweeps = self.sweeps if task.complete else max(self.sweeps, FILLING_SWEEPS)
        law = task.hamiltonian if task.exact else task.hamiltonian.given(task.v, len(task.v), task.complete)
        step = completed(law, task.v, task.generator, observed=task.complete)
        step = step._replace(states=law.hold_all(step.states))  # known by what is held, not by its values
        for _ in range(0 if task.exact else sweeps):
            step = Gibbs().onward(law, step, task.generator)
        summed = law.graph.summed if self.marginal else ()
        task.into.add(task.hamiltonian, step.states, task.each, summed=summed, fields=step.fields)
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
            units are uniform or standard normal noise. Persistent chains are kept in the state ``{"chains",
            "sweeps"}``, with the number of sweeps since they began, so that a kernel's first sweeps
            (``Langevin(adjust=...)``) are those of a chain and not of every call. A list of chains alone is
            taken as chains that begin.
        chains: how many; None is as many as the batch has rows. Chains from data always are.
        burn_in: sweeps left out of the average, which takes every later sweep; None keeps the last sweep
            only.
        marginal: as in ``ClampedChains``.
        step_decay: updates after which the kernel's steps are half of what they were: times 1/(1 +
            t/step_decay) at update t, counted from the first call. Only with fresh chains. None: never.
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        sweeps: int = 1,
        *,
        start: Start = "persistent",
        chains: int | None = None,
        burn_in: int | None = None,
        marginal: bool = True,
        step_decay: float | None = None,
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
        self.marginal = marginal
        self.step_decay = None if step_decay is None else _checks.real(step_decay, "step_decay", low=1.0)
        if step_decay is not None and self.start == "persistent":
            raise ValueError(f"step_decay: expected None with persistent chains, received {step_decay}")

    def add(self, task: Task) -> Outcome:
        hamiltonian, generator, into, state = task.hamiltonian, task.generator, task.into, task.state
        chains = task.own(None if self.start == "data" else self.chains, "chains")
        kernel, taken = self.kernel, 0
        if self.step_decay is not None:
            kernel = kernel.scaled(1 / (1 + (state or 0) / self.step_decay))
        if self.start == "persistent" and state is not None:
            states, taken = chains_of(state)
            check_states(hamiltonian, states)
            kernel = kernel.after(taken)
        else:
            seen = task.complete if self.start == "data" else None
            fresh = begin(hamiltonian, task.v, chains, self.start, generator, task.fields, seen)
            states = kernel.expand(hamiltonian, fresh.states, generator)
        chains = len(kernel.target(states)[0])  # persistent chains keep their number, whatever the batch
        each: float | Tensor = task.weight / (chains * (self.sweeps - self.burn_in))
        if self.start == "data" and task.row_weights is not None:
            each = each * task.row_weights
        if isinstance(each, float) and isinstance(kernel, _SMALL) and serving.small_chains(hamiltonian):
            from harmonium.chains.small import advance_small  # needs numba

            states, diagnostics = advance_small(
                hamiltonian, kernel, states, self.sweeps, generator,
                into=into, weight=each, burn_in=self.burn_in, marginal=self.marginal,
            )  # fmt: skip
            return self._outcome(states, taken, state, diagnostics)
        if isinstance(each, float) and self.step_decay is None and _of_one_shape(hamiltonian, kernel):
            states, noted = self._recorded(hamiltonian, kernel, states, each, generator, into)
        else:
            states, noted = self._advance(hamiltonian, kernel, states, each, generator, into)
        return self._outcome(states, taken, state, self._means(noted))

    def _advance(
        self,
        hamiltonian: Hamiltonian,
        kernel: Kernel,
        states: States,
        each: float | Tensor,
        generator: torch.Generator,
        into: Statistics,
    ) -> tuple[States, Noted]:
        """Where the chains are after the sweeps, whose statistics are added, and what was noted of each."""
        summed = hamiltonian.graph.summed if self.marginal else ()
        noted: Noted = {}

        def observe(number: int, step: Step) -> None:
            for name, value in step.diagnostics.items():
                noted.setdefault(name, []).append(value)
            if number > self.burn_in:
                into.add(hamiltonian, kernel.target(step.states), each, summed=summed, fields=step.fields)

        return advance(hamiltonian, kernel, states, self.sweeps, generator, observe), noted

    def _recorded(
        self,
        hamiltonian: Hamiltonian,
        kernel: Kernel,
        states: States,
        each: float,
        generator: torch.Generator,
        into: Statistics,
    ) -> tuple[States, Noted]:
        """``_advance`` as one launch, from a function of tensors alone."""
        layers, graph, beta = hamiltonian.layers, hamiltonian.graph, hamiltonian.beta
        sizes = [len(theta) for theta in hamiltonian.thetas]

        def split(tensors: Sequence[Tensor]) -> tuple[list[tuple[Tensor, ...]], list[Tensor], list[Tensor]]:
            rest = iter(tensors)
            thetas = [tuple(next(rest) for _ in range(size)) for size in sizes]
            return thetas, [next(rest) for _ in graph.edges], list(rest)

        def sweep(*tensors: Tensor) -> dict[str, list[Tensor]]:
            thetas, couplings, states = split(tensors)
            law = Hamiltonian(layers, graph, tuple(thetas), Couplings(couplings), beta)
            sums = Statistics(law)
            states, noted = self._advance(law, kernel, states, each, generator, sums)
            return {
                "sums": [*(x for theta in sums.thetas for x in theta), *sums.couplings],
                "states": states,
                **{name: [torch.stack(values)] for name, values in noted.items()},  # type: ignore[arg-type]
            }

        flat = [x.detach() for theta in hamiltonian.thetas for x in theta]
        flat += [J.detach() for J in hamiltonian.couplings]
        key = (self, repr(kernel), id(graph), each, products.current())
        played = captured.played(sweep, [*flat, *states], generator, key)
        thetas, couplings, _ = split(played.pop("sums"))
        into.add_sums(thetas, couplings)
        return played.pop("states"), {name: list(values) for name, (values,) in played.items()}

    def check_state(self, hamiltonian: Hamiltonian, state: Any) -> None:
        if state is None:
            return
        if self.step_decay is not None:
            _checks.positive_int(state, "state", minimum=0)
        elif self.start == "persistent":
            states, _ = chains_of(state)
            check_chains(hamiltonian, states)
            chains, generator = self.kernel.target(states), as_generator(0, hamiltonian.device)
            whole = len(self.kernel.expand(hamiltonian, chains, generator)[0])
            if len(chains[0]) == 0 or whole != len(states[0]):
                raise ValueError(
                    f"state: expected the replicas of {self.kernel}, received {len(states[0])} rows"
                )

    def _means(self, noted: Noted) -> dict[str, float]:
        """Over the sweeps, of what was noted in each by name."""
        read = iter(_host.numbers([x for values in noted.values() for x in values]))
        return {name: sum(next(read) / self.sweeps for _ in values) for name, values in noted.items()}

    def _outcome(self, states: States, taken: int, state: Any, diagnostics: dict[str, float]) -> Outcome:
        sampled = self.burn_in == self.sweeps - 1  # states of one chain are not independent
        if self.start == "persistent":
            return Outcome({"chains": states, "sweeps": taken + self.sweeps}, diagnostics, sampled)
        return Outcome(None if self.step_decay is None else (state or 0) + 1, diagnostics, sampled)


def _of_one_shape(hamiltonian: Hamiltonian, kernel: Kernel) -> bool:
    """Whether free chains may be recorded: nothing that they do depends on values."""
    return (
        captured.serve(hamiltonian.device)
        and isinstance(kernel, _SMALL)
        and hamiltonian.held is None
        and isinstance(hamiltonian.beta, float)
        and all(layer.discrete or layer.gaussian for layer in hamiltonian.layers)
    )


def begin(
    hamiltonian: Hamiltonian,
    v: Tensor,
    chains: int,
    start: str,
    generator: torch.Generator,
    fields: Mapping[int, Tensor] | None = None,
    observed: bool | None = None,
) -> Step:
    """Where fresh chains begin: at rows of v, at noise, or as independent units at the machine's biases.

    ``fields`` are those of hidden layers given v alone, where they are known; ``observed``: whether all of v
    is, None where that is not known.
    """
    if start == "data":
        observed = _checks.observed(v) if observed is None else observed
        step = completed(hamiltonian, v, generator, fields, observed)
        if not observed:
            law = hamiltonian.given(v, len(v))
            step = Step(advance(law, Gibbs(), step.states, FILLING_SWEEPS, generator), {}, {})
        return step
    if start == "noise":  # visible noise, and hidden layers that fit it
        seen = [hamiltonian.pure_noise(l, chains, generator) for l in hamiltonian.graph.visible]
        return completed(hamiltonian, torch.cat(seen, -1), generator, observed=True)
    states = [
        hamiltonian.sample(l, hamiltonian.thetas[l][0].new_zeros(chains, layer.width), generator)
        for l, layer in enumerate(hamiltonian.layers)
    ]
    return Step(states, {}, {})


def chains_of(state: Any) -> tuple[Any, int]:
    """Returns persistent chains and their number of sweeps so far; a list of chains alone begins at 0."""
    if isinstance(state, dict) and state.keys() == {"chains", "sweeps"}:
        return state["chains"], _checks.positive_int(state["sweeps"], "state['sweeps']", minimum=0)
    return state, 0


def check_states(hamiltonian: Hamiltonian, state: Any) -> None:
    """Refuses chains of another machine."""
    _checks.instance(state, "state", Sequence, "what the last call returned, or None")
    received = [tuple(x.shape)[1:] if isinstance(x, Tensor) else type(x).__name__ for x in state]
    expected = [(layer.width,) for layer in hamiltonian.layers]
    if received != expected:
        raise ValueError(f"state: expected chains of width {expected}, received {received}")


def check_chains(hamiltonian: Hamiltonian, state: Any) -> None:
    """Refuses what are not chains of this machine: as ``check_states``, and their rows, dtype and support."""
    check_states(hamiltonian, state)
    for l, (layer, x) in enumerate(zip(hamiltonian.layers, state, strict=True)):
        layer.check_rows(x, f"state[{l}]")
        if x.dtype != hamiltonian.dtype or len(x) != len(state[0]):
            raise ValueError(
                f"state[{l}]: expected {len(state[0])} rows of {hamiltonian.dtype}, "
                f"received {len(x)} of {x.dtype}"
            )
