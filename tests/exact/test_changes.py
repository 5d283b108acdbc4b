"""Products with differences of states against dense products."""

from __future__ import annotations

import pytest
import torch

from harmonium.compiled import serving
from harmonium.products.changes import Changes


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.6])
@pytest.mark.parametrize("rows", [0, 1, 40])
def test_product_and_rows(monkeypatch, compiled, dtype, share, rows):
    if compiled:
        pytest.importorskip("numba")
    monkeypatch.setattr(serving, "COMPILED", compiled)
    generator = torch.Generator().manual_seed(0)
    kept = torch.rand(rows, 70, generator=generator) < share
    x = torch.where(kept, torch.randn(rows, 70, generator=generator), 0.0).to(dtype)
    x[: rows // 2 : 2] = 0
    y = torch.randn(70, 9, generator=generator, dtype=dtype)
    changes = Changes(x)
    torch.testing.assert_close(changes.product(y), x @ y)
    assert changes.rows.tolist() == (x != 0).any(1).tolist()
