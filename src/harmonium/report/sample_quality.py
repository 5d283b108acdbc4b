"""Sample quality: distances between sets in feature space, memorised data, and missing classes.

Every function takes sets of images or rows as tensors or arrays whose first axis counts them. ``features`` is
any ``torch`` module from a batch of them to (n, d), such as a layer of a classifier of the data's labels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from harmonium import _checks, _random

_ROWS = 1000  # at a time: their features, or distances from 60,000 rows, fit in half a gigabyte


class KernelDistance(NamedTuple):
    """A kernel distance.

    Attributes:
        value: mean over the subsets.
        standard_error: Standard error of the mean, a little too small, as the subsets overlap.
    """

    value: float
    standard_error: float


class Neighbours(NamedTuple):
    """The nearest row of a data set for every sample.

    Attributes:
        distances: Euclidean, (samples,).
        indices: Places of the nearest rows in the data, (samples,) int64.
    """

    distances: Tensor
    indices: Tensor


@torch.no_grad()
def frechet_distance(data: Any, samples: Any, features: nn.Module) -> float:
    """Estimates the Fréchet distance of two sets in feature space (FID; Heusel et al. 2017), by torchmetrics.

    |m - m'|² + tr(C + C' - 2 (C C')^½) of the features' means and covariances. With few samples it is too
    large; compare sets of equal size. The distance of held-out data from the same ``data`` is the floor.

    Args:
        data: rows of data, (n, …), at least two.
        samples: samples of a machine, (m, …), at least two.
        features: what looks at them. With those of your own classifier say so: it is no published FID.

    Raises:
        ImportError: the ``metrics`` extra is not installed.
        ValueError: too few rows, or features that are not finite.
    """
    try:
        from torchmetrics.image.fid import FrechetInceptionDistance
    except ImportError as error:
        raise _name_missing("frechet_distance") from error
    x, y = _compute_features(data, features, "data"), _compute_features(samples, features, "samples")
    # The features are computed here, so that any module will do; torchmetrics sees the identity.
    identity: Any = nn.Identity()
    identity.num_features = x.shape[1]
    metric = FrechetInceptionDistance(feature=identity).to(x.device)
    metric.set_dtype(torch.float64)
    metric.update(x, real=True)
    metric.update(y, real=False)
    return max(0.0, float(metric.compute()))


@torch.no_grad()
def kernel_distance(
    data: Any,
    samples: Any,
    features: nn.Module,
    *,
    subsets: int = 100,
    subset_size: int | None = None,
    seed: int | torch.Generator = 0,
) -> KernelDistance:
    """Estimates the kernel distance of two sets in feature space (KID; Binkowski et al. 2018; torchmetrics).

    The unbiased squared maximum mean discrepancy with the kernel (x·y/d + 1)³, which may be negative,
    averaged over random subsets. Unlike the Fréchet distance it has no bias from the number of samples.

    Args:
        data: rows of data, (n, …).
        samples: samples of a machine, (m, …).
        features: what looks at them.
        subsets: how many, at least 2.
        subset_size: rows of each, from 2 to the smaller of n and m; None: 1000, or that number if it is less.
        seed: Source of the subsets: an int or a generator.

    Raises:
        ImportError: the ``metrics`` extra is not installed.
        ValueError: too few rows, or features that are not finite.
    """
    try:
        from torchmetrics.image.kid import poly_mmd
    except ImportError as error:
        raise _name_missing("kernel_distance") from error
    _checks.positive_int(subsets, "subsets", minimum=2)
    x, y = _compute_features(data, features, "data"), _compute_features(samples, features, "samples")
    generator = _random.as_generator(seed, x.device)
    largest = min(len(x), len(y))
    size = min(1000, largest) if subset_size is None else _checks.positive_int(subset_size, "subset_size", 2)
    if size > largest:
        raise ValueError(f"subset_size: expected at most {largest} rows, received {size}")
    values = []
    for _ in range(subsets):
        one, other = (z[_random.permutation(len(z), generator)[:size]] for z in (x, y))
        values.append(poly_mmd(one, other))
    distances = torch.stack(values)
    return KernelDistance(float(distances.mean()), float(distances.std()) / subsets**0.5)


@torch.no_grad()
def nearest_neighbours(samples: Any, data: Any) -> Neighbours:
    """Finds the nearest row of the data for every sample, which shows copies of the training set.

    Distances mean little by themselves: set those of the samples beside those of held-out data. Samples that
    lie much nearer to the training data than held-out data do are memorised.

    Args:
        samples: (n, …).
        data: (m, …), rows of the same number of values.
    """
    x, y = _read_set(samples, "samples").flatten(1), _read_set(data, "data").flatten(1)
    _checks.finite(x, "samples")
    _checks.finite(y, "data")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"samples: expected {y.shape[1]} values a row as in data, received {x.shape[1]}")
    y = y.to(x.device)
    # ‖y‖² - 2xy orders the rows, best about their mean; the winner's distance is taken without cancellation.
    mean = y.mean(0)
    centred = (y - mean).t()
    norms = centred.square().sum(0)
    index = torch.cat([(norms - 2 * ((part - mean) @ centred)).argmin(-1) for part in torch.split(x, _ROWS)])
    return Neighbours((x - y[index]).norm(dim=-1), index)


def _compute_features(images: Any, features: nn.Module, name: str) -> Tensor:
    """Returns the features of a set in float64, (n, d)."""
    _checks.instance(features, "features", nn.Module, "a torch module")
    x = _read_set(images, name)
    if len(x) < 2:
        raise ValueError(f"{name}: expected at least two rows, received {len(x)}")
    parameter = next(features.parameters(), None)
    if parameter is not None:
        x = x.to(parameter)
    values = torch.cat([features(part) for part in torch.split(x, _ROWS)])
    if values.dim() != 2 or len(values) != len(x):
        raise ValueError(
            f"features: expected a matrix of {len(x)} rows for {name}, received shape {tuple(values.shape)}"
        )
    _checks.finite(values, f"features of {name}")
    return values.double()


def _read_set(x: Any, name: str) -> Tensor:
    """Returns a set as a floating tensor of at least one row."""
    values = x if isinstance(x, Tensor) else np.asarray(x)
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "biuf":
            raise TypeError(
                f"{name}: expected numbers, received {values.dtype}; encode a table, "
                "as by hm.tables.Table.fit(frame).encode(frame)"
            )
        values = torch.from_numpy(values)
    if values.dim() < 2 or len(values) == 0:
        raise ValueError(
            f"{name}: expected at least one row of at least one value, received {tuple(values.shape)}"
        )
    return values if values.is_floating_point() else values.float()


def _name_missing(function: str) -> ImportError:
    """Returns the error for a function that lacks the ``metrics`` extra."""
    return ImportError(f"{function}: needs torchmetrics; pip install 'harmonium[metrics]'")
