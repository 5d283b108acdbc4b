"""Penalties on couplings and fields: what training takes from the mean log-likelihood."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.layers import Layer
from harmonium.machine import BoltzmannMachine

Sides = tuple[Layer, Layer]
Pull = Callable[[Tensor, Tensor], None]
"""Takes the gradient of penalties at W off a gradient, in place."""


@dataclass(frozen=True)
class Penalty(ABC):
    """R(W), by which a run ascends the mean ln p less R. Biases have none but for ``FieldL2``.

    Every pair of units counts once, also within a layer. A kind is one subclass, with ``kind`` and ``pull_``.

    Args:
        strength: Strength, at least 0.
        edges: Numbers of couplings in ``machine.edges``; None: all.

    Raises:
        TypeError, ValueError: another strength, or numbers that are none.
    """

    kind: ClassVar[str]
    """The name of this kind on the command line."""
    registry: ClassVar[dict[str, type[Penalty]]] = {}
    """Every kind of penalty by name."""

    strength: float
    edges: tuple[int, ...] | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Penalty.registry[cls.kind] = cls

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", _checks.real(self.strength, "strength", low=0.0))
        if self.edges is not None:
            numbers = tuple(_checks.positive_int(edge, "edges", minimum=0) for edge in self.edges)
            object.__setattr__(self, "edges", numbers)

    def targets(self, machine: BoltzmannMachine) -> Iterator[tuple[str, Sides]]:
        """Yields the parameters that it pulls at by name, each with the layers that it belongs to.

        Raises:
            ValueError: a coupling that the machine has not.
        """
        for edge in range(len(machine.edges)) if self.edges is None else self.edges:
            if edge >= len(machine.edges):
                raise ValueError(f"penalties: expected edges below {len(machine.edges)}, received {edge}")
            l, m = machine.edges[edge]
            yield f"couplings.{edge}.weight", (machine.layers[l], machine.layers[m])

    @abstractmethod
    def pull_(self, gradient: Tensor, W: Tensor, sides: Sides) -> None:
        """Takes the gradient of R off a gradient, in place; 0 where R has a kink.

        Args:
            gradient: Gradient of the mean log-likelihood, (width_l, width_m).
            W: Weights of the coupling, of an edge within a layer those above the diagonal.
            sides: Layers at its two ends.
        """


@final
@dataclass(frozen=True)
class L2(Penalty):
    """Half the strength times ΣW²; ``weight_decay`` is short for it."""

    kind: ClassVar[str] = "l2"

    def pull_(self, gradient: Tensor, W: Tensor, sides: Sides) -> None:
        gradient.sub_(W, alpha=self.strength)


@final
@dataclass(frozen=True)
class L1(Penalty):
    """The strength times Σ|W|; ``l1`` is short for it."""

    kind: ClassVar[str] = "l1"

    def pull_(self, gradient: Tensor, W: Tensor, sides: Sides) -> None:
        gradient.sub_(W.sign(), alpha=self.strength)


@final
@dataclass(frozen=True)
class GroupLasso(Penalty):
    """The strength times the sum of the norms of blocks, ℓ₂,₁: whole pairs of units are let go.

    A block has the couplings of all states of one unit with all states of another, such as those of two sites
    of an alignment, or of a site and a hidden unit.
    """

    kind: ClassVar[str] = "group"

    def pull_(self, gradient: Tensor, W: Tensor, sides: Sides) -> None:
        blocks = _blocks(W, sides)
        norms = blocks.square().sum((1, 3), keepdim=True).sqrt()
        units = blocks / torch.where(norms > 0, norms, 1.0)
        gradient.sub_(units.view_as(W), alpha=self.strength)


@final
@dataclass(frozen=True)
class L1Squared(Penalty):
    """Half the strength times Σ_μ (Σ_i |W_iμ|)² / width of the lower layer: hidden units that see few sites.

    A unit is pulled the harder the more it is coupled, so that none goes out altogether (Tubiana, Cocco &
    Monasson 2019, Eq. 8). The sum over i has all columns of the lower layer, and all states of unit μ.
    """

    kind: ClassVar[str] = "l1squared"

    def pull_(self, gradient: Tensor, W: Tensor, sides: Sides) -> None:
        blocks = _blocks(W, sides)
        pulls = blocks.sign() * blocks.abs().sum((0, 1, 3), keepdim=True)
        gradient.sub_(pulls.view_as(W), alpha=self.strength / W.shape[0])

    def targets(self, machine: BoltzmannMachine) -> Iterator[tuple[str, Sides]]:
        for name, sides in super().targets(machine):
            if sides[0] is sides[1]:
                l = [*machine.layers].index(sides[0])
                raise ValueError(
                    f"penalties: expected couplings between two layers for {self.kind}, received those of "
                    f"layer {l}; edges=(…) names others"
                )
            yield name, sides


@final
@dataclass(frozen=True)
class FieldL2(Penalty):
    """Half the strength times Σb² of the fields, the biases of discrete units (Ekeberg et al. 2013).

    Without it the field of a letter that no row has at a site falls for ever, so that no fit converges.
    Layers of real units have none.

    Raises:
        ValueError: ``edges``, as it pulls at no coupling.
    """

    kind: ClassVar[str] = "fields"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.edges is not None:
            raise ValueError(f"edges: expected None for {self.kind}, received {self.edges}")

    def targets(self, machine: BoltzmannMachine) -> Iterator[tuple[str, Sides]]:
        for l, layer in enumerate(machine.layers):
            if layer.discrete:
                yield f"layers.{l}.{layer.location}", (layer, layer)

    def pull_(self, gradient: Tensor, W: Tensor, sides: Sides) -> None:
        gradient.sub_(W, alpha=self.strength)


def read_penalties(asked: Any) -> tuple[Penalty, ...]:
    """Returns penalties, also from texts such as ``"group=0.01"``.

    Raises:
        TypeError, ValueError: something else, or a strength below 0.
    """
    if asked is None:
        return ()
    known = ", ".join(Penalty.registry)
    penalties = list[Penalty]()
    for penalty in asked if isinstance(asked, list | tuple) else (asked,):
        if isinstance(penalty, str):
            kind, _, strength = penalty.partition("=")
            try:
                penalty = Penalty.registry[kind.strip()](float(strength))
            except (KeyError, ValueError) as error:
                raise ValueError(
                    f"penalties: expected KIND=STRENGTH such as group=0.01, of {known}, received {penalty!r}"
                ) from error
        elif not isinstance(penalty, Penalty):
            raise TypeError(f"penalties: expected some of {known}, received {type(penalty).__name__}")
        penalties.append(penalty)
    return tuple(penalties)


def pulls_of(machine: BoltzmannMachine, penalties: Iterable[Penalty]) -> dict[str, list[Pull]]:
    """Returns what pulls at each coupling and field, by the name of its parameter.

    Raises:
        ValueError: a coupling that the machine has not, or one within a layer for ``L1Squared``.
    """
    pulls: dict[str, list[Pull]] = {}
    for penalty in penalties:
        for name, sides in penalty.targets(machine):
            pulls.setdefault(name, []).append(partial(penalty.pull_, sides=sides))
    return pulls


def _blocks(W: Tensor, sides: Sides) -> Tensor:
    """Returns W as (units, states, units, states); as (pairs, states, 1, states) where stored by pair."""
    below, above = sides
    if W.dim() != 2:
        return W.view(len(W), below.columns_per_unit, 1, above.columns_per_unit)
    return W.view(below.n_units, -1, above.n_units, W.shape[1] // above.n_units)
