"""What every estimator does: learn from rows and score them, in the units of the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from harmonium._random import as_generator
from harmonium.data import Identity, Rows
from harmonium.data._arrays import is_sparse
from harmonium.estimators._generative import Generative
from harmonium.estimators._intake import Array, refuse_blank, states_of, units_for, validated
from harmonium.estimators._log_partition import find_log_partition
from harmonium.estimators._progress import Progress, optimizer_factory
from harmonium.layers import Layer
from harmonium.learning import Rule, rules
from harmonium.likelihood import LogPartition
from harmonium.machine import BoltzmannMachine, from_data_, joined, normal_, visible_from_data_
from harmonium.training import Schedule, train
from harmonium.training.seeds import stream_seed

_STD = 0.03  # of the first couplings


class BoltzmannEstimator(Generative, TransformerMixin, BaseEstimator, ABC):
    """A machine behind scikit-learn's interface; a subclass says which hidden layers it has.

    The parameters are those that ``RBM`` documents. scikit-learn reads them off the signature of the
    subclass, which stores them.
    """

    @abstractmethod
    def _hidden_layers(self, visible: Sequence[Layer]) -> list[Layer]:
        """New hidden layers for a machine with these visible layers."""

    @abstractmethod
    def _initialise(self, rows: Rows, generator: torch.Generator) -> None:
        """Sets the parameters of ``machine_``, given its visible states of the data."""

    def _random_start(self, rows: Rows, generator: torch.Generator) -> None:
        """Normal couplings; beside Gaussian units off their saddle, unless ``initial_std`` is given."""
        normal_(self.machine_, _STD if self.initial_std is None else self.initial_std, generator)
        if self.initial_std is None:
            from_data_(self.machine_, rows, generator)
        else:
            visible_from_data_(self.machine_, rows)

    @abstractmethod
    def _pretrain(self, states: Any) -> None:
        """What is learnt from the rows as machine states before all layers are."""

    # Learning
    # ----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fits a new machine to the rows.

        Args:
            X: (rows, columns), a data frame, dense array or sparse matrix. NaN, None and pandas.NA are
                missing cells; the likelihood of a row is then that of what it shows. Sparse rows of a
                Bernoulli machine stay sparse; other visible units need one dense float32 copy.
            y: ignored.

        Raises:
            ValueError: a parameter out of range, a row or a column of missing cells only, or values that the
                visible units do not take.
            TrainingDiverged: something is no longer finite; a smaller learning rate may help.
            KeyboardInterrupt: after Ctrl-C or SIGTERM; the estimator keeps what it has learnt.
        """
        self._validate_params()
        rule = self._learning_rule()
        X = validated(self, X, reset=True)
        self._begin(X)
        self._train(X, rule, self.epochs, self.schedule)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Goes once over more rows, with the chains and the optimiser's state of the last call.

        The first call, like ``fit``, chooses the visible units and the encoder from its rows; name
        ``visible`` where one batch may not show it. The learning rate is constant.

        Args:
            X: (rows, columns), as in ``fit``.
            y: ignored.

        Raises:
            As ``fit``.
        """
        self._validate_params()
        rule = self._learning_rule()
        first = not hasattr(self, "machine_")
        X = validated(self, X, reset=first)
        if first:
            self._begin(X)
        self._train(X, rule, 1, "constant")
        return self

    def _begin(self, X: Any) -> None:
        visible, encoder = units_for(X, self.visible, self.unknown)
        hidden = self._hidden_layers(visible)
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.encoder_ = encoder
        self.machine_ = joined(visible, hidden)
        self.machine_.metadata["encoder"] = encoder.to_dict()
        states = self._training_rows(X)
        self._initialise(Rows.of(states, missing=True), as_generator(self._stream("couplings")))
        self.history_: list[dict[str, Any]] = []
        self.n_updates_ = 0
        self._progress: Progress | None = None
        self._log_partition: tuple[Any, LogPartition] | None = None
        self._pretrain(states)

    def _learning_rule(self) -> Rule:
        if self.centred and self.optimizer == "adam" and not isinstance(self.rule, Rule):
            raise ValueError(
                'centred: expected False with optimizer="adam", which rescales every number by itself and '
                "so loses the direction"
            )
        n_chains = self.n_chains
        if n_chains is None and "chains" in rules.options(self.rule):
            n_chains = self.batch_size  # batches of a later ``partial_fit`` may have another size
        given = {"sweeps": self.sweeps, "n_chains": n_chains}
        named = {"centred": self.centred} if isinstance(self.rule, str) else {}
        return rules.from_options(
            self.rule, **named, **{name: value for name, value in given.items() if value is not None}
        )

    def _train(self, X: Any, rule: Rule, epochs: int, schedule: str | Schedule) -> None:
        self._log_partition = None  # of the machine as it was
        earlier = self._progress
        build = optimizer_factory(self.optimizer, self.learning_rate, earlier)
        built: list[torch.optim.Optimizer] = []

        def optimizer(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
            built.append(build(parameters))
            return built[0]

        run = train(
            self.machine_,
            self._training_rows(X),
            rule=rule,
            rule_state=earlier.chains_of(rule) if earlier else None,
            epochs=epochs,
            batch_size=self.batch_size,
            optimizer=optimizer,
            schedule=schedule,
            clip_norm=self.clip_norm,
            weight_decay=self.weight_decay,
            seed=self._stream("train", self.n_updates_),
            device=self.device,
            progress=self.verbose > 0,
        )
        self._progress = Progress(rule.name, run.rule_state, built[0])
        self.history_ += [{**record, "step": record["step"] + self.n_updates_} for record in run.history]
        self.n_updates_ += run.updates
        if run.status == "interrupted":
            raise KeyboardInterrupt

    # Likelihood
    # ----------------------------------------------------------------------------

    @abstractmethod
    def score_samples(self, X: Any) -> Array:
        """ln p of every row, or what stands for it, in nats: (rows,), float64."""

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of ``score_samples``, so that higher is better in a model search; ``y`` is ignored."""
        return float(self.score_samples(X).mean())

    @property
    def log_partition_(self) -> LogPartition:
        """ln Z of ``machine_``, with its standard error: zero where the value is exact.

        Found at the first use after a fit, and again when the parameters ``log_partition``, ``ais_chains`` or
        ``ais_temperatures`` change.
        """
        check_is_fitted(self)
        settings = (self.log_partition, self.ais_chains, self.ais_temperatures)
        if self._log_partition is None or self._log_partition[0] != settings:
            self._validate_params()
            value = find_log_partition(
                self.machine_,
                self.log_partition,
                chains=self.ais_chains,
                temperatures=self.ais_temperatures,
                seed=self._stream("log_partition", self.n_updates_),
            )
            self._log_partition = (settings, value)
        return self._log_partition[1]

    # Between data and states
    # ----------------------------------------------------------------------------

    def _states(self, X: Any) -> Iterator[Tensor]:
        """Validated rows as visible states in float64, a block at a time; see ``states_of``."""
        return states_of(X, self.encoder_, self.machine_)

    def _training_rows(self, X: Any) -> Any:
        if isinstance(self.encoder_, Identity) and (is_sparse(X) or not np.isnan(X).all(1).any()):
            return X
        return torch.cat([refuse_blank(v).to(self.machine_.dtype) for v in self._states(X)])

    def _log_slopes(self, given: Tensor) -> Tensor:
        """ln |slope| of the encoder, summed over the given units (rows, units) of each row."""
        machine = self.machine_
        if all(machine.layers[l].discrete for l in machine.visible):
            return given.new_zeros(len(given), dtype=torch.float64)
        slopes = self.encoder_.log_slopes(self.n_features_in_)
        return given.double() @ torch.tensor(slopes, dtype=torch.float64, device=given.device)

    def _double(self) -> BoltzmannMachine:
        return deepcopy(self.machine_).double()

    def _stream(self, purpose: str, index: int = 0) -> int:
        return stream_seed(self._seed, purpose, index)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
