"""Exact answers by enumeration of the fewest states: of some layers, the others summed out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf, log2, prod

import torch
from torch import Tensor

from harmonium import _device
from harmonium._checks import Numbers
from harmonium.layers import Layer
from harmonium.likelihood.hidden_states import HiddenStates, has_hidden_states
from harmonium.machine import BoltzmannMachine, Graph, Hamiltonian, States, Statistics

MAX_LOG2_STATES = 26
FEW_STATES = 256
"""States at most that sampled rules enumerate for every row in place of drawing what it does not observe."""
_SHORT_LOG2_STATES = 10  # that are rather enumerated for many rows at once than for those alike
_BLOCK_ELEMENTS = 1 << 21  # float64 numbers in the largest array of a block: 16 MiB


@torch.no_grad()
def exact_log_partition(machine: BoltzmannMachine) -> float:
    """Returns ln Z in float64: some layers are summed out with ψ, the states of the others enumerated.

    Args:
        machine: the layers that are left to enumerate must be discrete, with at most 2^26 joint states; what
            is summed out is chosen so that they are fewest (in a chain the even or the odd layers). Gaussian
            visible layers that edges join are summed out beside at most 4096 hidden states
            (``HiddenStates``).

    Returns:
        ln Z of exp(-E), with E as in ``BoltzmannMachine.energy``.

    Raises:
        ValueError: too many states, or real units that cannot be summed out.

    Examples:
        >>> from math import log
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3)], seed=0)
        >>> abs(hm.likelihood.exact_log_partition(machine) - 7 * log(2)) < 0.1  # weak couplings, 2^7 states
        True
    """
    return float(_log_partition_of(machine.hamiltonian().to(torch.float64)))


@torch.no_grad()
def exact_log_likelihood(machine: BoltzmannMachine, X: Numbers) -> Tensor:
    """Returns ln p(v) of every row by enumeration, on any graph: (batch,), float64.

    Args:
        machine: see ``exact_log_partition``.
        X: visible states, (batch, visible_width); NaN is not observed, and is summed out.
    """
    hamiltonian = machine.hamiltonian().to(torch.float64)
    rows = machine.visible_rows(X, "X", missing=True, dtype=hamiltonian.dtype)
    return log_weight_of(hamiltonian, rows) - _log_partition_of(hamiltonian)


@torch.no_grad()
def conditional_log_likelihood(machine: BoltzmannMachine, X: Numbers, condition_on: Iterable[int]) -> Tensor:
    """Returns ln p(other visible layers | given layers) of every row by enumeration: (batch,), float64.

    ln Z cancels. With the pixels given it is what a classifier is judged by (Larochelle & Bengio 2008).

    Args:
        machine: hidden layers, and the layers that are not given, as in ``exact_log_partition``; the given
            ones are not enumerated.
        X: visible states, (batch, visible_width); NaN is not observed, and is summed out on both sides.
        condition_on: visible layers, not all of them.

    Raises:
        ValueError: layers that cannot be given, too many states, or X that does not fit.
    """
    hamiltonian = machine.hamiltonian().to(torch.float64)
    layers = machine.check_condition(condition_on)
    rows = machine.visible_rows(X, "X", missing=True, dtype=hamiltonian.dtype)
    return log_weight_of(hamiltonian, rows) - log_weight_of(
        hamiltonian, hamiltonian.observe_only(layers, rows)
    )


def log_weight_of(hamiltonian: Hamiltonian, v: Tensor) -> Tensor:
    """Returns ln Σ exp(-E) over all that a row does not observe, (rows,); see ``exact_log_likelihood``.

    Where hidden states are fewest, all rows go together. Elsewhere those do that lack entries of the same
    layers, so that a layer is enumerated for those alone that do not observe it; where that is long, rows
    that lack the same entries, so that these alone are.
    """
    total = torch.empty(len(v), dtype=torch.float64, device=v.device)
    over_hidden = torch.zeros(len(v), dtype=torch.bool, device=v.device)
    for rows in same_rows(hamiltonian.unobserved(v)):
        free = _list_free_layers(hamiltonian, v[rows])
        if _hidden_are_fewest(hamiltonian, free):
            over_hidden[rows] = True
            continue
        short = log2_states(hamiltonian.graph, hamiltonian.layers, free) <= _SHORT_LOG2_STATES
        for part in [rows] if short else [rows[same] for same in same_rows(v[rows].isnan())]:
            total[part] = _normalise(hamiltonian.clamp(v[part], len(part)), len(part))
    if bool(over_hidden.any()):
        total[over_hidden] = HiddenStates(hamiltonian).weigh(v[over_hidden])
    return total


def _log_partition_of(hamiltonian: Hamiltonian) -> Tensor:
    """Returns ln Z, (), float64."""
    nothing = hamiltonian.thetas[0][0].new_full((1, hamiltonian.visible_width), torch.nan)
    return log_weight_of(hamiltonian, nothing)[0]


def _list_free_layers(hamiltonian: Hamiltonian, v: Tensor | None) -> list[int]:
    """Returns the layers that some of the rows do not observe as a whole; all of them without rows."""
    graph = hamiltonian.graph
    if v is None:
        return list(range(graph.size))
    lacking = hamiltonian.unobserved(v).any(0).tolist()
    return [*graph.hidden, *(l for l, lacks in zip(graph.visible, lacking, strict=True) if lacks)]


def _hidden_are_fewest(hamiltonian: Hamiltonian, free: Collection[int]) -> bool:
    """Returns whether the hidden states are to be enumerated for these free layers, by ``HiddenStates``."""
    graph, layers = hamiltonian.graph, hamiltonian.layers
    if not has_hidden_states(graph, layers) or not set(graph.hidden) <= set(free):
        return False
    hidden = sum(layers[l].log2_states for l in graph.hidden)
    return hidden <= _split(graph, {l: layers[l].log2_states for l in free})[2]


def log2_states_of(hamiltonian: Hamiltonian, v: Tensor) -> Tensor:
    """Returns log2 of the states that ``log_weight_of`` enumerates for every row, (rows,) on the CPU.

    Infinite where real units cannot be summed out.
    """
    layers, graph = hamiltonian.layers, hamiltonian.graph
    seen = hamiltonian.split(v)
    lacked = [layers[l].by_unit(seen[l])[..., 0].isnan().sum(1) for l in graph.visible]
    counts, which = torch.unique(torch.stack(lacked, 1).cpu(), dim=0, return_inverse=True)
    hidden = {l: layers[l].log2_states for l in graph.hidden}
    each = []
    for row in counts.tolist():
        some = {l: n / layers[l].n_units for l, n in zip(graph.visible, row, strict=True) if n}
        sizes = {l: layers[l].log2_states * share for l, share in some.items()}
        each.append(_count_fewest(graph, layers, sizes | hidden))
    return torch.tensor(each, dtype=torch.float64, device="cpu")[which]


def same_rows(patterns: Tensor) -> list[Tensor]:
    """Returns the indices of rows that are equal, for each row that there is."""
    which = torch.unique(patterns, dim=0, return_inverse=True)[1]
    return [(which == i).nonzero().flatten() for i in which.unique()]


def few_states(hamiltonian: Hamiltonian, free: Collection[int]) -> bool:
    """Returns whether an enumeration of the free layers has at most ``FEW_STATES`` states."""
    return log2_states(hamiltonian.graph, hamiltonian.layers, free) <= log2(FEW_STATES)


def log2_states(graph: Graph, layers: Sequence[Layer], free: Collection[int]) -> float:
    """Returns log2 of the number of states to enumerate for the free layers, after layers are summed out."""
    return _count_fewest(graph, layers, {l: layers[l].log2_states for l in free})


@torch.no_grad()
def add_exact_expectation(
    hamiltonian: Hamiltonian,
    into: Statistics,
    weight: float | Tensor,
    v: Tensor | None = None,
    complete: bool = False,
    roots: Mapping[int, Tensor] | None = None,
) -> None:
    """Adds weight · E[S], or with v the sum over its rows of weight · E[S | v_row], by enumeration.

    Args:
        hamiltonian: the machine, in float64 for exact answers.
        into: where to add.
        weight: the weight of every row, a number or (rows,).
        v: visible states (rows, visible_width) to clamp, NaN where not observed; None for the free machine.
        complete: whether v is known to be observed throughout, and checked.
        roots: of columns of v, see ``HiddenStates``; the sum is then over hidden states.
    """
    free = hamiltonian.graph.hidden if complete else _list_free_layers(hamiltonian, v)
    if roots or _hidden_are_fewest(hamiltonian, free):
        HiddenStates(hamiltonian, roots).add_expectation(into, weight, v)
        return
    rows = 1 if v is None else len(v)
    law = hamiltonian.clamp(v, rows, complete)
    normalisers = _normalise(law, rows)
    for block, states, fields in _iterate_blocks(law, rows):
        probability = (_weigh(block, states, fields).view(rows, -1) - normalisers.unsqueeze(-1)).exp()
        probability *= weight.unsqueeze(-1) if isinstance(weight, Tensor) else weight
        into.add(block, states, probability.flatten(), summed=fields, fields=fields)


def _normalise(law: Hamiltonian, rows: int) -> Tensor:
    """Returns ln Σ exp(-E) over all that a row does not hold, (rows,)."""
    total = torch.full((rows,), -inf, dtype=torch.float64, device=law.device)
    for block, states, fields in _iterate_blocks(law, rows):
        log_weights = _weigh(block, states, fields).view(rows, -1)
        total = torch.logaddexp(total, log_weights.logsumexp(-1))
    return total


def _weigh(block: Hamiltonian, states: States, fields: dict[int, Tensor]) -> Tensor:
    """Returns -F of every row, -inf where an enumerated state contradicts what is held."""
    log_weights = -block.free_energy(states, fields, fields)
    for l in range(len(states)):
        agrees = None if l in fields or block.held is None else block.held.agrees(l, states[l])
        if agrees is not None:
            log_weights = torch.where(agrees, log_weights, -inf)
    return log_weights


def _split(graph: Graph, log2_sizes: Mapping[int, float]) -> tuple[tuple[int, ...], tuple[int, ...], float]:
    """Splits layers into those to enumerate and those to sum out; returns log2 of the states to enumerate."""
    best: tuple[tuple[int, ...], tuple[int, ...], float] = ((), (), inf)
    for summed in sorted(graph.independent_sets(log2_sizes)) or [()]:
        enumerated = tuple(l for l in log2_sizes if l not in summed)
        size = sum(log2_sizes[l] for l in enumerated)
        if size < best[2]:
            best = (enumerated, summed, size)
    return best


def _count_fewest(graph: Graph, layers: Sequence[Layer], log2_sizes: Mapping[int, float]) -> float:
    """Returns log2 of the fewest states to enumerate, over layers of these sizes or over hidden states."""
    fewest = _split(graph, log2_sizes)[2]
    if set(graph.hidden) <= set(log2_sizes) and has_hidden_states(graph, layers):
        fewest = min(fewest, sum(layers[l].log2_states for l in graph.hidden))
    return fewest


def _iterate_blocks(law: Hamiltonian, rows: int) -> Iterator[tuple[Hamiltonian, States, dict[int, Tensor]]]:
    """Yields all states of the layers to enumerate beside every held row, row-major; the others empty.

    Of a layer of which all rows hold the same units the others alone are enumerated. Each block comes with
    the law of its rows and the fields of the layers to sum out.
    """
    layers = law.layers
    free = {l: _list_free_units(law, l) for l in range(len(layers)) if not law.is_clamped(l)}
    sizes = {l: layers[l].log2_states * len(units) / layers[l].n_units for l, units in free.items()}
    enumerated, summed, states_left = _split(law.graph, sizes)
    if states_left > MAX_LOG2_STATES:
        raise ValueError(
            "machine: expected layers that can be summed out beside discrete ones with at most "
            f"2^{MAX_LOG2_STATES} joint states, received "
            + ("real units" if states_left == inf else f"at least 2^{states_left:.4g} states")
            + "; use harmonium.likelihood.ais, or make units that are not joined with each other a layer, "
            "which is summed out"
        )
    radices = [n for l in enumerated for n in [layers[l].n_states or 0] * len(free[l])]
    count = prod(radices)
    widest = max(layer.width for layer in layers)
    size = max(1, _BLOCK_ELEMENTS // (widest * rows))
    radix = _device.to_device(torch.tensor(radices, dtype=torch.int64), law.device)
    stride = radix.flip(0).cumprod(0).flip(0).div(radix, rounding_mode="floor") if radices else radix
    empty = torch.empty(rows, 0, dtype=law.dtype, device=law.device)
    # What is held weighs alike on all states of the others: its part of the fields is made once for a row.
    held = [l for l in range(len(layers)) if law.is_clamped(l)]
    observed = [law.apply_clamp(l, empty) if law.is_clamped(l) else empty for l in range(len(layers))]
    heard = {l: law.field(l, observed, held) for l in summed} if held else {}
    for start in range(0, count, size):
        index = torch.arange(start, min(start + size, count), device=law.device)
        empty = torch.empty(rows * len(index), 0, dtype=law.dtype, device=law.device)
        digits = index.unsqueeze(-1).div(stride, rounding_mode="floor").remainder_(radix)
        row = torch.arange(rows, device=law.device).repeat_interleave(len(index))
        block = law.select_rows(row)
        states = [block.apply_clamp(l, empty) if block.is_clamped(l) else empty for l in range(len(layers))]
        first = 0
        for l in enumerated:
            own = digits.new_zeros(len(digits), layers[l].n_units)
            own[:, free[l]] = digits[:, first : first + len(free[l])]
            states[l] = layers[l].from_digits(own).to(law.dtype).repeat(rows, 1)
            if len(free[l]) < layers[l].n_units:
                states[l] = block.apply_clamp(l, states[l])
            first += len(free[l])
        fields = {l: block.field(l, states, enumerated) for l in summed}
        yield block, states, {l: B + heard[l][row] if held else B for l, B in fields.items()}


def _list_free_units(law: Hamiltonian, l: int) -> Tensor:
    """Returns the units of a layer that not all rows hold, or all of them where the rows differ."""
    layer, held = law.layers[l], law.mask(l)
    units = torch.arange(layer.n_units, device=law.device)
    if held is None or bool((held != held[0]).any()):
        return units
    return units[~layer.by_unit(held[0])[:, 0]]
