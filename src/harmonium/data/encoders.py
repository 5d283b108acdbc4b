"""Encoders: how data become the states of a machine, and how samples come back in the data's units.

Those of arrays stand here. They take NumPy arrays and torch tensors of shape (rows, columns) and return the
kind that they were given. ``harmonium.tables`` adds those of a table and of its columns to the registry.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Never, Self, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium._random import as_generator
from harmonium._rows import Rows
from harmonium.data.transforms import (
    BYTES,
    Array,
    Values,
    bernoulli_binarise,
    cast,
    is_floating,
    library,
    like,
    refuse_where,
    threshold,
)
from harmonium.sequences import READINGS, Alignment, find_alphabet


class Encoder(ABC):
    """A map from data to machine states with a way back.

    An encoder is a small immutable value, a dataclass, that is stored with the model (``to_dict``,
    ``encoder_from_dict``). It encodes every column of an array alike, or each by numbers of its own.
    """

    draws: ClassVar[bool] = False
    """True if ``encode`` draws noise: the states of a row then depend on its place among the others."""
    reads_levels: ClassVar[bool] = False
    """True if ``encode`` reads uint8 as grey levels, 0 to 255."""
    tabular: ClassVar[bool] = False
    """True if it encodes a ``Frame``, by its columns; else arrays."""
    takes_means: ClassVar[bool] = True
    """True if ``decode`` takes means of states too."""
    width: int = 1
    """Columns of states for each column of data; of a table, for all."""
    n_states: int = 2
    """States of a unit; 2 where there is no choice."""
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

    @abstractmethod
    def log_jacobian(self, states: Array) -> Array:
        """Returns ln |slope| of ``encode`` where it makes these states, (rows, columns); NaN where missing.

        Add those of the observed entries to a log-likelihood of encoded rows to have it in the units of the
        data. They are 0 for discrete states, where probabilities are of the states themselves.
        """

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
        observed = X[~hole]  # of which one stands in where there is none, and is not read
        states = self.encode(np.where(hole, observed[0] if len(observed) else 0.0, X))
        return np.where(self.spread(hole), np.nan, states)

    def spread(self, entries: Array) -> Array:
        """Returns something of every entry of data, (rows, columns), for every state that encodes it."""
        return np.repeat(entries, self.width, 1)

    def to_dict(self) -> dict[str, Any]:
        """The encoder in plain JSON types, for :func:`encoder_from_dict`."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.init}  # type: ignore[arg-type]
        return {"codec": type(self).__name__, **{name: _plain(value) for name, value in values.items()}}

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        """The encoder whose fields ``to_dict`` wrote.

        Raises:
            TypeError, ValueError: fields out of range.
        """
        return cls(**{name: tuple(x) if isinstance(x, list) else x for name, x in values.items()})


