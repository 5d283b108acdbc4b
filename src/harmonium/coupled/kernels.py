"""Kernels for pairs of chains: block Gibbs sampling and Metropolis."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from harmonium import _device, _random
from harmonium._states import record
from harmonium.coupled.block import (
    Block,
    BlockCoupling,
    CommonNoise,
    Coupled,
    Independent,
    Maximal,
    Reflection,
    stack,
)
from harmonium.machine import Hamiltonian, Part, States

Draw = Callable[[int, tuple[Part, ...], list[Tensor]], list[Tensor]]


@record
class ChainState(NamedTuple):
    """The states of chains, with the fields that are known.

    Attributes:
        states: for each layer (rows, width_l), or (rows, 0) where they are not read again.
        fields: fields of the layers of ``graph.summed`` given the others, where they are known.
    """

    states: States
    fields: dict[int, Tensor]

    def select_rows(self, rows: Tensor | slice) -> ChainState:
        """Returns some of the rows."""
        return ChainState(
            [x[rows] for x in self.states], {l: field[rows] for l, field in self.fields.items()}
        )

    def without(self, layers: Collection[int]) -> ChainState:
        """Returns the state without the states of some layers: (rows, 0) there."""
        states = [x.new_empty(len(x), 0) if l in layers else x for l, x in enumerate(self.states)]
        return ChainState(states, self.fields)


def join_states(*states: ChainState) -> ChainState:
    """Joins the rows of all; drops fields that not all of them have."""
    shared = set.intersection(*(set(state.fields) for state in states))
    return ChainState(
        [torch.cat(parts) for parts in zip(*(state.states for state in states), strict=True)],
        {l: torch.cat([state.fields[l] for state in states]) for l in sorted(shared)},
    )


@record
class CoupledSweep(NamedTuple):
    """A sweep of pairs, which on a GPU is most likely done.

    Attributes:
        state: where the chains are after it, 2 · pairs rows.
        tries: proposals of rejection sampling, (pairs,).
        drawn: the draws of every colour, by its number.
        waits: by the number of a colour, the rows that still wait for x and for y, (2, pairs): where any
            does, ``PairKernel.finish`` has to go on.
    """

    state: ChainState
    tries: Tensor
    drawn: dict[int, Coupled]
    waits: dict[int, Tensor]


def mark_differences(x: Tensor, y: Tensor) -> Any:
    """Marks the entries in which two batches of states, (rows, width), differ: an array on the CPU."""
    return _device.as_fast_array(x) != _device.as_fast_array(y)


def differ(x: Tensor, y: Tensor) -> Tensor:
    """Marks the rows in which two batches of states, (rows, width), differ: (rows,)."""
    marks = mark_differences(x, y).any(-1)
    return marks if isinstance(marks, Tensor) else torch.from_numpy(marks)


class PairKernel(ABC):
    """Two chains that each follow one Markov kernel, moved jointly so that they meet and stay together."""

    @abstractmethod
    def chain_layers(self, hamiltonian: Hamiltonian) -> tuple[int, ...]:
        """Returns the layers that the next sweep depends on: chains have met once these are equal.

        Other layers of ``graph.summed`` may come to ``coupled`` without their states, (rows, 0).
        """

    @abstractmethod
    def prepare(self, hamiltonian: Hamiltonian, state: ChainState, copies: int) -> ChainState:
        """Returns the state with the fields that the next sweep needs.

        Args:
            hamiltonian: the machine; what it holds has as many rows.
            state: where the chains are.
            copies: 1 for chains alone, 2 for pairs.
        """

    @abstractmethod
    def single(self, hamiltonian: Hamiltonian, state: ChainState, generator: torch.Generator) -> ChainState:
        """Moves every chain by a sweep, alone."""

    @abstractmethod
    def coupled(
        self, hamiltonian: Hamiltonian, both: ChainState, generator: torch.Generator
    ) -> tuple[ChainState, Tensor]:
        """Moves both chains by a sweep, each as ``single`` moves it; equal chains stay equal.

        Args:
            hamiltonian: the machine; what it holds has as many rows.
            both: 2 · pairs rows, the x chains, then the y chains; see ``chain_layers``.
            generator: source of all noise.

        Returns:
            The new state, and the number of rejection-sampling proposals of each pair (pairs,).
        """

    @property
    def is_steady(self) -> bool:
        """Returns whether ``begin`` makes the same operations in every sweep, and asks for no value."""
        return False

    def begin(self, hamiltonian: Hamiltonian, both: ChainState, generator: torch.Generator) -> CoupledSweep:
        """Moves both chains by a sweep, which on a GPU need not be done: the host has not looked.

        Takes what ``coupled`` takes, 2 · pairs rows.
        """
        return CoupledSweep(*self.coupled(hamiltonian, both, generator), {}, {})

    def finish(
        self, hamiltonian: Hamiltonian, both: ChainState, sweep: CoupledSweep, generator: torch.Generator
    ) -> CoupledSweep:
        """Returns a sweep from ``both``, 2 · pairs rows, that is done."""
        return sweep


@final
class Gibbs(PairKernel):
    """Pairs of block Gibbs chains with a coupling for each half-step.

    A sweep draws the layers of ``graph.summed`` first (in a chain of layers the odd ones, then the even
    ones), so that a chain is its other layers alone and chains that agree at either half-step have met by
    the end of the sweep.

    ``Gibbs(Maximal(), Independent())`` is Alg. 1 of Qiu et al. (2020), ``Gibbs(Maximal(common_noise=True),
    CommonNoise())`` their Alg. 3. The default couples both half-steps maximally, which meets sooner: on their
    Fig. 5 model the three meet within 10 sweeps with probability 0.017, 0.69 and 0.83.

    Args:
        even: coupling of the even layers given the odd ones, and of every colour but the last of a graph;
            None: maximal with common noise, and by reflection where all of these layers are Gaussian.
        odd: coupling of the odd layers given the even ones, and of the last colour; None: the same.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
        >>> pairs = hm.coupled.Gibbs(hm.coupled.Maximal(), hm.coupled.CommonNoise())
        >>> met = hm.coupled.meet(machine, pairs, machine.random_states(50, seed=0), seed=1)
        >>> bool(met.capped.any())
        False
    """

    def __init__(self, even: BlockCoupling | None = None, odd: BlockCoupling | None = None) -> None:
        self.even = even
        self.odd = odd

    def chain_layers(self, hamiltonian: Hamiltonian) -> tuple[int, ...]:
        return hamiltonian.graph.unsummed

    def prepare(self, hamiltonian: Hamiltonian, state: ChainState, copies: int) -> ChainState:
        fields = {
            part.layer: state.fields[part.layer]
            if part.layer in state.fields
            else _find_field(hamiltonian, part, state.states, copies)
            for part in hamiltonian.graph.colours[-1]
            if part.columns is None and not hamiltonian.is_clamped(part.layer)
        }
        return ChainState(state.states, fields)

    def single(self, hamiltonian: Hamiltonian, state: ChainState, generator: torch.Generator) -> ChainState:
        def draw(_: int, parts: tuple[Part, ...], fields: list[Tensor]) -> list[Tensor]:
            return [
                hamiltonian.sample(part, field, generator) for part, field in zip(parts, fields, strict=True)
            ]

        return self._sweep(hamiltonian, state, draw, 1)

    def coupled(
        self, hamiltonian: Hamiltonian, both: ChainState, generator: torch.Generator
    ) -> tuple[ChainState, Tensor]:
        sweep = self.finish(hamiltonian, both, self.begin(hamiltonian, both, generator), generator)
        return sweep.state, sweep.tries

    @property
    def is_steady(self) -> bool:
        known = (CommonNoise, Independent, Maximal, Reflection)
        return all(coupling is None or isinstance(coupling, known) for coupling in (self.even, self.odd))

    @property
    def ends_by_noise(self) -> bool | None:
        """True for Alg. 3, whose last colour has common noise alone, false for the default; None: neither."""
        maximal = [x is None or (isinstance(x, Maximal) and x.common_noise) for x in (self.even, self.odd)]
        by_noise = isinstance(self.odd, CommonNoise)
        return by_noise if maximal[0] and (by_noise or maximal[1]) else None

    def finish(
        self, hamiltonian: Hamiltonian, both: ChainState, sweep: CoupledSweep, generator: torch.Generator
    ) -> CoupledSweep:
        while sweep.waits:
            # A GPU is waited for once, with all colours drawn. Where one was not done, it is finished, and
            # what was drawn given it is drawn anew.
            left = torch.stack([*sweep.waits.values()]).flatten(1).any(1).tolist()
            late = [number for number, waits in zip(sweep.waits, left, strict=True) if waits]
            if not late:
                break
            sweep = self.begin(hamiltonian, both, generator, sweep, late[0])
        return sweep

    def begin(
        self,
        hamiltonian: Hamiltonian,
        both: ChainState,
        generator: torch.Generator,
        begun: CoupledSweep | None = None,
        late: int = 0,
    ) -> CoupledSweep:
        """Moves both chains by a sweep, or goes on with one.

        Args:
            hamiltonian: the machine; what it holds has as many rows.
            both: 2 · pairs rows, the x chains, then the y chains.
            generator: source of all noise.
            begun: a sweep from there that is not done; None: a new one.
            late: number of its first colour that waits. It goes on to its end; those before stay as drawn.
        """
        drawn, waits = dict[int, Coupled](), dict[int, Tensor]()

        def draw(number: int, parts: tuple[Part, ...], fields: list[Tensor]) -> list[Tensor]:
            if begun is not None and number < late:
                drawn[number] = begun.drawn[number]
            else:
                coupling = (self.even if number else self.odd) or self._choose(hamiltonian, parts)
                halves = [field.chunk(2) for field in fields]
                p, q = (Block(hamiltonian, parts, half) for half in zip(*halves, strict=True))
                if not (isinstance(coupling, Maximal) and _device.is_async(hamiltonian.device)):
                    drawn[number] = coupling.draw(p, q, generator)
                elif begun is not None and number == late:
                    drawn[number] = coupling.finish(p, q, begun.drawn[late], begun.waits[late], generator)
                else:
                    drawn[number], waits[number] = coupling.begin(p, q, generator)
            return [stack(x, y) for x, y in zip(drawn[number].x, drawn[number].y, strict=True)]

        state = self._sweep(hamiltonian, both, draw, 2)
        none = torch.zeros(len(both.states[0]) // 2, dtype=torch.int64, device=hamiltonian.device)
        return CoupledSweep(state, sum((x.tries for x in drawn.values()), none), drawn, waits)

    @staticmethod
    def _sweep(hamiltonian: Hamiltonian, state: ChainState, draw: Draw, copies: int) -> ChainState:
        """Draws the last colour given the others, then the others in their order."""
        states, known = list(state.states), state.fields
        for number, colour in enumerate(hamiltonian.graph.colours_backwards):
            parts = tuple(part for part in colour if not hamiltonian.is_clamped(part.layer))
            if not parts:
                continue
            fields = [
                known[part.layer]
                if number == 0 and part.columns is None and part.layer in known
                else _find_field(hamiltonian, part, states, copies)
                for part in parts
            ]
            for part, x in zip(parts, draw(number, parts, fields), strict=True):
                states[part.layer] = hamiltonian.apply_clamp(
                    part.layer, part.put_states(x, states[part.layer])
                )
        return ChainState(states, {})

    @staticmethod
    def _choose(hamiltonian: Hamiltonian, parts: tuple[Part, ...]) -> BlockCoupling:
        gaussian = all(hamiltonian.units(part)[0].gaussian for part in parts)
        return Reflection() if gaussian else Maximal(common_noise=True)

    def __repr__(self) -> str:
        return f"Gibbs(even={self.even!r}, odd={self.odd!r})"


@torch.no_grad()
def _find_field(hamiltonian: Hamiltonian, part: Part, states: States, copies: int) -> Tensor:
    """Returns the field of a part; equal chains of a pair get equal fields, to the bit, where β is one.

    Some libraries round a row by where it stands, and distributions that differ by rounding take many
    proposals.
    """
    field = hamiltonian.field(part, states)
    joints, one_beta = hamiltonian.graph.joints[part.layer], isinstance(hamiltonian.beta, float)
    if copies == 1 or not (joints and one_beta) or _device.is_async(hamiltonian.device):
        return field
    apart = torch.stack([differ(*states[joint.other].chunk(2)) for joint in joints]).any(0)
    x, y = field.chunk(2)
    same = (~apart).nonzero().squeeze(-1)
    y.index_copy_(0, same, x[same])
    return field


@final
class Metropolis(PairKernel):
    """Pairs of Metropolis chains that share a uniform proposal x' and one u (Taniguchi et al. 2023, §3.2).

    Each chain accepts with min(1, exp(E(x) - E(x'))). The chains meet when both accept. Discrete layers only.
    """

    is_steady = True

    def chain_layers(self, hamiltonian: Hamiltonian) -> tuple[int, ...]:
        return tuple(range(len(hamiltonian.layers)))

    def prepare(self, hamiltonian: Hamiltonian, state: ChainState, copies: int) -> ChainState:
        """Returns the state with the fields of ``graph.summed``: in a chain every coupling is in one."""
        fields = {
            l: state.fields[l] if l in state.fields else hamiltonian.field(l, state.states)
            for l in hamiltonian.graph.summed
        }
        return ChainState(state.states, fields)

    def single(self, hamiltonian: Hamiltonian, state: ChainState, generator: torch.Generator) -> ChainState:
        return self._move(hamiltonian, state, generator, copies=1)

    def coupled(
        self, hamiltonian: Hamiltonian, both: ChainState, generator: torch.Generator
    ) -> tuple[ChainState, Tensor]:
        moved = self._move(hamiltonian, both, generator, copies=2)
        return moved, torch.zeros(len(both.states[0]) // 2, dtype=torch.int64, device=hamiltonian.device)

    def _move(
        self, hamiltonian: Hamiltonian, state: ChainState, generator: torch.Generator, copies: int
    ) -> ChainState:
        for l, layer in enumerate(hamiltonian.layers):
            # A real unit proposes by a random walk from its own state, which two chains cannot share.
            if not layer.discrete and not hamiltonian.is_clamped(l):
                raise ValueError(
                    f"pair_kernel: expected discrete layers for Metropolis pairs, received {layer}"
                )
        state = self.prepare(hamiltonian, state, copies)
        rows = len(state.states[0]) // copies
        noise = [hamiltonian.noise(l, rows, generator) for l in range(len(state.states))]
        states = [
            hamiltonian.layers[l].propose(x[:rows], u)
            for l, (x, u) in enumerate(zip(state.states, noise, strict=True))
        ]
        single = hamiltonian if copies == 1 else hamiltonian.select_rows(slice(0, rows))
        proposal = self.prepare(single, ChainState(single.clamp_states(states), {}), copies=1)
        log_u = torch.log1p(-_random.uniform((rows,), generator, torch.float64)).repeat(copies)
        gain = _find_energy(hamiltonian, state) - _find_energy(single, proposal).repeat(copies)
        taken = log_u <= gain
        taken, new = taken.unsqueeze(-1), join_states(*[proposal] * copies)
        pairs = zip(new.states, state.states, strict=True)
        return ChainState(
            [_device.where(taken, y, x) for y, x in pairs],
            {l: _device.where(taken, new.fields[l], field) for l, field in state.fields.items()},
        )

    def __repr__(self) -> str:
        return "Metropolis()"


def _find_energy(hamiltonian: Hamiltonian, state: ChainState) -> Tensor:
    weights = [hamiltonian.log_weight(l, x).double() for l, x in enumerate(state.states)]
    couplings = [(field * state.states[l]).sum(-1, dtype=torch.float64) for l, field in state.fields.items()]
    total = torch.stack(weights + couplings).sum(0)
    unsummed = hamiltonian.graph.unsummed
    if any(l in unsummed and m in unsummed for l, m in hamiltonian.graph.edges):
        total = total + hamiltonian.beta_times(hamiltonian.coupling_energy(state.states, unsummed))
    return -total
