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

from harmonium import _device, _random
from harmonium.layers import Layer, Moments, Theta
from harmonium.machine import BoltzmannMachine, Graph, Hamiltonian, Statistics
from harmonium.sums.joined_gaussians import JoinedGaussians, JoinedRows, SecondMoments, columns_of
from harmonium.sums.limits import MAX_HIDDEN_STATES
from harmonium.sums.listing import list_states

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
    return graph.with_visible((*graph.visible, *integrated)) if integrated else graph


def _find_joined(graph: Graph) -> set[int]:
    """Returns the visible layers with an edge to a visible layer, or to themselves."""
    return {l for edge in graph.edges for l in edge if set(edge) <= set(graph.visible)}


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
    graph, joined = hamiltonian.graph, sorted(_find_joined(hamiltonian.graph))
    if not all(hamiltonian.layers[l].gaussian for l in joined):
        raise ValueError(f"machine: expected edges among Gaussian layers alone, received them for {joined}")
    states = [hidden] * len(hamiltonian.layers)
    for l, columns in columns_of(hamiltonian, graph.hidden).items():
        states[l] = hidden[:, columns]
    for l in graph.visible:
        if l not in joined:
            states[l] = hamiltonian.mean(l, hamiltonian.field(l, states, graph.hidden))
    if joined:
        together = JoinedGaussians(hamiltonian, joined, hidden, {})
        means = (together.field @ together.covariance).to(hidden)
        for l, columns in together.columns.items():
            states[l] = means[:, columns]
    return hamiltonian.visible_states(states)


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
        machine: the machine.
        hamiltonian: the machine with hidden Gaussian layers among the visible ones, and joined layers last.
        states: States of the other hidden layers side by side, (states, columns).
        hidden_columns: Columns of each layer there.
        state_log_weights: c·h of every state, (states,) float64.
        columns: Columns of each visible layer of independent units, side by side.
        first_columns: The first column of each of their units: all, or (units,).
        field: Their fields beside every state, (states, columns).
        joined: Gaussian layers that edges join, or with roots, behind these; None: there are none.

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
        graph = _with_integrated(graph, layers)
        joined = sorted(_find_joined(graph) | roots.keys())
        independent = [l for l in graph.visible if l not in joined]
        graph = graph.with_visible((*independent, *joined))
        self.machine, self.hamiltonian = hamiltonian, replace(hamiltonian, graph=graph)
        hamiltonian = self.hamiltonian
        states = list_states(hamiltonian, graph.hidden)
        self.states = torch.cat([states[m] for m in graph.hidden], 1) if graph.hidden else states[0]
        self.hidden_columns = columns_of(hamiltonian, graph.hidden)
        self.state_log_weights = hamiltonian.beta_times(hamiltonian.coupling_energy(states, graph.hidden))
        for m in graph.hidden:
            self.state_log_weights = self.state_log_weights + hamiltonian.log_weight(m, states[m]).double()
        self.joined = JoinedGaussians(hamiltonian, joined, self.states, roots) if joined else None
        self.columns = columns_of(hamiltonian, independent)
        fields = [hamiltonian.field(l, states, graph.hidden) for l in independent]
        self.field = torch.cat([self.states[:, :0], *fields], 1)
        self.first_columns: slice | Tensor = slice(None)
        if any(layers[l].columns_per_unit > 1 for l in independent):
            units = [
                torch.arange(x.start, x.stop, layers[l].columns_per_unit) for l, x in self.columns.items()
            ]
            self.first_columns = torch.cat(units).to(hamiltonian.device)

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
        return self.posterior(nothing_seen(self.machine))

    # Of independent units beside every state
    # ------------------------------------------------------------------------------------------------------

    def units(self) -> Iterator[tuple[Layer, Theta, Tensor]]:
        """Yields the independent layers with their natural parameters and fields, (states, width_l)."""
        for l, columns in self.columns.items():
            yield self.hamiltonian.layers[l], self.hamiltonian.thetas[l], self.field[:, columns]

    @cached_property
    def log_partitions(self) -> Tensor:
        """ψ of every unit, (states, units)."""
        by_layer = [layer.log_partition(B, theta=theta) for layer, theta, B in self.units()]
        return torch.cat([self.field[:, :0], *by_layer], 1)

    @cached_property
    def moments(self) -> Moments:
        """Mean and variance of every column, each (states, columns)."""
        by_layer = [layer.moments(B, theta=theta) for layer, theta, B in self.units()]
        no_columns = Moments(self.field[:, :0], self.field[:, :0])  # where all layers are joined
        return Moments(*(torch.cat(parts, 1) for parts in zip(no_columns, *by_layer, strict=True)))

    @cached_property
    def statistics(self) -> dict[int, Theta]:
        """E[t(x)] of every independent layer, each (states, width_l)."""
        by_layer = (layer.expected_statistics(B, theta=theta) for layer, theta, B in self.units())
        return dict(zip(self.columns, by_layer, strict=True))

    # The questions
    # ------------------------------------------------------------------------------------------------------

    def _sort(self, v: Tensor) -> Tensor:
        """Returns rows with joined columns last, those of hidden Gaussian layers, NaN, among them."""
        if self.hamiltonian.graph.visible == self.machine.graph.visible:
            return v
        states = self.machine.split(v)
        for l in self.hamiltonian.graph.visible:
            if l in self.machine.graph.hidden:
                states[l] = v.new_full((len(v), self.machine.layers[l].width), torch.nan)
        return self.hamiltonian.visible_states(states)

    def sort_back(self, x: Tensor) -> Tensor:
        """Returns the columns of rows, (..., visible_width), in the machine's order."""
        if self.hamiltonian.graph.visible == self.machine.graph.visible:
            return x
        return self.machine.visible_states(self.hamiltonian.split(x))

    def posterior(self, v: Tensor) -> Posterior:
        """Returns the distribution of hidden states and of what rows, (rows, visible_width), lack (NaN)."""
        return Posterior(self, self._sort(v))

    def blocks(self, v: Tensor) -> Iterator[tuple[slice, Posterior]]:
        """Yields some rows at a time, as a slice, with their posterior; see ``BLOCK_BYTES``."""
        v = self._sort(v)
        row_bytes = 4 * self.hamiltonian.dtype.itemsize * (len(self.states) + self.field.shape[1])
        if self.joined is not None:
            row_bytes += self.joined.row_bytes(v[:, self.field.shape[1] :].isnan())
        size = max(1, BLOCK_BYTES // row_bytes)
        for start in range(0, len(v), size):
            rows = slice(start, min(start + size, len(v)))
            yield rows, Posterior(self, v[rows])

    @torch.no_grad()
    def log_weights(self, v: Tensor) -> Tensor:
        """Returns ln Σ exp(-E) over all that each row does not show, (rows,) float64."""
        total = torch.empty(len(v), dtype=torch.float64, device=v.device)
        for rows, posterior in self.blocks(v):
            total[rows] = posterior.log_weights
        return total

    def log_likelihood(self, v: Tensor) -> Tensor:
        """Returns ln p of what each row shows, (rows,) float64."""
        return self.log_weights(v) - self.log_partition

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
        for rows, posterior in self.blocks(nothing_seen(self.machine) if v is None else v):
            row_weights = weight[rows] if isinstance(weight, Tensor) else weight
            posterior.expect(into, row_weights)
            total += (row_weights * posterior.log_weights).sum()
        return total


@final
class Posterior:
    """The distribution of hidden states and missing entries given what rows show.

    Args:
        table: the hidden states.
        v: rows as ``HiddenStates`` sorts them, (rows, columns), NaN where missing.
    """

    @torch.no_grad()
    def __init__(self, table: HiddenStates, v: Tensor) -> None:
        self._table, self._looks = table, not _device.is_async(v.device)
        x, joined = v.to(table.hamiltonian.dtype).tensor_split([table.field.shape[1]], 1)
        missing = x.isnan()
        self._missing = None if self._looks and not bool(missing.any()) else missing
        self._blank = self._looks and self._missing is not None and bool(missing.all())
        self._x = x if self._missing is None else x.masked_fill(missing, 0.0)
        self._logits = table.state_log_weights.to(x.dtype).repeat(len(v), 1)
        self._rest = self._add_units() - table.hamiltonian.offset
        self._joined: JoinedRows | None = None
        if table.joined is not None:
            self._joined = JoinedRows(table.joined, joined)
            self._rest += self._joined.add_log_weights(self._logits)

    def _add_units(self) -> Tensor:
        """Adds what the independent units have of the log-weights, to (rows, states).

        Returns:
            The part that does not depend on the hidden state, (rows,) float64.
        """
        table, hamiltonian = self._table, self._table.hamiltonian
        if self._blank:
            self._logits += table.log_partitions.sum(1)
            return self._logits.new_zeros(len(self._x), dtype=torch.float64)
        seen: Tensor | slice = slice(None)
        if self._missing is not None:
            seen = self._find_some(~self._missing)[1]
        self._logits.addmm_(self._x[:, seen], table.field[:, seen].t())
        by_layer = [
            hamiltonian.layers[l].unit_log_weights(self._x[:, columns], hamiltonian.thetas[l])
            for l, columns in table.columns.items()
        ]
        weights = torch.cat([self._x[:, :0], *by_layer], 1)
        if self._missing is not None:
            lacking = self._missing[:, table.first_columns]
            always = lacking.all(0)  # of these one sum serves all rows
            self._logits += table.log_partitions @ always.to(self._x.dtype)
            marks, some = self._find_some(lacking & ~always)
            self._logits.addmm_(marks, table.log_partitions[:, some].t())
            weights = weights.masked_fill(lacking, 0.0)
        return weights.sum(-1, dtype=torch.float64)

    def _find_some(self, missing: Tensor) -> tuple[Tensor, Tensor | slice]:
        """Returns the columns with a mark, as numbers, and their indices; all where these are many."""
        marks = missing.to(self._x.dtype)
        if self._looks:
            some = marks.sum(0).nonzero().flatten()  # a third of the time that any takes
            if 2 * len(some) < missing.shape[1]:
                return marks[:, some], some
        return marks, slice(None)

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
        table = self._table
        hidden = table.machine.graph.hidden
        if hidden == table.hamiltonian.graph.hidden:
            return self.probabilities @ table.states
        means = table.hamiltonian.split(self._moments.mean)
        for l, columns in table.hidden_columns.items():
            means[l] = self.probabilities @ table.states[:, columns]
        return torch.cat([means[l] for l in hidden], 1)

    @torch.no_grad()
    def moments(self) -> Moments:
        """Returns mean and variance of every visible entry, each (rows, visible_width).

        What is seen is its own mean, without variance.
        """
        return Moments(*map(self._table.sort_back, self._moments))

    @cached_property
    def _moments(self) -> Moments:
        """Mean and variance of every entry, those of hidden Gaussian layers among them."""
        table, p, missing = self._table, self.probabilities, self._missing
        mean, variance = self._x, torch.zeros_like(self._x)
        if missing is not None:
            means, variances = table.moments
            middle = means.mean(0)  # about which second moments lose few digits
            off = p @ (means - middle)
            spread = (p @ (variances + (means - middle).square()) - off.square()).clamp(min=0)
            mean, variance = torch.where(missing, middle + off, mean), spread.masked_fill(~missing, 0.0)
        if self._joined is None:
            return Moments(mean, variance)
        joined = self._joined.moments(p)
        pairs = zip((mean, variance), joined, strict=True)
        return Moments(*(torch.cat([x, y.to(x.dtype)], 1) for x, y in pairs))

    @torch.no_grad()
    def unit_probabilities(self, layer: int, unit: int) -> Tensor:
        """Returns p of every state of a discrete visible unit that no row shows, (rows, n_states)."""
        kind, theta = self._table.hamiltonian.layers[layer], self._table.hamiltonian.thetas[layer]
        if not kind.discrete:
            raise ValueError(f"layer: expected discrete units, received {kind}")
        values = kind.values().to(self._x)
        alone = kind.unit_log_weights(values.repeat(1, kind.n_units), theta)[:, unit]
        field = kind.by_unit(self._table.field[:, self._table.columns[layer]])[:, unit]
        return self.probabilities @ (field @ values.t() + alone).softmax(-1)

    @torch.no_grad()
    def second_moments(self, weight: Tensor) -> SecondMoments:
        """Returns sums over rows of weight, (rows,), times E of products, for joined Gaussian layers."""
        assert self._joined is not None
        return self._joined.sum(self.probabilities * weight.to(self._x).unsqueeze(1))

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
            parts.append(self._table.sort_back(self._draw_columns(chosen, generator)))
        return torch.cat(parts)

    def _draw_columns(self, chosen: Tensor, generator: torch.Generator) -> Tensor:
        """Draws what rows lack beside hidden states, (draws, rows) int64: (draws, rows, columns)."""
        table, parts = self._table, []
        for l, columns in table.columns.items():
            x = self._x[:, columns].expand(*chosen.shape, -1)
            lacking = None if self._missing is None else self._missing[:, columns]
            if lacking is not None and not (self._looks and not bool(lacking.any())):
                field = table.field[:, columns][chosen.flatten()]
                drawn = table.hamiltonian.sample(l, field, generator)
                x = torch.where(lacking, drawn.view(x.shape), x)
            parts.append(x)
        if self._joined is not None:
            parts.append(self._joined.draw(chosen, generator).to(self._x.dtype))
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    @torch.no_grad()
    def expect(self, into: Statistics, weight: float | Tensor) -> None:
        """Adds the sum over rows of weight · E[S | what the row shows], with a number or (rows,)."""
        table, hamiltonian, joined = self._table, self._table.hamiltonian, self._table.joined
        row_weights = weight.to(self._x).unsqueeze(1) if isinstance(weight, Tensor) else weight
        weights = self.probabilities * row_weights
        of_states = weights.sum(0)
        thetas, crossed = self._sum_units(weights)
        of_hidden = (table.states * of_states.unsqueeze(1)).t() @ table.states
        for l, columns in table.hidden_columns.items():
            thetas[l] = [of_states @ t for t in hamiltonian.layers[l].statistics(table.states[:, columns])]
        squared = of_hidden  # of no layer
        if joined is not None and self._joined is not None:
            with_phi, squared = (x.to(weights.dtype) for x in self._joined.sum(weights))
            for l, columns in joined.columns.items():
                thetas[l] = [with_phi[columns, 0], -0.5 * squared.diagonal()[columns]]
                crossed[l] = with_phi[columns, 1:]

        def product(l: int, m: int) -> Tensor:
            """Returns the sum of x_l ⊗ x_m."""
            if l in crossed and m in crossed:  # layers that edges join
                assert joined is not None
                return squared[joined.columns[l], joined.columns[m]]
            if m in crossed:
                return product(m, l).t()
            above = table.hidden_columns[m]
            return crossed[l][:, above] if l in crossed else of_hidden[table.hidden_columns[l], above]

        products = [product(l, m) / 2 if l == m else product(l, m) for l, m in hamiltonian.graph.edges]
        into.add_sums([thetas[l] for l in range(len(thetas))], products)

    def _sum_units(self, weights: Tensor) -> tuple[dict[int, list[Tensor]], dict[int, Tensor]]:
        """Sums over rows and hidden states, with weights (rows, states), for every independent layer.

        Returns:
            Sums of E[t(x)], each (width_l,), and of x ⊗ hidden, (width_l, hidden columns).
        """
        table, missing, row_weights = self._table, self._missing, weights.sum(1)
        if self._blank:
            of_states = weights.sum(0)
            thetas = {l: [of_states @ x for x in t] for l, t in table.statistics.items()}
            products = (table.moments.mean.t() * of_states) @ table.states
            return thetas, {l: products[columns] for l, columns in table.columns.items()}
        by_state = self._x.t() @ weights  # (columns, states): five times as fast as its transpose
        if missing is not None:
            marks, some = self._find_some(missing)
            lacking = marks.t() @ weights
            if isinstance(some, Tensor):
                lacking = torch.zeros_like(by_state).index_copy_(0, some, lacking)
            by_state.addcmul_(lacking, table.moments.mean.t())
        thetas = {}
        for l, columns in table.columns.items():
            thetas[l] = [by_state[columns].sum(1)]  # t_0 is x itself
            seen = table.hamiltonian.layers[l].statistics(self._x[:, columns])
            for t, expected in zip(seen[1:], table.statistics[l][1:], strict=True):
                if missing is None:
                    thetas[l].append(row_weights @ t)
                else:
                    of_missing = (lacking[columns] * expected.t()).sum(1)
                    thetas[l].append(row_weights @ t.masked_fill(missing[:, columns], 0.0) + of_missing)
        products = by_state @ table.states
        return thetas, {l: products[columns] for l, columns in table.columns.items()}
