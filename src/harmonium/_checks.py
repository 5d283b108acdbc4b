"""Checks of arguments and of values from files: every message names what was expected and what received."""

from __future__ import annotations

import difflib
import reprlib
import sys
import warnings
from collections.abc import Callable, Iterable
from math import inf, isfinite
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Numbers = Tensor | NDArray[Any]
"""The types accepted for data, states and clamps; see ``tensor``."""

# NumPy has no bfloat16; such numbers pass through float32.
_NUMPY_DTYPES = {torch.float16: np.float16, torch.float64: np.float64}

# Weights that are so many times the least, but for rounding, are repetitions of rows.
_REPEATS, _ROUNDING = 1e6, 1e-9

_WITHIN = frozenset(("harmonium", "joblib", "sklearn", "torch"))  # which wrap what users call


_LARGEST_INT = 2**63 - 1  # that torch takes for a size


def positive_int(value: Any, name: str, minimum: int = 1) -> int:
    """Returns ``value`` as an int of at least ``minimum``, and of at most 64 bits."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected an int, received {type(value).__name__} ({value!r})")
    number = int(value)
    if number < minimum:
        raise ValueError(f"{name}: expected an int of at least {minimum}, received {number}")
    if number > _LARGEST_INT:
        raise ValueError(f"{name}: expected an int below 2^63, received one of {number.bit_length()} bits")
    return number


def real(value: Any, name: str, low: float = -inf, high: float = inf, closed: str = "both") -> float:
    """Returns ``value`` as a finite float from low to high; ends as for ``harmonium._settings.Interval``."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: expected a number, received {type(value).__name__} ({value!r})")
    try:
        number = float(value)
    except OverflowError:  # a whole number that is too large
        number = inf
    has_low, has_high = closed in ("both", "left"), closed in ("both", "right")
    above = number >= low if has_low else number > low
    below = number <= high if has_high else number < high
    if not (above and below and isfinite(number)):
        within = f" in {'[' if has_low else '('}{low:.12g}, {high:.12g}{']' if has_high else ')'}"
        if high == inf:
            start = "above 0" if 0 < low < 1e-37 else f"{'of at least' if has_low else 'above'} {low:g}"
            within = "" if low == -inf else f" {start}"
        raise ValueError(f"{name}: expected a finite number{within}, received {number}")
    return number


def instance(value: Any, name: str, kind: Any, expected: str) -> None:
    """Refuses anything that is not of a type."""
    if not isinstance(value, kind):
        raise TypeError(f"{name}: expected {expected}, received {type(value).__name__}")


def reals(values: Any, name: str) -> list[float]:
    """Returns numbers, one after the other, as floats."""
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: expected a sequence of numbers, received {reprlib.repr(values)}") from error


def numeric(value: Any, name: str) -> None:
    """Refuses anything but a NumPy array or a dense tensor of real numbers or booleans."""
    instance(value, name, Tensor | np.ndarray, "a numpy array or torch tensor")
    if isinstance(value, Tensor):
        if value.layout is not torch.strided or value.is_complex() or value.is_quantized:
            raise TypeError(
                f"{name}: expected a dense tensor of real numbers, received {value.layout} of {value.dtype}"
            )
    elif isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: expected a plain array, received a masked array; fill it first")
    elif value.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected a numeric or boolean dtype, received {value.dtype}")


def tensor(value: Numbers, name: str, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """Reads data, states or clamps as every public function takes them: one rule for all.

    A NumPy array or a dense tensor, of any real dtype (floats, integers, booleans), on any device, is brought
    to the dtype and the device of the machine; shape and support are looked at afterwards, so that what is
    checked is what is computed with. Numbers that the machine's dtype cannot hold become infinite, which no
    unit takes. Everything else (lists, complex numbers, objects, sparse tensors) is refused by name.

    Args:
        value: what was given. A tensor that is as it should be comes back itself, and a fitting array shares
            its memory.
        name: what to call it in messages.
        dtype: floating.
        device: None: where a tensor is, and the CPU for an array.

    Raises:
        TypeError: another type of object, or numbers that are not real.
    """
    numeric(value, name)
    if isinstance(value, np.ndarray):
        # NumPy converts: torch takes no foreign byte orders, not every integer, no memory that is read-only.
        with np.errstate(over="ignore"):
            value = torch.from_numpy(np.require(value, _NUMPY_DTYPES.get(dtype, np.float32), ["C", "W"]))
    return value.to(device=device, dtype=dtype)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line of the caller's own code that led here: the first outside of this package."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _WITHIN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def one_of(value: Any, name: str, known: Iterable[str]) -> str:
    """Returns ``value`` if it is one of the known words."""
    words = sorted(known)
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"{name}: expected one of {', '.join(words)}; received {value!r}")
    return value


