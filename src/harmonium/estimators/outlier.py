"""Outliers by their density, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, Literal, final

import numpy as np
import torch
from sklearn.base import OutlierMixin
from sklearn.exceptions import NotFittedError
from torch import Tensor

from harmonium._random import as_generator
from harmonium._settings import Count, Interval, Setting
from harmonium.estimators._density import DensityEstimator
from harmonium.estimators._fitted import digest_of
from harmonium.estimators._intake import Array
from harmonium.likelihood import LogPartition
from harmonium.tables import Table
from harmonium.tasks import impute, unobserved

_DRAWS = 10  # of the missing cells of a row
# Between Tukey's fences of 1.5 and 3, in ranges between the quartiles. With 3 % of rows spoilt by one cell
# at ten times the largest, half or more of those cut off are spoilt in 15 of 20 fits to ten tables, by 3 in
# 18; of ten fits to made tables in 10 and 9. 0.7 % of sound rows are cut off, by 3 half of these.
_REACH = 2.5
_LOWEST = 0.1  # share of the training rows that tells how ln p falls, as of the cells of a column


@final
@dataclass(eq=False, repr=False)
class RBMOutlier(OutlierMixin, DensityEstimator):
    """Rows that are improbable under a restricted Boltzmann machine of the others.

    A row is an outlier where ln p of it is below ``offset_``. Columns of a table count as they are coded, by
    a line, the logarithm or quantiles, so that skewed amounts do not make each large one an outlier. Rows may
    lack cells: ln p of what such a row shows is not on the same scale, so that it is judged by the mean of
    ln p over draws of these cells. Cells beyond what training saw weigh more than in ln p, as many times as
    ln p of rows falls more slowly than their number: a row is then not hidden among rare ones.

    All other parameters are those of ``RBM``.

    Args:
        n_hidden: hidden units, at least 1. None: as ``RBM``.
        contamination: the fraction of the training rows that are outliers, in (0, 0.5]; "auto": those below
            the lower quartile of ln p by more than two and a half times the distance of the quartiles,
            between the inner and the outer fence of Tukey (1977). A share finds more.

    Attributes:
        offset_: below which ln p is an outlier's, in nats. It is found on the training rows, or on those that
            ``from_machine`` is given, for ``machine_`` as it is then: once that has changed, ``predict``
            refuses.
        machine_, encoder_, history_, n_updates_, n_features_in_, feature_names_in_: see ``RBM``.

    Examples:
        >>> import numpy as np
        >>> import harmonium as hm
        >>> rows = np.random.default_rng(0).normal(size=(200, 2))
        >>> judge = hm.RBMOutlier(10, random_state=0).fit(rows)
        >>> judge.predict([[0.0, 0.0], [7.0, -7.0]])
        array([ 1, -1])
    """

    n_hidden: Count | None = None
    _: KW_ONLY
    contamination: Annotated[float | Literal["auto"], Setting(Interval(0.0, 0.5, "right"))] = "auto"

    _NUMBERS = ("offset_", "_log_partition_of_offset", "_machine_of_offset", "_fall", "_least_share")

    def _calibrate(self, X: Any, weights: Tensor | None) -> None:
        fitted = self._require_fitted()
        fitted.numbers = {
            "_log_partition_of_offset": self.log_partition_.value,
            "_machine_of_offset": digest_of(fitted.machine),
        }
        scores = self._completed_scores(X)
        shares = np.broadcast_to(fitted.log_shares(X, beyond="end"), scores.shape)
        each = np.ones(len(scores)) if weights is None else weights.numpy()
        fitted.numbers |= {
            "_fall": max(1.0, _mean_shortfall(scores - shares, each)),
            "_least_share": float(shares[each > 0].min()),
        }
        if self.contamination == "auto":
            low, high = _quantiles(scores, each, [0.25, 0.75])
            offset = low - _REACH * (high - low)
        else:
            (offset,) = _quantiles(scores, each, [self.contamination])
        fitted.numbers["offset_"] = float(offset)

    @property
    def offset_(self) -> float:
        """The threshold: ln p of outliers is below it, in nats."""
        numbers = self._require_fitted().numbers
        if "offset_" not in numbers:
            raise NotFittedError(
                "offset_: expected a threshold, received a machine without; "
                "RBMOutlier.from_machine(machine_, X) finds it on rows X"
            )
        offset: float = numbers["offset_"]
        return offset

    @offset_.setter
    def offset_(self, offset: float) -> None:
        fitted = self._require_fitted()
        self._fitted = replace(fitted, numbers={**fitted.numbers, "offset_": offset})

    def decision_function(self, X: Any) -> Array:
        """Returns ln p of every row minus ``offset_``, negative for outliers: (rows,), float64.

        It is that of the states that cells of a table are coded by, and of arrays that of ``score_samples``.
        ln p has the ln Z that ``offset_`` was found with, so that another estimate of it changes nothing. Of
        a row with missing cells it is the mean of ln p over ten draws of these given what the row shows.
        ln p(cells | states) below that of all training rows, as of a cell beyond their range, counts m times,
        for a mean distance of m nats of the lowest tenth of the training rows below the others, at least 1.

        Raises:
            ValueError: other columns than in ``fit``, values that the visible units do not take, or a row of
                missing cells only.
        """
        fitted, offset = self._require_fitted(), self.offset_
        if fitted.numbers.get("_machine_of_offset") != digest_of(fitted.machine):
            raise NotFittedError(
                "offset_: expected a threshold of machine_ as it is, received one of before it changed; "
                "RBMOutlier.from_machine(machine_, X) finds it on rows X"
            )
        scores: Array = self._completed_scores(self._validated(X)) - offset
        return scores

    def predict(self, X: Any) -> Array:
        """Returns -1 for outliers and 1 for others, (rows,), int64. Else as ``decision_function``."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    @torch.no_grad()
    def _completed_scores(self, X: Any) -> Array:
        """Returns ln p of validated rows, each whole or completed by draws."""
        fitted = self._require_fitted()
        machine, kept = fitted.double(), fitted.numbers.get("_log_partition_of_offset")
        constant = self.log_partition_ if kept is None else LogPartition.exact(kept)
        generator = as_generator(fitted.stream("missing cells"), machine.device)
        score = self._log_states if isinstance(fitted.encoder, Table) else self._log_density

        def scores(v: Tensor) -> Tensor:
            hole = unobserved(machine, v)
            drawn = v.unsqueeze(0)
            if bool(hole.any()):
                drawn = impute(machine, v, hole, draws=_DRAWS, seed=generator).draws
            return torch.stack([score(machine, x, constant) for x in drawn]).mean(0)

        shares, numbers = fitted.log_shares(X, beyond="end"), fitted.numbers
        beyond = np.minimum(shares - numbers.get("_least_share", 0.0), 0.0)
        completed: Array = fitted.compute(X, scores) + shares + (numbers.get("_fall", 1.0) - 1) * beyond
        return completed


def _mean_shortfall(scores: Array, weights: Array) -> float:
    """Returns the mean distance of the lowest tenth of scores below the others."""
    end = _quantiles(scores, weights, [_LOWEST])[0]
    below = scores < end
    return float(np.average(end - scores[below], weights=weights[below])) if weights[below].any() else 0.0


def _quantiles(values: Array, weights: Array, shares: list[Any]) -> Array:
    """Returns linear quantiles as NumPy's, of values that count as often as they weigh."""
    order = values.argsort()
    order = order[weights[order] > 0]
    values, ends = values[order], np.cumsum(weights[order])
    places = np.array(shares) * max(ends[-1] - 1, 0)
    below = np.floor(places)
    low = values[np.searchsorted(ends, below, side="right").clip(max=len(values) - 1)]
    high = values[np.searchsorted(ends, below + 1, side="right").clip(max=len(values) - 1)]
    between: Array = low + (places - below) * (high - low)
    return between
