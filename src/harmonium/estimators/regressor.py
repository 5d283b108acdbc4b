"""One number given the rest of a row, as a scikit-learn regressor."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from numbers import Integral
from typing import Any, Self, final

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils import Tags, check_array, check_consistent_length
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from harmonium import _checks
from harmonium.data import Frame, Series, frame_of, is_frame
from harmonium.estimators._intake import Array, take_tables
from harmonium.estimators.rbm import RBM


@final
class RBMRegressor(RegressorMixin, BaseEstimator):
    """Predicts one number from the rest of a row, by a machine of whole rows.

    An ``RBM`` learns p(x, y) of a table, to which the target is one more column. p(y | x) follows from it:
    its mean and its quantiles, also for rows that lack cells. ln p(y | x) is the difference of
    ``estimator_.score_samples`` of rows with their targets and without.

    Args:
        estimator: an ``RBM``, not changed; None: ``RBM()``. Its ``visible`` may name the kind of the target,
            which is else "gaussian".
        draws: Independent draws of y that quantiles are read from, at least 1.
        random_state: of training and of the draws, as in scikit-learn; None: that of ``estimator``.

    Attributes:
        estimator_: the trained estimator; its last column is the target.
        target_: name of that column.
        n_features_in_: columns of X.
        feature_names_in_: their names, where X has names.

    Examples:
        >>> import numpy as np
        >>> import harmonium as hm
        >>> X = np.random.default_rng(0).normal(size=(300, 2))
        >>> regressor = hm.RBMRegressor(random_state=0).fit(X, X[:, 0] - X[:, 1])
        >>> regressor.predict([[1.0, -1.0], [1.0, None]]).round(0)
        array([2., 1.])
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's own name
        "estimator": [RBM, None],
        "draws": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(self, estimator: RBM | None = None, *, draws: int = 200, random_state: Any = None) -> None:
        self.estimator, self.draws, self.random_state = estimator, draws, random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learns rows with their targets.

        Args:
            X: (rows, columns), a frame or dense array; NaN, None and pandas.NA are missing cells.
            y: (rows,), finite numbers.
            sample_weight: Row weights, (rows,), at least 0; None means uniform.

        Raises:
            ValueError: targets that are no finite numbers, or as ``RBM.fit``; the regressor is then as it was
                before the call.
        """
        self._validate_params()
        if y is None:
            raise ValueError("y: expected numbers: it requires y to be passed, but the target y is None")
        fresh = copy(self)
        frame = fresh._read(X, reset=True)
        try:
            targets = column_or_1d(
                check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"), warn=True
            )
        except ValueError as error:
            raise ValueError(
                f"y: expected finite numbers, received others ({error}); leave such rows out, and "
                "take RBMClassifier for labels"
            ) from error
        check_consistent_length(frame, targets)
        names, fresh.target_ = {column.name for column in frame.columns}, "y"
        while fresh.target_ in names:
            fresh.target_ += "y"
        learner = RBM() if self.estimator is None else clone(self.estimator)
        kinds = {} if isinstance(learner.visible, str) else dict(learner.visible)
        learner.set_params(visible={fresh.target_: "gaussian"} | kinds)
        if self.random_state is not None:
            learner.set_params(random_state=self.random_state)
        fresh.estimator_ = learner.fit(
            _with_target(frame, fresh.target_, targets), sample_weight=sample_weight
        )
        self.__dict__ = fresh.__dict__
        return self

    def predict(self, X: Any) -> Array:
        """Returns the mean of y given what every row shows, (rows,), float64.

        It is what ``RBM.impute(value="mean")`` fills in, with the straight lines beside the machine.

        Raises:
            ValueError: other columns than in ``fit``, or values that the visible units do not take.
        """
        rows, seed = self._rows(X), self.random_state
        states = self.estimator_._completions(rows, "auto", "mean", 10, 100, seed)[2]
        return self._targets(states, rounded=False, drawn=None)

    def predict_quantiles(
        self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95), *, random_state: Any = None
    ) -> Array:
        """Returns quantiles of y given what every row shows, (rows, quantiles), float64.

        Args:
            X: as in ``predict``.
            quantiles: shares in [0, 1].
            random_state: of the ``draws``; None: that of the regressor.

        Raises:
            ValueError: as ``predict``, or a quantile out of range.
        """
        for share in quantiles:
            _checks.real(share, "quantiles", low=0.0, high=1.0)
        seed = self.random_state if random_state is None else random_state
        rows = self._rows(X)
        done = self.estimator_._completions(rows, "auto", "draw", self.draws, 100, seed)[1]
        targets = [self._targets(states, drawn="cells") for states in done.draws]
        return np.quantile(targets, quantiles, axis=0).T

    def _targets(self, states: Tensor, **how: Any) -> Array:
        """Returns the target of visible states, (rows,), float64."""
        encoder: Any = self.estimator_.encoder_
        target: Array = encoder.frame(states.double().cpu(), **how).columns[-1].values
        return target

    def _read(self, X: Any, *, reset: bool) -> Frame:
        """Returns rows as a frame, looked at as scikit-learn does."""
        about: dict[str, Any] = {"skip_check_array": is_frame(X), "ensure_all_finite": "allow-nan"}
        return frame_of(validate_data(self, X, reset=reset, **about))

    def _rows(self, X: Any) -> Frame:
        """Returns rows with a target that is missing."""
        check_is_fitted(self)
        frame = self._read(X, reset=False)
        return _with_target(frame, self.target_, np.full(len(frame), np.nan))

    def __sklearn_tags__(self) -> Tags:
        return take_tables(super().__sklearn_tags__())


def _with_target(frame: Frame, name: Any, cells: Array) -> Frame:
    """Returns a frame with the target as its last column."""
    return Frame((*frame.columns, Series(name, cells, "float64")), frame.library, frame.index)
