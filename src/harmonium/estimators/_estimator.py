"""What every estimator does: learn from rows, and draw rows, in the units of the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from harmonium import _checks, chains, tasks
from harmonium._random import as_generator
from harmonium.data import Identity, Rows
from harmonium.estimators._log_partition import find_log_partition
from harmonium.estimators._progress import Progress, optimizer_factory
from harmonium.layers import Layer
from harmonium.learning import Rule, rules
from harmonium.likelihood import LogPartition
from harmonium.machine import BoltzmannMachine, from_data_, normal_, visible_for, visible_from_data_
from harmonium.training import Schedule, train
from harmonium.training.seeds import stream_seed

Array = NDArray[Any]

SAMPLERS: dict[str, chains.Kernel | None] = {
    "gibbs": chains.Gibbs(),
    "tempered": chains.Tempering(),
    "local_mode": None,
    "local_mode_metropolis": chains.Metropolis("state"),
}

_ROWS = 4096
_STD = 0.03  # of the first couplings


class BoltzmannEstimator(TransformerMixin, BaseEstimator, ABC):
    """A machine behind scikit-learn's interface; a subclass says which hidden layers it has.

    The parameters are those that ``RBM`` documents. scikit-learn reads them off the signature of the
    subclass, which stores them.
    """

    @abstractmethod
    def _hidden_layers(self, visible: Layer) -> list[Layer]:
        """New hidden layers for a machine with these visible units."""

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
            X: (rows, columns), a dense array, data frame or sparse matrix. Sparse rows of a Bernoulli machine
                stay sparse; other visible units need one dense float32 copy.
            y: ignored.

        Raises:
            ValueError: a parameter out of range, NaN, or values that the visible units do not take.
            TrainingDiverged: something is no longer finite; a smaller learning rate may help.
            KeyboardInterrupt: after Ctrl-C or SIGTERM; the estimator keeps what it has learnt.
        """
        self._validate_params()
        rule = self._learning_rule()
        X = self._validated(X, reset=True)
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
        X = self._validated(X, reset=first)
        if first:
            self._begin(X)
        self._train(X, rule, 1, "constant")
        return self

    def _begin(self, X: Any) -> None:
        visible, encoder = visible_for(Rows.of(X, torch.float64), self.visible)
        hidden = self._hidden_layers(visible)
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.encoder_ = encoder
        self.machine_ = BoltzmannMachine([visible, *hidden])
        self.machine_.metadata["encoder"] = encoder.to_dict()
        states = self._training_rows(X)
        self._initialise(Rows.of(states), as_generator(self._stream("couplings")))
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

    # Samples
    # ----------------------------------------------------------------------------

    def sample(
        self, n_samples: int = 1, *, method: str = "gibbs", sweeps: int = 1000, random_state: Any = None
    ) -> Array:
        """Rows drawn from the machine, in the units of the data.

        Each comes from pure noise of its own, so that the rows are independent.

        Args:
            n_samples: rows, at least 1.
            method: "gibbs": chains, which follow the machine's law as far as ``sweeps`` sweeps have mixed
                them. "tempered": the same by parallel tempering, ten replicas a chain. "local_mode": the
                local mode that a search from noise ends at (Taniguchi et al. 2023, §4.4): clean rows, which
                do not follow the law. "local_mode_metropolis": the same, then ``sweeps`` Metropolis steps of
                the whole state.
            sweeps: of every chain, at least 0; not read for "local_mode".
            random_state: int, ``RandomState``, or None for that of the estimator.

        Returns:
            (n_samples, columns), float64.
        """
        check_is_fitted(self)
        _checks.positive_int(n_samples, "n_samples")
        _checks.one_of(method, "method", SAMPLERS)
        random = check_random_state(self.random_state if random_state is None else random_state)
        machine = self.machine_
        seed = stream_seed(int(random.randint(2**31 - 1)), "sample")
        generator = as_generator(seed, machine.device)
        states = machine.random_states(n_samples, seed=generator)
        if method.startswith("local_mode"):
            states, _ = chains.local_search(machine, states, seed=generator)
        kernel = SAMPLERS[method]
        if kernel is not None:
            states = chains.run(machine, kernel, states, sweeps, seed=generator)
        return floating(self.encoder_.decode(states[0].double()), np.float64)

    # Missing values
    # ----------------------------------------------------------------------------

    def impute(
        self,
        X: Any,
        *,
        method: str = "gibbs",
        value: str = "best",
        draws: int = 5,
        sweeps: int = 100,
        random_state: Any = None,
    ) -> Array:
        """The rows with every NaN filled in, given what each row has.

        Args:
            X: (rows, columns), dense, NaN where a value is missing.
            method: "gibbs", "tempered", "local_search" or "tap"; see ``harmonium.tasks.impute``.
            value: "best": one completion, of discrete units the most probable states; "mean": means, of
                categorical units the most probable label; "draw": one draw given the rest of the row.
            draws: chains or searches of every row, at least 1.
            sweeps: of every chain, at least 2.
            random_state: int, ``RandomState``, or None for that of the estimator.

        Returns:
            (rows, columns); float32 for float32 data, else float64. What was given comes back as it was.

        Raises:
            ValueError: other columns than in ``fit``, or given values that the visible units do not take.
        """
        check_is_fitted(self)
        _checks.one_of(value, "value", ("best", "mean", "draw"))
        X = validate_data(
            self, X, reset=False, ensure_all_finite="allow-nan", dtype=[np.float64, np.float32], copy=True
        )
        random = check_random_state(self.random_state if random_state is None else random_state)
        seed = stream_seed(int(random.randint(2**31 - 1)), "impute")
        missing = np.isnan(X)
        # Some value of each column's own, so that rows can be encoded; it is not read.
        filled = np.where(missing, self.encoder_.decode(self._any_state()).cpu().numpy().astype(X.dtype), X)
        done = tasks.impute(
            self.machine_,
            torch.cat([v.to(self.machine_.dtype) for v in self._states(filled)]),
            torch.from_numpy(missing),
            method,
            draws=draws,
            sweeps=sweeps,
            seed=as_generator(seed, self.machine_.device),
        )
        chosen = {"best": done.best, "mean": done.mean, "draw": done.draws[0]}[value]
        return np.where(missing, floating(self.encoder_.decode(chosen.double()), X.dtype), X)

    # Noisy values
    # ----------------------------------------------------------------------------

    def denoise(
        self,
        X: Any,
        flip_probability: float | None = None,
        *,
        noise_deviation: float | None = None,
        method: str = "tap",
        value: str = "decision",
        clean: Any = None,
        sweeps: int = 200,
        random_state: Any = None,
    ) -> Array:
        """Clean rows from noisy ones, with the machine as what is known of clean rows.

        Args:
            X: (rows, columns), dense; NaN is an erasure.
            flip_probability: that a unit is seen in another of its states, for discrete units.
            noise_deviation: of normal noise, in the units of the data.
            method: "tap", "gibbs", "pointwise" or "neighbours"; see ``harmonium.tasks.denoise``.
            value: "decision": the most probable states, of real units the means; "mean": posterior means.
            clean: clean rows such as the training set, for the two baselines and as a start for the others.
            sweeps: of every chain; of TAP the largest number.
            random_state: int, ``RandomState``, or None for that of the estimator.

        Returns:
            (rows, columns); float32 for float32 data, else float64.

        Raises:
            ValueError: as ``harmonium.tasks.denoise``, or other columns than in ``fit``.
        """
        check_is_fitted(self)
        _checks.one_of(value, "value", ("decision", "mean"))
        X = validate_data(
            self, X, reset=False, ensure_all_finite="allow-nan", dtype=[np.float64, np.float32], copy=True
        )
        random = check_random_state(self.random_state if random_state is None else random_state)
        seed = stream_seed(int(random.randint(2**31 - 1)), "denoise")
        machine, layer = self.machine_, self.machine_.layers[0]
        erased = np.isnan(X)
        filled = np.where(erased, self.encoder_.decode(self._any_state()).cpu().numpy().astype(X.dtype), X)
        noisy = self.encoder_.encode(torch.from_numpy(filled)).to(machine.dtype)
        mask = torch.from_numpy(erased).repeat_interleave(layer.width // layer.n_units, -1)
        data = None if clean is None else torch.cat(list(self._states(self._validated(clean, reset=False))))
        found = tasks.denoise(
            machine,
            noisy.masked_fill(mask, torch.nan),
            flip_probability,
            noise_deviation=(
                None if noise_deviation is None else tasks.noise_in_states(noise_deviation, self.encoder_)
            ),
            method=method,
            data=data,
            sweeps=sweeps,
            seed=as_generator(seed, machine.device),
        )
        chosen = found.decision if value == "decision" else found.mean
        return floating(self.encoder_.decode(chosen.double()), X.dtype)

    def _any_state(self) -> Tensor:
        layer = deepcopy(self.machine_.layers[0]).double()
        zero = torch.zeros(1, layer.width, dtype=torch.float64, device=self.machine_.device)
        return layer.mode(zero, layer.reference()).detach()

    # Between data and states
    # ----------------------------------------------------------------------------

    def _validated(self, X: Any, *, reset: bool) -> Any:
        return validate_data(self, X, accept_sparse="csr", reset=reset)

    def _states(self, X: Any) -> Iterator[Tensor]:
        """The rows as visible states in float64, a block at a time."""
        start = 0
        for rows in Rows.of(X, torch.float64).chunks(_ROWS):
            v = self.encoder_.encode(rows).to(self.machine_.device, torch.float64)
            self.machine_.layers[0].check(v, f"X[{start}:]" if start else "X")
            start += len(v)
            yield v

    def _training_rows(self, X: Any) -> Any:
        if isinstance(self.encoder_, Identity):
            return X
        return torch.cat([v.to(self.machine_.dtype) for v in self._states(X)])

    def _double(self) -> BoltzmannMachine:
        return deepcopy(self.machine_).double()

    def _stream(self, purpose: str, index: int = 0) -> int:
        return stream_seed(self._seed, purpose, index)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def floating(x: Tensor, dtype: Any) -> Array:
    """As a NumPy array: float32 for float32, else float64."""
    return x.cpu().numpy().astype(np.float32 if dtype == np.float32 else np.float64, copy=False)
