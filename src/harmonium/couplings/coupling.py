"""The base of all couplings between two layers, or between the units of one, and the dense coupling."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.backends import SparsityPattern
from harmonium.layers import Layer

# Rows and columns of a tile of a matrix that is added to its transpose: 256² floats stay in the second level
# of cache. 3,150 columns take 35 ms, 64 take 44, 1,024 take 48, and the whole at once 93.
_TILE = 256


class Coupling(nn.Module, ABC):
    """The couplings W of one edge of a machine.

    A machine calls ``join`` once, which makes the weights. A kind of coupling is one subclass: ``kind`` and
    ``pattern``, and ``config`` where it has arguments. Where entries of W depend on each other, such as those
    of a circulant matrix, it also has a ``within`` of its own.

    An edge from a layer to itself couples the layer's own units: W is then symmetric, with nothing between
    the columns of one unit, and its weights lie above the diagonal, so that every pair is counted once.

    Attributes:
        weight: learnable, (width_l, width_m), zero at first. Entries outside the pattern are not read.
            ``Sparse`` has one for each pair instead.
        inner: whether the edge joins a layer to itself.
        mirrored: whether W is the weights above the diagonal and nothing but their mirror image below it.
        sparsity: the rows and columns of the weights in W if stored by entry; None: they are a matrix.
        copies: Number of entries that ``within`` makes equal, from which on ``draw_`` finds its deviation; 1.
    """

    kind: ClassVar[str]
    """The name of this kind of coupling in files."""
    registry: ClassVar[dict[str, type[Coupling]]] = {}
    """Every kind of coupling by name."""

    weight: nn.Parameter
    inner: bool
    mirrored: bool = False
    sparsity: SparsityPattern | None = None
    owned: bool = False  # by a machine, whose edge it is
    copies: int = 1
    _pattern: Tensor | None  # symmetric for an inner edge
    _tiles: tuple[slice, ...]
    _unit_width: int
    _upper: Tensor | None = None  # the pattern above the diagonal of an inner edge, on a GPU

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in vars(cls):
            _checks.add_kind(Coupling.registry, cls.kind, cls)

    @abstractmethod
    def pattern(self, below: Layer, above: Layer) -> Tensor | None:
        """Returns the entries of W that may differ from 0, (width_below, width_above) booleans; None for all.

        Raises:
            ValueError: a pattern that does not fit these layers.
        """

    def config(self) -> dict[str, Any]:
        """Returns the arguments that rebuild the coupling, as JSON has them."""
        return {}

    def join(self, below: Layer, above: Layer) -> None:
        """Makes the weights between two layers.

        Raises:
            TypeError: a class without a ``kind``.
            ValueError: a pattern that does not fit, a coupling of another machine, or a ``within`` that is no
                projection on the pattern.
        """
        self._begin(below, above)
        pattern = self.pattern(below, above)
        if pattern is not None and (
            pattern.dtype != torch.bool or pattern.shape != (below.width, above.width)
        ):
            raise ValueError(
                f"pattern: expected booleans of shape {(below.width, above.width)} from "
                f"{type(self).__name__}, received {pattern.dtype} of shape {tuple(pattern.shape)}"
            )
        self._unit_width = below.columns_per_unit
        size = max(1, _TILE // below.columns_per_unit) * below.columns_per_unit  # no unit lies in two
        self._tiles = tuple(slice(i, min(i + size, below.width)) for i in range(0, below.width, size))
        if self.inner and pattern is not None:
            unit = torch.arange(below.n_units, device="cpu").repeat_interleave(below.columns_per_unit)
            pattern = (pattern | pattern.t()) & (unit.unsqueeze(-1) != unit)
        self._pattern = pattern
        self.mirrored = self.inner and type(self).within is Coupling.within
        self.weight = nn.Parameter(torch.zeros(below.width, above.width))
        if type(self).within is not Coupling.within:
            self._check_within()

    def _begin(self, below: Layer, above: Layer) -> None:
        """Refuses what ``join`` refuses of every kind, and notes whether the edge is an inner one."""
        if self.owned:
            raise ValueError(
                f"edges: expected a coupling of no machine, received a {type(self).__name__} that belongs to "
                "another machine; make a new one"
            )
        if not hasattr(self, "kind"):
            raise TypeError(f"kind: expected one of {type(self).__name__}, its name in files, received none")
        self.inner = below is above

    @torch.no_grad()
    def _check_within(self) -> None:
        """Refuses an override of ``within`` that changes what it has returned, or leaves the pattern."""
        if self.weight.is_meta:
            return
        generator = torch.Generator(self.weight.device).manual_seed(0)
        once = self.within(_random.normal(self.weight.shape, generator, self.weight.dtype))
        outside = Coupling.within(self, once) - once
        if float(torch.cat((outside, self.within(once) - once)).abs().max()) > 1e-4:
            where = "on and below the diagonal, as the edge is in a layer, and " if self.inner else ""
            raise ValueError(
                f"within: expected a projection of {type(self).__name__}, which leaves alone what it has "
                f"returned and is 0 {where}outside of the pattern, received another matrix; "
                "super().within(values) does that"
            )

    def matrix(self) -> Tensor:
        """Returns W, (width_l, width_m), differentiable in the weights; symmetric for an inner edge."""
        in_tiles = self.weight.device.type == "cpu" or not torch.is_grad_enabled()  # many small operations
        exported = torch.compiler.is_compiling()  # whose program has no place to write tiles into
        if self.mirrored and in_tiles and not self.weight.is_meta and not exported:
            mirrored: Tensor = _Mirror.apply(self.weight, self)  # type: ignore[no-untyped-call]
            return mirrored
        W = self.within(self.weight)
        return W + W.t() if self.inner else W

    def natural(self, below: Tensor | None, above: Tensor | None) -> Tensor:
        """Returns J: W times the scales of the units at its two ends, (width_l,) and (width_m,).

        Of a coupling with a ``sparsity`` it has the entries of that pattern alone, (entries,).
        """
        J = self.matrix()
        J = J if below is None else J * below.unsqueeze(-1)
        return J if above is None else J * above

    @property
    def stored(self) -> list[Tensor]:
        """Returns views of the weights that are read, (rows, columns) each; of a mirrored pair one alone."""
        weight = self.weight.detach()
        return [weight[rows, rows.start :] for rows in self._tiles] if self.mirrored else [weight]

    @torch.no_grad()
    def mirror_into(self, W: Tensor, weight: Tensor | None = None) -> None:
        """Writes ``matrix`` of a mirrored coupling into W, (width_l, width_l), tile by tile.

        Args:
            W: where to write.
            weight: Weights in place of its own; None: these.
        """
        weight = self.weight.detach() if weight is None else weight
        for n, rows in enumerate(self._tiles):
            for columns in self._tiles[n:]:
                tile = self._tile_within(weight[rows, columns], rows, columns)
                if rows is columns:
                    torch.add(tile, tile.t(), out=W[rows, rows])
                else:
                    W[rows, columns] = tile
                    W[columns, rows] = tile.t()

    @torch.no_grad()
    def fold_(self, gradient: Tensor) -> Tensor:
        """Turns a gradient in W into that in the weights of a mirrored coupling, tile by tile, in place.

        Args:
            gradient: (width_l, width_l) with contiguous rows; symmetric or not, as its transpose is added.

        Returns:
            The same tensor, 0 on and below the diagonal.
        """
        for n, rows in enumerate(self._tiles):
            for columns in self._tiles[n:]:
                tile = gradient[rows, columns]
                if rows is columns:
                    tile.copy_(self._tile_within(tile + tile.t(), rows, columns))
                    continue
                tile.add_(gradient[columns, rows].t())
                if self._pattern is not None:
                    tile.copy_(self._tile_within(tile, rows, columns))
                gradient[columns, rows] = 0.0
        return gradient

    def _tile_within(self, tile: Tensor, rows: slice, columns: slice) -> Tensor:
        """Projects a tile on or above the diagonal on the pattern; returns it as it is where that is all."""
        inside = None if self._pattern is None else self._pattern[rows, columns].to(tile.device)
        if rows is columns:  # no unit lies in two tiles
            unit = torch.arange(len(tile), device=tile.device) // self._unit_width
            upper = unit.unsqueeze(-1) < unit
            inside = upper if inside is None else inside & upper
        return tile if inside is None else tile * inside

    @torch.no_grad()
    def _clip_(self, values: Tensor) -> Tensor:
        """Sets the entries of a matrix of an inner edge that are outside of the pattern to 0, in place."""
        for n, rows in enumerate(self._tiles):
            values[rows, : rows.start] = 0.0
            for columns in self._tiles[n:]:
                if self._pattern is not None or rows is columns:
                    values[rows, columns] = self._tile_within(values[rows, columns], rows, columns)
        return values

    @property
    def joined(self) -> Tensor | None:
        """The pairs of columns that are joined, (width_l, width_m) booleans; None for all.

        Within a layer None means all columns of different units.
        """
        return self._pattern

    def within(self, values: Tensor) -> Tensor:
        """Projects a matrix, (width_l, width_m), on what the weights can be: 0 outside of the pattern.

        Weights, their initial values and the direction of an update all pass through it. An override is a
        symmetric linear projection, such as the mean over entries that are equal, and differentiable.
        """
        on_cpu = values.device.type == "cpu"
        if self.inner and on_cpu and not (torch.is_grad_enabled() and values.requires_grad):
            return self._clip_(values.clone())
        if self.inner:
            if on_cpu or self._upper is None or self._upper.device != values.device:
                self._upper = self._clip_(torch.ones_like(values, dtype=torch.bool))
            inside, self._upper = self._upper, None if on_cpu or values.is_meta else self._upper
            return values * inside
        if self._pattern is None:
            return values
        pattern = self._pattern.to(values.device)
        if not values.is_meta:  # where it would be lost
            self._pattern = pattern
        return values * pattern

    @torch.no_grad()
    def draw_(self, std: float, generator: torch.Generator) -> None:
        """Draws the weights from N(0, std²), (width_l, width_m), and sets those outside the pattern to 0."""
        self.weight.normal_(generator=generator).mul_(std * self.copies**0.5)  # a mean of so many has std
        if self.mirrored:
            self._clip_(self.weight)
        else:
            self.weight.copy_(self.within(self.weight))

    @torch.no_grad()
    def fill_(self, values: Numbers) -> None:
        """Sets the weights, and those outside the pattern to 0.

        Args:
            values: W, (width_l, width_m), an array or tensor; of an inner edge the whole, symmetric, or what
                lies above the diagonal.

        Raises:
            TypeError: no array or tensor of real numbers.
            ValueError: another shape, or an inner edge that gives the same pair two values.
        """
        W = _checks.tensor(values, "values", self.weight.dtype, self.weight.device)
        if W.shape != self.weight.shape:
            raise ValueError(f"values: expected shape {tuple(self.weight.shape)}, received {tuple(W.shape)}")
        if self.inner and not W.is_meta:
            refuse_two_values(W)
        self.weight.copy_(self.within(W))


def refuse_two_values(W: Tensor) -> None:
    """Refuses a matrix of an inner edge that gives the same pair two values."""
    below, above = W.tril(-1), W.triu(1).t()
    if bool(((below != 0) & ~below.isclose(above, rtol=0, atol=0, equal_nan=True)).any()):
        raise ValueError(
            "values: expected a symmetric matrix, or one that is 0 below the diagonal, for couplings "
            "in a layer, received one with two values for a pair; values + values.T adds them up"
        )


class _Mirror(torch.autograd.Function):
    """The symmetric matrix of weights above the diagonal, without a matrix beside it."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, coupling: Coupling) -> Tensor:
        ctx.coupling, W = coupling, torch.empty_like(weight)
        coupling.mirror_into(W, weight)
        return W

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        folded: Tensor = _Fold.apply(gradient, ctx.coupling)  # type: ignore[no-untyped-call]
        return folded, None


class _Fold(torch.autograd.Function):
    """The gradient in the weights of one in their symmetric matrix: ``_Mirror`` the other way."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, coupling: Coupling) -> Tensor:
        ctx.coupling = coupling
        return coupling.fold_(gradient.clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        mirrored: Tensor = _Mirror.apply(gradient, ctx.coupling)  # type: ignore[no-untyped-call]
        return mirrored, None


@final
class Dense(Coupling):
    """All columns of one layer joined to all columns of the other; what an edge has by default."""

    kind: ClassVar[str] = "dense"

    def pattern(self, below: Layer, above: Layer) -> Tensor | None:
        return None
