"""Encoders: how data become the states of a machine, and how samples come back in the data's units.

Those of arrays stand here. They take NumPy arrays and torch tensors of shape (rows, columns) and return the
kind that they were given. ``harmonium.tables`` adds those of a table and of its columns to the registry.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Never, Self, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium._random import as_generator
from harmonium._rows import Rows
from harmonium.data.transforms import (
    Array,
    Values,
    bernoulli_binarise,
    cast,
    check_uint8,
    from_bit_planes,
    is_floating,
    library,
    like,
    refuse_where,
    threshold,
    to_bit_planes,
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
    curved: bool = False
    """True if the slope of ``encode`` differs from state to state."""
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

    def expected(self) -> str:
        """Describes the cells of a column that have a state."""
        return "a number"

    def spread(self, entries: Array) -> Array:
        """Returns something of every entry of data, (rows, columns), for every state that encodes it."""
        return entries if self.width == 1 else np.repeat(entries, self.width, 1)

    @abstractmethod
    def log_slopes(self, width: int) -> tuple[float, ...]:
        """ln |slope| of ``encode`` in each of ``width`` columns of data.

        Add those of the observed entries to a log-likelihood of encoded rows to have it in the units of the
        data. They are 0 for encoders into discrete states, where probabilities are of the states themselves.
        """

    def log_slopes_at(self, states: Array) -> Array:
        """ln |slope| of ``encode`` where it makes these states, (rows, columns); NaN where missing."""
        first = states[:, :: self.width]
        return np.where(np.isnan(first), np.nan, self.log_slopes(first.shape[1]))

    def log_abs_det(self, width: int) -> float:
        """ln |det| of ``encode`` on rows of ``width`` columns, the sum of ``log_slopes``."""
        return math.fsum(self.log_slopes(width))

    def to_dict(self) -> dict[str, Any]:
        """The encoder in plain JSON types, for :func:`encoder_from_dict`."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.init}  # type: ignore[arg-type]
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
    expected = {field.name for field in fields(kind) if field.init}  # type: ignore[arg-type]
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


class Unstretched(Encoder, ABC):
    """Encoders that stretch nothing, so that densities and probabilities are those of the states."""

    def log_slopes(self, width: int) -> tuple[float, ...]:
        return (0.0,) * width


class _Kept(Unstretched, ABC):
    """Encoders whose states are in the units of the data, as far as they go."""

    def decode(self, X: Values) -> Values:
        _checks.numeric(X, "X")
        return X


