"""Hidden layers as ``--hidden`` describes them."""

from __future__ import annotations

from collections.abc import Sequence

from harmonium.layers import Layer
from harmonium.machine import hidden_for

MANY, FEW = 500, 100


def default_hidden(width: int) -> list[str]:
    """Hidden units where none are given, for data of some width."""
    return [str(MANY if width >= MANY else FEW)]


def hidden_layers(hidden: Sequence[str], kind: str, n_states: int) -> list[Layer]:
    """New hidden layers, from the lowest up.

    Args:
        hidden: numbers of units, one or several separated by commas, each such as ``500``, ``spin:500``, or
            ``categorical:50:4`` with the states of a unit.
        kind: of those that do not say theirs.
        n_states: of units that do not say theirs.

    Raises:
        ValueError: another form, or an unknown kind.
    """
    layers: list[Layer] = []
    for each in (part.strip() for given in hidden for part in given.split(",")):
        *named, numbers = each.partition(":") if ":" in each else ("", "", each)
        size, _, states = numbers.partition(":")
        if not size.isdecimal() or int(size) < 1 or (states and not states.isdecimal()):
            raise ValueError(
                f"hidden: expected numbers of units such as 500, 500,1000, spin:500 or categorical:50:4, "
                f"received {each!r}"
            )
        own = named[0] or kind
        name = "hidden" if named[0] else "hidden_kind"
        layers += hidden_for(own, [int(size)], int(states) if states else n_states, name)
    return layers
