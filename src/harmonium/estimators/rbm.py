"""The restricted Boltzmann machine as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, final

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from harmonium.data import Rows
from harmonium.data.table import UNKNOWN
from harmonium.estimators._estimator import BoltzmannEstimator
from harmonium.estimators._hidden_layers import hidden_layers
from harmonium.estimators._intake import (
    Array,
    decoded,
    dtype_of,
    floating,
    refuse_blank,
    validated,
)
from harmonium.estimators._posterior import hidden_means
from harmonium.layers import Layer
from harmonium.learning import Rule
from harmonium.learning.rules import RECIPES
from harmonium.likelihood import LogPartition, log_likelihood
from harmonium.likelihood.exact import log_weight_of
from harmonium.machine import BoltzmannMachine
from harmonium.tasks.impute import unobserved, visible_means
from harmonium.training import SCHEDULES, Schedule
from harmonium.training.optimizers import OPTIMIZERS, OptimizerFactory


@final
class RBM(ClassNamePrefixFeaturesOutMixin, BoltzmannEstimator):
    """A restricted Boltzmann machine: a density of the rows and a transformer to its hidden units.

    Rows go in and come out in the data's own units, a frame as a frame: an encoder, chosen with the visible
    units, stands between them and the machine. Cells may be missing. ``harmonium.train`` offers more settings
    on the machine itself.

    Args:
        n_hidden: hidden units, at least 1.
        visible: kind of the visible units. "auto": Bernoulli where every value is 0 or 1, Spin where every
            value is -1 or +1, else Gaussian on standardised columns. "bernoulli" takes 0 and 1; "spin" -1 and
            +1, or 0 and 1; "categorical" integers 0..q-1; "binomial" counts; "gaussian" any numbers; see
            ``harmonium.machine.visible_for`` for all kinds. Of a data frame, of text, and of an array that
            holds columns of 0 and 1 beside fractions, each column has a kind of its own: "auto" looks at it
            (``harmonium.data.Table``), {"age": "gaussian", …} says it for some, by name or number.
        unknown: of a table, what a later cell is taken as that its column has no state for, such as a new
            category: "error" refuses it, "missing" takes it as missing.
        hidden: kind of the hidden units, any of the same; those without a bound, such as "gaussian" and
            "relu", need visible units with one.
        hidden_states: states of each hidden unit, at least 2; read only with "categorical" and "binomial".
        rule: how the gradient is estimated: the name of a recipe in ``harmonium.rules``, or a ``Rule``.
        sweeps: Gibbs sweeps of every update, at least 1; None: the recipe's own number. "exact" and a
            ``Rule`` take none.
        n_chains: chains of the free machine, at least 1; None: ``batch_size``. "exact", "cd" and a ``Rule``
            take none.
        batch_size: rows of every update, at least 1.
        epochs: passes of ``fit`` over the rows, at least 1.
        centred: whether a rule by name gives the enhanced gradient (``harmonium.rules.centred``), which
            treats 0 and 1 alike; a ``Rule`` stays as it is.
        learning_rate: of the named optimisers, >= 0.
        optimizer: "sgd"; "adam", which wants a rate around 0.01 and ``centred=False``; or a callable
            ``parameters -> torch.optim.Optimizer`` with its own rates.
        schedule: of the learning rate in ``fit``: "constant", "cosine", "linear", "inverse_sqrt", or a
            callable ``(step, total) -> factor``. In ``partial_fit`` the rate is constant.
        clip_norm: largest norm of the gradient, above 0; None: any. Gaussian units need it against outliers.
        weight_decay: >= 0, of the couplings.
        initial_std: standard deviation of the first couplings, >= 0; beside Gaussian units and many hidden
            ones it must be small, and may leave them on a saddle. None: 0.03, and beside Gaussian visible
            units a start off the saddle (``harmonium.machine.from_data_``).
        log_partition: how ln Z is found for ``score_samples``. "exact": by enumeration, up to 2^26 states of
            the visible or of the hidden units; "ais": by annealed importance sampling; "auto": "exact" up to
            2^20 states, else "ais".
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
        "n_hidden": [Interval(Integral, 1, None, closed="left")],
        "visible": [StrOptions({"auto"}), StrOptions(Layer.registry.keys()), Mapping],  # units of users too
        "unknown": [StrOptions(set(UNKNOWN))],
        "hidden": [StrOptions(Layer.registry.keys())],
        "hidden_states": [Interval(Integral, 2, None, closed="left")],
        "rule": [StrOptions(set(RECIPES)), Rule],
        "sweeps": [Interval(Integral, 1, None, closed="left"), None],
        "n_chains": [Interval(Integral, 1, None, closed="left"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "centred": ["boolean"],
        "learning_rate": [Interval(Real, 0, None, closed="left")],
        "optimizer": [StrOptions(set(OPTIMIZERS)), callable],
        "schedule": [StrOptions(set(SCHEDULES)), callable],
        "clip_norm": [Interval(Real, 0, None, closed="neither"), None],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
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
        n_hidden: int = 100,
        *,
        visible: str | Mapping[Any, str] = "auto",
        unknown: str = "error",
        hidden: str = "bernoulli",
        hidden_states: int = 2,
        rule: str | Rule = "pcd",
        sweeps: int | None = None,
        n_chains: int | None = None,
        batch_size: int = 100,
        epochs: int = 100,
        centred: bool = True,
        learning_rate: float = 0.1,
        optimizer: str | OptimizerFactory = "sgd",
        schedule: str | Schedule = "linear",
        clip_norm: float | None = 1.0,
        weight_decay: float = 0.0,
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
        self.centred = centred
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.schedule = schedule
        self.clip_norm = clip_norm
        self.weight_decay = weight_decay
        self.initial_std = initial_std
        self.log_partition = log_partition
        self.ais_chains = ais_chains
        self.ais_temperatures = ais_temperatures
        self.verbose = verbose
        self.device = device
        self.random_state = random_state

    # Hidden units and reconstructions
    # ----------------------------------------------------------------------------

    def _hidden_layers(self, visible: Sequence[Layer]) -> list[Layer]:
        return hidden_layers(visible, self.hidden, [self.n_hidden], self.hidden_states)

    def _initialise(self, rows: Rows, generator: torch.Generator) -> None:
        self._random_start(rows, generator)

    def _pretrain(self, states: Any) -> None:
        pass  # one pair of layers is all there is

    @property
    def _n_features_out(self) -> int:
        return self.machine_.layers[-1].width

    def transform(self, X: Any) -> Any:
        """The hidden units' means given every row, E[h | v].

        Of a row with missing cells by naive mean field over these and the hidden units, which is no longer
        exact; ``transform(impute(X))`` is the other way.

        Args:
            X: (rows, columns), a frame, dense or sparse.

        Returns:
            (rows, n_hidden), or (rows, n_hidden * hidden_states) for categorical hidden units; float32 for
            float32 data, else float64. Computed in float64, so that the split into batches does not show.

        Raises:
            ValueError: other columns than in ``fit``, a row of missing cells only, or values that the visible
                units do not take.
        """
        check_is_fitted(self)
        X = validated(self, X, reset=False)
        machine = self._double()
        means = [_hidden_means(machine, v) for v in self._states(X)]
        return floating(torch.cat(means), dtype_of(X))

    def inverse_transform(self, X: Any) -> Any:
        """The visible units' means given hidden values, E[v | h], in the units of the data.

        Args:
            X: (rows, n_hidden) hidden states or means, as ``transform`` returns them.

        Returns:
            (rows, columns); float32 for float32 values, else float64. Of categorical units the most probable
            label is given.

        Raises:
            ValueError: another number of columns, or NaN.
        """
        check_is_fitted(self)
        X = check_array(X, input_name="X")
        if X.shape[1] != self._n_features_out:
            raise ValueError(
                f"X: expected {self._n_features_out} columns of hidden values, received {X.shape[1]}"
            )
        h = torch.from_numpy(X.astype(np.float64)).to(self.machine_.device)
        return decoded(_visible_means(self._double(), h), self.encoder_, dtype_of(X))

    def reconstruct(self, X: Any) -> Any:
        """The rows after one mean-field pass up and down, E[v | h = E[h | v]], in the units of the data.

        Args:
            X: (rows, columns), dense or sparse.

        Returns:
            (rows, columns), dense; float32 for float32 data, else float64. For 0/1 data a probability; of
            categorical units the most probable label. Of a table what its rows are, a frame for a frame: of
            labels the most probable ones.

        Raises:
            ValueError: as ``transform``.
        """
        check_is_fitted(self)
        X = validated(self, X, reset=False)
        machine = self._double()
        parts = [_visible_means(machine, _hidden_means(machine, v)) for v in self._states(X)]
        return decoded(torch.cat(parts), self.encoder_, dtype_of(X))

    # Likelihood
    # ----------------------------------------------------------------------------

    def score_samples(self, X: Any) -> Array:
        """ln p of every row in nats: a probability for discrete units, a density in the data's units else.

        Of a row with missing cells it is ln p of what the row shows, by a sum over what these may be or over
        all hidden states. Relative to each other the rows are exact; ``log_partition_`` tells how well their
        common constant ln Z is known. It is found at the first call, which may take much longer than the
        others.

        Args:
            X: (rows, columns), dense or sparse.

        Returns:
            (rows,), float64.

        Raises:
            ValueError: as ``transform``, ``log_partition="exact"`` for a machine too large to enumerate, or
                missing cells with too many states to sum over, or real ones beside more than 26 hidden units.
        """
        check_is_fitted(self)
        X = validated(self, X, reset=False)
        machine, constant = self._double(), self.log_partition_
        scores = [self._scores(machine, v, constant) for v in self._states(X)]
        return floating(torch.cat(scores), np.float64)

    @torch.no_grad()
    def _scores(self, machine: BoltzmannMachine, v: Tensor, constant: LogPartition) -> Tensor:
        hole = unobserved(machine, refuse_blank(v))
        whole = ~hole.any(1)
        scores = torch.empty(len(v), dtype=torch.float64, device=v.device)
        if bool(whole.any()):
            scores[whole] = log_likelihood(machine, v[whole], constant)
        if not bool(whole.all()):
            try:
                scores[~whole] = log_weight_of(machine.hamiltonian(), v[~whole]) - constant.value
            except ValueError as error:
                raise ValueError(
                    "X: expected rows whose missing cells (NaN), or else the hidden units, have at most 2^26 "
                    "states to sum over; score rows without missing cells, or impute(X)"
                ) from error
        return scores + self._log_slopes(~hole)


@torch.no_grad()
def _hidden_means(machine: BoltzmannMachine, v: Tensor) -> Tensor:
    hamiltonian = machine.hamiltonian()
    (hidden,) = machine.hidden
    means = hamiltonian.mean(hidden, hamiltonian.field(hidden, hamiltonian.split(v)))
    holed = refuse_blank(v).isnan().any(1)
    if bool(holed.any()):
        means[holed] = hidden_means(machine, v[holed])
    return means


@torch.no_grad()
def _visible_means(machine: BoltzmannMachine, h: Tensor) -> Tensor:
    return visible_means(machine.hamiltonian(), [h] * len(machine.layers))
