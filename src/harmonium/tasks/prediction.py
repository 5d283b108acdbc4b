"""Prediction of visible units given what is observed of the others: a layer, one unit, a column of data."""

from __future__ import annotations

from math import log2
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.chains import fill_hidden
from harmonium.layers import Categorical
from harmonium.machine import BoltzmannMachine, Hamiltonian, States
from harmonium.sums import (
    MAX_HIDDEN_STATES,
    has_hidden_states,
    has_posterior,
    log2_states,
    posteriors,
    unit_log_weights,
)
from harmonium.tables import Codec
from harmonium.tasks.imputation import impute_cells, unit_probabilities, unobserved
from harmonium.tasks.rows import average_chains, read_rows

PREDICT_METHODS = ("auto", "exact", "gibbs")

_SHORT_LOG2_STATES = 10  # that are listed faster than units are summed out one by one
_ROWS = 1024  # beside their chains at a time: ten chains of a row of 1,000 columns take 80 MB


class ColumnPrediction(NamedTuple):
    """Prediction of a column given what each row shows of the others.

    Attributes:
        states: (rows, columns of the unit), the most probable state of a label, the mean of a number.
        probabilities: (rows, n_states), float64, in the order of ``Layer.values``; None for real numbers.
        method: "exact"; or "gibbs", where a row was drawn by chains.
    """

    states: Tensor
    probabilities: Tensor | None
    method: str


@torch.no_grad()
def predict(
    machine: BoltzmannMachine,
    X: Numbers,
    layer: int,
    method: str = "exact",
    *,
    unit: int | None = None,
    sweeps: int = 100,
    chains: int = 10,
    seed: int | torch.Generator = 0,
) -> Tensor:
    """Returns p(y_i | x) of every unit of a visible layer, given what is observed of the others.

    With a label for the layer and its pixels beside it, a machine is a classifier (Larochelle & Bengio 2008).

    Args:
        machine: a machine whose layer ``layer`` is visible and discrete.
        X: rows, (batch, visible_width). The columns of what is asked for are not read and may be NaN;
            elsewhere NaN is not observed, and is summed out.
        layer: index of the layer.
        method: "exact": by a sum over the hidden states where ``likelihood.HiddenStates`` takes the machine,
            else by summing out units one by one where that is less work (trees, strips, narrow lattices), and
            else by enumeration of what is left once all that can be is summed out: for one unit over
            hidden layers that no edge joins, of that unit's states alone. "gibbs": chains that hold what is
            observed, for several units and deep machines beyond enumeration; they average the units'
            conditional probabilities over the second half of their sweeps, and those of one unit, with the
            hidden units summed out where no edge joins these, over the last two thirds. "auto": "exact" of
            rows with at most 2^12 states to list, or as much work, "gibbs" of others.
        unit: one unit of the layer, given also what is observed of its other units; None: all, of which none
            is read.
        sweeps: Sweeps of every chain, at least 2.
        chains: Chains of every row, at least 1.
        seed: Source of the chains: an int or a generator.

    Returns:
        (batch, n_units, n_states), or (batch, 1, n_states) with ``unit``, float64, in the order of
        ``Layer.values``; each unit's sum to 1.

    Raises:
        ValueError: a layer that is hidden or real, X that does not fit, or too many states to enumerate.
    """
    return log_probabilities(machine, X, layer, unit, method, sweeps, chains, seed)[0].exp()


