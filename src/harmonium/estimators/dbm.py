"""The deep Boltzmann machine as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, final

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from harmonium.data import Rows
from harmonium.data.table import UNKNOWN
from harmonium.estimators._estimator import BoltzmannEstimator
from harmonium.estimators._hidden_layers import hidden_layers
from harmonium.estimators._intake import Array, dtype_of, floating, refuse_blank, validated
from harmonium.estimators._posterior import hidden_means, posterior
from harmonium.layers import Layer
from harmonium.learning import Rule
from harmonium.learning.rules import RECIPES, centred, pcd
from harmonium.machine import (
    logistic_biases_,
    orthogonal_,
    visible_from_data_,
)
from harmonium.tasks.impute import unobserved
from harmonium.training import SCHEDULES, Schedule, pretrain
from harmonium.training.optimizers import OPTIMIZERS, OptimizerFactory


@final
class DBM(ClassNamePrefixFeaturesOutMixin, BoltzmannEstimator):
    """A deep Boltzmann machine: a density of the rows and a transformer to its hidden layers.

    Rows go in and come out in the data's own units, as with ``RBM``. ``harmonium.train`` offers more settings
    on the machine itself.

    Args:
        n_hidden: units of the hidden layers from the lowest up, each at least 1; two or more for a deep
            machine.
        visible: kind of the visible units, or kinds of columns, see ``RBM``.
        unknown: of a table, see ``RBM``.
        hidden: kind of the hidden units, see ``RBM``: "bernoulli", or "spin", whose two values weigh alike in
            the gradient (Taniguchi et al. 2023, §4.1), or others; no two layers without a bound side by side.
        hidden_states: states of each hidden unit, see ``RBM``.
        rule: how the gradient is estimated: the name of a recipe in ``harmonium.rules``, or a ``Rule``.
            "mean_field_pcd" and "pcd" take any visible units; "ucd_lmi" and "ucd" are for binary ones.
        sweeps: Gibbs sweeps of every update, at least 1; None: the recipe's own number. Only for rules that
            take them.
        n_chains: chains of the free machine, at least 1; None: ``batch_size``. Only for rules that take them.
        batch_size: rows of every update, at least 1.
        epochs: passes of ``fit`` over the rows, at least 1.
        pretraining: passes over the rows for every pair of neighbouring layers before all layers are trained
            together, at least 0: greedy pretraining by centred PCD-1 (``harmonium.training.pretrain``), at
            the same learning rate.
        centred: whether a rule by name gives the enhanced gradient (Montavon & Müller 2012 centre the machine
            instead), without which a deep machine of 0/1 units hardly learns from random couplings; a
            ``Rule`` stays as it is.
        learning_rate: of the named optimisers, >= 0.
        optimizer: "sgd"; "adam", which wants a rate around 0.01 and ``centred=False``; or a callable
            ``parameters -> torch.optim.Optimizer`` with its own rates.
        schedule: of the learning rate in ``fit``: "constant", "cosine", "linear", "inverse_sqrt", or a
            callable ``(step, total) -> factor``. In ``partial_fit`` the rate is constant.
        clip_norm: largest norm of the gradient, above 0; None: any.
        weight_decay: >= 0, of the couplings.
        initial: first couplings: "normal", N(0, initial_std²), or "orthogonal", orthogonal rows or columns of
            norm 1 with logistic biases of the hidden units, which "ucd_lmi" wants (Taniguchi et al. 2023,
            §4.3).
        initial_std: standard deviation of the first couplings, >= 0, and None, see ``RBM``; not read with
            ``initial="orthogonal"``.
        log_partition: how ln Z is found for ``score_samples``, see ``RBM``.
        ais_chains: annealing runs, at least 2.
        ais_temperatures: inverse temperatures of each run, at least 1.
        verbose: above 0, a progress bar on stderr.
        device: where to train and compute, as ``torch.device`` takes it; None: the CPU.
        random_state: int, ``RandomState`` or None, as everywhere in scikit-learn. The same int, data, device
            and number of threads give the same bits.

    Attributes:
        machine_: the trained ``BoltzmannMachine``. ``machine_.save`` keeps the encoder in its metadata.
        encoder_: turns data into states of the machine and back; fixed by ``fit`` or the first
            ``partial_fit``.
        history_: records of the training, dicts with step, seconds, learning rate, gradient norm and the
            rule's diagnostics.
        n_updates_: updates made.
        n_features_in_: columns of the data.
        feature_names_in_: their names, where the data had names.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_hidden": ["array-like"],
        "visible": [StrOptions({"auto"}), StrOptions(Layer.registry.keys()), Mapping],  # units of users too
        "unknown": [StrOptions(set(UNKNOWN))],
        "hidden": [StrOptions(Layer.registry.keys())],
        "hidden_states": [Interval(Integral, 2, None, closed="left")],
        "rule": [StrOptions(set(RECIPES)), Rule],
        "sweeps": [Interval(Integral, 1, None, closed="left"), None],
        "n_chains": [Interval(Integral, 1, None, closed="left"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "pretraining": [Interval(Integral, 0, None, closed="left")],
        "centred": ["boolean"],
        "learning_rate": [Interval(Real, 0, None, closed="left")],
        "optimizer": [StrOptions(set(OPTIMIZERS)), callable],
        "schedule": [StrOptions(set(SCHEDULES)), callable],
        "clip_norm": [Interval(Real, 0, None, closed="neither"), None],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "initial": [StrOptions({"normal", "orthogonal"})],
        "initial_std": [Interval(Real, 0, None, closed="left"), None],
        "log_partition": [StrOptions({"auto", "exact", "ais"})],
        "ais_chains": [Interval(Integral, 2, None, closed="left")],
        "ais_temperatures": [Interval(Integral, 1, None, closed="left")],
        "verbose": ["verbose"],
        "device": [str, torch.device, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_hidden: Sequence[int] = (500, 1000),
        *,
        visible: str | Mapping[Any, str] = "auto",
        unknown: str = "error",
        hidden: str = "bernoulli",
        hidden_states: int = 2,
        rule: str | Rule = "mean_field_pcd",
        sweeps: int | None = None,
        n_chains: int | None = None,
        batch_size: int = 100,
        epochs: int = 100,
        pretraining: int = 0,
        centred: bool = True,
        learning_rate: float = 0.05,
        optimizer: str | OptimizerFactory = "sgd",
        schedule: str | Schedule = "linear",
        clip_norm: float | None = 1.0,
        weight_decay: float = 0.0,
        initial: str = "normal",
        initial_std: float | None = None,
        log_partition: str = "auto",
        ais_chains: int = 100,
        ais_temperatures: int = 1000,
        verbose: int = 0,
        device: str | torch.device | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_hidden = n_hidden
        self.visible = visible
        self.unknown = unknown
        self.hidden = hidden
        self.hidden_states = hidden_states
        self.rule = rule
        self.sweeps = sweeps
        self.n_chains = n_chains
        self.batch_size = batch_size
        self.epochs = epochs
        self.pretraining = pretraining
        self.centred = centred
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.schedule = schedule
        self.clip_norm = clip_norm
        self.weight_decay = weight_decay
        self.initial = initial
        self.initial_std = initial_std
        self.log_partition = log_partition
        self.ais_chains = ais_chains
        self.ais_temperatures = ais_temperatures
        self.verbose = verbose
        self.device = device
        self.random_state = random_state

    # Hidden layers
    # ----------------------------------------------------------------------------

    def _hidden_layers(self, visible: Sequence[Layer]) -> list[Layer]:
        sizes = list(self.n_hidden)
        if not sizes or not all(isinstance(size, Integral) and size >= 1 for size in sizes):
            raise ValueError(f"n_hidden: expected sizes of at least 1, received {self.n_hidden!r}")
        return hidden_layers(visible, self.hidden, [int(size) for size in sizes], self.hidden_states)

    def _initialise(self, rows: Rows, generator: torch.Generator) -> None:
        if self.initial == "normal":
            self._random_start(rows, generator)
        else:
            orthogonal_(self.machine_, 1.0, generator)
            logistic_biases_(self.machine_, generator)
            visible_from_data_(self.machine_, rows)

    def _pretrain(self, states: Any) -> None:
        if self.pretraining and len(self.machine_.hidden) > 1:
            runs = pretrain(
                self.machine_,
                states,
                rule=centred(pcd(1, chains=self.batch_size)),
                epochs=self.pretraining,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                schedule=self.schedule,
                clip_norm=self.clip_norm,
                seed=self._stream("pretraining"),
                device=self.device,
                progress=self.verbose > 0,
            )
            if runs[-1].status == "interrupted":
                raise KeyboardInterrupt

    @property
    def _n_features_out(self) -> int:
        return sum(self.machine_.layers[l].width for l in self.machine_.hidden)

    def transform(self, X: Any) -> Any:
        """The hidden units' means given what every row shows, by naive mean field: all layers side by side.

        Args:
            X: (rows, columns), dense or sparse.

        Returns:
            (rows, sum of n_hidden), the lowest hidden layer first; float32 for float32 data, else float64.

        Raises:
            ValueError: other columns than in ``fit``, a row of missing cells only, or values that the visible
                units do not take.
        """
        check_is_fitted(self)
        X = validated(self, X, reset=False)
        machine = self._double()
        means = [hidden_means(machine, v) for v in self._states(X)]
        return floating(torch.cat(means), dtype_of(X))

    # Likelihood
    # ----------------------------------------------------------------------------

    def score_samples(self, X: Any) -> Array:
        """A lower bound on ln p of every row in nats, not ln p itself: the variational bound of naive mean
        field. Where cells are missing, of what the row shows.

        A probability for discrete units, a density in the data's units else. As good a bound as ln Z is
        known, which ``log_partition_`` tells; it is found at the first call, which may take much longer than
        the others. Exact with a single hidden layer.

        Args:
            X: (rows, columns), dense or sparse.

        Returns:
            (rows,), float64.

        Raises:
            ValueError: as ``transform``, or ``log_partition="exact"`` for a machine too large to enumerate.
        """
        check_is_fitted(self)
        X = validated(self, X, reset=False)
        machine, constant = self._double(), self.log_partition_
        bounds = [
            self._log_slopes(~unobserved(machine, v)) - posterior(machine, refuse_blank(v)).free_energy
            for v in self._states(X)
        ]
        return floating(torch.cat(bounds) - constant.value, np.float64)
