"""Small sets that need no file."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from harmonium import _checks
from harmonium._random import as_generator, normal, uniform
from harmonium.data.transforms import Array

_WEIGHTS = np.array([0.33, 0.33, 0.34])
_MEANS = np.array([(-5.0, -5.0), (5.0, -5.0), (0.0, 5.0)])
_STANDARD_DEVIATIONS = {
    "isotropic": np.ones((3, 2)),
    "anisotropic": np.array([(1.25, 0.5), (1.25, 0.5), (0.5, 1.25)]),
}


def bars_and_stripes(size: int = 4) -> Array:
    """Every picture of full columns (bars), then every picture of full rows (stripes).

    The all-zero and the all-one picture belong to both kinds and so come twice; under the uniform
    distribution over the rows they weigh double.

    Args:
        size: side of the square picture, 1 to 16.

    Returns:
        (2 * 2**size, size * size) float32 of 0 and 1; pixel (r, c) of a picture is column r * size + c.

    Raises:
        ValueError: a size outside 1 to 16.
    """
    if not 1 <= size <= 16:
        raise ValueError(f"size: expected 1 to 16, received {size}")
    patterns = (np.arange(2**size)[:, None] >> np.arange(size)[::-1]) & 1
    bars, stripes = np.tile(patterns, size), np.repeat(patterns, size, axis=1)
    return np.concatenate([bars, stripes]).astype(np.float32)


def gaussian_mixture(rows: int, kind: str = "isotropic", seed: int | torch.Generator = 0) -> Array:
    """Draws from a mixture of three Gaussians in the plane (Liao et al. 2022, Fig. 1).

    Weights 0.33, 0.33, 0.34; means (-5, -5), (5, -5), (0, 5); standard deviations 1 ("isotropic") or
    (1.25, 0.5), (1.25, 0.5), (0.5, 1.25) ("anisotropic").

    Args:
        rows: how many rows to draw, at least 1.
        kind: "isotropic" or "anisotropic".
        seed: an int, or a ``torch.Generator`` to advance.

    Returns:
        (rows, 2) float32.

    Raises:
        ValueError: ``rows`` below 1 or an unknown kind.
    """
    _checks.positive_int(rows, "rows")
    deviations = _STANDARD_DEVIATIONS[_checks.one_of(kind, "kind", _STANDARD_DEVIATIONS)]
    generator = as_generator(seed)
    level = uniform((rows,), generator, dtype=torch.float64).cpu().numpy()
    component = np.searchsorted(_WEIGHTS.cumsum()[:-1], level, side="right")
    noise = normal((rows, 2), generator, dtype=torch.float64).cpu().numpy()
    return np.asarray(_MEANS[component] + deviations[component] * noise, dtype=np.float32)


def gaussian_mixture_log_density(X: Array, kind: str = "isotropic") -> Array:
    """Exact log density, (rows,) float64 in nats, of what :func:`gaussian_mixture` draws from; X: (rows, 2).

    Raises:
        ValueError: another shape or an unknown kind.
    """
    deviations = _STANDARD_DEVIATIONS[_checks.one_of(kind, "kind", _STANDARD_DEVIATIONS)]
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != 2:
        raise ValueError(f"X: expected shape (rows, 2), received {X.shape}")
    distances = (((X[:, None] - _MEANS) / deviations) ** 2).sum(axis=-1)
    terms = np.log(_WEIGHTS) - math.log(2 * math.pi) - np.log(deviations).sum(axis=-1) - distances / 2
    return np.asarray(np.logaddexp.reduce(terms, axis=1))


def planted_glass(size: int, seed: int | torch.Generator = 0) -> tuple[Array, Array, Array]:
    """Makes a spin glass on a square lattice whose ground state is known (Hamze et al. 2018, tile planting).

    Every second square of the lattice, which closes on itself, has three couplings of 1 and one of -1 that
    the planted state leaves unsatisfied; no state satisfies all four. Then spins are turned over at random.

    Args:
        size: side of the lattice, even and at least 4.
        seed: an int, or a ``torch.Generator`` to advance.

    Returns:
        Pairs of neighbours, (2 size², 2) int64; their couplings J, 1 or -1; and a ground state, (size²,) of
        -1 and 1, at which -Σ J s s' is -size².

    Raises:
        ValueError: an odd size, or one below 4.

    Examples:
        >>> pairs, J, state = planted_glass(4)
        >>> float(-(J * state[pairs[:, 0]] * state[pairs[:, 1]]).sum())
        -16.0
    """
    if size < 4 or size % 2:
        raise ValueError(f"size: expected an even number, at least 4, received {size}")
    generator = as_generator(seed)
    row, column = (x.ravel() for x in np.indices((size, size)))
    first = (row + column) % 2 == 0
    right, below = (column[first] + 1) % size, (row[first] + 1) % size
    row, column = row[first], column[first]
    corners = [row * size + column, row * size + right, below * size + right, below * size + column]
    pairs = np.stack([np.stack([corners[k], corners[(k + 1) % 4]], 1) for k in range(4)], 1)
    J: Array = np.ones(pairs.shape[:2], np.float32)
    odd = (4 * uniform((len(J),), generator, dtype=torch.float64)).long().cpu().numpy()
    J[np.arange(len(J)), odd] = -1
    state = np.where(uniform((size * size,), generator).cpu().numpy() < 0.5, -1, 1).astype(np.float32)
    pairs = pairs.reshape(-1, 2)
    return pairs, J.ravel() * state[pairs[:, 0]] * state[pairs[:, 1]], state


def digits() -> tuple[Array, Array]:
    """The 8 by 8 handwritten digits that come with scikit-learn.

    Returns:
        (1797, 64) float32 intensities in [0, 1] (seventeen levels), and (1797,) int64 labels 0 to 9.
    """
    package = find_spec("sklearn")  # finds it without importing it, which takes as long as importing torch
    assert package is not None and package.origin is not None
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(file, np.float32, delimiter=",")
    return table[:, :-1] / 16, table[:, -1].astype(np.int64)
