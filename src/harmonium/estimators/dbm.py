"""The deep Boltzmann machine as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar, final

import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from harmonium.data import Rows
from harmonium.estimators._density import DensityEstimator
from harmonium.estimators._hidden_layers import hidden_layers
from harmonium.estimators._intake import dtype_of, floating, validated
from harmonium.estimators._options import CONSTRAINTS
from harmonium.estimators._posterior import hidden_means
from harmonium.layers import Layer
from harmonium.learning import Rule
from harmonium.learning.rules import centred, pcd
from harmonium.likelihood import LogPartition, log_likelihood, variational_bound
from harmonium.machine import BoltzmannMachine, logistic_biases_, orthogonal_, visible_from_data_
from harmonium.tasks.impute import unobserved
from harmonium.training import pretrain


@final
@dataclass(eq=False, repr=False)
class DBM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityEstimator):
    """A deep Boltzmann machine: a density of the rows and a transformer to its hidden layers.

    Rows go in and come out in the data's own units, as with ``RBM``. ``harmonium.train`` offers more settings
    on the machine itself.

    All other parameters are those of ``RBM``; some have other defaults.

    Args:
        n_hidden: units of the hidden layers from the lowest up, each at least 1; two or more for a deep
            machine.
        hidden: kind of the hidden units, see ``RBM``: "bernoulli", or "spin", whose two values weigh alike in
            the gradient (Taniguchi et al. 2023, §4.1), or others; no two layers without a bound side by side.
        rule: how the gradient is estimated: the name of a recipe in ``harmonium.rules``, or a ``Rule``.
            "mean_field_pcd" and "pcd" take any visible units; "ucd_lmi" and "ucd" are for binary ones.
        epochs: passes of ``fit`` over the rows, at least 1. None: 100, or as many as make 4,000 updates.
        centred: whether a rule by name gives the enhanced gradient (Montavon & Müller 2012 centre the machine
            instead), without which a deep machine of 0/1 units hardly learns from random couplings; a
            ``Rule`` stays as it is.
        initial: first couplings: "normal", N(0, initial_std²), or "orthogonal", orthogonal rows or columns of
            norm 1 with logistic biases of the hidden units, which "ucd_lmi" wants (Taniguchi et al. 2023,
            §4.3).
        initial_std: standard deviation of the first couplings, >= 0, and None, see ``RBM``; not read with
            ``initial="orthogonal"``.
        pretraining: passes over the rows for every pair of neighbouring layers before all layers are trained
            together, at least 0: greedy pretraining by centred PCD-1 (``harmonium.training.pretrain``), at
            the same learning rate.

    Attributes:
        machine_, encoder_, history_, n_updates_, n_features_in_, feature_names_in_: see ``RBM``.
    """

    n_hidden: Sequence[int] = (100, 50)
    _: KW_ONLY
    rule: str | Rule = "mean_field_pcd"
    learning_rate: float | None = 0.2
    initial: str = "normal"
    pretraining: int = 0

    _EPOCHS, _UPDATES = 100, 4000
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_hidden": ["array-like"],
        "initial": [StrOptions({"normal", "orthogonal"})],
        "pretraining": [Interval(Integral, 0, None, closed="left")],
        **CONSTRAINTS,
    }

    # Hidden layers
    # ----------------------------------------------------------------------------

    def _hidden_layers(self, visible: Sequence[Layer]) -> list[Layer]:
        sizes = list(self.n_hidden)
        if not sizes or not all(isinstance(size, Integral) and size >= 1 for size in sizes):
            raise ValueError(f"n_hidden: expected sizes of at least 1, received {self.n_hidden!r}")
        return hidden_layers(visible, self.hidden, [int(size) for size in sizes], self.hidden_states)

    def _initialise(self, rows: Rows, weights: Tensor | None, generator: torch.Generator) -> None:
        if self.initial == "normal":
            self._random_start(rows, weights, generator)
        else:
            orthogonal_(self.machine_, 1.0, generator)
            logistic_biases_(self.machine_, generator)
            visible_from_data_(self.machine_, rows, weights)

    def _calibrate(self, X: Any, weights: Any) -> None:
        pass

    @classmethod
    def _sizes(cls, machine: BoltzmannMachine) -> tuple[int, ...]:
        if not machine.hidden:
            raise ValueError("machine: expected hidden layers, received a machine without any")
        return tuple(machine.layers[l].n_units for l in machine.hidden)

    def _pretrain(self, states: Any, weights: Tensor | None) -> None:
        if self.pretraining and len(self.machine_.hidden) > 1:
            runs = pretrain(
                self.machine_,
                states,
                rule=centred(pcd(1, chains=self.batch_size)),
                sample_weight=weights,
                epochs=self.pretraining,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                schedule=self.schedule,
                clip_norm=self.clip_norm,
                seed=self._stream("pretraining"),
                device=self.device,
                progress=self.verbose > 0,
            )
            runs[-1].whole()

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

    def _scores(self, machine: BoltzmannMachine, v: Tensor, constant: LogPartition) -> Tensor:
        scores = log_likelihood if machine.graph.independent else variational_bound
        return scores(machine, v, constant) + self._log_slopes(~unobserved(machine, v))
