"""Independent float64 truth for small machines, by brute force.

Nothing here knows the library: only numpy and the definition

    -E(x) = sum_l theta_l . t_l(x_l) + sum_l x_l^T J_l x_{l+1},        p(x) = exp(-E(x)) / Z.

Every joint state of all discrete layers is enumerated, with no marginalisation of any layer. Given a joint
discrete state the Gaussian units are one multivariate Gaussian, which is integrated in closed form, or, when
`quadrature=True`, by the trapezoid rule over a joint grid of all Gaussian units (which for integrands of this
kind converges faster than any power of the step). Truncated units take the nodes of a Gauss-Legendre rule as
their states, each with its weight; an atom at 0 is one state more.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MAXIMUM_STATES = 2**23
NODES = 20
"""Of a truncated unit: exact to 1e-12 for the machines of the tests, whose exponents are of order 1."""
TRUNCATED = ("truncated_gaussian", "truncated_gauss_bernoulli")
HALF_LINES = ("relu", "double_relu")


@dataclass(frozen=True)
class Layer:
    """One layer in natural parameters.

    `natural` holds (U,) of shape (n,) for "bernoulli" and "spin", (U,) of shape (n, q) for "categorical",
    and (U, V), each (n,), for "gaussian". "truncated_gaussian" is like "gaussian" and has bounds,
    "truncated_gauss_bernoulli" holds (U, V, r). "binomial" is like "bernoulli", with counts up to `trials`;
    "relu" like "gaussian"; "double_relu" holds (U, D, γ₊, γ₋).
    """

    kind: str
    natural: tuple[Array, ...]
    bounds: tuple[Array, Array] | None = None
    trials: int = 0

    @property
    def n_units(self) -> int:
        return int(self.natural[0].shape[0])

    @property
    def width(self) -> int:
        return int(self.natural[0].size)


@dataclass(frozen=True)
class Description:
    """Layers in natural parameters and the couplings J_l, shape (width_l, width_{l+1})."""

    layers: tuple[Layer, ...]
    couplings: tuple[Array, ...]


@dataclass(frozen=True)
class LearnableLayer:
    """One layer as it is learned.

    {"bias"} for a discrete kind, {"mean", "log_variance"} for "gaussian", {"linear", "quadratic"} for
    "truncated_gaussian", and {"logit_rate"} besides for "truncated_gauss_bernoulli". Half lines have the
    logs of their curvatures.
    """

    kind: str
    values: dict[str, Array]
    bounds: tuple[Array, Array] | None = None
    trials: int = 0


@dataclass(frozen=True)
class Learnable:
    """A machine as it is learned: layers and couplings W_l, shape (width_l, width_{l+1})."""

    layers: tuple[LearnableLayer, ...]
    couplings: tuple[Array, ...]


@dataclass(frozen=True)
class Expectations:
    """ln of the (clamped) sum, E[t_l] in the shape of theta_l and E[x_l (x) x_{l+1}] in that of J_l."""

    log_partition: float
    statistics: tuple[tuple[Array, ...], ...]
    products: tuple[Array, ...]


@dataclass(frozen=True)
class UnitTruth:
    """One unit in a grid of m fields: psi (m,), mean and variance (m, 1) or (m, q), E[t] likewise."""

    log_partition: Array
    mean: Array
    variance: Array
    statistics: tuple[Array, ...]


def log_sum_exp(terms: Array) -> Array:
    """ln sum exp over the last axis, keeping relative accuracy when the largest term is 0."""
    ordered = np.sort(terms, axis=-1)
    largest = ordered[..., -1]
    total: Array = largest + np.log1p(np.exp(ordered[..., :-1] - largest[..., None]).sum(-1))
    return total


def statistics(layer: Layer, states: Array) -> tuple[Array, ...]:
    """t(x) for states (batch, width), each statistic in the shape (batch, *theta.shape)."""
    if layer.kind in ("gaussian", "truncated_gaussian", "relu"):
        return states, -0.5 * states**2
    if layer.kind == "double_relu":
        halves = np.maximum(states, 0), np.minimum(states, 0)
        return states, np.abs(states), -0.5 * halves[0] ** 2, -0.5 * halves[1] ** 2
    if layer.kind == "truncated_gauss_bernoulli":
        return states, -0.5 * states**2, (states != 0).astype(float)
    return (states.reshape(len(states), *layer.natural[0].shape),)


def log_measure(layer: Layer, states: Array) -> Array:
    """ln of the base measure, (batch,): of counts Σ ln C(N, x), of other kinds 0."""
    choices = np.log([float(comb(layer.trials, count)) for count in range(layer.trials + 1)])
    total: Array = choices[states.astype(int)].sum(1) if layer.kind == "binomial" else np.zeros(len(states))
    return total


def energy(description: Description, states: Sequence[Array]) -> Array:
    """E(x), (batch,), for a list of (batch, width_l)."""
    total = np.zeros(len(states[0]))
    for layer, x in zip(description.layers, states, strict=True):
        for theta, t in zip(layer.natural, statistics(layer, x), strict=True):
            total -= (theta * t).reshape(len(x), -1).sum(1)
    for coupling, lower, upper in zip(description.couplings, states[:-1], states[1:], strict=True):
        total -= np.einsum("bi,ij,bj->b", lower, coupling, upper, optimize=True)
    return total


def support(layer: Layer) -> Array:
    """All states (count, width) of a discrete layer."""
    if layer.kind == "bernoulli":
        per_unit = [[[0.0], [1.0]]] * layer.n_units
    elif layer.kind == "spin":
        per_unit = [[[-1.0], [1.0]]] * layer.n_units
    elif layer.kind == "binomial":
        per_unit = [[[float(count)] for count in range(layer.trials + 1)]] * layer.n_units
    elif layer.kind == "categorical":
        per_unit = [np.eye(layer.natural[0].shape[1]).tolist()] * layer.n_units
    else:
        raise ValueError(f"kind: expected a discrete kind, received {layer.kind!r}")
    return np.array([np.concatenate(choice) for choice in itertools.product(*per_unit)])


def weighted_states(layer: Layer) -> tuple[Array, Array]:
    """States (count, width) of a layer that is not Gaussian, and the log of what each stands for (count,)."""
    if layer.bounds is None:
        states = support(layer)
        return states, np.zeros(len(states))
    node, weight = np.polynomial.legendre.leggauss(NODES)
    points, logs = [], []
    for low, high in zip(*layer.bounds, strict=True):
        half = 0.5 * (high - low)
        atom = [0.0] if layer.kind == "truncated_gauss_bernoulli" else []
        points.append(np.concatenate([atom, low + half * (node + 1)]))
        logs.append(np.concatenate([atom, np.log(half * weight)]))
    states = np.array(list(itertools.product(*points)))
    return states, np.array(list(itertools.product(*logs))).sum(1)


def expectations(
    description: Description,
    clamp: Mapping[int, Array] | None = None,
    quadrature: bool = False,
) -> Expectations:
    """Sum over every layer that is not clamped.

    Args:
        description: the machine.
        clamp: layer index -> its fixed state, (width,); the others are enumerated or integrated.
        quadrature: integrate the Gaussian units on a joint grid instead of in closed form.

    Returns:
        ln sum exp(-E) over the free layers, and the expectations under the distribution of the free layers.
    """
    clamp = clamp or {}
    layers, couplings = description.layers, description.couplings
    gaussian = [i for i, layer in enumerate(layers) if layer.kind == "gaussian" and i not in clamp]
    grids = _grids(description, clamp, gaussian) if quadrature else {}
    log_cell = sum(cell for _, cell in grids.values())
    integrated = [] if quadrature else gaussian
    choices: list[Array] = []
    logs: list[Array] = []
    for index, layer in enumerate(layers):
        if index in clamp:
            choices.append(np.asarray(clamp[index], dtype=np.float64).reshape(1, layer.width))
        elif index in grids:
            choices.append(grids[index][0])
        elif layer.kind == "gaussian":
            choices.append(np.zeros((1, layer.width)))
        else:
            choices.append(weighted_states(layer)[0])
            logs.append(weighted_states(layer)[1])
        if len(logs) < len(choices):
            logs.append(np.zeros(len(choices[-1])))
    count = int(np.prod([len(choice) for choice in choices]))
    if count > MAXIMUM_STATES:
        raise ValueError(f"description: expected at most {MAXIMUM_STATES} joint states, received {count}")
    indices = np.unravel_index(np.arange(count), [len(choice) for choice in choices])
    states = [choice[index] for choice, index in zip(choices, indices, strict=True)]

    # With the integrated units at zero, `energy` leaves out exactly the terms that touch them.
    log_weight = -energy(description, states) + log_cell
    log_weight = log_weight + sum(log[index] for log, index in zip(logs, indices, strict=True))
    covariance: Array = np.zeros((0, 0))
    starts: dict[int, int] = {}
    if integrated:
        precision, starts = _precision(description, integrated)
        covariance = np.linalg.inv(precision)
        linear = np.concatenate(
            [_field(description, states, i) + layers[i].natural[0] for i in integrated], axis=1
        )
        means = linear @ covariance
        log_weight = log_weight + 0.5 * (linear * means).sum(1)
        log_weight = log_weight + 0.5 * (len(precision) * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1])
        for i in integrated:
            states[i] = means[:, starts[i] : starts[i] + layers[i].width]

    log_partition = float(log_sum_exp(log_weight))
    probability = np.exp(log_weight - log_partition)
    expected: list[tuple[Array, ...]] = []
    for index, layer in enumerate(layers):
        values = [np.tensordot(probability, t, axes=1) for t in statistics(layer, states[index])]
        if index in starts:
            start = starts[index]
            values[1] = values[1] - 0.5 * np.diag(covariance)[start : start + layer.width]
        expected.append(tuple(values))
    products: list[Array] = []
    for index in range(len(couplings)):
        product = (states[index] * probability[:, None]).T @ states[index + 1]
        if index in starts and index + 1 in starts:
            rows, columns = starts[index], starts[index + 1]
            product = (
                product
                + covariance[rows : rows + layers[index].width, columns : columns + layers[index + 1].width]
            )
        products.append(product)
    return Expectations(log_partition, tuple(expected), tuple(products))


def log_partition(description: Description) -> float:
    """ln Z."""
    return expectations(description).log_partition


def log_probability(description: Description, visible: Array) -> Array:
    """log p(v), (batch,), for visible states (batch, width_0)."""
    free = log_partition(description)
    return np.array([expectations(description, {0: row}).log_partition for row in visible]) - free


def free_energy(description: Description, states: Sequence[Array], summed: str) -> Array:
    """-ln of the sum of exp(-E) over the layers of one parity, (batch,), the others held at `states`."""
    kept = 1 if summed == "even" else 0
    batch = len(states[kept])
    held = range(kept, len(description.layers), 2)
    return np.array(
        [-expectations(description, {i: states[i][row] for i in held}).log_partition for row in range(batch)]
    )


def natural(learnable: Learnable) -> Description:
    """U = mu / sigma^2, V = 1 / sigma^2 and J = W / (sigma^2 of every Gaussian side)."""
    layers = []
    for layer in learnable.layers:
        if layer.kind == "gaussian":
            precision = np.exp(-layer.values["log_variance"])
            layers.append(Layer("gaussian", (layer.values["mean"] * precision, precision)))
        elif layer.kind in TRUNCATED:
            layers.append(Layer(layer.kind, tuple(layer.values.values()), layer.bounds))
        elif layer.kind in HALF_LINES:
            values = layer.values.items()
            exact = tuple(np.exp(v) if name.startswith("log") else v for name, v in values)
            layers.append(Layer(layer.kind, exact))
        else:
            layers.append(Layer(layer.kind, (layer.values["bias"],), trials=layer.trials))
    couplings = [
        weight * _scale(learnable.layers[i])[:, None] * _scale(learnable.layers[i + 1])[None, :]
        for i, weight in enumerate(learnable.couplings)
    ]
    return Description(tuple(layers), tuple(couplings))


def gradient(learnable: Learnable, visible: Array) -> dict[str, Array]:
    """Gradient of the mean of log p(v) over the rows of `visible`, by "layers.l.name" and "couplings.l".

    With D<.> = clamped minus free: dtheta = D<t> and dJ = D<x (x) x'>. W enters J alone, so
    dW = dJ / sigma^2 (one factor for each Gaussian side). mu enters U alone, so dmu = dU / sigma^2.
    U, V and every J that touches a Gaussian unit are proportional to exp(-s) with s = log sigma^2, so
    ds = -(U dU + V dV + sum J dJ), the sum running over the unit's couplings on both sides.
    """
    description = natural(learnable)
    free = expectations(description)
    clamped = [expectations(description, {0: row}) for row in visible]
    d_theta = [
        [
            np.mean([phase.statistics[i][k] for phase in clamped], axis=0) - free.statistics[i][k]
            for k in range(len(layer.natural))
        ]
        for i, layer in enumerate(description.layers)
    ]
    d_coupling = [
        np.mean([phase.products[i] for phase in clamped], axis=0) - free.products[i]
        for i in range(len(description.couplings))
    ]
    result: dict[str, Array] = {}
    for i, layer in enumerate(description.layers):
        if layer.kind != "gaussian":
            for name, change in zip(learnable.layers[i].values, d_theta[i], strict=True):
                result[f"layers.{i}.{name}"] = change
            continue
        linear, precision = layer.natural
        d_log_variance = -(linear * d_theta[i][0] + precision * d_theta[i][1])
        if i < len(description.couplings):
            d_log_variance = d_log_variance - (description.couplings[i] * d_coupling[i]).sum(1)
        if i > 0:
            d_log_variance = d_log_variance - (description.couplings[i - 1] * d_coupling[i - 1]).sum(0)
        result[f"layers.{i}.mean"] = d_theta[i][0] * precision
        result[f"layers.{i}.log_variance"] = d_log_variance
    for i, change in enumerate(d_coupling):
        scale = _scale(learnable.layers[i])[:, None] * _scale(learnable.layers[i + 1])[None, :]
        result[f"couplings.{i}.weight"] = change * scale
    return result


def parameters(learnable: Learnable) -> dict[str, Array]:
    """The learnable arrays themselves (not copies), under the names that `gradient` uses."""
    named = {
        f"layers.{i}.{name}": array
        for i, layer in enumerate(learnable.layers)
        for name, array in layer.values.items()
    }
    return named | {f"couplings.{i}.weight": weight for i, weight in enumerate(learnable.couplings)}


def unit_truth(layer: Layer, unit: int, field: Array, second: Array) -> UnitTruth:
    """One unit in a grid of fields: sums and integrals of exp(theta.t(x) + B.x - A x^2 / 2).

    Args:
        layer: the layer that the unit belongs to.
        unit: its index.
        field: B, (m, 1), or (m, q) for a categorical unit.
        second: A, the same shape as `field`.
    """
    if layer.kind == "gaussian":
        return _gaussian_truth(layer.natural[0][unit], layer.natural[1][unit], field, second)
    if layer.bounds is not None:
        return _truncated_truth(layer, unit, field, second)
    if layer.kind == "relu":
        return _half_line_truth(layer.natural[0][unit] + field, layer.natural[1][unit] + second)
    if layer.kind == "double_relu":
        return _double_truth(*(part[unit] for part in layer.natural), field, second)
    single = Layer(layer.kind, (layer.natural[0][unit : unit + 1],), trials=layer.trials)
    values = support(single)
    theta = single.natural[0].reshape(1, -1)
    log_weight = ((theta + field)[:, None, :] * values - 0.5 * second[:, None, :] * values**2).sum(-1)
    log_weight = log_weight + log_measure(single, values)
    log_partition_ = log_sum_exp(log_weight)
    probability = np.exp(log_weight - log_partition_[:, None])
    mean = probability @ values
    # Half the mean squared difference of two draws: no cancellation, so tails keep their relative accuracy.
    gaps = (values[:, None, :] - values[None, :, :]) ** 2
    variance = 0.5 * np.einsum("ma,mb,abw->mw", probability, probability, gaps)
    return UnitTruth(log_partition_, mean, variance, (mean,))


def unit_log_conditional(layer: Layer, unit: int, state: Array, field: Array) -> Array:
    """log p(x | B), (m,), of one unit: a log density for a real unit, -inf outside its support.

    `state` is (m, 1) or (m, q), or one state for all rows.
    """
    truth = unit_truth(layer, unit, field, np.zeros_like(field))
    if layer.kind == "double_relu":
        linear, absolute, up, down = (part[unit] for part in layer.natural)
        bend = np.where(state >= 0, up, down) * state**2
        along: Array = ((linear + field) * state + absolute * np.abs(state) - 0.5 * bend).sum(1)
        return along - truth.log_partition
    exponent = (layer.natural[0][unit] + field) * state
    if layer.kind in ("gaussian", "relu") or layer.bounds is not None:
        exponent = exponent - 0.5 * layer.natural[1][unit] * state**2
    log_conditional: Array = exponent.sum(1) - truth.log_partition
    log_conditional = log_conditional + log_measure(layer, np.atleast_2d(state))
    if layer.bounds is None:
        return log_conditional
    x = np.broadcast_to(state, field.shape)[:, 0]
    inside = (x >= layer.bounds[0][unit]) & (x <= layer.bounds[1][unit])
    if layer.kind == "truncated_gauss_bernoulli":
        log_conditional = log_conditional + layer.natural[2][unit] * (x != 0)
        inside |= x == 0
    return np.where(inside, log_conditional, -np.inf)


def _scale(layer: LearnableLayer) -> Array:
    if layer.kind == "gaussian":
        return np.exp(-layer.values["log_variance"])
    return np.ones(next(iter(layer.values.values())).size)


def _field(description: Description, states: Sequence[Array], index: int) -> Array:
    field = np.zeros((len(states[index]), description.layers[index].width))
    if index > 0:
        field = field + states[index - 1] @ description.couplings[index - 1]
    if index < len(description.couplings):
        field = field + states[index + 1] @ description.couplings[index].T
    return field


def _precision(description: Description, gaussian: Sequence[int]) -> tuple[Array, dict[int, int]]:
    """Joint precision of the given Gaussian layers and where each starts in it."""
    widths = [description.layers[i].width for i in gaussian]
    starts = {i: sum(widths[:k]) for k, i in enumerate(gaussian)}
    precision = np.diag(np.concatenate([description.layers[i].natural[1] for i in gaussian]))
    for i in gaussian:
        if i + 1 in starts:
            rows = slice(starts[i], starts[i] + description.layers[i].width)
            columns = slice(starts[i + 1], starts[i + 1] + description.layers[i + 1].width)
            precision[rows, columns] -= description.couplings[i]
            precision[columns, rows] -= description.couplings[i].T
    if np.linalg.eigvalsh(precision)[0] <= 0:
        raise ValueError("description: the Gaussian units have no normalisable joint distribution")
    return precision, starts


def _grids(
    description: Description, clamp: Mapping[int, Array], gaussian: Sequence[int]
) -> dict[int, tuple[Array, float]]:
    """Per Gaussian layer: grid points (count, width) that hold all the mass, and ln of one cell's volume."""
    if not gaussian:
        return {}
    precision, starts = _precision(description, gaussian)
    covariance = np.linalg.inv(precision)
    extremes = []
    for i, layer in enumerate(description.layers):
        if i in clamp:
            extremes.append(np.abs(clamp[i]).reshape(1, -1))
        else:
            largest = 0.0 if layer.kind == "gaussian" else 1.0 if layer.bounds is None else 3.0
            extremes.append(np.full((1, layer.width), largest))
    absolute = Description(description.layers, tuple(np.abs(coupling) for coupling in description.couplings))
    linear = np.concatenate(
        [_field(absolute, extremes, i)[0] + np.abs(absolute.layers[i].natural[0]) for i in gaussian]
    )
    reach = np.abs(covariance) @ linear + 10 * np.sqrt(np.diag(covariance))
    step = 0.6 / np.sqrt(np.diag(precision))
    axes = [np.arange(-extent, extent + width, width) for extent, width in zip(reach, step, strict=True)]
    grids = {}
    for i in gaussian:
        units = range(starts[i], starts[i] + description.layers[i].width)
        points = np.stack(np.meshgrid(*[axes[u] for u in units], indexing="ij"), axis=-1)
        grids[i] = points.reshape(-1, len(units)), float(np.log(step[list(units)]).sum())
    return grids


