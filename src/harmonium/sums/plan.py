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
from harmonium.sums.joined_gaussians import find_patterns
from harmonium.sums.limits import (
    EXPLICIT_LIMIT,
    LIMIT_TEXT,
    MAX_MISSING_STATES,
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


def _plan(hamiltonian: Hamiltonian, v: Tensor, complete: bool, grid: bool) -> Listing | Elimination:
    """Returns the sum of least work for rows, without ``HiddenStates``; refuses too much work."""
    hamiltonian, rows = hamiltonian.clamp(v, len(v), complete), len(v)
    layers, graph = hamiltonian.layers, hamiltonian.graph
    free = [l for l in range(len(layers)) if not hamiltonian.is_clamped(l)]
    if grid:
        if not (graph.is_chain and len(layers) == 2 and layers[0].gaussian and layers[1].discrete):
            raise ValueError(
                "machine: expected Gaussian visible units and one hidden layer of discrete units, "
                f"received {', '.join(layer.kind for layer in layers)}"
            )
        listed, summed = tuple(l for l in free if l in graph.visible), graph.hidden
    else:
        sizes = {l: layers[l].log2_states * len(list_units(hamiltonian, l)) / layers[l].n_units for l in free}
        listed, summed, _ = _split(graph, sizes)
    listing = Listing(hamiltonian, rows, listed, summed, grid)
    order = None if grid else _order_of(hamiltonian, rows, min(listing.unit_updates, EXPLICIT_LIMIT))
    if order is not None:
        return Elimination(hamiltonian, rows, order)
    if listing.unit_updates > EXPLICIT_LIMIT:
        received = f"at least 2^{listing.log2_states:.4g} states of {listing.columns} columns"
        raise ValueError(
            f"machine: expected layers that can be summed out beside discrete ones, in {LIMIT_TEXT}; "
            f"received {'real units' if listing.log2_states == inf else received}"
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
    if limit <= STEP_UPDATES * sum(map(len, free.values())):
        return None
    order = find_order(hamiltonian, free)
    return None if order is None or order.unit_updates(rows) > limit else order


def _split(graph: Graph, log2_sizes: Mapping[int, float]) -> tuple[tuple[int, ...], tuple[int, ...], float]:
    """Splits layers into those to list and those to sum out; returns log2 of the states to list."""
    splits = []
    for summed in sorted(graph.independent_sets(log2_sizes)) or [()]:
        listed = tuple(l for l in log2_sizes if l not in summed)
        splits.append((listed, summed, sum(log2_sizes[l] for l in listed)))
    return min(splits, key=lambda split: split[2])


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
    visible = hamiltonian.graph.visible
    lacking = [True] * len(visible) if v is None else hamiltonian.unobserved(v).any(0).tolist()
    return {l: 1.0 for l, lacks in zip(visible, lacking, strict=True) if lacks}


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
    v = nothing_seen(hamiltonian) if v is None else v
    shares, free = _count_free(hamiltonian, v)
    patterns, which = torch.unique(shares, dim=0, return_inverse=True)
    fewest = []
    for row in patterns.tolist():
        missing = {l: share for l, share in zip(hamiltonian.graph.visible, row, strict=True) if share}
        fewest.append(_fewest(hamiltonian, missing)[1])
    listed = torch.tensor(fewest, dtype=torch.float64, device="cpu")[which]
    columns = sum(layer.width for layer in hamiltonian.layers)
    dear = ((free > 0) & (columns * listed.exp2() > STEP_UPDATES * free)).nonzero().flatten()
    for rows in same_rows(v[dear].isnan())[:_PATTERNS] if len(dear) else ():
        alike = dear[rows.cpu()]
        size = float(listed[alike[0]])
        order = _order_of(hamiltonian.clamp(v[alike[:1]], 1), 1, inf if size > 1000 else columns * 2.0**size)
        if order is not None:
            listed[alike] = log2(order.unit_updates(1) / columns)
    return listed


def _count_free(hamiltonian: Hamiltonian, v: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the share of units that rows lack of each visible layer, and how many units of all, (rows,)."""
    layers, graph, states = hamiltonian.layers, hamiltonian.graph, hamiltonian.split(v)
    lacking = [layers[l].by_unit(states[l])[..., 0].isnan().double().cpu() for l in graph.visible]
    hidden = sum(layers[l].n_units for l in graph.hidden)
    return torch.stack([x.mean(1) for x in lacking], 1), hidden + torch.cat(lacking, 1).sum(1)


def unit_updates(hamiltonian: Hamiltonian, v: Tensor | None = None) -> float:
    """Returns the unit updates of a sum: states that are listed times columns, or entries of all tables.

    Args:
        hamiltonian: the machine.
        v: rows, (rows, visible_width), NaN where not observed, of which those cost nothing that leave nothing
            to list; None: ln Z.

    Returns:
        Unit updates over all rows, infinite where real units cannot be summed out.
    """
    log2_sizes, columns = log2_states(hamiltonian, v), sum(layer.width for layer in hamiltonian.layers)
    return columns * float(log2_sizes[log2_sizes > 0].exp2().sum())


def few_states(hamiltonian: Hamiltonian, missing: Collection[int]) -> bool:
    """Returns whether rows that lack these visible layers have at most ``MAX_MISSING_STATES`` states."""
    return _fewest(hamiltonian, dict.fromkeys(missing, 1.0))[1] <= log2(MAX_MISSING_STATES)


# The questions, of rows that lack whatever cells
# ----------------------------------------------------------------------------------------------------------


def _sums(
    hamiltonian: Hamiltonian, v: Tensor | None, complete: bool, grid: bool
) -> Iterator[tuple[Tensor, Posterior | Listing | Elimination]]:
    """Yields indices of rows with the sum of least work over what these rows do not show.

    In a chain the even or the odd layers are listed, and for rows what they lack or else the hidden states.
    Where hidden states alone are fewest (``HiddenStates``), all rows go together. Elsewhere those do that
    lack entries of the same layers; where that is long, those that lack the same entries. Units are summed
    out one by one (``Elimination``) where that is less work.
    """
    v, by_hidden = nothing_seen(hamiltonian) if v is None else v, []
    every = torch.arange(len(v), device=v.device)
    for rows in [every] if complete else same_rows(v.isnan() if grid else hamiltonian.unobserved(v)):
        few, size = _fewest(hamiltonian, {} if complete else _lacked(hamiltonian, v[rows]))
        if few and not grid:
            by_hidden.append(rows)
            continue
        together = complete or grid or size <= _SHORT_LOG2_STATES
        for alike in [rows] if together else [rows[same] for same in same_rows(v[rows].isnan())]:
            plan = _plan(hamiltonian, v[alike], complete, grid)
            for part in torch.split(alike, _ROWS if isinstance(plan, Listing) else plan.order.rows_at_once):
                whole = len(part) == len(alike)
                yield part, plan if whole else _plan(hamiltonian, v[part], complete, grid)
    if by_hidden:
        rows = torch.cat(by_hidden)
        for some, posterior in HiddenStates(hamiltonian).blocks(v[rows]):
            yield rows[some], posterior


@torch.no_grad()
def log_weights(hamiltonian: Hamiltonian, v: Tensor | None = None, *, grid: bool = False) -> Tensor:
    """Returns ln Σ exp(-E) over all that each row does not show, (rows,) float64.

    Args:
        hamiltonian: the machine, in float64 for exact answers.
        v: (rows, visible_width), NaN where not observed; None: one row that shows nothing, for ln Z.
        grid: whether Gaussian visible units are listed, on a grid; without rows.

    Returns:
        Sums, -inf where all that is left is forbidden.

    Raises:
        ValueError: a machine that a grid does not suit, or more work than ``EXPLICIT_LIMIT``.
    """
    hamiltonian, penalty = penalise(hamiltonian)
    total = torch.empty(1 if v is None else len(v), dtype=torch.float64, device=hamiltonian.device)
    for rows, sums in _sums(hamiltonian, v, False, grid):
        total[rows] = sums.log_weights
    return forbid(total, penalty)


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
    lacks = v.isnan().sum(1) > kind.columns_per_unit
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
    for rows, sums in _sums(hamiltonian, v, complete, grid):
        sums.expect(into, weight[rows] if isinstance(weight, Tensor) else weight)


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
    cost = 0.0
    for _, rows, order in _orders_by_pattern(hamiltonian, v):
        cost += inf if order is None else _PASSES * order.unit_updates(rows)
        if not affordable(cost):  # so that no further order is searched
            return False
    return True


def _orders_by_pattern(
    hamiltonian: Hamiltonian, v: Tensor
) -> Iterator[tuple[Tensor, int, EliminationOrder | None]]:
    """Yields rows that lack the same, how many tables they need, and an order for them."""
    for alike in same_rows(v.isnan()):
        clamped = hamiltonian.clamp(v[alike[:1]], 1)
        rows = 1 if clamped.held is None else len(alike)  # one table serves all that show nothing
        yield alike, rows, _order_of(clamped, rows, EXPLICIT_LIMIT)


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
        for some, posterior in HiddenStates(hamiltonian).blocks(v):
            yield every[some], posterior
        return
    for alike, number, order in _orders_by_pattern(hamiltonian, v):
        if order is None:
            HiddenStates(hamiltonian)  # refuses the machine
            raise AssertionError("has_hidden_states and HiddenStates differ")
        for rows in torch.split(alike, len(alike) if number == 1 else order.rows_at_once):
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


def same_rows(marks: Tensor) -> list[Tensor]:
    """Returns the indices of rows with the same marks, for each pattern that there is."""
    which = find_patterns(marks)[1]
    return list(torch.split(which.argsort(stable=True), which.bincount().tolist()))
