"""Correlated real columns: covariances, the coordinates that whiten them, and the way back.

A machine without couplings among its Gaussian units takes long to learn columns that nearly depend on each
other. In coordinates u with x = R u, R a root of the covariance of x, linear correlations need not be
learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from math import inf, pi
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._checks import Numbers
from harmonium.couplings import Coupling, Dense
from harmonium.layers import Gaussian
from harmonium.machine import BoltzmannMachine
from harmonium.sums import PRODUCTS_PER_SECOND, HiddenStates, has_hidden_states, seconds_of_joined

_TINY = 1e-6  # added to second moments of hidden units: singular where one never changes
# Columns up to which any covariance may be best, rows a column from which on it may, and rows a column up to
# which factors may be: of 600 rows of 100 columns with 5 factors hidden cells have an error of 0.75 and 0.72.
_ALWAYS_FREE, _ROWS_OF_FREE, _ROWS_OF_FACTORS = 50, 3, 20
_QUICK = 0.2  # seconds of a round of expectation-maximisation for any covariance: a hundred take 20
_FACTOR_SECONDS = 0.5  # of a round of factors, of products of rows, columns and pairs of factors
_NOISE = 1e-3  # least share of a column's variance that factors leave: that of the smallest ridge of tables


class Shape(NamedTuple):
    """The shape of a covariance, see ``fit_normal``."""

    ridge: float = 0.0
    factors: int | None = None


ANY = Shape()


def list_shapes(x: Tensor, ridges: Sequence[float]) -> list[list[Shape]]:
    """Returns the shapes that a covariance of rows (rows, columns) may have, each list from free to held.

    Factors come in where rows are few beside the columns, and ridges go where they are fewer still.
    """
    rows, columns = x.shape
    shapes, quick = [], seconds_of_joined(x.isnan()) <= _QUICK
    if columns <= _ALWAYS_FREE or (rows >= _ROWS_OF_FREE * columns and quick):
        shapes.append([Shape(ridge) for ridge in ridges])
    if rows < _ROWS_OF_FACTORS * columns or not shapes:
        few = min(min(rows, columns) // 4, (_FACTOR_SECONDS * PRODUCTS_PER_SECOND / x.numel()) ** 0.5)
        shapes.append([Shape(factors=2**k) for k in range(1, 6) if 2**k <= few])
    return [some for some in shapes if some]


def choose_shape(shapes: Iterable[Iterable[Shape]], score: Callable[[Shape], float]) -> Shape:
    """Returns the shape of the highest score; of each list no further one where the score falls."""
    best, chosen = -inf, ANY
    for some in shapes:
        last = -inf
        for shape in some:
            found = score(shape)
            if found > best:
                best, chosen = found, shape
            if found < last:
                break
            last = found
    return chosen


@torch.no_grad()
def fit_normal(
    X: Numbers,
    weights: Tensor | None = None,
    *,
    ridge: float = 1e-3,
    factors: int | None = None,
    rounds: int = 50,
    tolerance: float = 1e-4,
    start: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Fits a multivariate Gaussian to rows, by expectation-maximisation where cells are missing.

    Args:
        X: real rows, (rows, columns), NaN where missing.
        weights: Row weights, (rows,), at least 0; None means uniform.
        ridge: added to the covariance, times the variance of every column, at least 0; without factors.
        factors: Columns are linear in so many factors, with independent noise (factor analysis), which more
            columns than rows allow; at least 1 and below the number of columns. None: any covariance.
        rounds: Most rounds of expectation-maximisation, at least 1.
        tolerance: least gain of the mean ln p of a row for another round.
        start: Mean and covariance to begin with, without factors; None: independent columns.

    Returns:
        Mean, (columns,), and covariance, (columns, columns), in float64. ``torch.linalg.cholesky`` of it is a
        root for ``rules.exact`` and ``fold``.

    Raises:
        ValueError: X of another shape, or a column that does not vary or has no cell.
    """
    x = _checks.tensor(X, "X", torch.float64)
    if x.dim() != 2 or len(x) == 0:
        raise ValueError(f"X: expected (rows, columns) with at least one row, received {tuple(x.shape)}")
    _checks.real(ridge, "ridge", low=0.0)
    _checks.positive_int(rounds, "rounds")
    checked = _checks.weights(weights, "weights", len(x))
    row_weights = x.new_ones(len(x)) if checked is None else checked.to(x)
    row_weights, seen = row_weights / row_weights.sum(), ~x.isnan()
    mean = row_weights @ x.nan_to_num(0.0) / (row_weights @ seen.double())
    variance = row_weights @ (x - mean).square().nan_to_num(0.0) / (row_weights @ seen.double())
    if not bool((variance > 0).all()):
        column = int((~(variance > 0)).nonzero()[0])
        raise ValueError(f"X: expected columns that vary, received column {column} with one value or none")
    if factors is not None:
        _checks.positive_int(factors, "factors")
        return _fit_factors(x, row_weights, mean, variance, factors, rounds, tolerance)
    machine = BoltzmannMachine([Gaussian(x.shape[1])], edges=[]).to(x.device).double()
    (units,) = machine.layers
    one, covariance, before = torch.ones_like(mean), torch.diag(variance), -torch.inf
    mean, covariance = (mean, covariance) if start is None else start
    for _ in range(rounds):
        root = torch.linalg.cholesky(covariance)
        units.fit_((torch.linalg.solve_triangular(root, mean.unsqueeze(1), upper=False)[:, 0], one), one)
        table = HiddenStates(machine.hamiltonian(), {0: root})
        score, first, second = 0.0, torch.zeros_like(mean), torch.zeros_like(covariance)
        for place, posterior in table.blocks(x):
            share = row_weights[place]
            score += float(share @ (posterior.log_weights - table.log_partition))
            _, crossed, squared = posterior.sum_squares(0, share)
            first += crossed[:, 0]
            second += squared
        mean = root @ first
        covariance = root @ second @ root.t() - torch.outer(mean, mean) + ridge * torch.diag(variance)
        if bool(seen.all()) or score - before < tolerance:
            break
        before = score
    return mean, covariance


