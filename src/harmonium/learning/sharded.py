"""Gradients from shards of a batch and of its chains, whichever process works on which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, final

import torch
from torch import Tensor

from harmonium import _checks, _device
from harmonium.distributed import Shards, pairwise
from harmonium.learning.expectation import ExpectationRequest
from harmonium.learning.parametrisation import Parametrisation
from harmonium.learning.rule import Estimate, Rule
from harmonium.machine import BoltzmannMachine, Statistics

FLAGS: Final = 3
"""Number of decisions that travel with the sum of every update (``Sharded.agree``)."""


@final
class Sharded:
    """A rule whose batch, chains and noise are cut into shards, which processes share out among themselves.

    The cut depends on the number of shards alone. Each has noise of its own and keeps its own chains; their
    statistics, not their gradients, are added in one order before anything nonlinear is done with them. So
    1, 2, 4, ... processes get the same bits, and a run goes on in another number of them.

    Chains that a rule has for all rows together are dealt out evenly; the free phase of a shard counts with
    its share of the rows. For offsets of centring each shard keeps its own rows of the last batch.

    Args:
        rule: what each shard does.
        shards: which there are, and which are this process's.

    Raises:
        TypeError: a rule of one's own, which does not say what its statistics are.
    """

    def __init__(self, rule: Rule, shards: Shards) -> None:
        _checks.instance(rule, "rule", Rule, "a harmonium.learning.Rule with distributed")
        self.rule, self.shards = rule, shards
        self._names = list[str]()  # of diagnostics, alike in all processes
        self._flags: tuple[bool, ...] = (False,) * FLAGS
        self._raised = [*self._flags]
        self._unread: tuple[Tensor, list[Mapping[str, float | Tensor]]]

    @torch.no_grad()
    def estimate(
        self,
        parametrisation: Parametrisation,
        v: Tensor,
        state: Any,
        generator: torch.Generator,
        row_weights: Tensor | None = None,
        observed: bool | None = None,
    ) -> Estimate:
        """Estimates the gradient as ``Rule.estimate`` does, of the same batch in every process.

        The state is that of this process's shards, a list in their order. Diagnostics are left where they are
        for ``read``.

        Raises:
            ValueError: fewer rows than shards, or chains that the shards do not divide.
        """
        hamiltonian = parametrisation.hamiltonian()
        complete = _checks.observed(v) if observed is None else observed
        whole = ExpectationRequest(
            hamiltonian, v, generator, Statistics(hamiltonian), complete, row_weights=row_weights
        )
        kept: list[Any] = []
        notes: list[Mapping[str, float | Tensor]] = []
        parts = self._parts(whole, state, kept, notes)
        sums, centre = pairwise(parts, _add)
        tensors = [*chain.from_iterable(sums.thetas), *sums.products, *centre]
        numbers = self._numbers(notes, hamiltonian.thetas[0][0])
        *totals, numbers = self.shards.group.all_reduce_sum([*tensors, numbers])
        rest = iter(totals)
        delta = Statistics(hamiltonian)
        delta.add_sums(
            [[next(rest) for _ in theta] for theta in hamiltonian.thetas], [next(rest) for _ in hamiltonian.J]
        )
        direction = self.rule.direction(parametrisation, delta, [*rest])
        keeps = any(part_state is not None for part_state in kept)
        self._unread = numbers, notes
        return Estimate(direction, {}, kept if keeps else None)

    def read(self, norm: Tensor) -> tuple[float, dict[str, float]]:
        """Reads a number beside what all shards noted in the last estimate, with one wait for a device.

        Takes over the flags of all processes (``agree``).

        Args:
            norm: The number, a tensor of shape ().

        Returns:
            The number, and the diagnostics of all shards together.
        """
        shared, notes = self._unread
        value, *numbers = torch.cat((norm.view(1), shared)).tolist()
        return value, self._sum_up(numbers, shared, notes)

    def agree(self, *flags: bool) -> list[bool]:
        """Hands in flags for the sum of the next update, and returns those that were in the last one's.

        Args:
            flags: ``FLAGS`` of them.

        Returns:
            For each, whether a process had raised it.
        """
        raised, self._flags = self._raised, flags
        return raised

    def _parts(
        self,
        whole: ExpectationRequest,
        state: Any,
        kept: list[Any],
        notes: list[Mapping[str, float | Tensor]],
    ) -> Iterator[tuple[Statistics, list[Tensor]]]:
        """Makes the statistics and offsets of each shard, and appends what it keeps and notes."""
        spans = self.shards.rows(len(whole.v), "batch_size")
        before = [None] * len(spans) if state is None else state
        noises = self.shards.generators(whole.generator, whole.v.device)
        for rows, noise, old in zip(spans, noises, before, strict=True):
            part = whole.select_rows(rows, whole.complete or _checks.observed(whole.v[rows]))
            hamiltonian = whole.hamiltonian.of_shard(self.shards.number)
            request = replace(
                part,
                hamiltonian=hamiltonian,
                generator=noise,
                into=Statistics(hamiltonian),
                shards=self.shards,
            )
            centre, diagnostics, new = self.rule.add(request, old)
            kept.append(new)
            notes.append(diagnostics)
            yield request.into, centre

    def _numbers(self, notes: Sequence[Mapping[str, float | Tensor]], like: Tensor) -> Tensor:
        """Lays out the flags and what each shard notes, (numbers,), with 0 for the shards of others.

        A sum over processes then has the values of all shards. Names that are new have no place yet.
        """
        here = dict(zip(self.shards.local, notes, strict=True))
        every = [here.get(shard, {}) for shard in range(self.shards.number)]
        unknown = any(name not in self._names for note in notes for name in note)
        there = [name in note for note in every for name in self._names]
        values = [note.get(name, 0.0) for note in every for name in self._names]
        return _device.to_vector([*self._flags, unknown, *there, *values], like)

    def _sum_up(
        self, numbers: list[float], like: Tensor, notes: Sequence[Mapping[str, float | Tensor]]
    ) -> dict[str, float]:
        """Takes over the flags of all processes, and returns the diagnostics of all shards together."""
        group = self.shards.group
        self._raised, unknown = [x > 0 for x in numbers[:FLAGS]], numbers[FLAGS]
        if unknown:
            told = chain.from_iterable(group.all_gather([name for note in notes for name in note]))
            self._names = [*dict.fromkeys((*self._names, *told))]
            (again,) = group.all_reduce_sum([self._numbers(notes, like)])
            return self._sum_up(again.tolist(), like, notes)
        there, values = torch.tensor(numbers[FLAGS + 1 :]).view(2, self.shards.number, -1).tolist()
        return _together(
            [
                {name: value for name, said, value in zip(self._names, *row, strict=True) if said}
                for row in zip(there, values, strict=True)
            ]
        )

    def whole_state(self, state: Any) -> Any:
        """The state of all shards in their order, from that of this process's; None where there is none."""
        return None if state is None else self.shards.all_gather(state)

    def local_state(self, state: Any) -> Any:
        """The state of this process's shards, from that of all."""
        return None if state is None else [state[shard] for shard in self.shards.local]

    def check_state(self, machine: BoltzmannMachine, state: Any) -> None:
        """Refuses a state of all shards that ``estimate`` could not have returned for this machine."""
        if state is None:
            return
        number = self.shards.number
        if not isinstance(state, list) or len(state) != number:
            received = len(state) if isinstance(state, list) else type(state).__name__
            raise ValueError(f"state: expected that of {number} shards, received {received}")
        for shard_state in state:
            self.rule.check_state(machine, shard_state)


def _add(
    left: tuple[Statistics, list[Tensor]], right: tuple[Statistics, list[Tensor]]
) -> tuple[Statistics, list[Tensor]]:
    """Adds the statistics and offsets of other shards to those on the left, where they stand."""
    left[0].add_sums(right[0].thetas, right[0].products)
    return left[0], [x.add_(y) for x, y in zip(left[1], right[1], strict=True)]


def _together(notes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of what those shards say that say it, and the longest of what is longest."""
    by_name: dict[str, list[float]] = {}
    for diagnostics in notes:
        for name, value in diagnostics.items():
            by_name.setdefault(name, []).append(value)
    return {
        name: max(values) if "longest" in name else sum(values) / len(values)
        for name, values in by_name.items()
    }
