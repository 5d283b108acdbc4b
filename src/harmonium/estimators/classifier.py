"""A Boltzmann machine with the label beside the data, as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from numbers import Integral, Real
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_consistent_length, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from harmonium import _checks, chains
from harmonium._random import as_generator
from harmonium.data import Rows, Standardise
from harmonium.estimators._hidden_layers import hidden_layers
from harmonium.estimators._intake import Array, floating
from harmonium.estimators._labels import observed_labels, one_hot
from harmonium.estimators._log_partition import find_log_partition
from harmonium.layers import Categorical, Layer
from harmonium.learning import Rule, rules
from harmonium.learning.rules import RECIPES
from harmonium.likelihood import LogPartition
from harmonium.machine import BoltzmannMachine, normal_, visible_for, visible_from_data_
from harmonium.training import SCHEDULES, Schedule, train
from harmonium.training.optimizers import OPTIMIZERS, OptimizerFactory
from harmonium.training.seeds import stream_seed

_DATA, _LABEL, _HIDDEN = range(3)
_ROWS = 4096
_UPDATES, _EPOCHS = 1000, 20  # at least, by default
_RATES = (0.05, 0.01)  # chains that teach all there is want a slower one


@final
class RBMClassifier(ClassifierMixin, BaseEstimator):
    """A restricted Boltzmann machine of rows and their labels (Larochelle & Bengio 2008).

    A layer for the data and one categorical unit for the label are visible, and joined to one hidden layer.
    What is learned is (1 - w) ln p(y | x) + w ln p(x, y), by ``harmonium.rules.hybrid``. The hidden units are
    summed out, so that p(y | x) is exact, in training and afterwards.

    **Missing labels** make it semi-supervised: a row without its label teaches ln p(x) in its place. Missing
    are NaN, None and pandas' NA, and what ``missing_label`` names.

    Args:
        n_hidden: hidden units, at least 1.
        objective: "hybrid", with w = ``joint``; "discriminative", w = 0; "joint", w = 1.
        joint: w, in [0, 1]; read only with ``objective="hybrid"``.
        visible: kind of the data's units, see ``RBM``.
        hidden: kind of the hidden units, see ``RBM``; of "categorical" and "binomial" ones with two states.
        rule: how the gradient of ln p(x, y) is estimated: the name of a recipe in ``harmonium.rules``, by
            which there are ``batch_size`` chains, or a ``Rule``.
        batch_size: rows of every update, at least 1.
        epochs: passes over the rows, at least 1; None: as many as make 1,000 updates, and no fewer than 20.
        learning_rate: of the named optimisers, >= 0; None: 0.05, and 0.01 with ``objective="joint"``.
        optimizer: "adam", "sgd", or a callable ``parameters -> torch.optim.Optimizer`` with its own rates.
        schedule: of the learning rate: "constant", "cosine", "linear", "inverse_sqrt", or a callable
            ``(step, total) -> factor``.
        clip_norm: largest norm of the gradient, above 0; None: any.
        weight_decay: >= 0, of the couplings.
        averaging: decay in (0, 1) of the running average of the parameters that ``machine_`` is, as in
            ``harmonium.train``; None: the last ones.
        initial_std: standard deviation of the first couplings, >= 0.
        missing_label: a label that means "not observed", such as -1, which scikit-learn's semi-supervised
            estimators take for it; None: no other than NaN, None and pandas' NA, so that -1 is a class.
        verbose: above 0, a progress bar on stderr.
        device: where to train and compute, as ``torch.device`` takes it; None: the CPU.
        random_state: int, ``RandomState`` or None, as everywhere in scikit-learn. The same int, data, device
            and number of threads give the same bits.

    Attributes:
        classes_: the labels, sorted.
        machine_: the trained ``BoltzmannMachine``; its layers are data, label and hidden units. Its precision
            is that of X, float64 or else float32, which is faster for many rows.
        encoder_: turns data into states of the machine and back.
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_hidden": [Interval(Integral, 1, None, closed="left")],
        "objective": [StrOptions({"hybrid", "discriminative", "joint"})],
        "joint": [Interval(Real, 0, 1, closed="both")],
        "visible": [StrOptions({"auto"}), StrOptions(Layer.registry.keys())],  # units of users too
        "hidden": [StrOptions(Layer.registry.keys())],
        "rule": [StrOptions(set(RECIPES)), Rule],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "epochs": [Interval(Integral, 1, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, None, closed="left"), None],
        "optimizer": [StrOptions(set(OPTIMIZERS)), callable],
        "schedule": [StrOptions(set(SCHEDULES)), callable],
        "clip_norm": [Interval(Real, 0, None, closed="neither"), None],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "averaging": [Interval(Real, 0, 1, closed="neither"), None],
        "initial_std": [Interval(Real, 0, None, closed="left")],
        "missing_label": [str, Integral, Real, None],
        "verbose": ["verbose"],
        "device": [str, torch.device, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_hidden: int = 100,
        *,
        objective: str = "hybrid",
        joint: float = 0.03,
        visible: str = "auto",
        hidden: str = "bernoulli",
        rule: str | Rule = "pcd",
        batch_size: int = 100,
        epochs: int | None = None,
        learning_rate: float | None = None,
        optimizer: str | OptimizerFactory = "adam",
        schedule: str | Schedule = "linear",
        clip_norm: float | None = 1.0,
        weight_decay: float = 0.0,
        averaging: float | None = 0.99,
        initial_std: float = 0.03,
        missing_label: Any = None,
        verbose: int = 0,
        device: str | torch.device | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_hidden = n_hidden
        self.objective = objective
        self.joint = joint
        self.visible = visible
        self.hidden = hidden
        self.rule = rule
        self.batch_size = batch_size
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.schedule = schedule
        self.clip_norm = clip_norm
        self.weight_decay = weight_decay
        self.averaging = averaging
        self.initial_std = initial_std
        self.missing_label = missing_label
        self.verbose = verbose
        self.device = device
        self.random_state = random_state

    # Learning
    # ----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fits a new machine to the rows and their labels.

        Args:
            X: (rows, columns), a dense array, data frame or sparse matrix.
            y: (rows,), labels of any kind, at least two; some may be missing.
            sample_weight: of the rows, (rows,), at least 0; only their ratios count. None: all count alike.

        Raises:
            ValueError: a parameter out of range, NaN in X, values that the visible units do not take, or y
                that is no classes.
            TrainingDiverged: something is no longer finite; a smaller learning rate may help.
            KeyboardInterrupt: after Ctrl-C or SIGTERM; the estimator keeps what it has learnt.
        """
        self._validate_params()
        rule = self._learning_rule()
        if y is None:
            raise ValueError(
                "y: expected labels: RBMClassifier requires y to be passed, but the target y is None"
            )
        X = validate_data(self, X, accept_sparse="csr")
        labels, there = observed_labels(y, self.missing_label)
        check_consistent_length(X, there)
        if sample_weight is not None and not np.any(np.asarray(sample_weight)):
            raise ValueError("sample_weight: expected a weight above zero, received zero for all rows")
        weights = _checks.weights(sample_weight, "sample_weight", len(there))
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise ValueError(f"y: expected at least two classes, received one class, {self.classes_[0]!r}")
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        y_states = one_hot(labels, there, self.classes_)
        self.machine_ = self._machine(X, weights)
        dtype = self.machine_.dtype
        x_states = torch.cat([x.to(dtype) for x in self._states(X)])
        v = torch.cat([x_states, y_states.to(x_states)], 1)
        normal_(self.machine_, self.initial_std, as_generator(self._stream("couplings")))
        visible_from_data_(self.machine_, v, weights)
        rate = _RATES[self.objective == "joint"] if self.learning_rate is None else self.learning_rate
        rows = len(v) if weights is None else int((weights > 0).sum())
        run = train(
            self.machine_,
            v,
            rule=rule,
            sample_weight=weights,
            epochs=self.epochs or max(_EPOCHS, -(-_UPDATES * min(self.batch_size, rows) // rows)),
            batch_size=self.batch_size,
            optimizer=self.optimizer,
            learning_rate=rate,
            schedule=self.schedule,
            clip_norm=self.clip_norm,
            weight_decay=self.weight_decay,
            averaging=self.averaging,
            seed=self._stream("train"),
            device=self.device,
            progress=self.verbose > 0,
        )
        if run.averaged_machine is not None:
            self.machine_ = run.averaged_machine
        self.history_, self.n_updates_ = run.history, run.updates
        self._generative = rule.generative
        self._log_partition: LogPartition | None = None
        if run.status == "interrupted":
            raise KeyboardInterrupt
        return self

    def _learning_rule(self) -> Rule:
        chained = {"chains": self.batch_size} if "chains" in rules.options(self.rule) else {}
        share = {"discriminative": 0.0, "joint": 1.0}.get(self.objective, self.joint)
        return rules.hybrid(rules.from_options(self.rule, **chained), [_DATA], float(share))

    def _machine(self, X: Any, weights: Tensor | None) -> BoltzmannMachine:
        rows = Rows.of(X if weights is None else X[(weights > 0).numpy()], torch.float64)
        visible, self.encoder_ = visible_for(rows, self.visible)
        if weights is not None and isinstance(self.encoder_, Standardise):
            self.encoder_ = Standardise.fit(rows, weights=weights[weights > 0])
        label = Categorical(1, len(self.classes_))
        hidden = hidden_layers([visible], self.hidden, [self.n_hidden], 2)
        edges = [(_DATA, _HIDDEN), (_LABEL, _HIDDEN)]
        machine = BoltzmannMachine([visible, label, *hidden], edges=edges, visible=[_DATA, _LABEL])
        return machine.double() if X.dtype == np.float64 else machine

    # Labels of rows
    # ----------------------------------------------------------------------------

    def predict(self, X: Any) -> Array:
        """The most probable label of every row: (rows,), of the classes' dtype.

        Args:
            X: (rows, columns), dense or sparse.

        Raises:
            ValueError: other columns than in ``fit``, NaN, or values that the visible units do not take.
        """
        best = self._log_weights(X).argmax(1).cpu().numpy()
        labels: Array = self.classes_[best]
        return labels

    def predict_proba(self, X: Any) -> Array:
        """p(y | x), exact: (rows, classes), float64, in the order of ``classes_``. Else as ``predict``."""
        return floating(self._log_weights(X).softmax(1), np.float64)

    def predict_log_proba(self, X: Any) -> Array:
        """ln p(y | x), finite where ``predict_proba`` is 0: (rows, classes), float64. Else as ``predict``."""
        return floating(self._log_weights(X).log_softmax(1), np.float64)

    def decision_function(self, X: Any) -> Array:
        """ln p(y | x), (rows, classes); of two classes the log odds of the second, (rows,). float64."""
        scores = self._log_weights(X).log_softmax(1)
        return floating(scores if len(self.classes_) > 2 else scores[:, 1] - scores[:, 0], np.float64)

    @torch.no_grad()
    def _log_weights(self, X: Any) -> Tensor:
        """ln Σ_h exp(-E(x, y, h)) for every label y, (rows, classes), float64."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", reset=False)
        hamiltonian = deepcopy(self.machine_).double().hamiltonian()
        labels = torch.eye(len(self.classes_), dtype=torch.float64, device=hamiltonian.device)
        parts = []
        for x in self._states(X):
            states = [x, x.new_zeros(len(x), len(labels)), x[:, :0]]
            heard = hamiltonian.field(_HIDDEN, states, given=[_DATA])
            each = []
            for label in labels:
                states[_LABEL] = label.expand(len(x), -1)
                field = heard + hamiltonian.field(_HIDDEN, states, given=[_LABEL])
                each.append(-hamiltonian.free_energy(states, (_HIDDEN,), {_HIDDEN: field}))
            parts.append(torch.stack(each, 1))
        return torch.cat(parts)

    # Likelihood and samples
    # ----------------------------------------------------------------------------

    def score_samples(self, X: Any, y: Any = None) -> Array:
        """ln p(x) of every row in nats, or ln p(x, y) with its label: (rows,), float64.

        A probability for discrete data, a density in the data's units else. As exact as ``log_partition_``.

        Args:
            X: (rows, columns), dense or sparse.
            y: (rows,), labels as in ``fit``, a missing one summed out; None: all are.

        Raises:
            ValueError: as ``predict``, a label that ``fit`` has not met, or a discriminative machine.
        """
        check_is_fitted(self)
        self._check_generative("score_samples")
        log_weights = self._log_weights(X)
        if y is not None:
            labels, there = observed_labels(y, self.missing_label)
            check_consistent_length(log_weights, there)
            states = one_hot(labels, there, self.classes_).to(log_weights.device)
            log_weights = log_weights.masked_fill(states == 0, -torch.inf)
        scores = log_weights.logsumexp(1) - self.log_partition_.value
        if not self.machine_.layers[_DATA].discrete:
            scores += self.encoder_.log_abs_det(self.n_features_in_)
        return floating(scores, np.float64)

    @property
    def log_partition_(self) -> LogPartition:
        """ln Z of ``machine_``, found at the first use: exact up to 2^20 states, else annealed."""
        check_is_fitted(self)
        if self._log_partition is None:
            self._log_partition = find_log_partition(
                self.machine_, "auto", chains=100, temperatures=1000, seed=self._stream("log_partition")
            )
        return self._log_partition

    def sample(
        self, n_samples: int = 1, *, label: Any = None, sweeps: int = 1000, random_state: Any = None
    ) -> tuple[Array, Array]:
        """Rows drawn from the machine, in the units of the data, and their labels.

        Gibbs chains, each from noise of its own: rows are independent, and follow the machine's law as far as
        ``sweeps`` have mixed it.

        Args:
            n_samples: rows, at least 1.
            label: one of ``classes_``, or one for each row: rows are drawn given it. None: drawn too.
            sweeps: of every chain, at least 0.
            random_state: int, ``RandomState``, or None for that of the estimator.

        Returns:
            (n_samples, columns), float64, and (n_samples,).

        Raises:
            ValueError: a label that ``fit`` has not met, or a discriminative machine.
        """
        check_is_fitted(self)
        _checks.positive_int(n_samples, "n_samples")
        self._check_generative("sample")
        machine = self.machine_
        held = torch.full((n_samples, machine.visible_width), torch.nan, dtype=machine.dtype)
        if label is not None:
            labels = np.broadcast_to(np.asarray(label), (n_samples,))
            columns = machine.layers[_DATA].width
            held[:, columns:] = one_hot(labels, np.ones(n_samples, dtype=bool), self.classes_)
        random = check_random_state(self.random_state if random_state is None else random_state)
        seed = stream_seed(int(random.randint(2**31 - 1)), "sample")
        generator = as_generator(seed, machine.device)
        start = machine.random_states(n_samples, seed=generator)
        clamp = None if label is None else held.to(machine.device)
        states = chains.run(machine, chains.Gibbs(), start, sweeps, clamp=clamp, seed=generator)
        drawn = self.classes_[states[_LABEL].argmax(1).cpu().numpy()]
        return floating(self.encoder_.decode(states[_DATA].double()), np.float64), drawn

    def _check_generative(self, what: str) -> None:
        if not self._generative:
            raise ValueError(
                f'objective: expected "hybrid" or "joint" for {what}: a discriminative machine has learned '
                "p(y | x) and nothing of p(x)"
            )

    # Between data and states
    # ----------------------------------------------------------------------------

    def _states(self, X: Any) -> Iterator[Tensor]:
        """The rows as states of the data layer in float64, a block at a time."""
        start = 0
        for rows in Rows.of(X, torch.float64).chunks(_ROWS):
            x = self.encoder_.encode(rows).to(self.machine_.device, torch.float64)
            self.machine_.layers[_DATA].check(x, f"X[{start}:]" if start else "X")
            start += len(x)
            yield x

    def _stream(self, purpose: str) -> int:
        return stream_seed(self._seed, purpose)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
