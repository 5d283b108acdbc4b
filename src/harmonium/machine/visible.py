"""Kinds of units by name: visible ones that suit data, and hidden ones, and how the two are joined."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harmonium import _checks
from harmonium.data import Encoder, Rows, Table
from harmonium.layers import Gaussian, Layer
from harmonium.layers.families import first_other
from harmonium.machine.boltzmann import BoltzmannMachine

HIDDEN_KINDS = tuple(Layer.registry)
VISIBLE_KINDS = ("auto", *HIDDEN_KINDS)


def visible_for(rows: Rows, kind: str = "auto") -> tuple[Layer, Encoder]:
    """A visible layer for data, and the encoder that turns data into its states and samples back.

    Args:
        rows: the data.
        kind: "auto": two-valued units where every entry is one of their two values, Bernoulli for 0 and 1 and
            Spin for -1 and +1 (the density of such data has no upper bound), else Gaussian. "bernoulli" takes
            0 and 1; "spin" takes -1 and +1, or 0 and 1 which become them; "categorical" takes integers
            0..q-1, with q one more than the largest; "binomial" takes counts 0..N, with N the largest;
            "gaussian" and its other parametrisations take any numbers and standardise the columns, as does
            "double_relu"; "relu" takes numbers from 0 and scales the columns; "truncated_gaussian" takes any
            numbers and moves the range of all of them to [0, 1], where it is not within [0, 1] already;
            "truncated_gauss_bernoulli" takes numbers in [0, 1], of which exact zeros are a kind of their own.

    Raises:
        ValueError: an unknown kind, or data that the kind does not take; the message names the value.
    """
    if kind != "auto":
        return Layer.registry[_checks.one_of(kind, "visible", ("auto", *Layer.registry))].for_data(rows)
    for cls in Layer.registry.values():
        if cls.two_values is not None and first_other(rows, cls.two_values) is None:
            return cls.for_data(rows)
    return Gaussian.for_data(rows)


def hidden_for(kind: str, sizes: Sequence[int], n_states: int = 2, name: str = "hidden") -> list[Layer]:
    """Hidden layers of one kind.

    Args:
        kind: a name in ``Layer.registry``.
        sizes: units of each layer.
        n_states: states of each unit, for kinds that may have any number.
        name: what to call the kind in messages.

    Raises:
        ValueError: an unknown kind, or a size or number of states out of range.
    """
    cls = Layer.registry[_checks.one_of(kind, name, Layer.registry)]
    return [cls.plain(size, n_states) for size in sizes]


def visible_layers(table: Table) -> list[Layer]:
    """The visible layers of a table, one for every group of its columns, side by side in their order."""
    return [Layer.registry[group.kind].plain(group.n_units, group.n_states) for group in table.groups]


def joined(
    visible: Sequence[Layer], hidden: Sequence[Layer], seed: int | torch.Generator = 0
) -> BoltzmannMachine:
    """A machine whose visible layers are all joined to the first of a chain of hidden layers.

    Args:
        visible: at least one, the columns of the data side by side.
        hidden: at least one, from the lowest up.
        seed: of the first couplings, see ``BoltzmannMachine``.
    """
    count, total = len(visible), len(visible) + len(hidden)
    edges = [(l, max(l + 1, count)) for l in range(total - 1)]
    return BoltzmannMachine([*visible, *hidden], edges=edges, visible=range(count), seed=seed)
