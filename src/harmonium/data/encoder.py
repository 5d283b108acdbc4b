"""The interface of encoders, and their storage."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor

from harmonium.data.transforms import Array, Values


class Encoder(ABC):
    """A map from data to machine states with a way back.

    An encoder is a small immutable value, a dataclass, that is stored with the model (``to_dict``,
    ``encoder_from_dict``).
    """

    draws: ClassVar[bool] = False
    """True if ``encode`` draws noise: the states of a row then depend on its place among the others."""
    tabular: ClassVar[bool] = False
    """True if it encodes a ``Frame``, by its columns; else arrays, whose columns are of one kind."""
    reads_levels: ClassVar[bool] = False
    """True if ``encode`` reads uint8 as grey levels, 0 to 255."""
    registry: ClassVar[dict[str, type[Encoder]]] = {}
    """Every kind of encoder by name."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if ABC not in cls.__bases__:
            Encoder.registry[cls.__name__] = cls

    @abstractmethod
    def encode(self, X: Values) -> Values:
        """Data (rows, columns) as machine states."""

    @abstractmethod
    def decode(self, X: Values) -> Values:
        """Machine states in the units of the data; each encoder says what is restored and what is lost."""

    def encode_cells(self, X: Any) -> Array:
        """Returns the states of rows, (rows, columns), in which NaN is a missing cell, and of its whole unit.

        Numbers are read in float64, but for the uint8 of grey levels.
        """
        X = X.cpu().numpy() if isinstance(X, Tensor) else X
        if X.dtype != np.uint8 or not self.reads_levels:
            X = X.astype(np.float64, copy=False)
        hole = np.isnan(X) if X.dtype.kind == "f" else np.zeros((), dtype=bool)
        if not hole.any():
            return np.asarray(self.encode(X))
        given = X[~hole]  # some value that the encoder takes stands in where there is none, and is not read
        states = self.encode(np.where(hole, given[0] if len(given) else 0.0, X))
        return np.where(self.spread(hole), np.nan, states)

    def width_of(self, columns: int) -> int:
        """Returns the columns of states of data with so many columns."""
        zeros = np.zeros((1, columns), np.uint8 if self.reads_levels else np.float64)
        return int(self.encode_cells(zeros).shape[1])  # every encoder takes zeros

    def spread(self, entries: Array) -> Array:
        """Returns something of every entry of data, (rows, columns), for every state that encodes it."""
        return entries

    @abstractmethod
    def log_slopes(self, width: int) -> tuple[float, ...]:
        """ln |slope| of ``encode`` in each of ``width`` columns of data.

        Add those of the observed entries to a log-likelihood of encoded rows to have it in the units of the
        data. They are 0 for encoders into discrete states, where probabilities are of the states themselves.
        """

    def log_abs_det(self, width: int) -> float:
        """ln |det| of ``encode`` on rows of ``width`` columns, the sum of ``log_slopes``."""
        return math.fsum(self.log_slopes(width))

    def to_dict(self) -> dict[str, Any]:
        """The encoder in plain JSON types, for :func:`encoder_from_dict`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"kind": type(self).__name__, **{name: _plain(value) for name, value in values.items()}}

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        """The encoder whose fields ``to_dict`` wrote.

        Raises:
            TypeError, ValueError: fields out of range.
        """
        return cls(**values)


def encoder_from_dict(description: Mapping[str, Any]) -> Encoder:
    """The encoder that ``to_dict`` described, also after a round trip through JSON.

    Raises:
        TypeError: not a mapping.
        ValueError: an unknown kind, or fields that are missing, unknown or out of range.
    """
    if not isinstance(description, Mapping):
        raise TypeError(f"description: expected a mapping, received {type(description).__name__}")
    values = dict(description)
    kind = Encoder.registry.get(str(values.pop("kind", None)))
    if kind is None:
        raise ValueError(
            f"description: expected a kind among {', '.join(Encoder.registry)}, "
            f"received {description.get('kind')!r}"
        )
    expected = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if set(values) != expected:
        raise ValueError(
            f"description: expected {kind.__name__} with fields {sorted(expected)}, received {sorted(values)}"
        )
    try:
        return kind.from_fields(values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"description: {kind.__name__}: {error}") from error


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
