"""Sampling, imputation and denoising of rows by a fitted estimator, in the units of the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from harmonium import _checks, chains, tasks
from harmonium._random import as_generator
from harmonium.data import Encoder
from harmonium.estimators._intake import decoded, dtype_of, encoded, filled, validated
from harmonium.layers import Layer
from harmonium.machine import BoltzmannMachine
from harmonium.tasks.impute import unobserved
from harmonium.training.seeds import stream_seed

SAMPLERS: dict[str, chains.Kernel | None] = {
    "local_mode": None,
    "local_mode_metropolis": chains.Metropolis("state"),
}
"""Methods of ``sample``, beside every kernel of ``chains.Kernel.registry`` by its name."""


class Generative(ABC):
    """Rows from a trained machine; a subclass has the machine, the encoder and the seed."""

    machine_: BoltzmannMachine
    encoder_: Encoder
    random_state: Any
    _generative: bool

    @abstractmethod
    def _states(self, X: Any) -> Iterator[Tensor]:
        """Validated rows as visible states in float64, a block at a time."""

    @property
    @abstractmethod
    def _data_layers(self) -> list[Layer]:
        """The visible layers of the data: all but a label."""

    # Samples
    # ----------------------------------------------------------------------------

    def _draw(
        self, rows: int, clamp: Tensor | None, method: str, sweeps: int, random_state: Any
    ) -> list[Tensor]:
        """States of all layers, given visible ones (rows, visible_width) with NaN where they are drawn."""
        _checks.one_of(method, "method", (*chains.Kernel.registry, *SAMPLERS))
        self._require_density("sample")
        generator = self._generator(random_state, "sample")
        machine = self.machine_
        states = machine.random_states(rows, seed=generator)
        if method in SAMPLERS:
            states, _ = chains.local_search(machine, states, clamp, seed=generator)
        kernel = SAMPLERS[method] if method in SAMPLERS else chains.Kernel.registry[method]()
        if kernel is not None:
            states = chains.run(machine, kernel, states, sweeps, clamp, seed=generator)
        return states

    def _visible(self, X: Any, label: Tensor | None = None) -> Tensor:
        """Validated rows as states of all visible layers in float64; the label's missing where not given."""
        v = torch.cat(list(self._states(X)))
        label_width = self.machine_.visible_width - v.shape[1]
        if label is None:
            label = v.new_full((len(v), label_width), torch.nan)
        return torch.cat([v, label.to(v)], 1) if label_width else v

    def _rows(self, v: Tensor, dtype: Any = np.float64) -> Any:
        """Visible states or means as rows in the units of the data."""
        return decoded(self._data(v), self.encoder_, dtype)

    def _data(self, v: Tensor) -> Tensor:
        """The columns of visible states that are no label's."""
        return v[:, : sum(layer.width for layer in self._data_layers)]

    def _generator(self, random_state: Any, purpose: str) -> torch.Generator:
        random = check_random_state(self.random_state if random_state is None else random_state)
        return as_generator(stream_seed(int(random.randint(2**31 - 1)), purpose), self.machine_.device)

    def _require_density(self, what: str) -> None:
        if not self._generative:
            raise ValueError(
                f'objective: expected "hybrid" or "joint" for {what}: a discriminative machine has learned '
                "p(y | x) and nothing of p(x)"
            )

    # Missing values
    # ----------------------------------------------------------------------------

    def impute(
        self,
        X: Any,
        *,
        method: str = "gibbs",
        value: str = "mode",
        draws: int = 5,
        sweeps: int = 100,
        random_state: Any = None,
    ) -> Any:
        """The rows with every missing cell filled in, given what each row has.

        Args:
            X: (rows, columns), dense, NaN or None where a value is missing.
            method: "gibbs", "tempered", "local_search" or "tap"; see ``harmonium.tasks.impute``.
            value: "mode": one completion, of discrete units the most probable states, of real ones the means;
                "mean": means, but of labels the most probable one, and rounded in a column of whole numbers;
                "draw": one draw given the rest of the row. "best" is an older name of "mode".
            draws: chains or searches of every row, at least 1.
            sweeps: of every chain, at least 2.
            random_state: int, ``RandomState``, or None for that of the estimator.

        Returns:
            What X is: a frame with the same names and dtypes, or an array (rows, columns), float32 for
            float32 data, else float64. What was given comes back as it was. With ``binarise`` an array.

        Raises:
            ValueError: other columns than in ``fit``, or given values that the visible units do not take.
        """
        _checks.one_of(value, "value", ("best", "mode", "mean", "draw"))
        X, done = self._completions(X, method, draws, sweeps, random_state)
        chosen = {"mean": done.mean, "draw": done.draws[0]}.get(value, done.best)
        return filled(X, self._data(chosen), self.encoder_)

    def imputations(
        self,
        X: Any,
        draws: int = 5,
        *,
        method: str = "gibbs",
        sweeps: int = 100,
        random_state: Any = None,
    ) -> list[Any]:
        """Several completions of the rows, each a draw given what each row has (multiple imputation).

        Args:
            X: as in ``impute``.
            draws: completions, at least 1; each from a chain of its own.
            method: as in ``impute``.
            sweeps: of every chain, at least 2.
            random_state: int, ``RandomState``, or None for that of the estimator.

        Returns:
            ``draws`` of what ``impute`` returns.

        Raises:
            ValueError: as ``impute``.
        """
        X, done = self._completions(X, method, draws, sweeps, random_state)
        return [filled(X, self._data(states), self.encoder_) for states in done.draws]

    def _completions(
        self, X: Any, method: str, draws: int, sweeps: int, random_state: Any
    ) -> tuple[Any, tasks.Imputation]:
        check_is_fitted(self)
        self._require_density("impute")
        X = validated(self, X, reset=False, sparse=False)
        v = self._visible(X).to(self.machine_.dtype)
        return X, tasks.impute(
            self.machine_,
            v,
            unobserved(self.machine_, v),
            method,
            draws=draws,
            sweeps=sweeps,
            seed=self._generator(random_state, "impute"),
        )

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
    ) -> Any:
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
            (rows, columns); float32 for float32 data, else float64; a frame where ``fit`` saw one
            and nothing was binarised.

        Raises:
            ValueError: as ``harmonium.tasks.denoise``, or other columns than in ``fit``.
        """
        check_is_fitted(self)
        _checks.one_of(value, "value", ("decision", "mean"))
        X = validated(self, X, reset=False, sparse=False)
        machine = self.machine_
        if machine.visible_width > sum(layer.width for layer in self._data_layers):
            raise ValueError(
                "X: expected rows of a machine without labels to denoise; tasks.denoise(machine_, …)"
                " takes rows with their labels"
            )
        rows = encoded(X, self.encoder_, self._data_layers)
        noisy = torch.cat([v.to(machine.device, machine.dtype) for v in rows])
        data = None
        if clean is not None:
            clean = validated(self, clean, reset=False)
            data = torch.cat(list(self._states(clean)))
        found = tasks.denoise(
            machine,
            noisy,
            flip_probability,
            noise_deviation=(
                None if noise_deviation is None else tasks.noise_in_states(noise_deviation, self.encoder_)
            ),
            method=method,
            data=data,
            sweeps=sweeps,
            seed=self._generator(random_state, "denoise"),
        )
        chosen = found.decision if value == "decision" else found.mean
        return decoded(chosen, self.encoder_, dtype_of(X))
