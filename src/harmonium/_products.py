"""Matrix products: the one place that decides which library multiplies.

On CPUs where torch's default library leaves wide vector units idle, the oneDNN path is twice as fast in
float32 at the same precision. It has no derivative and some overhead, so it serves large products outside
autograd; everything else is a plain ``torch`` product. ``docs/design_notes.md`` holds the measurements.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property, partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

_WORTHWHILE = 1 << 20  # multiplications below which dispatch costs more than the faster product saves

_DENSE = 8  # one nonzero entry in so many: there the sum of rows takes as long as the dense product


def product(x: Tensor, y: Tensor) -> Tensor:
    """The matrix product ``x @ y`` of shapes (m, k) and (k, n)."""
    if (
        x.dtype is torch.float32
        and x.device.type == "cpu"
        and x.dim() == 2
        and x.shape[0] * y.numel() >= _WORTHWHILE
        and _ONEDNN
        and not (torch.is_grad_enabled() and (x.requires_grad or y.requires_grad))
    ):
        return _onednn(x, y)
    return x @ y


Times = Callable[[Tensor], Tensor]
"""The product of what comes, (m, k), with a matrix (k, n) that is known."""


def times(y: Tensor) -> Times:
    """The product with one matrix that many others are going to meet.

    Where at most an eighth of its entries differ from zero the others cost nothing.
    """
    known = y.device.type == "cpu" and y.dtype in (torch.float32, torch.float64)
    if not known or int(y.count_nonzero()) * _DENSE > y.numel():
        return partial(_times_dense, y)
    columns, rows = y.t().nonzero(as_tuple=True)
    starts = torch.searchsorted(columns, torch.arange(y.shape[1]))
    return partial(_times_sparse, rows, starts, y[rows, columns])


def _times_dense(y: Tensor, x: Tensor) -> Tensor:
    return product(x, y)


def _times_sparse(rows: Tensor, starts: Tensor, values: Tensor, x: Tensor) -> Tensor:
    # Sums of whole rows of xᵀ: the unit that vectors are added in is the batch.
    sums = embedding_bag(rows, x.t().contiguous(), starts, mode="sum", per_sample_weights=values)
    return sums.t().contiguous()


class Changes:
    """A matrix (m, k) that may well be zero nearly everywhere, such as the difference of two states.

    Args:
        x: the matrix.

    Attributes:
        rows: of its nonzero entries, in rising order.
    """

    def __init__(self, x: Tensor) -> None:
        self._dense = x
        if x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64):
            # Three times as fast as torch's own search.
            places = np.divmod(np.flatnonzero(x.detach().numpy().astype(bool)), x.shape[1])
            self.rows, self._columns = (torch.from_numpy(place) for place in places)
        else:
            self.rows, self._columns = x.nonzero(as_tuple=True)

    def product(self, y: Tensor) -> Tensor:
        """The matrix product with a contiguous y (k, n), outside autograd.

        Below an eighth of nonzero entries the rows of y that they touch are summed.
        """
        x = self._dense
        if x.device.type != "cpu" or len(self.rows) * _DENSE > x.numel():
            return product(x, y)
        starts, values = self._bags
        return embedding_bag(self._columns, y, starts, mode="sum", per_sample_weights=values)

    @cached_property
    def _bags(self) -> tuple[Tensor, Tensor]:
        """Where the entries of each row start, and the entries."""
        starts = torch.searchsorted(self.rows, torch.arange(len(self._dense)))
        return starts, self._dense[self.rows, self._columns]


def int8_product(x: Tensor, y: Tensor) -> Tensor:
    """The exact product of whole numbers, int8 (m, k) and (k, n), in float32.

    Sums of up to 2^24 are exact. Four times as fast as a float32 product where ``exact_int8_products``.
    """
    return torch._int_mm(x, y).float()


@cache
def exact_int8_products() -> bool:
    """Whether int8 products are there and right."""
    x = torch.tensor([[127, -127, 1, 0], [-127, -127, 127, 127]], dtype=torch.int8).repeat(9, 20)
    y = torch.tensor([[127, 1, -127], [-127, 0, 127]], dtype=torch.int8).repeat(40, 6)
    try:
        return bool(torch.equal(int8_product(x, y), x.float() @ y.float()))
    except (RuntimeError, AttributeError, NotImplementedError):
        return False


def _onednn(x: Tensor, y: Tensor) -> Tensor:
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x.detach(), y.detach().t(), None, "none", [], "")
    return result


def _onednn_works() -> bool:
    # The operator is not part of torch's public surface, so it is tried before it is trusted.
    if not (
        torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    ):
        return False
    x = torch.arange(12, dtype=torch.float32).view(3, 4)
    y = torch.arange(20, dtype=torch.float32).view(4, 5)
    try:
        return bool(
            torch.equal(_onednn(x, y), x @ y) and torch.equal(_onednn(x, y.t().contiguous().t()), x @ y)
        )
    except (RuntimeError, TypeError, NotImplementedError):
        return False


_ONEDNN = _onednn_works()