@torch.no_grad()
def log_probabilities(
    machine: BoltzmannMachine,
    X: Numbers,
    layer: int,
    unit: int | None,
    method: str = "auto",
    sweeps: int = 100,
    chains: int = 10,
    seed: int | torch.Generator = 0,
) -> tuple[Tensor, Tensor]:
    """Returns ln p of units, as ``predict`` returns p, and the rows that chains drew, (rows,) bool."""
    _checks.positive_int(sweeps, "sweeps", minimum=2)
    _checks.positive_int(chains, "chains")
    if type(layer) is not int or layer not in machine.visible:
        raise ValueError(
            f"layer: expected one of the visible layers {list(machine.visible)}, received {layer}"
        )
    hamiltonian = machine.hamiltonian().to(torch.float64)
    kind = hamiltonian.layers[layer]
    if not kind.discrete:
        raise ValueError(f"layer: expected discrete units, received {kind}")
    if unit is not None and (type(unit) is not int or unit not in range(kind.n_units)):
        raise ValueError(f"unit: expected one from 0 to {kind.n_units - 1} of {kind}, received {unit!r}")
    generator = _random.as_generator(seed, machine.device)
    asked = list(range(kind.n_units)) if unit is None else [unit]
    X = _with_unit(hamiltonian, read_rows(machine, X, "X", hamiltonian.dtype), layer, asked, torch.nan)
    machine.check_rows(X, "X", missing=True)
    drawn = _find_drawn(hamiltonian, X, layer, asked, method)
    log_p = X.new_empty(len(X), len(asked), len(kind.values()))
    listed = ~drawn
    lacking = X.isnan().sum(1) > kind.columns_per_unit
    together = listed & (lacking if hamiltonian.graph.independent else torch.ones_like(lacking))
    rows = together.nonzero().flatten()
    if len(rows) and _is_summed_together(hamiltonian, X[rows]):  # one sum serves all states of a unit
        for block_rows, posterior in posteriors(hamiltonian, X[rows]):
            for k, i in enumerate(asked):
                log_p[rows[block_rows], k] = posterior.unit_probabilities(layer, i).log()
        listed &= ~(together & log_p.isfinite().flatten(1).all(1))  # those of p = 0 are listed for ln p
    if bool(listed.any()):
        some = X[listed]
        log_p[listed] = torch.stack(
            [unit_log_weights(hamiltonian, some, layer, i).log_softmax(1) for i in asked], 1
        )
    run = _run_chains if unit is None or not hamiltonian.graph.independent else _run_summed_chains
    for some in torch.split(drawn.nonzero().flatten(), _ROWS):
        if len(some):
            log_p[some] = run(hamiltonian, X[some], layer, asked, sweeps, chains, generator)
    return log_p, drawn


@torch.no_grad()
def predict_column(
    machine: BoltzmannMachine,
    X: Tensor,
    layer: int,
    unit: int,
    method: str = "auto",
    *,
    label: bool | None = None,
    sweeps: int = 100,
    chains: int = 10,
    seed: int | torch.Generator = 0,
) -> ColumnPrediction:
    """Predicts a column of data given the rest of each row: the most probable label, or the mean of a number.

    Args:
        machine: the machine.
        X: visible states, (rows, visible_width), NaN where missing; those of the unit are not read.
        layer: index of the visible layer of the column's unit.
        unit: its number in the layer.
        method: see ``predict``; of a real column "exact" and "auto" sum over the hidden states where these
            are few, and "gibbs" is by ``impute``.
        label: whether the states of discrete units are labels; None: those of two values and one-hot ones.
        sweeps: Sweeps of every chain, at least 2.
        chains: Chains of every row, at least 1.
        seed: Source of the chains: an int or a generator.

    Raises:
        ValueError: too many states for "exact".
    """
    _checks.one_of(method, "method", PREDICT_METHODS)
    kind = machine.layers[layer]
    if kind.discrete:
        log_p, drawn = log_probabilities(machine, X, layer, unit, method, sweeps, chains, seed)
        p, values = log_p[:, 0].exp(), kind.values().to(log_p)
        if label is None:
            label = kind.two_values is not None or kind.one_hot
        states = values[p.argmax(1)] if label else p @ values
        return ColumnPrediction(states, p, "gibbs" if bool(drawn.any()) else "exact")
    if method == "exact" and not has_hidden_states(machine.graph, machine.layers):
        raise ValueError(
            'method: expected "gibbs" or "auto" for a column of real numbers, in a machine of more hidden '
            'states than can be summed, received "exact"'
        )
    X = _with_unit(machine.hamiltonian(), X.to(machine.dtype), layer, [unit], torch.nan)
    absent, encoder = unobserved(machine, X), Codec.of(machine).encoder
    done, mean = impute_cells(
        machine, encoder, X, absent, method, "mean", draws=chains, sweeps=sweeps, seed=seed
    )
    return ColumnPrediction(kind.by_unit(machine.split(mean)[layer])[:, unit].double(), None, done.method)


