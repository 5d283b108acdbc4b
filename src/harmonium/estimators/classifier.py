"""A Boltzmann machine with the label beside the data, as a scikit-learn classifier."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Self, final

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils import check_consistent_length
from sklearn.utils.class_weight import compute_sample_weight
from torch import Tensor

from harmonium._random import as_generator
from harmonium._settings import Count, Interval, Setting
from harmonium.estimators._estimator import BoltzmannEstimator
from harmonium.estimators._fitted import Fitted
from harmonium.estimators._intake import Array, classes_of, column_of, observed_labels, one_hot, validated
from harmonium.estimators._training import Label
from harmonium.machine import BoltzmannMachine
from harmonium.tables import LABEL, OBJECTIVES, share_of
from harmonium.tasks import log_probabilities
from harmonium.training import OptimizerFactory

# Of a row with missing cells: p(y | x) is then known to about 0.02, four times as many halve that.
_CHAINS, _SWEEPS = 10, 60


@final
@dataclass(eq=False, repr=False)
class RBMClassifier(ClassifierMixin, BoltzmannEstimator):
    """A restricted Boltzmann machine of rows and their labels (Larochelle & Bengio 2008).

    Layers for the data and one categorical unit for the label are visible, and joined to one hidden layer.
    What is learned is (1 - w) ln p(y | x) + w ln p(x, y), by ``harmonium.rules.hybrid``. The hidden units are
    summed out, so that p(y | x) is exact, in training and afterwards. X may be a table with missing cells, as
    of ``RBM``: then what a row shows is what it is classified by.

    **Missing labels** make it semi-supervised. Missing are NaN, None and pandas' NA, and what
    ``missing_label`` names. A row without its label teaches ln p(x) in place of ln p(x, y), and nothing with
    w = 0.

    All other parameters are those of ``RBM``; some have other defaults.

    Args:
        n_hidden: hidden units, at least 1. None: 8 for a table, else 100 or 500 (see ``RBM``).
        objective: "hybrid", with w = ``joint``; "discriminative", w = 0; "joint", w = 1.
        joint: w, in [0, 1]; read only with ``objective="hybrid"``.
        method: see ``RBM``. "exact": with w < 1 it begins at a logistic regression, and ln p(y | x) in three
            folds chooses weight decay and length; with w = 1 it does as ``RBM``.
        rule: how the gradient of ln p(x, y) is estimated: the name of a recipe in ``harmonium.rules``, or a
            ``Rule``.
        epochs: passes over the rows, at least 1; None: 20, or as many as make 1,000 updates.
        learning_rate: Rate of the named optimisers, >= 0; None: 0.03, and 0.24/√w where the layers that code
            X have a width w above 64.
        class_weight: a weight for each class, by a mapping from labels, which multiplies those of its rows;
            "balanced": in inverse proportion to the number of its rows; None: 1. A class that is not named
            and a row without its label weigh 1.
        missing_label: a label that means "not observed", such as -1, which scikit-learn's semi-supervised
            estimators take for it; None: no other than NaN, None and pandas' NA, so that -1 is a class.
        dtype: Precision of the machine; None: float64 for float64 data trained by chains, else float32.

    Attributes:
        classes_: the labels, sorted.
        machine_: the trained ``BoltzmannMachine``; its layers are those of the data, the label and the hidden
            units. Its metadata have the encoder of X, under "label" the column of the classes
            (``harmonium.tables.ColumnCodec``), and "objective".
        encoder_, history_, n_updates_, n_features_in_, feature_names_in_: see ``RBM``.

    Examples:
        >>> import harmonium as hm
        >>> X, y = hm.data.digits()
        >>> X, y = hm.data.threshold(X)[:600], y[:600].astype(object)
        >>> y[100:300] = None  # not observed
        >>> classifier = hm.RBMClassifier(epochs=20, random_state=0).fit(X[:500], y[:500])
        >>> classifier.score(X[500:], y[500:].astype(int)) > 0.7
        True
        >>> X[500, :10] = None  # a missing cell
        >>> classifier.predict(X[500:]).shape, classifier.predict_proba(X[500:]).shape
        ((100,), (100, 10))
        >>> images, labels = classifier.sample(3, label=8, random_state=0)
        >>> images.shape, labels
        ((3, 64), array([8, 8, 8]))
    """

    n_hidden: Count | None = None
    _: KW_ONLY
    objective: Annotated[str, Setting(OBJECTIVES)] = "hybrid"
    joint: Annotated[float, Setting(Interval(0.0, 1.0))] = OBJECTIVES["hybrid"]
    class_weight: Annotated[dict[Any, float] | str | None, Setting(("balanced",))] = None
    missing_label: str | int | float | None = None
    optimizer: str | OptimizerFactory = LABEL.optimizer
    averaging: float | None = LABEL.averaging
    initial_std: float | None = LABEL.initial_std

    def _take_label(self, machine: BoltzmannMachine) -> None:
        label = machine.layers[machine.visible[-1]]
        if len(machine.visible) < 2 or label.n_units != 1 or label.width != label.n_states:
            raise ValueError(
                "machine: expected a label as its last visible layer, one categorical unit beside the data's "
                f"layers, received {', '.join(str(machine.layers[l]) for l in machine.visible)}"
            )
        known = machine.metadata.setdefault("label", column_of(np.arange(label.width)).to_dict())
        self.classes_ = classes_of(known)

    # Learning

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fits a machine to the rows and their labels: a new one, or with ``warm_start`` the last one.

        Args:
            X: (rows, columns), a data frame, dense array or sparse matrix; NaN, None and pandas.NA are
                missing cells.
            y: (rows,), labels of any kind, at least two; some may be missing.
            sample_weight: Row weights, (rows,), at least 0, of which only ratios count; None means uniform.

        Raises:
            ValueError: a parameter out of range, a row or a column of missing cells only, values that the
                visible units do not take, or y that is no classes. After this and any other error the
                estimator is as it was before the call.
            TrainingDiverged, KeyboardInterrupt, SystemExit: see ``RBM.fit``.
        """
        return self._fit(X, y, sample_weight, again=self.warm_start)

    def _read_labels(
        self, y: Any, count: int, weights: Tensor | None, earlier: Fitted | None
    ) -> tuple[Tensor | None, Label]:
        if y is None:
            raise ValueError(
                "y: expected labels: RBMClassifier requires y to be passed, but the target y is None"
            )
        labels, there = observed_labels(y, self.missing_label)
        check_consistent_length(range(count), there)
        if self.class_weight is not None:
            factors = torch.ones(count, dtype=torch.float64, device="cpu")
            of_classes = compute_sample_weight(self.class_weight, labels).astype(np.float64)
            factors[torch.from_numpy(there)] = torch.from_numpy(of_classes)
            weights = factors if weights is None else weights * factors
        if earlier is None:
            self.classes_ = np.unique(labels)
            if len(self.classes_) < 2:
                raise ValueError(
                    f"y: expected at least two classes, received one class, {self.classes_.tolist()[0]!r}"
                )
        states, share = one_hot(labels, there, self.classes_), share_of(self.objective, self.joint)
        return weights, Label(column_of(self.classes_), states, share)

    # Labels of rows

    def predict(self, X: Any) -> Array:
        """Returns the most probable label of every row: (rows,), of the classes' dtype.

        Args:
            X: (rows, columns), a frame, dense or sparse. Of a row with missing cells it is the label given
                what the row shows.

        Raises:
            ValueError: other columns than in ``fit``, values that the visible units do not take, or a row of
                missing cells only.
        """
        known = self.predict_log_proba(X).argmax(1)  # refuses an estimator that is not fitted
        labels: Array = self.classes_[known]
        return labels

    def predict_proba(self, X: Any) -> Array:
        """Returns p(y | x): (rows, classes), float64, in the order of ``classes_``. Else as ``predict``.

        Missing cells, or else the hidden units, are summed out, where they have at most 2^12 states, as 12
        hidden units have. Beyond, p(y | x) of a row that lacks cells is the mean over ten chains of 60 sweeps
        that hold what the row shows, known to about 0.02.
        """
        return torch.from_numpy(self.predict_log_proba(X)).exp().numpy()

    def predict_log_proba(self, X: Any) -> Array:
        """Returns ln p(y | x), finite where ``predict_proba`` is 0: (rows, classes). Else as ``predict``."""
        fitted, X = self._require_fitted(), validated(self, X)
        machine = fitted.double()
        generator = as_generator(fitted.stream("missing cells"), machine.device)
        about: tuple[Any, ...] = (machine.visible[-1], 0, "auto", _SWEEPS, _CHAINS, generator)
        return fitted.compute(X, lambda v: log_probabilities(machine, v, *about)[0][:, 0])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Returns the share of rows, or of their weight, whose most probable label is their own.

        Raises:
            ValueError: as ``predict``, or a row without its label.
        """
        labels, there = observed_labels(y, self.missing_label)
        if not there.all():
            raise ValueError(
                f"y: expected the label of every row to score against, received none for row "
                f"{int(there.argmin())} ({int((~there).sum())} rows have none); leave these rows out"
            )
        return float(super().score(X, labels, sample_weight))

    def _row_score(self, machine: BoltzmannMachine, states: Tensor) -> Tensor:
        """Returns ln p(y | x) of rows with their labels, (rows,)."""
        label = machine.visible[-1]
        log_p = log_probabilities(machine, states, label, 0, "exact")[0][:, 0]
        return (log_p * states[:, -machine.layers[label].width :].to(log_p)).sum(1)

    def sample(
        self,
        n_samples: int = 1,
        *,
        label: Any = None,
        given: Any = None,
        method: str = "auto",
        sweeps: int | None = None,
        random_state: Any = None,
    ) -> tuple[Any, Array]:
        """Draws rows from the machine, in the units of the data, and their labels.

        Args:
            n_samples: rows, at least 1; with ``given`` so many for each row of it, one after the other.
            label: one of ``classes_``, or one for each row: rows are drawn given it. None: drawn too.
            given: cells that are held, see ``RBM.sample``.
            method: see ``RBM.sample``.
            sweeps: see ``RBM.sample``.
            random_state: int, ``RandomState``, or None for that of the estimator.

        Returns:
            (rows, columns), float64, or a frame where ``fit`` saw one; and (rows,).

        Raises:
            ValueError: a label that ``fit`` has not met, cells that the machine has no column or no state
                for, or a discriminative machine.
        """

        def held(count: int) -> Tensor:
            labels, there = np.broadcast_to(np.asarray(label), (count,)), np.ones(count, dtype=bool)
            return one_hot(labels, there, self.classes_, "label")

        rows, v = self._draw(n_samples, given, method, sweeps, random_state, None if label is None else held)
        return rows, self.classes_[v[:, -len(self.classes_) :].argmax(1).cpu().numpy()]
