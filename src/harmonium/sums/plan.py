"""The choice, for every sum, of what is listed, summed by ψ, integrated, or summed out unit by unit.

``log_weights`` and ``expect`` take the way of least work (``unit_updates``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import inf, log2

import torch
from torch import Tensor

from harmonium.machine import Graph, Hamiltonian, States, Statistics, forbid, penalise
from harmonium.sums.elimination import Elimination
from harmonium.sums.hidden_states import HiddenStates, Posterior, has_hidden_states, nothing_seen
from harmonium.sums.limits import (
    EXPLICIT_LIMIT,
    LIMIT_TEXT,
    MAX_MISSING_STATES,
    MAX_TABLE_ENTRIES,
    STEP_UPDATES,
    WHOLE_LIMIT,
    affordable,
)
from harmonium.sums.listing import Listing, list_units
from harmonium.sums.orders import EliminationOrder, find_order

_SHORT_LOG2_STATES = 10  # that are rather listed for rows of all patterns at once than pattern by pattern
_ROWS = 1024  # beside the listed states at a time: 8 MiB for each of 1,000 columns
_PASSES = 4  # the work of distributions and draws, over that of ln Z
_PATTERNS = 256  # of missing cells whose orders are searched to tell a cost: 10 ms each for 150 units


def _plan(
    hamiltonian: Hamiltonian, v: Tensor | None, complete: bool = False, grid: bool = False
) -> Listing | Elimination:
    """Returns the sum of least work for rows, without ``HiddenStates``; refuses too much work."""
    rows = 1 if v is None else len(v)
    hamiltonian = hamiltonian.clamp(v, rows, complete)
    layers, free = (
        hamiltonian.layers,
        [l for l in range(len(hamiltonian.layers)) if not hamiltonian.is_clamped(l)],
    )
    if grid:
        check_plane(hamiltonian)
        listed, summed = tuple(l for l in free if l in hamiltonian.graph.visible), hamiltonian.graph.hidden
    else:
        sizes = {l: layers[l].log2_states * len(list_units(hamiltonian, l)) / layers[l].n_units for l in free}
        listed, summed, _ = _split(hamiltonian.graph, sizes)
    listing = Listing(hamiltonian, rows, listed, summed, grid)
    order = None if grid else _order_of(hamiltonian, rows, min(listing.unit_updates, EXPLICIT_LIMIT))
    if order is not None:
        return Elimination(hamiltonian, rows, order)
    if listing.unit_updates > EXPLICIT_LIMIT:
        received = f"at least 2^{listing.log2_states:.4g} states of {listing.columns} columns"
        raise ValueError(
            f"machine: expected layers that can be summed out beside discrete ones, in {LIMIT_TEXT}; "
            "received "
            + ("real units" if listing.log2_states == inf else received)
            + (f" for each of {rows} rows" if rows > 1 else "")
            + "; use harmonium.likelihood.ais, or make units that are not joined with each other a layer, "
            "which is summed out"
        )
    return listing


def _order_of(hamiltonian: Hamiltonian, rows: int, limit: float) -> EliminationOrder | None:
    """Returns an order that sums out what rows, all alike, lack within so many unit updates; None: none."""
    by_row = not isinstance(hamiltonian.beta, float) and hamiltonian.beta.dim() > 0
    if limit <= STEP_UPDATES or by_row or any(p.dim() > 1 for theta in hamiltonian.thetas for p in theta):
        return None
    free: dict[int, list[int]] = {}
    for l in range(len(hamiltonian.layers)):
        held = hamiltonian.mask(l)
        if held is not None and bool((held != held[0]).any()):
            return None
        units = list_units(hamiltonian, l).tolist()
        if units:
            free[l] = units
    count = sum(map(len, free.values()))
    few = limit <= STEP_UPDATES * max(1, count)
    if few or _least_bits(hamiltonian, {l: len(units) for l, units in free.items()}) > log2(
        MAX_TABLE_ENTRIES
    ):
        return None
    order = find_order(hamiltonian, free)
    return None if order is None or order.unit_updates(rows) > limit else order


def _least_bits(hamiltonian: Hamiltonian, free: Mapping[int, float]) -> float:
    """Returns a bound on log2 of the largest table of any order, from dense couplings alone.

    Args:
        hamiltonian: the machine.
        free: Number of free units by layer.
    """
    bits = {
        l: count * hamiltonian.layers[l].log2_states / hamiltonian.layers[l].n_units
        for l, count in free.items()
        if count
    }
    beside = dict.fromkeys(bits, 0.0)
    for edge, (l, m) in enumerate(hamiltonian.graph.edges):
        dense = hamiltonian.graph.patterns[edge] is None and hamiltonian.graph.joined[edge] is None
        if dense and l in bits and m in bits:
            beside[l] += bits[m] - (bits[l] / free[l] if l == m else 0.0)
            beside[m] += bits[l] if l != m else 0.0
    return min(beside.values(), default=0.0)


def check_plane(hamiltonian: Hamiltonian) -> None:
    """Refuses any machine but Gaussian visible units with one hidden layer of discrete units.

    Raises:
        ValueError: another machine.
    """
    graph, layers = hamiltonian.graph, hamiltonian.layers
    if not (graph.is_chain and len(layers) == 2 and layers[0].gaussian and layers[1].discrete):
        raise ValueError(
            "machine: expected Gaussian visible units and one hidden layer of discrete units, "
            f"received {', '.join(layer.kind for layer in layers)}"
        )


def _split(graph: Graph, log2_sizes: Mapping[int, float]) -> tuple[tuple[int, ...], tuple[int, ...], float]:
    """Splits layers into those to list and those to sum out; returns log2 of the states to list."""
    best: tuple[tuple[int, ...], tuple[int, ...], float] = (tuple(log2_sizes), (), inf)
    for summed in sorted(graph.independent_sets(log2_sizes)) or [()]:
        listed = tuple(l for l in log2_sizes if l not in summed)
        size = sum(log2_sizes[l] for l in listed)
        if size < best[2]:
            best = (listed, summed, size)
    return best


def _fewest(hamiltonian: Hamiltonian, missing: Mapping[int, float]) -> tuple[bool, float]:
    """Returns whether hidden states (``HiddenStates``) are fewest, and log2 of the states to list.

    ``missing`` has the share of the units that are missing, for every visible layer that rows lack units of.
    """
    graph, layers = hamiltonian.graph, hamiltonian.layers
    hidden = {l: layers[l].log2_states for l in graph.hidden}
    listed = _split(graph, {l: layers[l].log2_states * share for l, share in missing.items()} | hidden)[2]
    few = sum(size for l, size in hidden.items() if not layers[l].gaussian)  # Gaussian ones are integrated
    table = few if has_hidden_states(graph, layers) else inf
    return table <= listed and table < inf, min(table, listed)


def _lacked(hamiltonian: Hamiltonian, v: Tensor | None) -> dict[int, float]:
    """Returns the visible layers that some of the rows lack entries of; all of them without rows."""
    lacking = (
        [True] * len(hamiltonian.graph.visible) if v is None else hamiltonian.unobserved(v).any(0).tolist()
    )
    return {l: 1.0 for l, lacks in zip(hamiltonian.graph.visible, lacking, strict=True) if lacks}


def lists_hidden_states(hamiltonian: Hamiltonian, v: Tensor | None, complete: bool = False) -> bool:
    """Returns whether hidden states (``HiddenStates``) are fewest for rows, as ``expect`` takes them."""
    return _fewest(hamiltonian, {} if complete else _lacked(hamiltonian, v))[0]


def log2_states(hamiltonian: Hamiltonian, v: Tensor | None = None) -> Tensor:
    """Returns log2 of the states that are listed for every row, (rows,) on the CPU.

    Where units are summed out one by one, it is of as many states as take the same work.

    Args:
        hamiltonian: the machine.
        v: (rows, visible_width), NaN where not observed; None: one row that shows nothing.

    Returns:
        0 where nothing is left to list, infinite where real units cannot be summed out.
    """
    layers, visible = hamiltonian.layers, hamiltonian.graph.visible
    v = nothing_seen(hamiltonian) if v is None else v
    states = hamiltonian.split(v)
    shares = [layers[l].by_unit(states[l])[..., 0].isnan().double().mean(1) for l in visible]
    patterns, which = torch.unique(torch.stack(shares, 1).cpu(), dim=0, return_inverse=True)
    shares_missing = [
        {l: share for l, share in zip(visible, row, strict=True) if share} for row in patterns.tolist()
    ]
    fewest = [_fewest(hamiltonian, missing)[1] for missing in shares_missing]
    listed = torch.tensor(fewest, dtype=torch.float64, device="cpu")[which]
    free = torch.stack(
        [share.cpu() * layers[l].n_units for l, share in zip(visible, shares, strict=True)]
    ).sum(0)
    free += sum(layers[l].n_units for l in hamiltonian.graph.hidden)
    columns = sum(layer.width for layer in layers)
    dear = ((free > 0) & (columns * listed.exp2() > STEP_UPDATES * free)).nonzero().flatten()
    if not len(dear):
        return listed
    for rows in same_rows(v[dear].isnan())[:_PATTERNS]:
        alike = dear[rows.cpu()]
        size = float(listed[alike[0]])
        order = _order_of(hamiltonian.clamp(v[alike[:1]], 1), 1, inf if size > 1000 else columns * 2.0**size)
        if order is not None:
            listed[alike] = log2(order.unit_updates(1) / columns)
    return listed


def unit_updates_by_row(hamiltonian: Hamiltonian, v: Tensor | None = None) -> Tensor:
    """Returns the unit updates of each row, (rows,) on the CPU, whose sum is ``unit_updates``."""
    log2_sizes = log2_states(hamiltonian, v)
    return sum(layer.width for layer in hamiltonian.layers) * torch.where(
        log2_sizes > 0, log2_sizes.exp2(), 0.0
    )


def unit_updates(hamiltonian: Hamiltonian, v: Tensor | None = None) -> float:
    """Returns the unit updates of a sum: states that are listed times columns, or entries of all tables.

    Args:
        hamiltonian: the machine.
        v: rows, (rows, visible_width), NaN where not observed, of which those cost nothing that leave nothing
            to list; None: ln Z.

    Returns:
        Unit updates over all rows, infinite where real units cannot be summed out.
    """
    return float(unit_updates_by_row(hamiltonian, v).sum())


def few_states(hamiltonian: Hamiltonian, missing: Collection[int]) -> bool:
    """Returns whether rows that lack these visible layers have at most ``MAX_MISSING_STATES`` states."""
    return _fewest(hamiltonian, dict.fromkeys(missing, 1.0))[1] <= log2(MAX_MISSING_STATES)


# Of rows that lack whatever cells
# ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def log_weights(hamiltonian: Hamiltonian, v: Tensor | None = None, *, grid: bool = False) -> Tensor:
    """Returns ln Σ exp(-E) over all that each row does not show, (rows,) float64.

    In a chain the even or the odd layers are listed, and for rows what they lack or else the hidden states.
    Where hidden states alone are fewest (``HiddenStates``), all rows go together. Elsewhere those do that
    lack entries of the same layers; where that is long, those that lack the same entries. Units are summed
    out one by one (``Elimination``) where that is less work.

    Args:
        hamiltonian: the machine, in float64 for exact answers.
        v: (rows, visible_width), NaN where not observed; None: one row that shows nothing, for ln Z.
        grid: whether Gaussian visible units are listed, on a grid; without rows.

    Returns:
        Sums, -inf where all that is left is forbidden.

    Raises:
        ValueError: a machine that a grid does not suit, or more work than ``EXPLICIT_LIMIT``.
    """
    if grid:
        return _plan(hamiltonian, None, grid=True).log_weights()
    hamiltonian, penalty = penalise(hamiltonian)
    v = nothing_seen(hamiltonian) if v is None else v
    total = torch.empty(len(v), dtype=torch.float64, device=v.device)
    over_hidden = torch.zeros(len(v), dtype=torch.bool, device=v.device)
    for rows in same_rows(hamiltonian.unobserved(v)):
        if _fewest(hamiltonian, _lacked(hamiltonian, v[rows]))[0]:
            over_hidden[rows] = True
            continue
        for part, plan in _plan_rows(hamiltonian, v, rows):
            total[part] = plan.log_weights()
    if bool(over_hidden.any()):
        total[over_hidden] = HiddenStates(hamiltonian).log_weights(v[over_hidden])
    return forbid(total, penalty)


def _plan_rows(
    hamiltonian: Hamiltonian, v: Tensor, rows: Tensor, complete: bool = False
) -> Iterator[tuple[Tensor, Listing | Elimination]]:
    """Yields rows that lack entries of the same layers, some at a time, with their sums."""
    together = complete or _fewest(hamiltonian, _lacked(hamiltonian, v[rows]))[1] <= _SHORT_LOG2_STATES
    for alike in [rows] if together else [rows[same] for same in same_rows(v[rows].isnan())]:
        plan = _plan(hamiltonian, v[alike], complete)
        for part in torch.split(alike, _ROWS if isinstance(plan, Listing) else plan.order.rows_at_once):
            yield part, plan if len(part) == len(alike) else _plan(hamiltonian, v[part], complete)


@torch.no_grad()
def unit_log_weights(hamiltonian: Hamiltonian, v: Tensor, layer: int, unit: int) -> Tensor:
    """Returns ln Σ exp(-E) of rows for every state of a discrete visible unit, (rows, n_states) float64.

    Args:
        hamiltonian: the machine.
        v: (rows, visible_width), NaN where not observed; the unit's columns are not read.
        layer: Layer of the unit.
        unit: its number in the layer.
    """
    kind, states = hamiltonian.layers[layer], hamiltonian.split(v.clone())
    kind.by_unit(states[layer])[:, unit] = torch.nan
    v = hamiltonian.visible_states(states)
    lacks = v.isnan().sum(1) > kind.width // kind.n_units
    if not hamiltonian.graph.independent:
        lacks = torch.ones_like(lacks)
    values = kind.values().to(v)
    log_sums = torch.empty(len(v), len(values), dtype=torch.float64, device=v.device)
    if not bool(lacks.all()):  # then the unit's states alone are listed, and what others send up is made once
        rows = int((~lacks).sum())
        alone, split = kind.n_units == 1, hamiltonian.split(v[~lacks])
        observed = {l: split[l] for l in hamiltonian.graph.visible if l != layer or not alone}
        clamped = hamiltonian.clamp(observed, rows, checked=alone)
        log_sums[~lacks] = Listing(clamped, rows, [layer], hamiltonian.graph.hidden).by_state()
    if bool(lacks.any()):
        states = hamiltonian.split(v[lacks])
        for i, value in enumerate(values):
            kind.by_unit(states[layer])[:, unit] = value
            log_sums[lacks, i] = log_weights(hamiltonian, hamiltonian.visible_states(states))
    return log_sums


@torch.no_grad()
def expect(
    hamiltonian: Hamiltonian,
    into: Statistics,
    weight: float | Tensor,
    v: Tensor | None = None,
    *,
    complete: bool = False,
    grid: bool = False,
) -> None:
    """Adds weight · E[S], or with v the sum over its rows of weight · E[S | v_row].

    Args:
        hamiltonian: the machine, in float64 for exact answers.
        into: where to add.
        weight: Weight of every row, a number or (rows,).
        v: (rows, visible_width), NaN where not observed; None: one row that shows nothing.
        complete: whether the rows are known to be observed throughout, and checked.
        grid: see ``log_weights``; rows that lack the same units are then integrated together.

    Raises:
        ValueError: as ``log_weights``.
    """
    by_hidden, size = _fewest(hamiltonian, {} if complete else _lacked(hamiltonian, v))
    if not grid and by_hidden:
        HiddenStates(hamiltonian).expect(into, weight, v)
    elif v is None or (not grid and size <= _SHORT_LOG2_STATES):
        _plan(hamiltonian, v, complete, grid).expect(into, weight)
    elif not grid:
        groups = [torch.arange(len(v), device=v.device)] if complete else same_rows(hamiltonian.unobserved(v))
        for rows in groups:
            for part, plan in _plan_rows(hamiltonian, v, rows, complete):
                plan.expect(into, weight[part] if isinstance(weight, Tensor) else weight)
    else:
        for rows in same_rows(v.isnan()):
            row_weights = weight[rows] if isinstance(weight, Tensor) else weight
            _plan(hamiltonian, v[rows], grid=True).expect(into, row_weights)


@torch.no_grad()
def has_posterior(hamiltonian: Hamiltonian, v: Tensor | None = None) -> bool:
    """Returns whether "auto" takes ``posteriors``, rather than chains, for rows; None: of whole states.

    They exist where hidden states are few (``HiddenStates``), or where units can be summed out one by one.
    Whole states are drawn so wherever ln Z is, up to ``WHOLE_LIMIT``.
    """
    if has_hidden_states(hamiltonian.graph, hamiltonian.layers):
        return True
    if v is None:
        return _order_of(hamiltonian, 1, WHOLE_LIMIT) is not None
    patterns = torch.unique(v.isnan(), dim=0)
    lacking, free = (
        hamiltonian.split(patterns),
        len(patterns) * sum(hamiltonian.layers[l].n_units for l in hamiltonian.graph.hidden),
    )
    free += sum(
        int(lacking[l][:, :: hamiltonian.layers[l].columns_per_unit].sum()) for l in hamiltonian.graph.visible
    )
    if not affordable(_PASSES * STEP_UPDATES * free):  # a bound, before any order is searched
        return False
    cost = 0.0
    for alike, first, order in _orders_by_pattern(hamiltonian, v):
        number = 1 if first.held is None else len(alike)
        cost += inf if order is None else _PASSES * order.unit_updates(number)
        if not affordable(cost):
            return False
    return True


def _orders_by_pattern(
    hamiltonian: Hamiltonian, v: Tensor
) -> Iterator[tuple[Tensor, Hamiltonian, EliminationOrder | None]]:
    """Yields rows that lack the same, the machine with what the first of them shows, and an order."""
    for alike in same_rows(v.isnan()):
        clamped = hamiltonian.clamp(v[alike[:1]], 1)
        rows = 1 if clamped.held is None else len(alike)  # one table serves all that show nothing
        yield alike, clamped, _order_of(clamped, rows, EXPLICIT_LIMIT)


@torch.no_grad()
def posteriors(hamiltonian: Hamiltonian, v: Tensor) -> Iterator[tuple[Tensor, Posterior | Elimination]]:
    """Yields rows, some at a time, with the distribution of hidden units and of what they lack.

    Args:
        hamiltonian: the machine, in float64 for exact answers.
        v: (rows, visible_width), NaN where not observed.

    Raises:
        ValueError: too many hidden states, and units that cannot be summed out one by one in
            ``EXPLICIT_LIMIT``.
    """
    every = torch.arange(len(v), device=v.device)
    if has_hidden_states(hamiltonian.graph, hamiltonian.layers):
        for place, posterior in HiddenStates(hamiltonian).blocks(v):
            yield every[place], posterior
        return
    for alike, first, order in _orders_by_pattern(hamiltonian, v):
        if order is None:
            HiddenStates(hamiltonian)  # refuses the machine
            raise AssertionError("has_hidden_states and HiddenStates differ")
        for rows in torch.split(alike, len(alike) if first.held is None else order.rows_at_once):
            yield rows, Elimination(hamiltonian.clamp(v[rows], len(rows)), len(rows), order)


@torch.no_grad()
def find_mode(hamiltonian: Hamiltonian, limit: float = EXPLICIT_LIMIT) -> States | None:
    """Returns a state of the highest probability, for each layer (1, width_l).

    Args:
        hamiltonian: the machine, of discrete units, in float64 for exact answers.
        limit: unit updates, at most; None is returned where summing out units one by one takes more.
    """
    order = _order_of(hamiltonian, 1, limit)
    return None if order is None else Elimination(penalise(hamiltonian)[0], 1, order).modes()


def same_rows(patterns: Tensor) -> list[Tensor]:
    """Returns the indices of rows that are equal, for each row that there is."""
    which = torch.unique(patterns, dim=0, return_inverse=True)[1]
    return [(which == i).nonzero().flatten() for i in which.unique()]