def _fit_factors(
    x: Tensor,
    row_weights: Tensor,
    mean: Tensor,
    variance: Tensor,
    factors: int,
    rounds: int,
    tolerance: float,
) -> tuple[Tensor, Tensor]:
    """Returns mean and covariance of x = m + L z + noise, with z of so many standard normal factors.

    Rows share sums over their cells alone: a round takes rows times columns times the square of the factors,
    whatever is missing (Rubin & Thayer 1982).
    """
    deviation, seen = variance.sqrt(), (~x.isnan()).to(x)
    y = ((x - mean) / deviation).nan_to_num(0.0)
    share = row_weights @ seen
    _, sizes, axes = torch.linalg.svd(y * row_weights.sqrt().unsqueeze(1), full_matrices=False)
    factors = min(factors, len(sizes))
    loadings = axes[:factors].t() * sizes[:factors]
    noise = (1 - loadings.square().sum(1)).clamp(min=0.1)
    middle, one, before = torch.zeros_like(noise), torch.eye(factors).to(x), -torch.inf
    second = row_weights @ y.square()
    for _ in range(rounds):
        # z given a row has the precision 1 + Σ_seen l lᵀ/ψ; every column is then a regression on (z, 1).
        squares = (loadings.unsqueeze(2) * loadings.unsqueeze(1)).flatten(1)
        scaled = seen / noise
        root = torch.linalg.cholesky((scaled @ squares).view(-1, factors, factors) + one)
        off = (y - middle) * seen
        pull = (off * scaled) @ loadings
        spread = torch.cholesky_inverse(root)
        z = (spread @ pull.unsqueeze(2))[..., 0]
        logs = (scaled * off.square() + seen * (2 * pi * noise).log()).sum(1) - (pull * z).sum(1)
        score = -0.5 * float(row_weights @ (logs + 2 * root.diagonal(dim1=1, dim2=2).log().sum(1)))
        if score - before < tolerance:
            break
        before = score
        told = torch.cat([z, torch.ones_like(z[:, :1])], 1)
        products = told.unsqueeze(2) * told.unsqueeze(1)
        products[:, :factors, :factors] += spread
        products = (seen * row_weights.unsqueeze(1)).t() @ products.flatten(1)
        products = products.view(-1, factors + 1, factors + 1)
        crossed = (y * row_weights.unsqueeze(1)).t() @ told
        slopes = torch.linalg.solve(products, crossed)
        noise = ((second - (slopes * crossed).sum(1)) / share).clamp(min=_NOISE)
        loadings, middle = slopes[:, :factors], slopes[:, factors]
    covariance = loadings @ loadings.t() + torch.diag(noise)
    return mean + deviation * middle, covariance * torch.outer(deviation, deviation)