def add_kind(registry: dict[str, Any], name: str, cls: type) -> None:
    """Adds a class to a registry by its ``kind``; one made again, as in a notebook, replaces the last.

    Raises:
        ValueError: the kind of another class of the package, whose files would then be read as this one.
    """
    known = registry.get(name, cls)
    redefined = (known.__module__, known.__qualname__) == (cls.__module__, cls.__qualname__)
    if known.__module__.startswith("harmonium.") and not redefined:
        raise ValueError(
            f"kind: expected another for {cls.__qualname__} than {name!r}, which is that of "
            f"{known.__module__}.{known.__qualname__}"
        )
    registry[name] = cls


autocast: Callable[[], bool] = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)
"""Returns whether autocast is on for any device: one cheap check before ``outside_autocast``."""


def close_to(word: str, known: Iterable[str]) -> str:
    """Returns the end of a message that names what was perhaps meant; empty where nothing is close."""
    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.5)
    return f"; close to it: {', '.join(close)}" if close else ""


def outside_autocast(kind: str) -> None:
    """Refuses to compute on a kind of device where torch would multiply in 16 bits.

    Raises:
        ValueError: inside ``torch.autocast``.
    """
    if (kind == "cpu" or torch.amp.is_autocast_available(kind)) and torch.is_autocast_enabled(kind):
        raise ValueError(
            f'machine: expected to compute outside torch.autocast("{kind}"), received a call inside, '
            "where products lose their digits (log-likelihoods are off by tenths of a nat); write "
            f'with torch.autocast("{kind}", enabled=False): around it'
        )


def squares(x: Tensor, name: str) -> None:
    """Refuses values so large that their squares are not finite."""
    if not bool(torch.isfinite(x.square().sum())):
        largest = float(x.abs().max())
        raise ValueError(f"{name}: expected values whose squares {x.dtype} can hold, received {largest:g}")


def observed(x: Tensor) -> bool:
    """Returns whether no entry is NaN, so that every entry of the data is observed."""
    return not bool(x.isnan().any())


def finite(x: Tensor, name: str) -> None:
    """Refuses NaN and infinity, naming the first place."""
    bad = ~torch.isfinite(x)
    if bool(bad.any()):
        index = tuple(torch.nonzero(bad)[0].tolist())
        raise ValueError(f"{name}: expected finite values, received {x[index].item()} at {index}")


def weights(value: Any, name: str, rows: int) -> Tensor | None:
    """Returns weights of rows on one scale, float64 on the CPU, (rows,), so that only their ratios count.

    Whole multiples of the least weight above 0 stand for so many equal rows, and the least becomes 1. Others
    get a mean of 1 over the rows that have any. What is smoothed, or counts rows, reads these.

    Args:
        value: finite, at least 0 and not all 0; None stays None.
        name: what to call it in messages.
        rows: how many there are.

    Raises:
        TypeError, ValueError: other weights.
    """
    if value is None:
        return None
    try:
        array = value.detach().cpu() if isinstance(value, Tensor) else np.array(value, dtype=np.float64)
        x = torch.as_tensor(array, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        received = f"{type(value).__name__} ({str(error).splitlines()[0]})"
        raise TypeError(f"{name}: expected a number for each row or None, received {received}") from error
    if x.shape != (rows,):
        raise ValueError(f"{name}: expected one for each of {rows} rows, received shape {tuple(x.shape)}")
    bad = ~((x >= 0) & x.isfinite())
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ValueError(
            f"{name}: expected finite numbers of at least 0, received {x[row].item():g} for row {row}"
        )
    if not 0 < float(x.sum()) < float("inf"):
        raise ValueError(
            f"{name}: expected a weight above zero, of a finite sum, received {float(x.sum()):g}"
        )
    times = x / x[x > 0].min()
    whole = times.round()
    if float(times.max()) <= _REPEATS and bool(((times - whole).abs() <= _ROUNDING * times).all()):
        return whole
    return x / x[x > 0].mean()
