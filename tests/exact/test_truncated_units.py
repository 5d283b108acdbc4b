"""Truncated units far out: fields of either sign in the hundreds, curvatures from -200 to 3000, and 0."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import harmonium as hm
from harmonium.layers._truncated import truncated_mode, truncated_moments, truncated_quantile

from . import oracle
from .machines import array

pytestmark = pytest.mark.slow

SLOPES = np.array(
    [-300, -120, -31, -10, -3, -1, -0.1, -1e-4, 0, 1e-6, 0.1, 0.5, 1, 3, 10, 31, 100, 300, 500], dtype=float
)
CURVATURES = np.array(
    [-200, -80, -40, -20, -5, -1, -0.1, -1e-3, -1e-8, 0, 1e-8, 1e-3, 0.1, 1, 5, 20, 100, 500, 3000]
)
ENDS = [(0.0, 1.0), (-1.0, 1.0), (0.25, 2.5), (-2.0, -0.5), (-3.0, 3.0)]
ends = pytest.mark.parametrize("low, high", ENDS)
dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
FAILURE_RATE = 1e-3


def corners(low: float, high: float, dtype: torch.dtype) -> tuple[list[torch.Tensor], list[np.ndarray]]:
    """Slope, curvature and ends as the library sees them, and the very same numbers in double precision."""
    slope, curvature = (grid.ravel() for grid in np.meshgrid(SLOPES, CURVATURES))
    ones = np.ones_like(slope)
    tensors = [torch.from_numpy(x).to(dtype) for x in (slope, curvature, low * ones, high * ones)]
    return tensors, [array(x) for x in tensors]


def truth(slope: np.ndarray, curvature: np.ndarray, low: np.ndarray, high: np.ndarray) -> oracle.UnitTruth:
    """Of a unit whose ends differ in every row."""
    layer = oracle.Layer("truncated_gaussian", (np.zeros(1), np.zeros(1)), (low[None], high[None]))
    return oracle.unit_truth(layer, 0, slope[:, None], curvature[:, None])


@ends
@dtypes
def test_log_mass_mean_and_variance_against_quadrature(low: float, high: float, dtype: torch.dtype) -> None:
    """On 4000 nodes. A mean or ψ near 0 is a difference of large parts: 1e-2 of their size is its scale."""
    arguments, exact = corners(low, high, dtype)
    expected = truth(*exact)
    moments = truncated_moments(*arguments)
    tolerance = TOLERANCE[dtype]
    for actual, value, scale in (
        (moments.log_mass, expected.log_partition, 1.0),
        (moments.mean, expected.mean[:, 0], 0.0 if low == 0 else max(abs(low), abs(high))),
        (moments.variance, expected.variance[:, 0], 0.0),
    ):
        assert actual.dtype == dtype
        assert np.isfinite(array(actual)).all()
        np.testing.assert_allclose(array(actual), value, rtol=tolerance, atol=1e-2 * tolerance * scale)
    if dtype == torch.float64:
        np.testing.assert_allclose(array(moments.variance), expected.variance[:, 0], rtol=1e-10)


@ends
@dtypes
def test_gradients_are_finite_and_right(low: float, high: float, dtype: torch.dtype) -> None:
    """Of ψ the moments; of the moments, numbers that the other derivative agrees with: d mean/dγ = -cov/2."""
    (slope, curvature, *bounds), _ = corners(low, high, dtype)
    slope.requires_grad_()
    curvature.requires_grad_()
    moments = truncated_moments(slope, curvature, *bounds)
    first, second = torch.autograd.grad(moments.log_mass.sum(), (slope, curvature), create_graph=True)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-3
    size = max(abs(low), abs(high))
    np.testing.assert_allclose(array(first), array(moments.mean), rtol=tolerance, atol=tolerance * size)
    square = array(moments.mean) ** 2 + array(moments.variance)
    np.testing.assert_allclose(array(second), -square / 2, rtol=tolerance, atol=tolerance * size**2)
    for output in (moments.mean, moments.variance, first, second):
        for gradient in torch.autograd.grad(output.sum(), (slope, curvature), retain_graph=True):
            assert bool(torch.isfinite(gradient).all())
    (of_mean,) = torch.autograd.grad(moments.mean.sum(), slope, retain_graph=True)
    np.testing.assert_allclose(array(of_mean), array(moments.variance), rtol=100 * tolerance, atol=tolerance)


@ends
@dtypes
def test_quantiles_are_the_inverse_of_the_distribution(low: float, high: float, dtype: torch.dtype) -> None:
    """P(x <= quantile(u)) = u for u from 0 to 1, with P the mass of the lower part by quadrature."""
    arguments, exact = corners(low, high, dtype)
    whole = truth(*exact).log_partition
    previous = None
    for turn, level in enumerate((0.0, 1e-6, 0.03, 0.5, 0.999, 1 - 2.0**-24)):
        u = torch.full_like(arguments[0], level)
        x = truncated_quantile(u, *arguments)
        assert bool(((x >= low) & (x <= high)).all())
        if previous is not None:
            assert bool((x >= previous).all())
        previous = x
        # Quadrature takes its time: at each level another third of the corners.
        seen = slice(turn % 3, None, 3)
        x, u, corner, mass = x[seen], u[seen], [each[seen] for each in exact], whole[seen]
        # ∫ from low to x as the mass of an interval whose end differs in every row.
        end = array(x)
        inside = end > corner[2]
        reached = np.zeros_like(mass)
        if inside.any():
            below = truth(*(each[inside] for each in (*corner[:3], end))).log_partition
            reached[inside] = np.exp(below - mass[inside])
        # An x rounded to the machine's precision is off by its spacing times the density.
        spacing = np.finfo(np.float32 if dtype == torch.float32 else np.float64).eps * max(
            abs(low), abs(high)
        )
        density = np.exp((corner[0] - 0.5 * corner[1] * array(x)) * array(x) - mass)
        slack = 2e-6 if dtype == torch.float32 else 1e-12
        assert (np.abs(reached - array(u)) <= slack + 2 * spacing * density).all()


def test_modes() -> None:
    """The peak, put into the interval; at γ <= 0 the higher end, of two equal ones the upper."""
    cases = [
        ((2.0, 4.0), 0.5), ((-2.0, 4.0), 0.0), ((9.0, 4.0), 1.0), ((1.0, 0.0), 1.0), ((-1.0, 0.0), 0.0),
        ((0.0, 0.0), 1.0), ((-2.0, -4.0), 1.0), ((-2.1, -4.0), 0.0), ((-1.9, -4.0), 1.0),
    ]  # fmt: skip
    slope, curvature = (torch.tensor([case[0][i] for case in cases]) for i in range(2))
    mode = truncated_mode(slope, curvature, torch.zeros(len(cases)), torch.ones(len(cases)))
    assert mode.tolist() == [case[1] for case in cases]


@pytest.mark.statistical
@dtypes
@pytest.mark.parametrize("cls", [hm.TruncatedGaussian, hm.TruncatedGaussBernoulli])
@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
@pytest.mark.mostly_nightly(2)
def test_samples_have_the_distribution(cls: type, dtype: torch.dtype, wrong: bool) -> None:
    """Kolmogorov-Smirnov at 60 corners, and χ² of the zeros; the failure rate is 1e-3 for all of them.

    A sampler that draws at a slope one deviation aside must be caught at nearly every corner.
    """
    rng = np.random.default_rng(20260)
    grid = np.linspace(-0.5, 1.5, 20_001)
    slope = np.concatenate([rng.uniform(-300, 500, 20), rng.normal(0, 5, 30), np.zeros(10)]).round(3)
    curvature = np.concatenate([rng.uniform(-200, 3000, 20), rng.normal(0, 30, 35), np.zeros(5)]).round(3)
    units, rows = len(slope), 4000
    layer = cls(units, -0.5, 1.5).to(dtype)
    with torch.no_grad():
        layer.quadratic.copy_(torch.from_numpy(curvature))
        if cls is hm.TruncatedGaussBernoulli:
            psi = hm.TruncatedGaussian(units, -0.5, 1.5).to(dtype)
            field = torch.from_numpy(slope).to(dtype)
            theta = tuple(parameter.detach() for parameter in layer.natural()[:2])
            layer.logit_rate.copy_(0.5 - psi.log_partition(field, theta=theta))
    field = torch.from_numpy(slope).to(dtype)
    noise = layer.noise((rows, units), generator=torch.Generator().manual_seed(6))
    deviation = layer.moments(field).variance.sqrt().detach()
    x = array(layer.sample((field + wrong / deviation).expand(rows, -1), noise))
    layer.check(torch.from_numpy(x).to(dtype), "x")
    failed = 0
    for unit in range(units):
        values = x[:, unit]
        if cls is hm.TruncatedGaussBernoulli:
            zeros = int((values == 0).sum())
            rate = 1 / (1 + np.exp(0.5))
            failed += stats.binomtest(zeros, rows, rate).pvalue < FAILURE_RATE / (2 * units)
            values = values[values != 0]
        edges = (grid[1:] + grid[:-1]) / 2
        logs = (field[unit].item() - 0.5 * layer.quadratic[unit].item() * edges) * edges
        mass = np.exp(logs - logs.max())
        table = np.concatenate([[0.0], mass.cumsum() / mass.sum()])
        result = stats.kstest(values, lambda x, table=table: np.interp(x, grid, table))
        failed += result.pvalue < FAILURE_RATE / (2 * units)
    assert failed > 0.9 * units if wrong else failed == 0


@pytest.mark.parametrize("cls", [hm.TruncatedGaussian, hm.TruncatedGaussBernoulli])
def test_proposals_are_symmetric(cls: type) -> None:
    """The image of uniform noise from cell i in cell j equals that from j in i; the atom is a cell."""
    layer = cls(1, -0.5, 1.0).double()
    cells, count = 6, 60_000
    noise = ((torch.arange(count, dtype=torch.float64) + 0.5) / count).unsqueeze(-1)
    rng = np.random.default_rng(1)
    flow = np.zeros((cells + 1, cells + 1))
    for i in range(cells + 1):
        if i == cells:
            start = np.zeros((count, 1))
            size = 1.0
        else:
            start = -0.5 + 1.5 * (i + rng.uniform(size=(count, 1))) / cells
            size = 1.5 / cells
        if i == cells and cls is hm.TruncatedGaussian:
            continue
        moved = array(layer.propose(torch.from_numpy(start), noise, 0.3))[:, 0]
        layer.check(torch.from_numpy(moved)[:, None], "moved")
        landed = np.minimum(((moved + 0.5) / 1.5 * cells).astype(int), cells - 1)
        if cls is hm.TruncatedGaussBernoulli:
            landed[moved == 0] = cells
        flow[i] = size * np.bincount(landed, minlength=cells + 1) / count
    np.testing.assert_allclose(flow, flow.T, atol=6 * 0.5 / count**0.5)
    assert flow[0, 1] > 0.01


def test_matching_finds_what_was_put_in() -> None:
    """θ -> E[t] -> θ, over several orders of magnitude."""
    rng = np.random.default_rng(3)
    for cls in (hm.TruncatedGaussian, hm.TruncatedGaussBernoulli):
        layer = cls(40, -0.5, 2.0).double()
        theta = [torch.from_numpy(rng.normal(size=40) * 10 ** rng.uniform(-1, 2, 40)) for _ in range(2)]
        theta += [torch.from_numpy(rng.normal(size=40))] * (cls is hm.TruncatedGaussBernoulli)
        if cls is hm.TruncatedGaussBernoulli:
            theta[2] -= hm.TruncatedGaussian(40, -0.5, 2.0).double().log_partition(theta[0], theta[1])
            theta[2] = theta[2].detach()
        zero = torch.zeros(40, dtype=torch.float64)
        expected = layer.expected_statistics(zero, theta=tuple(theta))
        layer.fit_(expected, torch.ones_like(zero))
        found = layer.expected_statistics(zero)
        for t, value in zip(found, expected, strict=True):
            np.testing.assert_allclose(array(t), array(value), rtol=1e-6, atol=1e-9)


def test_bounds_are_refused_by_name() -> None:
    for cls in (hm.TruncatedGaussian, hm.TruncatedGaussBernoulli):
        with pytest.raises(ValueError, match=r"high: expected more than low = 1, received 1 \(unit 0\)"):
            cls(2, 1.0, 1.0)
        with pytest.raises(ValueError, match="low: expected a number or 3 numbers, received 2"):
            cls(3, [0.0, 1.0], 2.0)
        with pytest.raises(ValueError, match=r"high: expected a finite number"):
            cls(3, 0.0, float("inf"))
        with pytest.raises(TypeError, match="low: expected a number, received str"):
            cls(3, "0", 1.0)
        with pytest.raises(ValueError, match=r"X: expected .*values in \[0, 1\]"):
            cls(2, 0.0, 1.0).check(torch.tensor([[0.5, 1.5]]), "X")
