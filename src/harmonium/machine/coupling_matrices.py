"""J of every edge of a machine, and what is made of it to multiply with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from functools import cached_property, partial
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from harmonium.backends import PreparedMatrix, SparseMatrix, SparsityPattern
from harmonium.backends.cuda import tensor_cores

Columns = PreparedMatrix | SparseMatrix


@final
class CouplingMatrices(tuple[Tensor, ...]):
    """J of every edge, and what is made of them once for all Hamiltonians that share them.

    A sparse coupling has its entries alone, (entries,), in the order of its pattern.

    Attributes:
        patterns: for every edge where the entries of J stand; None for a matrix.
        spare: edges whose matrix is written again before the next update, and which ``take`` lends till then.
    """

    patterns: Sequence[SparsityPattern | None] = ()
    spare: Collection[int] = ()

    def matrix(self, edge: int) -> Tensor:
        """Returns J of an edge as a matrix, (width_l, width_m), differentiable.

        Raises:
            ValueError: a sparse coupling of more entries than are written out.
        """
        pattern = self.patterns[edge]
        return self[edge] if pattern is None else pattern.dense(self[edge])

    def take(self, edge: int) -> Tensor:
        """Returns the memory of a spare matrix, for another use; what was made of it is forgotten."""
        vars(self).pop("factors", None)
        return self[edge].detach()

    @cached_property
    def transposed(self) -> tuple[Tensor, ...]:
        """Jᵀ of every coupling as a matrix, rows contiguous; made at first use."""
        return tuple(self.matrix(edge).t().contiguous() for edge in range(len(self)))

    @cached_property
    def factors(self) -> tuple[PreparedMatrix | SparseMatrix, ...]:
        """Every coupling, to multiply with."""
        factors: list[PreparedMatrix | SparseMatrix] = [*map(PreparedMatrix, self)]
        for edge, pattern in enumerate(self.patterns):
            if pattern is not None:
                factors[edge] = SparseMatrix(self[edge], pattern)
        return tuple(factors)

    @cached_property
    def parts(self) -> tuple[tensor_cores.Couplings, ...]:
        """Every coupling, for the matrix units of a GPU."""
        return tuple(map(tensor_cores.Couplings, self))

    def in_turn(self, edge: int, make: Callable[[Tensor], Any]) -> Any:
        """Returns what is made of the entries of a sparse inner edge to draw its units in turn.

        It is made at first use, and again where J has changed since.
        """
        version = -1 if self[edge].is_inference() else self[edge]._version
        if self._in_turn.get(edge, (None,))[0] != version:
            self._in_turn[edge] = version, make(self[edge])
        return self._in_turn[edge][1]

    @cached_property
    def _in_turn(self) -> dict[int, tuple[int, Any]]:
        return {}

    def forget_digits(self) -> None:
        """Gives back the memory of what matrix units multiply, which is made again where it is asked for."""
        for part in vars(self).get("parts", ()):
            part.forget()

    @cached_property
    def _of_columns(self) -> dict[Hashable, tuple[Columns, Tensor]]:
        return {}

    def columns(self, edge: int, above: bool, columns: Tensor) -> Columns:
        """Returns the columns of J (of Jᵀ) that lead to some units, to multiply with."""
        key = (edge, above, id(columns))
        if self._of_columns.get(key, (None, None))[1] is not columns:  # as in a copy, which has others
            J, pattern = self[edge], self.patterns[edge]
            prepared: Columns
            if pattern is not None:
                prepared = SparseMatrix(J, pattern, columns, above)
            else:
                prepared = PreparedMatrix(J[columns].t() if above else J[:, columns])
            # Kept beside it, the columns cannot give their identity to others.
            self._of_columns[key] = prepared, columns
        return self._of_columns[key][0]

    def directions(self, edge: int, number: int) -> Tensor:
        """Returns the left singular vectors of the largest singular values of J, (width_l, directions).

        There are as many as asked for, or as J has; of a sparse coupling at most one less. They are found
        in float64.
        """
        pattern, J = self.patterns[edge], self[edge].detach()
        if pattern is None:
            vectors: Tensor = torch.linalg.svd(J.double(), full_matrices=False)[0]
            return vectors[:, :number]
        from scipy.sparse.linalg import LinearOperator, svds  # half a second

        number, values = min(number, min(pattern.shape) - 1), J.double()
        if number < 1:
            return values.new_zeros(pattern.shape[0], 0)

        def times(x: Any, transposed: bool) -> Any:
            rows = torch.from_numpy(x.reshape(1, -1)).to(values)
            return pattern.times(rows, values, transposed)[0].cpu().numpy()

        matrix = LinearOperator(
            pattern.shape, partial(times, transposed=True), partial(times, transposed=False), dtype=float
        )
        leading = svds(matrix, number, v0=np.ones(min(pattern.shape)), return_singular_vectors="u")[0][
            :, ::-1
        ].copy()
        return torch.from_numpy(leading).to(values)
