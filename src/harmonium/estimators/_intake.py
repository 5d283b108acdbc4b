"""From what an estimator is given to the states of its machine, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data
from torch import Tensor

from harmonium import _checks
from harmonium._fetch import is_sparse
from harmonium.data import DataSet, Encoder, Frame, frame_of, is_frame
from harmonium.data.frame import differ_in_kind
from harmonium.data.transforms import full_intensity
from harmonium.layers import Layer
from harmonium.tables import Codec, Table, blank_rows

Array = NDArray[Any]

_ROWS = 4096


def validated(estimator: Any, X: Any, *, reset: bool, sparse: bool = True) -> Any:
    """The rows that an estimator is given, looked at as scikit-learn does.

    Args:
        estimator: of which ``visible`` is read where it is being fitted, and else ``encoder_``.
        X: a data frame, an array, a sparse matrix or a list of rows.
        reset: whether it is being fitted, so that the names and the number of columns are taken from X.
        sparse: whether a sparse matrix is taken.

    Returns:
        A ``Frame`` where a table stands between rows and machine: for data frames, text and objects, kinds
        by column, and arrays whose columns differ in kind. Else an array or CSR matrix of numbers. A missing
        cell is NaN or None in either.

    Raises:
        TypeError, ValueError: something else, other columns than in ``fit``, text where it saw numbers, or
            with ``binarise`` bytes that are no grey levels.
    """
    if isinstance(X, DataSet):
        raise TypeError(
            "X: expected a table, received a DataSet; its rows are X.samples, its labels X.labels"
        )
    if isinstance(X, (str, PathLike)):
        raise TypeError(
            f"X: expected a table, received a {type(X).__name__}; pandas.read_csv or harmonium.data.read "
            "reads a file"
        )
    rows = X[:1] if isinstance(X, (list, tuple)) else [X]
    if any(isinstance(each, Mapping) and not is_sparse(each) for each in rows):
        raise TypeError(
            f"X: expected a table, received a {type(X).__name__}; pandas.DataFrame(X) makes it one"
        )
    if isinstance(X, (list, tuple)) and np.asarray(X, dtype=object).ndim == 2:
        objects = np.asarray(X, dtype=object)
        X = objects if any(isinstance(cell, (str, type(None))) for cell in objects.flat) else X
    by_table = isinstance(estimator.visible, Mapping) if reset else isinstance(estimator.encoder_, Table)
    if is_frame(X):
        frame = frame_of(X)
        if not (isinstance(X, np.ndarray) and frame.numeric and not by_table):
            validate_data(estimator, X, reset=reset, skip_check_array=True)
            return frame if by_table or (reset and estimator.binarise is None) else frame.numbers()
        X = frame.numbers()
    X = validate_data(
        estimator, X, reset=reset, accept_sparse="csr" if sparse else False, ensure_all_finite="allow-nan"
    )
    if estimator.binarise is not None and X.dtype == np.uint8:
        full, X = full_intensity(X), X.astype(np.float32)
        levels = X.data if is_sparse(X) else X
        levels /= full
    chosen = reset and estimator.visible == "auto" and estimator.binarise is None and not is_sparse(X)
    if by_table or (chosen and differ_in_kind(X)):
        return frame_of(X.toarray() if is_sparse(X) else X)
    return X


def weights_of(sample_weight: Any, rows: int) -> Tensor | None:
    """Weights of rows, (rows,), float64; None where all count alike.

    Raises:
        TypeError, ValueError: others, or none above 0.
    """
    if sample_weight is not None and not np.any(np.asarray(sample_weight)):
        raise ValueError("sample_weight: expected a weight above zero, received zero for all rows")
    return _checks.weights(sample_weight, "sample_weight", rows)


def counted(
    weights: Tensor | None, X: Any, estimator: Any, earlier: Any = None
) -> tuple[NDArray[Any] | slice, Tensor | None]:
    """Selects the rows to learn from: those with a weight above 0 and a cell that is not missing.

    Args:
        weights: of the rows, or None.
        X: validated rows, of which some may be blank: a warning tells them.
        estimator: whose ``visible`` says what columns are learned,
        earlier: or the machine that goes on, see ``Fitted``.

    Returns:
        Their index, or a slice of all, and their weights.

    Raises:
        ValueError: every such row is blank.
    """
    chosen = np.ones(X.shape[0], dtype=bool) if weights is None else (weights > 0).numpy()
    encoder = None if earlier is None else earlier.encoder
    with _naming_visible():
        blank = blank_rows(X, encoder, estimator.visible) & chosen
    if blank.any():
        first = int(blank.argmax())
        if not (chosen & ~blank).any():
            raise ValueError(
                f"X: expected a row to learn from, all of row {first} and of every other is missing (NaN)"
            )
        _checks.warn(
            f"X: nothing is learned from {blank.sum()} of {len(blank)} rows, the first of them row {first}, "
            "as every cell is missing"
        )
    chosen &= ~blank
    if chosen.all():
        return slice(None), weights
    index = np.flatnonzero(chosen)
    return index, None if weights is None else weights[torch.from_numpy(index)]


def taken(X: Any, index: NDArray[Any] | slice) -> Any:
    """Returns some of validated rows."""
    if isinstance(index, slice):
        return X
    return X.take(index) if isinstance(X, Frame) else X[index]


def fit_codec(
    X: Any, visible: str | Mapping[Any, str], unknown: str, binarise: str | None, weights: Tensor | None
) -> Codec:
    """Fits visible units, and what turns rows into their states, to validated rows.

    Args:
        X: rows that count.
        visible: kinds of units.
        unknown: see ``Table``.
        binarise: what makes 0 and 1 of intensities, or None.
        weights: of the rows, above 0, or None; means and deviations of standardised columns are weighted
            by them.

    Raises:
        ValueError: rows that the units do not take, or a column without any value.
    """
    kind, kinds = (visible, None) if isinstance(visible, str) else ("auto", visible)
    with _naming_visible():
        return Codec.fit(X, kind, kinds, binarise=binarise or "none", unknown=unknown, weights=weights)


@contextmanager
def _naming_visible() -> Iterator[None]:
    """Errors about ``kinds`` raised inside name ``visible`` instead."""
    try:
        yield
    except ValueError as error:
        said = str(error)
        if not said.startswith("kinds: "):
            raise
        raise ValueError(f"visible{said.removeprefix('kinds')}") from error


def states_of(X: Any, encoder: Encoder, layers: Sequence[Layer], device: torch.device) -> Iterator[Tensor]:
    """Validated rows as visible states in float64, a block at a time; NaN where a cell is missing.

    Args:
        X: the rows.
        encoder: between rows and machine.
        layers: visible ones, whose states they are to be.
        device: of the states.

    Raises:
        ValueError: rows that the layers do not take.
    """
    start = 0
    for rows in encoded(X, encoder, layers):
        v = rows.to(device, torch.float64)
        name = f"X[{start}:]" if start else "X"
        for layer, x in zip(layers, torch.split(v, [layer.width for layer in layers], 1), strict=True):
            layer.observed(x, name)
        start += len(v)
        yield v


def encoded(X: Any, encoder: Encoder, layers: Sequence[Layer]) -> Iterator[Tensor]:
    """``states_of`` without a look at whether the machine takes them: noise may leave the support."""
    return Codec(encoder, layers).rows(X, torch.float64, keep=False).chunks(_ROWS)


def decoded(states: Tensor, encoder: Encoder, dtype: Any = np.float64) -> Any:
    """Visible states or means as rows: what a table makes of them, else an array, float32 or float64."""
    rows = encoder.decode(states.double())
    return rows if isinstance(encoder, Table) else floating(rows, dtype)


def filled(X: Any, states: Tensor, encoder: Encoder, draws: Sequence[Tensor] = ()) -> Any:
    """Validated rows with their missing cells taken from visible states or means; of which ``draws`` are."""
    if isinstance(encoder, Table):
        return encoder.fill(X, states.double(), [draw.double() for draw in draws])
    dtype = dtype_of(X)
    return np.where(np.isnan(X), decoded(states, encoder, dtype), X.astype(dtype))


def dtype_of(X: Any) -> Any:
    """float32 for float32 rows, else float64."""
    return np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64


def floating(x: Tensor, dtype: Any) -> Array:
    """As a NumPy array: float32 for float32, else float64."""
    return x.cpu().numpy().astype(np.float32 if dtype == np.float32 else np.float64, copy=False)
