"""Visible layers given the hidden states: units that are independent, and Gaussian layers that edges join.

Both give, for every row and every hidden state, ln of the weight of what the row shows with what it lacks
summed out, and the moments and draws of what it lacks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from math import log, pi
from typing import NamedTuple, final

import torch
from torch import Tensor

from harmonium import _device, _random
from harmonium.layers import Layer, Moments, Theta
from harmonium.machine import Graph, Hamiltonian, joint_precision, require_distribution

_BITS = 52  # of a whole number that float64 holds


class Sums(NamedTuple):
    """Weighted sums over rows and hidden states, for some layers side by side.

    Attributes:
        statistics: Sums of t(x) by layer, in the order of ``Layer.natural``, each (width_l,).
        crossed: Sum of x ⊗ hidden, (width, hidden columns).
        squared: Sum of x ⊗ x, (width, width); None where no edge joins the layers.
    """

    statistics: dict[int, Theta]
    crossed: Tensor
    squared: Tensor | None


class GivenRows(ABC):
    """Rows of visible layers beside all hidden states, NaN where not observed."""

    @abstractmethod
    def add_log_weights(self, into: Tensor) -> Tensor:
        """Adds the part of the log-weights that depends on the hidden state, to (rows, states).

        Returns:
            The rest, which does not, (rows,) float64.
        """

    @abstractmethod
    def sum(self, weights: Tensor) -> Sums:
        """Sums expected statistics over rows and hidden states, with weights (rows, states)."""

    @abstractmethod
    def moments(self, p: Tensor) -> Moments:
        """Returns mean and variance of every entry, each (rows, width), under p, (rows, states).

        What is seen is its own mean, without variance.
        """

    @abstractmethod
    def draw(self, chosen: Tensor, generator: torch.Generator) -> Tensor:
        """Draws what is not observed given hidden states, (draws, rows) int64: (draws, rows, width)."""


@final
class IndependentUnits:
    """A layer whose units are independent given the hidden states: ψ of their fields sums them out.

    Args:
        hamiltonian: the machine.
        l: the layer.
        hidden: states of the hidden layers, (states, columns) in all.
        states: the same by layer; entries of visible layers are not read.

    Attributes:
        places: Columns of the layers in rows.
    """

    def __init__(self, hamiltonian: Hamiltonian, l: int, hidden: Tensor, states: Sequence[Tensor]) -> None:
        self.hamiltonian, self.l, self.hidden = hamiltonian, l, hidden
        self.places = {l: slice(0, hamiltonian.layers[l].width)}
        self.layer: Layer = hamiltonian.layers[l]
        self.theta: Theta = hamiltonian.thetas[l]
        self.field = hamiltonian.field(l, states, hamiltonian.graph.hidden)

    @property
    def means(self) -> Tensor:
        """E of the layer beside every hidden state, (states, width)."""
        return self.moments.mean

    @cached_property
    def log_partition(self) -> Tensor:
        """ψ of every unit beside every hidden state, (states, n_units)."""
        return self.layer.log_partition(self.field, theta=self.theta)

    @cached_property
    def moments(self) -> Moments:
        """Mean and variance beside every hidden state, each (states, width)."""
        return self.layer.moments(self.field, theta=self.theta)

    @cached_property
    def statistics(self) -> Theta:
        """E[t(x)] beside every hidden state, each (states, width)."""
        return self.layer.expected_statistics(self.field, theta=self.theta)

    def probabilities(self, unit: int) -> Tensor:
        """Returns p of every state of a discrete unit beside every hidden state, (states, n_states)."""
        values = self.layer.values().to(self.field)
        states = [value.repeat(self.layer.n_units).expand_as(self.field) for value in values]
        logs = [self.layer.log_conditional(x, self.field, self.theta)[:, unit] for x in states]
        return torch.stack(logs, -1).softmax(-1)

    def log_density(self, column: int, x: Tensor) -> Tensor:
        """Returns ln of the density of a real unit at values, (values,), beside every hidden state.

        Returns:
            (values, states).
        """
        field, theta = self.field[:, column : column + 1], tuple(t[column : column + 1] for t in self.theta)
        return self.layer.log_conditional(x.view(-1, 1, 1), field, theta)[..., 0]

    def row_bytes(self, lacking: Tensor) -> int:
        """Returns the bytes that a block takes for each row, beside those for its hidden states.

        Args:
            lacking: Marks the entries that rows lack, (rows, width).
        """
        return 4 * self.hidden.element_size() * lacking.shape[1]

    def rows(self, x: Tensor) -> GivenRows:
        """Returns rows, (rows, width), beside the hidden states."""
        return _IndependentRows(self, x)


@final
class _IndependentRows(GivenRows):
    def __init__(self, table: IndependentUnits, x: Tensor) -> None:
        missing, looks = x.isnan(), not _device.is_async(x.device)
        self._table = table
        self._missing = None if looks and not bool(missing.any()) else missing
        self._blank = looks and self._missing is not None and bool(missing.all())
        self._x = x if self._missing is None else x.masked_fill(missing, 0.0)

    def add_log_weights(self, into: Tensor) -> Tensor:
        table = self._table
        if self._blank:
            into += table.log_partition.sum(1)
            return into.new_zeros(len(into), dtype=torch.float64)
        into.addmm_(self._x, table.field.t())
        weights = table.layer.unit_log_weights(self._x, table.theta)
        if self._missing is not None:
            units = table.layer.by_unit(self._missing)[..., 0]
            into.addmm_(units.to(into.dtype), table.log_partition.t())
            weights = weights.masked_fill(units, 0.0)
        return weights.sum(-1, dtype=torch.float64)

    def sum(self, weights: Tensor) -> Sums:
        if self._blank:
            of_states, expected = weights.sum(0), self._table.statistics
            crossed = (expected[0] * of_states.unsqueeze(1)).t() @ self._table.hidden  # t_0 is x itself
            return Sums({self._table.l: tuple(of_states @ t for t in expected)}, crossed, None)
        table, row_weights = self._table, weights.sum(1)
        by_state = self._x.t() @ weights  # (width, states): five times as fast as its transpose
        seen = table.layer.statistics(self._x)
        if self._missing is None:
            return Sums({table.l: tuple(row_weights @ t for t in seen)}, by_state @ table.hidden, None)
        lacking = self._missing.t().to(weights.dtype) @ weights
        by_state += lacking * table.statistics[0].t()
        statistics = tuple(
            row_weights @ t.masked_fill(self._missing, 0.0) + (lacking * expected.t()).sum(1)
            for t, expected in zip(seen, table.statistics, strict=True)
        )
        return Sums({table.l: statistics}, by_state @ table.hidden, None)

    def moments(self, p: Tensor) -> Moments:
        if self._missing is None:
            return Moments(self._x, torch.zeros_like(self._x))
        mean, variance = self._table.moments
        middle = mean.mean(0)  # about which second moments lose few digits
        off = p @ (mean - middle)
        spread = (p @ (variance + (mean - middle).square()) - off.square()).clamp(min=0)
        seen = ~self._missing
        return Moments(torch.where(seen, self._x, middle + off), spread.masked_fill(seen, 0.0))

    def draw(self, chosen: Tensor, generator: torch.Generator) -> Tensor:
        table, shape = self._table, (*chosen.shape, self._x.shape[1])
        if self._missing is None:
            return self._x.expand(shape)
        drawn = table.hamiltonian.sample(table.l, table.field[chosen.flatten()], generator)
        return torch.where(self._missing, drawn.view(shape), self._x)


@final
class JoinedGaussians:
    """Gaussian layers with edges among them: given the hidden states one multivariate Gaussian.

    With φ = (1, hidden columns) it is N(K⁻¹ Γᵀφ, K⁻¹), K = diag V - βJ. What a row lacks is Gaussian given
    what it shows, and affine in φ, with a covariance that depends on which entries it lacks alone.

    Args:
        hamiltonian: the machine.
        layers: those that edges join, directly or by others.
        hidden: states of the hidden layers, (states, columns) in all.
        roots: see ``HiddenStates``; sums are of the states u, all else is of the columns x.

    Raises:
        ValueError: K is not positive definite, so that there is no such distribution.
    """

    def __init__(
        self, hamiltonian: Hamiltonian, layers: tuple[int, ...], hidden: Tensor, roots: Mapping[int, Tensor]
    ) -> None:
        self.places = dict(zip(layers, places(hamiltonian, layers), strict=True))
        linear = torch.cat([hamiltonian.thetas[l][0] for l in layers]).double()
        _, up = couplings_of_columns(hamiltonian)
        side = dict(
            zip(hamiltonian.graph.visible, places(hamiltonian, hamiltonian.graph.visible), strict=True)
        )
        columns = torch.cat(
            [torch.arange(side[l].start, side[l].stop, device=hamiltonian.device) for l in layers]
        )
        require_distribution(hamiltonian)
        self.precision = joint_precision(hamiltonian, layers)
        self.gamma = torch.cat([linear.unsqueeze(0), up[columns].t().double()])
        self.back: Tensor | None = None
        if not roots.keys().isdisjoint(layers):
            blocks = [roots.get(l, torch.eye(hamiltonian.layers[l].width)).to(linear) for l in layers]
            root = torch.zeros_like(self.precision)
            for place, matrix in zip(self.places.values(), blocks, strict=True):
                root[place, place] = matrix
            self.back = torch.linalg.inv(root)
            self.precision = self.back.t() @ self.precision @ self.back
            self.gamma = self.gamma @ self.back
        self.phi = torch.cat([linear.new_ones(len(hidden), 1), hidden.double()], 1)

    @cached_property
    def field(self) -> Tensor:
        """Γᵀφ of every hidden state, (states, width)."""
        return self.phi @ self.gamma

    @cached_property
    def covariance(self) -> Tensor:
        """Covariance given the hidden states, (width, width)."""
        return torch.cholesky_inverse(torch.linalg.cholesky(self.precision))

    @cached_property
    def means(self) -> Tensor:
        """E of the layers beside every hidden state, (states, width)."""
        return self.field @ self.covariance

    @cached_property
    def squares(self) -> Tensor:
        """φ ⊗ φ of every hidden state, (states, columns²)."""
        return (self.phi.unsqueeze(2) * self.phi.unsqueeze(1)).flatten(1)

    def log_density(self, column: int, x: Tensor) -> Tensor:
        """Returns ln of a column's density beside every hidden state, see ``IndependentUnits``."""
        variance = self.covariance[column, column]
        off = x.double().unsqueeze(1) - self.means[:, column]
        return -0.5 * (off.square() / variance + (2 * pi * variance).log())

    def row_bytes(self, lacking: Tensor) -> int:
        """Returns the bytes that a block takes for each row, see ``IndependentUnits``."""
        most = int(lacking.sum(1).amax()) if len(lacking) else 0
        square, columns = most + self.phi.shape[1], lacking.shape[1]  # a row has matrices of what it lacks
        return 8 * (4 * square**2 + 8 * columns)

    def rows(self, x: Tensor) -> GivenRows:
        """Returns rows, (rows, width), beside the hidden states."""
        return JoinedRows(self, x)