@torch.no_grad()
def fit_residuals(
    machine: BoltzmannMachine,
    X: Numbers,
    weights: Tensor | None = None,
    *,
    roots: Mapping[int, Tensor],
    ridge: float = 1e-3,
    factors: int | None = None,
) -> dict[int, Tensor]:
    """Fits covariances of real columns given the hidden units: the residuals of a regression on these.

    Their roots are better than those of the whole covariance where hidden units stand for groups of rows,
    within which columns are correlated otherwise than across groups.

    Args:
        machine: Machine of the columns u; it is not changed.
        X: visible states of the columns x = R u, (rows, visible_width), NaN where missing.
        weights: Row weights, (rows,), at least 0; None means uniform.
        roots: R of visible Gaussian layers without edges to visible layers, (width_l, width_l); see ``fold``.
        ridge: added to each covariance, times the variance left of every column, at least 0; without factors.
        factors: of each covariance, see ``fit_normal``; None: any covariance.

    Returns:
        For every layer with a root the covariance, (width_l, width_l), in float64.

    Raises:
        ValueError: layers that roots do not fit.
    """
    table = HiddenStates.of(fold(machine, roots))
    v = _checks.tensor(X, "X", torch.float64, machine.device)
    checked = _checks.weights(weights, "weights", len(v))
    row_weights = v.new_ones(len(v)) if checked is None else checked.to(v)
    covariances = {}
    for l in roots:
        sums: list[Tensor] = []
        for place, posterior in table.blocks(v):
            parts = posterior.sum_squares(l, row_weights[place] / row_weights.sum())
            sums = [a + b for a, b in zip(sums, parts, strict=True)] if sums else [*parts]
        hidden, crossed, squared = sums
        tiny = _TINY * torch.eye(len(hidden)).to(hidden)  # of a unit that is nearly always in one state
        left = squared - crossed @ torch.linalg.solve(hidden + tiny, crossed.t())
        if factors is None:
            covariances[l] = left + ridge * torch.diag(left.diagonal())
        else:  # these rows have the mean 0 and this covariance
            sides = _root_of(left) * len(left) ** 0.5
            covariances[l] = fit_normal(torch.cat([sides, -sides], 1).t(), factors=factors)[1]
    return covariances


def _root_of(covariance: Tensor) -> Tensor:
    """Returns a root of a covariance that may be singular."""
    sizes, axes = torch.linalg.eigh(covariance)
    root: Tensor = axes * sizes.clamp(min=0.0).sqrt()
    return root


@torch.no_grad()
def fold(machine: BoltzmannMachine, roots: Mapping[int, Tensor]) -> BoltzmannMachine:
    """Returns the machine of columns x = R u, with inner edges, for a machine of u; see ``rules.exact``.

    It gives every state x the energy that the machine gives u, and takes rows as they are: for likelihoods,
    imputation and draws no root is needed any more.

    Args:
        machine: Machine of u; it is not changed.
        roots: R of some visible Gaussian layers without edges to visible layers, (width_l, width_l).

    Returns:
        A new machine in float64. Couplings of the layers with roots are dense.

    Raises:
        ValueError: layers that roots do not fit.
    """
    graph = machine.graph
    if not has_hidden_states(graph, machine.layers, roots) or any(
        l in edge and set(edge) <= set(graph.visible) for l in roots for edge in graph.edges
    ):
        raise ValueError(
            "roots: expected some of visible Gaussian layers that no edge joins with visible layers, in a "
            f"machine that HiddenStates takes, received {sorted(roots)} with edges {list(graph.edges)}"
        )
    hamiltonian = deepcopy(machine).double().hamiltonian()
    back = {l: torch.linalg.inv(root.to(hamiltonian.thetas[l][0])) for l, root in roots.items()}
    copies = deepcopy(machine).double()
    edges: dict[tuple[int, int], Coupling] = {(l, l): Dense() for l in roots}
    for edge, coupling in zip(machine.edges, machine.couplings, strict=True):
        joined = Dense() if set(edge) & roots.keys() else type(coupling)(**coupling.config())
        edges[edge] = joined
    made = BoltzmannMachine(copies.layers, edges, machine.visible, seed=None).double()
    made.metadata = deepcopy(machine.metadata)
    precision = {}
    for l, matrix in back.items():
        linear, curvature = hamiltonian.thetas[l]
        precision[l] = matrix.t() @ (curvature.unsqueeze(1) * matrix)
        diagonal = precision[l].diagonal()
        made.layers[l].fit_((matrix.t() @ linear / diagonal, diagonal), 1 / diagonal)
    J = dict(zip(machine.edges, hamiltonian.J, strict=True))
    for (l, m), coupling in zip(made.edges, made.couplings, strict=True):
        W = -precision[l] if l == m and l in back else J[l, m]
        W = back[l].t() @ W if l in back and l != m else W
        W = W @ back[m] if m in back and l != m else W
        below, above = made.layers[l].scale, made.layers[m].scale
        W = W if below is None else W / below.unsqueeze(1)
        W = W if above is None else W / above
        coupling.fill_(W.triu(1) if l == m else W)
    return made
