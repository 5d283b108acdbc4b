"""Numbers of training that follow from the data, behind estimators and ``harmonium train``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium.data import Encoder, Letters, Rows, Standardise
from harmonium.layers import Layer
from harmonium.learning import Rule, rules
from harmonium.machine import BoltzmannMachine
from harmonium.sums import has_hidden_states, seconds_of_table
from harmonium.training import EXACT_BATCH

METHODS = ("auto", "exact", "chains")
OBJECTIVES = {"hybrid": 0.03, "discriminative": 0.0, "joint": 1.0}
"""Weight of ln p(rest, label) in each objective with a label."""

FEW = 8
"""Hidden units of a table where none are given, as measured on the tables of decision 19."""
AFFORDED = 60.0
"""Seconds of exact sums that "auto" spends on a table: chains of as wide ones take as long, no better."""
_WIDEST, _OF_ONE_KIND = 100, 40  # visible columns of a table at most; as many of one kind may be pixels
_EXACT_SUMS = 150  # usual sums of updates and looks at rows in exact training

# Lengths and rates are those of decision 18, where they were measured.
_BATCH = 100  # rows of an update from which on the highest rates serve
_FEWEST = 500  # updates: few rows are learnt at a low rate
_MOST = 5000  # updates of _BATCH rows or more; every row is read once all the same
_PASSES, _USUAL = 100, 2000  # passes, or else updates, that are enough for units other than 0 and 1
_DEEPER = 2.4  # times as many updates of a deep machine: two minutes of 784-300-100 on one core
STD = 0.03
"""Standard deviation of the first couplings, as short trainings of tables need it."""


class Defaults(NamedTuple):
    """The options of training by chains where none are given; None as in ``harmonium.train``.

    They differ from those of ``harmonium.train`` on purpose: there the caller chooses, and here the data do.
    """

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
"""Settings of training by chains that ``decide`` chooses where they are not given."""
PLAIN = Defaults()
LABEL = Defaults(centred=False, optimizer="adam", averaging=0.99, initial_std=STD)
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


def defaults_for(encoder: Encoder, machine: BoltzmannMachine, label: bool = False) -> Defaults:
    """Returns the options of training by chains where none are given, for data with or without a label."""
    if not label and learns_images(encoder, machine):
        return IMAGES
    chosen = LABEL if label else FAMILY if isinstance(encoder, Letters) else PLAIN
    return chosen if is_discrete(machine) else chosen._replace(clip_norm=GUARD)


def decide(plain: Defaults, **given: Any) -> dict[str, Any]:
    """Returns settings of training by chains, those that are not given by the data, but length and rate.

    Args:
        plain: the options where none are given.
        **given: some of ``DECIDED``. A rule itself, not named, stays as it is. "lbfgs" chooses its steps
            itself; "adam" rescales every number by itself and so would lose the direction of a centred rule.
    """
    optimizer = given.get("optimizer", plain.optimizer)
    if optimizer == "lbfgs":
        plain = plain._replace(schedule="constant", clip_norm=None, averaging=None)
    rule = given.get("rule", plain.rule)
    centred = isinstance(rule, str) and plain.centred and optimizer not in ("adam", "lbfgs")
    sweeps = plain.sweeps if rule == plain.rule else None
    chosen = plain._replace(rule=rule, optimizer=optimizer, centred=centred, sweeps=sweeps)
    return {name: getattr(chosen, name) for name in DECIDED} | given


def is_discrete(machine: BoltzmannMachine) -> bool:
    """Returns whether all units have two values or one of some categories."""
    return all(layer.two_values or layer.one_hot for layer in machine.layers)


def exact_seconds(machine: BoltzmannMachine, rows: int) -> float:
    """Returns about how long exact training on so many rows takes on one core, joined columns apart."""
    log2_states = sum(machine.layers[l].log2_states for l in machine.hidden)
    return _EXACT_SUMS * seconds_of_table(min(rows, EXACT_BATCH), machine.visible_width, log2_states)


def highest_rate(machine: BoltzmannMachine, rows: Rows, weights: Tensor | None = None) -> float:
    """Returns the highest learning rate, for batches of 100 rows or more.

    Chains have to follow what couplings learn. They lag where many columns vary together, as pixels of
    clothes do, and then the machine collapses. So beside 0/1 units the rate is 30 / ‖C‖², at most 0.3,
    with the covariance C of the columns. Spins, whose values lie twice as far apart, have a quarter of
    what their image in 0 and 1 has.

    Args:
        machine: the machine that learns.
        rows: visible states, of which at most 1,024, evenly spaced, are looked at; NaN counts as the
            mean of its column.
        weights: row weights, (rows,); None means uniform.
    """
    if not is_discrete(machine):
        return _OTHERS
    wide = max(_width_of(machine.layers[l]) for l in machine.visible)
    spread = _squared_norm(rows, weights) / wide**4
    rate = _HIGHEST if spread * _HIGHEST <= _PACE else _PACE / spread
    other = _width_of(machine.layers[machine.hidden[0]]) if machine.hidden else wide
    return rate / (wide * other) ** 2


def length_by_rows(machine: BoltzmannMachine, rows: int, batch: int, highest: float) -> tuple[int, float]:
    """Returns updates in proportion to the number of rows, up to a limit, and the rate.

    The rate times the updates is how far couplings can go. It acts like the variance of a normal prior,
    whose weight beside the data falls as rows are added: so it grows with them
    (docs/decisions/0018-one-recipe.md).
    """
    binary = all(layer.two_values == (0.0, 1.0) for layer in machine.layers)
    distance = _BINARY if binary else _DISCRETE if is_discrete(machine) else _REAL
    share = min(1.0, batch / _BATCH)
    more = (_DEEPER if len(machine.hidden) > 1 else 1.0) / share
    reach, rate, most = distance * rows, highest * share, round(_MOST * more)
    if not binary:
        most = min(most, at_least(_PASSES, round(_USUAL * more), rows, batch))
    most = max(most, updates_of(1, rows, batch))
    updates = min(max(_FEWEST, round(reach / rate)), most)
    return updates, min(rate, reach / updates)


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
        return _EXACT_SUMS * seconds_of_table(min(rows, EXACT_BATCH), width, FEW) <= AFFORDED
    most = _OF_ONE_KIND if len(visible) == 1 else _WIDEST
    return (encoder.tabular or real) and rows > 1 and width <= most


def why_not_exact(encoder: Encoder, rows: int, machine: BoltzmannMachine) -> str | None:
    """Returns what stands against exact sums over the hidden units; None: nothing."""
    hidden = [machine.layers[l] for l in machine.hidden]
    summed = has_hidden_states(machine.graph, machine.layers)
    if not (summed and [layer.kind for layer in hidden] == ["bernoulli"]):
        received = ", ".join(map(str, hidden)) or "none"
        return f"hidden units other than one layer of at most 12 of kind bernoulli ({received})"
    if rows < 2:
        return "a single row, as none can be held out"
    return "data of which every update draws 0 and 1 again" if encoder.draws else None


def make_rule(rule: str | Rule, optimizer: Any, *, centred: bool, batch_size: int, **options: Any) -> Rule:
    """Returns the learning rule of training by chains.

    Args:
        rule: its name, or the rule itself.
        optimizer: its name, or a callable.
        centred: whether a rule by name gives the enhanced gradient.
        batch_size: the number of its chains where none is given.
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
    if "chains" in rules.options(rule):
        options.setdefault("chains", batch_size)  # batches of a later ``partial_fit`` may have another size
    return rules.from_options(rule, **({"centred": centred} if named else {}), **options)


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