@final
class JoinedRows(GivenRows):
    """Rows as x = seen + response φ + noise of a covariance, these two alike for rows that lack the same."""

    def __init__(self, table: JoinedGaussians, x: Tensor) -> None:
        self.places = table.places
        self._table, K = table, table.precision
        self._lacks = x.isnan()
        patterns, self._which = _find_patterns(self._lacks)
        counts = patterns.sum(1, dtype=torch.float64)
        most = int(counts.max()) if len(counts) else 0
        # Rows lack few entries: of every pattern those alone are gathered, and some others behind them where
        # another pattern lacks more. These stand beside an identity, and all that comes of them is 0.
        self._entries = patterns.to(torch.int8).sort(dim=1, descending=True, stable=True).indices[:, :most]
        lacking = (torch.arange(most, device=K.device) < counts.unsqueeze(1)).double()
        both = lacking.unsqueeze(2) * lacking.unsqueeze(1)
        # Given observed x_o and φ, x_m ~ N(C (Γᵀφ - K x_o), C), C = K_mm⁻¹.
        K_mm = K[self._entries.unsqueeze(2), self._entries.unsqueeze(1)]
        self._root = torch.linalg.cholesky(K_mm * both + torch.diag_embed(1 - lacking))
        self._covariance = torch.cholesky_inverse(self._root) * both
        self._gamma = table.gamma.t()[self._entries]
        self._response = self._covariance @ self._gamma
        observed = x.double().masked_fill(self._lacks, 0.0)
        pull = observed @ K
        self._seen = observed - self._place(self._apply(self._covariance, self._gather(pull)))
        self._energy = 0.5 * (pull * self._seen).sum(1)
        self._width = self._root.diagonal(dim1=1, dim2=2).log().sum(1) - counts * (0.5 * log(2 * pi))

    def _gather(self, rows: Tensor) -> Tensor:
        """Returns what rows, (..., rows, width), have where they lack entries: (..., rows, entries)."""
        index = self._entries[self._which].expand(*rows.shape[:-1], -1)
        return rows.gather(-1, index)

    def _place(self, rows: Tensor) -> Tensor:
        """Returns rows, (..., rows, width), of what stands where they lack entries, 0 elsewhere."""
        index = self._entries[self._which].expand_as(rows)
        return rows.new_zeros(*rows.shape[:-1], self._lacks.shape[1]).scatter_(-1, index, rows)

    def _apply(self, matrices: Tensor, rows: Tensor) -> Tensor:
        """Multiplies every row, (..., rows, n), by the matrix of its pattern, (m, n): (..., rows, m)."""
        if len(matrices) == 1:
            return torch.matmul(rows, matrices[0].t())
        product: Tensor = torch.einsum("rij,...rj->...ri", matrices[self._which], rows)
        return product

    def add_log_weights(self, into: Tensor) -> Tensor:
        # With b = Γᵀφ: ln ∫ exp(b·x - ½ xᵀKx) dx_m = ½ bᵀC b + b·seen - ½ (K x_o)·seen + ½ ln det 2πC, as
        # completing the square leaves it. Two terms depend on φ; the first is alike for a pattern's rows.
        table = self._table
        quadratic = 0.5 * (self._gamma.transpose(1, 2) @ self._response).flatten(1) @ table.squares.t()
        into.addmm_(self._seen.to(into.dtype), table.field.t().to(into.dtype))
        into += quadratic.to(into.dtype)[self._which]
        rest: Tensor = -self._energy - self._width[self._which]
        return rest

    def sum(self, weights: Tensor) -> Sums:
        table, A, C, at = self._table, self._response, self._covariance, self._entries
        weights, width = weights.double(), self._lacks.shape[1]
        # E of x φᵀ and of x xᵀ for x = seen + A φ + noise of covariance C: products of the parts, in which φ
        # enters by its sums of the first and the second order alone.
        first = weights @ table.phi
        row_weights = first[:, 0]
        by_pattern = weights.new_zeros(len(C), weights.shape[1]).index_add_(0, self._which, weights)
        squares = (by_pattern @ table.squares).view(len(C), *[table.phi.shape[1]] * 2)
        answers = A @ squares
        crossed = self._seen.t() @ first
        crossed.index_add_(0, at.flatten(), answers.flatten(0, 1))
        mixed = self._seen.t() @ self._place(self._apply(A, first))
        squared = (self._seen * row_weights.unsqueeze(1)).t() @ self._seen + mixed + mixed.t()
        lacking = answers @ A.transpose(1, 2) + by_pattern.sum(1).view(-1, 1, 1) * C
        pairs = at.unsqueeze(2) * width + at.unsqueeze(1)
        squared.view(-1).index_add_(0, pairs.flatten(), lacking.flatten())
        if table.back is not None:
            crossed, squared = table.back @ crossed, table.back @ squared @ table.back.t()
        halves = -0.5 * squared.diagonal()
        statistics: dict[int, Theta] = {
            l: (crossed[place, 0], halves[place]) for l, place in table.places.items()
        }
        return Sums(statistics, crossed[:, 1:], squared)

    def moments(self, p: Tensor) -> Moments:
        table, p = self._table, p.double()
        first = p @ table.phi
        spread = (p @ table.squares).view(len(p), *[table.phi.shape[1]] * 2)
        spread -= first.unsqueeze(2) * first.unsqueeze(1)
        A = self._response[self._which]
        mean = self._seen + self._place(self._apply(self._response, first))
        variance = ((A @ spread) * A).sum(2) + self._covariance.diagonal(dim1=1, dim2=2)[self._which]
        return Moments(mean, self._place(variance.clamp(min=0)))

    def draw(self, chosen: Tensor, generator: torch.Generator) -> Tensor:
        # K = L Lᵀ: noise of covariance K⁻¹ is L⁻ᵀ times standard noise.
        shape = (*chosen.shape, self._seen.shape[1])
        noise = self._gather(_random.normal(shape, generator, torch.float64))
        one = torch.eye(noise.shape[-1], dtype=torch.float64, device=noise.device)
        spread = torch.linalg.solve_triangular(self._root.transpose(1, 2), one, upper=True)
        answers = self._apply(self._response, self._table.phi[chosen])
        lacking = self._lacks.gather(1, self._entries[self._which])
        return self._seen + self._place(answers + self._apply(spread, noise).masked_fill(~lacking, 0.0))


