"""A Boltzmann machine with the label beside the data, as a scikit-learn classifier."""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from sklearn import config_context
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.utils import check_consistent_length
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from harmonium import _checks
from harmonium._random import as_generator
from harmonium._rows import Rows
from harmonium.estimators._intake import (
    Array,
    counted,
    floating,
    refuse_blank,
    taken,
    validated,
    weights_of,
)
from harmonium.estimators._label_posterior import MISSING, LabelPosterior
from harmonium.estimators._labels import classes_of, column_of, observed_labels, one_hot
from harmonium.estimators._neighbours import from_neighbours
from harmonium.estimators._options import CONSTRAINTS, COUNT
from harmonium.estimators._restricted import RestrictedEstimator
from harmonium.estimators.rbm import RBM
from harmonium.layers import Categorical
from harmonium.learning import rules
from harmonium.learning.discriminative import label_rate
from harmonium.machine import BoltzmannMachine
from harmonium.tasks.impute import unobserved
from harmonium.training.optimizers import OptimizerFactory


@final
@dataclass(eq=False, repr=False)
class RBMClassifier(ClassifierMixin, RestrictedEstimator):
    """A restricted Boltzmann machine of rows and their labels (Larochelle & Bengio 2008).

    Layers for the data and one categorical unit for the label are visible, and joined to one hidden layer.
    What is learned is (1 - w) ln p(y | x) + w ln p(x, y), by ``harmonium.rules.hybrid``. The hidden units are
    summed out, so that p(y | x) is exact, in training and afterwards. X may be a table with missing cells, as
    of ``RBM``: then what a row shows is what it is classified by.

    **Missing labels** make it semi-supervised. Missing are NaN, None and pandas' NA, and what
    ``missing_label`` names. A row without its label teaches ln p(x) in place of ln p(x, y), or, where that
    is likely to help (``unlabelled``), the label of its neighbours: an ``RBM`` learns all rows, and labels
    spread along the graph of the rows whose hidden units are most alike.

    All other parameters are those of ``RBM``; some have other defaults.

    Args:
        n_hidden: hidden units, at least 1.
        objective: "hybrid", with w = ``joint``; "discriminative", w = 0; "joint", w = 1.
        joint: w, in [0, 1]; read only with ``objective="hybrid"``.
        rule: how the gradient of ln p(x, y) is estimated: the name of a recipe in ``harmonium.rules``, or a
            ``Rule``.
        epochs: passes over the rows, at least 1; None: 20, or as many as make 1,000 updates.
        learning_rate: of the named optimisers, >= 0; None: 0.03, and 0.24/√w where the layers that code X
            have a width w above 64.
        missing_label: a label that means "not observed", such as -1, which scikit-learn's semi-supervised
            estimators take for it; None: no other than NaN, None and pandas' NA, so that -1 is a class.
        unlabelled: what a row without its label teaches. "density": ln p(x), which is nothing with w = 0.
            "neighbours": what it would with the label that Poisson learning (Calder, Cook, Thorpe & Slepčev
            2020) gives it on the graph of 10 nearest neighbours, taken for certain. "auto": "neighbours",
            unless a logistic regression on the hidden units tells labels that are held out, a fifth at a
            time, better by more than a standard error. Rows that ``early_stopping`` holds out have told
            their neighbours by then, so that its score is a little too good.
        missing_cells: how ``predict`` and its like sum over what a row of X lacks: "exact", by enumeration of
            the missing cells, or else of the hidden units, up to 2^26 states; "gibbs", by 10 chains of 60
            sweeps for every row, that hold what it shows; "auto": "exact" up to 2^12 states, else "gibbs".
        early_stopping: as ``RBM``, by the mean of ln p(y | x) over held-out rows that have a label and no
            missing cell.
        dtype: of the machine; None: float64 for float64 data, else float32, which is faster for many rows.

    Attributes:
        classes_: the labels, sorted.
        machine_: the trained ``BoltzmannMachine``; its layers are those of the data, the label and the hidden
            units. Its metadata have the encoder of X, under "label" the column of the classes
            (``harmonium.data.column.Column``), and "objective".
        encoder_: turns X into states of the machine and back.
        history_: records of the training, see ``RBM``.
        n_updates_: updates made.
        n_features_in_: columns of the data.
        feature_names_in_: their names, where the data had names.

    Example:
        >>> import harmonium as hm
        >>> X, y = hm.data.digits()
        >>> X, y = hm.data.threshold(X)[:600], y[:600].astype(object)
        >>> y[100:300] = None  # not observed
        >>> classifier = hm.RBMClassifier(epochs=20, random_state=0).fit(X[:500], y[:500])
        >>> classifier.score(X[500:], y[500:].astype(int)) > 0.7
        True
        >>> images, labels = classifier.sample(3, label=8, random_state=0)
        >>> images.shape, labels
        ((3, 64), array([8, 8, 8]))
    """

    _: KW_ONLY
    objective: str = "hybrid"
    joint: float = 0.03
    missing_label: Any = None
    unlabelled: str = "auto"
    missing_cells: str = "auto"
    centred: bool = False
    learning_rate: float | None = None
    optimizer: str | OptimizerFactory = "adam"
    averaging: float | None = 0.99
    initial_std: float | None = 0.03

    _EPOCHS, _UPDATES = 20, 1000
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_hidden": [COUNT],
        "objective": [StrOptions({"hybrid", "discriminative", "joint"})],
        "joint": [Interval(Real, 0, 1, closed="both")],
        "missing_label": [str, Integral, Real, None],
        "unlabelled": [StrOptions({"auto", "neighbours", "density"})],
        "missing_cells": [StrOptions(set(MISSING))],
        **CONSTRAINTS,
        "learning_rate": [*CONSTRAINTS["learning_rate"], None],
    }

    # Learning
    # ----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fits a machine to the rows and their labels: a new one, or with ``warm_start`` the last one.

        Args:
            X: (rows, columns), a data frame, dense array or sparse matrix; NaN, None and pandas.NA are
                missing cells.
            y: (rows,), labels of any kind, at least two; some may be missing.
            sample_weight: of the rows, (rows,), at least 0; only their ratios count. None: all count alike.

        Raises:
            ValueError: a parameter out of range, a row or a column of missing cells only, values that the
                visible units do not take, or y that is no classes. After this and any other error the
                estimator is as it was before the call.
            TrainingDiverged, KeyboardInterrupt, SystemExit: see ``RBM.fit``.
        """
        with self._learner() as learner:
            learner._learn(X, y, sample_weight)
        return self

    def _learn(self, X: Any, y: Any, sample_weight: Any) -> None:
        self._validate_params()
        share = {"discriminative": 0.0, "joint": 1.0}.get(self.objective, self.joint)
        rule = self._learning_rule()
        if y is None:
            raise ValueError(
                "y: expected labels: RBMClassifier requires y to be passed, but the target y is None"
            )
        again = self.warm_start and hasattr(self, "machine_")
        rows = self._looked_at(X, again)
        labels, there = observed_labels(y, self.missing_label)
        check_consistent_length(rows, there)
        weights = weights_of(sample_weight, len(there))
        if again:
            self._refuse_other_layers()
            self.machine_ = deepcopy(self.machine_)  # which training changes in place
        else:
            self.classes_ = np.unique(labels)
            if len(self.classes_) < 2:
                raise ValueError(
                    f"y: expected at least two classes, received one class, {self.classes_.tolist()[0]!r}"
                )
        label = one_hot(labels, there, self.classes_)
        index, weights = counted(weights)
        rows, label = taken(rows, index), label[index]
        if bool(label.isnan().all()):
            raise ValueError(
                "y, sample_weight: expected a label in at least one row of a weight above 0, received none"
            )
        begun = None
        if not again:
            double = getattr(rows, "dtype", None) == np.float64
            dtype = torch.float64 if double else torch.float32
            begun = self._begin(rows, weights, dtype, (Categorical(1, len(self.classes_)), label))
            self.machine_.metadata["label"] = column_of(self.classes_).to_dict()
            self.machine_.metadata["objective"] = self.objective if share else "discriminative"
        rate = self.learning_rate
        if rate is None:
            rate = label_rate(self._data_width)
        states = self._training_rows(rows, begun, label).all()
        given = [l for l in self.machine_.visible if l != self._label_layer]
        rule = rules.hybrid(rule, given, float(share))
        judged = ~states.isnan().any(1)
        if self.unlabelled != "density" and bool(label.isnan().any()):
            states[:, self._data_width :] = self._guessed(rows, label, weights).to(states)
        learned = Rows.of(states, self.machine_.dtype, missing=True)
        self._train(learned, weights, rule, rate, judged=judged)

    def _guessed(self, X: Any, label: Tensor, weights: Tensor | None) -> Tensor:
        """The labels, (rows, classes), with missing ones as ``unlabelled`` says."""
        shared = ("n_hidden", "visible", "unknown", "binarise", "hidden", "hidden_states", "batch_size")
        features = RBM(
            **{name: getattr(self, name) for name in (*shared, "dtype", "verbose", "device")},
            max_updates=self._length(len(label)),
            random_state=self._stream("neighbours") % 2**32,
        )
        with warnings.catch_warnings(), config_context(transform_output="default"):
            warnings.simplefilter("ignore", ConvergenceWarning)  # as long as this machine, or its own length
            means = features.fit(X, sample_weight=weights).transform(X)
            return from_neighbours(means, label, always=self.unlabelled == "neighbours")

    def _row_score(self, machine: BoltzmannMachine, states: Tensor) -> Tensor:
        """ln p(y | x)."""
        x, y = self._data(states.double()), states[:, self._data_width :].to(torch.float64)
        log_p = LabelPosterior(machine).log_weights(x.to(machine.device)).log_softmax(1)
        return (log_p * y.to(log_p)).sum(1)

    def _calibrate(self, X: Any, weights: Any) -> None:
        pass

    def _adopt(self, machine: BoltzmannMachine) -> None:
        label = machine.layers[machine.visible[-1]]
        if len(machine.visible) < 2 or label.n_units != 1 or label.width != label.n_states:
            raise ValueError(
                "machine: expected a label as its last visible layer, one categorical unit beside the data's "
                f"layers, received {', '.join(str(machine.layers[l]) for l in machine.visible)}"
            )
        self.classes_ = np.arange(label.width)
        if "label" in machine.metadata:
            self.classes_ = classes_of(machine.metadata["label"])
        if len(self.classes_) != label.width:
            raise ValueError(
                f"machine: expected {label.width} classes in its metadata, received {len(self.classes_)}"
            )
        self._generative = machine.metadata.get("objective") != "discriminative"
        self._data_width = machine.visible_width - label.width

    @property
    def _label_layer(self) -> int:
        return self.machine_.visible[-1]

    # Labels of rows
    # ----------------------------------------------------------------------------

    def predict(self, X: Any) -> Array:
        """The most probable label of every row: (rows,), of the classes' dtype.

        Args:
            X: (rows, columns), a frame, dense or sparse. Of a row with missing cells it is the label given
                what the row shows: these are summed out as ``missing_cells`` says.

        Raises:
            ValueError: other columns than in ``fit``, values that the visible units do not take, a row of
                missing cells only, or ``missing_cells="exact"`` for more than 2^26 states.
        """
        best = self._scores_of(X).argmax(1).cpu().numpy()
        labels: Array = self.classes_[best]
        return labels

    def predict_proba(self, X: Any) -> Array:
        """p(y | x): (rows, classes), float64, in the order of ``classes_``. Else as ``predict``.

        Exact for a row without missing cells, and for others with ``missing_cells="exact"``; where chains are
        asked for the mean over their draws of the missing cells of p(y | a row filled in so), which follows
        p(y | what the row shows) as far as the chains have mixed, to about 0.02.
        """
        return floating(self._scores_of(X).exp(), np.float64)

    def predict_log_proba(self, X: Any) -> Array:
        """ln p(y | x), finite where ``predict_proba`` is 0: (rows, classes), float64. Else as ``predict``."""
        return floating(self._scores_of(X), np.float64)

    def decision_function(self, X: Any) -> Array:
        """ln p(y | x), (rows, classes); of two classes the log odds of the second, (rows,). float64."""
        scores = self._scores_of(X)
        return floating(scores if len(self.classes_) > 2 else scores[:, 1] - scores[:, 0], np.float64)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows whose most probable label is their own, or of their weight.

        Args:
            X: as ``predict``.
            y: (rows,), labels.
            sample_weight: of the rows, (rows,); None: all count alike.

        Raises:
            ValueError: as ``predict``, or a row without its label.
        """
        labels, there = observed_labels(y, self.missing_label)
        if not there.all():
            raise ValueError(
                f"y: expected the label of every row to score against, received none for row "
                f"{int(there.argmin())} ({int((~there).sum())} rows have none); leave these rows out"
            )
        return float(accuracy_score(labels, self.predict(X), sample_weight=sample_weight))

    def _scores_of(self, X: Any) -> Tensor:
        """ln p(y | x), (rows, classes), float64."""
        check_is_fitted(self)
        X = validated(self, X, reset=False)
        machine = self._double()
        posterior = LabelPosterior(machine)
        generator = as_generator(self._stream("missing cells"), machine.device)
        blocks = (refuse_blank(x) for x in self._states(X))
        return torch.cat([posterior.log_probabilities(x, self.missing_cells, generator) for x in blocks])

    # Likelihood and samples
    # ----------------------------------------------------------------------------

    def score_samples(self, X: Any, y: Any = None) -> Array:
        """ln p(x) of every row in nats, or ln p(x, y) with its label: (rows,), float64.

        A probability for discrete data, a density in the data's units else; of a row with missing cells that
        of what it shows. As exact as ``log_partition_``.

        Args:
            X: (rows, columns), a frame, dense or sparse.
            y: (rows,), labels as in ``fit``, a missing one summed out; None: all are.

        Raises:
            ValueError: as ``predict``, a label that ``fit`` has not met, a discriminative machine, or missing
                cells with too many states to sum over.
        """
        check_is_fitted(self)
        self._require_density("score_samples")
        X = validated(self, X, reset=False)
        x = torch.cat([refuse_blank(x) for x in self._states(X)])
        try:
            log_weights = LabelPosterior(self._double()).log_weights(x)
        except ValueError as error:
            raise ValueError(
                "X: expected rows whose missing cells (NaN), or else the hidden units, have at most 2^26 "
                "states to sum over; score rows without missing cells, or impute(X)"
            ) from error
        if y is not None:
            labels, there = observed_labels(y, self.missing_label)
            check_consistent_length(log_weights, there)
            states = one_hot(labels, there, self.classes_).to(log_weights.device)
            log_weights = log_weights.masked_fill(states == 0, -torch.inf)
        scores = log_weights.logsumexp(1) - self.log_partition_.value
        shown = ~unobserved(self.machine_, self._visible(X))[:, : self._ends[-1]]
        return floating(scores + self._log_slopes(shown), np.float64)

    def sample(
        self,
        n_samples: int = 1,
        *,
        label: Any = None,
        given: Any = None,
        method: str = "gibbs",
        sweeps: int = 1000,
        random_state: Any = None,
    ) -> tuple[Any, Array]:
        """Rows drawn from the machine, in the units of the data, and their labels.

        Each comes from noise of its own: rows are independent.

        Args:
            n_samples: rows, at least 1; with ``given`` so many for each row of it, one after the other.
            label: one of ``classes_``, or one for each row: rows are drawn given it. None: drawn too.
            given: cells that are held, see ``RBM.sample``.
            method: see ``RBM.sample``.
            sweeps: of every chain, at least 0.
            random_state: int, ``RandomState``, or None for that of the estimator.

        Returns:
            (rows, columns), float64, or a frame where ``fit`` saw one and nothing was binarised; and (rows,).

        Raises:
            ValueError: a label that ``fit`` has not met, cells that the machine has no column or no state
                for, or a discriminative machine.
        """
        check_is_fitted(self)
        _checks.positive_int(n_samples, "n_samples")
        self._require_density("sample")
        machine, known, clamp = self.machine_, None, None
        held = torch.full((n_samples, machine.visible_width), torch.nan, device=machine.device)
        if given is not None:
            known, held = self._given(given, n_samples)
        rows = len(held)
        if label is not None:
            labels, there = np.broadcast_to(np.asarray(label), (rows,)), np.ones(rows, dtype=bool)
            held[:, self._data_width :] = one_hot(labels, there, self.classes_, "label")
        if label is not None or given is not None:
            clamp = held.to(machine.dtype)
        states = self._draw(rows, clamp, method, sweeps, random_state)
        drawn = self.classes_[states[self._label_layer].argmax(1).cpu().numpy()]
        return self._drawn_rows(machine.hamiltonian().seen(states), known), drawn
