"""Missing cells filled in by a machine of the rows, as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any, Self, final

from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils import Tags
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from harmonium._fetch import is_sparse
from harmonium.estimators._intake import take_tables
from harmonium.estimators.dbm import DBM
from harmonium.estimators.rbm import RBM
from harmonium.tables import CellInterval


@final
class RBMImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fills in missing cells in a pipeline, by a machine that ``fit`` learns from the rows, holes and all.

    The machine is one of whole rows: every column may lack cells, in training and afterwards, and no target
    is read. For several completions of the rows see ``estimator_.imputations``.

    Args:
        estimator: an ``RBM`` or ``DBM``, not changed; None: ``RBM()``.
        value: what a cell gets, see ``RBM.impute``: "nearest" (the most probable label, the mean of numbers
            rounded as the column is), "mean" or "draw".
        random_state: of training and of the draws, as everywhere in scikit-learn; None: that of
            ``estimator``.

    Attributes:
        estimator_: the trained estimator; ``machine_`` and all else of it is there.
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
        "random_state": ["random_state"],
    }

    def __init__(
        self, estimator: RBM | DBM | None = None, *, value: str = "nearest", random_state: Any = None
    ) -> None:
        self.estimator, self.value, self.random_state = estimator, value, random_state

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
        if is_sparse(X):
            raise TypeError("X: expected dense rows, received a sparse matrix; X.toarray() makes them")
        self.estimator_ = learner.fit(X, sample_weight=sample_weight)
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        self.__dict__ |= {name: x for name, x in vars(learner).items() if name.endswith("_in_")}
        return self

    def transform(self, X: Any) -> Any:
        """Returns the rows without a missing cell; what they show stays as it is.

        A cell that nothing in ``fit`` was like, such as a new label, stays too. Others are filled in as if it
        were missing, with a warning.

        Args:
            X: (rows, columns), as in ``fit``.

        Returns:
            What X is, a frame as a frame unless ``set_output`` asks for another.

        Raises:
            ValueError: other columns than in ``fit``, or values that the visible units do not take.
        """
        check_is_fitted(self)
        return self.estimator_.impute(X, value=self.value, random_state=self.random_state)

    def intervals(self, X: Any, interval: float = 0.9, *, random_state: Any = None) -> list[CellInterval]:
        """Finds where every missing cell lies, by ``random_state`` or that of the imputer.

        Arguments, results and errors are those of ``RBM.intervals``.
        """
        check_is_fitted(self)
        seed = self.random_state if random_state is None else random_state
        return self.estimator_.intervals(X, interval, random_state=seed)

    def __sklearn_tags__(self) -> Tags:
        return take_tables(super().__sklearn_tags__())
