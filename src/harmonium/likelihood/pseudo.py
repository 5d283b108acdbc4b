"""Scores that need no ln Z: visible units given all others, or hidden cells given the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.machine import BoltzmannMachine, Hamiltonian, States
from harmonium.meanfield import naive

_ROWS = 4096  # at a time: 26 MB of 784 pixels and 800 hidden fields
_BLOCK_ELEMENTS = 1 << 20  # hidden fields at a time
_HIDDEN = 0.1  # share of the cells that a predictive score hides
_TOLERANCE, _SWEEPS = 1e-3, 30  # of mean field given what is not hidden


@torch.no_grad()
def pseudo_log_likelihood(
    machine: BoltzmannMachine,
    X: Numbers,
    *,
    sampled: int | None = None,
    seed: int | torch.Generator = 0,
) -> Tensor:
    """Returns Σ_i ln p(v_i | v_without_i) of every row, exactly or from randomly chosen units (Besag 1975).

    Args:
        machine: discrete visible layers, joined in any way, and hidden layers that no edge joins, or none.
        X: visible states, (batch, visible_width).
        sampled: how many units to draw for every row (with replacement); the sum is scaled up, so that its
            mean over draws is the exact value. None: all units, exactly.
        seed: source of the drawn units, an int or a generator to advance.

    Returns:
        (batch,), float64, in nats.

    Raises:
        ValueError: hidden layers that are joined, or real visible units.

    Examples:
        >>> import harmonium as hm
        >>> machine, X = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(4)]), hm.data.bars_and_stripes()
        >>> bool((hm.likelihood.pseudo_log_likelihood(machine, X) < 0).all())
        True
    """
    missing = missing_pseudo_likelihood(machine)
    if missing:
        raise ValueError(f"machine: {missing}")
    X = machine.visible_rows(X, "X")
    units = sum(machine.layers[l].n_units for l in machine.visible)
    hamiltonian, scale, chosen = machine.hamiltonian(), 1.0, None
    if sampled is not None:
        _checks.positive_int(sampled, "sampled")
        generator = _random.as_generator(seed, machine.device)
        drawn = [_random.integers(units, (len(X),), generator) for _ in range(sampled)]
        chosen, scale = torch.stack(drawn, 1), units / sampled
    total = torch.zeros(len(X), dtype=torch.float64, device=X.device)
    for rows in torch.split(torch.arange(len(X), device=X.device), _ROWS):
        present = _Present.of(hamiltonian, X[rows])
        first = 0
        for l in machine.visible:
            last = first + machine.layers[l].n_units
            if chosen is None:
                total[rows] += present.score_all_units(l)
            else:
                row, draw = ((chosen[rows] >= first) & (chosen[rows] < last)).nonzero(as_tuple=True)
                unit = chosen[rows][row, draw] - first
                total.index_add_(0, rows[row], present.score_units(l, row, unit))
            first = last
    return total * scale


@torch.no_grad()
def unit_log_probabilities(machine: BoltzmannMachine, X: Numbers, layer: int) -> Tensor:
    """Returns ln p(v_i | v_without_i) of every state of every unit in a visible layer, exactly.

    Those of the states that rows have are the terms of ``pseudo_log_likelihood``.

    Args:
        machine: see ``pseudo_log_likelihood``.
        X: visible states, (batch, visible_width).
        layer: Index of a visible layer.

    Returns:
        (batch, n_units, n_states), float64, in the order of ``Layer.values``.

    Raises:
        ValueError: hidden layers that are joined, real visible units, or a layer that is not visible.

    Examples:
        >>> import harmonium as hm
        >>> machine, X = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(4)]), hm.data.bars_and_stripes()
        >>> log_p = hm.likelihood.unit_log_probabilities(machine, X, 0)
        >>> log_p.shape, bool((log_p.exp().sum(-1) - 1 < 1e-9).all())
        (torch.Size([32, 16, 2]), True)
    """
    missing = missing_pseudo_likelihood(machine)
    if missing:
        raise ValueError(f"machine: {missing}")
    if layer not in machine.visible:
        raise ValueError(
            f"layer: expected one of the visible layers {list(machine.visible)}, received {layer}"
        )
    X = machine.visible_rows(X, "X", dtype=torch.float64)
    hamiltonian, kind = machine.hamiltonian().to(torch.float64), machine.layers[layer]
    log_p = X.new_empty(len(X), kind.n_units, len(kind.values()))
    for rows in torch.split(torch.arange(len(X), device=X.device), _ROWS):
        present = _Present.of(hamiltonian, X[rows])
        for row, unit in present.list_pairs(layer):
            log_p[rows[row], unit] = present.weigh_units(layer, row, unit).log_softmax(1)
    return log_p


def missing_pseudo_likelihood(machine: BoltzmannMachine) -> str | None:
    """Says why a machine has no pseudo-likelihood; returns None where it has one."""
    if not machine.graph.independent:
        return (
            "expected hidden layers that no edge joins, such as one hidden layer, received "
            f"{len(machine.hidden)} with edges among them"
        )
    for l in machine.visible:
        if not machine.layers[l].discrete:
            return f"expected discrete visible units, received {machine.layers[l]}"
    return None


@torch.no_grad()
def predictive_log_score(machine: BoltzmannMachine, X: Numbers, *, seed: int | torch.Generator = 0) -> Tensor:
    """Returns Σ ln q(v_i | cells that are not hidden) over the tenth of a row's cells hidden at random.

    q is the factorised distribution of naive mean field given the rest of the row. It is a distribution too,
    so that the score is a proper one (no machine does better than the one whose q is right on average), but
    not the machine's p. Beside other scores of one machine along its training, or of machines on the same
    rows, it needs no ln Z, and takes real units, deep machines and rows that were observed in part.

    Args:
        machine: on any graph.
        X: visible states, (batch, visible_width); NaN is not observed, and not asked for.
        seed: draws which; the same int hides the same units of as many rows.

    Returns:
        (batch,), float64, in nats (a density for real units); 0 where nothing is hidden.

    Raises:
        ValueError: X that does not fit.
    """
    v = machine.visible_rows(X, "X", missing=True)
    generator = _random.as_generator(seed, machine.device)
    hamiltonian = machine.hamiltonian()
    parts = []
    for rows in torch.split(v, _ROWS):
        states, asked = hamiltonian.split(rows), {}
        observed = list(states)
        for l in machine.visible:
            layer, x = machine.layers[l], states[l]
            drawn = _random.uniform((len(x), layer.n_units), generator, torch.float64) < _HIDDEN
            seen = ~layer.by_unit(x)[..., 0].isnan()
            asked[l] = drawn.to(seen.device) & seen
            free = (asked[l] | ~seen).repeat_interleave(layer.columns_per_unit, 1)
            observed[l] = x.masked_fill(free, torch.nan)
        known = hamiltonian.visible_states(observed)
        solution = naive(machine, known, known, tolerance=_TOLERANCE, max_sweeps=_SWEEPS)
        total = rows.new_zeros(len(rows), dtype=torch.float64)
        for l, units in asked.items():
            x = machine.layers[l].observed(states[l], "X")[1]
            terms = machine.layers[l].log_conditional(x, solution.fields[l], hamiltonian.thetas[l]).double()
            total += torch.where(units, terms, 0.0).sum(1)
        parts.append(total)
    return torch.cat(parts)


class _Present(NamedTuple):
    """Rows with the fields that they make, once for all their units.

    Attributes:
        hamiltonian: the machine.
        states: States of the visible layers.
        fields: Fields of every layer; those of visible ones come from the visible layers alone.
        normalisers: ψ of the hidden layers, (rows,).
    """

    hamiltonian: Hamiltonian
    states: States
    fields: States
    normalisers: dict[int, Tensor]

    @classmethod
    def of(cls, hamiltonian: Hamiltonian, X: Tensor) -> _Present:
        """Returns complete rows, (rows, visible_width), with their fields."""
        states, visible = hamiltonian.split(X), hamiltonian.graph.visible
        fields = [hamiltonian.field(l, states, visible) for l in range(len(states))]
        normalisers = {l: hamiltonian.log_partition(l, fields[l]) for l in hamiltonian.graph.hidden}
        return cls(hamiltonian, states, fields, normalisers)

    def find_hidden(self, l: int) -> list[tuple[int, Tensor]]:
        """Returns the hidden layers joined to a visible one, each with the coupling (width_l, width)."""
        hamiltonian = self.hamiltonian
        joints = [joint for joint in hamiltonian.graph.joints[l] if joint.other in self.normalisers]
        return [
            (j.other, hamiltonian.J.matrix(j.edge) if j.above else hamiltonian.J.transposed[j.edge])
            for j in joints
        ]

    def score_all_units(self, l: int) -> Tensor:
        """Returns Σ_i ln p(v_i | others) over the units of a visible layer, (rows,)."""
        hamiltonian, layer, rows = self.hamiltonian, self.hamiltonian.layers[l], len(self.states[l])
        if not self.find_hidden(l):
            units = layer.log_conditional(self.states[l], self.fields[l], hamiltonian.thetas[l])
            return units.sum(-1, dtype=torch.float64)
        total = torch.zeros(rows, dtype=torch.float64, device=hamiltonian.device)
        for row, unit in self.list_pairs(l):
            total += self.score_units(l, row, unit).view(rows, -1).sum(-1)
        return total

    def list_pairs(self, l: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields all rows with some units of a layer at a time, as pairs row by row."""
        device, rows = self.hamiltonian.device, len(self.states[l])
        columns = sum(J.shape[1] for _, J in self.find_hidden(l))
        size = max(1, _BLOCK_ELEMENTS // (rows * max(1, columns)))
        row = torch.arange(rows, device=device)
        for block in torch.split(torch.arange(self.hamiltonian.layers[l].n_units, device=device), size):
            yield row.repeat_interleave(len(block)), block.repeat(rows)

    def score_units(self, l: int, row: Tensor, unit: Tensor) -> Tensor:
        """Returns ln p(v_unit | others in its row) for pairs of a row and a visible unit, (pairs,)."""
        _, log_weights = self._weigh_from_present(l, row, unit)
        return log_weights[0] - log_weights.logsumexp(0)

    def weigh_units(self, l: int, row: Tensor, unit: Tensor) -> Tensor:
        """Returns ln of what every state of a unit weighs beside the others in its row, (pairs, states)."""
        digit, log_weights = self._weigh_from_present(l, row, unit)
        state = torch.arange(len(log_weights), device=digit.device).unsqueeze(1)
        return log_weights.gather(0, (state - digit) % len(log_weights)).t()

    def _weigh_from_present(self, l: int, row: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the state that is there, (pairs,), and log-weights from it on, (states, pairs)."""
        hamiltonian, layer = self.hamiltonian, self.hamiltonian.layers[l]
        values = layer.values().to(self.states[l])  # (states, columns)
        states, columns = values.shape
        present = layer.by_unit(self.states[l])[row, unit]  # (pairs, columns)
        digit = (present.unsqueeze(1) == values).all(-1).to(torch.uint8).argmax(1)
        # What every state weighs but for the hidden layers, (pairs, states).
        alone = layer.unit_log_weights(values.repeat(1, layer.n_units), hamiltonian.thetas[l]).t()[unit]
        alone = (alone + layer.by_unit(self.fields[l])[row, unit] @ values.t()).double()
        columns_of_unit = unit.unsqueeze(-1) * columns + torch.arange(columns, device=unit.device)
        hidden = [(h, self.fields[h][row], J[columns_of_unit]) for h, J in self.find_hidden(l)]
        log_weights = []
        for step in range(states):  # the state that is there, then the others
            state = (digit + step) % states
            weight = alone.gather(1, state.unsqueeze(1)).squeeze(1)
            for h, field, J in hidden if step else []:
                moved = field + torch.einsum("pc,pch->ph", values[state] - present, J)
                weight = weight + hamiltonian.log_partition(h, moved) - self.normalisers[h][row]
            log_weights.append(weight)
        return digit, torch.stack(log_weights)
