"""Encoders of arrays: how data become the states of a machine, and how samples come back in the data's units.

All take NumPy arrays and torch tensors of shape (rows, columns) and return the kind they were given.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium._checks import positive_int
from harmonium._random import as_generator
from harmonium._rows import Rows
from harmonium.data.encoder import Encoder, encoder_from_dict
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
from harmonium.sequences import READINGS, find_alphabet


class _Plain(Encoder, ABC):
    """Encoders that stretch nothing and whose states are in the units of the data, as far as they go."""

    def decode(self, X: Values) -> Values:
        _checks.numeric(X, "X")
        return X

    def log_slopes(self, width: int) -> tuple[float, ...]:
        return (0.0,) * width


@dataclass(frozen=True)
class Identity(_Plain):
    """The data as they are. ``decode`` restores everything."""

    def encode(self, X: Values) -> Values:
        _checks.numeric(X, "X")
        return X


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
            weights: of the rows, (rows,), at least 0 and not all 0; None: all count alike.

        Raises:
            TypeError, ValueError: as :meth:`Rows.of`.
        """
        mean, variance = (X if isinstance(X, Rows) else Rows.of(X)).mean_variance(weights)
        if not per_column:
            mean, variance = mean.mean(), variance.mean() + mean.var(correction=0)
        return cls.from_moments(mean, variance)

    @classmethod
    def from_moments(cls, mean: Tensor, variance: Tensor) -> Standardise:
        """Returns the encoder for data of these means and variances, both (columns,) or a number."""
        scale = torch.where(variance > 0, variance.sqrt(), 1.0)
        return cls(mean.cpu().numpy(), scale.cpu().numpy())  # type: ignore[arg-type]

    def encode(self, X: Values) -> Values:
        values = self._floating(X)
        return _float_like((values - like(self.mean, values)) / like(self.scale, values), X)

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


@dataclass(frozen=True)
class Threshold(_Plain):
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


@dataclass(frozen=True)
class BernoulliBinarise(_Plain):
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
    seed: int

    def __post_init__(self) -> None:
        if isinstance(self.seed, torch.Generator):
            raise TypeError("seed: expected an int, which can be stored, received a torch.Generator")
        as_generator(self.seed)

    def encode(self, X: Values) -> Values:
        return bernoulli_binarise(X, self.seed)


@dataclass(frozen=True)
class BitPlanes(_Plain):
    """The eight bit-planes of uint8 grey levels, (rows, d) -> (rows, 8 * d), most significant plane first.

    ``decode`` restores every level exactly, from values 0 and 1 only.

    Args:
        gray: whether neighbouring levels are to differ in one bit only (Gray code).
    """

    reads_levels: ClassVar[bool] = True
    gray: bool = False

    def spread(self, entries: Array) -> Array:
        return np.tile(entries, 8)

    def encode(self, X: Values) -> Values:
        return to_bit_planes(X, self.gray)

    def decode(self, X: Values) -> Values:
        return from_bit_planes(X, self.gray)


@dataclass(frozen=True)
class OneHot(_Plain):
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
        positive_int(self.n_states, "n_states", minimum=2)

    def spread(self, entries: Array) -> Array:
        return np.repeat(entries, self.n_states, 1)

    def encode(self, X: Values) -> Values:
        _checks.numeric(X, "X")
        values: Any = X
        if is_floating(X):
            refuse_where(
                ~library(X).isfinite(values) | (values.round() != values),
                X,
                f"integers 0..{self.n_states - 1}",
            )
        digits: Any = cast(X, library(X).int64)
        refuse_where((digits < 0) | (digits >= self.n_states), X, f"integers 0..{self.n_states - 1}")
        blocks: Any = digits[..., None] == like(range(self.n_states), digits)
        flat: Values = cast(blocks.reshape(len(X), -1), library(X).float32)
        return flat

    def decode(self, X: Values) -> Values:
        _checks.numeric(X, "X")
        if X.ndim != 2 or X.shape[1] % self.n_states:
            raise ValueError(
                f"X: expected blocks of {self.n_states} columns, received shape {tuple(X.shape)}"
            )
        blocks: Any = X.reshape(len(X), -1, self.n_states)
        largest: Values = blocks.argmax(-1)
        return largest


@dataclass(frozen=True)
class Letters(_Plain):
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

    @property
    def blocks(self) -> OneHot:
        """The encoder of the places."""
        return OneHot(len(self.alphabet))

    def spread(self, entries: Array) -> Array:
        return self.blocks.spread(entries)

    def encode(self, X: Values) -> Values:
        return self.blocks.encode(X)

    def decode(self, X: Values) -> Values:
        return self.blocks.decode(X)


@dataclass(frozen=True)
class Compose(Encoder):
    """Encoders one after the other; ``decode`` goes back through them in reverse and loses what each loses.

    Args:
        encoders: at least one; those that change the number of columns only in the last place.

    Raises:
        TypeError: something that is not an encoder.
        ValueError: none, or bit-planes or one-hot blocks before the last place.
    """

    encoders: tuple[Encoder, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoders", tuple(self.encoders))
        for encoder in self.encoders:
            if not isinstance(encoder, Encoder):
                raise TypeError(f"encoders: expected encoders, received {type(encoder).__name__}")
        if not self.encoders:
            raise ValueError("encoders: expected at least one, received none")
        if any(isinstance(encoder, (BitPlanes, OneHot, Letters)) for encoder in self.encoders[:-1]):
            raise ValueError("encoders: expected BitPlanes, OneHot or Letters in the last place only")
        object.__setattr__(self, "draws", any(encoder.draws for encoder in self.encoders))
        object.__setattr__(self, "reads_levels", self.encoders[0].reads_levels)

    def spread(self, entries: Array) -> Array:
        return self.encoders[-1].spread(entries)

    def encode(self, X: Values) -> Values:
        for encoder in self.encoders:
            X = encoder.encode(X)
        return X

    def decode(self, X: Values) -> Values:
        for encoder in reversed(self.encoders):
            X = encoder.decode(X)
        return X

    def log_slopes(self, width: int) -> tuple[float, ...]:
        each = [encoder.log_slopes(width) for encoder in self.encoders]
        return tuple(math.fsum(slopes) for slopes in zip(*each, strict=True))

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        return cls(tuple(encoder_from_dict(item) for item in values["encoders"]))


_BINARISERS: dict[str, Callable[[int], Encoder]] = {
    "none": lambda seed: Identity(),
    "threshold": lambda seed: Threshold(),
    "sample": BernoulliBinarise,
    "bit-planes": lambda seed: BitPlanes(),
    "gray-planes": lambda seed: BitPlanes(gray=True),
}
BINARISE = tuple(_BINARISERS)


def binariser(name: str, seed: int) -> Encoder:
    """Returns what makes 0 and 1 of grey levels: one of ``BINARISE``, with the seed of its draws."""
    return _BINARISERS[name](seed)


def _float_like(result: Any, X: Values) -> Values:
    """The floating dtype of ``X``, or float32 where ``X`` held integers."""
    floating: Values = cast(result, X.dtype if is_floating(X) else library(X).float32)
    return floating
