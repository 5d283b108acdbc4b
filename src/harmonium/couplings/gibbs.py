"""Coupled block Gibbs sampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from harmonium.couplings import two_valued
from harmonium.couplings.block import Block, BlockCoupling
from harmonium.couplings.jumps import Jumps
from harmonium.couplings.maximal import Maximal
from harmonium.couplings.pairs import PairKernel, Place
from harmonium.couplings.reflection import Reflection
from harmonium.machine import Clamp, Hamiltonian, Parity, States

PARITIES: tuple[Parity, ...] = ("odd", "even")
Draw = Callable[[Parity, tuple[int, ...], list[Tensor]], list[Tensor]]


@final
class Gibbs(PairKernel):
    """Pairs of block Gibbs chains with a coupling for each half-step.

    A sweep draws the odd layers and then the even ones, so that a chain is its even layers alone and chains
    that agree at either half-step have met by the end of the sweep.

    ``Gibbs(Maximal(), Independent())`` is Alg. 1 of Qiu et al. (2020), ``Gibbs(Maximal(common_noise=True),
    CommonNoise())`` their Alg. 3. The default couples both half-steps maximally, which meets sooner: on their
    Fig. 5 model the three meet within 10 sweeps with probability 0.017, 0.69 and 0.83.

    Args:
        even: coupling of the even layers given the odd ones; None: maximal with common noise, and by
            reflection where all of these layers are Gaussian.
        odd: coupling of the odd layers given the even ones; None: the same.
        jumps: visible states to jump between after every sweep; None for none.
    """

    def __init__(
        self,
        even: BlockCoupling | None = None,
        odd: BlockCoupling | None = None,
        *,
        jumps: Jumps | None = None,
    ) -> None:
        self.even = even
        self.odd = odd
        self.jumps = jumps

    def chain_layers(self, hamiltonian: Hamiltonian) -> tuple[int, ...]:
        return hamiltonian.parity("even")

    def prepare(self, hamiltonian: Hamiltonian, place: Place, clamp: Clamp, copies: int) -> Place:
        odd = [l for l in hamiltonian.parity("odd") if not clamp.fixes(l)]
        fields = {
            l: place.fields[l] if l in place.fields else _field(hamiltonian, l, place.states, copies)
            for l in odd
        }
        return Place(place.states, fields)

    def single(
        self,
        hamiltonian: Hamiltonian,
        place: Place,
        clamp: Clamp,
        generator: torch.Generator,
        antithetic: bool = False,
    ) -> Place:
        def draw(_: Parity, layers: tuple[int, ...], fields: list[Tensor]) -> list[Tensor]:
            return [
                hamiltonian.sample(l, field, generator, antithetic)
                for l, field in zip(layers, fields, strict=True)
            ]

        return self._sweep(hamiltonian, place, clamp, draw, 1, generator)

    def coupled(
        self, hamiltonian: Hamiltonian, both: Place, clamp: Clamp, generator: torch.Generator
    ) -> tuple[Place, Tensor]:
        pairs = len(both.states[0]) // 2
        tries = torch.zeros(pairs, dtype=torch.int64, device=hamiltonian.device)

        def draw(parity: Parity, layers: tuple[int, ...], fields: list[Tensor]) -> list[Tensor]:
            coupling = (self.odd if parity == "odd" else self.even) or self._default(hamiltonian, layers)
            halves = [field.chunk(2) for field in fields]
            p, q = (Block(hamiltonian, layers, half) for half in zip(*halves, strict=True))
            drawn = coupling.draw(p, q, generator)
            tries.add_(drawn.tries)
            return [_stacked(x, y) for x, y in zip(drawn.x, drawn.y, strict=True)]

        return self._sweep(hamiltonian, both, clamp, draw, 2, generator), tries

    def _sweep(
        self,
        hamiltonian: Hamiltonian,
        place: Place,
        clamp: Clamp,
        draw: Draw,
        copies: int,
        generator: torch.Generator,
    ) -> Place:
        """Odd layers given the even ones, then even layers given the odd ones."""
        states = list(place.states)
        known = place.fields
        for parity in PARITIES:
            layers = tuple(l for l in hamiltonian.parity(parity) if not clamp.fixes(l))
            if not layers:
                continue
            fields = [known[l] if l in known else _field(hamiltonian, l, states, copies) for l in layers]
            known = {}
            for l, x in zip(layers, draw(parity, layers, fields), strict=True):
                states[l] = clamp.apply(l, x)
        if self.jumps is not None and not clamp.fixes(0):
            if len(states) != 2 or not clamp.empty:
                raise ValueError("jumps: expected a free machine with one hidden layer")
            states[0] = self.jumps.move(hamiltonian, states[0], copies, generator)
        return Place(states, {})

    @staticmethod
    def _default(hamiltonian: Hamiltonian, layers: tuple[int, ...]) -> BlockCoupling:
        if all(hamiltonian.layers[l].gaussian for l in layers):
            return Reflection()
        return Maximal(common_noise=True)

    def __repr__(self) -> str:
        jumps = "" if self.jumps is None else f", jumps={self.jumps!r}"
        return f"Gibbs(even={self.even!r}, odd={self.odd!r}{jumps})"


def _field(hamiltonian: Hamiltonian, layer: int, states: States, copies: int) -> Tensor:
    if copies == 1:
        return hamiltonian.field(layer, states)
    return two_valued.fields_of_both(hamiltonian, layer, states)


def _stacked(x: Tensor, y: Tensor) -> Tensor:
    """x over y; without a copy where they are the two halves of one tensor."""
    base = x._base
    if base is not None and base is y._base and base.shape == (2 * len(x), x.shape[1]):
        return base
    return torch.cat((x, y))
