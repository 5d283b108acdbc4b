"""The base of every estimator: what a fitted machine does with rows, in the units of the data."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from harmonium import _checks, _random, tasks
from harmonium._settings import AtLeast0, Count, Fraction, Interval, Setting, check_settings
from harmonium.data import Encoder
from harmonium.estimators._fitted import Fitted
from harmonium.estimators._intake import (
    Array,
    learned,
    rows_given,
    take_tables,
    taken,
    validated,
)
from harmonium.estimators._training import Label, learn, structure_of
from harmonium.layers import Layer
from harmonium.learning import Rule, rules
from harmonium.likelihood import (
    LogPartition,
    find_log_partition,
    missing_pseudo_likelihood,
    predictive_log_score,
    pseudo_log_likelihood,
    score_states,
)
from harmonium.machine import BoltzmannMachine, load
from harmonium.tables import METHODS, NEW_CELLS, PLAIN, CellInterval, Table, find_intervals, warn_of_rough
from harmonium.training import SCHEDULES, OptimizerFactory, Schedule, stream_seed

_UNITS = 100  # of a row at most, whose pseudo-likelihood tells how it is learnt
_CELLS = 10_000  # at least, of which a tenth is hidden and asked for: few rows are asked again and again


@dataclass(kw_only=True, eq=False, repr=False)
class _Options:
    """The parameters that any training reads."""

    visible: Annotated[str | Mapping[Any, str], Setting(ChainMap({"auto": None}, Layer.registry))] = "auto"
    hidden_kind: Annotated[str, Setting(Layer.registry)] = "bernoulli"
    hidden_states: Annotated[int, Setting(Interval(2, whole=True))] = 2
    method: Annotated[str, Setting(METHODS)] = "auto"
    warm_start: bool = False
    log_partition: Literal["auto", "exact", "ais"] = "auto"
    ais_chains: Annotated[int, Setting(Interval(2, whole=True))] = 100
    ais_temperatures: Count = 1000
    dtype: Annotated[str | None, Setting(("float32", "float64"))] = None
    verbose: int = 0
    device: str | torch.device | None = None
    random_state: Any = None


@dataclass(kw_only=True, eq=False, repr=False)
class _ByChains:
    """The parameters that training by chains alone reads."""

    METHOD: ClassVar[str] = "chains"
    rule: Annotated[str | Rule, Setting(("auto", *rules.RECIPES))] = "auto"
    sweeps: Count | None = None
    chains: Count | None = None
    batch_size: Count = 100
    epochs: Count | None = None
    max_updates: Count | None = None
    centred: bool | None = None
    learning_rate: AtLeast0 | None = None
    optimizer: Annotated[str | OptimizerFactory, Setting(("auto", "sgd", "adam"))] = "auto"
    schedule: Annotated[str | Schedule, Setting(SCHEDULES)] = PLAIN.schedule
    clip_norm: Annotated[float | Literal["auto"] | None, Setting(Interval(0.0, closed="neither"))] = "auto"
    weight_decay: AtLeast0 = 0.0
    averaging: Fraction | None = PLAIN.averaging
    initial_std: AtLeast0 | None = PLAIN.initial_std
    init: str | None = None
    on_divergence: Literal["slower", "raise"] = "slower"


class BoltzmannEstimator(_ByChains, _Options, BaseEstimator, ABC):
    """Parameters, and a fitted machine once there is one. Abstract: what it learns is each subclass's own.

    A parameter is a field, which ``RBM`` documents. One by the name of a setting of ``train`` is passed on.
    """

    _fitted: Fitted | None = None
    _samples_images = False  # which leaves no density

    @abstractmethod
    def _row_score(self, machine: BoltzmannMachine, states: Tensor) -> Tensor:
        """Returns a score of rows, whose rise tells that a machine still learns, (rows,), in nats."""

    @abstractmethod
    def _take_label(self, machine: BoltzmannMachine) -> None:
        """Looks at the label of a machine that was trained elsewhere; ValueError: it is of another form."""

    def _read_labels(
        self, y: Any, count: int, weights: Tensor | None, earlier: Fitted | None
    ) -> tuple[Tensor | None, Label | None]:
        """Returns weights of so many rows, and their labels where there are any."""
        return weights, None

    def _calibrate(self, X: Any, weights: Tensor | None) -> None:
        """Finds ``Fitted.numbers`` of the trained machine on validated rows; most estimators have none."""

    # Learning

    def _fit(self, X: Any, y: Any, sample_weight: Any, *, again: bool, whole: bool = True) -> Self:
        """Fits all or nothing; ``again``: the machine that is there, if one is.

        A copy learns, which the estimator becomes once all is done. What raises leaves the estimator as it
        was: a refused argument, divergence, a signal before training began or a second one in it. A Ctrl-C or
        SIGTERM after training ended, whole or cut short, lets it become what the copy has learnt by then.
        """
        learner = copy(self)
        try:
            check_settings(learner)
            earlier = learner._fitted if again else None
            rows = validated(learner, X, reset=earlier is None)
            weights = _checks.weights(sample_weight, "sample_weight", rows.shape[0])
            weights, label = learner._read_labels(y, rows.shape[0], weights, earlier)
            rows, index, weights = learned(learner, rows, weights, earlier)
            if label is not None:
                label = label._replace(states=label.states[index])
            learn(learner, rows, weights, earlier, label, whole=whole)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", NEW_CELLS)  # as training warned of the same rows
                learner._calibrate(rows, weights)
        except ValueError as error:
            if not (said := str(error)).startswith("kinds: "):
                raise
            raise ValueError(f"visible{said.removeprefix('kinds')}") from error  # as the parameter is called
        except BaseException as error:
            if not isinstance(error, Exception) and learner._fitted is not self._fitted:
                self.__dict__ = learner.__dict__
            raise
        self.__dict__ = learner.__dict__
        return self

    # The fitted machine

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None

    def _require_fitted(self) -> Fitted:
        check_is_fitted(self)
        assert self._fitted is not None
        return self._fitted

    @property
    def machine_(self) -> BoltzmannMachine:
        """The trained machine, with the encoder in its metadata."""
        return self._require_fitted().machine

    @property
    def encoder_(self) -> Encoder:
        """Turns data into states of the machine and back."""
        return self._require_fitted().codec.encoder

    @property
    def history_(self) -> list[dict[str, Any]]:
        """Records of the training."""
        return self._require_fitted().history

    @property
    def n_updates_(self) -> int:
        """Updates made."""
        return self._require_fitted().n_updates

    def _generator(self, purpose: str, random_state: Any) -> torch.Generator:
        """Returns the generator of a purpose; ``random_state`` None: by that of the estimator."""
        machine, state = self.machine_, self.random_state if random_state is None else random_state
        seed = int(check_random_state(state).randint(2**31 - 1))
        return _random.as_generator(stream_seed(seed, purpose), machine.device)

    @property
    def log_partition_(self) -> LogPartition:
        """ln Z of ``machine_``, with its standard error: zero where the value is exact.

        Found at the first use, and again when ``machine_`` changes, or the parameters ``log_partition``,
        ``ais_chains`` or ``ais_temperatures``. Annealing is checked on up to 1,000 rows that ``fit`` has
        learnt, whose missing cells the machine draws; the result says where there are none, as after
        ``from_machine`` without X.
        """
        fitted = self._require_fitted()
        how = (self.log_partition, self.ais_chains, self.ais_temperatures)
        settings = (*how, fitted.digest())  # which its owner may train further
        if fitted.log_partition is None or fitted.log_partition[0] != settings:
            check_settings(self)
            seed = fitted.stream("log_partition", fitted.n_updates)
            annealing: dict[str, Any] = {"chains": how[1], "temperatures": how[2], "seed": seed}
            machine, rows = fitted.machine, fitted.rows
            if rows is not None and bool((holes := tasks.unobserved(machine, rows)).any()):
                rows = tasks.impute(machine, rows, holes, draws=1, seed=seed).draws[0]
            fitted.log_partition = settings, find_log_partition(machine, rows, how[0], **annealing)
        return fitted.log_partition[1]

    # Around a machine, and in files

    @classmethod
    def from_machine(cls, machine: BoltzmannMachine, X: Any = None, **parameters: Any) -> Self:
        """Returns an estimator around a machine that ``harmonium.train`` or the command line has trained.

        Args:
            machine: trained; the estimator works on it, not on a copy. What its metadata keep stands between
                data and states (``tables.Codec.of``), of a table that the command line read from a file as
                frames; where they keep nothing, rows are states.
            X: rows that the machine has learnt: annealing is checked on up to 1,000 of them, and the
                ``offset_`` of ``RBMOutlier`` is found on them. None: none, so that an annealed ln Z
                is unverified.
            **parameters: Parameters of the estimator, other than those that the machine shows.

        Raises:
            TypeError: no machine.
            ValueError: a machine of another form, or parameters out of range.
        """
        _checks.instance(machine, "machine", BoltzmannMachine, "a BoltzmannMachine")
        hidden, deep = [machine.layers[l] for l in machine.hidden], isinstance(cls.n_hidden, Sequence)
        if not hidden or (len(hidden) > 1 and not deep):
            raise ValueError(
                f"machine: expected {'hidden layers' if deep else 'one hidden layer'} for {cls.__name__}, "
                f"received {len(hidden)}; DBM takes more"
            )
        sizes = tuple(layer.n_units for layer in hidden)
        shown = {"n_hidden": sizes if deep else sizes[0], "hidden_kind": hidden[0].kind}
        estimator = cls(**{**shown, **parameters})
        check_settings(estimator)
        estimator._take_label(machine)
        seed = int(check_random_state(estimator.random_state).randint(2**31 - 1))
        estimator._fitted = fitted = Fitted(machine, seed, structure_of(estimator, machine))
        encoder = fitted.codec.encoder
        estimator.n_features_in_ = int(encoder.decode(np.zeros((1, fitted.data_width))).shape[1])
        names = encoder.names if isinstance(encoder, Table) else fitted.codec.own_names()
        if len(names) == estimator.n_features_in_ and all(isinstance(name, str) for name in names):
            estimator.feature_names_in_ = np.array(names, dtype=object)
        if X is not None:
            rows = validated(estimator, X)
            kept_rows = taken(rows, fitted.rows_to_keep(rows.shape[0]).numpy())
            fitted.rows = fitted.visible(kept_rows).to(machine.dtype)
            estimator._calibrate(rows, None)
        return estimator

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the machine, with its encoder and the parameters, to a file of ``BoltzmannMachine.save``.

        ``harmonium.load`` reads the machine alone, and the command line takes the file for a run. Not kept
        are ln Z, the rows that it is checked on, the chains and the optimiser (pickle keeps them), and
        parameters other than numbers and text.

        Args:
            path: Path of the file.
            overwrite: whether to replace a file that is there.

        Raises:
            FileExistsError: there is a file, and no ``overwrite``.
        """
        fitted = self._require_fitted()
        plain = (str, int, float, bool, type(None))  # which JSON keeps as they are
        parameters = {name: x for name, x in self.get_params(deep=False).items() if type(x) in plain}
        about: dict[str, Any] = {"name": type(self).__name__, "parameters": parameters}
        about |= {"n_updates": fitted.n_updates, "numbers": fitted.numbers}
        machine = copy(fitted.machine)  # with metadata of its own: a refused path changes nothing
        machine.metadata = {**machine.metadata, "estimator": about}
        machine.save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, *, device: torch.device | str = "cpu") -> Self:
        """Returns the estimator that ``save`` wrote, or one around the machine of a run's folder.

        Args:
            path: the file, or the folder.
            device: where to put the machine.

        Raises:
            OSError, ValueError: as ``harmonium.load``, or the machine of another estimator.
        """
        machine = load(path, device=device)
        try:
            about = machine.metadata.get("estimator", {})
            if (name := about.get("name", cls.__name__)) != cls.__name__:
                raise ValueError(
                    f"expected the machine of a {cls.__name__}, received a {name}'s; {name}.load reads it"
                )
            saved = about.get("parameters", {}).items()  # a machine does not show what was left open
            shown = {name: x for name, x in saved if name != "n_hidden" or x is None}
            estimator = cls.from_machine(machine, **shown)
            fitted = estimator._require_fitted()
            fitted.n_updates, fitted.numbers = about.get("n_updates", 0), dict(about.get("numbers", {}))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"path: {path}: {error}") from error
        return estimator

    # Likelihood

    def score_samples(self, X: Any) -> Array:
        """Returns ln p of every row in nats.

        It is a probability for discrete units, and else a density in the units of the data. A label is summed
        out: with ``predict_log_proba`` it makes ln p(x, y).

        Of a row with missing cells it is ln p of what the row shows. Relative to each other the rows of a
        machine with one hidden layer are exact; ``log_partition_`` tells how well their common constant ln Z
        is known. It is found at the first call, which may take much longer than the others. Of a ``DBM`` with
        two or more hidden layers it is a lower bound, the variational one of naive mean field, as good as
        ln Z is known. Sums over missing cells take long beside more than 12 hidden units.

        Args:
            X: (rows, columns), a frame, dense or sparse.

        Returns:
            (rows,), float64.

        Raises:
            ValueError: other columns than in ``fit``, a row of missing cells only, values that the visible
                units do not take, a discriminative machine, ``log_partition="exact"`` for a machine too large
                to enumerate, or missing cells of too many states to sum over.
        """
        fitted, X = self._require_fitted(), validated(self, X)
        fitted.codec.require_generative("score_samples")
        machine, codec, constant = fitted.double(), fitted.codec, self.log_partition_.value

        def score(v: Tensor) -> Tensor:
            is_bound = not machine.graph.independent
            return score_states(machine, v, constant, is_bound) + codec.log_slopes(v)

        scores, log_shares = fitted.compute(X, score, beyond="tail"), codec.log_shares(X, machine)
        return scores if log_shares is None else scores + log_shares.sum(1).numpy()

    # Samples and missing values

    def _draw(
        self,
        n_samples: int,
        given: Any,
        method: str,
        sweeps: int | None,
        random_state: Any,
        label: Callable[[int], Tensor] | None = None,
    ) -> tuple[Any, Tensor]:
        """Returns drawn rows, and their visible states; ``label`` makes those of so many rows' labels."""
        fitted = self._require_fitted()
        _checks.positive_int(n_samples, "n_samples")
        fitted.codec.require_generative("sample")
        machine, width, rows, held = fitted.machine, fitted.data_width, None, None
        if given is not None:
            rows = rows_given(self, given, n_samples)
            held = fitted.visible(rows)
        if label is not None:
            if held is None:
                held = torch.full((n_samples, machine.visible_width), torch.nan, device=machine.device)
            held[:, width:] = label(len(held))
        if held is None or bool(held[:, :width].isnan().any()):
            warn_of_rough(machine)
        generator = self._generator("sample", random_state)
        count, clamp = (n_samples, None) if held is None else (1, held.to(machine.dtype))
        v = tasks.sample(machine, count, given=clamp, method=method, sweeps=sweeps, seed=generator).rows
        return (fitted.decode(v) if rows is None else fitted.fill(rows, v, drawn="rows")), v

    def impute(
        self,
        X: Any,
        *,
        method: str = "auto",
        value: str = "nearest",
        draws: int = 5,
        sweeps: int = 100,
        random_state: Any = None,
    ) -> Any:
        """Fills in every missing cell, given what its row has.

        Args:
            X: (rows, columns), dense, NaN or None where a value is missing.
            method: "auto", "exact", "gibbs", "tempered" or "local_search"; see ``harmonium.tasks.impute``.
            value: "nearest": the most probable label, and of numbers the mean, rounded as all of the column
                are, such as to whole ones; "mean": rounded for types of whole numbers alone; "draw": one draw
                given the rest of the row. All stay within what was seen of their column.
            draws: chains or searches of every row, at least 1.
            sweeps: Sweeps of every chain, at least 2.
            random_state: int, ``RandomState``, or None for that of the estimator.

        Returns:
            What X is: a frame with the same names and dtypes, or an array (rows, columns), float32 for
            float32 data, else float64. What was given comes back as it was, a new label too.

        Raises:
            ValueError: other columns than in ``fit``, or given values that the visible units do not take.
        """
        _checks.one_of(value, "value", ("nearest", "mean", "draw"))
        X, _, states = self._completions(X, method, value, draws, sweeps, random_state)
        drawn = "cells" if value == "draw" else None
        return self._require_fitted().fill(X, states, rounded=value != "mean", drawn=drawn)

    def imputations(
        self,
        X: Any,
        draws: int = 5,
        *,
        method: str = "auto",
        sweeps: int = 100,
        random_state: Any = None,
    ) -> list[Any]:
        """Draws several completions of the rows, each given what each row has (multiple imputation).

        ``draws``, at least 1, is their number, each from a chain of its own. Other arguments and errors are
        those of ``impute``, and so is each completion of the list.
        """
        X, done, _ = self._completions(X, method, "draw", draws, sweeps, random_state)
        return [self._require_fitted().fill(X, states, drawn="cells") for states in done.draws]

    def _completions(
        self, X: Any, method: str, value: str, draws: int, sweeps: int, random_state: Any
    ) -> tuple[Any, tasks.Imputation, Tensor]:
        """Returns validated rows, and what ``tasks.impute_cells`` returns of them."""
        fitted, seed = self._require_fitted(), self._generator("impute", random_state)
        fitted.codec.require_generative("imputation")
        X = validated(self, X, sparse=False)
        machine, v = fitted.machine, fitted.visible(X).to(fitted.machine.dtype)
        if bool(v[:, : fitted.data_width].isnan().any()):
            warn_of_rough(machine)
        return X, *tasks.impute_cells(
            machine,
            fitted.codec.encoder,
            v,
            tasks.unobserved(machine, v),
            method,
            value,
            draws=draws,
            sweeps=sweeps,
            seed=seed,
        )

    def intervals(self, X: Any, interval: float = 0.9, *, random_state: Any = None) -> list[CellInterval]:
        """Finds where every missing cell lies: intervals of numbers, and sets of labels.

        They are conformal: errors of hidden cells of rows that training held out tell how wide they are. So
        they hold the share that is asked for of cells that are missing as those were hidden, at random,
        whatever the machine's distribution is; of cells that are missing for what they are they may hold
        more or less. ``pandas.DataFrame`` makes a table of the list.

        Args:
            X: as in ``impute``.
            interval: Share of the missing cells to hold, above 0 and at most 0.99.
            random_state: as in ``impute``, of draws of columns along curves.

        Returns:
            ``CellInterval`` of every missing cell, by row and column: with the row's number, the column, the
            mean or the most probable label, the ends of the interval, and the labels of the set.

        Raises:
            ValueError: other columns than in ``fit``, or a machine without held-out rows: trained by chains
                (``method``), or from fewer than 200 rows.
        """
        fitted, seed = self._require_fitted(), self._generator("impute", random_state)
        fitted.codec.require_generative("intervals")
        v = fitted.visible(validated(self, X, sparse=False))
        return find_intervals(fitted.machine, fitted.codec.encoder, v, interval, seed)

    def __sklearn_tags__(self) -> Tags:
        tags = take_tables(super().__sklearn_tags__())
        tags.input_tags.sparse = True
        return tags


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
        return self._fit(X, None, sample_weight, again=self.warm_start)

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
        return self._fit(X, None, sample_weight, again=True, whole=False)

    def score(self, X: Any, y: Any = None) -> float:
        """Returns the mean of ``score_samples``: higher is better in a model search. ``y`` is ignored."""
        return float(self.score_samples(X).mean())

    # Samples

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
                are numbered again.
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