def encoder_from_dict(description: Mapping[str, Any]) -> Encoder:
    """The encoder that ``to_dict`` described, also after a round trip through JSON.

    Raises:
        TypeError: not a mapping.
        ValueError: an unknown codec, or fields that are missing, unknown or out of range.
    """
    if not isinstance(description, Mapping):
        raise TypeError(f"description: expected a mapping, received {type(description).__name__}")
    values = dict(description)
    kind = Encoder.registry.get(str(values.pop("codec", None)))
    if kind is None:
        raise ValueError(
            f"description: expected a codec among {', '.join(Encoder.registry)}, "
            f"received {description.get('codec')!r}"
        )
    expected = {field.name for field in fields(kind) if field.init}  # type: ignore[arg-type]
    try:
        if set(values) != expected:
            raise ValueError(f"expected fields {sorted(expected)}, received {sorted(values)}")
        return kind.from_fields(values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"description: {kind.__name__}: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, Encoder):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and math.isinf(value) else value  # as JSON has no infinity


class _Discrete(Encoder, ABC):
    """Encoders that stretch nothing, so that densities and probabilities are those of the states."""

    def log_jacobian(self, states: Array) -> Array:
        first = states[:, :: self.width]
        return np.where(np.isnan(first), np.nan, 0.0)


@final
@dataclass(frozen=True)
class Identity(_Discrete):
    """The data as they are. ``decode`` restores everything."""

    def encode(self, X: Values) -> Values:
        return X

    def decode(self, X: Values) -> Values:
        return X


@final
@dataclass(frozen=True)
class Standardise(Encoder):
    """``(X - mean) / scale``, per column or with one mean and scale for all.

    Floating dtypes are kept, integers become float32. ``decode`` restores the data up to rounding, as
    floating numbers.

    Args:
        mean: a number, or one per column.
        scale: positive, in the same form as ``mean``.

    Raises:
        ValueError: values that are not finite, a scale that is not positive, or forms that differ.
    """

    mean: float | tuple[float, ...]
    scale: float | tuple[float, ...]

    def __post_init__(self) -> None:
        mean, scale = np.asarray(self.mean, dtype=np.float64), np.asarray(self.scale, dtype=np.float64)
        if mean.shape != scale.shape or mean.ndim > 1 or mean.size == 0:
            raise ValueError(
                f"mean, scale: expected two numbers or two equally long vectors, "
                f"received shapes {mean.shape} and {scale.shape}"
            )
        if not (np.isfinite(mean) & np.isfinite(scale) & (scale > 0)).all():
            raise ValueError("mean, scale: expected finite numbers and a positive scale, received others")
        for name, value in (("mean", mean), ("scale", scale)):
            object.__setattr__(self, name, tuple(value.tolist()) if value.ndim else float(value))

    @classmethod
    def fit(cls, X: Any, per_column: bool = True, weights: Tensor | None = None) -> Standardise:
        """Mean and standard deviation of data; a deviation of zero becomes a scale of 1.

        Args:
            X: whatever :meth:`Rows.of` takes, or a :class:`Rows`; read once, in bounded memory.
            per_column: one mean and scale per column, or one of each for all columns together.
            weights: Row weights, (rows,), at least 0 and not all 0; None means uniform.

        Raises:
            TypeError, ValueError: as :meth:`Rows.of`.
        """
        rows = X if isinstance(X, Rows) else Rows.of(X)
        return cls.from_moments(*rows.mean_variance(weights), per_column)

    @classmethod
    def from_moments(cls, mean: Tensor, variance: Tensor, per_column: bool = True) -> Standardise:
        """Returns the encoder for data of these means and variances, both (columns,), as ``fit`` does."""
        if not per_column:
            mean, variance = mean.mean(), variance.mean() + mean.var(correction=0)
        scale = torch.where(variance > 0, variance.sqrt(), 1.0)
        return cls(mean.cpu().numpy(), scale.cpu().numpy())  # type: ignore[arg-type]

    @classmethod
    def of_bits(cls, low: float, high: float) -> Standardise:
        """Returns the encoder that makes the two states of a unit of 0 and 1."""
        return cls(-low / (high - low), 1 / (high - low))

    def encode(self, X: Values) -> Values:
        values = self._floating(X)
        return _float_like((values - like(self.mean, values)) / like(self.scale, values), X)

    def decode(self, X: Values) -> Values:
        values = self._floating(X)
        return _float_like(values * like(self.scale, values) + like(self.mean, values), X)

    def log_jacobian(self, states: Array) -> Array:
        return np.where(np.isnan(states), np.nan, -np.log(self.scale))

    def _floating(self, X: Any) -> Any:
        if isinstance(self.mean, tuple) and X.shape[1:] != (len(self.mean),):
            raise ValueError(f"X: expected {len(self.mean)} columns, received shape {tuple(X.shape)}")
        # Integers may need more digits than float32 has until the mean is taken off.
        return X if is_floating(X) else cast(X, library(X).float64)


@dataclass(frozen=True)
class _Bits(_Discrete, ABC):
    """Encoders of grey levels as the two states of units, 0 and 1 unless others are asked for."""

    reads_levels: ClassVar[bool] = True
    states: tuple[float, float] = field(default=(0.0, 1.0), kw_only=True)

    def encode(self, X: Values) -> Values:
        bits = self.bits_of(X)
        return bits if self.states == (0.0, 1.0) else Standardise.of_bits(*self.states).encode(bits)

    def decode(self, X: Values) -> Values:
        return self.levels_of(X if self.states == (0.0, 1.0) else Standardise.of_bits(*self.states).decode(X))

    @abstractmethod
    def bits_of(self, X: Values) -> Values:
        """Returns 0 and 1 for grey levels."""

    def levels_of(self, bits: Values) -> Values:
        """Returns grey levels of 0 and 1, or these as intensities where levels are lost."""
        return bits


@final
@dataclass(frozen=True)
class Threshold(_Bits):
    """1 above the cut, else 0, as :func:`harmonium.data.threshold` does.

    ``decode`` returns 0 and 1: which side of the cut is known, the intensity is lost.

    Args:
        at: the cut, in the units of the data; for uint8 as a fraction of 255.
        states: the two states of units that stand for 0 and 1.

    Raises:
        ValueError: a cut that is not finite.
    """

    at: float = 0.5

    def __post_init__(self) -> None:
        _checks.real(self.at, "at")

    def bits_of(self, X: Values) -> Values:
        return threshold(X, self.at)


@final
@dataclass(frozen=True)
class BernoulliBinarise(_Bits):
    """1 with the intensity as its probability, as :func:`harmonium.data.bernoulli_binarise` does.

    Every call starts from the seed, so the same data give the same bits, and two batches encoded apart share
    their noise: encode a whole set in one call. ``decode`` returns its argument: a mean state is an intensity
    in [0, 1]; the intensity behind a single 0 or 1 is lost.

    Args:
        seed: an int in [0, 2**63).
        states: the two states of units that stand for 0 and 1.

    Raises:
        TypeError, ValueError: another seed.
    """

    draws: ClassVar[bool] = True
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.seed, torch.Generator):
            raise TypeError("seed: expected an int, which can be stored, received a torch.Generator")
        as_generator(self.seed)

    def bits_of(self, X: Values) -> Values:
        return bernoulli_binarise(X, self.seed)


