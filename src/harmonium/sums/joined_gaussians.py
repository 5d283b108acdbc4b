"""Gaussian layers that edges join: beside every hidden state one multivariate Gaussian."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import log, pi
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _random
from harmonium.layers import Moments
from harmonium.machine import Hamiltonian, joint_precision, require_distribution


class SecondMoments(NamedTuple):
    """Weighted sums of products over rows and hidden states, with φ the hidden columns behind a 1.

    Attributes:
        crossed: Sum of x ⊗ φ, (width, 1 + hidden columns), float64.
        squared: Sum of x ⊗ x, (width, width), float64.
    """

    crossed: Tensor
    squared: Tensor


@final
class JoinedGaussians:
    """Gaussian layers with edges among them: given the hidden states one multivariate Gaussian.

    With φ = (1, hidden columns) it is N(K⁻¹ Γᵀφ, K⁻¹), K = diag V - βJ. What a row lacks is Gaussian given
    what it shows, and affine in φ, with a covariance that depends on which entries it lacks alone. Layers
    that no edge joins to others here are blocks of K.

    Args:
        hamiltonian: the machine.
        layers: visible Gaussian layers.
        hidden: states of the hidden layers, (states, columns) in all.
        roots: see ``HiddenStates``; sums are of the states u, all else is of the columns x.

    Attributes:
        columns: Columns of each layer, side by side.

    Raises:
        ValueError: K is not positive definite, so that there is no such distribution.
    """

    def __init__(
        self, hamiltonian: Hamiltonian, layers: Sequence[int], hidden: Tensor, roots: Mapping[int, Tensor]
    ) -> None:
        require_distribution(hamiltonian)
        self.columns = columns_of(hamiltonian, layers)
        linear = torch.cat([hamiltonian.thetas[l][0] for l in layers]).double()
        up = hamiltonian.split(couplings_of_columns(hamiltonian)[1].t())
        self.precision = joint_precision(hamiltonian, layers)
        self.gamma = torch.cat([linear.unsqueeze(0), torch.cat([up[l] for l in layers], 1).double()])
        self.back: Tensor | None = None
        if roots:
            blocks = [roots.get(l, torch.eye(hamiltonian.layers[l].width)).to(linear) for l in layers]
            self.back = torch.linalg.inv(torch.block_diag(*blocks))  # type: ignore[no-untyped-call]
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
    def squares(self) -> Tensor:
        """φ ⊗ φ of every hidden state, (states, columns²)."""
        return (self.phi.unsqueeze(2) * self.phi.unsqueeze(1)).flatten(1)

    def row_bytes(self, lacking: Tensor) -> int:
        """Returns the bytes that a block takes for each row, beside those for its hidden states.

        Args:
            lacking: Marks the entries that rows lack, (rows, width).
        """
        most = int(lacking.sum(1).amax()) if len(lacking) else 0
        square, columns = most + self.phi.shape[1], lacking.shape[1]  # a row has matrices of what it lacks
        return 8 * (4 * square**2 + 8 * columns)


@final
class JoinedRows:
    """Rows as x = seen + response φ + noise of a covariance, these two alike for rows that lack the same.

    Args:
        table: the layers.
        x: rows, (rows, width), NaN where not observed.
    """

    def __init__(self, table: JoinedGaussians, x: Tensor) -> None:
        self._table, K = table, table.precision
        self._lacks = x.isnan()
        patterns, self._which = find_patterns(self._lacks)
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
        self._seen = observed - self._scatter(self._apply(self._covariance, self._gather(pull)))
        self._energy = 0.5 * (pull * self._seen).sum(1)
        self._width = self._root.diagonal(dim1=1, dim2=2).log().sum(1) - counts * (0.5 * log(2 * pi))

    def _gather(self, rows: Tensor) -> Tensor:
        """Returns what rows, (..., rows, width), have where they lack entries: (..., rows, entries)."""
        index = self._entries[self._which].expand(*rows.shape[:-1], -1)
        return rows.gather(-1, index)

    def _scatter(self, rows: Tensor) -> Tensor:
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
        """Adds the part of the log-weights that depends on the hidden state, to (rows, states).

        Returns:
            The rest, which does not, (rows,) float64.
        """
        # With b = Γᵀφ: ln ∫ exp(b·x - ½ xᵀKx) dx_m = ½ bᵀC b + b·seen - ½ (K x_o)·seen + ½ ln det 2πC, as
        # completing the square leaves it. Two terms depend on φ; the first is alike for a pattern's rows.
        table = self._table
        quadratic = 0.5 * (self._gamma.transpose(1, 2) @ self._response).flatten(1) @ table.squares.t()
        into.addmm_(self._seen.to(into.dtype), table.field.t().to(into.dtype))
        into += quadratic.to(into.dtype)[self._which]
        rest: Tensor = -self._energy - self._width[self._which]
        return rest

    def sum(self, weights: Tensor) -> SecondMoments:
        """Sums products of the states u over rows and hidden states, with weights (rows, states)."""
        table, A, C, at = self._table, self._response, self._covariance, self._entries
        weights, width = weights.double(), self._lacks.shape[1]
        # E of x φᵀ and of x xᵀ for x = seen + A φ + noise of covariance C: products of the parts, in which φ
        # enters by its sums of the first and the second order alone.
        first = weights @ table.phi
        by_pattern = weights.new_zeros(len(C), weights.shape[1]).index_add_(0, self._which, weights)
        squares = (by_pattern @ table.squares).view(len(C), *[table.phi.shape[1]] * 2)
        answers = A @ squares
        crossed = self._seen.t() @ first
        crossed.index_add_(0, at.flatten(), answers.flatten(0, 1))
        mixed = self._seen.t() @ self._scatter(self._apply(A, first))
        squared = (self._seen * first[:, :1]).t() @ self._seen + mixed + mixed.t()
        lacking = answers @ A.transpose(1, 2) + by_pattern.sum(1).view(-1, 1, 1) * C
        pairs = at.unsqueeze(2) * width + at.unsqueeze(1)
        squared.view(-1).index_add_(0, pairs.flatten(), lacking.flatten())
        if table.back is not None:
            crossed, squared = table.back @ crossed, table.back @ squared @ table.back.t()
        return SecondMoments(crossed, squared)

    def moments(self, p: Tensor) -> Moments:
        """Returns mean and variance of every entry, each (rows, width), under p, (rows, states)."""
        table, p = self._table, p.double()
        first = p @ table.phi
        spread = (p @ table.squares).view(len(p), *[table.phi.shape[1]] * 2)
        spread -= first.unsqueeze(2) * first.unsqueeze(1)
        A = self._response[self._which]
        mean = self._seen + self._scatter(self._apply(self._response, first))
        variance = ((A @ spread) * A).sum(2) + self._covariance.diagonal(dim1=1, dim2=2)[self._which]
        return Moments(mean, self._scatter(variance.clamp(min=0)))

    def draw(self, chosen: Tensor, generator: torch.Generator) -> Tensor:
        """Draws what is not observed given hidden states, (draws, rows) int64: (draws, rows, width)."""
        # K = L Lᵀ: noise of covariance K⁻¹ is L⁻ᵀ times standard noise.
        shape = (*chosen.shape, self._seen.shape[1])
        noise = self._gather(_random.normal(shape, generator, torch.float64))
        one = torch.eye(noise.shape[-1], dtype=torch.float64, device=noise.device)
        spread = torch.linalg.solve_triangular(self._root.transpose(1, 2), one, upper=True)
        answers = self._apply(self._response, self._table.phi[chosen])
        lacking = self._lacks.gather(1, self._entries[self._which])
        return self._seen + self._scatter(answers + self._apply(spread, noise).masked_fill(~lacking, 0.0))


def columns_of(hamiltonian: Hamiltonian, layers: Sequence[int]) -> dict[int, slice]:
    """Returns the columns of each of some layers that stand side by side in this order."""
    columns, end = dict[int, slice](), 0
    for l in layers:
        start, end = end, end + hamiltonian.layers[l].width
        columns[l] = slice(start, end)
    return columns


def couplings_of_columns(hamiltonian: Hamiltonian) -> tuple[Tensor, Tensor]:
    """Returns βJ among visible columns, symmetric, and from these to hidden columns: (width, columns)."""
    visible, width = hamiltonian.graph.visible, hamiltonian.visible_width
    columns = columns_of(hamiltonian, [*visible, *hamiltonian.graph.hidden])
    J = hamiltonian.thetas[0][0].new_zeros(width, sum(layer.width for layer in hamiltonian.layers))
    for l, m, block in hamiltonian.edges:
        block = hamiltonian.beta_times(block)
        if l in visible:
            J[columns[l], columns[m]] += block
        if m in visible and l != m:
            J[columns[m], columns[l]] += block.t()
    return J[:, :width], J[:, width:]


def find_patterns(marks: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the different rows of booleans, (rows, columns), and for every row which of them it is."""
    # Rows of bits as strings of bytes: numpy sorts these ten times as fast as torch sorts rows.
    packed = np.packbits(np.ascontiguousarray(marks.cpu().numpy()), axis=1)
    codes = packed.view(f"V{packed.shape[1]}").ravel()
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    return marks[torch.from_numpy(first).to(marks.device)], torch.from_numpy(which).to(marks.device)