def _gaussian_truth(linear: float, precision: float, field: Array, second: Array) -> UnitTruth:
    """Trapezoid rule on nodes laid around the peak, deliberately not symmetric about it."""
    total, slope = precision + second, linear + field
    width = 1 / np.sqrt(total)
    nodes = slope / total + width * (np.arange(-14, 14, 0.25) + 0.37 * 0.25)
    exponent = slope * nodes - 0.5 * total * nodes**2
    log_partition_ = log_sum_exp(exponent) + np.log(0.25 * width[:, 0])
    probability = np.exp(exponent - log_sum_exp(exponent)[:, None])
    mean = (probability * nodes).sum(1, keepdims=True)
    variance = (probability * (nodes - mean) ** 2).sum(1, keepdims=True)
    square = (probability * nodes**2).sum(1, keepdims=True)
    return UnitTruth(log_partition_, mean, variance, (mean, -0.5 * square))


def _half_line_truth(slope: Array, bend: Array) -> UnitTruth:
    """A truncated unit whose upper end lies 40 deviations beyond everything."""
    end = ((np.abs(slope) / bend + 40 / np.sqrt(bend)).max(),)
    whole = Layer("truncated_gaussian", (np.zeros(1), np.zeros(1)), (np.zeros(1), np.array(end)))
    return _truncated_truth(whole, 0, slope, bend)


