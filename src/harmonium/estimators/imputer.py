"""Missing cells filled in by a machine of the rows, as a scikit-learn transformer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self, final

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import Tags
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from harmonium import _checks
from harmonium.data import Frame, Series, build, frame_of, is_frame
from harmonium.data.frame import TEXT
from harmonium.estimators._intake import Array, dtype_of
from harmonium.estimators.dbm import DBM
from harmonium.estimators.rbm import RBM
from harmonium.tables import CellInterval


@final
class RBMImputer(TransformerMixin, BaseEstimator):
    """Fills in missing cells in a pipeline, by a machine that ``fit`` learns from the rows, holes and all.

    The machine is one of whole rows: every column may lack cells, in training and afterwards, and no target
    is read.

    Args:
        estimator: an ``RBM`` or ``DBM``, not changed; None: ``RBM()``.
        value: what a cell gets, see ``RBM.impute``: "nearest" (the most probable label, the mean of numbers
            rounded as the column is), "mean" or "draw".
        add_indicator: whether a column of 0 and 1 follows for every column that lacked cells in ``fit``: 1
            where the cell was missing.
        random_state: of training and of the draws, as everywhere in scikit-learn; None: that of
            ``estimator``.

    Attributes:
        estimator_: the trained estimator; ``machine_`` and all else of it is there.
        indicated_: the numbers of the columns that ``add_indicator`` adds a column for.
        n_features_in_: columns of the data.
        feature_names_in_: their names, where the data had names.

    Examples:
        >>> import harmonium as hm
        >>> learner = hm.RBM(4, learning_rate=1.0, max_updates=100)
        >>> imputer = hm.RBMImputer(learner, random_state=0).fit([[0, 0, 1], [1, 1, 0]] * 20)
        >>> imputer.transform([[0, 0, None], [1, None, 0]])
        array([[0., 0., 1.],
               [1., 1., 0.]])
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's own name
        "estimator": [RBM, DBM, None],
        "value": [StrOptions({"nearest", "mean", "draw"})],
        "add_indicator": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: RBM | DBM | None = None,
        *,
        value: str = "nearest",
        add_indicator: bool = False,
        random_state: Any = None,
    ) -> None:
        self.estimator, self.value = estimator, value
        self.add_indicator, self.random_state = add_indicator, random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learns the rows.

        Args:
            X: (rows, columns), a frame or dense array; NaN, None and pandas.NA are missing cells.
            y: ignored.
            sample_weight: Row weights, (rows,), at least 0; None means uniform.

        Raises:
            ValueError: as ``RBM.fit``; the imputer is then as it was before the call.
        """
        self._validate_params()
        learner = RBM() if self.estimator is None else clone(self.estimator)
        if self.random_state is not None:
            learner.set_params(random_state=self.random_state)
        learner.fit(X, sample_weight=sample_weight)
        self.indicated_ = np.flatnonzero(_holes(learner._validated(X, sparse=False)).any(axis=0))
        self.estimator_, self.n_features_in_ = learner, learner.n_features_in_
        if hasattr(learner, "feature_names_in_"):
            self.feature_names_in_ = learner.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit
        return self

    def transform(self, X: Any) -> Any:
        """Returns the rows without a missing cell; what they show stays as it is.

        A cell that nothing in ``fit`` was like, such as a new label, stays too. Others are filled in as if it
        were missing, with a warning.

        Args:
            X: (rows, columns), as in ``fit``.

        Returns:
            What X is, a frame as a frame unless ``set_output`` was called ("default" is an array); behind it
            the columns of ``add_indicator``.

        Raises:
            ValueError: other columns than in ``fit``, or values that the visible units do not take.
        """
        check_is_fitted(self)
        filled = self._with_indicators(
            X, self.estimator_.impute(X, value=self.value, random_state=self.random_state)
        )
        config = getattr(self, "_sklearn_output_config", {})  # what ``set_output`` was told
        if config.get("transform") == "default" and is_frame(filled):
            return build(replace(frame_of(filled), library=TEXT))
        return filled

    def imputations(self, X: Any, draws: int = 5, *, random_state: Any = None) -> list[Any]:
        """Draws several completions of the rows, each given what each row has (multiple imputation).

        Args:
            X: as in ``transform``.
            draws: completions, at least 1.
            random_state: None: that of the imputer.

        Returns:
            ``draws`` of what ``transform`` returns, without the effect of ``set_output``.

        Raises:
            ValueError: as ``transform``.
        """
        check_is_fitted(self)
        seed = self.random_state if random_state is None else random_state
        completed = self.estimator_.imputations(X, _checks.positive_int(draws, "draws"), random_state=seed)
        return [self._with_indicators(X, each) for each in completed]

    def intervals(self, X: Any, interval: float = 0.9, *, random_state: Any = None) -> list[CellInterval]:
        """Finds where every missing cell lies, see ``RBM.intervals``.

        Args:
            X: as in ``transform``.
            interval: Share of the missing cells to hold, above 0 and at most 0.99.
            random_state: None: that of the imputer.

        Raises:
            ValueError: as ``RBM.intervals``.
        """
        check_is_fitted(self)
        seed = self.random_state if random_state is None else random_state
        return self.estimator_.intervals(X, interval, random_state=seed)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Returns the names of the columns of ``transform``: those of X, then ``missingindicator_`` and one.

        Args:
            input_features: names of X where ``fit`` saw none; None: x0, x1, …
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        added = [_indicator(names[j]) for j in self.indicated_] if self.add_indicator else []
        return np.array([*names, *added], dtype=object)

    def _with_indicators(self, X: Any, filled: Any) -> Any:
        """Returns completed rows with the columns that tell which cells were missing."""
        if not self.add_indicator:
            return filled
        lacked = _holes(self.estimator_._validated(X, sparse=False))[:, self.indicated_].astype(np.float64)
        if isinstance(filled, np.ndarray):
            return np.hstack(
                [filled, lacked.astype(filled.dtype if filled.dtype == object else dtype_of(filled))]
            )
        frame = frame_of(filled)
        names = [_indicator(frame.columns[j].name) for j in self.indicated_]
        kind = "float64" if frame.library == "pandas" else "Float64"
        added = [Series(name, cells, kind) for name, cells in zip(names, lacked.T, strict=True)]
        return build(Frame((*frame.columns, *added), frame.library, frame.index))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        if tags.transformer_tags is not None:
            tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _indicator(name: Any) -> str:
    return f"missingindicator_{name}"


def _holes(rows: Any) -> Array:
    """Returns which cells of validated rows are missing, (rows, columns)."""
    found: Array = (
        np.column_stack([cells.missing for cells in rows.columns]) if is_frame(rows) else np.isnan(rows)
    )
    return found
