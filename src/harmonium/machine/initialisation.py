"""Kinds of units by name, visible and hidden layers joined to a machine, and initial parameters.

Functions whose names end in an underscore fill parameters in place and return nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import combinations_with_replacement
from typing import Any

import torch
from torch import Tensor, nn

from harmonium import _checks, _random
from harmonium._rows import Moments, Rows
from harmonium.layers import Layer, Theta
from harmonium.machine.boltzmann import BoltzmannMachine

_SEEN = 1024  # rows that tell how far a hidden unit's field varies
# Of a Gaussian unit's variance in the data: what it keeps for itself, and at most what hidden units explain.
_OWN, _EXPLAINED = 0.25, 0.25
# Many hidden units a visible one add up to a Gaussian, the saddle again, unless their own variance falls too.
_CROWDED = 4.0  # times visible over hidden units bounds the fraction kept
# Deviation of a hidden unit's field over the rows, in inverse deviations of the unit: 1 for 0/1 units.
_SLOPE = 0.5


def hidden_for(kind: str, sizes: Sequence[int], n_states: int = 2, name: str = "hidden_kind") -> list[Layer]:
    """Returns hidden layers of one kind.

    Args:
        kind: a name in ``Layer.registry``.
        sizes: units of each layer.
        n_states: states of each unit, for kinds that may have any number.
        name: what to call the kind in messages.

    Raises:
        ValueError: an unknown kind, or a size or number of states out of range.
    """
    cls = Layer.registry[_checks.one_of(kind, name, Layer.registry)]
    return [cls.plain(size, n_states) for size in sizes]


def join_layers(
    visible: Sequence[Layer], hidden: Sequence[Layer], seed: int | torch.Generator = 0
) -> BoltzmannMachine:
    """Returns a machine whose visible layers are all joined to the first of a chain of hidden layers.

    Without hidden layers all visible units are joined to each other: an Ising or a Potts model.

    Args:
        visible: at least one, the columns of the data side by side.
        hidden: from the lowest up; none: the visible layers have to be discrete.
        seed: Seed of the first couplings, see ``BoltzmannMachine``.

    Raises:
        ValueError: no hidden layer, and real units or a single one.
    """
    if not hidden:
        if not all(layer.discrete for layer in visible):
            raise ValueError("hidden: expected hidden units beside real columns, received none")
        every = combinations_with_replacement(range(len(visible)), 2)
        pairs = [(l, m) for l, m in every if l != m or visible[l].n_units > 1]
        return BoltzmannMachine(visible, edges=pairs, visible=range(len(visible)), seed=seed)
    count, total = len(visible), len(visible) + len(hidden)
    edges = [(l, max(l + 1, count)) for l in range(total - 1)]
    return BoltzmannMachine([*visible, *hidden], edges=edges, visible=range(count), seed=seed)


@torch.no_grad()
def normal_(machine: BoltzmannMachine, std: float, seed: int | torch.Generator = 0) -> None:
    """Draws couplings W ~ N(0, std²), within the pattern of each."""
    _checks.real(std, "std", low=0.0)
    generator = _random.as_generator(seed, machine.device)
    for coupling in machine.couplings:
        coupling.draw_(std, generator)


@torch.no_grad()
def orthogonal_(machine: BoltzmannMachine, gain: float, seed: int | torch.Generator = 0) -> None:
    """Draws couplings with orthogonal rows or columns of norm ``gain`` (Taniguchi et al. 2023).

    Entries outside the pattern of a coupling are then set to 0, and filters to the mean of their copies, in
    units of its deviation.

    Raises:
        ValueError: couplings stored by pair, which are no matrix.
    """
    _checks.real(gain, "gain", low=0.0)
    for edge, coupling in zip(machine.edges, machine.couplings, strict=True):
        if coupling.weight.ndim != 2:
            raise ValueError(
                f"machine: expected couplings stored as matrices, received {coupling} of layers {edge}; "
                "normal_ draws those stored by pair"
            )
    generator = _random.as_generator(seed, machine.device)
    for coupling in machine.couplings:
        values = torch.empty_like(coupling.weight)
        nn.init.orthogonal_(values, gain=gain, generator=generator)
        coupling.weight.copy_(coupling.within(values) * coupling.copies**0.5)


@torch.no_grad()
def logistic_biases_(
    machine: BoltzmannMachine, seed: int | torch.Generator = 0, location: float = 0.0, scale: float = 0.5
) -> None:
    """Draws biases (means, for Gaussian layers) from Logistic(location, scale) (Taniguchi et al. 2023)."""
    _checks.real(location, "location")
    _checks.real(scale, "scale", low=0.0)
    generator = _random.as_generator(seed, machine.device)
    for layer in machine.layers:
        parameter = getattr(layer, layer.location)
        noise = _random.uniform(parameter.shape, generator, torch.float64)
        tiny = torch.finfo(torch.float64).tiny
        parameter.copy_(location + scale * torch.logit(noise.clamp(min=tiny)))


INITS = {
    "normal": "couplings N(0, initial_std²)",
    "orthogonal": "orthogonal rows or columns of couplings, of norm 1",
    "logistic": "biases of all layers from Logistic(0, 0.5)",
    "data": "visible biases by the data",
}
"""Describes each start by its name, in the order in which they act."""


def read_init(init: str) -> set[str]:
    """Returns the names in a start such as "orthogonal,logistic", in any order.

    Raises:
        TypeError, ValueError: an unknown name, one given twice, or two for the couplings.
    """
    _checks.instance(init, "init", str, 'names such as "orthogonal,logistic"')
    names = [name.strip() for name in init.split(",")]
    for name in names:
        _checks.one_of(name, "init", INITS)
    if len({*names}) < len(names):
        raise ValueError(f"init: expected every name once, received {init!r}")
    if {"normal", "orthogonal"} <= {*names}:
        raise ValueError(f"init: expected either normal or orthogonal couplings, received {init!r}")
    return {*names}


def check_init(init: str | None, initial_std: float | None, hidden: bool = True) -> None:
    """Refuses a start that does not go with the other settings of a machine.

    Args:
        init: names in ``INITS``; None: the start by default, which goes with all.
        initial_std: Standard deviation of the first couplings, where it is given.
        hidden: whether the machine has hidden units.

    Raises:
        TypeError, ValueError: as ``read_init``, or orthogonal couplings with a standard deviation or between
            units of one layer.
    """
    if init is None or "orthogonal" not in read_init(init):
        return
    if initial_std is not None:
        raise ValueError(
            f"initial_std: expected none with init {init!r}, whose couplings have norm 1, received "
            f"{initial_std}; normal couplings take it"
        )
    if not hidden:
        raise ValueError(
            "init: expected normal couplings between units of one layer, which are symmetric and have no "
            f"diagonal, received {init!r} for a machine without hidden units"
        )


def init_by_name_(
    machine: BoltzmannMachine,
    init: str,
    rows: Any,
    seed: int | torch.Generator = 0,
    weights: Any = None,
    *,
    std: float = 0.03,
) -> None:
    """Sets all first parameters as named in ``INITS``.

    Couplings that no name stands for are normal. Biases that no name stands for stay as they are, or are
    those of the data in visible layers.

    Args:
        machine: what to fill.
        init: names, separated by commas. "orthogonal,logistic" is the start of Taniguchi et al. (2023); with
            "data" beside them its visible biases are those of the data.
        rows: the data, as in ``init_visible_biases_``.
        seed: Seed of couplings and biases.
        weights: Row weights, as in ``init_visible_biases_``.
        std: standard deviation of normal couplings.

    Raises:
        TypeError, ValueError: as ``read_init`` and ``init_visible_biases_``.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Spin(3), hm.Spin(3)])
        >>> X = torch.tensor([[1.0, -1.0, 1.0], [1.0, 1.0, -1.0]])
        >>> hm.machine.init_by_name_(machine, "orthogonal,data", X, seed=0)
        >>> W = machine.couplings[0].weight.detach()
        >>> bool((W @ W.t()).allclose(torch.eye(3), atol=1e-5))
        True
    """
    names, generator = read_init(init), _random.as_generator(seed, machine.device)
    if "orthogonal" in names:
        orthogonal_(machine, 1.0, generator)
    else:
        normal_(machine, std, generator)
    if "logistic" in names:
        logistic_biases_(machine, generator)
    if "data" in names or "logistic" not in names:
        init_visible_biases_(machine, rows, weights)


def init_visible_biases_(
    machine: BoltzmannMachine, rows: Any, weights: Any = None, *, pseudocount: float | None = None
) -> None:
    """Fits visible parameters, so that uncoupled visible units have the data's moments (see ``fit_``).

    Every column counts the rows in which it was observed; one that never was gets the moments of pure noise.

    Args:
        machine: what to fill.
        rows: the data as ``train`` takes them, NaN where not observed; or ``harmonium.data.Rows``.
        weights: Row weights, (rows,), at least 0, not all 0; only their ratios count, and whole multiples
            of the least stand for so many equal rows. None means uniform.
        pseudocount: share of pure noise that is mixed in, in (0, 1), for kinds with ``Layer.smoothed``: of
            sequences usually one over the sum of their weights (1/M_eff). None: that of one row.

    Raises:
        TypeError: not data.
        ValueError: rows of another width, or of values outside the support of the visible units; weights that
            do not fit.
    """
    if pseudocount is not None:
        _checks.real(pseudocount, "pseudocount", 0.0, 1.0, "neither")
    _fit_visible(machine, rows, weights, pseudocount)


def _fit_visible(
    machine: BoltzmannMachine, rows: Any, weights: Any, pseudocount: float | None = None
) -> tuple[Rows, Tensor, Tensor]:
    """Does what ``init_visible_biases_`` does in one pass; returns rows, mean and variance, (width,) float64.

    The rows then say whether all are observed, and in the support of which units they were found.
    """
    rows = rows if isinstance(rows, Rows) else Rows.of(rows, machine.dtype, "rows", missing=True)
    width = machine.visible_width
    if rows.width != width:
        received = ", ".join(str(machine.layers[l]) for l in machine.visible)
        raise ValueError(f"rows: expected {width} columns for {received}, received {rows.width}")
    weights = _checks.weights(weights, "weights", len(rows))
    sums: dict[int, list[Tensor]] = {l: [] for l in machine.visible}
    moments, observed = Moments(), True
    for span, v, wide in rows.blocks():
        row_weights = (
            torch.ones(len(v), dtype=torch.float64, device="cpu") if weights is None else weights[span]
        )
        moments.add(wide, None if weights is None else row_weights)
        for l, x in machine.split(v).items():
            layer = machine.layers[l]
            mask, x = layer.observed(x, "rows" if len(sums) == 1 else f"rows (layer {l})")
            observed = observed and bool(mask.all())
            share = row_weights.to(x.device).unsqueeze(1) * mask
            terms = [share, *(t * share for t in layer.statistics(x)[1:])]
            added = [t.sum(0, dtype=torch.float64) for t in terms]
            sums[l] = [total + t for total, t in zip(sums[l], added, strict=True)] if sums[l] else added
    rows.support, rows.observed = machine.support, observed
    mean_variance = moments.result()
    parts = [machine.split(x.unsqueeze(0)) for x in mean_variance]
    for l in machine.visible:
        mean, variance = (part[l].squeeze(0) for part in parts)
        total, *others = sums[l]
        expected = (mean, *(t / total for t in others))
        if pseudocount is not None:  # as so many rows, beside one of noise
            total = torch.where(total > 0, 1 / pseudocount - 1, total)
        absent, layer = total == 0, machine.layers[l]
        if bool(absent.any()):  # columns that were never observed
            field, theta = torch.zeros_like(total), tuple(t.to(total) for t in layer.reference())
            noise = layer.expected_statistics(field, theta=theta)
            expected = tuple(torch.where(absent, u, t) for u, t in zip(noise, expected, strict=True))
            variance = torch.where(absent, layer.moments(field, theta=theta).variance, variance)
        fit_(layer, expected, variance, total)
    return rows, *mean_variance


@torch.no_grad()
def init_from_data_(
    machine: BoltzmannMachine, rows: Any, seed: int | torch.Generator = 0, weights: Any = None
) -> None:
    """Fits visible layers to the data, and beside Gaussian ones moves hidden units off a saddle.

    Gaussian units that have the data's variance, beside couplings near 0, are a saddle of the likelihood:
    hidden units that do not respond are not taught to, and where the columns are uncorrelated, as in a
    mixture, nothing is ever learnt. So where discrete hidden units stand beside Gaussian visible ones, the
    visible units keep a quarter of the data's variance, less beside more than 16 hidden units each, and every
    hidden unit has its threshold at a row drawn for it, b = -v·J, in a random direction along which its field
    varies by 1 over the rows (½ for spins), or by less where many hidden units would else explain more than a
    quarter of the variance.
    Visible means make up for what the hidden units add (docs/decisions/0003).

    Args:
        machine: layers and couplings above the first hidden layer, and those of visible layers of other kinds
            beside Gaussian ones, stay as they are.
        rows: the data, as in ``init_visible_biases_``; what a row does not observe is taken to be at the mean
            of its column.
        seed: draws directions and rows; not read for other visible or hidden units, nor where Gaussian
            visible layers are joined to anything but one hidden layer.
        weights: Row weights, as in ``init_visible_biases_``.

    Raises:
        TypeError, ValueError: as ``init_visible_biases_``.
    """
    rows, *mean_variance = _fit_visible(machine, rows, weights)
    generator = _random.as_generator(seed, machine.device)
    gaussian, above = _find_saddle(machine)
    if above is None:
        return
    layers, hidden = [machine.layers[l] for l in gaussian], machine.layers[above]
    weights = _checks.weights(weights, "weights", len(rows))
    mean, variance = (_take_columns(machine, gaussian, x).to(machine.device) for x in mean_variance)
    mean, variance = mean.nan_to_num(nan=0.0), torch.where(variance > 0, variance, 1.0)
    own_share = min(_OWN, _CROWDED * len(mean) / hidden.n_units)
    floors = [
        torch.full((layer.width,), float(getattr(layer, "variance_floor", 0.0)), device="cpu")
        for layer in layers
    ]
    floor = torch.cat(floors).to(mean)
    own_variance = floor + own_share * (variance - floor)
    unit = hidden.moments(torch.zeros_like(hidden.reference()[0]), theta=hidden.reference()).variance.double()

    def draw_rows(count: int) -> Tensor:
        if weights is None:
            indices = _random.integers(len(rows), (count,), generator)
        else:
            indices = _random.weighted(weights.to(machine.device), count, generator)
        v = _take_columns(machine, gaussian, rows.take(indices.cpu())).to(machine.device, torch.float64)
        return torch.where(v.isnan(), mean, v)

    seen = draw_rows(_SEEN) - mean
    J = _random.normal((len(mean), hidden.width), generator, torch.float64) / variance.sqrt().unsqueeze(1)
    spread = (seen @ J).std(0)
    J *= _SLOPE / (torch.where(spread > 0, spread, 1.0) * unit.sqrt())
    explained = float(((J * own_variance.unsqueeze(1)).square() @ unit / variance).mean())
    J *= min(1.0, _EXPLAINED / explained) ** 0.5

    points = draw_rows(hidden.n_units)
    points = points.repeat_interleave(hidden.columns_per_unit, 0)
    thresholds = -(points * J.t()).sum(1)
    location = getattr(hidden, hidden.location)
    location.copy_(thresholds.view_as(location))
    response = hidden.moments((seen + mean) @ J, theta=(thresholds,)).mean.mean(0)
    widths = [layer.width for layer in layers]
    parts = (torch.split(x, widths) for x in (mean - own_variance * (J @ response), own_variance, J))
    for l, layer, centre, spread, weight in zip(gaussian, layers, *parts, strict=True):
        layer.fit_((centre,), spread)
        coupling = machine.couplings[machine.edges.index((l, above))]
        coupling.fill_(weight if layer.scale is None else weight / layer.scale.unsqueeze(1))


def _find_saddle(machine: BoltzmannMachine) -> tuple[list[int], int | None]:
    """Finds the Gaussian visible layers, and the one discrete hidden layer that they are joined to, if so."""
    gaussian = [l for l in machine.visible if machine.layers[l].gaussian]
    edges = [(l, m) for l, m in machine.edges if l in gaussian or m in gaussian]
    above = {m for _, m in edges}
    if len(above) != 1 or sorted(gaussian) != [l for l, _ in edges]:
        return gaussian, None
    (hidden,) = above
    usable = hidden not in machine.visible and machine.layers[hidden].discrete
    return gaussian, hidden if usable else None


def _take_columns(machine: BoltzmannMachine, layers: list[int], x: Tensor) -> Tensor:
    """Returns the columns of some visible layers, (..., width)."""
    parts = machine.split(x.view(-1, machine.visible_width))
    return torch.cat([parts[l] for l in layers], -1).view(*x.shape[:-1], -1)


@torch.no_grad()
def fit_(layer: Layer, expected: Theta, variance: Tensor, rows: int | Tensor) -> None:
    """Fits a layer's parameters to statistics of ``rows`` rows, without couplings.

    Kinds with ``Layer.smoothed`` are smoothed as if one row of pure noise had been seen too, so that a unit
    that never changed gets finite parameters; such a unit of other kinds gets variance 1.

    Args:
        layer: what to fill.
        expected: mean statistics t(x), in the order of ``layer.natural()``, each (width,).
        variance: Variances of x, (width,).
        rows: rows that they come from, a number or one for every column.
    """
    # In float64, so that one row of noise among many millions still counts.
    device = next(layer.parameters()).device
    expected = tuple(t.to(device, torch.float64) for t in expected)
    variance = variance.to(device, torch.float64)
    if isinstance(rows, Tensor):
        rows = rows.to(device)
    if layer.smoothed:
        reference = tuple(t.to(torch.float64) for t in layer.reference())
        noise = layer.expected_statistics(torch.zeros_like(variance), theta=reference)
        expected = tuple((t * rows + u) / (rows + 1) for t, u in zip(expected, noise, strict=True))
    layer.fit_(expected, torch.where(variance > 0, variance, 1.0))


def fitted_layer(layer: Layer, x: Tensor, weights: Tensor | None = None) -> Layer:
    """Returns a copy of a layer, fitted to states, (rows, width), with ``_checks.weights``, (rows,)."""
    fitted: Layer = deepcopy(layer)
    if weights is None:
        expected = tuple(t.mean(0) for t in layer.statistics(x))
        fit_(fitted, expected, x.var(0, correction=0), len(x))
    else:
        total = weights.sum()
        share = (weights / total).to(x)
        expected = tuple(share @ t for t in layer.statistics(x))
        variance = share @ (x - expected[0]).square()
        fit_(fitted, expected, variance, total)
    return fitted