def _double_truth(
    linear: float, absolute: float, up: float, down: float, field: Array, second: Array
) -> UnitTruth:
    """Two half lines, put together."""
    sides = (
        _half_line_truth(linear + absolute + field, up + second),
        _half_line_truth(absolute - linear - field, down + second),
    )
    total = np.logaddexp(sides[0].log_partition, sides[1].log_partition)
    first, last = (np.exp(side.log_partition - total)[:, None] for side in sides)
    a, b = (side.mean for side in sides)
    return UnitTruth(
        total,
        first * a - last * b,
        first * sides[0].variance + last * sides[1].variance + first * last * (a + b) ** 2,
        (
            first * a - last * b,
            first * a + last * b,
            first * sides[0].statistics[1],
            last * sides[1].statistics[1],
        ),
    )


def _truncated_truth(layer: Layer, unit: int, field: Array, second: Array) -> UnitTruth:
    """Gauss-Legendre on about 4000 nodes, in panels that double in width from both ends and from the peak.

    An end of the unit may be one number for every row of the fields, (m,).
    """
    assert layer.bounds is not None
    low, high = (np.reshape(end[unit], (-1, 1)) for end in layer.bounds)
    slope, bend = layer.natural[0][unit] + field, layer.natural[1][unit] + second
    steps = (high - low) * 2.0 ** -np.arange(34)
    with np.errstate(divide="ignore", invalid="ignore"):
        peak = np.clip(np.nan_to_num(slope / bend, nan=low, posinf=high, neginf=low), low, high)
    around = np.broadcast_to(np.concatenate([low + steps, high - steps, low, high], 1), (len(field), 70))
    edges = np.sort(np.clip(np.concatenate([around, peak, peak + steps, peak - steps], 1), low, high), 1)
    node, weight = np.polynomial.legendre.leggauss(30)
    half = 0.5 * np.diff(edges)[..., None]
    x = (edges[:, :-1, None] + half * (node + 1)).reshape(len(field), -1)
    weight = (half * weight).reshape(len(field), -1)
    log_density = (slope - 0.5 * bend * x) * x
    highest = log_density.max(1)
    mass = weight * np.exp(log_density - highest[:, None])
    log_mass = highest + np.log(mass.sum(1))
    mass /= mass.sum(1, keepdims=True)
    mean = (mass * x).sum(1)
    variance = (mass * (x - mean[:, None]) ** 2).sum(1)
    square = (mass * x**2).sum(1)
    if layer.kind == "truncated_gaussian":
        return UnitTruth(log_mass, mean[:, None], variance[:, None], (mean[:, None], -0.5 * square[:, None]))
    logit = layer.natural[2][unit] + log_mass
    present = np.exp(-np.logaddexp(0, -logit))
    absent = np.exp(-np.logaddexp(0, logit))
    return UnitTruth(
        np.logaddexp(0, logit),
        (present * mean)[:, None],
        (present * (variance + absent * mean**2))[:, None],
        ((present * mean)[:, None], (-0.5 * present * square)[:, None], present[:, None]),
    )
