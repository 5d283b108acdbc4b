"""Outliers by their density, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Literal, final

import numpy as np
import torch
from sklearn.base import OutlierMixin
from sklearn.exceptions import NotFittedError
from torch import Tensor

from harmonium._random import as_generator
from harmonium._settings import Count, Interval, Setting
from harmonium.estimators._estimator import DensityEstimator
from harmonium.estimators._intake import Array, validated
from harmonium.likelihood import score_states
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

    def _calibrate(self, X: Any, weights: Tensor | None) -> None:
        fitted = self._require_fitted()
        scores, log_shares = self._relative_scores(X)
        row_weights = np.ones(len(scores)) if weights is None else weights.numpy()
        far = scores - _quantile(scores, row_weights, _LOWEST)
        fall = -np.average(far, weights=row_weights * (far < 0)) if (far < 0).any() else 1.0
        scores = scores + log_shares
        low, high = (_quantile(scores, row_weights, share) for share in (0.25, 0.75))
        named = None if self.contamination == "auto" else self.contamination
        fitted.numbers = {
            "threshold": low - _REACH * (high - low)
            if named is None
            else _quantile(scores, row_weights, named),
            "fall": max(1.0, float(fall)),
            "least_share": float(log_shares.min()),
            "machine": fitted.digest(),
        }

    @property
    def offset_(self) -> float:
        """The threshold: ln p of outliers is below it, in nats."""
        return self._threshold() - self.log_partition_.value

    def decision_function(self, X: Any) -> Array:
        """Returns ln p of every row minus ``offset_``, negative for outliers: (rows,), float64.

        It is that of the states that cells of a table are coded by, and of arrays that of ``score_samples``;
        ln Z cancels. Of a row with missing cells it is the mean of ln p over ten draws of these given what
        the row shows. ln p(cells | states) below that of all training rows, as of a cell beyond their range,
        counts m times, for a mean distance of m nats of the lowest tenth of the training rows below the
        others, at least 1.

        Raises:
            ValueError: other columns than in ``fit``, values that the visible units do not take, or a row of
                missing cells only.
        """
        threshold, numbers = self._threshold(), self._require_fitted().numbers
        scores, log_shares = self._relative_scores(validated(self, X))
        beyond = np.minimum(log_shares - numbers["least_share"], 0.0)
        decided: Array = scores + log_shares + (numbers["fall"] - 1) * beyond - threshold
        return decided

    def predict(self, X: Any) -> Array:
        """Returns -1 for outliers and 1 for others, (rows,), int64. Else as ``decision_function``."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _threshold(self) -> float:
        """Returns ``offset_`` plus ln Z, if it was found for the machine as it is."""
        fitted = self._require_fitted()
        if fitted.numbers.get("machine") != fitted.digest():
            raise NotFittedError(
                "offset_: expected a threshold of machine_ as it is, received none, or one of before it "
                "changed; RBMOutlier.from_machine(machine_, X) finds it on rows X"
            )
        threshold: float = fitted.numbers["threshold"]
        return threshold

    @torch.no_grad()
    def _relative_scores(self, X: Any) -> tuple[Array, Array]:
        """Returns ln p + ln Z of the states of rows, means over draws of holes, and ln p(cells | states)."""
        fitted = self._require_fitted()
        machine, codec = fitted.double(), fitted.codec
        generator = as_generator(fitted.stream("missing cells"), machine.device)

        def score(v: Tensor) -> Tensor:
            drawn, hole = v.unsqueeze(0), unobserved(machine, v)
            if bool(hole.any()):
                drawn = impute(machine, v, hole, draws=_DRAWS, seed=generator).draws
            slopes = 0.0 if codec.encoder.tabular else codec.log_slopes(drawn[0])
            return (
                torch.stack([score_states(machine, x, 0.0, is_bound=False) for x in drawn]).mean(0) + slopes
            )

        log_shares, scores = codec.log_shares(X, machine, beyond="end"), fitted.compute(X, score)
        return scores, np.zeros(len(scores)) if log_shares is None else log_shares.sum(1).numpy()


def _quantile(values: Array, weights: Array, share: float) -> float:
    """Returns the least value above which less than the rest of the weight lies."""
    order = values.argsort()
    ends = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(ends, share * ends[-1], side="right")])
