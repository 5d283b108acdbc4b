"""The learning rule that an estimator's parameters describe."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

from harmonium.learning import Rule
from harmonium.learning.rules import RECIPES, centred


def learning_rule(
    rule: str | Rule, *, sweeps: int | None, n_chains: int | None, batch_size: int, centre: bool
) -> Rule:
    """A ``Rule`` as it is, or the recipe of that name with the settings that it takes.

    The number of chains is always set, to ``batch_size`` where ``n_chains`` is None: batches of a later
    ``partial_fit`` may have another size.

    Raises:
        ValueError: sweeps or chains given to a rule that takes none.
    """
    recipe: Callable[..., Rule] = (lambda: rule) if isinstance(rule, Rule) else RECIPES[rule]
    accepted = signature(recipe).parameters
    arguments = {"chains": batch_size} if "chains" in accepted else {}
    for name, argument, given in (("sweeps", "k", sweeps), ("n_chains", "chains", n_chains)):
        if given is None:
            continue
        if argument not in accepted:
            raise ValueError(f"{name}: expected None with rule={rule!r}, which takes none, received {given}")
        arguments[argument] = given
    built = recipe(**arguments)
    return centred(built) if centre and not isinstance(rule, Rule) else built
