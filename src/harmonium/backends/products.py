"""Products of one matrix with many states, and of many states with what they cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from harmonium import _checks, _device
from harmonium.backends import bits, choice
from harmonium.backends.choice import Machine, backend_of, multiply
from harmonium.backends.cuda import tensor_core_sums
from harmonium.backends.rounding import ASKED, multiply_rounded, rounded
from harmonium.backends.sparsity import SparsityPattern

_LOT = 128  # Thin products are summed in lots of so many rows: one long float32 sum would lose digits.
_THIN = 16  # Below so many columns some processors' libraries add one row after the other.
_NARROW = 32  # A matrix of fewer columns is multiplied faster without tables of sums.
_LITTLE = 48  # Fewer rows do not pay for filling tables of sums.
_MANY = 256  # From so many rows on, a product by bits pays although its result has to be transposed.
# Entries of a matrix, 256 MB, beyond which numbers in fixed point, as large again, are not kept but made for
# so many columns at a time.
_LARGE, _PART = 1 << 26, 512
_WAITING = 1 << 24  # numbers of lots of one weight that wait, 64 MB: one product of more is no faster
_ACROSS = 3  # Tables of the side that is not contiguous have to wait for three times as many rows to pay.


def product(x: Tensor, y: Tensor) -> Tensor:
    """Returns the matrix product ``x @ y`` of shapes (m, k) and (k, n)."""
    backend = backend_of(x, y)
    return x @ y if backend is None else multiply(backend.library, x, y)


@final
class PreparedMatrix:
    """A matrix that many others are going to multiply, from either side.

    Large batches of two-valued states (from ``Backend.bits_from`` rows) are multiplied through tables: groups
    of bits index sums of rows of y in fixed point. The tables are made once for either side and version of y:
    at once where rows of y stand in memory one after the other, else as soon as enough rows have come, or are
    likely to come, to pay for them.

    Args:
        y: (k, n).
    """

    def __init__(self, y: Tensor) -> None:
        self._y, self._size = y, y.numel()
        self._met = {False: 0, True: 0}
        self._fixed: dict[bool, tuple[int, bits.Fixed]] = {}  # of either side, with the version of y
        self._kept: dict[str, tuple[int, Tensor]] = {}  # y in a lower precision, with the version of y

    def times(self, x: Tensor, transposed: bool = False) -> Tensor:
        """x @ y, or x @ yᵀ: (m, n) from (m, k), or (m, k) from (m, n)."""
        y = self._y.t() if transposed else self._y
        rows, asked = x.shape[0], ASKED.get()
        if rows * self._size < choice.WORTHWHILE and asked == "float32":
            return x @ y
        if asked != "float32" and x.dtype is torch.float32 and not _device.needs_grad(x, y):
            factor = self._rounded(asked)
            return multiply_rounded(asked, rounded(asked, x), factor.t() if transposed else factor)
        backend = backend_of(x, y)
        if backend is None:
            return x @ y
        self._met[transposed] += rows
        expected = rows if y.is_contiguous() else min(rows, (self._met[transposed] + rows) // _ACROSS)
        if y.shape[1] >= _NARROW and backend.uses_bits(expected, rows * self._size):
            states = bits.bits(x)
            if states is not None:
                if self._size > _LARGE:
                    return torch.cat([bits.Fixed(part).times(states) for part in torch.split(y, _PART, 1)], 1)
                version = -1 if self._y.is_inference() else self._y._version
                if self._fixed.get(transposed, (None,))[0] != version:
                    self._fixed[transposed] = version, bits.Fixed(y)
                return self._fixed[transposed][1].times(states)
        return multiply(backend.library, x, y)

    def _rounded(self, name: str) -> Tensor:
        """Returns y, rounded once for its present values."""
        version = -1 if self._y.is_inference() else self._y._version
        if self._kept.get(name, (None,))[0] != version:
            self._kept[name] = version, rounded(name, self._y.detach())
        return self._kept[name][1]


@final
class OuterProductSum:
    """Σ xᵀ @ y over batches of rows, (k, n), or its entries at the places of a pattern, grown in place.

    Where x or y has two values its bits pick sums, which grow the total where it stands, as torch's products
    do.

    Args:
        like: a tensor of the shape (k, n), or (entries,), type and device of the sum.
        pattern: the places; of a symmetric one the transposed products are added. None: all.

    Attributes:
        total: the sum, of the shape that it was given; None before the first row.
    """

    def __init__(self, like: Tensor, pattern: SparsityPattern | None = None) -> None:
        self._like, self._pattern = like, pattern
        self.total: Tensor | None = None

    def add(self, x: Tensor, y: Tensor, weight: float | Tensor = 1.0) -> None:
        """Adds Σ_rows weight · x ⊗ y.

        Args:
            x: (rows, k).
            y: (rows, n).
            weight: a number, or one for each row (rows,).
        """
        if self._pattern is not None:
            if isinstance(weight, Tensor):
                y, weight = _weighted(y, weight), 1.0
            self.grow(self._pattern.products(x, y).mul_(weight))  # x may be y, which halves the work
            return
        if _checks.autocast():
            _checks.outside_autocast(x.device.type)
        small = x.shape[0] * self._like.numel() < choice.WORTHWHILE
        backend = None if small else backend_of(x.t(), y)
        if backend is not None and self._add_by_bits(x, y, weight, backend):
            return
        if backend is not None and backend.library != "torch":
            self.grow(product(x.t(), _weighted(y, weight)))
            return
        if isinstance(weight, Tensor):
            y, weight = _weighted(y, weight), 1.0
        if x.shape[0] >= 2 * _LOT and _thin(x, y):
            self.grow(sum_of_lots(x, y).mul_(weight))
        elif self.total is None:  # beta = 0: what stands there is not read
            self.total = torch.addmm(self._like.detach(), x.t(), y, beta=0, alpha=weight)
        else:  # where the sum stands, which torch does without a copy of any row
            self.total.addmm_(x.t(), y, alpha=weight)

    def stand_in(self, memory: Tensor) -> None:
        """Lets the sum grow in a tensor of its shape, whose numbers are lost."""
        memory.zero_()
        self.total = memory if self.total is None else memory.add_(self.total)

    def grow(self, term: Tensor) -> None:
        """Adds a matrix (k, n), which is the sum's own from now on; the sum has contiguous rows.

        Of a matrix a sum at the places of a pattern takes those, unless it is given them alone, (entries,).
        """
        if self._pattern is not None and term.dim() == 2:
            term = self._pattern.fold(term)
        self.total = term.contiguous() if self.total is None else self.total.add_(term)

    def _add_by_bits(self, x: Tensor, y: Tensor, weight: float | Tensor, backend: choice.Backend) -> bool:
        """Adds weight · xᵀ @ y by bits if x or y has two values; returns whether it did."""
        if isinstance(weight, Tensor) and _device.needs_grad(weight):
            return False
        work = x.shape[0] * self._like.numel()
        for units, others, rows in ((x, y, _LITTLE), (y, x, _MANY)):
            serve = x.shape[0] >= rows and others.shape[1] >= _NARROW
            serve = serve and backend.uses_bits(units.shape[1], work)
            states = bits.bits(units, transposed=True) if serve else None
            if states is None:
                continue
            row_weights = weight.expand(others.shape[0]) if isinstance(weight, Tensor) else weight
            fixed = bits.Fixed(others, row_weights)
            if units is x:
                self.total = fixed.times(states, self.total)
            else:
                self.grow(fixed.times(states).t())
            return True
        return False


class _Lot(NamedTuple):
    """States or means of rows that wait, each the tensors of every layer.

    Attributes:
        means: of every layer, those of several ``add`` of the same weight.
        weight: a number, or (rows,).
        short: the layers whose are -1, 0 or 1.
        drawn: the layers whose are states, and not means.
    """

    means: list[list[Tensor]]
    weight: float | Tensor
    short: list[bool]
    drawn: list[bool]

    def takes(self, weight: float | Tensor, short: list[bool], drawn: list[bool]) -> bool:
        """Returns whether more rows of this weight may wait with these."""
        if isinstance(weight, Tensor) or isinstance(self.weight, Tensor):
            return False
        return weight == self.weight and short == self.short and drawn == self.drawn


class LotSums(NamedTuple):
    """The sums of lots.

    Attributes:
        firsts: Σ_rows weight · x of every layer with edges, (width_l,).
        products: Σ_rows weight · x ⊗ y of every edge, (width_l, width_m).
        rows: states or means of every layer, weight, and which layers are states, of every lot.
    """

    firsts: dict[int, Tensor]
    products: list[Tensor]
    rows: list[tuple[list[Tensor], float | Tensor, list[bool]]]


@final
class Lots:
    """The rows that wait for one sum of statistics, at most two lots of them: data and chains.

    Attributes:
        wait: whether any may; False: each product is made at once.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._lots: list[_Lot] = []
        self.wait = machine.thetas[0][0].device.type in choice.UNITS

    def serve(self, machine: Machine, states: Sequence[Tensor]) -> bool:
        """Returns whether products of states, for each layer (rows, width_l), wait for others."""
        graph = machine.graph
        if graph.inner or not graph.edges or graph.sparse:
            return False
        rows = max(len(x) for x in states)
        return choice.tensor_cores(machine, rows, min(J.numel() for J in machine.J))

    def add(
        self, means: list[Tensor], weight: float | Tensor, drawn: list[bool], exact: bool
    ) -> LotSums | None:
        """Lets rows wait, and returns what others have come to where there are enough of them.

        Args:
            means: states or means of every layer, (rows, width_l).
            weight: a number, or (rows,).
            drawn: the layers whose are states, and not means.
            exact: whether states are drawn, or data within the support of the units.
        """
        layers = self._machine.layers
        weight = weight.to(self._machine.dtype) if isinstance(weight, Tensor) else weight
        short = [exact and layer.short and state for layer, state in zip(layers, drawn, strict=True)]
        lot = next((lot for lot in self._lots if lot.takes(weight, short, drawn)), None)
        if lot is None:
            made = self._sum() if len(self._lots) == 2 else None
            self._lots.append(_Lot([[x] for x in means], weight, short, drawn))
            return made
        for waiting, x in zip(lot.means, means, strict=True):
            waiting.append(x)
        full = sum(x.numel() for waiting in lot.means for x in waiting) > _WAITING
        return self._sum() if full else None

    def conclude(self) -> LotSums | None:
        """Returns what all rows have come to, in the memory of what made them; None: none wait."""
        if not self._lots:
            return None
        self._machine.J.forget_digits()
        return self._sum()

    def _sum(self) -> LotSums:
        """Returns what the rows that wait have come to."""
        lots, layers = [*self._lots], self._machine.layers
        self._lots.clear()
        means = [[x[0] if len(x) == 1 else torch.cat(x) for x in lot.means] for lot in lots]
        sums = LotSums({}, [], [(x, lot.weight, lot.drawn) for x, lot in zip(means, lots, strict=True)])
        for l, m in self._machine.graph.edges:
            bounded = layers[l].short, layers[m].short
            pairs = [
                tensor_core_sums.Pair(x[l], x[m], lot.weight, lot.short[l], lot.short[m], *bounded)
                for x, lot in zip(means, lots, strict=True)
            ]
            made = tensor_core_sums.statistics(pairs)
            sums.products.append(made.products)
            sums.firsts.setdefault(l, made.x)
            sums.firsts.setdefault(m, made.y)
        return sums


def _weighted(y: Tensor, weight: float | Tensor) -> Tensor:
    return y * (weight.to(y.dtype).unsqueeze(-1) if isinstance(weight, Tensor) else weight)


def _thin(x: Tensor, y: Tensor) -> bool:
    """Returns whether xᵀ @ y sums so many rows that it needs ``sum_of_lots`` for its precision."""
    return len(x) >= 2 * _LOT and (x.shape[1] < _THIN or y.shape[1] < _THIN)


def sum_of_lots(x: Tensor, y: Tensor) -> Tensor:
    """xᵀ @ y over many rows, lot by lot: a sum that takes them one by one loses digits in float32.

    Args:
        x: (rows, k).
        y: (rows, n).
    """
    cut = len(x) // _LOT * _LOT
    xs, ys = (rows[:cut].reshape(cut // _LOT, _LOT, rows.shape[1]) for rows in (x, y))
    sums = torch.bmm(xs.mT, ys).sum(0)
    return sums.addmm_(x[cut:].t(), y[cut:])