def _with_unit(
    hamiltonian: Hamiltonian, X: Tensor, layer: int, units: list[int], state: Tensor | float
) -> Tensor:
    """Returns visible states, (rows, visible_width), with a state in some units of a layer."""
    states = hamiltonian.split(X.clone())
    hamiltonian.layers[layer].by_unit(states[layer])[:, units] = state
    return hamiltonian.visible_states(states)


def _find_drawn(hamiltonian: Hamiltonian, X: Tensor, layer: int, asked: list[int], method: str) -> Tensor:
    """Returns the rows that a method draws by chains, (rows,) bool: by "auto" those of too many states."""
    _checks.one_of(method, "method", PREDICT_METHODS)
    if method != "auto":
        return torch.full((len(X),), method == "gibbs", device=X.device)
    if len(asked) == 1:  # whose own states do not count
        X = _with_unit(hamiltonian, X, layer, asked, hamiltonian.layers[layer].values()[0].to(X))
    return (log2_states(hamiltonian, X) > log2(MAX_HIDDEN_STATES)).to(X.device)


def _is_summed_together(hamiltonian: Hamiltonian, X: Tensor) -> bool:
    """Returns whether the distributions of all units of rows are found at once, rather than unit by unit."""
    if has_hidden_states(hamiltonian.graph, hamiltonian.layers):
        return True
    return float(log2_states(hamiltonian, X).max()) > _SHORT_LOG2_STATES and has_posterior(hamiltonian, X)


def _run_summed_chains(
    hamiltonian: Hamiltonian,
    rows: Tensor,
    layer: int,
    asked: list[int],
    sweeps: int,
    chains: int,
    generator: torch.Generator,
) -> Tensor:
    """Estimates ln p(unit = s) of one unit by the mean over draws of what rows lack, (rows, 1, n_states).

    Of each chain a sweep draws the unit given the visible rest, the hidden units given both, and what is
    missing given these: the unit, which is slow to leave beside the hidden units, is drawn with them summed
    out.
    """
    (unit,), kind, v = asked, hamiltonian.layers[layer], rows.repeat(chains, 1)
    clamped, values = hamiltonian.clamp(v, len(v)), kind.values().to(rows)
    plain = Categorical.plain(1, len(values)).to(v)
    states = list(fill_hidden(clamped, v, generator).states)
    states[layer] = states[layer].clone()
    total = v.new_full((len(v), len(values)), -torch.inf)
    for sweep in range(sweeps):
        now = unit_log_weights(hamiltonian, clamped.visible_states(states), layer, unit).log_softmax(1)
        if sweep >= sweeps // 3:
            total = torch.logaddexp(total, now)
        noise = plain.noise(now.shape, generator=generator).to(now)
        kind.by_unit(states[layer])[:, unit] = plain.sample(now, noise, plain.reference()) @ values
        for part in clamped.graph.backwards:
            if not clamped.is_clamped(part.layer):
                states[part.layer], _ = clamped.draw(part, states, generator)
    return total.view(chains, len(rows), 1, -1).logsumexp(0).log_softmax(-1)


def _run_chains(
    hamiltonian: Hamiltonian,
    rows: Tensor,
    layer: int,
    asked: list[int],
    sweeps: int,
    chains: int,
    generator: torch.Generator,
) -> Tensor:
    """Estimates ln p(unit = s) of units by chains that hold what is observed, (rows, units, n_states)."""
    kind, v = hamiltonian.layers[layer], rows.repeat(chains, 1)
    clamped = hamiltonian.clamp(v, len(v))

    def weigh(states: States) -> Tensor:
        return unit_probabilities(clamped, states, layer)

    averaged = average_chains(clamped, v, sweeps, weigh, generator)
    mean = averaged.view(chains, len(rows), kind.n_units, -1).mean(0)[:, asked]
    return (mean / mean.sum(-1, keepdim=True)).log()
