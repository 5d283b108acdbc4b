"""A matrix of int8 as the fastest product of this processor takes it: in tiles of 64 by 64.

oneDNN multiplies bytes with a matrix that stands in tiles, column of tiles by column of tiles; within a tile
four rows are interleaved, which is what the processor's instructions add up at once. Torch has the product
and a way to such a matrix that takes longer than the product itself, so ``compiled.tiles.split`` writes the
tiles in their place. The operators are not part of torch's public surface: each shape is compared with
torch's own tiles when it is first met.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor

from harmonium.compiled import serving

SIZE: Final = 64
"""Rows and columns of a tile."""
_SHAPES = 64  # that spare memory is kept for


@final
class Tiles:
    """An int8 matrix (k, n), zero until its words are written.

    Attributes:
        words: (n / 64, k / 64, 16, 64), rounded up, uint32: a word has four rows of a column, the first in
            its lowest byte. They may be written for as long as this lives.
    """

    def __init__(self, k: int, n: int) -> None:
        self._spare = _spare(k, n)
        try:
            self._packed = self._spare.pop()
        except IndexError:
            self._packed = _packed(k, n).clone()
        self.words, self._sums = _parts(self._packed, k, n)
        self._zero_points = torch.zeros(n, dtype=torch.int64, device="cpu")

    def __del__(self) -> None:
        self._spare.append(self._packed)

    def sum_columns(self) -> None:
        """Has to be called after the words were written and before a product whose zero is not 0."""
        serving.over_tiles("sum_columns", len(self.words), _bytes(self.words), self._sums)

    def add_product(self, x: Tensor, zero: int, units: Tensor, total: Tensor | None) -> Tensor:
        """(x - zero) @ self · units, added to ``total`` in place if there is one.

        Args:
            x: (m, k), uint8, contiguous.
            zero: the entry of x that stands for 0.
            units: (n,), float32.
            total: (m, n), float32.

        Returns:
            The total. What is rounded is the product with the unit and the sum.
        """
        product = torch.ops.onednn.qlinear_pointwise
        weights = (x, 1.0, zero, self._packed, units, self._zero_points)
        if total is None:
            made: Tensor = product(*weights, None, 1.0, 0, torch.float32, "none", [], "")
            return made
        product.binary(*weights, total, None, 1.0, 0, torch.float32, 1.0, 0, "sum", 1.0, "none", [], "")
        return total


def serves(k: int, n: int) -> bool:
    """Whether matrices of this shape can be had, and are laid out as described."""
    return _packed(k, n) is not None


@lru_cache(_SHAPES)
def _spare(k: int, n: int) -> list[Tensor]:
    """Memory of such matrices that nobody holds any more: whatever is written anew."""
    return []


@lru_cache(_SHAPES)
def _packed(k: int, n: int) -> Any:
    """A zero matrix in torch's own layout, None where it has none or another one."""
    try:
        rows = torch.arange(k, device="cpu").unsqueeze(1)
        known = ((37 * rows + 101 * torch.arange(n, device="cpu") + rows // 7) % 256 - 128).to(torch.int8)
        packed = torch.ops.onednn.qlinear_prepack(known.t().contiguous(), None)
        tiles, tile_rows = -(-n // SIZE), -(-k // SIZE)
        if torch.ops.mkldnn._nbytes(packed) != tiles * SIZE * (tile_rows * SIZE + 4):
            return None
        words, sums = _parts(packed, k, n)
        there = _bytes(words).transpose(1, 2, 4, 0, 3).reshape(tile_rows * SIZE, tiles * SIZE)
        expected = np.zeros_like(there)
        expected[:k, :n] = known.numpy()
        if not (np.array_equal(there, expected) and np.array_equal(sums, -expected.sum(0, dtype=np.int32))):
            return None
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):
        return None
    words[:] = 0
    sums[:] = 0
    return packed


def _parts(packed: Tensor, k: int, n: int) -> tuple[Any, Any]:
    """The words of a matrix in torch's layout, and minus the sums of its columns, which follow them."""
    tiles, tile_rows = -(-n // SIZE), -(-k // SIZE)
    size = tiles * SIZE * (tile_rows * SIZE + 4)
    place: Any = (ctypes.c_char * size).from_address(torch.ops.mkldnn.data_ptr(packed))
    memory = np.frombuffer(place, np.uint32)
    words = memory[: -tiles * SIZE].reshape(tiles, tile_rows, SIZE // 4, SIZE)
    return words, memory[-tiles * SIZE :].view(np.int32)


def _bytes(words: Any) -> Any:
    """The four numbers of each word along an axis of their own."""
    return words.view(np.int8).reshape(*words.shape, 4)
