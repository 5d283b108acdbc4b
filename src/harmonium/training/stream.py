"""Data that come by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Stream(Protocol):
    """Batches in place of a matrix: something to iterate over that knows where it is.

    torchdata's ``StatefulDataLoader`` is one. ``train`` iterates over it once, and again whenever it ends.
    Several processes each iterate over a stream of their own, and all of them have to bring the same batches.
    """

    def __iter__(self) -> Iterator[Any]:
        """Batches (rows, visible_width), NumPy arrays or torch tensors, from where the state is."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the position after the last batch: tensors, numbers, strings, None, or lists, tuples and
        dicts of them."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes there: what is iterated over next begins with the batch after."""
