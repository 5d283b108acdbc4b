"""Local modes: states that no change of one colour of layers makes more probable."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harmonium import _device, _random
from harmonium._checks import Numbers
from harmonium.backends import replays, runs
from harmonium.chains.kernel import KernelState
from harmonium.chains.replaying import replay_under
from harmonium.machine import BoltzmannMachine, ClampLike, Hamiltonian, Part, States

_COMPACT = 4  # chains that have arrived leave once they are one in so many: copies cost more than they do
_PATIENCE = 128  # half-steps before cycles are looked for; a search seldom takes as many
_WINDOW = 8  # half-steps between two looks of a GPU, which makes them as one recording; half of a search
_ALONE = 3  # half-steps after which so few units change that chain after chain is faster in compiled code


@torch.no_grad()
def local_search(
    machine: BoltzmannMachine,
    start: Sequence[Numbers],
    clamp: ClampLike = None,
    *,
    seed: int | torch.Generator,
) -> tuple[States, Tensor]:
    """Climbs from every start to a local mode (Taniguchi et al. 2023, Algs. 1 and 5; FORMULAS §4).

    The layers of one colour (the even ones of a chain of layers) are set to the mode of their conditional,
    then those of the other, until nothing changes. A fair coin for each chain chooses the first colour.
    Each chain stops by itself. No half-step lowers the probability and ties go to the upper
    value, so that a chain cannot come back to a state it has left but through rounding; that is noticed, and
    the chain stops there, at a local mode but for the rounding.

    Units of one colour must be discrete (or held), so that the search ends; the other colour may be real.

    Args:
        machine: the machine.
        start: states to climb from, for each layer (batch, width_l).
        clamp: entries to hold, see ``chains.run``.
        seed: source of the coins: an int, or a generator to advance.

    Returns:
        The modes, for each layer (batch, width_l), and the number of sweeps that each chain took, (batch,),
        with the half-step that found nothing to change.

    Raises:
        ValueError: a start or clamp of the wrong shape or support, free real units of both colours, or
            a graph that two colours do not suffice for.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Spin(1), hm.Spin(1)])
        >>> machine.couplings[0].fill_(torch.ones(1, 1))
        >>> modes, sweeps = hm.chains.local_search(machine, [torch.ones(5, 1), -torch.ones(5, 1)], seed=0)
        >>> bool((modes[0] == modes[1]).all())
        True
    """
    generator = _random.as_generator(seed, machine.device)
    begun = machine.check_states(start, name="start")
    modes, sweeps = search(machine.hamiltonian().clamp(clamp, len(begun[0])), begun, generator)
    return modes.states, sweeps


def search(
    hamiltonian: Hamiltonian,
    states: Sequence[Tensor],
    generator: torch.Generator,
    owner: object = None,
) -> tuple[KernelState, Tensor]:
    """Runs ``local_search`` in natural parameters, with one β for all chains.

    ``states`` has for each layer (rows, width_l). Returns the modes with their fields, and sweeps, (rows,).
    An ``owner`` keeps the recordings of a GPU for later searches; None: nothing is recorded.
    """
    sides = hamiltonian.graph.sides("local search")
    free = [tuple(l for l in layers if not hamiltonian.is_clamped(l)) for layers in sides]
    discrete = [all(hamiltonian.layers[l].discrete for l in layers) for layers in free]
    if not any(discrete):
        raise ValueError(
            "machine: expected discrete (or held) units of one colour, received real ones of both"
        )
    modes = [x.clone() for x in hamiltonian.clamp_states(states)]
    rows = len(modes[0])
    halves = torch.zeros(rows, dtype=torch.int64, device=hamiltonian.device)
    # Half-steps alternate for all chains alike, the first colour first; the coin chooses which sit out the
    # first of them.
    late = (_random.uniform((rows,), generator) < 0.5).unsqueeze(-1)
    active = torch.arange(rows, device=hamiltonian.device)
    ended = torch.zeros(rows, dtype=torch.bool, device=hamiltonian.device)
    current, selected = list(modes), hamiltonian
    landmark: dict[int, Tensor] = {}
    known: dict[int, Tensor] = {}
    gone, half = 0, -1
    climbs = owner is not None and replays(hamiltonian)
    while True:
        half += 1
        if climbs and half >= 2 and half % 2 == 0 and half + _WINDOW <= _PATIENCE:
            current, ended, when = _climb_ahead(selected, free, discrete, current, ended, owner)
            halves[active] = torch.where(when > 0, half + when, halves[active])
            half += _WINDOW - 1
            gone = int(ended.sum())
            if gone == len(ended):
                break
            continue
        colour, fields = half % 2, dict[int, Tensor]()
        moved, returned = torch.zeros_like(ended), torch.ones_like(ended)
        for l in free[colour]:
            fields[l] = selected.field(l, current)
            x = selected.apply_clamp(l, hamiltonian.layers[l].mode(fields[l], hamiltonian.thetas[l]))
            if half == 0 or gone:  # a chain that has ended stays, however its fields are rounded now
                x = _device.where(ended.unsqueeze(-1) if half else late, current[l], x)
            moved |= (x != current[l]).any(-1)
            if l in landmark:
                returned &= (x == landmark[l]).all(-1)
            current[l] = x
        if half == 0 or not discrete[colour]:
            continue
        if half == 1:
            moved |= late.squeeze(-1)  # their other colour is not a mode yet
        if free[colour] and landmark.keys() >= set(free[colour]):
            moved &= ~returned
        if half >= _PATIENCE and (half - colour).bit_count() == 1:
            landmark = {l: current[l] for l in free[colour]}
        arrived = (moved | ended).logical_not_()
        halves[active] = torch.where(arrived, half + 1, halves[active])
        ended |= arrived
        alone = None
        if half + 1 == _ALONE:
            alone = runs.climb(selected, free, current, fields, half + 1, _PATIENCE)
        if alone is not None:
            halves[active] = torch.where(ended, halves[active], alone)
            ended.fill_(True)
            if len(active) == rows:
                known = fields
        gone = int(ended.sum())
        if gone * _COMPACT >= len(ended) and not (climbs and half == 1):  # recordings have all chains
            rest, ended_rows = _device.split_indices(ended, gone)
            for l, x in enumerate(current):
                modes[l].index_copy_(0, active[ended_rows], x[ended_rows])
            active, ended, gone = active[rest], ended[rest], 0
            if len(active) == 0:
                break
            current, selected = [x[rest] for x in current], hamiltonian.select_rows(active)
            landmark = {l: x[rest] for l, x in landmark.items()}
    if gone and gone == len(ended):
        for l, x in enumerate(current):
            modes[l].index_copy_(0, active, x)
    halves -= late.squeeze(-1).to(halves.dtype)
    # A chain that came back to a state it had left has moved since fields were made.
    fields = known or {l: hamiltonian.field(l, modes) for l in sum(free, ())}
    return KernelState(modes, 0, fields=fields), halves.add(1).div(2, rounding_mode="floor")


def _climb_ahead(
    hamiltonian: Hamiltonian,
    free: Sequence[tuple[int, ...]],
    discrete: Sequence[bool],
    states: States,
    ended: Tensor,
    owner: object,
) -> tuple[States, Tensor, Tensor]:
    """Makes half-steps without a look, from one of the first colour on, as a recording.

    Args:
        hamiltonian, free, discrete: of ``search``.
        states: for each layer (rows, width_l).
        ended: true for chains that stay where they are, (rows,).
        owner: keeps the recording.

    Returns:
        The states, and for each chain, (rows,), whether it has ended, and in which of these half-steps, from
        1 on; 0 for one that has not, or had before.
    """

    def step(at: Hamiltonian, states_and_ended: tuple[States, Tensor]) -> tuple[States, Tensor, Tensor]:
        current, ended = list(states_and_ended[0]), states_and_ended[1]
        when = torch.zeros_like(ended, dtype=torch.int64)
        for half in range(_WINDOW):
            moved = ended
            for l in free[half % 2]:
                x = torch.where(
                    ended.unsqueeze(-1), current[l], at.layers[l].mode(at.field(l, current), at.thetas[l])
                )
                moved, current[l] = moved | (x != current[l]).any(-1), x
            if discrete[half % 2]:
                when = torch.where(moved, when, half + 1)
                ended = ended | ~moved
        return current, ended, when

    key = (tuple(free), tuple(discrete))
    moved: tuple[States, Tensor, Tensor] = replay_under(hamiltonian, owner, key, step, (list(states), ended))
    return moved


def climb(hamiltonian: Hamiltonian, states: States, parts: Sequence[int | Part], sweeps: int = 1) -> None:
    """Sets layers, or parts of them, one after the other to the modes of their conditionals, in place.

    ``local_search`` needs a graph of two colours with discrete units; this takes any, and may end on a slope.

    Args:
        hamiltonian: the machine.
        states: for each layer (batch, width_l).
        parts: layers or parts in the order of a sweep.
        sweeps: Most sweeps; it ends before where nothing changes.
    """
    for _ in range(sweeps):
        before = list(states)
        for part in parts:
            units, theta = hamiltonian.units(part)
            l, mode = (
                (part.layer if isinstance(part, Part) else part),
                units.mode(hamiltonian.field(part, states), theta),
            )
            states[l] = part.put_states(mode, states[l]) if isinstance(part, Part) else mode
        if sweeps > 1 and all(torch.equal(x, y) for x, y in zip(before, states, strict=True)):
            break
