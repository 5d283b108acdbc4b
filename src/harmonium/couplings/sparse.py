"""Pairs of units that are joined, with couplings stored by pair."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from harmonium import _checks
from harmonium.backends import SparsityPattern
from harmonium.couplings.coupling import Coupling, refuse_two_values
from harmonium.layers import Layer

_LAST = 2**31 - 2  # whose number as a unit, and how many there are up to it, are an int32


@final
class Sparse(Coupling):
    """Couplings of some pairs of units, stored by pair: of a lattice, a hardware graph, a factor graph.

    Memory and time grow with the pairs and the units, not with the product of the units: a lattice of a
    million spins has two million weights. Beside ``Masked``, whose weights are a matrix, it pays where few
    of the pairs are joined.

    Args:
        pairs: units of the first and of the second layer that are joined, (pairs, 2) whole numbers from 0: an
            array, a tensor or an iterable of pairs; a ``networkx`` graph whose nodes are 0, 1, ...; or a
            ``scipy`` sparse matrix, whose values ``fill_`` takes. No pair comes twice; within a layer (i, j)
            and (j, i) are the same pair, which is kept with the smaller unit first. There a matrix whose
            entries lie symmetrically has each pair once. (Files hold it as a mapping.)

    Attributes:
        weight: learnable, one for each pair, in the order given: (pairs,); where a unit has several columns,
            blocks (pairs, columns of the first unit, columns of the second).
        pairs: the units of each pair, (pairs, 2) int64.

    Raises:
        TypeError: no whole numbers.
        ValueError: no pairs of units, one below 0 or that comes twice; or, once the coupling joins layers,
            one that the layers have not, or of a unit with itself.

    Examples:
        >>> import harmonium as hm
        >>> ring = hm.Sparse([(0, 1), (1, 2), (2, 3), (0, 3)])
        >>> machine = hm.BoltzmannMachine([hm.Spin(4)], {(0, 0): ring}, [0], seed=None)
        >>> machine.couplings[0].weight.shape, len(machine.graph.colours)
        (torch.Size([4]), 2)

        A matrix of couplings, symmetric or with one half alone:

        >>> import scipy.sparse
        >>> J = scipy.sparse.coo_array(([0.3, 0.3, -0.5, -0.5], ([0, 1, 1, 2], [1, 0, 2, 1])), (3, 3))
        >>> chain = hm.BoltzmannMachine([hm.Spin(3)], {(0, 0): hm.Sparse(J)}, [0])
        >>> chain.couplings[0].fill_(J)
        >>> chain.couplings[0].weight.tolist()
        [0.30000001192092896, -0.5]
    """

    kind: ClassVar[str] = "sparse"
    sparsity: SparsityPattern

    def __init__(self, pairs: Any) -> None:
        super().__init__()
        self.pairs = _unpack(pairs) if isinstance(pairs, Mapping) else _read_pairs(pairs)
        self._of_matrix = hasattr(pairs, "tocoo")

    def join(self, below: Layer, above: Layer) -> None:
        self._begin(below, above)
        pairs = self.pairs
        if self.inner:
            same = (pairs[:, 0] == pairs[:, 1]).nonzero()
            if len(same):
                raise ValueError(
                    f"pairs: expected different units for a coupling in a layer, received "
                    f"{tuple(pairs[int(same[0])].tolist())} as pair {int(same[0])}"
                )
            if self._of_matrix and _is_symmetric(pairs):
                pairs = pairs[pairs[:, 0] < pairs[:, 1]]
            pairs = pairs.sort(1).values
        for side, layer in enumerate((below, above)):
            if len(pairs) and int(pairs[:, side].max()) >= layer.n_units:
                raise ValueError(
                    f"pairs: expected units below {layer.n_units} of {layer} at place {side}, received "
                    f"{int(pairs[:, side].max())}"
                )
        keys = pairs[:, 0] * above.n_units + pairs[:, 1]
        ordered = keys.sort()
        again = (ordered.values[1:] == ordered.values[:-1]).nonzero()
        if len(again):
            pair = tuple(pairs[int(ordered.indices[int(again[0])])].tolist())
            advice = (
                "; scipy.sparse.triu(matrix) keeps the entries above the diagonal" if self._of_matrix else ""
            )
            raise ValueError(f"pairs: expected every pair of units once, received {pair} twice{advice}")
        self.pairs = pairs
        p, q = below.columns_per_unit, above.columns_per_unit
        self.sparsity = SparsityPattern(pairs, (below.n_units, above.n_units), (p, q), self.inner)
        self.weight = nn.Parameter(torch.zeros((len(pairs), p, q) if p * q > 1 else len(pairs)))

    def pattern(self, below: Layer, above: Layer) -> Tensor | None:
        return self.joined

    def config(self) -> dict[str, Any]:
        return {"pairs": _pack(self.pairs)}

    @property
    def joined(self) -> Tensor:
        return self.sparsity.dense(torch.ones(len(self.sparsity), device="cpu")).bool()

    def matrix(self) -> Tensor:
        return self.sparsity.to(self.weight.device).dense(self.weight.flatten())

    def natural(self, below: Tensor | None, above: Tensor | None) -> Tensor:
        J = self.weight.flatten()
        if below is not None:
            J = J * below[self.sparsity.rows.to(J.device)]
        return J if above is None else J * above[self.sparsity.columns.to(J.device)]

    def within(self, values: Tensor) -> Tensor:
        """Returns the weights, in the shape of ``weight``, as they are: all may be any number."""
        return values

    @torch.no_grad()
    def draw_(self, std: float, generator: torch.Generator) -> None:
        self.weight.normal_(std=std, generator=generator)

    @torch.no_grad()
    def fill_(self, values: Any) -> None:
        """Sets the weights.

        Args:
            values: in the shape of ``weight``, or one for all columns of each pair, (pairs,); or W,
                (width_l, width_m), of which the entries of the pairs are taken, as ``Masked`` does; or a
                ``scipy`` sparse matrix, (units of the first layer, units of the second), with an entry for
                each pair in any order. In a layer it has one half, or both with equal values.

        Raises:
            TypeError: no array or tensor of real numbers.
            ValueError: another shape; or a sparse matrix without a pair, with an entry elsewhere, or with two
                values for a pair.
        """
        if hasattr(values, "tocoo"):
            values = self._read_matrix(values)
        weight = _checks.tensor(values, "values", self.weight.dtype, self.weight.device)
        if weight.shape == self.sparsity.shape and weight.shape != self.weight.shape:
            if self.inner and not weight.is_meta:
                refuse_two_values(weight)
            weight = self.sparsity.to(weight.device).gather(weight).view_as(self.weight)
        elif weight.dim() == 1 and len(weight) == len(self.pairs) and self.weight.dim() == 3:
            weight = weight.view(-1, 1, 1).expand_as(self.weight)
        if weight.shape != self.weight.shape:
            raise ValueError(
                f"values: expected shape {tuple(self.weight.shape)}, one number for each pair, or a matrix "
                f"{self.sparsity.shape}, received {tuple(weight.shape)}"
            )
        self.weight.copy_(weight)

    def _read_matrix(self, matrix: Any) -> NDArray[Any]:
        """Returns the value of every pair, (pairs,), from a sparse matrix of scipy."""
        shape, pairs = self.sparsity.units, self.pairs.numpy()
        if matrix.shape != shape:
            raise ValueError(f"values: expected a sparse matrix of shape {shape}, received {matrix.shape}")
        entries = matrix.tocoo(copy=True)
        entries.sum_duplicates()
        units = np.stack([entries.row, entries.col], 1).astype(np.int64)
        units = np.sort(units, 1) if self.inner else units
        keys, entry_keys = (both[:, 0] * shape[1] + both[:, 1] for both in (pairs, units))

        def refuse(refused: NDArray[Any], expected: str, received: str) -> None:
            if len(refused):
                pair = divmod(int(refused[0]), shape[1])
                raise ValueError(f"values: expected {expected}, received {received} {pair}")

        refuse(np.setdiff1d(entry_keys, keys), "entries at the pairs alone", "one at")
        refuse(np.setdiff1d(keys, entry_keys), "an entry for every pair", "none for")
        order = np.argsort(keys)
        pair_index = order[np.searchsorted(keys, entry_keys, sorter=order)]
        values = np.empty(len(pairs), entries.data.dtype)
        values[pair_index] = entries.data
        unequal = ~np.isclose(values[pair_index], entries.data, rtol=0, atol=0, equal_nan=True)
        refuse(entry_keys[unequal], "equal halves in a layer", "two values for")
        return values


def _is_symmetric(pairs: Tensor) -> bool:
    """Returns whether the pairs are different, and each comes in either order."""
    different, turned = (np.unique(units.numpy(), axis=0) for units in (pairs, pairs.flip(1)))
    return len(different) == len(pairs) and np.array_equal(different, turned)


def _read_pairs(pairs: Any) -> Tensor:
    """Returns pairs of units as given, (pairs, 2) int64 on the CPU."""
    if hasattr(pairs, "tocoo"):  # a matrix of scipy
        entries = pairs.tocoo()
        pairs = np.stack([entries.row, entries.col], 1)
    elif hasattr(pairs, "edges") and hasattr(pairs, "nodes"):  # a graph of networkx
        unknown = next((node for node in pairs.nodes if not isinstance(node, int | np.integer)), None)
        if unknown is not None:
            raise TypeError(
                f"pairs: expected a graph whose nodes are the numbers of units, received the node "
                f"{unknown!r}; networkx.convert_node_labels_to_integers(graph) numbers them"
            )
        pairs = [(i, j) for i, j, *_ in pairs.edges]
    if isinstance(pairs, Tensor):
        pairs = pairs.numpy(force=True)
    elif not isinstance(pairs, np.ndarray):
        _checks.instance(pairs, "pairs", Iterable, "pairs of units")
        pairs = [*pairs]
    try:
        array = np.asarray(pairs).reshape(0, 2) if len(pairs) == 0 else np.asarray(pairs)
    except ValueError:
        array = np.empty(0)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"pairs: expected pairs of units, (pairs, 2), received shape {array.shape}")
    if len(array) and not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"pairs: expected whole numbers, received {array.dtype}; take pairs.astype(int)")
    for unit in (int(array.min()), int(array.max())) if len(array) else ():
        if not 0 <= unit <= _LAST:
            raise ValueError(f"pairs: expected units from 0 to {_LAST:,}, received {unit:,}")
    return torch.from_numpy(array.astype(np.int64))


def _pack(pairs: Tensor) -> dict[str, Any]:
    """Returns pairs as JSON has them: differences of successive ones, which compress well."""
    differences = np.diff(pairs.numpy(), axis=0, prepend=np.zeros((1, 2), np.int64)).astype("<i4")
    return {"count": len(pairs), "differences": b64encode(zlib.compress(differences.tobytes(), 6)).decode()}


def _unpack(packed: Mapping[str, Any]) -> Tensor:
    count = _checks.positive_int(packed["count"], "pairs", minimum=0)
    size = 8 * count
    stream = zlib.decompressobj()
    data = stream.decompress(b64decode(packed["differences"], validate=True), size + 1)
    if len(data) != size:
        raise ValueError(f"pairs: expected the units of {count} pairs, received {len(data)} bytes or more")
    differences = np.frombuffer(data, "<i4").astype(np.int64).reshape(count, 2)
    return _read_pairs(differences.cumsum(0))
