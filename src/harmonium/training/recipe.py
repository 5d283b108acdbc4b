"""From data to a machine and to how it is trained: the one choice behind estimators and ``harmonium train``.

**What is modelled** follows from the data and from what the user says of the model: visible units, hidden
units, joined columns. **How it is trained** follows from these, and never changes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium.data import Encoder, Letters, Rows, Standardise
from harmonium.layers import Layer
from harmonium.learning import Rule, label_rate, rules
from harmonium.machine import (
    BoltzmannMachine,
    hidden_for,
    init_by_name_,
    init_from_data_,
    init_visible_biases_,
    join_layers,
    normal_,
)
from harmonium.sums import has_hidden_states, seconds_of_table
from harmonium.training.exact_training import EXACT_BATCH

METHODS = ("auto", "exact", "chains")
OBJECTIVES = {"hybrid": 0.03, "discriminative": 0.0, "joint": 1.0}
"""Weight of ln p(rest, label) in each objective with a label."""

# Hidden units where none are given: 8 were measured on the tables of decision 19; 100 are usual for images of
# 8x8 pixels and 500 for those of 28x28, here for data of at least 500 columns.
_FEW, _MANY, _WIDE = 8, 100, 500
_WIDEST, _OF_ONE_KIND = 100, 40  # visible columns of a table at most; as many of one kind may be pixels
# Of exact training: usual sums of updates and looks at rows, and the seconds that "auto" spends on a table,
# as chains of as wide tables take as long and are no better, and on other discrete data, as 8x8 pixels beside
# 10 hidden units are thought to: they took 1.6 s, and 12 took 10 s and were no better.
_EXACT_SUMS, _AFFORDED, _QUICK = 150, 60.0, 10.0

# Lengths and rates are those of decision 18, where they were measured.
_BATCH = 100  # rows of an update from which on the highest rates serve
_FEWEST = 500  # updates: few rows are learnt at a low rate
_MOST = 5000  # updates of _BATCH rows or more; every row is read once all the same
_PASSES, _USUAL = 100, 2000  # passes, or else updates, that are enough for units other than 0 and 1
_LABEL_PASSES, _LABEL_UPDATES = 20, 1000  # of a machine with a label
_DEEPER = 2.4  # times as many updates of a deep machine: two minutes of 784-300-100 on one core
_STEADY, _ADAM = 0.1, 0.01  # rates of ``partial_fit``, and of "adam"
_IMAGE_UPDATES = 1000  # 2.5 minutes of one thread beside 784 pixels and 500 hidden units
_SEARCHED = 1000  # most updates of "lbfgs": fits of 112 sites come within its tolerance in 65 to 80
# Of the first couplings, as short trainings of tables need it, and that times √columns at most: by 0.03
# clothes and photographs collapsed, by 0.01 they did not.
_STD, _STD_OF_ALL = 0.03, 0.27


class Defaults(NamedTuple):
    """The options of training by chains where none are given; None as in ``harmonium.train``."""

    rule: str = "pcd"
    centred: bool = True
    optimizer: str = "sgd"
    schedule: str = "linear"
    clip_norm: float | None = None
    averaging: float | None = None
    initial_std: float | None = None
    learning_rate: float | None = None
    sweeps: int | None = None


DECIDED = ("rule", "optimizer", "sweeps", "centred", "schedule", "clip_norm", "averaging")
"""Settings of training by chains that ``Recipe.decide`` chooses where they are None."""
PLAIN = Defaults()
LABEL = Defaults(centred=False, optimizer="adam", averaging=0.99, initial_std=_STD)
# Families learn out of equilibrium by single sweeps (docs/decisions/0018).
FAMILY = Defaults(sweeps=10)
# A sampler of grey images in Gaussian units (Liao et al. 2022), whose gradients have heavy tails.
IMAGES = Defaults(
    rule="noise_cd", centred=False, optimizer="adam", clip_norm=10.0, learning_rate=0.003, sweeps=20
)


GUARD = 1.0
"""The ``clip_norm`` of units without a bound, which one outlier would throw out of range."""

# How far a kind of machine goes for every row, as the learning rate times the updates.
_BINARY, _DISCRETE, _REAL = 3.0, 0.75, 0.5
_HIGHEST, _OTHERS = 0.3, 0.1  # rates of units of 0 and 1, at most, and of units without two values or states
_PACE = 30.0  # rate times ‖C‖²: clothes, of 1,770, hold at 0.017, photographs, of 31,800, at 0.002
_SEEN = 1024  # rows that tell these variances


@final
@dataclass(frozen=True)
class Recipe:
    """A machine for some data, and how it is trained.

    Attributes:
        machine: The machine, in float32; where ``choose`` made it, its parameters are still to be set.
        method: "exact", by sums over all states of the hidden units, or "chains".
        label: whether the last visible layer is a label.
        family: whether the rows are aligned sequences.
        images: whether they are grey images in Gaussian units, with one scale for all pixels.
        init: names of the first parameters, see ``harmonium.machine.INITS``; None: normal couplings and
            biases by the data, off a saddle.
    """

    machine: BoltzmannMachine
    method: str
    label: bool = False
    family: bool = False
    images: bool = False
    init: str | None = None

    @property
    def defaults(self) -> Defaults:
        """The options of training by chains where none are given."""
        if self.images:
            return IMAGES
        chosen = LABEL if self.label else FAMILY if self.family else PLAIN
        return chosen if self.discrete else chosen._replace(clip_norm=GUARD)

    @property
    def discrete(self) -> bool:
        """True if all units have two values or one of some categories."""
        return all(layer.two_values or layer.one_hot for layer in self.machine.layers)

    def exact_seconds(self, rows: int) -> float:
        """Returns about how long exact training on so many rows takes on one core, joined columns apart."""
        layers = self.machine.layers
        width = sum(layers[l].width for l in self.machine.visible)
        log2_states = sum(layers[l].log2_states for l in self.machine.hidden)
        return _EXACT_SUMS * seconds_of_table(min(rows, EXACT_BATCH), width, log2_states)

    @property
    def width(self) -> int:
        """Visible columns of the data, without those of the label."""
        layers = [self.machine.layers[l] for l in self.machine.visible]
        return sum(layer.width for layer in (layers[:-1] if self.label else layers))

    def decide(self, **settings: Any) -> dict[str, Any]:
        """Returns settings of training by chains, those that are None by the data, but length and rate.

        Args:
            **settings: rule, optimizer, sweeps, centred, schedule, clip_norm, averaging; None: by the data. A
                rule itself, not named, stays as it is. "lbfgs" chooses its steps itself; "adam" rescales
                every number by itself and so would lose the direction of a centred rule.
        """
        optimizer, plain = settings.get("optimizer") or self.defaults.optimizer, self.defaults
        if optimizer == "lbfgs":
            plain = plain._replace(schedule="constant", clip_norm=None, averaging=None)
        rule = settings.get("rule") or plain.rule
        centred = isinstance(rule, str) and plain.centred and optimizer not in ("adam", "lbfgs")
        sweeps = plain.sweeps if rule == plain.rule else None
        chosen = plain._replace(rule=rule, optimizer=optimizer, centred=centred, sweeps=sweeps)
        return {
            name: getattr(chosen, name) if settings.get(name) is None else settings[name] for name in DECIDED
        }

    def start_(
        self, rows: Rows, weights: Tensor | None, std: float | None, generator: torch.Generator
    ) -> None:
        """Sets the parameters that chains begin with: by ``init``, else normal couplings and the data.

        Args:
            rows: visible states.
            weights: row weights, (rows,); None means uniform.
            std: standard deviation of normal couplings; None: 0.03, 0.27/√n beside n > 81 columns, and
                without ``init`` beside Gaussian units a start off the saddle (``init_from_data_``).
            generator: Noise of couplings and biases.
        """
        columns = sum(self.machine.layers[l].width for l in self.machine.visible)
        known_std = min(_STD, _STD_OF_ALL / columns**0.5) if std is None else std
        if self.init is not None:
            init_by_name_(self.machine, self.init, rows, generator, weights, std=known_std)
            return
        normal_(self.machine, known_std, generator)
        if self.images:  # variances of 1, those of the noise: many pixels have less, and some have none
            return
        if std is None:
            init_from_data_(self.machine, rows, generator, weights)
        else:
            init_visible_biases_(self.machine, rows, weights)

    def highest_rate(self, rows: Rows, weights: Tensor | None = None) -> float:
        """Returns the highest learning rate, for batches of 100 rows or more.

        Chains have to follow what couplings learn. They lag where many columns vary together, as pixels of
        clothes do, and then the machine collapses. So beside 0/1 units the rate is 30 / ‖C‖², at most 0.3,
        with the covariance C of the columns. Spins, whose values lie twice as far apart, have a quarter of
        what their image in 0 and 1 has.

        Args:
            rows: visible states, of which at most 1,024, evenly spaced, are looked at; NaN counts as the
                mean of its column.
            weights: row weights, (rows,); None means uniform.
        """
        machine = self.machine
        if not self.discrete:
            return _OTHERS
        wide = max(_width_of(machine.layers[l]) for l in machine.visible)
        spread = _squared_norm(rows, weights) / wide**4
        rate = _HIGHEST if spread * _HIGHEST <= _PACE else _PACE / spread
        other = _width_of(machine.layers[machine.hidden[0]]) if machine.hidden else wide
        return rate / (wide * other) ** 2

    def _by_rows(self, rows: int, batch: int, highest: float) -> tuple[int, float]:
        """Returns a length in proportion to the number of rows, up to a limit.

        The rate times the updates is how far couplings can go. It acts like the variance of a normal prior,
        whose weight beside the data falls as rows are added: so it grows with them
        (docs/decisions/0018-one-recipe.md).
        """
        layers = self.machine.layers
        binary = all(layer.two_values == (0.0, 1.0) for layer in layers)
        distance = _BINARY if binary else _DISCRETE if self.discrete else _REAL
        share = min(1.0, batch / _BATCH)
        more = (_DEEPER if len(self.machine.hidden) > 1 else 1.0) / share
        reach, rate, most = distance * rows, highest * share, round(_MOST * more)
        if not binary:
            most = min(most, at_least(_PASSES, round(_USUAL * more), rows, batch))
        most = max(most, updates_of(1, rows, batch))
        updates = min(max(_FEWEST, round(reach / rate)), most)
        return updates, min(rate, reach / updates)

    def budget(
        self,
        rows: Rows,
        weights: Tensor | None = None,
        *,
        batch_size: int = 100,
        optimizer: Any = "sgd",
        epochs: int | None = None,
        updates: int | None = None,
        learning_rate: float | None = None,
        whole: bool = True,
    ) -> tuple[int, float]:
        """Returns the updates of training by chains, at least 1, and the learning rate at the first one.

        Args:
            rows: visible states to learn from.
            weights: row weights, (rows,); whole weights stand for repeated rows. None: one each.
            batch_size: rows of an update.
            optimizer: its name, or a callable.
            epochs: passes over the rows; None: by the data.
            updates: Largest number of updates; None: any number.
            learning_rate: Rate of a named optimiser; None: by the data.
            whole: whether it is a fit; else it is one pass at a rate that does not know how many rows will
                come.
        """
        if not whole:
            rate = _ADAM if optimizer == "adam" else min(_STEADY, self.highest_rate(rows, weights))
            rate = IMAGES.learning_rate or rate if self.images else rate
            length = updates_of(1, len(rows), batch_size)
            return length, rate if learning_rate is None else learning_rate
        if optimizer == "lbfgs":
            return updates or _SEARCHED, _STEADY if learning_rate is None else learning_rate
        standing = len(rows) if weights is None else round(float(weights.sum()))
        if self.label:
            chosen = at_least(_LABEL_PASSES, _LABEL_UPDATES, standing, batch_size)
            rate = label_rate(self.width)
        elif self.images:
            chosen, rate = _IMAGE_UPDATES, IMAGES.learning_rate or _ADAM
        else:
            chosen, rate = self._by_rows(standing, batch_size, self.highest_rate(rows, weights))
            rate = min(rate, _ADAM) if optimizer == "adam" else rate
        length = chosen if epochs is None else updates_of(epochs, len(rows), batch_size)
        length = length if updates is None else min(length, updates)
        return length, rate if learning_rate is None else learning_rate


def choose(
    encoder: Encoder,
    visible: Sequence[Layer],
    rows: int,
    hidden: Sequence[Layer] | None = None,
    *,
    kind: str = "bernoulli",
    n_states: int = 2,
    label: Layer | None = None,
    method: str = "auto",
    init: str | None = None,
    steered: bool = False,
) -> Recipe:
    """Returns a new machine for some data, and how it is trained.

    By default a table gets 8 hidden units, other data 100, or 500 where they are 500 columns wide or more.
    A table is trained by exact sums over up to 12 hidden units, where they take at most a minute. So are
    other discrete data without a label, where the sums are quick and no option of chains is given. "exact"
    asks for them with any data.

    Args:
        encoder: Encoder of the rows; ``tabular`` tells whether they are a table.
        visible: the layers of the data.
        rows: their number.
        hidden: hidden layers from the lowest up; an empty list joins visible units to each other. None: one
            layer by the data.
        kind: Kind of that layer.
        n_states: States of its units.
        label: the layer of a label; None: there is none.
        method: "auto", "exact" or "chains".
        init: names of the first parameters of training by chains, see ``Recipe``.
        steered: whether the user gives an option that only chains use.

    Raises:
        ValueError: "exact" for data or hidden units that do not allow it, or two layers without a bound side
            by side.
    """
    table = is_table(encoder, visible, rows)
    if hidden is None:
        width = sum(layer.width for layer in visible)
        few = table and kind == "bernoulli"
        hidden = hidden_for(kind, [_FEW if few else _WIDE if width >= _WIDE else _MANY], n_states)
    for below, above in [*((layer, hidden[0]) for layer in visible if hidden), *pairwise(hidden)]:
        if not (below.bounded or above.bounded):  # such a machine may have no normaliser
            raise ValueError(
                f"hidden_kind: expected discrete units, or others with a bound, beside {below}, received "
                f"{above.kind!r}"
            )
    machine = join_layers([*visible, *([] if label is None else [label])], hidden)
    obstacle = _why_not_exact(encoder, rows, machine)
    if method == "exact" and obstacle:
        raise ValueError(f'method: expected "chains" or "auto" for {obstacle}, received "exact"')
    images = label is None and learns_images(encoder, machine)
    recipe = Recipe(machine, "chains", label is not None, isinstance(encoder, Letters), images, init)
    if method == "auto" and obstacle is None:
        most = _AFFORDED if table else _QUICK if recipe.discrete and not (steered or label) else 0.0
        method = "exact" if recipe.exact_seconds(rows) <= most else "chains"
    return replace(recipe, method="exact") if method == "exact" else recipe


def learns_images(encoder: Encoder, machine: BoltzmannMachine) -> bool:
    """Returns whether one hidden layer stands beside Gaussian pixels, which one scale has for all."""
    pixels = isinstance(encoder, Standardise) and not isinstance(encoder.mean, tuple)
    return pixels and len(machine.hidden) == 1 and all(machine.layers[l].gaussian for l in machine.visible)


def is_table(encoder: Encoder, visible: Sequence[Layer], rows: int) -> bool:
    """Returns whether rows are a table, not pixels, of which one row can be held out.

    The sums over the states of the hidden units that tables get by default take at most a minute.
    """
    real, width = all(layer.gaussian for layer in visible), sum(layer.width for layer in visible)
    if encoder.tabular and rows > 1 and not all(layer.two_values for layer in visible):
        return _EXACT_SUMS * seconds_of_table(min(rows, EXACT_BATCH), width, _FEW) <= _AFFORDED
    most = _OF_ONE_KIND if len(visible) == 1 else _WIDEST
    return (encoder.tabular or real) and rows > 1 and width <= most


def _why_not_exact(encoder: Encoder, rows: int, machine: BoltzmannMachine) -> str | None:
    """Returns what stands against exact sums over the hidden units; None: nothing."""
    hidden = [machine.layers[l] for l in machine.hidden]
    summed = has_hidden_states(machine.graph, machine.layers)
    if not (summed and [layer.kind for layer in hidden] == ["bernoulli"]):
        received = ", ".join(map(str, hidden)) or "none"
        return f"hidden units other than one layer of at most 12 of kind bernoulli ({received})"
    if rows < 2:
        return "a single row, as none can be held out"
    return "data of which every update draws 0 and 1 again" if encoder.draws else None


def make_rule(
    rule: str | Rule, optimizer: Any, *, centred: bool, batch_size: int | None, **options: Any
) -> Rule:
    """Returns the learning rule of training by chains.

    Args:
        rule: its name, or the rule itself.
        optimizer: its name, or a callable.
        centred: whether a rule by name gives the enhanced gradient.
        batch_size: the number of its chains where none is given; None: the rule's own.
        **options: options of the rule.

    Raises:
        TypeError, ValueError: options that the rule does not take, or that do not go together.
    """
    named = isinstance(rule, str)
    if named and centred and optimizer == "adam":
        raise ValueError(
            'centred: expected False with optimizer="adam", which rescales every number by itself and '
            "so loses the direction"
        )
    counted = batch_size is None or "chains" in options
    if not counted and "chains" in rules.options(rule):
        options["chains"] = batch_size  # batches of a later ``partial_fit`` may have another size
    return rules.from_options(rule, **({"centred": centred} if named else {}), **options)


def note_sampler(machine: BoltzmannMachine, rule: Rule) -> None:
    """Notes in the metadata the sweeps of the sampler that a rule makes of a machine, or removes the note."""
    machine.metadata.pop("sweeps_from_noise", None)  # of an earlier rule
    if rule.sweeps_from_noise is not None:
        machine.metadata["sweeps_from_noise"] = rule.sweeps_from_noise


def say_unused(names: Sequence[str], method: str) -> str:
    """Returns a warning that options are given which a method of training does not use."""
    is_, it = ("is", "it") if len(names) == 1 else ("are", "them")
    other = "exact" if method == "chains" else "chains"
    return f"{', '.join(names)} {is_} not used by method={method!r}; method={other!r} uses {it}"


def share_of(objective: str, joint: float | None) -> float:
    """Returns the weight of ln p(rest, label) in an objective, in [0, 1].

    Args:
        objective: one of ``OBJECTIVES``.
        joint: Weight in "hybrid"; None: 0.03.
    """
    return OBJECTIVES[objective] if joint is None or objective != "hybrid" else float(joint)


def name_objective(share: float) -> str:
    """Returns the objective in which ln p(rest, label) has a weight of ``share``, in [0, 1]."""
    return "discriminative" if share == 0 else "joint" if share == 1 else "hybrid"


def warn_of_rough(machine: BoltzmannMachine) -> None:
    """Warns that columns other than the label are asked of a machine that has learned them roughly."""
    if machine.metadata.get("objective") == "hybrid":
        _checks.warn(
            "machine: with the objective hybrid it has learned to tell the label, and the other columns only "
            "roughly; for samples, fills and predictions of these train with the objective joint"
        )


def as_root(number: int) -> int:
    """Returns the seed that all streams of a fit derive from, as ``random_state=number`` of scikit-learn.

    Raises:
        TypeError, ValueError: no int of at least 0.
    """
    _checks.positive_int(number, "seed", minimum=0)
    return int(np.random.RandomState(number).randint(2**31 - 1)) if number < 1 << 32 else number


def updates_of(passes: int, rows: int, batch: int) -> int:
    """Returns the updates that passes over the rows take."""
    return -(-passes * rows // min(batch, rows))


def at_least(passes: int, updates: int, rows: int, batch: int) -> int:
    """Returns the updates of so many passes, or of as many as make so many updates."""
    return updates_of(max(passes, -(-updates * min(batch, rows) // rows)), rows, batch)


def _width_of(layer: Layer) -> float:
    """Returns how far the two values of discrete units lie apart: 1, and 2 for spins."""
    low, high = layer.two_values or (0.0, 1.0)
    return high - low


def _squared_norm(rows: Rows, weights: Tensor | None) -> float:
    """Returns the sum of the squares of all covariances of two columns, variances included."""
    places = torch.linspace(0, len(rows) - 1, min(len(rows), _SEEN), dtype=torch.float64).long()
    v = rows.take(places).double().cpu()
    share = (~v.isnan()).double() if weights is None else ~v.isnan() * weights[places].cpu().unsqueeze(1)
    total = share.sum(0)
    mean = (share * v.nan_to_num(nan=0.0)).sum(0) / torch.where(total > 0, total, 1.0)
    v = (share / total.max()).sqrt() * torch.where(v.isnan(), 0.0, v - mean)
    return float((v.T @ v if len(v) > v.shape[1] else v @ v.T).square().sum())
