"""Estimators of a density: rows without labels."""

from __future__ import annotations

import warnings
from typing import Any, Self

import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from torch import Tensor

from harmonium import _checks
from harmonium.estimators._estimator import BoltzmannEstimator
from harmonium.estimators._fitted import Fitted
from harmonium.estimators._intake import Array, learned, validated
from harmonium.estimators._training import Training, learner_for
from harmonium.likelihood import (
    LogPartition,
    log_likelihood,
    missing_pseudo_likelihood,
    predictive_log_score,
    pseudo_log_likelihood,
    variational_bound,
)
from harmonium.machine import BoltzmannMachine
from harmonium.meanfield import naive
from harmonium.sums import HiddenStates, has_hidden_states
from harmonium.tables import NEW_CELLS

_TOLERANCE = 1e-5  # of mean field
_UNITS = 100  # of a row at most, whose pseudo-likelihood tells how it is learnt
_CELLS = 10_000  # at least, of which a tenth is hidden and asked for: few rows are asked again and again


class DensityEstimator(BoltzmannEstimator):
    """An estimator of rows without labels. Abstract: the hidden layers are each subclass's own."""

    def _take_label(self, machine: BoltzmannMachine) -> None:
        if "label" in machine.metadata:
            raise ValueError(
                f"machine: expected one of rows without a label for {type(self).__name__}, received one that "
                "has a label; RBMClassifier.load, or RBMClassifier.from_machine, takes it"
            )

    def _row_score(self, machine: BoltzmannMachine, states: Tensor) -> Tensor:
        """Returns the pseudo-likelihood of rows, (rows,), in nats, where a machine has one.

        Pseudo-likelihood is exact or of some units. Elsewhere mean field predicts a tenth of the cells.
        """
        if missing_pseudo_likelihood(machine) or bool(states.isnan().any()):
            times = -(-_CELLS // states.numel())
            return predictive_log_score(machine, states.repeat(times, 1)).view(times, -1).mean(0)
        units = sum(machine.layers[l].n_units for l in machine.visible)
        return pseudo_log_likelihood(machine, states, sampled=_UNITS if units > _UNITS else None, seed=0)

    # Learning
    # ----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fits a machine to the rows: a new one, unless ``warm_start`` goes on with the one that is there.

        Without chains real columns of a table are joined, and ``partial_fit`` does not go on with such a
        machine. Fit with ``method="chains"`` first, or by ``partial_fit`` alone, where more rows are to come.

        Args:
            X: (rows, columns), a data frame, dense array or sparse matrix. NaN, None and pandas.NA are
                missing cells; the likelihood of a row is then that of what it shows. Sparse rows of a
                Bernoulli machine stay sparse; other visible units need one dense float32 copy.
            y: ignored.
            sample_weight: Row weights, (rows,), at least 0, of which only ratios count; None means uniform.

        Raises:
            ValueError: a parameter out of range, a row or a column of missing cells only, or values that the
                visible units do not take. After this and any other error the estimator is as it was before
                the call: after a first ``fit`` not fitted.
            TrainingDiverged: something is no longer finite, or the machine has run away from its data, at the
                lowest rate too (``on_divergence``); the message says what to change.
            KeyboardInterrupt: after Ctrl-C. The estimator keeps what it has learnt where training of all
                layers had begun (``RBMOutlier`` without ``offset_``), and else is as it was. A second Ctrl-C
                acts at once: the estimator is as it was.
            SystemExit: after SIGTERM, likewise (``TrainingRun.whole``).
        """
        return self._fit(X, sample_weight, again=self.warm_start, whole=True)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Goes once over more rows, with the chains and the optimiser's state of the last call.

        The first call, like ``fit``, chooses the visible units and the encoder from its rows; name
        ``visible`` where one batch may not show it. The learning rate is constant, and nothing is held out.
        It trains by chains, and refuses a machine whose real columns ``fit`` has joined.

        Args:
            X: (rows, columns), as in ``fit``.
            y: ignored.
            sample_weight: as in ``fit``.

        Raises:
            ValueError, TrainingDiverged, KeyboardInterrupt, SystemExit: as ``fit``.
        """
        return self._fit(X, sample_weight, again=True, whole=False)

    def _fit(self, X: Any, sample_weight: Any, *, again: bool, whole: bool) -> Self:
        """Fits all or nothing; ``again``: the machine that is there, if one is."""
        with learner_for(self) as learner:
            learner._check_parameters()
            training = Training(learner, whole=whole)
            earlier = self._fitted if again else None
            rows = validated(learner, X, reset=earlier is None)
            weights = _checks.weights(sample_weight, "sample_weight", rows.shape[0])
            rows, _, weights = learned(learner, rows, weights, earlier)
            learner._fitted = training.learn(rows, weights, earlier)
            training.end()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", NEW_CELLS)  # as training warned of the same rows
                learner._calibrate(rows, weights)
        return self

    # Likelihood
    # ----------------------------------------------------------------------------

    def score_samples(self, X: Any) -> Array:
        """Returns ln p of every row in nats.

        It is a probability for discrete units, and else a density in the units of the data.

        Of a row with missing cells it is ln p of what the row shows. Relative to each other the rows of an
        ``RBM`` are exact; ``log_partition_`` tells how well their common constant ln Z is known. It is found
        at the first call, which may take much longer than the others. Of a ``DBM`` with two or more hidden
        layers it is a lower bound, the variational one of naive mean field, as good as ln Z is known.
        Sums over missing cells take long beside more than 12 hidden units: a warning tells the cost
        beforehand.

        Args:
            X: (rows, columns), a frame, dense or sparse.

        Returns:
            (rows,), float64.

        Raises:
            ValueError: other columns than in ``fit``, a row of missing cells only, values that the visible
                units do not take, ``log_partition="exact"`` for a machine too large to enumerate, or missing
                cells of too many states to sum over.
        """
        return log_densities(self._require_fitted(), self._validated(X), self.log_partition_)

    def score(self, X: Any, y: Any = None) -> float:
        """Returns the mean of ``score_samples``: higher is better in a model search. ``y`` is ignored."""
        return float(self.score_samples(X).mean())

    # Samples
    # ----------------------------------------------------------------------------

    def sample(
        self,
        n_samples: int = 1,
        *,
        given: Any = None,
        method: str = "auto",
        sweeps: int | None = None,
        random_state: Any = None,
    ) -> Any:
        """Draws rows from the machine, in the units of the data.

        Each comes from pure noise of its own, so that the rows are independent.

        Args:
            n_samples: rows, at least 1; with ``given`` so many for each row of it, one after the other; they
                are numbered anew.
            given: cells that are held while the others are drawn given them: a frame, or a mapping from
                columns (their numbers where there are no names) to one cell for all rows or one for each, or
                an array (rows, columns). What it lacks, and what is missing in it, is drawn. None: nothing.
            method: "auto", "exact" or a kernel of chains by its name, such as "gibbs" and "tempered"; see
                ``harmonium.tasks.sample``.
            sweeps: Sweeps of every chain, at least 0. None: 1,000, or as many as chains from noise have
                learned by "noise_cd".
            random_state: int, ``RandomState``, or None for that of the estimator.

        Returns:
            (rows, columns), float64; a frame with the same names and dtypes where ``fit`` saw one.

        Raises:
            TypeError, ValueError: a number out of range, or cells that the machine has no column or no state
                for.
        """
        return self._draw(n_samples, given, method, sweeps, random_state)[0]


class FeatureEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityEstimator):
    """A density that is a transformer to its hidden units. Abstract: the layers are each subclass's own."""

    @property
    def _n_features_out(self) -> int:
        return sum(self.machine_.layers[l].width for l in self.machine_.hidden)

    def transform(self, X: Any) -> Any:
        """Returns the hidden units' means given what every row shows, those of several layers side by side.

        They are exact in one hidden layer, of a row with missing cells where it has at most 12 units, as
        their states are summed. Elsewhere they are those of naive mean field.

        Args:
            X: (rows, columns), a frame, dense or sparse.

        Returns:
            (rows, hidden units), the lowest layer first, with a column for each state of categorical units;
            float32 for float32 data, else float64. Computed in float64, so that the split into batches does
            not show.

        Raises:
            ValueError: other columns than in ``fit``, a row of missing cells only, or values that the visible
                units do not take.
        """
        fitted, X = self._require_fitted(), self._validated(X)
        machine = fitted.double()
        return fitted.compute(X, lambda v: _hidden_means(machine, v), like=X)


