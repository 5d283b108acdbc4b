"""Sums over very many rows, against float64."""

from __future__ import annotations

import pytest
import torch

from harmonium import backends
from harmonium.backends import OuterProductSum, PreparedMatrix, choice, products


@pytest.fixture(params=choice.LIBRARIES)
def library(request):
    if not choice.works(request.param):
        pytest.skip(f"{request.param} is not to be had with this torch")
    before = backends.backend_name()
    backends.set_backend(request.param)
    yield request.param
    backends.set_backend(before)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("k", "n"), [(1, 1), (6, 4), (9, 9), (50, 3), (2, 50), (20, 20)])
def test_sums_over_many_rows_keep_their_digits(k, n):
    """Of equal rows all errors point one way: added one by one these are off by 1e-3 of their sum."""
    rows = 100_001
    sums, each = OuterProductSum(torch.zeros(k, n)), torch.tensor(1 / rows)
    sums.add(torch.ones(rows, k), torch.ones(rows, n), float(each))
    sums.add(torch.ones(rows, k), torch.ones(rows, n), each.expand(rows))
    expected = torch.full((k, n), 2 * rows * float(each), dtype=torch.float64)
    torch.testing.assert_close(sums.total.double(), expected, rtol=1e-5, atol=0)
    assert products._thin(torch.ones(rows, k), torch.ones(rows, n)) == (min(k, n) < 16)


@pytest.mark.usefixtures("library")
def test_fields_of_very_many_units_keep_their_digits():
    units = 100_000
    x = torch.zeros(50, units)
    x[:, ::5] = 1.0
    actual = PreparedMatrix(torch.full((units, 20), 0.1)).times(x)
    expected = torch.full((50, 20), units / 5 * float(torch.tensor(0.1)), dtype=torch.float64)
    torch.testing.assert_close(actual.double(), expected, rtol=5e-6, atol=0)
