"""The base of every estimator: learning from rows, in the units of the data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from harmonium import _random
from harmonium._random import as_generator
from harmonium.data import Codec, Rows, bernoulli_binarise
from harmonium.estimators._conditional import Conditional
from harmonium.estimators._convergence import Rise
from harmonium.estimators._intake import (
    Array,
    fit_codec,
    states_of,
    taken,
    validated,
)
from harmonium.estimators._log_partition import find_log_partition
from harmonium.estimators._options import Options
from harmonium.estimators._progress import Progress, optimizer_factory
from harmonium.estimators._stored import Stored, digest_of
from harmonium.layers import Layer
from harmonium.learning import Rule, rules
from harmonium.likelihood import LogPartition
from harmonium.machine import BoltzmannMachine, from_data_, joined, normal_, visible_from_data_
from harmonium.training import train
from harmonium.training.callbacks import EarlyStopping
from harmonium.training.seeds import stream_seed
from harmonium.training.support import check_rows

_STD = 0.03  # of the first couplings
_SCORED = 256  # training rows whose score tells whether a machine still learns
_ROWS_KEPT = 1000
_EVALUATE = 50  # updates between two evaluations of early stopping, at least


class BoltzmannEstimator(Options, Stored, Conditional, BaseEstimator):
    """A machine behind scikit-learn's interface; a subclass says which hidden layers it has.

    Abstract, as ``fit`` is each subclass's own.
    """

    _EPOCHS: ClassVar[int] = 100
    _UPDATES: ClassVar[int] = 2000
    """Passes and updates at least, where ``epochs`` is None."""

    @abstractmethod
    def _hidden_layers(self, visible: Sequence[Layer]) -> list[Layer]:
        """New hidden layers for a machine with these visible layers."""

    @abstractmethod
    def _initialise(self, rows: Rows, weights: Tensor | None, generator: torch.Generator) -> None:
        """Sets the parameters of ``machine_``, given its visible states of the data."""

    @abstractmethod
    def _pretrain(self, states: Rows, weights: Tensor | None) -> None:
        """Pretrains the machine on the rows as visible states, before all layers are trained together."""

    @abstractmethod
    def _row_score(self, machine: BoltzmannMachine, states: Tensor) -> Tensor:
        """Returns the score of every row that early stopping maximises: (rows,), in nats."""

    def _random_start(self, rows: Rows, weights: Tensor | None, generator: torch.Generator) -> None:
        """Normal couplings; beside Gaussian units off their saddle, unless ``initial_std`` is given."""
        normal_(self.machine_, _STD if self.initial_std is None else self.initial_std, generator)
        if self.initial_std is None:
            from_data_(self.machine_, rows, generator, weights)
        else:
            visible_from_data_(self.machine_, rows, weights)

    # Learning
    # ----------------------------------------------------------------------------

    @contextmanager
    def _learner(self) -> Iterator[Self]:
        """Yields a copy that learns in place of this estimator, which becomes it once all is done.

        What raises in the block leaves this estimator as it was: a refused argument, divergence, a signal
        before training began or a second one in it. A Ctrl-C or SIGTERM after training ended, whole or cut
        short, lets it become what the copy has learnt by then.
        """
        learner, random, before = copy(self), self.random_state, getattr(self, "_progress", None)
        state = random.get_state() if isinstance(random, np.random.RandomState) else None
        try:
            yield learner
        except BaseException as error:
            progress = getattr(learner, "_progress", None)
            if isinstance(error, Exception) or progress is None or progress is before:
                if state is not None:
                    random.set_state(state)
                raise
            self.__dict__ = learner.__dict__
            raise
        self.__dict__ = learner.__dict__

    def _looked_at(self, X: Any, again: bool) -> Any:
        """Rows to learn from, looked at; ``again``: by a machine that is there already."""
        if self.binarise is not None and self.visible not in ("auto", "bernoulli"):
            raise ValueError(
                f"binarise: expected None with visible={self.visible!r}, received {self.binarise!r}; "
                '"bernoulli" units take what it makes'
            )
        return validated(self, X, reset=not again)

    def _refuse_other_layers(self) -> None:
        """Refuses ``n_hidden`` or ``hidden`` that is not that of the machine ``warm_start`` goes on with."""
        wanted = self._hidden_layers(self._data_layers)
        there = [self.machine_.layers[l] for l in self.machine_.hidden]
        compared: dict[str, tuple[Any, Any]] = {
            "n_hidden": ([x.n_units for x in there], [x.n_units for x in wanted]),
            "hidden": (there[0].kind, wanted[0].kind),
        }
        for name, (expected, received) in compared.items():
            if received != expected:
                raise ValueError(
                    f"{name}: expected {expected} as in the machine that warm_start goes on with, received "
                    f"{received}; warm_start=False begins anew"
                )

    def _begin(
        self, X: Any, weights: Tensor | None, dtype: torch.dtype, label: tuple[Layer, Tensor] | None = None
    ) -> Rows:
        """Makes a new machine for validated rows and starts it at them: returns them as visible states."""
        codec = fit_codec(X, self.visible, self.unknown, self.binarise, weights)
        self.encoder_, visible = codec.encoder, [*codec.layers]
        self._data_width = sum(layer.width for layer in visible)
        visible += [] if label is None else [label[0]]
        hidden = self._hidden_layers(visible)
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.machine_ = joined(visible, hidden).to(dtype=torch.float64 if self.dtype == "float64" else dtype)
        self.machine_.metadata["encoder"] = self.encoder_.to_dict()
        rows = self._start_rows(X, None if label is None else label[1])
        self._initialise(rows, weights, as_generator(self._stream("couplings"), self.machine_.device))
        self.history_: list[dict[str, Any]] = []
        self.n_updates_ = 0
        self._progress: Progress | None = None
        self._log_partition: tuple[Any, LogPartition] | None = None
        self._rows_kept = None
        self._pretrain(rows, weights)
        return rows

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

    def _length(self, rows: int) -> int:
        """Updates of ``fit``."""
        size = min(self.batch_size, rows)
        epochs = self.epochs or max(self._EPOCHS, -(-self._UPDATES * size // rows))
        updates = -(-epochs * rows // size)
        return updates if self.max_updates is None else min(updates, self.max_updates)

    def _train(
        self,
        states: Rows,
        weights: Tensor | None,
        rule: Rule,
        learning_rate: float,
        *,
        judged: Tensor | None = None,
        whole: bool = True,
    ) -> None:
        """Learns from states, or from intensities that are drawn from at every update.

        Args:
            states: as ``_training_rows`` makes them.
            weights: of the rows, or None.
            rule: how.
            learning_rate: of the named optimisers.
            judged: rows that ``_row_score`` takes, (rows,) bool; None: all.
            whole: a ``fit``, with its length, schedule and early stopping; else one epoch at one rate.
        """
        self._log_partition = None  # of the machine as it was
        for name in self._CALIBRATED:
            self.__dict__.pop(name, None)
        self._generative = rule.generative
        earlier = self._progress
        build = optimizer_factory(self.optimizer, learning_rate, earlier)
        built: list[torch.optim.Optimizer] = []

        def optimizer(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
            built.append(build(parameters))
            return built[0]

        count = len(states)
        scored = torch.arange(count, device="cpu") if judged is None else judged.nonzero().flatten().cpu()
        kept, validation = torch.arange(count, device="cpu"), dict[str, Any]()
        if whole and self.early_stopping:
            kept, validation = self._held_out(states, weights, scored)
        used = len(kept)
        updates = self._length(used) if whole else -(-used // min(self.batch_size, used))
        callbacks: list[Any] = validation.pop("callbacks", [])
        rise = None
        if whole and len(scored):
            first = self._some(states, scored[torch.isin(scored, kept)][:_SCORED])
            rise = Rise(self._row_score, first, self.machine_)
            callbacks = [rise, *callbacks]
        run = train(
            self.machine_,
            states if len(kept) == count else states.subset(kept),
            rule=rule,
            rule_state=earlier.chains_of(rule) if earlier else None,
            sample_weight=None if weights is None else weights[kept],
            updates=updates,
            batch_size=self.batch_size,
            optimizer=optimizer,
            schedule=self.schedule if whole else "constant",
            clip_norm=self.clip_norm,
            weight_decay=self.weight_decay,
            averaging=self.averaging,
            transform=self._redrawn if self.binarise == "sample" else None,
            seed=self._stream("train", self.n_updates_),
            device=self.device,
            callbacks=callbacks,
            progress=self.verbose > 0,
            **validation,
        )
        if run.averaged_machine is not None:
            self.machine_ = run.averaged_machine
        rows = self._some(states, torch.from_numpy(self._rows_to_keep(count, weights)))
        if not whole and self._rows_kept is not None:  # as many of this batch stay as of those before
            rows = torch.cat([self._rows_kept.to(rows), rows])
            rows = rows[self._rows_to_keep(len(rows), None)]
        self._rows_kept = rows
        records = [{**record, "step": record["step"] + self.n_updates_} for record in run.history]
        self.history_ = [*self.history_, *records]
        self.n_updates_ += run.updates
        self._progress = Progress(rule.name, run.rule_state, built[0])  # last: see _learner
        run.whole()
        if rise is not None and run.status == "completed":
            rise.warn(type(self).__name__, run.updates)

    def _rows_to_keep(self, count: int, weights: Tensor | None) -> Array:
        """Draws the indices of up to 1,000 of so many rows, by their weights where there are any."""
        generator = as_generator(self._stream("rows kept", self.n_updates_))
        index = _random.permutation(count, generator)[:_ROWS_KEPT]
        if weights is not None:
            ends = weights.cumsum(0)
            places = _random.uniform((len(index),), generator, torch.float64) * ends[-1]
            index = torch.searchsorted(ends, places).clamp(max=count - 1)
        kept: Array = index.sort().values.numpy()
        return kept

    def _keep_rows(self, X: Any) -> None:
        some = taken(X, self._rows_to_keep(X.shape[0], None))
        self._rows_kept = self._visible(some).to(self.machine_.dtype)

    def _held_out(
        self, states: Rows, weights: Tensor | None, scored: Tensor
    ) -> tuple[Tensor, dict[str, Any]]:
        """The rows to train on, and what ``train`` is told of the others."""
        count = len(states)
        held = max(1, round(self.validation_fraction * len(scored)))
        if held >= count or not len(scored):
            raise ValueError(
                f"validation_fraction: expected rows on both sides, received {self.validation_fraction} of "
                f"{len(scored)} rows that can be judged (classifiers: with a label and no missing cell); "
                "give more rows, or early_stopping=False"
            )
        generator = as_generator(self._stream("validation"))
        out = scored[_random.permutation(len(scored), generator)[:held]].sort().values
        every = torch.arange(count, device="cpu")
        kept = every[~torch.isin(every, out)]
        per_epoch = -(-len(kept) // min(self.batch_size, len(kept)))
        stopping = EarlyStopping(
            "validation_score", self.n_iter_no_change, restore_best=self.averaging is None
        )
        validation = self._some(states, out)
        return kept, {
            "validation": validation,
            "validation_weight": None if weights is None else weights[out],
            "metrics": {"validation_score": self._row_score},
            "evaluate_every": max(per_epoch, _EVALUATE),
            "callbacks": [stopping],
        }

    # Likelihood
    # ----------------------------------------------------------------------------

    @property
    def log_partition_(self) -> LogPartition:
        """ln Z of ``machine_``, with its standard error: zero where the value is exact.

        Found at the first use, and again when ``machine_`` changes, or the parameters ``log_partition``,
        ``ais_chains`` or ``ais_temperatures``. Annealing is checked on up to 1,000 rows that ``fit`` has
        learnt, whose missing cells the machine draws; the result says where there are none, as after
        ``from_machine`` without X.
        """
        check_is_fitted(self)
        machine = digest_of(self.machine_)  # which its owner may train further
        settings = (self.log_partition, self.ais_chains, self.ais_temperatures, machine)
        if self._log_partition is None or self._log_partition[0] != settings:
            self._validate_params()
            value = find_log_partition(
                self.machine_,
                self.log_partition,
                chains=self.ais_chains,
                temperatures=self.ais_temperatures,
                seed=self._stream("log_partition", self.n_updates_),
                rows=self._rows_kept,
            )
            self._log_partition = (settings, value)
        return self._log_partition[1]

    # Between data and states
    # ----------------------------------------------------------------------------

    def _states(self, X: Any) -> Iterator[Tensor]:
        """Validated rows as states of the data's layers in float64, a block at a time; see ``states_of``."""
        return states_of(X, self.encoder_, self._data_layers, self.machine_.device)

    @property
    def _data_layers(self) -> list[Layer]:
        """The visible layers of the data: all but a label."""
        layers = [self.machine_.layers[l] for l in self.machine_.visible]
        return layers if self.machine_.visible_width == self._data_width else layers[:-1]

    def _start_rows(self, X: Any, label: Tensor | None) -> Rows:
        """All rows as visible states, as sparse as they are; they are made once."""
        codec = Codec(self.encoder_, self._data_layers)
        labels = None if label is None else label.numpy()
        return codec.rows(X, self.machine_.dtype, labels, shown="data")

    def _training_rows(self, X: Any, states: Rows | None, label: Tensor | None = None) -> Rows:
        """Returns the rows to learn from: visible states, or the intensities that states are drawn from.

        Args:
            X: validated rows.
            states: of X, as a new machine was started at them; None: they are not made yet.
            label: states of the labels, where there are any.
        """
        if states is None:
            states = self._start_rows(X, label)
            check_rows(self.machine_, states, "X")
        if self.binarise != "sample":
            return states
        levels = Rows.of(X, self.machine_.dtype, missing=True).all()
        levels = levels if label is None else torch.cat([levels, label.to(levels)], 1)
        return Rows.of(levels, self.machine_.dtype, missing=True)

    def _redrawn(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """1 with the intensity as its probability, a missing one missing, and the label as it is."""
        levels, label = rows[:, : self._data_width], rows[:, self._data_width :]
        bits = bernoulli_binarise(levels.nan_to_num(nan=0.0), generator)
        return torch.cat([bits.masked_fill(levels.isnan(), torch.nan), label], 1)

    def _some(self, rows: Rows, indices: Tensor) -> Tensor:
        """Returns some training rows as states to be scored."""
        v = rows.take(indices)
        return self._redrawn(v, as_generator(0)) if self.binarise == "sample" else v

    def _log_slopes(self, given: Tensor) -> Tensor:
        """ln |slope| of the encoder, summed over the given units (rows, units) of each row."""
        if all(layer.discrete for layer in self._data_layers):
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
        if tags.transformer_tags is not None:
            tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
