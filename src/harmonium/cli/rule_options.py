"""Learning rules from their names and options, as ``--rule`` and ``--rule-option`` give them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harmonium import chains, couplings
from harmonium.learning import Rule, rules

_NAMED: dict[str, Mapping[str, Callable[[], Any]]] = {
    "kernel": chains.Kernel.registry,
    "coupling": {"gibbs": couplings.Gibbs, "metropolis": couplings.Metropolis},
}


def rule_from(name: str, given: dict[str, Any], options: Sequence[str]) -> Rule:
    """The rule of a name.

    Args:
        name: one of ``rules.RECIPES``.
        given: options that have a flag of their own; None where it was not used.
        options: others, such as ``replicas=5``.

    Raises:
        TypeError, ValueError: what the rule does not take; the message lists what it takes.
    """
    arguments = {option: value for option, value in given.items() if value is not None}
    known = rules.options(name)
    for each in options:
        option, equals, value = (part.strip() for part in each.partition("="))
        takes = ", ".join(known) or "no options"
        if not equals:
            raise ValueError(f"rule_option: expected NAME=VALUE, received {each!r}; {name} takes {takes}")
        if option not in known:
            raise ValueError(f"rule_option: expected what {name} takes ({takes}), received {option!r}")
        if option in arguments:
            raise ValueError(f"rule_option: expected {option} once, received it twice")
        arguments[option] = _value(option, value)
    try:
        return rules.from_options(name, **arguments)
    except (TypeError, ValueError) as error:
        if str(error).partition(":")[0] in {each.partition("=")[0].strip() for each in options}:
            raise ValueError(f"rule_option: {error}") from error
        raise


def _value(option: str, text: str) -> Any:
    """A number, a truth value, nothing at all, one of the named things, or else a word."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    if option in _NAMED:
        make = _NAMED[option].get(text.lower())
        if make is None:
            raise ValueError(
                f"rule_option: expected {option} among {', '.join(_NAMED[option])}, received {text!r}"
            )
        return make()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
