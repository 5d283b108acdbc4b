"""The two costs that everything is made of: uniform noise and matrix products."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.race import Table, compare, repeat
from harmonium import _random
from harmonium.backends import product

NOISE_SIZES = (1_000, 10_000, 50_000, 500_000)
PRODUCT_SIZES = (
    *((10, 16, 16), (100, 64, 64), (100, 784, 500), (100, 500, 784)),
    *((784, 100, 500), (784, 1000, 500), (1000, 784, 500), (1000, 784, 1000)),
)
NOISE_CASES = tuple(f"{size:,} numbers" for size in NOISE_SIZES)
PRODUCT_CASES = tuple(f"{m} × {k} × {n}" for m, k, n in PRODUCT_SIZES)
NOISE_SOURCES = ("harmonium", "torch.rand", "NumPy SFC64")
INT8 = "one int8 product"
PRODUCT_WAYS = ("harmonium", "torch.mm", INT8)


def noise(quick: bool) -> Table:
    table = Table(
        "noise",
        "Uniform float32 noise",
        notes=["NumPy SFC64 fills one array with one stream that is already open"],
    )
    torch_stream, own_stream = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    numpy_stream = np.random.Generator(np.random.SFC64(0))
    for case, size in zip(NOISE_CASES, NOISE_SIZES, strict=True):
        out = np.empty(size, np.float32)
        work = (
            lambda size=size: _random.uniform((size,), own_stream),
            lambda size=size: torch.rand(size, generator=torch_stream),
            lambda out=out: numpy_stream.random(out=out, dtype=np.float32),
        )
        times = max(3, 2_000_000 // size)
        contestants = {name: repeat(each, times) for name, each in zip(NOISE_SOURCES, work, strict=True)}
        compare(
            table,
            contestants,
            3 if quick else 15,
            group=case,
            figures=lambda seconds, size=size: {"ns a number": 1e9 * seconds / size},
        )
    return table


def products(quick: bool) -> Table:
    table = Table(
        "products",
        "Products (m, k) × (k, n) of real numbers",
        notes=[
            "transposed operands as they occur: (n, k) read as (k, n) where n > k, (k, m) where m > k",
            "one int8 product: of whole numbers, for comparison; three make a product with real numbers",
        ],
    )
    generator = torch.Generator().manual_seed(0)
    for case, (m, k, n) in zip(PRODUCT_CASES, PRODUCT_SIZES, strict=True):
        # The layouts that training meets: h Wᵀ, and vᵀ h.
        x = torch.rand(k, m, generator=generator).t() if m > k else torch.rand(m, k, generator=generator)
        y = torch.rand(n, k, generator=generator).t() if n > k else torch.rand(k, n, generator=generator)
        whole = (x > 0.5).to(torch.int8), (127 * y).to(torch.int8)
        operations = 2 * m * k * n
        work = (
            lambda x=x, y=y: product(x, y),
            lambda x=x, y=y: torch.mm(x, y),
            lambda whole=whole: torch._int_mm(*whole),
        )
        times = max(3, 300_000_000 // operations) if operations > 1e6 else 1000
        ways = {name: repeat(each, times) for name, each in zip(PRODUCT_WAYS, work, strict=True)}
        compare(
            table,
            ways,
            3 if quick else 15,
            group=case,
            figures=lambda seconds, work=operations: {"10⁹ operations a second": work / seconds / 1e9},
        )
    return table
