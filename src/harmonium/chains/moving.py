"""The one loop that runs chains, and where chains begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import overload

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium._states import join_rows
from harmonium.backends import repeat
from harmonium.chains.kernel import Info, Kernel, KernelState, not_a_step
from harmonium.distributed import Distributed, as_group
from harmonium.machine import BoltzmannMachine, ClampLike, Hamiltonian, States, require_distribution

Observer = Callable[[int, KernelState, Info], None]
"""Called after every sweep with its number from 1, the chains and the sweep's diagnostics."""


@overload
def run(
    machine: BoltzmannMachine,
    kernel: Kernel,
    start: KernelState,
    sweeps: int,
    clamp: ClampLike = None,
    *,
    seed: int | torch.Generator,
    observer: Observer | None = None,
    distributed: None = None,
) -> KernelState: ...
@overload
def run(
    machine: BoltzmannMachine,
    kernel: Kernel,
    start: Sequence[Numbers] | Numbers,
    sweeps: int,
    clamp: ClampLike = None,
    *,
    seed: int | torch.Generator,
    observer: Observer | None = None,
    distributed: Distributed = None,
) -> States: ...
@torch.no_grad()
def run(
    machine: BoltzmannMachine,
    kernel: Kernel,
    start: KernelState | Sequence[Numbers] | Numbers,
    sweeps: int,
    clamp: ClampLike = None,
    *,
    seed: int | torch.Generator,
    observer: Observer | None = None,
    distributed: Distributed = None,
) -> KernelState | States:
    """Runs independent chains, one a row.

    Args:
        machine: whose distribution to follow.
        kernel: what moves the chains.
        start: for each layer (batch, width_l); or visible states alone, (batch, visible_width), from which
            the hidden layers are drawn; or chains that go on, a ``KernelState`` of this kernel.
        sweeps: at least 0.
        clamp: entries to hold: visible values (batch, visible_width) or a mapping from layers to values, NaN
            where free.
        seed: source of all noise: an int, or a generator to advance.
        observer: called after every sweep with its number from 1, the ``KernelState`` and the diagnostics.
            None with ``distributed``, where no process has all chains.
        distributed: processes that share the chains, as in ``harmonium.train``; all get the states. Their
            arguments are equal, and each has noise of its own. None: this process alone.

    Returns:
        For each layer (batch, width_l), new tensors; the whole ``KernelState`` where one was given. From
        ``run(..., kernel.init(machine.hamiltonian(), states, generator), 0)`` on, runs of any lengths are one
        run.

    Raises:
        ValueError: a start or clamp of the wrong shape or support, or a state that the kernel did not return.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
        >>> v = machine.random_states(4, seed=0)[0]
        >>> states = hm.chains.run(machine, hm.chains.Gibbs(), v, sweeps=5, clamp=v, seed=1)
        >>> [tuple(x.shape) for x in states], bool((states[0] == v).all())
        ([(4, 3), (4, 2)], True)
    """
    _checks.instance(kernel, "kernel", Kernel, "a kernel")
    _checks.positive_int(sweeps, "sweeps", minimum=0)
    generator = _random.as_generator(seed, machine.device)
    hamiltonian = machine.hamiltonian()
    require_distribution(hamiltonian)
    group = as_group(distributed)
    if distributed is not None and (observer is not None or isinstance(start, KernelState)):
        raise ValueError(
            "observer, start: expected no observer and no KernelState with distributed, where no process "
            "has all chains"
        )
    if isinstance(start, KernelState):
        kernel.check(hamiltonian, start)
        hamiltonian = hamiltonian.clamp(clamp, len(start.states[0]))
        held = start.without_caches()._replace(states=hamiltonian.clamp_states(start.states))
        end = run_kernel(hamiltonian, kernel, held, sweeps, generator, observer)
        return end._replace(states=_copy_inputs(end.states, start.states))
    begun = initial_states(machine, hamiltonian, start, generator)
    hamiltonian = hamiltonian.clamp(clamp, len(begun[0]))
    rows, generator = group.rows(len(begun[0]), "start"), group.own_noise(generator)
    if group.size > 1:
        hamiltonian, begun = hamiltonian.select_rows(rows), [x[rows] for x in begun]
    state = kernel.init(hamiltonian, hamiltonian.clamp_states(begun), generator, sweeps)
    end = run_kernel(hamiltonian, kernel, state, sweeps, generator, observer)
    whole: States = join_rows(group.all_gather(_copy_inputs(end.states, begun)))
    return whole


