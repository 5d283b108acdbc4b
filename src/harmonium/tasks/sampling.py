"""Draws of visible states, of whole rows or given some cells, exactly where that can be summed."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.chains import Kernel, run
from harmonium.machine import BoltzmannMachine
from harmonium.sums import exact_hamiltonian, has_posterior, nothing_seen, posteriors


class Sample(NamedTuple):
    """Draws of visible states.

    Attributes:
        rows: (rows, visible_width).
        method: "exact", or the kernel of the chains.
    """

    rows: Tensor
    method: str


@torch.no_grad()
def sample(
    machine: BoltzmannMachine,
    rows: int = 1,
    *,
    given: Numbers | None = None,
    method: str = "auto",
    sweeps: int | None = None,
    seed: int | torch.Generator = 0,
) -> Sample:
    """Draws independent rows from a machine, or what is missing of rows given what they show.

    Args:
        machine: the machine.
        rows: rows to draw, at least 1; with ``given`` so many for each of its rows, one after the other.
        given: visible states, (rows, visible_width), NaN where they are drawn. None: everywhere.
        method: "exact": a hidden state from the table of all, then the columns given it, for machines that
            ``likelihood.HiddenStates`` takes; with ``given`` hidden states are weighted by what rows show. Of
            other machines each unit given those that come after it, where tables over their neighbours are
            small (trees, strips, narrow lattices). "auto": "exact" where ln Z is exact in at most 2^30 unit
            updates, a quarter of a minute (with ``given`` seconds), but not after ``noise_cd``; else "gibbs".
            A name in ``chains.Kernel.registry``: chains, one for each row, which begin at noise and follow
            the distribution as far as they have mixed.
        sweeps: Sweeps of every chain, at least 0; not read for "exact". None: ``usual_sweeps``.
        seed: an int or a generator.

    Raises:
        ValueError: a number out of range, rows that do not fit, or "exact" for a machine with too many states
            to sum.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3)], seed=0)
        >>> drawn = hm.tasks.sample(machine, 5)
        >>> drawn.rows.shape, drawn.method
        (torch.Size([5, 4]), 'exact')
    """
    _checks.one_of(method, "method", ("auto", "exact", *Kernel.registry))
    _checks.positive_int(rows, "rows")
    sweeps = usual_sweeps(machine) if sweeps is None else sweeps
    _checks.positive_int(sweeps, "sweeps", minimum=0)
    generator = _random.as_generator(seed, machine.device)
    shown = None
    if given is not None:
        shown = machine.visible_rows(given, "given", missing=True).repeat_interleave(rows, 0)
    if method == "auto":
        density = "sweeps_from_noise" not in machine.metadata
        method = "exact" if density and has_posterior(machine.hamiltonian(), shown) else "gibbs"
    if method == "exact":
        hamiltonian = exact_hamiltonian(machine)
        seen = nothing_seen(hamiltonian, rows) if shown is None else shown.double()
        drawn = torch.empty_like(seen)
        for block_rows, posterior in posteriors(hamiltonian, seen):
            drawn[block_rows] = posterior.draw(generator)[0]
        return Sample(drawn.to(machine.dtype), method)
    count = rows if shown is None else len(shown)
    start = machine.random_states(count, seed=generator)
    states = run(machine, Kernel.registry[method](), start, sweeps, shown, seed=generator)
    return Sample(machine.hamiltonian().visible_states(states), method)


def usual_sweeps(machine: BoltzmannMachine) -> int:
    """Returns the sweeps of chains where none are given: 1,000, or those that ``noise_cd`` has learned."""
    learned = machine.metadata.get("sweeps_from_noise")
    return learned if type(learned) is int and learned > 0 else 1000
