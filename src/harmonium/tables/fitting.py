"""The one way from rows with their codec to a trained machine, behind estimators and ``harmonium train``.

**What is modelled** follows from the data and from what the user says of the model: visible units, hidden
units, joined columns. **How it is trained** follows from these, and never changes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self, final

import torch
from torch import Tensor

from harmonium._random import as_generator
from harmonium._settings import settings_of
from harmonium.data import Rows
from harmonium.layers import Layer
from harmonium.learning import Rule, label_rate, rules
from harmonium.machine import (
    BoltzmannMachine,
    check_init,
    hidden_for,
    init_by_name_,
    init_from_data_,
    init_visible_biases_,
    join_layers,
    normal_,
)
from harmonium.tables.codec import Codec
from harmonium.tables.collapse import find_collapse
from harmonium.tables.recipe import (
    AFFORDED,
    FEW,
    IMAGES,
    PLAIN,
    STD,
    Defaults,
    at_least,
    decide,
    defaults_for,
    exact_seconds,
    highest_rate,
    is_discrete,
    is_table,
    length_by_rows,
    make_rule,
    name_objective,
    updates_of,
    why_not_exact,
)
from harmonium.tables.table_training import train_table
from harmonium.training import Objective, TrainingRun, Watching, check_rows, stream_seed, train

_OF_RULE = ("rule", "centred", "sweeps")
_JUDGED = 2048  # training rows: 784 pixels fitted to them are known to 0.2 nats
# Hidden units where none are given beside no table: 100 are usual for images of 8x8 pixels and 500 for those
# of 28x28, here for data of at least 500 columns.
_MANY, _WIDE = 100, 500
# Seconds of exact sums that "auto" spends on other discrete data, as 8x8 pixels beside 10 hidden units are
# thought to: they took 1.6 s, and 12 took 10 s and were no better.
_QUICK = 10.0
_LABEL_PASSES, _LABEL_UPDATES = 20, 1000  # of a machine with a label
_STEADY, _ADAM = 0.1, 0.01  # rates of ``partial_fit``, and of "adam"
_IMAGE_UPDATES = 1000  # 2.5 minutes of one thread beside 784 pixels and 500 hidden units
_SEARCHED = 1000  # most updates of "lbfgs": fits of 112 sites come within its tolerance in 65 to 80
_STD_OF_ALL = 0.27  # of the first couplings, times √columns: by 0.03 clothes and photographs collapsed


@final
@dataclass
class Fitting:
    """A machine with the rows that it is to learn: ``begin`` or ``go_on``, then ``plan``, then ``train``.

    Attributes:
        machine: Machine that chains train in place.
        rows: visible states.
        weights: row weights, (rows,); whole weights stand for repeated rows. None means uniform.
        share: weight of ln p(rest, label) in what is learned, in [0, 1]; None: there is no label.
        defaults: the options of training by chains where none are given.
        method: "exact", by sums over all states of the hidden units, or "chains".
        rule: of training by chains, by ``plan``; None: exact sums.
        decided: settings of training by chains as ``plan`` leaves them, by name.
    """

    machine: BoltzmannMachine
    rows: Rows
    weights: Tensor | None = None
    share: float | None = None
    defaults: Defaults = PLAIN
    method: str = "chains"
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
        kind: str = "bernoulli",
        n_states: int = 2,
        method: str = "auto",
        init: str | None = None,
        std: float | None = None,
        steered: bool = False,
        seed: int = 0,
        dtype: torch.dtype | None = None,
        shown: str = "anything",
    ) -> Self:
        """Makes a machine for rows, with the parameters that its training begins with.

        By default a table gets 8 hidden units, other data 100, or 500 where they are 500 columns wide or
        more. A table is trained by exact sums over up to 12 hidden units, where they take at most a minute.
        So are other discrete data without a label, where the sums are quick and no option of chains is given.

        Args:
            codec: Codec of the rows; of a label beside them too.
            X: rows, as the codec takes them.
            labels: Labels of the rows, as ``Codec.rows`` takes them; None: there are none.
            weights: see ``Fitting``.
            hidden: hidden layers from the lowest up; an empty list joins visible units to each other. None:
                one layer by the data.
            share: see ``Fitting``.
            kind: Kind of that layer.
            n_states: States of its units.
            method: "auto", "exact" or "chains".
            init: names of the parameters that chains begin with, see ``harmonium.machine.INITS``; None:
                normal couplings and biases by the data, off a saddle.
            std: standard deviation of the first couplings; None: that of ``defaults``, else 0.03, 0.27/√n
                beside n > 81 columns.
            steered: whether the user gives an option that only chains use.
            seed: Seed that all streams of the fit derive from.
            dtype: Type of the parameters; None: float32.
            shown: what every row has to show, see ``Codec.rows``.

        Raises:
            TypeError, ValueError: "exact" for data or hidden units that do not allow it, a start that does
                not suit them, two layers without a bound side by side, or rows that the codec does not take.
        """
        check_init(init, std, hidden != [])
        visible = codec.layers if codec.label is None else codec.layers[:-1]
        count = X.samples.shape[0] if hasattr(X, "samples") else X.shape[0]
        table = is_table(codec.encoder, visible, count)
        if hidden is None:
            width = sum(layer.width for layer in visible)
            few = table and kind == "bernoulli"
            hidden = hidden_for(kind, [FEW if few else _WIDE if width >= _WIDE else _MANY], n_states)
        for below, above in [*((layer, hidden[0]) for layer in visible if hidden), *pairwise(hidden)]:
            if not (below.bounded or above.bounded):  # such a machine may have no normaliser
                raise ValueError(
                    f"hidden_kind: expected discrete units, or others with a bound, beside {below}, received "
                    f"{above.kind!r}"
                )
        machine = join_layers(codec.layers, hidden).to(dtype=dtype)
        obstacle = why_not_exact(codec.encoder, count, machine)
        if method == "exact" and obstacle:
            raise ValueError(f'method: expected "chains" or "auto" for {obstacle}, received "exact"')
        if method == "auto":
            quick = is_discrete(machine) and not (steered or codec.label)
            most = AFFORDED if table else _QUICK if quick else 0.0
            summed = obstacle is None and exact_seconds(machine, count) <= most
            method = "exact" if summed else "chains"
        machine.metadata |= codec.to_dict()
        rows = codec.rows(X, machine.dtype, labels, shown=shown)
        plain = defaults_for(codec.encoder, machine, codec.label is not None)
        fitting = cls(machine, rows, weights, share, plain, method)
        if method == "chains":
            std = plain.initial_std if std is None else std
            fitting._start(init, std, as_generator(stream_seed(seed, "couplings"), machine.device))
        return fitting

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

        Arguments are those of ``begin``, and ``name`` is what messages call the rows.

        Raises:
            ValueError: rows that the machine does not take.
        """
        machine = codec.machine
        machine.metadata |= codec.to_dict()
        rows = codec.rows(X, machine.dtype, labels, shown=shown)
        check_rows(machine, rows, name)
        plain = defaults_for(codec.encoder, machine, codec.label is not None)
        return cls(machine, rows, weights, share, plain)

    @property
    def exact(self) -> bool:
        """True if it is trained without chains."""
        return self.method == "exact"

    def plan(
        self,
        *,
        options: Mapping[str, Any],
        batch_size: int = 100,
        epochs: int | None = None,
        updates: int | None = None,
        learning_rate: float | None = None,
        whole: bool = True,
        **given: Any,
    ) -> None:
        """Decides how the machine is trained, where nobody has.

        Args:
            options: Options of the rule by name, but its sweeps.
            batch_size: rows of an update, and chains of the rule where ``options`` has none.
            epochs: passes over the rows; None: by the data.
            updates: Largest number of updates; None: any number.
            learning_rate: Rate of a named optimiser; None: by the data.
            whole: whether it is a fit; else it is one pass at a rate that does not know how many rows will
                come.
            **given: settings that ``decide`` takes; others by the data.

        Raises:
            TypeError, ValueError: options that the rule does not take, or that do not go together.
        """
        machine, share = self.machine, self.share
        if share is not None:
            machine.metadata["objective"] = name_objective(share)
        if self.exact:
            return
        decided = decide(self.defaults, **given)
        if not whole:
            decided["schedule"] = "constant"
        if "k" in options:
            decided["sweeps"] = None
        sweep_options = {} if decided["sweeps"] is None else {"sweeps": decided["sweeps"]}
        named, optimizer, centred = decided["rule"], decided["optimizer"], decided["centred"]
        rule = make_rule(named, optimizer, centred=centred, batch_size=batch_size, **sweep_options, **options)
        machine.metadata.pop("sweeps_from_noise", None)  # of an earlier rule
        if rule.sweeps_from_noise is not None:  # of the sampler that this rule makes of the machine
            machine.metadata["sweeps_from_noise"] = rule.sweeps_from_noise
        self.rule = rule if share is None else rules.hybrid(rule, machine.visible[:-1], share)
        length, rate = self._budget(batch_size, optimizer, whole)
        if epochs is not None:
            length = updates_of(epochs, len(self.rows), batch_size)
        decided["updates"] = length if updates is None else min(length, updates)
        decided["learning_rate"] = rate if learning_rate is None else learning_rate
        self.decided = {**decided, "batch_size": batch_size}

    def train(self, **settings: Any) -> TrainingRun:
        """Trains the machine: by chains in place, by exact sums a machine of the result.

        Args:
            **settings: settings of ``harmonium.train`` beside those of ``plan`` and in their place. Exact
                training reads seed, device and those of ``training.Watching``.

        Raises:
            TypeError, ValueError, TrainingDiverged: as ``harmonium.train``.
        """
        machine, weights = self.machine, self.weights
        if self.rule is not None:
            steps = {name: x for name, x in self.decided.items() if name not in _OF_RULE}
            return train(machine, self.rows, rule=self.rule, weights=weights, **{**steps, **settings})
        if settings.get("device") is not None:
            machine = machine.to(settings["device"])
        v, about = self.rows.all().to(machine.device, machine.dtype), dict[str, Any]()
        if self.share is not None:
            label = machine.layers[machine.visible[-1]]
            about["objective"] = Objective(machine.visible[:-1], self.share)
            about["may_hold_out"] = ~v[:, -label.width :].isnan().any(1)
        read = {"seed", *settings_of(Watching)}
        about |= {name: value for name, value in settings.items() if name in read}
        return train_table(machine, v, weights, **about)

    def find_collapse(self, machine: BoltzmannMachine, seed: int | torch.Generator) -> str | None:
        """Returns what shows that chains left a machine worse than independent columns; None: it is not.

        Args:
            machine: as trained, which is judged on up to 2,048 of the rows.
            seed: Seed of the annealing, an int or a generator.
        """
        if self.rule is None or not self.rule.learns_density:
            return None
        judged = self.rows.spread(_JUDGED)
        weights = None if self.weights is None else self.weights[judged]
        return find_collapse(machine, self.rows.take(judged), weights, seed=seed)

    def _start(self, init: str | None, std: float | None, generator: torch.Generator) -> None:
        """Sets the parameters that chains begin with: by ``init``, else normal couplings and the data."""
        machine, rows, weights = self.machine, self.rows, self.weights
        known_std = min(STD, _STD_OF_ALL / machine.visible_width**0.5) if std is None else std
        if init is not None:
            init_by_name_(machine, init, rows, generator, weights, std=known_std)
            return
        normal_(machine, known_std, generator)
        if self.defaults == IMAGES:  # variances of 1, those of the noise: many pixels have less, some none
            return
        if std is None:
            init_from_data_(machine, rows, generator, weights)
        else:
            init_visible_biases_(machine, rows, weights)

    def _budget(self, batch_size: int, optimizer: Any, whole: bool) -> tuple[int, float]:
        """Returns the updates of training by chains, at least 1, and the learning rate at the first one."""
        machine, rows, weights, images = self.machine, self.rows, self.weights, self.defaults == IMAGES
        rate_of_images = IMAGES.learning_rate or _ADAM
        if not whole:
            rate = _ADAM if optimizer == "adam" else min(_STEADY, highest_rate(machine, rows, weights))
            return updates_of(1, len(rows), batch_size), rate_of_images if images else rate
        if optimizer == "lbfgs":
            return _SEARCHED, _STEADY
        standing = len(rows) if weights is None else round(float(weights.sum()))
        if self.share is not None:
            data = [machine.layers[l].width for l in machine.visible[:-1]]
            return at_least(_LABEL_PASSES, _LABEL_UPDATES, standing, batch_size), label_rate(sum(data))
        if images:
            return _IMAGE_UPDATES, rate_of_images
        length, rate = length_by_rows(machine, standing, batch_size, highest_rate(machine, rows, weights))
        return length, min(rate, _ADAM) if optimizer == "adam" else rate
