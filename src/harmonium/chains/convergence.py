"""Convergence diagnostics of scalar draws: rank-normalised split R̂ and effective sample sizes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from harmonium import _checks
from harmonium._checks import Numbers

Array = NDArray[np.float64]

_TAILS = (0.05, 0.95)
_FEWEST = 20  # draws of a chain, so that the autocorrelation of each half can fall to 0


class Convergence(NamedTuple):
    """Diagnostics of one quantity; NaN where all draws are equal, which tells nothing.

    Attributes:
        r_hat: ratio of the spread over all chains to the spread within one, at least about 1. Vehtari et al.
            (2021) ask for at most 1.01.
        ess_bulk: effective sample size for the centre of the distribution, of all chains together.
        ess_tail: smaller one of the effective sample sizes for the 5 % and the 95 % quantile.
    """

    r_hat: float
    ess_bulk: float
    ess_tail: float


def convergence(draws: Numbers) -> Convergence:
    """Computes R̂ and effective sample sizes of a scalar quantity (Vehtari et al. 2021, Bayesian Analysis 16).

    Every chain is cut into halves, and draws are replaced by the normal scores of their ranks. R̂ is the
    larger one of the draws' and of their distances from the median, so that it sees both location and scale.
    Autocorrelations are summed up to Geyer's initial monotone sequence.

    Args:
        draws: (chains, sweeps), at least 20 sweeps, after a warm-up.

    Returns:
        R̂ and both effective sample sizes.

    Raises:
        TypeError: not an array or tensor of real numbers.
        ValueError: another shape, fewer sweeps, or draws that are not finite.
    """
    x = _checks.tensor(draws, "draws", torch.float64, torch.device("cpu"))
    if x.dim() != 2 or len(x) == 0 or x.shape[1] < _FEWEST:
        raise ValueError(
            f"draws: expected (chains, sweeps) with at least {_FEWEST} sweeps, received {tuple(x.shape)}"
        )
    _checks.finite(x, "draws")
    half = x.shape[1] // 2
    halves = torch.cat([x[:, :half], x[:, -half:]]).numpy()
    tails = [_ess((halves <= np.quantile(x.numpy(), tail)).astype(np.float64)) for tail in _TAILS]
    known = [size for size in tails if not np.isnan(size)]
    distances = np.abs(halves - np.median(halves))
    return Convergence(
        float(np.fmax(_r_hat(_normal_scores(halves)), _r_hat(_normal_scores(distances)))),
        _ess(_normal_scores(halves)),
        min(known, default=float("nan")),
    )


def _normal_scores(x: Array) -> Array:
    """Normal quantiles of the ranks' plotting positions (Blom 1958), ties sharing their mean rank."""
    from scipy.special import ndtri  # slow to import, and only needed here

    _, place, ties = np.unique(x, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place.reshape(x.shape)]
    scores: Array = ndtri((ranks - 0.375) / (x.size + 0.25))
    return scores


def _variances(x: Array) -> tuple[float, float]:
    """Within chains, and of the whole: the within-chain one, n - 1 of n, and that of the chains' means."""
    n = x.shape[1]
    within = float(x.var(1, ddof=1).mean())
    between = float(x.mean(1).var(ddof=1)) if len(x) > 1 else 0.0
    return within, within * (n - 1) / n + between


def _r_hat(x: Array) -> float:
    if x.min() == x.max():
        return float("nan")
    within, whole = _variances(x)
    return float(np.sqrt(whole / within)) if within > 0 else float("inf")


def _ess(x: Array) -> float:
    """Draws divided by their autocorrelation time, summed over pairs of lags while these are positive."""
    if x.min() == x.max():
        return float("nan")
    m, n = x.shape
    within, whole = _variances(x)
    rho = 1 - (within - _autocovariances(x).mean(0)) / whole
    rho[0] = 1
    pairs = rho[: 2 * ((n - 1) // 2)].reshape(-1, 2).sum(1)  # the last lags rest on hardly any product
    end = int(np.argmax(pairs < 0)) if (pairs < 0).any() else len(pairs) - 1
    time = 2 * np.minimum.accumulate(pairs[:end]).sum() - 1
    time += max(float(rho[2 * end]), 0.0)  # the last even lag alone, for chains that alternate
    return float(m * n / max(time, 1 / np.log10(m * n)))


def _autocovariances(x: Array) -> Array:
    """Sums of products at every lag over n, (chains, n), by a padded Fourier transform."""
    n = x.shape[1]
    spectrum: Any = np.fft.rfft(x - x.mean(1, keepdims=True), 2 * n)
    products: Array = np.fft.irfft(np.abs(spectrum) ** 2 / n, 2 * n)[:, :n]
    return products
