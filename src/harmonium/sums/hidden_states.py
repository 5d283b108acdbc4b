"""Exact answers by a sum over the hidden states, beside which visible units have a closed form."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from math import log2
from typing import final

import torch
from torch import Tensor

from harmonium import _random
from harmonium.layers import Layer, Moments
from harmonium.machine import BoltzmannMachine, Graph, Hamiltonian, Statistics
from harmonium.sums.given_hidden import (
    IndependentUnits,
    JoinedGaussians,
    JoinedRows,
    joined_layers,
    places,
)
from harmonium.sums.limits import MAX_HIDDEN_STATES

MAX_JOINED_COLUMNS = 32
"""Hidden columns at most beside joined Gaussian layers: their squares, kept for every state, take 35 MB."""
BLOCK_BYTES = 1 << 24
"""Bytes of the arrays of rows by hidden states: 16 MiB, about a cache; further rows come in another block."""

_DRAWN_ROWS = 8192  # at a time: 64 MB of columns, of 1,000


def has_hidden_states(graph: Graph, layers: Sequence[Layer], roots: Collection[int] = ()) -> bool:
    """Returns whether ``HiddenStates`` takes a machine, with roots of these layers; decided only here."""
    graph = _with_integrated(graph, layers)
    hidden = [layers[l] for l in graph.hidden]
    if not sum(layer.log2_states for layer in hidden) <= log2(MAX_HIDDEN_STATES):
        return False
    joined = _find_joined(graph).union(roots)
    return all(l in graph.visible and layers[l].gaussian for l in joined) and (
        not joined or sum(layer.width for layer in hidden) <= MAX_JOINED_COLUMNS
    )


def _with_integrated(graph: Graph, layers: Sequence[Layer]) -> Graph:
    """Returns the graph with hidden Gaussian layers as visible ones, which rows never show."""
    integrated = [l for l in graph.hidden if layers[l].gaussian]
    return graph.with_visible(integrated) if integrated else graph


def exact_hamiltonian(machine: BoltzmannMachine, *, forbidden: bool = False) -> Hamiltonian:
    """Returns the distribution of a machine in float64, for answers to its digits, noise included.

    Args:
        machine: Machine that stays as it is.
        forbidden: see ``BoltzmannMachine.hamiltonian``.
    """
    graph = machine.hamiltonian(forbidden=forbidden).graph  # refuses a type that is for storage alone
    return deepcopy(machine, {id(graph): graph}).double().hamiltonian(forbidden=forbidden)


def nothing_seen(hamiltonian: Hamiltonian, rows: int = 1) -> Tensor:
    """Returns rows that show nothing, (rows, visible_width)."""
    return hamiltonian.thetas[0][0].detach().new_full((rows, hamiltonian.visible_width), torch.nan)


@torch.no_grad()
def visible_means_given(hamiltonian: Hamiltonian, hidden: Tensor) -> Tensor:
    """Returns E of the visible layers given values of the hidden ones, (rows, visible_width).

    Args:
        hamiltonian: visible layers that no edge joins, or Gaussian ones that edges join.
        hidden: states or means of the hidden layers side by side, (rows, columns).

    Raises:
        ValueError: edges that join other visible layers.
    """
    joined = sorted(_find_joined(hamiltonian.graph))
    if not all(hamiltonian.layers[l].gaussian for l in joined):
        raise ValueError(f"machine: expected edges among Gaussian layers alone, received them for {joined}")
    states = [hidden] * len(hamiltonian.layers)
    for l, place in zip(hamiltonian.graph.hidden, places(hamiltonian, hamiltonian.graph.hidden), strict=True):
        states[l] = hidden[:, place]
    for part in _list_parts(hamiltonian, hidden, states, {}):
        for l, place in part.places.items():
            states[l] = part.means[:, place].to(hidden)
    return hamiltonian.visible_states(states)


def _list_parts(
    hamiltonian: Hamiltonian, hidden: Tensor, states: Sequence[Tensor], roots: Mapping[int, Tensor]
) -> list[IndependentUnits | JoinedGaussians]:
    """Returns the visible layers in groups that are independent beside rows of hidden states."""
    joined = _find_joined(hamiltonian.graph) | roots.keys()
    return [
        JoinedGaussians(hamiltonian, group, hidden, roots)
        if joined.issuperset(group)
        else IndependentUnits(hamiltonian, group[0], hidden, states)
        for group in joined_layers(hamiltonian.graph)
    ]


def _find_joined(graph: Graph) -> set[int]:
    """Returns the visible layers with an edge to a visible layer, or to themselves."""
    return {l for edge in graph.edges for l in edge if set(edge) <= set(graph.visible)}


@final
class HiddenStates:
    """All joint states of the hidden layers with the log of their weights.

    Given the hidden layers the visible units are independent, or Gaussian layers that edges join are one
    multivariate Gaussian. Hidden Gaussian layers count as visible ones that no row shows. So ln p of what a
    row shows is ln Σ_h exp[c·h + Σ_seen (terms) + Σ_missing ψ(B)] less the same for a row that shows nothing,
    whatever is missing. What the row lacks is a mixture with a component for every h.

    Args:
        hamiltonian: the machine: discrete hidden layers with at most ``MAX_HIDDEN_STATES`` joint states, and
            visible layers of any kind that no edge joins, or Gaussian ones that edges join, to hidden
            Gaussian layers too. Answers have its dtype.
        roots: Matrices R for visible Gaussian layers, (width_l, width_l), where rows have columns x = R u and
            the machine is one of u. With a root of the covariance it is of columns without correlations, so
            that those of x need not be learned. None: x = u throughout.

    Attributes:
        hamiltonian: the machine, with hidden Gaussian layers behind the visible ones.
        states: States of the other hidden layers side by side, (states, columns).
        state_log_weights: c·h of every state, (states,) float64.
        hidden: hidden layers of the machine, Gaussian ones among them.
        width: Columns of a row.

    Raises:
        ValueError: another machine, or joined Gaussian layers without a distribution.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Gaussian(3), hm.Bernoulli(4)], seed=0)
        >>> table = hm.likelihood.HiddenStates.of(machine)
        >>> row = torch.tensor([[0.5, torch.nan, -1.0]], dtype=torch.float64)
        >>> bool(table.log_likelihood(row).exp() < 1), table.posterior(row).moments().mean.shape
        (True, torch.Size([1, 3]))
    """

    @torch.no_grad()
    def __init__(self, hamiltonian: Hamiltonian, roots: Mapping[int, Tensor] | None = None) -> None:
        graph, layers = hamiltonian.graph, hamiltonian.layers
        by_row = not isinstance(hamiltonian.beta, float) and hamiltonian.beta.dim() > 0
        roots = {} if roots is None else roots
        if by_row or not has_hidden_states(graph, layers, roots):
            raise ValueError(
                f"machine: expected discrete hidden layers with at most {MAX_HIDDEN_STATES} joint states, "
                "such as 12 Bernoulli units, beside visible layers that no edge joins, or Gaussian ones; "
                f"received {', '.join(map(str, layers))} with edges {list(graph.edges)}"
                + (" and β by row" if by_row else "")
                + "; a method that draws, such as gibbs, takes any machine"
            )
        self.hidden, self.width = graph.hidden, hamiltonian.visible_width
        graph = _with_integrated(graph, layers)
        self.hamiltonian = hamiltonian = replace(hamiltonian, graph=graph)
        states = list_states(hamiltonian, graph.hidden)
        self.states = torch.cat([states[m] for m in graph.hidden], 1) if graph.hidden else states[0]
        self.state_log_weights = hamiltonian.beta_times(hamiltonian.coupling_energy(states, graph.hidden))
        for m in graph.hidden:
            self.state_log_weights = self.state_log_weights + hamiltonian.log_weight(m, states[m]).double()
        self.parts = _list_parts(hamiltonian, self.states, states, roots)

    @classmethod
    def of(cls, machine: BoltzmannMachine) -> HiddenStates:
        """Returns the hidden states of a machine in float64, for answers to its digits, noise included."""
        return cls(exact_hamiltonian(machine))

    @cached_property
    def log_partition(self) -> float:
        """ln Z."""
        return float(self._nothing.log_weights)

    @cached_property
    def _nothing(self) -> Posterior:
        """The distribution of a row that shows nothing."""
        return self.posterior(self.nothing_seen(1))

    def nothing_seen(self, rows: int) -> Tensor:
        """Returns rows that show nothing, (rows, visible_width)."""
        return self.state_log_weights.new_full((rows, self.width), torch.nan, dtype=self.hamiltonian.dtype)

    def posterior(self, v: Tensor) -> Posterior:
        """Returns the distribution of hidden states and of what rows, (rows, visible_width), lack (NaN)."""
        unseen = self.hamiltonian.visible_width - self.width  # columns of hidden Gaussian layers
        return Posterior(self, torch.nn.functional.pad(v, (0, unseen), value=torch.nan) if unseen else v)

    def blocks(self, v: Tensor) -> Iterator[tuple[slice, Posterior]]:
        """Yields the posterior of some rows at a time, with their place; see ``BLOCK_BYTES``."""
        unseen = self.hamiltonian.visible_width - self.width
        lacking = self.hamiltonian.split(torch.nn.functional.pad(v.isnan(), (0, unseen), value=True))
        row_bytes = 4 * self.hamiltonian.dtype.itemsize * len(self.states) + sum(
            part.row_bytes(torch.cat([lacking[l] for l in part.places], 1)) for part in self.parts
        )
        size = max(1, BLOCK_BYTES // row_bytes)
        for start in range(0, len(v), size):
            place = slice(start, min(start + size, len(v)))
            yield place, self.posterior(v[place])

    @torch.no_grad()
    def log_weights(self, v: Tensor) -> Tensor:
        """Returns ln Σ exp(-E) over all that each row does not show, (rows,) float64."""
        total = torch.empty(len(v), dtype=torch.float64, device=v.device)
        for place, posterior in self.blocks(v):
            total[place] = posterior.log_weights
        return total

    def log_likelihood(self, v: Tensor) -> Tensor:
        """Returns ln p of what each row shows, (rows,) float64."""
        return self.log_weights(v) - self.log_partition

    @torch.no_grad()
    def log_density(self, column: int, x: Tensor) -> Tensor:
        """Returns ln p of values of one visible column of real units, alone, (values,) float64.

        They are those of ``log_likelihood`` of rows that show nothing else, found without these rows.

        Args:
            column: visible column.
            x: values, (values,).
        """
        hamiltonian, first = self.hamiltonian, 0
        for l in hamiltonian.graph.visible:
            if column < first + hamiltonian.layers[l].width:
                break
            first += hamiltonian.layers[l].width
        part = next(part for part in self.parts if l in part.places)
        beside = part.log_density(part.places[l].start + column - first, x.to(hamiltonian.dtype)).double()
        return (beside + self._nothing.probabilities[0].double().log()).logsumexp(1)

    @torch.no_grad()
    def expect(self, into: Statistics, weight: float | Tensor, v: Tensor | None = None) -> Tensor:
        """Adds weight · E[S], or with v the sum over its rows of weight · E[S | what the row shows].

        Args:
            into: where to add.
            weight: Weight of every row, a number or (rows,).
            v: (rows, visible_width), NaN where missing; None: one row that shows nothing.

        Returns:
            The sum over rows of weight · ln Σ exp(-E), whose derivative is what was added, () float64.
        """
        total = self.state_log_weights.new_zeros(())
        for place, posterior in self.blocks(self.nothing_seen(1) if v is None else v):
            row_weights = weight[place] if isinstance(weight, Tensor) else weight
            posterior.add_statistics(into, row_weights)
            total += (row_weights * posterior.log_weights).sum()
        return total

    @torch.no_grad()
    def draw(self, v: Tensor, generator: torch.Generator, draws: int = 1) -> Tensor:
        """Draws what rows lack from its exact distribution: a hidden state first, then the columns given it.

        Args:
            v: (rows, visible_width), NaN where missing; ``nothing_seen(rows)`` for draws of whole rows.
            generator: source of noise.
            draws: Independent draws of every row.

        Returns:
            (draws, rows, visible_width).
        """
        drawn = v.new_empty(draws, *v.shape)
        for place, posterior in self.blocks(v):
            drawn[:, place] = posterior.draw(generator, draws)
        return drawn


@final
class Posterior:
    """The distribution of hidden states and missing entries given what rows show.

    Args:
        table: the hidden states.
        v: (rows, visible_width), NaN where missing.
    """

    @torch.no_grad()
    def __init__(self, table: HiddenStates, v: Tensor) -> None:
        self._table, hamiltonian = table, table.hamiltonian
        split = hamiltonian.split(v.to(hamiltonian.dtype))
        self._parts = [part.rows(torch.cat([split[l] for l in part.places], 1)) for part in table.parts]
        self._logits = table.state_log_weights.to(hamiltonian.dtype).repeat(len(v), 1)
        self._rest = table.state_log_weights.new_full((len(v),), -float(hamiltonian.offset))
        for part in self._parts:
            self._rest += part.add_log_weights(self._logits)

    @cached_property
    def log_weights(self) -> Tensor:
        """ln Σ exp(-E) over all that each row does not show, (rows,) float64."""
        if "probabilities" in vars(self):  # that of the likeliest state spares another pass of exp
            total = self._logits.amax(1).double() - self.probabilities.amax(1).double().log()
        else:
            total = self._logits.logsumexp(1).double()
        return total + self._rest

    @cached_property
    def probabilities(self) -> Tensor:
        """p of every joint hidden state given what the row shows, (rows, states)."""
        return self._logits.softmax(1)

    @torch.no_grad()
    def hidden_means(self) -> Tensor:
        """Returns E of the hidden layers, side by side, (rows, columns)."""
        table, listed = self._table, self.probabilities @ self._table.states
        hamiltonian = table.hamiltonian
        if hamiltonian.graph.hidden == table.hidden:
            return listed
        above = zip(hamiltonian.graph.hidden, places(hamiltonian, hamiltonian.graph.hidden), strict=True)
        means = {l: listed[:, place] for l, place in above}
        for part, rows in zip(table.parts, self._parts, strict=True):
            joined = rows.moments(self.probabilities).mean
            means |= {l: joined[:, place].to(listed) for l, place in part.places.items()}
        return torch.cat([means[l] for l in table.hidden], 1)

    @torch.no_grad()
    def moments(self) -> Moments:
        """Returns mean and variance of every visible entry, each (rows, visible_width).

        What is seen is its own mean, without variance.
        """
        parts = [part.moments(self.probabilities) for part in self._parts]
        return Moments(self._join([x.mean for x in parts]), self._join([x.variance for x in parts]))

    @torch.no_grad()
    def unit_probabilities(self, layer: int, unit: int) -> Tensor:
        """Returns p of every state of a discrete visible unit that no row shows, (rows, n_states)."""
        (part,) = [part for part in self._table.parts if layer in part.places]
        if not isinstance(part, IndependentUnits) or not part.layer.discrete:
            raise ValueError(
                f"layer: expected discrete units, received {self._table.hamiltonian.layers[layer]}"
            )
        return self.probabilities @ part.probabilities(unit)

    @torch.no_grad()
    def sum_squares(self, layer: int, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns sums over rows of weight times E of products, for a Gaussian layer that edges join.

        Args:
            layer: joined to no layer but itself.
            weight: (rows,).

        Returns:
            Sums of φ ⊗ φ, x ⊗ φ and x ⊗ x, float64, with φ the hidden columns behind a 1, and states x.
        """
        part = next(
            part for part in self._parts if isinstance(part, JoinedRows) and [*part.places] == [layer]
        )
        p = self.probabilities * weight.to(self.probabilities).unsqueeze(1)
        sums, of_states = part.sum(p), p.double().sum(0).unsqueeze(1)
        phi = torch.cat([torch.ones_like(of_states), self._table.states.double()], 1)
        assert sums.squared is not None
        crossed = torch.cat([sums.statistics[layer][0].unsqueeze(1), sums.crossed], 1)
        return (phi * of_states).t() @ phi, crossed, sums.squared

    @torch.no_grad()
    def draw(self, generator: torch.Generator, draws: int = 1) -> Tensor:
        """Draws what the rows lack: a hidden state of each, then the columns given it.

        Returns:
            (draws, rows, visible_width), independent of each other.
        """
        cumulative, parts = self.probabilities.double().cumsum(1), []
        total = cumulative[:, -1:]
        for some in torch.split(torch.arange(draws, device="cpu"), max(1, _DRAWN_ROWS // len(total))):
            noise = _random.uniform((len(total), len(some)), generator, torch.float64)
            chosen = torch.searchsorted(cumulative, noise * total, right=True).t()
            parts.append(self._join([part.draw(chosen, generator) for part in self._parts]))
        return torch.cat(parts)

    @torch.no_grad()
    def add_statistics(self, into: Statistics, weight: float | Tensor) -> None:
        """Adds the sum over rows of weight · E[S | what the row shows], with a number or (rows,)."""
        table, graph = self._table, self._table.hamiltonian.graph
        row_weights = weight.to(self.probabilities).unsqueeze(1) if isinstance(weight, Tensor) else weight
        weights = self.probabilities * row_weights
        sums = [part.sum(weights) for part in self._parts]
        sums_of = {
            l: (part_sums, place)
            for part, part_sums in zip(table.parts, sums, strict=True)
            for l, place in part.places.items()
        }
        above = dict(zip(graph.hidden, places(table.hamiltonian, graph.hidden), strict=True))
        of_states = weights.sum(0)
        of_hidden = (table.states * of_states.unsqueeze(1)).t() @ table.states
        thetas = []
        for l, layer in enumerate(table.hamiltonian.layers):
            if l in sums_of:
                thetas.append([t.to(weights.dtype) for t in sums_of[l][0].statistics[l]])
            else:
                thetas.append([of_states @ t for t in layer.statistics(table.states[:, above[l]])])
        products = []
        for l, m in graph.edges:
            if l in above and m in above:
                product = of_hidden[above[l], above[m]]
            elif l in above:
                product = sums_of[m][0].crossed[sums_of[m][1], above[l]].t()
            elif m in above:
                product = sums_of[l][0].crossed[sums_of[l][1], above[m]]
            else:
                squared = sums_of[l][0].squared
                assert squared is not None
                product = squared[sums_of[l][1], sums_of[m][1]]
            products.append((product / 2 if l == m else product).to(weights.dtype))
        into.add_sums(thetas, products)

    def _join(self, parts: Sequence[Tensor]) -> Tensor:
        """Joins what was found for the parts, (..., width) each, to rows, (..., visible_width)."""
        table = self._table
        states = [table.states] * len(table.hamiltonian.layers)
        for part, x in zip(table.parts, parts, strict=True):
            for l, place in part.places.items():
                states[l] = x[..., place].to(table.hamiltonian.dtype)
        return table.hamiltonian.visible_states(states)[..., : table.width]


def list_states(hamiltonian: Hamiltonian, among: Sequence[int]) -> list[Tensor]:
    """Returns all joint states of some layers, for each (states, width_l); of the others (states, 0)."""
    layers = hamiltonian.layers
    units = [layers[l].n_units for l in among]
    radices = [layers[l].n_states or 0 for l, count in zip(among, units, strict=True) for _ in range(count)]
    digits = torch.zeros(1, 0, dtype=torch.int64, device=hamiltonian.device)
    if radices:
        unit_states = [torch.arange(radix, device=hamiltonian.device) for radix in radices]
        digits = torch.cartesian_prod(*unit_states).view(-1, len(unit_states))
    states = [torch.empty(len(digits), 0, dtype=hamiltonian.dtype, device=hamiltonian.device)] * len(layers)
    for l, layer_digits in zip(among, torch.split(digits, units, 1), strict=True):
        states[l] = layers[l].from_digits(layer_digits).to(hamiltonian.dtype)
    return states
