"""Bennett's acceptance ratio against the root of its equation by scipy, pymbar, and known differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from scipy.special import expit

from harmonium.ladder import bennett_ratio

PYMBAR = {  # of ``pymbar.bar`` 4.0.3 on ``states``: minus Delta_f
    (60, 60): -0.27452580071916205,
    (80, 33): -0.37634056626969625,
}


def states(n_a: int, n_b: int) -> tuple[np.ndarray, np.ndarray]:
    """Gaps F_b - F_a of states of either machine, without a generator that may change."""
    i, j = np.arange(n_a), np.arange(n_b)
    x = np.sin((i + 1) * 1.7) * 1.5 + 0.3 * np.cos(i * 0.9) + 1.2
    y = np.sin((j + 1) * 2.3) * 1.2 - 0.4 * np.cos(j * 1.1) - 0.6
    return x, y


@pytest.mark.parametrize("sizes", PYMBAR)
def test_agrees_with_pymbar(sizes: tuple[int, int]) -> None:
    found = bennett_ratio(*map(torch.from_numpy, states(*sizes)))
    assert found.value == pytest.approx(PYMBAR[sizes], abs=1e-9)


def test_agrees_with_the_error_of_pymbar() -> None:
    """On the quantiles of two normal distributions; pymbar's formula is the same where states follow them."""
    x = torch.from_numpy(stats.norm.ppf((np.arange(400) + 0.5) / 400))
    a, b = ((x - 0.8) ** 2 / (2 * 1.3**2) - x**2 / 2 for x in (x, 0.8 + 1.3 * x))
    found = bennett_ratio(a, b)
    assert found.value == pytest.approx(0.26205500104120905, abs=1e-9)
    assert found.standard_error == pytest.approx(0.026738430863721303, rel=0.01)


@pytest.mark.parametrize("shift", [0.0, 40.0, -3e4])
def test_solves_its_equation_wherever_the_root_lies(shift: float) -> None:
    x, y = (each + shift for each in states(70, 45))

    def excess(c: float) -> float:
        more = c + np.log(70 / 45)
        return float(expit(-(more + x)).sum() - expit(more + y).sum())

    root = optimize.brentq(excess, -shift - 30, -shift + 30, xtol=1e-12)
    found = bennett_ratio(*map(torch.from_numpy, (x, y)))
    assert found.value == pytest.approx(root, abs=1e-8)


def test_the_difference_of_two_normal_distributions() -> None:
    """F_a = x²/2 and F_b = (x - m)²/(2 s²): ln Z_b - ln Z_a = ln s. 200 repeats show the error as it is."""
    m, s, n = 0.8, 1.3, 400
    generator = torch.Generator().manual_seed(0)
    values, errors = [], []
    for _ in range(200):
        a = torch.randn(n, generator=generator, dtype=torch.float64)
        b = m + s * torch.randn(n, generator=generator, dtype=torch.float64)
        found = bennett_ratio(*((x - m) ** 2 / (2 * s * s) - x**2 / 2 for x in (a, b)))
        values.append(found.value)
        errors.append(found.standard_error)
        assert 0.5 < found.overlap < 1
    z = (np.mean(values) - np.log(s)) / (np.std(values) / 200**0.5)
    assert abs(z) < 4
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.25)


def test_equal_distributions_overlap_wholly() -> None:
    found = bennett_ratio(torch.zeros(30), torch.zeros(50))
    assert found.value == pytest.approx(0, abs=1e-12) and found.overlap == pytest.approx(1)
    assert found.standard_error == 0


def test_distributions_far_apart_hardly_overlap() -> None:
    found = bennett_ratio(torch.linspace(20, 30, 50), torch.linspace(-30, -20, 50))
    assert found.overlap < 1e-6 and found.value == pytest.approx(0, abs=30)


def test_a_root_without_overlap_is_found_all_the_same() -> None:
    """Where every term underflows, the two largest are equal: -(c + 9000) = c + 1000."""
    ratio = bennett_ratio(torch.full((50,), 9000.0), torch.full((50,), 1000.0))
    assert abs(ratio.value + 5000) < 1e-9 and ratio.overlap == 0 and np.isfinite(ratio.standard_error)
    assert bennett_ratio(torch.tensor([2000.0, 2010]), torch.tensor([5000.0, 5010])).standard_error == np.inf


def test_influences_add_up_to_nothing_and_to_the_error() -> None:
    found = bennett_ratio(*map(torch.from_numpy, states(60, 40)))
    assert found.influence.shape == (100,)
    assert float(found.influence.sum()) == pytest.approx(0, abs=1e-12)
    assert float(found.influence.square().sum().sqrt()) == pytest.approx(found.standard_error)


def test_gaps_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="expected finite free energies"):
        bennett_ratio(torch.tensor([0.0, torch.inf]), torch.zeros(2))
