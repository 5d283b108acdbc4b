"""Rules that learn some visible layers given the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import sqrt

from harmonium import _checks
from harmonium.learning.conditionals import Conditionals
from harmonium.learning.expectation import Enumeration
from harmonium.learning.rule import Bias, Rule


def conditional(rule: Rule, condition_on: Iterable[int]) -> Rule:
    """∇ log p(y | x) = E[S | x, y] - E[S | x]: some visible layers are learned given the others.

    With a label for y this is discriminative training (Larochelle & Bengio 2008).

    Both sides are the rule's clamped expectation, once with the whole row and once with the layers of x
    alone; its free expectation, and with it k sweeps of free chains, is not used. Where all hidden layers can
    be summed out and y has few states (at most 256, ``sums.MAX_MISSING_STATES``), such as a label, both
    sides are exact whatever the rule.

    Args:
        rule: any rule, centred or not. The result is "exact" where the rule enumerates its clamped side,
            "unbiased" where the rule is, and "biased" for all others, as chains that start again for every
            row are no longer right in the limit.
        condition_on: x, some of the machine's visible layers but not all; y are the others.
    """
    made = hybrid(rule, condition_on, 0.0)
    return replace(made, name=f"conditional({rule.name}, condition_on={list(made.condition_on or ())})")


def hybrid(rule: Rule, condition_on: Iterable[int], joint: float) -> Rule:
    """Learns (1 - joint) log p(y | x) + joint log p(x, y): a classifier that also models its input.

    Hybrid training (Larochelle & Bengio 2008, §4.3, who weigh log p(y | x) by 1 and log p(x, y) by α =
    joint / (1 - joint)). A row without its y, all NaN, teaches p(x) alone and so makes it semi-supervised.
    The gradient is E[S | x, y] - (1 - joint) E[S | x] - joint E[S], the last by the rule's free expectation.

    Args:
        rule: as in ``conditional``, and its label of bias too, but that "exact" needs both sides of the rule.
        condition_on: x, as in ``conditional``.
        joint: A number in [0, 1]: 0 is ``conditional``, 1 the rule itself.
    """
    layers = _layers(rule, condition_on)
    joint = _checks.real(joint, "joint", low=0.0, high=1.0)
    if joint == 1:
        return rule
    bias: Bias = "biased"
    if isinstance(rule.clamped, Enumeration) and not rule.clamped.grid:
        bias = rule.bias if joint else "exact"
    elif rule.bias == "unbiased":
        bias = "unbiased"
    name = f"hybrid({rule.name}, condition_on={list(layers)}, joint={joint:g})"
    return replace(rule, name=name, bias=bias, condition_on=layers, joint=joint)


def label_rate(width: int) -> float:
    """The learning rate of ``hybrid`` by Adam where none is given, for an x of some width.

    Whatever ``joint`` is (docs/decisions/0018).
    """
    return 0.24 / sqrt(max(width, 64))


def _layers(rule: Rule, condition_on: Iterable[int]) -> tuple[int, ...]:
    _checks.instance(rule, "rule", Rule, "a Rule")
    _checks.instance(condition_on, "condition_on", Iterable, "a list of visible layers")
    layers = tuple(condition_on)
    if rule.condition_on is not None:
        raise ValueError(f"rule: expected one that is not conditional yet, received {rule}")
    if isinstance(rule.free, Conditionals):
        raise ValueError(
            f"rule: expected one of the likelihood, such as exact or pcd, received {rule}, which predicts "
            "every unit from all others already"
        )
    if not layers or not all(type(l) is int and l >= 0 for l in layers) or len(set(layers)) < len(layers):
        raise ValueError(
            f"condition_on: expected different visible layers, at least one, received {list(layers)}"
        )
    return layers
