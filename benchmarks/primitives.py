"""The two costs that everything is made of: uniform noise and matrix products."""

from __future__ import annotations

from statistics import median

import numpy as np
import torch

from benchmarks.race import Contestant, Table, race, ratio, repeat
from harmonium import _random
from harmonium._products import product

NOISE_SIZES = (1_000, 10_000, 50_000, 500_000)
PRODUCT_SIZES = (
    *((10, 16, 16), (100, 64, 64), (100, 784, 500), (100, 500, 784)),
    *((784, 100, 500), (784, 1000, 500), (1000, 784, 500), (1000, 784, 1000)),
)


def noise(quick: bool) -> Table:
    table = Table(
        "noise",
        "Uniform float32 noise, ns a number",
        ["numbers", "torch.rand", "NumPy SFC64", "_random.uniform", "torch.rand ÷ own", "SFC64 ÷ own"],
        notes=["NumPy SFC64 fills one array with one stream that is already open"],
    )
    torch_stream, own_stream = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    numpy_stream = np.random.Generator(np.random.SFC64(0))
    for size in NOISE_SIZES:
        out = np.empty(size, np.float32)
        work = {
            "torch.rand": lambda size=size: torch.rand(size, generator=torch_stream),
            "SFC64": lambda out=out: numpy_stream.random(out=out, dtype=np.float32),
            "own": lambda size=size: _random.uniform((size,), own_stream),
        }
        times = max(3, 2_000_000 // size)
        seconds = race({name: repeat(each, times) for name, each in work.items()}, 3 if quick else 15)
        nano = {name: 1e9 * median(taken) / size for name, taken in seconds.items()}
        ratios = [ratio(seconds, name, "own") for name in ("torch.rand", "SFC64")]
        table.rows.append([f"{size:,}", *(f"{each:.2f}" for each in [*nano.values(), *ratios])])
        table.data[str(size)] = {"nanoseconds": nano, "ratios": ratios}
    return table


def products(quick: bool) -> Table:
    table = Table(
        "products",
        "Float32 products (m, k) × (k, n)",
        ["m, k, n", "torch.mm GFLOP/s", "own GFLOP/s", "torch.mm ÷ own"],
        notes=["transposed operands as they occur: (n, k) read as (k, n) where n > k, (k, m) where m > k"],
    )
    generator = torch.Generator().manual_seed(0)
    for m, k, n in PRODUCT_SIZES:
        # The layouts that training meets: h Wᵀ, and vᵀ h.
        x = torch.rand(k, m, generator=generator).t() if m > k else torch.rand(m, k, generator=generator)
        y = torch.rand(n, k, generator=generator).t() if n > k else torch.rand(k, n, generator=generator)
        operations = 2 * m * k * n
        times = max(3, 500_000_000 // operations) if operations > 1e6 else 1000
        contestants: dict[str, Contestant] = {
            "torch.mm": repeat(lambda x=x, y=y: torch.mm(x, y), times),
            "own": repeat(lambda x=x, y=y: product(x, y), times),
        }
        seconds = race(contestants, 3 if quick else 15)
        speeds = {name: operations / median(taken) / 1e9 for name, taken in seconds.items()}
        times_own = ratio(seconds, "torch.mm", "own")
        table.rows.append(
            [f"{m}, {k}, {n}", *(f"{each:.1f}" for each in speeds.values()), f"{times_own:.2f}"]
        )
        table.data[f"{m}x{k}x{n}"] = {"gflops": speeds, "ratio": times_own}
    return table
