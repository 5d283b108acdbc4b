"""Sums over very many rows, against float64."""

from __future__ import annotations

import pytest
import torch

from harmonium import products
from harmonium.products import RowProducts, dense


@pytest.fixture(params=dense.LIBRARIES)
def library(request):
    if not dense.works(request.param):
        pytest.skip(f"{request.param} is not to be had with this torch")
    before = products.made()
    products.use(request.param)
    yield
    products.use(before)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("k", "n"), [(1, 1), (6, 4), (9, 9), (300, 3), (2, 256), (20, 20)])
def test_sums_over_many_rows_keep_their_digits(k, n):
    """Of equal rows all errors point one way: added one by one these are off by 1e-3 of their sum."""
    rows = 100_001
    sums, each = RowProducts(torch.zeros(k, n)), torch.tensor(1 / rows)
    sums.add(torch.ones(rows, k), torch.ones(rows, n), float(each))
    sums.add(torch.ones(rows, k), torch.ones(rows, n), each.expand(rows))
    expected = torch.full((k, n), 2 * rows * float(each), dtype=torch.float64)
    torch.testing.assert_close(sums.total.double(), expected, rtol=1e-5, atol=0)
