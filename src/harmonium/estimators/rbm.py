"""The restricted Boltzmann machine as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from torch import Tensor

from harmonium._settings import Count
from harmonium.estimators._estimator import DensityEstimator
from harmonium.estimators._intake import validated
from harmonium.machine import BoltzmannMachine
from harmonium.meanfield import naive
from harmonium.sums import HiddenStates, has_hidden_states, visible_means_given

_TOLERANCE = 1e-5  # of mean field


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
        fitted, X = self._require_fitted(), validated(self, X)
        machine = fitted.double()
        return fitted.compute(X, lambda v: _hidden_means(machine, v), like=X)


@final
@dataclass(eq=False, repr=False)
class RBM(FeatureEstimator):
    """A restricted Boltzmann machine: a density of the rows and a transformer to its hidden units.

    Rows go in and come out in the data's own units, a frame as a frame: an encoder, chosen with the visible
    units, stands between them and the machine. Cells may be missing. ``harmonium.train`` offers more settings
    on the machine itself.

    Args:
        n_hidden: hidden units, at least 1. None: 8 for a frame that exact sums learn in a minute (1,600
            columns of states, more of fewer than 2,048 rows), and for an array of at most 40 columns of real
            numbers; of columns of two values alone, 40 where all are of one kind. 100 for other data, or 500
            where they are at least 500 columns wide.
        visible: kind of the visible units. "auto": Bernoulli where every value is 0 or 1, Spin where every
            value is -1 or +1, else Gaussian on standardised columns. "bernoulli" takes 0 and 1; "spin" -1 and
            +1, or 0 and 1; "categorical" integers 0..q-1; "binomial" counts; "gaussian" any numbers; see
            ``harmonium.tables.visible_for`` for all kinds. Of a data frame, of text, and of an array that
            holds columns of 0 and 1 beside fractions, each column has a kind of its own: "auto" looks at it
            (``harmonium.tables.Table``), {"age": "gaussian", …} says it for some, by name or number, and
            {"id": "ignore"} leaves a column out.
        hidden_kind: kind of the hidden units, any of the same; those without a bound, such as "gaussian" and
            "relu", need visible units with one.
        hidden_states: states of each hidden unit, at least 2; read only with "categorical" and "binomial".
        method: how ``fit`` trains. It changes neither units nor their number; "exact" alone may join real
            columns to each other, which chains cannot train. "exact": by sums over all states of at
            most 12 Bernoulli hidden units. Gradients are exact, and the rows that it holds out, a seventh,
            tell where training ends, and whether real columns are joined by couplings of their own, see
            ``training.train_exact_until_best`` and ``tables.fold``. "chains": by the parameters from ``rule``
            to ``on_divergence``, of which "exact" uses none: it warns where one is given. "auto": "exact" for
            tables, as of ``n_hidden``, with at most 12 hidden units, and for other discrete data where the
            sums are quick (2,048 rows beside 10 hidden units) and no parameter of chains is given; else
            "chains".
        rule: how the gradient is estimated: the name of a recipe in ``harmonium.rules``, or a ``Rule``.
            "auto": "pcd", but for images "noise_cd" by 20 sweeps and 1,000 updates of "adam" at 0.003, a
            sampler and no density. Images are grey levels (numbers in [0, 1], or whole ones up to 255) in
            more than 40 columns, for which ``visible`` names Gaussian units.
        sweeps: Gibbs sweeps of every update, at least 1; None: the recipe's own number. "exact" and a
            ``Rule`` take none.
        chains: chains of the free machine, at least 1; None: ``batch_size``. "exact", "cd" and a ``Rule``
            take none.
        batch_size: rows of every update, at least 1.
        epochs: Passes of ``fit`` over the rows, at least 1. None: chosen from the number of rows, so that
            small data sets are not overfitted: 10 updates for each row of units of 0 and 1, or spins, 5 of
            real and other ones, 2.5 of categorical ones, but at least 500 and at most 5,000. Beside other
            units than 0 and 1, 100 passes are the most too, or 2,000 updates where these are more. Batches
            below 100 get more updates at a lower rate. Every row is read at least once. A ConvergenceWarning
            says where this was too short.
        max_updates: Largest number of updates of ``fit``, at least 1; None: any number.
        centred: Whether a rule by name gives the enhanced gradient (``harmonium.rules.centred``), which
            treats 0 and 1 alike; a ``Rule`` stays as it is. None: so, but not with "adam", which a warning
            says; never so in ``RBMClassifier``.
        learning_rate: Rate of the named optimisers, >= 0. None: in ``fit`` at most 0.3 where all units are 0
            and 1 or categorical, 0.075 beside visible spins, 0.1 with others; less where discrete columns
            vary much together, such as large pictures of clothes (docs/decisions/0018); less where few rows
            would come further than ``epochs`` says, and in proportion for batches below 100. In
            ``partial_fit`` so, and at most 0.1. "adam": at most 0.01.
        optimizer: "sgd"; "adam", which wants a rate around 0.01 and no centring; "auto": "sgd", and for
            images "adam"; or a callable ``parameters -> torch.optim.Optimizer`` with its own rates.
        schedule: Factor on the learning rate in ``fit``: "constant", "cosine", "warmup_cosine", "linear",
            "inverse_sqrt", or a callable ``(step, total) -> factor``. ``partial_fit`` has a constant rate.
        clip_norm: largest norm of the gradient, above 0; None: any. "auto": 1 beside units without a bound,
            which one outlier would throw out of range (10 for images), and any beside others.
        weight_decay: >= 0, of the couplings.
        averaging: decay in (0, 1) of the running average of the parameters that ``machine_`` is, as in
            ``harmonium.train``; None: the last ones.
        initial_std: standard deviation of the first couplings, >= 0; beside Gaussian units and many hidden
            ones it must be small, and may leave them on a saddle. None: 0.03, 0.27/√n
            beside n > 81 columns, and beside Gaussian visible units a start off it (``init_from_data_``).
        init: first parameters by name, of ``harmonium.machine.INITS`` and separated by commas: couplings
            "normal" or "orthogonal", biases "logistic" (of all layers) or "data" (of the visible ones). None:
            "normal,data", off a saddle. "orthogonal,logistic" is what Taniguchi et al. (2023) begin with.
        on_divergence: "slower": training that diverges begins again at a third of the learning rate, at most
            four times, each with a warning; "raise": TrainingDiverged.
        warm_start: whether another ``fit`` goes on, by chains, with the machine, the chains and the
            optimiser's memory of the last one. It refuses, as ``partial_fit`` does, another ``n_hidden``,
            ``hidden_kind``, ``hidden_states``, ``visible`` or ``dtype``.
        log_partition: how ln Z is found for ``score_samples``. "exact": by enumeration of the visible or of
            the hidden states, up to 2^35 unit updates (states times columns of the machine); "ais": by
            annealed importance sampling; "auto": "exact" up to 2^28 unit updates (a few seconds), else "ais".
        ais_chains: annealing runs, at least 2.
        ais_temperatures: inverse temperatures of each run, at least 1.
        dtype: Precision of the machine, "float32" or "float64"; None: "float32".
        verbose: above 0, a progress bar on stderr.
        device: where to train and compute, as ``torch.device`` takes it; None: the CPU.
        random_state: int, ``RandomState`` or None, as everywhere in scikit-learn. The same int, data, device
            and number of threads give the same bits.

    Attributes:
        machine_: the trained ``BoltzmannMachine``, with the encoder in its metadata.
        encoder_: turns data into states of the machine and back; fixed by ``fit`` or the first
            ``partial_fit``.
        history_: records of the training, dicts with step, seconds, learning rate, gradient norm and the
            rule's diagnostics; by ``method="exact"`` those of looks have ``validation_score`` too, the
            mean ln p of the rows held out.
        n_updates_: updates made.
        n_features_in_: columns of the data.
        feature_names_in_: their names, where the data had names.

    Examples:
        >>> import harmonium as hm
        >>> rbm = hm.RBM(4, learning_rate=1.0, max_updates=100, random_state=0)
        >>> rbm = rbm.fit([[0, 0, 1], [1, 1, 0]] * 20)
        >>> rbm.transform([[0, 0, 1], [1, 1, 0]]).shape
        (2, 4)
        >>> rbm.score_samples([[0, 0, 1], [0, 1, 1]]).round()
        array([-1., -3.])
        >>> rbm.sample(5, sweeps=100, random_state=0).shape
        (5, 3)
        >>> rbm.impute([[0, 0, None], [1, None, 0]])
        array([[0., 0., 1.],
               [1., 1., 0.]])
        >>> stream = hm.RBM(4, visible="bernoulli", random_state=0)
        >>> for batch in ([[0, 0, 1], [1, 1, 0]], [[1, 1, 0], [1, 1, 0]]):
        ...     stream = stream.partial_fit(batch)
        >>> stream.n_updates_
        2
    """

    n_hidden: Count | None = None
    _samples_images = True

    def inverse_transform(self, X: Any) -> Any:
        """Returns the visible units' means given hidden values, E[v | h], in the units of the data.

        Of the means that ``transform`` returns it makes reconstructions.

        Args:
            X: (rows, n_hidden) hidden states or means, as ``transform`` returns them.

        Returns:
            (rows, columns); float32 for float32 values, else float64; of a table what its rows are. For 0/1
            data a probability; of categorical units and labels the most probable one.

        Raises:
            ValueError: another number of columns, or NaN.
        """
        fitted = self._require_fitted()
        X = check_array(X, input_name="X")
        if X.shape[1] != self._n_features_out:
            raise ValueError(
                f"X: expected {self._n_features_out} columns of hidden values, received {X.shape[1]}"
            )
        h = torch.from_numpy(X.astype(np.float64)).to(fitted.machine.device)
        with torch.no_grad():
            return fitted.decode(visible_means_given(fitted.double().hamiltonian(), h), like=X)


@torch.no_grad()
def _hidden_means(machine: BoltzmannMachine, v: Tensor) -> Tensor:
    """Returns the means of all hidden layers given rows, side by side."""
    means = naive(machine, v, v, tolerance=_TOLERANCE).means  # exact where nothing is missing nor joined
    hidden_means, holed = torch.cat([means[l] for l in machine.hidden], -1), v.isnan().any(1)
    if has_hidden_states(machine.graph, machine.layers) and bool(holed.any()):
        table = HiddenStates(machine.hamiltonian())
        hidden_means[holed] = torch.cat([posterior.hidden_means() for _, posterior in table.blocks(v[holed])])
    return hidden_means