def places(hamiltonian: Hamiltonian, layers: Sequence[int]) -> list[slice]:
    """Returns the columns of layers that stand side by side, from the first on."""
    ends = list(accumulate((hamiltonian.layers[l].width for l in layers), initial=0))
    return [slice(first, last) for first, last in pairwise(ends)]


def couplings_of_columns(hamiltonian: Hamiltonian) -> tuple[Tensor, Tensor]:
    """Returns βJ among visible columns, symmetric, and from these to hidden columns: (width, columns)."""
    graph, place = hamiltonian.graph, dict[int, slice]()
    for side in (graph.visible, graph.hidden):
        place |= zip(side, places(hamiltonian, side), strict=True)
    among = hamiltonian.thetas[0][0].new_zeros(hamiltonian.visible_width, hamiltonian.visible_width)
    up = among.new_zeros(hamiltonian.visible_width, sum(hamiltonian.layers[m].width for m in graph.hidden))
    for l, m, J in hamiltonian.edges:
        J = hamiltonian.beta_times(J)
        if l in graph.visible and m in graph.visible:
            among[place[l], place[m]] += J
            if l != m:
                among[place[m], place[l]] += J.t()
        elif l in graph.visible:
            up[place[l], place[m]] += J
        elif m in graph.visible:
            up[place[m], place[l]] += J.t()
    return among, up


def _find_patterns(marks: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the different rows of booleans, (rows, columns), and for every row which of them it is."""
    pieces = torch.split(marks.double(), _BITS, 1)  # as whole numbers, sorted far sooner than rows
    codes = torch.stack([piece @ torch.exp2(torch.arange(piece.shape[1]).to(piece)) for piece in pieces], 1)
    if codes.shape[1] == 1:
        distinct, which = torch.unique(codes[:, 0], return_inverse=True)
    else:
        distinct, which = torch.unique(codes, dim=0, return_inverse=True)
    first = which.new_full((len(distinct),), len(marks)).scatter_reduce(
        0, which, torch.arange(len(marks), device=marks.device), "amin"
    )
    return marks[first], which


def joined_layers(graph: Graph) -> list[tuple[int, ...]]:
    """Returns the visible layers in groups that edges join, directly or by others; each is in one of them."""
    return sorted(graph.groups(graph.visible), key=lambda group: min(map(graph.visible.index, group)))
