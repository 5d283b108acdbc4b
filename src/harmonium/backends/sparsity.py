"""Matrices of which only some entries are kept, in the order of a sparsity pattern."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _device

# Entries times rows of a piece of a sum over rows, 4 MB: it stays in the second or third level of cache.
_PIECE = 1 << 20
# Entries up to which a pattern is also written out as a matrix, 1 GB in float32: where more is asked for,
# what asks would take longer than anyone waits.
LARGEST_MATRIX = 1 << 28


class Compressed(NamedTuple):
    """The entries of a matrix by column of its product, as compressed sparse columns.

    Attributes:
        starts: (columns + 1,) int64; column j has the entries from starts[j] up to starts[j + 1].
        sources: (entries,) int64, the row of each.
        entries: (entries,) int64, the number of each in the pattern.
    """

    starts: Tensor
    sources: Tensor
    entries: Tensor

    def select(self, columns: Tensor) -> Compressed:
        """Returns some of the columns, (columns,) int64, in this order."""
        first, counts = self.starts[columns], self.starts[columns + 1] - self.starts[columns]
        starts = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
        index = torch.arange(int(starts[-1]), device=columns.device)
        index += (first - starts[:-1]).repeat_interleave(counts)
        return Compressed(starts, self.sources[index], self.entries[index])


class RowsInTurn(NamedTuple):
    """The neighbours of each unit of a layer, in the order of a sweep through its colours.

    Attributes:
        order: units as a sweep comes to them, int32 (units,).
        colour_starts: colour c has the units order[colour_starts[c] : colour_starts[c + 1]], int64.
        starts: unit order[p] has the entries from starts[p] up to starts[p + 1], int64 (units + 1,).
        others: the neighbour of each entry, int32 (2 x pairs,).
        positions: where the coupling of each entry stands in J, flattened if it is a matrix, (2 x pairs,).
    """

    order: np.ndarray
    colour_starts: np.ndarray
    starts: np.ndarray
    others: np.ndarray
    positions: np.ndarray


@final
class SparsityPattern:
    """The places of the entries of a matrix that may differ from 0: blocks of pairs of units.

    Entries are listed pair by pair, the block of each row by row.

    Args:
        pairs: units of the rows and of the columns, (pairs, 2) int64; no pair comes twice.
        units: how many there are of either.
        block: rows and columns of the block of a pair.
        symmetric: whether every entry stands also at the transposed place, which is then not listed.

    Attributes:
        shape: rows and columns of the matrix.
        rows: row of each entry, (entries,) int64.
        columns: column of each, (entries,) int64.
    """

    def __init__(
        self, pairs: Tensor, units: tuple[int, int], block: tuple[int, int], symmetric: bool
    ) -> None:
        self.pairs, self.units, self.block, self.symmetric = pairs, units, block, symmetric
        (p, q), device = block, pairs.device
        self.shape = (units[0] * p, units[1] * q)
        self.rows, self.columns = pairs.t()
        if p * q > 1:
            i, j = torch.arange(p, device=device).view(1, p, 1), torch.arange(q, device=device).view(1, 1, q)
            self.rows = (self.rows.view(-1, 1, 1) * p + i).expand(-1, p, q).flatten()
            self.columns = (self.columns.view(-1, 1, 1) * q + j).expand(-1, p, q).flatten()

    def __len__(self) -> int:
        return len(self.rows)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy makes its orders anew: those of chosen columns are kept by identity, which a copy has not.
        return SparsityPattern, (self.pairs, self.units, self.block, self.symmetric)

    def to(self, device: torch.device) -> SparsityPattern:
        """Returns the pattern with its indices on a device."""
        if self.pairs.device == device:
            return self
        return SparsityPattern(self.pairs.to(device), self.units, self.block, self.symmetric)

    def squared(self) -> SparsityPattern:
        """Returns the pattern of products of two entries of a block: blocks (p², q²)."""
        p, q = self.block
        return self if p * q == 1 else SparsityPattern(self.pairs, self.units, (p * p, q * q), self.symmetric)

    @cached_property
    def by_column(self) -> Compressed:
        """The entries by column, for ``x @ matrix``."""
        return self._compress(self.rows, self.columns, self.shape[1])

    @cached_property
    def by_row(self) -> Compressed:
        """The entries by row, for ``x @ matrixᵀ``."""
        return self.by_column if self.symmetric else self._compress(self.columns, self.rows, self.shape[0])

    @cached_property
    def _selected(self) -> dict[tuple[int, bool], tuple[Compressed, Tensor]]:
        return {}

    def select(self, columns: Tensor, transposed: bool) -> Compressed:
        """Returns the entries of some columns, (columns,) int64, of the matrix or of its transpose."""
        key = (id(columns), transposed)
        if key not in self._selected:
            made = (self.by_row if transposed else self.by_column).select(columns)
            # Kept beside it, the columns cannot give their identity to others.
            self._selected[key] = made, columns
        return self._selected[key][0]

    def _compress(self, sources: Tensor, targets: Tensor, size: int) -> Compressed:
        entries = torch.arange(len(self), device=sources.device)
        if self.symmetric:
            sources, targets = torch.cat((sources, targets)), torch.cat((targets, sources))
            entries = entries.repeat(2)
        order = torch.argsort(targets * max(self.shape) + sources)
        counts = torch.bincount(targets, minlength=size)
        starts = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
        return Compressed(starts, sources[order], entries[order])

    def times(self, x: Tensor, values: Tensor, transposed: bool = False) -> Tensor:
        """Returns x @ matrix or x @ matrixᵀ, differentiable in both.

        Args:
            x: (rows, k).
            values: the entries, (entries,).
            transposed: whether to multiply by the transposed matrix.

        Returns:
            (rows, n).
        """
        compressed = self.by_row if transposed else self.by_column
        if not _device.needs_grad(x, values):
            return multiply(x, values, compressed)
        product: Tensor = _Bilinear.apply(  # type: ignore[no-untyped-call]
            x,
            values,
            partial(multiply, compressed=compressed),
            lambda gradient, values: self.times(gradient, values, not transposed),
            lambda gradient, x: self.products(*((gradient, x) if transposed else (x, gradient))),
        )
        return product

    def products(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the entries of xᵀ @ y, and of its transpose added where symmetric, differentiable.

        Args:
            x: (rows, k).
            y: (rows, n).

        Returns:
            (entries,).
        """
        if not _device.needs_grad(x, y):
            return self._sum_products(x, y)
        sums: Tensor = _Bilinear.apply(  # type: ignore[no-untyped-call]
            x,
            y,
            self._sum_products,
            lambda gradient, y: self.times(y, gradient, True),
            lambda gradient, x: self.times(x, gradient),
        )
        return sums

    def _sum_products(self, x: Tensor, y: Tensor) -> Tensor:
        """Makes ``products``, piece by piece."""
        states, others = x.detach().t().contiguous(), y.detach().t().contiguous()
        total = x.new_empty(len(self))
        for first in range(0, len(self), size := max(1, _PIECE // max(1, len(x)))):
            rows, columns = (side[first : first + size] for side in (self.rows, self.columns))
            part = torch.linalg.vecdot(states[rows], others[columns])
            if self.symmetric:
                part = 2 * part if x is y else part + torch.linalg.vecdot(states[columns], others[rows])
            total[first : first + size] = part
        return total

    def gather(self, matrix: Tensor) -> Tensor:
        """Returns the entries of a matrix, (entries,)."""
        return matrix[self.rows, self.columns]

    def fold(self, gradient: Tensor) -> Tensor:
        """Turns a gradient in the matrix into that in its entries, (entries,)."""
        entries = self.gather(gradient)
        return entries + gradient[self.columns, self.rows] if self.symmetric else entries

    def dense(self, values: Tensor) -> Tensor:
        """Returns the matrix with 0 elsewhere, differentiable in the entries, (entries,).

        Raises:
            ValueError: a matrix too large to be written out.
        """
        if self.shape[0] * self.shape[1] > LARGEST_MATRIX:
            raise ValueError(
                f"couplings: expected at most {LARGEST_MATRIX:,} entries of a matrix that is written out in "
                f"full, received {self.shape[0]:,} x {self.shape[1]:,}; what works pair by pair (sampling, "
                "energies, statistics, training by chains) takes sparse couplings of any size"
            )
        matrix = values.new_zeros(self.shape).index_put((self.rows, self.columns), values)
        return matrix + matrix.t() if self.symmetric else matrix


def multiply(x: Tensor, values: Tensor, compressed: Compressed) -> Tensor:
    """Returns x, (rows, k), times the columns of a matrix whose entries are ``values``: (rows, columns)."""
    return sum_rows(x, values.detach()[compressed.entries], compressed)


def sum_rows(x: Tensor, weights: Tensor, compressed: Compressed) -> Tensor:
    """Returns sums of weighted columns of x, which are as long as the batch: (rows, columns).

    ``torch.nn.functional.embedding_bag`` makes them, whose checks take as long; 0 is "sum".
    """
    states = x.detach().t().contiguous()
    sums = torch.embedding_bag(states, compressed.sources, compressed.starts, False, 0, False, weights, True)[
        0
    ]
    return sums.t().contiguous()


class _Bilinear(torch.autograd.Function):
    """A product of two tensors whose derivatives are products as well, of ways that autograd may track again.

    The arguments behind the factors are three functions of two: the product, and from the gradient and the
    other factor those in the first and in the second.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, product: Any, *ways: Any) -> Tensor:
        ctx.save_for_backward(x, y)
        ctx.ways = ways
        made: Tensor = product(x, y)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        others = reversed(ctx.saved_tensors)
        pairs = zip(ctx.ways, others, ctx.needs_input_grad[:2], strict=True)
        return *(way(gradient, other) if needed else None for way, other, needed in pairs), None, None, None


@final
class SparseMatrix:
    """A sparse matrix that many others are going to multiply, from either side; see ``PreparedMatrix``.

    Args:
        values: its entries, (entries,).
        pattern: where they stand.
        columns: multiply by these columns alone, (columns,) int64, from the left; None: by the whole.
        transposed: whether these are columns of the transposed matrix.
    """

    def __init__(
        self,
        values: Tensor,
        pattern: SparsityPattern,
        columns: Tensor | None = None,
        transposed: bool = False,
    ) -> None:
        self._values, self._pattern, self._chosen, self._transposed = values, pattern, columns, transposed
        self._columns = None if columns is None else pattern.select(columns, transposed)
        self._kept: dict[bool, tuple[int, Tensor]] = {}  # entries in compressed order, with their version

    def times(self, x: Tensor, transposed: bool = False) -> Tensor:
        """x @ matrix, or x @ matrixᵀ: (rows, n) from (rows, k), or (rows, k) from (rows, n)."""
        pattern, values = self._pattern, self._values
        if _device.needs_grad(x, values):
            if self._chosen is not None:
                return pattern.times(x, values, self._transposed)[:, self._chosen]
            return pattern.times(x, values, transposed)
        transposed = transposed and not pattern.symmetric
        compressed = self._columns or (pattern.by_row if transposed else pattern.by_column)
        version = -1 if values.is_inference() else values._version
        if self._kept.get(transposed, (None,))[0] != version:
            self._kept[transposed] = version, values.detach()[compressed.entries]
        return sum_rows(x, self._kept[transposed][1], compressed)
