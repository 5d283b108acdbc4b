"""Estimators of a density: rows without labels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from copy import deepcopy
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from harmonium import _checks
from harmonium.estimators._estimator import BoltzmannEstimator
from harmonium.estimators._intake import (
    Array,
    counted,
    floating,
    refuse_blank,
    taken,
    validated,
    weights_of,
)
from harmonium.likelihood import (
    LogPartition,
    missing_pseudo_likelihood,
    predictive_log_score,
    pseudo_log_likelihood,
)
from harmonium.machine import BoltzmannMachine

_UNITS = 100  # of a row at most, whose pseudo-likelihood tells how it is learnt
_CELLS = 10_000  # at least, of which a tenth is hidden and asked for: few rows are asked again and again


class DensityEstimator(BoltzmannEstimator):
    """A machine of rows without labels. Abstract."""

    @abstractmethod
    def _scores(self, machine: BoltzmannMachine, v: Tensor, constant: LogPartition) -> Tensor:
        """ln p of states, or what stands for it, in the units of the machine."""

    def _row_score(self, machine: BoltzmannMachine, states: Tensor) -> Tensor:
        """Pseudo-likelihood where a machine has one, exact or of some units; else what mean field tells."""
        if missing_pseudo_likelihood(machine) or bool(states.isnan().any()):
            times = -(-_CELLS // states.numel())
            return predictive_log_score(machine, states.repeat(times, 1)).view(times, -1).mean(0)
        sampled = _UNITS if self._ends[-1] > _UNITS else None
        return pseudo_log_likelihood(machine, states, sampled=sampled, seed=0)

    def _adopt(self, machine: BoltzmannMachine) -> None:
        if "label" in machine.metadata:
            raise ValueError(
                f"machine: expected one of rows without a label for {type(self).__name__}, received one that "
                "has a label; RBMClassifier.load, or RBMClassifier.from_machine, takes it"
            )

    # Learning
    # ----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fits a machine to the rows: a new one, unless ``warm_start`` goes on with the one that is there.

        Args:
            X: (rows, columns), a data frame, dense array or sparse matrix. NaN, None and pandas.NA are
                missing cells; the likelihood of a row is then that of what it shows. Sparse rows of a
                Bernoulli machine stay sparse; other visible units need one dense float32 copy.
            y: ignored.
            sample_weight: of the rows, (rows,), at least 0; only their ratios count. None: all count alike.

        Raises:
            ValueError: a parameter out of range, a row or a column of missing cells only, or values that the
                visible units do not take. After this and any other error the estimator is as it was before
                the call: after a first ``fit`` not fitted.
            TrainingDiverged: something is no longer finite, or the machine has run away from its data; the
                message says what to change.
            KeyboardInterrupt: after Ctrl-C. The estimator keeps what it has learnt where training of all
                layers had begun (``RBMOutlier`` without ``offset_``), and else is as it was. A second Ctrl-C
                acts at once: the estimator is as it was.
            SystemExit: after SIGTERM, likewise (``TrainingRun.whole``).
        """
        with self._learner() as learner:
            again = self.warm_start and hasattr(self, "machine_")
            learner._learn(X, sample_weight, again=again, whole=True)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Goes once over more rows, with the chains and the optimiser's state of the last call.

        The first call, like ``fit``, chooses the visible units and the encoder from its rows; name
        ``visible`` where one batch may not show it. The learning rate is constant, and nothing is held out.

        Args:
            X: (rows, columns), as in ``fit``.
            y: ignored.
            sample_weight: as in ``fit``.

        Raises:
            As ``fit``.
        """
        with self._learner() as learner:
            learner._learn(X, sample_weight, again=hasattr(self, "machine_"), whole=False)
        return self

    def _learn(self, X: Any, sample_weight: Any, *, again: bool, whole: bool) -> None:
        self._validate_params()
        rule = self._learning_rule()
        rows = self._looked_at(X, again)
        weights = weights_of(sample_weight, rows.shape[0])
        if again and whole:
            self._refuse_other_layers()
        index, weights = counted(weights)
        rows = taken(rows, index)
        states = None
        if again:
            self.machine_ = deepcopy(self.machine_)  # which training changes in place
        else:
            states = self._begin(rows, weights, torch.float32)
        assert self.learning_rate is not None
        self._train(self._training_rows(rows, states), weights, rule, self.learning_rate, whole=whole)
        self._calibrate(rows, weights)

    # Likelihood
    # ----------------------------------------------------------------------------

    def score_samples(self, X: Any, *, given: Iterable[Any] | None = None) -> Array:
        """ln p of every row in nats: a probability for discrete units, a density in the data's units else.

        Of a row with missing cells it is ln p of what the row shows. Relative to each other the rows of an
        ``RBM`` are exact; ``log_partition_`` tells how well their common constant ln Z is known. It is found
        at the first call, which may take much longer than the others. Of a ``DBM`` with two or more hidden
        layers it is a lower bound, the variational one of naive mean field, as good as ln Z is known.

        Args:
            X: (rows, columns), a frame, dense or sparse.
            given: columns, by name or number: ln p(the other columns | these) instead, which is exact for all
                machines and needs no ln Z; for rows that lack cells, of what they show of either. None: none.

        Returns:
            (rows,), float64.

        Raises:
            ValueError: other columns than in ``fit``, a row of missing cells only, values that the visible
                units do not take, ``log_partition="exact"`` for a machine too large to enumerate, or too many
                states to sum over: of missing cells (``RBM``), or of columns that are not given.
        """
        check_is_fitted(self)
        X = validated(self, X, reset=False)
        if given is None:
            return self._log_densities(X)
        blocks = [self._conditional_scores(refuse_blank(v), given) for v in self._states(X)]
        return floating(torch.cat(blocks), np.float64)

    def _log_densities(self, X: Any) -> Array:
        """``score_samples`` of validated rows."""
        machine, constant = self._double(), self.log_partition_
        blocks = [self._scores(machine, refuse_blank(v), constant) for v in self._states(X)]
        return floating(torch.cat(blocks), np.float64)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of ``score_samples``, so that higher is better in a model search; ``y`` is ignored."""
        return float(self.score_samples(X).mean())

    # Samples
    # ----------------------------------------------------------------------------

    def sample(
        self,
        n_samples: int = 1,
        *,
        given: Any = None,
        method: str = "gibbs",
        sweeps: int = 1000,
        random_state: Any = None,
    ) -> Any:
        """Rows drawn from the machine, in the units of the data.

        Each comes from pure noise of its own, so that the rows are independent.

        Args:
            n_samples: rows, at least 1; with ``given`` so many for each row of it, one after the other; they
                are numbered anew.
            given: cells that are held while the others are drawn given them: a frame, or a mapping from
                columns (their numbers where there are no names) to one cell for all rows or one for each, or
                an array (rows, columns). What it lacks, and what is missing in it, is drawn. None: nothing.
            method: "gibbs": chains, which follow the machine's law as far as ``sweeps`` sweeps have mixed
                them. "tempered": the same by parallel tempering, ten replicas a chain. "local_mode": the
                local mode that a search from noise ends at (Taniguchi et al. 2023, §4.4): clean rows, which
                do not follow the law. "local_mode_metropolis": the same, then ``sweeps`` Metropolis steps of
                the whole state. Other kernels by their names in ``chains.Kernel.registry``.
            sweeps: of every chain, at least 0; not read for "local_mode".
            random_state: int, ``RandomState``, or None for that of the estimator.

        Returns:
            (rows, columns), float64; a frame with the same names and dtypes where ``fit`` saw one
            and nothing was binarised.

        Raises:
            TypeError, ValueError: a number out of range, or cells that the machine has no column or no state
                for.
        """
        check_is_fitted(self)
        _checks.positive_int(n_samples, "n_samples")
        known, held = (None, None) if given is None else self._given(given, n_samples)
        rows = n_samples if held is None else len(held)
        clamp = None if held is None else held.to(self.machine_.dtype)
        states = self._draw(rows, clamp, method, sweeps, random_state)
        return self._drawn_rows(self.machine_.hamiltonian().seen(states), known)
