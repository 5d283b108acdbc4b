"""Filling in what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.chains import Kernel, local_search, run
from harmonium.data import Encoder
from harmonium.machine import BoltzmannMachine, Hamiltonian
from harmonium.sums import exact_hamiltonian, has_hidden_states, has_posterior, posteriors
from harmonium.tables import Table, bend, fill_cells
from harmonium.tasks.rows import SecondHalf, nearest_state, read_rows

_ROWS = 8192  # chains that run at a time

IMPUTE_METHODS = ("auto", "exact", "gibbs", "tempered", "local_search")
"""Those of ``impute``, which also takes the other names in ``chains.Kernel.registry``."""

Filled = tuple[Tensor, Tensor, Tensor]
"""``mode``, ``mean`` and ``draws`` of an ``Imputation``, whatever they hold where nothing is missing."""
Fill = Callable[[BoltzmannMachine, Tensor, int, int, torch.Generator], Filled]
"""Fills in the NaN of visible states, given draws, sweeps and a generator."""


class Imputation(NamedTuple):
    """Completed rows; what was not missing is as it was given.

    Attributes:
        mode: (batch, visible_width), one completion: with "local_search" the mode of lowest energy that was
            found, else of every discrete unit the state nearest to its mean, which is the most probable of
            two values and of categories, and of every real one its mean.
        mean: (batch, visible_width), the estimated means of the missing units given the others.
        draws: (draws, batch, visible_width), states of the missing units given the others.
        method: the name of the method that found them, where "auto" was asked for too.
    """

    mode: Tensor
    mean: Tensor
    draws: Tensor
    method: str


@torch.no_grad()
def impute(
    machine: BoltzmannMachine,
    X: Numbers,
    missing: Numbers,
    method: str = "auto",
    *,
    draws: int = 5,
    sweeps: int = 100,
    seed: int | torch.Generator = 0,
) -> Imputation:
    """Fills in missing visible units given the others, by a machine of any graph and with any kind of unit.

    Args:
        machine: the machine.
        X: visible states, (batch, visible_width); what they hold in missing places is not read, and may be
            NaN.
        missing: booleans, (batch, n_units), or (batch, 1) or (1, n_units) for all units or rows alike; the
            units of the visible layers side by side.
        method: "exact": means and independent draws by a sum over the hidden states, for machines that
            ``likelihood.HiddenStates`` takes, or units that can be summed out one by one (see ``sample``);
            "auto": "exact" where it takes seconds, and else "gibbs". "gibbs": chains
            with the given units held, which follow p(missing | given) as far as they have
            mixed. "tempered": the same by parallel tempering, ten replicas a chain, where Gibbs chains stay
            in one mode; or another kernel of ``chains.Kernel.registry``. "local_search": local modes, one for
            each draw (Taniguchi et al. 2023, Fig. 3); the mean is the mean of these modes and no expectation.
        draws: chains, or searches, of every row, at least 1.
        sweeps: Sweeps of every chain, at least 2; means average the conditional means of the second half.
        seed: an int or a generator.

    Raises:
        ValueError: shapes that do not fit, given values outside the support, or "exact" for a machine with
            too many hidden states.
        TypeError: ``missing`` that is not boolean.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3)], seed=0)
        >>> found = hm.tasks.impute(machine, torch.ones(2, 4), torch.tensor([[True, False, False, False]]))
        >>> found.mode[:, 1:].tolist(), found.draws.shape  # what was given stays
        ([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], torch.Size([5, 2, 4]))
    """
    _checks.one_of(method, "method", {*IMPUTE_METHODS, *Kernel.registry})
    _checks.positive_int(draws, "draws")
    _checks.positive_int(sweeps, "sweeps", minimum=2)
    generator = _random.as_generator(seed, machine.device)
    X = read_rows(machine, X, "X")
    absent = _by_column(machine, missing, len(X))
    if method == "auto":
        hamiltonian = machine.hamiltonian()
        method = "exact" if has_posterior(hamiltonian, X.masked_fill(absent, torch.nan)) else "gibbs"
    others: dict[str, Fill] = {"exact": _sum_over_hidden, "local_search": _search}
    fill = others.get(method) or partial(_run_chains, Kernel.registry[method]())
    parts, size = [], len(X) if method == "exact" else max(1, _ROWS // draws)
    for rows in torch.split(torch.arange(len(X), device="cpu"), size):
        held = X[rows].masked_fill(absent[rows], torch.nan)
        machine.check_rows(torch.where(absent[rows], _find_mode(machine), held), "X")
        parts.append(fill(machine, held, draws, sweeps, generator))
    mode, mean, drawn = (torch.cat(part, dim=-2) for part in zip(*parts, strict=True))
    mode, mean, drawn = (torch.where(absent, x, X) for x in (mode, mean, drawn))
    return Imputation(mode, mean, drawn, method)


def impute_cells(
    machine: BoltzmannMachine,
    encoder: Encoder,
    X: Numbers,
    missing: Numbers,
    method: str,
    value: str,
    *,
    draws: int,
    sweeps: int,
    seed: int | torch.Generator = 0,
) -> tuple[Imputation, Tensor]:
    """Fills in as ``impute`` does, and chooses the "nearest", the "mean" or a "draw" for the cells of data.

    The nearest is the most probable label, and the mean of numbers, which decoding rounds as the column is;
    with "local_search" the mode.

    Where hidden states are summed, means are those of cells, also along curves, and of the machine with the
    straight lines beside it (``tables.LinearPrediction``). Those of labels tell the most probable one. Draws
    are the machine's alone.

    Returns:
        What is found, and the states that cells are decoded from, (batch, visible_width).
    """
    generator = _random.as_generator(seed, machine.device)
    done = impute(machine, X, missing, method, draws=draws, sweeps=sweeps, seed=generator)
    if value != "draw" and done.method == "exact" and has_hidden_states(machine.graph, machine.layers):
        rows = read_rows(machine, X, "X")
        absent = _by_column(machine, missing, len(rows))
        cells = fill_cells(machine, encoder, rows.masked_fill(absent, torch.nan), generator)
        mean = torch.where(absent, bend(encoder, cells.mean).to(rows), rows)
        done = done._replace(mean=mean, mode=_nearest(machine, mean))
    table = isinstance(encoder, Table) and done.method != "local_search"
    nearest = done.mean if table else done.mode  # a table knows what its numbers are multiples of
    states = {"mean": done.mean, "draw": done.draws[0]}.get(value, nearest)
    return done, states


def _sum_over_hidden(
    machine: BoltzmannMachine, held: Tensor, draws: int, sweeps: int, generator: torch.Generator
) -> Filled:
    """Fills in from the exact distribution, which needs no sweeps."""
    mean, drawn = torch.empty_like(held), held.new_empty(draws, *held.shape)
    for block_rows, posterior in posteriors(exact_hamiltonian(machine), held):
        mean[block_rows] = posterior.moments().mean.to(held.dtype)
        drawn[:, block_rows] = posterior.draw(generator, draws).to(held.dtype)
    return _nearest(machine, mean), mean, drawn


def _run_chains(
    kernel: Kernel,
    machine: BoltzmannMachine,
    held: Tensor,
    draws: int,
    sweeps: int,
    generator: torch.Generator,
) -> Filled:
    """Fills in by chains that hold what was given."""
    hamiltonian = machine.hamiltonian()
    start = machine.random_states(draws * len(held), seed=generator)
    means = SecondHalf(sweeps, partial(visible_means, hamiltonian))
    clamp = held.repeat(draws, 1)
    states = run(machine, kernel, start, sweeps, clamp, seed=generator, observer=means)
    mean = means.total.div_(means.count).view(draws, len(held), -1).mean(0)
    drawn = hamiltonian.visible_states(states).view(draws, *held.shape)
    return _nearest(machine, mean), mean, drawn


def _search(
    machine: BoltzmannMachine, held: Tensor, draws: int, sweeps: int, generator: torch.Generator
) -> Filled:
    """Fills in by searches for local modes, which need no number of sweeps."""
    start = machine.random_states(draws * len(held), seed=generator)
    modes, _ = local_search(machine, start, held.repeat(draws, 1), seed=generator)
    drawn = machine.hamiltonian().visible_states(modes).view(draws, *held.shape)
    lowest = machine.energy(modes).view(draws, -1).argmin(0)
    return drawn[lowest, torch.arange(len(held), device=held.device)], drawn.mean(0), drawn


def visible_means(hamiltonian: Hamiltonian, states: Sequence[Tensor]) -> Tensor:
    """Returns E of the visible layers given the states of the others, side by side: (rows, visible_width)."""
    visible = hamiltonian.graph.visible
    return torch.cat([hamiltonian.mean(l, hamiltonian.field(l, states)) for l in visible], -1)


def unit_probabilities(hamiltonian: Hamiltonian, states: Sequence[Tensor], l: int) -> Tensor:
    """Returns p of every state of a layer's units given the layers beside it, (rows, n_units, n_states)."""
    layer, field = hamiltonian.layers[l], hamiltonian.field(l, states)
    alike = [value.repeat(layer.n_units).expand_as(field) for value in layer.values().to(field)]
    return torch.stack([layer.log_conditional(x, field, hamiltonian.thetas[l]).exp() for x in alike], -1)