def _copy_inputs(states: States, inputs: Sequence[Tensor]) -> States:
    """Returns the states, in new tensors where they are the inputs."""
    return [x.clone() if x is y else x for x, y in zip(states, inputs, strict=True)]


def run_kernel(
    hamiltonian: Hamiltonian,
    kernel: Kernel,
    state: KernelState,
    sweeps: int,
    generator: torch.Generator,
    observer: Observer | None = None,
) -> KernelState:
    """Moves chains by some sweeps under one distribution, as ``run`` does, without checks.

    Args:
        hamiltonian: the machine in natural parameters, with what is held.
        kernel: what moves the chains.
        state: what ``kernel.init`` or an earlier sweep under this distribution returned.
        sweeps: at least 0.
        generator: source of all noise.
        observer: as in ``run``.
    """
    at_once = kernel.run_sweeps(hamiltonian, state, generator, sweeps) if observer is None else None
    if at_once is not None:
        return at_once

    def move(chains: KernelState) -> tuple[KernelState, Info]:
        moved = kernel.step(hamiltonian, chains, generator)
        if type(moved) is not tuple:
            raise not_a_step(kernel, moved)
        return moved

    def move_on(chains: KernelState) -> KernelState:
        for _ in range(period):
            chains = move(chains)[0]
        return chains

    done, period = 0, kernel.period or 0
    if period and observer is None:
        done = sweeps // period * period
        state = repeat(move_on, state, sweeps // period, hamiltonian.device, [generator])
    for number in range(done + 1, sweeps + 1):
        state, info = move(state)
        if observer is not None:
            observer(number, state, info)
    return state


def initial_states(
    machine: BoltzmannMachine,
    hamiltonian: Hamiltonian,
    start: Sequence[Numbers] | Numbers,
    generator: torch.Generator,
) -> States:
    """Returns checked states, for each layer (batch, width_l); draws hidden layers that are not given.

    Args:
        machine: the machine, and
        hamiltonian: its own.
        start: as in ``run``.
        generator: source of noise.
    """
    if isinstance(start, Tensor | np.ndarray):
        start = fill_hidden(hamiltonian, machine.visible_rows(start, "start"), generator).states
    return machine.check_states(start, name="start")


def fill_hidden(
    hamiltonian: Hamiltonian,
    v: Tensor,
    generator: torch.Generator,
    known: Mapping[int, Tensor] | None = None,
    observed: bool | None = None,
) -> KernelState:
    """Draws hidden layers from visible states, nearest first, each given what is there already.

    Where no two hidden layers are joined that is an exact draw from p(h | v); elsewhere, it is a start. The
    fields of layers that are drawn given all their neighbours are kept.

    Args:
        hamiltonian: the machine.
        v: visible states, (batch, visible_width); NaN is drawn as of independent units.
        generator: source of noise.
        known: fields of layers given v alone, (batch, width_l), for machines without joined hidden layers.
        observed: whether no entry of v is NaN; None: v is searched for one.
    """
    known = known or {}
    states, fields = hamiltonian.split(v), dict[int, Tensor]()
    filled = set(hamiltonian.graph.visible)
    if not (_checks.observed(v) if observed is None else observed):
        for l in hamiltonian.graph.visible:
            alone = hamiltonian.sample(l, torch.zeros_like(states[l]), generator)
            states[l] = torch.where(states[l].isnan(), alone, states[l])
    for l in hamiltonian.graph.order:
        field = known[l] if l in known else hamiltonian.field(l, states, filled)
        states[l] = hamiltonian.sample(l, field, generator)
        if filled.issuperset(joint.other for joint in hamiltonian.graph.joints[l]):
            fields[l] = field
        filled.add(l)
    return KernelState(states, 0, fields=fields)