def log_densities(fitted: Fitted, X: Any, constant: LogPartition, label: Tensor | None = None) -> Array:
    """Returns ln p of what validated rows show, or its bound, in the units of the data, (rows,), float64.

    ``label`` are states of their labels, NaN where there is none; None: there are none.
    """
    machine, codec, start = fitted.double(), fitted.codec, 0
    fitted.warn_of_cost(X)

    def score(v: Tensor) -> Tensor:
        nonlocal start
        if label is not None:
            v = torch.cat([v[:, : fitted.data_width], label[start : start + len(v)].to(v)], 1)
        start += len(v)
        return log_states(machine, v, constant) + codec.log_slopes(v)

    scores, shares = fitted.compute(X, score, beyond="tail"), codec.log_shares(X, machine)
    return scores if shares is None else scores + shares.sum(1).numpy()


@torch.no_grad()
def log_states(machine: BoltzmannMachine, v: Tensor, constant: float | LogPartition) -> Tensor:
    """Returns ln p of what visible states show, or its variational bound, (rows,), float64."""
    scores = log_likelihood if machine.graph.independent else variational_bound
    return scores(machine, v, constant)


@torch.no_grad()
def _hidden_means(machine: BoltzmannMachine, v: Tensor) -> Tensor:
    """Returns the means of all hidden layers given rows, side by side."""
    means = naive(machine, v, v, tolerance=_TOLERANCE).means  # exact where nothing is missing nor joined
    found, holed = torch.cat([means[l] for l in machine.hidden], -1), v.isnan().any(1)
    if has_hidden_states(machine.graph, machine.layers) and bool(holed.any()):
        table = HiddenStates(machine.hamiltonian())
        found[holed] = torch.cat([posterior.hidden_means() for _, posterior in table.blocks(v[holed])])
    return found
