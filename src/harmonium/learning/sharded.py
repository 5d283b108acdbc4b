"""Gradients from shards of a batch and of its chains, whichever process works on which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor

from harmonium import _checks, _device
from harmonium.distributed import Shards
from harmonium.learning.expectation import ExpectationRequest
from harmonium.learning.parametrisation import Parametrisation
from harmonium.learning.rule import Estimate, Rule
from harmonium.machine import BoltzmannMachine, Hamiltonian, Statistics


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

    @torch.no_grad()
    def estimate(
        self,
        law: Parametrisation,
        v: Tensor,
        state: Any,
        generator: torch.Generator,
        row_weights: Tensor | None = None,
        observed: bool | None = None,
    ) -> Estimate:
        """Estimates the gradient as ``Rule.estimate`` does, of the same batch in every process.

        The state is that of this process's shards, a list in their order.

        Raises:
            ValueError: fewer rows than shards, or chains that the shards do not divide.
        """
        hamiltonian = law.hamiltonian()
        sums = Statistics(hamiltonian)
        complete = _checks.observed(v) if observed is None else observed
        whole = ExpectationRequest(hamiltonian, v, generator, sums, complete, row_weights=row_weights)
        shards = self.shards
        place = torch.arange(len(whole.v), device=whole.v.device)
        before = [None] * len(shards.local) if state is None else state
        parts: list[tuple[Statistics, list[Tensor]]] = []
        kept, notes = [], []
        spans = shards.rows(len(whole.v), "batch_size")
        for rows, noise, old in zip(spans, shards.generators(whole.generator), before, strict=True):
            shard_law = hamiltonian.without_cache()
            request = replace(
                whole.select_rows(
                    (place >= rows.start) & (place < rows.stop), complete or _checks.observed(v[rows])
                ),
                hamiltonian=shard_law,
                generator=noise,
                into=Statistics(shard_law),
                shards=shards,
            )
            centre, diagnostics, new = self.rule.add(request, old)
            parts.append((request.into, centre))
            kept.append(new)
            notes.append(_device.read_numbers(diagnostics))
        edges = range(len(hamiltonian.J)) or [None]
        totals = shards.all_reduce_sum([_flat(edge, *part) for part in parts] for edge in edges)
        delta, centre = _whole(totals, hamiltonian, self.rule.centred)
        direction = self.rule.direction(law, delta, centre)
        keeps = any(part_state is not None for part_state in kept)
        return Estimate(direction, _together(shards.all_gather(notes)), kept if keeps else None)

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


def _flat(edge: int | None, sums: Statistics, centre: Sequence[Tensor]) -> Tensor:
    """The products of an edge, and with those of the first all else, end to end."""
    tensors = [] if edge else [x for theta in sums.thetas for x in theta] + list(centre)
    if edge is not None:
        tensors.append(sums.product(edge))
    return torch.cat([x.flatten() for x in tensors])


def _whole(
    totals: Sequence[Tensor], hamiltonian: Hamiltonian, centred: bool
) -> tuple[Statistics, list[Tensor]]:
    """Restores the statistics and offsets that ``_flat`` has laid end to end."""
    thetas = [x for theta in hamiltonian.thetas for x in theta]
    widths = [layer.width for layer in hamiltonian.layers] if centred else []
    sizes = [len(x) for x in thetas] + widths
    *small, first = torch.split(totals[0], [*sizes, len(totals[0]) - sum(sizes)])
    rest = iter(small)
    sums = [[next(rest) for _ in theta] for theta in hamiltonian.thetas]
    products = zip((first, *totals[1:]), hamiltonian.J, strict=False)
    delta = Statistics(hamiltonian)
    delta.add_sums(sums, [total.view_as(J) for total, J in products])
    return delta, list(rest)


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
