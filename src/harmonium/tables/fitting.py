"""The one way from rows with their codec to a trained machine, behind estimators and ``harmonium train``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, final

import torch
from torch import Tensor

from harmonium._random import as_generator
from harmonium._settings import settings_of
from harmonium.data import Letters, Rows
from harmonium.layers import Layer
from harmonium.learning import Rule, rules
from harmonium.machine import BoltzmannMachine
from harmonium.tables.codec import Codec
from harmonium.tables.collapse import find_collapse
from harmonium.tables.table_training import train_recipe
from harmonium.training import (
    Recipe,
    TrainingRun,
    Watching,
    check_rows,
    choose,
    learns_images,
    make_rule,
    name_objective,
    note_sampler,
    stream_seed,
    train,
)

_OF_RULE = ("rule", "centred", "sweeps")
_JUDGED = 2048  # training rows: 784 pixels fitted to them are known to 0.2 nats


@final
@dataclass
class Fitting:
    """A machine with the rows that it is to learn: ``begin``, then ``plan``, then ``train``.

    Attributes:
        recipe: the machine, and how it is trained.
        rows: visible states.
        weights: row weights, (rows,); None means uniform.
        share: weight of ln p(rest, label) in what is learned, in [0, 1]; None: there is no label.
        rule: of training by chains, by ``plan``; None: exact sums.
        decided: settings of training by chains as ``plan`` leaves them, by name.
    """

    recipe: Recipe
    rows: Rows
    weights: Tensor | None = None
    share: float | None = None
    rule: Rule | None = None
    decided: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def begin(
        cls,
        codec: Codec,
        X: Any,
        labels: Any = None,
        weights: Tensor | None = None,
        hidden: Sequence[Layer] | None = None,
        *,
        share: float | None = None,
        std: float | None = None,
        seed: int = 0,
        dtype: torch.dtype | None = None,
        shown: str = "anything",
        **choices: Any,
    ) -> Self:
        """Makes a machine for rows, with the parameters that its training begins with.

        Args:
            codec: Codec of the rows; of a label beside them too.
            X: rows, as the codec takes them.
            labels: Labels of the rows, as ``Codec.rows`` takes them; None: there are none.
            weights: row weights, (rows,); None means uniform.
            hidden: hidden layers; None: by the data.
            share: see ``Fitting``.
            std: standard deviation of the first couplings; None: that of ``Recipe.defaults``.
            seed: Seed that all streams of the fit derive from.
            dtype: Type of the parameters; None: float32.
            shown: what every row has to show, see ``Codec.rows``.
            **choices: kind, n_states, method, init and steered, see ``choose``.

        Raises:
            TypeError, ValueError: rows, hidden units and method that do not go together.
        """
        labelled = codec.label is not None
        visible, label = (codec.layers[:-1], codec.layers[-1]) if labelled else (codec.layers, None)
        count = X.samples.shape[0] if hasattr(X, "samples") else X.shape[0]
        recipe = choose(codec.encoder, visible, count, hidden, label=label, **choices)
        chains = recipe.method == "chains"
        machine = recipe.machine.to(dtype=dtype)
        machine.metadata |= codec.to_dict()
        rows = codec.rows(X, machine.dtype, labels, shown=shown)
        if chains:
            std = recipe.defaults.initial_std if std is None else std
            recipe.start_(rows, weights, std, as_generator(stream_seed(seed, "couplings"), machine.device))
        return cls(recipe, rows, weights, share)

    @classmethod
    def go_on(
        cls,
        codec: Codec,
        X: Any,
        labels: Any = None,
        weights: Tensor | None = None,
        *,
        share: float | None = None,
        shown: str = "anything",
        name: str = "X",
    ) -> Self:
        """Goes on, by chains, with the machine that a codec was read from, whose columns may be wider now.

        Args:
            codec: Codec of the machine, see ``begin``.
            X: rows, likewise.
            labels: likewise.
            weights: likewise.
            share: likewise.
            shown: likewise.
            name: what messages call the rows.

        Raises:
            ValueError: rows that the machine does not take.
        """
        machine, labelled = codec.machine, codec.label is not None
        machine.metadata |= codec.to_dict()
        rows = codec.rows(X, machine.dtype, labels, shown=shown)
        check_rows(machine, rows, name)
        family, images = isinstance(codec.encoder, Letters), learns_images(codec.encoder, machine)
        recipe = Recipe(machine, "chains", labelled, family, images and not labelled)
        return cls(recipe, rows, weights, share)

    @property
    def machine(self) -> BoltzmannMachine:
        """The machine that is trained."""
        return self.recipe.machine

    @property
    def exact(self) -> bool:
        """True if it is trained without chains."""
        return self.recipe.method == "exact"

    def plan(
        self,
        *,
        options: Mapping[str, Any],
        chains: int | None = None,
        batch_size: int = 100,
        epochs: int | None = None,
        updates: int | None = None,
        learning_rate: float | None = None,
        whole: bool = True,
        **settings: Any,
    ) -> None:
        """Decides how the machine is trained, where nobody has.

        Args:
            options: Options of the rule by name, but its sweeps.
            chains: Chains of the rule where ``options`` has none; None: its own number.
            batch_size: rows of an update.
            epochs: see ``Recipe.budget``.
            updates: largest number, likewise.
            learning_rate: likewise.
            whole: likewise.
            **settings: settings that ``Recipe.decide`` takes; None: by the data.

        Raises:
            TypeError, ValueError: options that the rule does not take, or that do not go together.
        """
        if self.share is not None:
            self.machine.metadata["objective"] = name_objective(self.share)
        if self.exact:
            return
        decided = self.recipe.decide(**settings)
        if "k" in options:
            decided["sweeps"] = None
        sweep_options = {} if decided["sweeps"] is None else {"sweeps": decided["sweeps"]}
        named, centred = decided["rule"], decided["centred"]
        rule = make_rule(
            named, decided["optimizer"], centred=centred, batch_size=chains, **sweep_options, **options
        )
        note_sampler(self.machine, rule)
        share = self.share
        self.rule = rule if share is None else rules.hybrid(rule, self.machine.visible[:-1], share)
        decided["updates"], decided["learning_rate"] = self.recipe.budget(
            self.rows,
            self.weights,
            batch_size=batch_size,
            optimizer=decided["optimizer"],
            epochs=epochs,
            updates=updates,
            learning_rate=learning_rate,
            whole=whole,
        )
        self.decided = {**decided, "batch_size": batch_size}

    def train(self, may_hold_out: Tensor | None = None, **settings: Any) -> TrainingRun:
        """Trains the machine: by chains in place, by exact sums a machine of the result.

        Args:
            may_hold_out: Marks the rows that exact training may hold out, see ``train_recipe``.
            **settings: settings of ``harmonium.train`` beside those of ``plan`` and in their place. Exact
                training reads seed, device and those of ``training.Watching``.

        Raises:
            TypeError, ValueError, TrainingDiverged: as ``harmonium.train``.
        """
        if self.rule is not None:
            steps = {name: x for name, x in self.decided.items() if name not in _OF_RULE}
            return train(
                self.machine, self.rows, rule=self.rule, weights=self.weights, **{**steps, **settings}
            )
        read = {"seed", "device", *settings_of(Watching)}
        watch = {name: value for name, value in settings.items() if name in read}
        return train_recipe(
            self.recipe, self.rows, self.weights, self.share, may_hold_out=may_hold_out, **watch
        )

    def find_collapse(
        self, machine: BoltzmannMachine, seed: int | torch.Generator, rows: Tensor | None = None
    ) -> str | None:
        """Returns what shows that chains left a machine worse than independent columns; None: it is not.

        Args:
            machine: as trained.
            seed: Seed of the annealing, an int or a generator.
            rows: visible states that it has learned, all alike; None: up to 2,048 of the rows.
        """
        if self.rule is None or not self.rule.learns_density:
            return None
        if rows is not None:
            return find_collapse(machine, rows, seed=seed)
        judged = self.rows.spread(_JUDGED)
        weights = None if self.weights is None else self.weights[judged]
        return find_collapse(machine, self.rows.take(judged), weights, seed=seed)