def _nearest(machine: BoltzmannMachine, mean: Tensor) -> Tensor:
    """Returns the states nearest to the means of visible units, (rows, visible_width), see ``Imputation``."""
    return torch.cat([nearest_state(machine.layers[l], x) for l, x in machine.split(mean).items()], -1)


def _find_mode(machine: BoltzmannMachine) -> Tensor:
    """Returns a state that every visible unit takes, (1, visible_width)."""
    zero = torch.zeros(1, machine.visible_width, dtype=machine.dtype, device=machine.device)
    layers = ((machine.layers[l], x) for l, x in machine.split(zero).items())
    return torch.cat([layer.mode(x, layer.reference()) for layer, x in layers], -1)


def _by_column(machine: BoltzmannMachine, missing: Numbers, rows: int) -> Tensor:
    """Returns booleans of units as booleans of columns, (rows, width)."""
    _checks.numeric(missing, "missing")
    if missing.dtype not in (torch.bool, np.dtype(bool)):
        raise TypeError(f"missing: expected booleans, received {missing.dtype}")
    missing = torch.as_tensor(missing, device=machine.device)
    unit_of_column = machine.unit_of_column
    units = int(unit_of_column[-1]) + 1
    if missing.dim() != 2 or missing.shape[0] not in (1, rows) or missing.shape[1] not in (1, units):
        raise ValueError(
            f"missing: expected ({rows}, {units}), one for each row and unit, received {tuple(missing.shape)}"
        )
    return missing.expand(rows, units)[:, unit_of_column]


def unobserved(machine: BoltzmannMachine, v: Tensor) -> Tensor:
    """Marks the units that are missing from states: (rows, units), bool."""
    parts = machine.split(v).items()
    return torch.cat([x[:, :: machine.layers[l].columns_per_unit].isnan() for l, x in parts], 1)