@final
@dataclass(frozen=True)
class Identity(_Kept):
    """The data as they are. ``decode`` restores everything."""

    def encode(self, X: Values) -> Values:
        _checks.numeric(X, "X")
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
        low: the least state, below which there is none (NaN); None: no bound.
        high: the largest state; None: no bound.

    Raises:
        ValueError: values that are not finite, a scale that is not positive, or forms that differ.
    """

    mean: float | tuple[float, ...]
    scale: float | tuple[float, ...]
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        mean, scale = np.asarray(self.mean, dtype=np.float64), np.asarray(self.scale, dtype=np.float64)
        if mean.shape != scale.shape or mean.ndim > 1 or mean.size == 0:
            raise ValueError(
                f"mean, scale: expected two numbers or two equally long vectors, "
                f"received shapes {mean.shape} and {scale.shape}"
            )
        if not np.isfinite(mean).all():
            raise ValueError("mean: expected finite numbers, received NaN or infinity")
        if not (np.isfinite(scale) & (scale > 0)).all():
            raise ValueError("scale: expected finite positive numbers, received another value")
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
        return cls.from_moments(
            *(X if isinstance(X, Rows) else Rows.of(X)).mean_variance(weights), per_column
        )

    @classmethod
    def from_moments(cls, mean: Tensor, variance: Tensor, per_column: bool = True) -> Standardise:
        """Returns the encoder for data of these means and variances, both (columns,), as ``fit`` does."""
        if not per_column:
            mean, variance = mean.mean(), variance.mean() + mean.var(correction=0)
        scale = torch.where(variance > 0, variance.sqrt(), 1.0)
        return cls(mean.cpu().numpy(), scale.cpu().numpy())  # type: ignore[arg-type]

    def of_column(self, j: int) -> Standardise:
        """Returns the encoder of column j alone."""
        mean, scale = (x[j] if isinstance(x, tuple) else x for x in (self.mean, self.scale))
        return Standardise(mean, scale, self.low, self.high)

    def expected(self) -> str:
        if self.high is not None and not isinstance(self.mean, tuple) and not isinstance(self.scale, tuple):
            return f"a number in [{self.mean:g}, {self.mean + self.scale:g}] as in fit"
        return "a number" if self.low is None else "a number from 0"

    def encode(self, X: Values) -> Values:
        values = self._floating(X)
        states = _float_like((values - like(self.mean, values)) / like(self.scale, values), X)
        for bound, sign in ((self.low, 1), (self.high, -1)):
            if bound is not None:
                states = library(X).where(sign * states >= sign * bound, states, math.nan)
        return states

    def decode(self, X: Values) -> Values:
        values = self._floating(X)
        return _float_like(values * like(self.scale, values) + like(self.mean, values), X)

    def log_slopes(self, width: int) -> tuple[float, ...]:
        scales = (self.scale,) * width if isinstance(self.scale, float) else self.scale
        if width != len(scales):
            raise ValueError(f"width: expected {len(scales)}, received {width}")
        return tuple(-math.log(scale) for scale in scales)

    def _floating(self, X: Any) -> Any:
        _checks.numeric(X, "X")
        if isinstance(self.mean, tuple) and (X.ndim != 2 or X.shape[1] != len(self.mean)):
            raise ValueError(f"X: expected {len(self.mean)} columns, received shape {tuple(X.shape)}")
        # Integers may need more digits than float32 has until the mean is taken off.
        return cast(X, X.dtype if is_floating(X) else library(X).float64)


@final
@dataclass(frozen=True)
class Scale(Encoder):
    """uint8 grey levels 0..255 as float32 intensities in [0, 1].

    ``decode`` rounds to the nearest level and clips to 0..255; it restores every level exactly.
    """

    reads_levels: ClassVar[bool] = True

    def encode(self, X: Values) -> Values:
        _checks.numeric(X, "X")
        check_uint8(X)
        intensities: Values = cast(X, library(X).float32) / 255
        return intensities

    def decode(self, X: Values) -> Values:
        _checks.numeric(X, "X")
        values: Any = cast(X, library(X).float32)
        refuse_where(values != values, X, "numbers")
        # Clipped first: what lies beyond 0..255, infinity included, has no defined cast to uint8.
        levels: Values = cast((values.clip(0, 1) * 255).round(), library(X).uint8)
        return levels

    def log_slopes(self, width: int) -> tuple[float, ...]:
        return (-math.log(255),) * width


@final
@dataclass(frozen=True)
class Threshold(_Kept):
    """1 above the cut, else 0, as :func:`harmonium.data.threshold` does.

    ``decode`` returns its argument: which side of the cut is known, the intensity is lost.

    Args:
        at: the cut, in the units of the data; for uint8 as a fraction of 255.

    Raises:
        ValueError: a cut that is not finite.
    """

    reads_levels: ClassVar[bool] = True
    at: float = 0.5

    def __post_init__(self) -> None:
        if not math.isfinite(self.at):
            raise ValueError(f"at: expected a finite number, received {self.at}")

    def encode(self, X: Values) -> Values:
        return threshold(X, self.at)


@final
@dataclass(frozen=True)
class BernoulliBinarise(_Kept):
    """1 with the intensity as its probability, as :func:`harmonium.data.bernoulli_binarise` does.

    Every call starts from the seed, so the same data give the same bits, and two batches encoded apart share
    their noise: encode a whole set in one call. ``decode`` returns its argument: a mean state is an intensity
    in [0, 1]; the intensity behind a single 0 or 1 is lost.

    Args:
        seed: an int in [0, 2**63).

    Raises:
        TypeError, ValueError: another seed.
    """

    reads_levels: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.seed, torch.Generator):
            raise TypeError("seed: expected an int, which can be stored, received a torch.Generator")
        as_generator(self.seed)

    def encode(self, X: Values) -> Values:
        return bernoulli_binarise(X, self.seed)


@final
@dataclass(frozen=True)
class BitPlanes(Unstretched):
    """The eight bit-planes of uint8 grey levels, (rows, d) -> (rows, 8 * d), most significant plane first.

    ``decode`` restores every level exactly, from values 0 and 1 only.

    Args:
        gray: whether neighbouring levels are to differ in one bit only (Gray code).
    """

    reads_levels: ClassVar[bool] = True
    takes_means: ClassVar[bool] = False
    gray: bool = False
    width = 8

    def spread(self, entries: Array) -> Array:
        return np.tile(entries, 8)

    def encode(self, X: Values) -> Values:
        return to_bit_planes(X, self.gray)

    def decode(self, X: Values) -> Values:
        return from_bit_planes(X, self.gray)


class _Blocks(Unstretched, ABC):
    """Encoders of integers 0..q-1 as one-hot blocks of ``width`` = q columns."""

    def encode(self, X: Values) -> Values:
        _checks.numeric(X, "X")
        values: Any = X
        expected = f"integers 0..{self.width - 1}"
        if is_floating(X):
            refuse_where(~library(X).isfinite(values) | (values.round() != values), X, expected)
        digits: Any = cast(X, library(X).int64)
        refuse_where((digits < 0) | (digits >= self.width), X, expected)
        blocks: Any = digits[..., None] == like(range(self.width), digits)
        flat: Values = cast(blocks.reshape(len(X), -1), library(X).float32)
        return flat

    def decode(self, X: Values) -> Values:
        _checks.numeric(X, "X")
        if X.ndim != 2 or X.shape[1] % self.width:
            raise ValueError(f"X: expected blocks of {self.width} columns, received shape {tuple(X.shape)}")
        blocks: Any = X.reshape(len(X), -1, self.width)
        largest: Values = blocks.argmax(-1)
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


@final
@dataclass(frozen=True)
class Compose(Encoder):
    """Encoders one after the other; ``decode`` goes back through them in reverse and loses what each loses.

    Args:
        encoders: At least one encoder, of which at most one changes the number of columns.

    Raises:
        TypeError: something that is not an encoder.
        ValueError: none, or several bit-planes or one-hot blocks.
    """

    encoders: tuple[Encoder, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoders", tuple(self.encoders))
        for encoder in self.encoders:
            if not isinstance(encoder, Encoder):
                raise TypeError(f"encoders: expected encoders, received {type(encoder).__name__}")
        if not self.encoders:
            raise ValueError("encoders: expected at least one, received none")
        wide = [str(encoder) for encoder in self.encoders if encoder.width != 1]
        if len(wide) > 1:
            raise ValueError(
                "encoders: expected at most one that changes the number of columns (BitPlanes, OneHot, "
                f"Letters), received {', '.join(wide)}"
            )
        object.__setattr__(self, "draws", any(encoder.draws for encoder in self.encoders))
        object.__setattr__(self, "reads_levels", self.encoders[0].reads_levels)
        object.__setattr__(self, "takes_means", all(encoder.takes_means for encoder in self.encoders))
        object.__setattr__(self, "width", math.prod(encoder.width for encoder in self.encoders))

    def spread(self, entries: Array) -> Array:
        for encoder in self.encoders:
            entries = encoder.spread(entries)
        return entries

    def encode(self, X: Values) -> Values:
        for encoder in self.encoders:
            X = encoder.encode(X)
        return X

    def decode(self, X: Values) -> Values:
        for encoder in reversed(self.encoders):
            X = encoder.decode(X)
        return X

    def log_slopes(self, width: int) -> tuple[float, ...]:
        if self.width != 1:
            return (0.0,) * width  # whose states are discrete
        parts = [encoder.log_slopes(width) for encoder in self.encoders]
        return tuple(math.fsum(slopes) for slopes in zip(*parts, strict=True))

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        return cls(tuple(encoder_from_dict(item) for item in values["encoders"]))


BINARISERS: dict[str, Callable[[int], Encoder]] = {
    "none": lambda seed: Identity(),
    "threshold": lambda seed: Threshold(),
    "sample": BernoulliBinarise,
    "bit-planes": lambda seed: BitPlanes(),
    "gray-planes": lambda seed: BitPlanes(gray=True),
}
"""Make 0 and 1 of grey levels, from the seed of their draws."""
BINARISE = tuple(BINARISERS)


def _float_like(result: Any, X: Values) -> Values:
    """The floating dtype of ``X``, or float32 where ``X`` held integers."""
    floating: Values = cast(result, X.dtype if is_floating(X) else library(X).float32)
    return floating
