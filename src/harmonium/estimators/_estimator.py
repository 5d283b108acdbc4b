"""The base of every estimator: what a fitted machine does with rows, in the units of the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from harmonium import _checks, tasks
from harmonium._settings import AtLeast0, Count, Interval, Setting, Share, settings_of
from harmonium.data import Encoder
from harmonium.estimators import _columns
from harmonium.estimators._fitted import Fitted, digest_of
from harmonium.estimators._intake import Array, take_tables, taken, validated
from harmonium.estimators._training import structure_of
from harmonium.layers import Layer
from harmonium.learning import Rule, rules
from harmonium.likelihood import LogPartition, find_log_partition
from harmonium.machine import BoltzmannMachine, load
from harmonium.tables import CellInterval, Table, find_intervals
from harmonium.tasks import unobserved
from harmonium.training import METHODS, PLAIN, SCHEDULES, OptimizerFactory, Schedule, warn_of_rough


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
    averaging: Share | None = PLAIN.averaging
    initial_std: AtLeast0 | None = PLAIN.initial_std
    init: str | None = None
    early_stopping: bool = False
    validation_fraction: Share = 0.1
    n_iter_no_change: Count = 10
    on_divergence: Literal["slower", "raise"] = "slower"


class BoltzmannEstimator(_ByChains, _Options, BaseEstimator, ABC):
    """Parameters, and a fitted machine once there is one. Abstract: ``fit`` is each subclass's own.

    A parameter is a field, which ``RBM`` documents. One by the name of a setting of ``train`` is passed on.
    """

    _fitted: Fitted | None = None
    _samples_images = False  # which leaves no density

    @abstractmethod
    def _row_score(self, machine: BoltzmannMachine, states: Tensor) -> Tensor:
        """Returns what early stopping maximises of every row, (rows,), in nats."""

    def _calibrate(self, X: Any, weights: Tensor | None) -> None:
        """Finds ``Fitted.numbers`` of the trained machine on validated rows; most estimators have none."""

    @abstractmethod
    def _take_label(self, machine: BoltzmannMachine) -> None:
        """Looks at the label of a machine that was trained elsewhere; ValueError: it is of another form."""

    # The fitted machine
    # ----------------------------------------------------------------------------

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
        return self._require_fitted().encoder

    @property
    def history_(self) -> list[dict[str, Any]]:
        """Records of the training."""
        return self._require_fitted().history

    @property
    def n_updates_(self) -> int:
        """Updates made."""
        return self._require_fitted().n_updates

    def _validated(self, X: Any, *, sparse: bool = True) -> Any:
        """Returns the rows that a fitted estimator is given, looked at as scikit-learn does."""
        return validated(self, X, reset=False, sparse=sparse)

    def _check_parameters(self) -> None:
        """Refuses values that a parameter may not have; TypeError or ValueError names it."""
        known = settings_of(type(self))
        for field in fields(self):
            known[field.name].check(getattr(self, field.name), field.name)

    def _random(self, random_state: Any) -> Any:
        return self.random_state if random_state is None else random_state

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
        settings = (*how, digest_of(fitted.machine))  # which its owner may train further
        if fitted.log_partition is None or fitted.log_partition[0] != settings:
            self._check_parameters()
            seed = fitted.stream("log_partition", fitted.n_updates)
            annealing: dict[str, Any] = {"chains": how[1], "temperatures": how[2], "seed": seed}
            machine, rows = fitted.machine, fitted.rows
            if rows is not None and bool((holes := unobserved(machine, rows)).any()):
                rows = tasks.impute(machine, rows, holes, draws=1, seed=seed).draws[0]
            fitted.log_partition = settings, find_log_partition(machine, rows, how[0], **annealing)
        return fitted.log_partition[1]

    # Around a machine, and in files
    # ----------------------------------------------------------------------------

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
        hidden = [machine.layers[l] for l in machine.hidden]
        if not hidden:
            raise ValueError("machine: expected hidden layers, received a machine without any")
        n_hidden: Any = tuple(layer.n_units for layer in hidden)
        if not isinstance(cls.n_hidden, Sequence):
            if len(hidden) > 1:
                raise ValueError(
                    f"machine: expected one hidden layer for {cls.__name__}, received {len(hidden)}; "
                    "DBM takes more"
                )
            (n_hidden,) = n_hidden
        estimator = cls(**{"n_hidden": n_hidden, "hidden_kind": hidden[0].kind, **parameters})
        estimator._check_parameters()
        estimator._take_label(machine)
        seed = int(check_random_state(estimator.random_state).randint(2**31 - 1))
        estimator._fitted = fitted = Fitted(machine, seed, structure_of(estimator, machine))
        decoded = fitted.encoder.decode(torch.zeros(1, fitted.data_width, dtype=torch.float64, device="cpu"))
        estimator.n_features_in_ = int(decoded.shape[1])
        encoder = fitted.encoder
        names = encoder.names if isinstance(encoder, Table) else fitted.codec.own_names()
        if len(names) == estimator.n_features_in_ and all(isinstance(name, str) for name in names):
            estimator.feature_names_in_ = np.array(names, dtype=object)
        if X is not None:
            rows = estimator._validated(X)
            kept = taken(rows, fitted.rows_to_keep(rows.shape[0]).numpy())
            fitted.rows = fitted.visible(kept).to(machine.dtype)
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
        parameters = {known.name: getattr(self, known.name) for known in fields(self)}
        about = {
            "name": type(self).__name__,
            "parameters": {name: x for name, x in parameters.items() if type(x) in plain},
            "n_updates": fitted.n_updates,
            "numbers": fitted.numbers,
        }
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
            parameters = {name: x for name, x in about.get("parameters", {}).items() if name != "n_hidden"}
            estimator = cls.from_machine(machine, **parameters)
            fitted = estimator._require_fitted()
            fitted.n_updates, fitted.numbers = about.get("n_updates", 0), dict(about.get("numbers", {}))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"path: {path}: {error}") from error
        return estimator

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
        fitted.require_density("sample")
        machine, width, rows, held = fitted.machine, fitted.data_width, None, None
        if given is not None:
            rows = _columns.rows_given(self, given, n_samples)
            held = fitted.visible(rows)
        if label is not None:
            if held is None:
                held = torch.full((n_samples, machine.visible_width), torch.nan, device=machine.device)
            held[:, width:] = label(len(held))
        if held is None or bool(held[:, :width].isnan().any()):
            warn_of_rough(machine)
        generator = fitted.generator(self._random(random_state), "sample")
        count, clamp = (n_samples, None) if held is None else (1, held.to(machine.dtype))
        v = tasks.sample(machine, count, given=clamp, method=method, sweeps=sweeps, seed=generator).rows
        return (fitted.decode(v) if rows is None else fitted.fill(rows, v, drawn="rows")), v

    # Missing values
    # ----------------------------------------------------------------------------

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
            method: "auto", "exact", "gibbs", "tempered", "local_search" or "tap"; see
                ``harmonium.tasks.impute``.
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
        fitted = self._require_fitted()
        X, _, states = self._completions(X, method, value, draws, sweeps, random_state)
        return fitted.fill(X, states, rounded=value != "mean", drawn="cells" if value == "draw" else None)

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

        Args:
            X: as in ``impute``.
            draws: completions, at least 1; each from a chain of its own.
            method: as in ``impute``.
            sweeps: Sweeps of every chain, at least 2.
            random_state: int, ``RandomState``, or None for that of the estimator.

        Returns:
            ``draws`` of what ``impute`` returns.

        Raises:
            ValueError: as ``impute``.
        """
        X, done, _ = self._completions(X, method, "draw", draws, sweeps, random_state)
        return [self._require_fitted().fill(X, states, drawn="cells") for states in done.draws]

    def intervals(self, X: Any, interval: float = 0.9, *, random_state: Any = None) -> list[CellInterval]:
        """Finds where every missing cell lies: intervals of numbers, and sets of labels.

        They are conformal: errors of hidden cells of rows that training held out tell how wide they are. So
        they hold the share that is asked for of cells that are missing as those were hidden, at random,
        whatever the machine's distribution is; of cells that are missing for what they are they may hold
        more or less. ``pandas.DataFrame`` makes a table of the list.

        Args:
            X: as in ``impute``.
            interval: Share of the missing cells to hold, above 0 and at most 0.99.
            random_state: int, ``RandomState``, or None for that of the estimator: of draws, of columns along
                curves.

        Returns:
            ``CellInterval`` of every missing cell, by row and column: with the row's number, the column, the
            mean or the most probable label, the ends of the interval, and the labels of the set.

        Raises:
            ValueError: other columns than in ``fit``, or a machine without held-out rows: trained by chains
                (``method``), or from fewer than 200 rows.
        """
        fitted = self._require_fitted()
        fitted.require_density("intervals")
        X = self._validated(X, sparse=False)
        seed = fitted.generator(self._random(random_state), "impute")
        return find_intervals(fitted.machine, fitted.encoder, fitted.visible(X), interval, seed)

    def _completions(
        self, X: Any, method: str, value: str, draws: int, sweeps: int, random_state: Any
    ) -> tuple[Any, tasks.Imputation, Tensor]:
        """Returns validated rows, and what ``tasks.impute_cells`` returns of them."""
        fitted = self._require_fitted()
        fitted.require_density("impute")
        X = self._validated(X, sparse=False)
        machine, v = fitted.machine, fitted.visible(X).to(fitted.machine.dtype)
        seed = fitted.generator(self._random(random_state), "impute")
        missing = unobserved(machine, v)
        if bool(missing[:, : fitted.n_units].any()):
            warn_of_rough(machine)
        return X, *tasks.impute_cells(
            machine, fitted.encoder, v, missing, method, value, draws=draws, sweeps=sweeps, seed=seed
        )

    # Columns
    # ----------------------------------------------------------------------------

    def predict_column(
        self, X: Any, column: Any, *, method: str = "auto", sweeps: int = 100, random_state: Any = None
    ) -> Array:
        """Returns the most probable label of a column given the rest of each row, or the mean of a number.

        Numbers are counts and reals, labels all else: two values, categories. Means are not rounded.

        Args:
            X: (rows, columns) as in ``fit``; the column's own cells are not read and may be missing, and a
                frame need not have the column.
            column: its name, or its number.
            method: "auto", "exact" or "gibbs", ten chains; see ``harmonium.tasks.predict_column``.
            sweeps: Sweeps of every chain, at least 2.
            random_state: int, ``RandomState``, or None for that of the estimator.

        Returns:
            (rows,), in the units of the data.

        Raises:
            ValueError: no such column, other columns than in ``fit``, "exact" with too many states to sum
                over, or an encoder that makes several units of a column.
        """
        fitted, v, j, told = self._ask(X, column, method, sweeps, random_state)
        return _columns.cells_of(fitted, v, j, told.states)

    def column_proba(
        self, X: Any, column: Any, *, method: str = "auto", sweeps: int = 100, random_state: Any = None
    ) -> _columns.ColumnProbabilities:
        """Returns the probabilities of all labels or counts of a column given the rest of each row.

        They are those of the values that ``fit`` has seen, also of rare labels, and sum to 1.

        Args:
            X: as in ``predict_column``.
            column: its name, or its number.
            method: as in ``predict_column``.
            sweeps: Sweeps of every chain, at least 2.
            random_state: int, ``RandomState``, or None for that of the estimator.

        Returns:
            ``values``, in the units of the data, and ``probabilities``, (rows, values).

        Raises:
            ValueError: as ``predict_column``, or a column of real numbers.
        """
        return _columns.probabilities_of(*self._ask(X, column, method, sweeps, random_state))

    def _ask(
        self, X: Any, column: Any, method: str, sweeps: int, random_state: Any
    ) -> tuple[Fitted, Tensor, int, tasks.ColumnPrediction]:
        """Returns the machine, visible states of rows, the number of a column, and what they tell of it."""
        fitted = self._require_fitted()
        _checks.one_of(method, "method", ("auto", "exact", "gibbs"))
        fitted.require_density("predictions of a column")
        j = _columns.column_number(self, column, "column")
        encoder = fitted.encoder
        learned = len(encoder.columns) if isinstance(encoder, Table) else self.n_features_in_
        if fitted.n_units != learned:
            raise ValueError(
                f"column: expected a machine with a unit for each column, received {column!r} for one with "
                "several, such as bit-planes; impute(X) and sample(given=...) take it"
            )
        warn_of_rough(fitted.machine)
        v = fitted.visible(_columns.rows_around(self, X, column))
        generator = fitted.generator(self._random(random_state), "impute")
        return fitted, v, j, _columns.ask(fitted, v, j, method, sweeps=sweeps, seed=generator)

    def __sklearn_tags__(self) -> Tags:
        tags = take_tables(super().__sklearn_tags__())
        tags.input_tags.sparse = True
        return tags