@final
@dataclass(frozen=True)
class BitPlanes(_Bits):
    """The eight bit-planes of uint8 grey levels, (rows, d) -> (rows, 8 * d), most significant plane first.

    Column ``p * d + j`` is bit ``7 - p`` of column j: the first d columns are the picture cut between 127 and
    128. ``decode`` restores every level exactly, from the two states only.

    Args:
        gray: whether neighbouring levels are to differ in one bit only (Gray code).
        states: the two states of units that stand for 0 and 1.
    """

    takes_means: ClassVar[bool] = False
    gray: bool = False
    width = 8

    def spread(self, entries: Array) -> Array:
        return np.tile(entries, 8)

    def bits_of(self, X: Values) -> Values:
        if X.dtype not in BYTES:
            raise TypeError(f"X: expected dtype uint8 (grey levels 0..255), received {X.dtype}")
        levels: Any = X ^ (X >> 1) if self.gray else X
        planes: Values = ((levels[:, None, :] >> _shifts(X)) & 1).reshape(X.shape[0], 8 * X.shape[1])
        return planes

    def levels_of(self, bits: Values) -> Values:
        values: Any = bits
        refuse_where((values != 0) & (values != 1), values, "values in {0, 1}", "planes")
        uint8 = library(bits).uint8
        planes = cast(values, uint8).reshape(len(values), 8, -1)
        levels: Any = (planes << _shifts(planes)).sum(1, dtype=uint8)
        for shift in (4, 2, 1) if self.gray else ():  # each bit is the parity of those above it
            levels = levels ^ (levels >> shift)
        restored: Values = levels
        return restored


def _shifts(X: Any) -> Any:
    return like(np.arange(7, -1, -1, dtype=np.uint8)[:, None], X)


class _Blocks(_Discrete, ABC):
    """Encoders of integers 0..q-1 as one-hot blocks of ``width`` = q columns."""

    def encode(self, X: Values) -> Values:
        values: Any = X
        whole = (values >= 0) & (values < self.width) & (values.round() == values if is_floating(X) else True)
        refuse_where(~whole, X, f"integers 0..{self.width - 1}")  # NaN too
        digits: Any = cast(X, library(X).int64)
        blocks: Any = digits[..., None] == like(range(self.width), digits)
        flat: Values = cast(blocks.reshape(len(X), -1), library(X).float32)
        return flat

    def decode(self, X: Values) -> Values:
        largest: Values = X.reshape(len(X), -1, self.width).argmax(-1)
        return largest


@final
@dataclass(frozen=True)
class OneHot(_Blocks):
    """Integers 0..q-1 as one-hot blocks, (rows, d) -> (rows, d * q), the states of a Categorical layer.

    ``decode`` returns the place of the largest entry of each block, as int64, so that it also takes
    probabilities.

    Args:
        n_states: q, at least 2.

    Raises:
        TypeError, ValueError: another number of states.
    """

    n_states: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", _checks.positive_int(self.n_states, "n_states", minimum=2))


@final
@dataclass(frozen=True)
class Letters(_Blocks):
    """Places of letters in an alphabet as one-hot blocks, for sequences (``OneHot``).

    ``decode`` returns places, which ``harmonium.sequences.write_fasta`` writes as letters.

    Args:
        alphabet: the letters in the order of their states.
        unknown: what letters that stand for several are taken as, see ``harmonium.data.read``.

    Raises:
        TypeError, ValueError: no alphabet, or another word for ``unknown``.
    """

    alphabet: str
    unknown: str = "gap"

    def __post_init__(self) -> None:
        _checks.instance(self.alphabet, "alphabet", str, "the letters")
        find_alphabet(self.alphabet, "")
        _checks.one_of(self.unknown, "unknown", READINGS)
        object.__setattr__(self, "width", len(self.alphabet))

    def check(self, alignment: Alignment | None) -> None:
        """Refuses sequences in other letters; None: there are no sequences."""
        if alignment is not None and self.alphabet != alignment.alphabet:
            raise ValueError(
                f"X: expected sequences in the letters {self.alphabet!r}, received those of "
                f"{alignment.alphabet!r}; read them with alphabet={self.alphabet!r}"
            )

    def refuse_sites(self, expected: int, received: int) -> Never:
        """Refuses a number of columns of states other than expected, both as sites."""
        expected, received = expected // self.width, received // self.width
        raise ValueError(
            f"X: expected aligned sequences of {expected} sites as in training, received {received}"
        )


BINARISERS: dict[str, Callable[[tuple[float, float], int], Encoder]] = {
    "none": lambda states, seed: Identity(),
    "threshold": lambda states, seed: Threshold(states=states),
    "sample": lambda states, seed: BernoulliBinarise(seed, states=states),
    "bit-planes": lambda states, seed: BitPlanes(states=states),
    "gray-planes": lambda states, seed: BitPlanes(gray=True, states=states),
}
"""Make the two states of units of grey levels, from the seed of their draws."""
BINARISE = tuple(BINARISERS)


def _float_like(result: Any, X: Values) -> Values:
    """The floating dtype of ``X``, or float32 where ``X`` held integers."""
    floating: Values = cast(result, X.dtype if is_floating(X) else library(X).float32)
    return floating
