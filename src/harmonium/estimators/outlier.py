"""Outliers by their density, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar, final

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from harmonium.data.sheet import Sheet
from harmonium.estimators._intake import Array, taken, validated
from harmonium.estimators._options import CONSTRAINTS, COUNT
from harmonium.estimators._restricted import RestrictedDensity
from harmonium.machine import BoltzmannMachine

_REACH = 1.5  # Tukey's fence, in ranges between the quartiles


@final
@dataclass(eq=False, repr=False)
class RBMOutlier(OutlierMixin, RestrictedDensity):
    """Rows that are improbable under a restricted Boltzmann machine of the others.

    A row is an outlier where ln p of it is below ``offset_``. Rows with missing cells are learnt from; to be
    judged a row must be whole, as ln p of a part of a row is not on the same scale.

    Args:
        n_hidden: hidden units, at least 1.
        contamination: the fraction of the training rows that are outliers, in (0, 0.5]; "auto": those below
            the lower quartile of ln p by more than one and a half times the distance of the quartiles (Tukey
            1977), of a normal law 0.35 %.
        visible, unknown and all others: see ``RBM``.

    Attributes:
        offset_: below which ln p is an outlier's, in nats. It is found on the training rows, or on those that
            ``from_machine`` is given.
        machine_, encoder_, history_, n_updates_, n_features_in_, feature_names_in_: see ``RBM``.

    Example:
        >>> import numpy as np
        >>> import harmonium as hm
        >>> rows = np.random.default_rng(0).normal(size=(200, 2))
        >>> judge = hm.RBMOutlier(10, random_state=0).fit(rows)
        >>> judge.predict([[0.0, 0.0], [7.0, -7.0]])
        array([ 1, -1])
    """

    _: KW_ONLY
    contamination: float | str = "auto"

    _KEPT = ("n_updates_", "offset_")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_hidden": [COUNT],
        "contamination": [StrOptions({"auto"}), Interval(Real, 0, 0.5, closed="right")],
        **CONSTRAINTS,
    }

    def decision_function(self, X: Any) -> Array:
        """ln p of every row, ``score_samples``, minus ``offset_``: negative for outliers; (rows,), float64.

        Raises:
            ValueError: as ``score_samples``, or a row with missing cells.
        """
        check_is_fitted(self, "offset_")
        X = validated(self, X, reset=False)
        whole = _whole(X)
        if not whole.all():
            raise ValueError(
                f"X: expected rows without missing cells, received one (NaN) in row {int(whole.argmin())}; "
                "ln p of a part of a row is not on the scale of offset_: impute(X) fills it in"
            )
        scores: Array = self._log_densities(X) - self.offset_
        return scores

    def predict(self, X: Any) -> Array:
        """-1 for outliers and 1 for others, (rows,), int64. Else as ``decision_function``."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _calibrate(self, X: Any, weights: Any) -> None:
        whole = _whole(X)
        if weights is not None:
            whole &= weights.numpy() > 0
        if not whole.any():
            raise ValueError(
                "X: expected at least one row without missing cells, on which offset_ is found, received none"
            )
        scores = self._log_densities(taken(X, whole))
        each = np.ones(len(scores)) if weights is None else weights.numpy()[whole]
        if (each != np.round(each)).any():
            each = each / each.mean()
        if self.contamination == "auto":
            low, high = _quantiles(scores, each, [0.25, 0.75])
            self.offset_ = float(low - _REACH * (high - low))
        else:
            (self.offset_,) = map(float, _quantiles(scores, each, [self.contamination]))

    def _adopt(self, machine: BoltzmannMachine) -> None:
        pass


def _whole(X: Any) -> Any:
    """Rows without a missing cell, (rows,), bool."""
    if isinstance(X, Sheet):
        return ~np.column_stack([column.missing for column in X.columns]).any(1)
    dense = X.toarray() if hasattr(X, "toarray") else X
    return ~np.isnan(dense).any(1)


def _quantiles(values: Array, weights: Array, shares: list[Any]) -> Array:
    """Linear quantiles as NumPy's, of values that count so often as they weigh."""
    order = values.argsort()
    values, ends = values[order], np.cumsum(weights[order])
    places = np.array(shares) * max(ends[-1] - 1, 0)
    below = np.floor(places)
    low = values[np.searchsorted(ends, below, side="right").clip(max=len(values) - 1)]
    high = values[np.searchsorted(ends, below + 1, side="right").clip(max=len(values) - 1)]
    between: Array = low + (places - below) * (high - low)
    return between
