"""Products with states of two values by their bits, against float64 and against torch's own product."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from harmonium import backends
from harmonium.backends import OuterProductSum, PreparedMatrix, calls
from harmonium.backends.bits import Fixed, bits
from harmonium.backends.choice import works

pytest.importorskip("numba")
LOWS = [0.0, -1.0]
SHAPES = [
    (0, 5, 20), (1, 1, 1), (5, 24, 16), (7, 25, 17), (3, 47, 31), (6, 48, 32), (50, 33, 21), (9, 72, 33),
    (9, 73, 15), (1030, 61, 70), (40, 1008, 5), (2, 1009, 48), (2020, 1040, 18),
]  # fmt: skip


def states(low: float, rows: int, width: int, generator: torch.Generator) -> torch.Tensor:
    return torch.where(torch.rand(rows, width, generator=generator) < 0.4, 1.0, low)


@pytest.mark.nightly
def test_they_work_here() -> None:
    assert works("bits")


@pytest.mark.nightly
def test_no_less_exact_than_float32_over_a_hundred_machines() -> None:
    """Largest error of 100 machines, weights of 1e-3 to 1e2, 1 to 2,000 rows, from either side."""
    generator = torch.Generator().manual_seed(0)
    worst = {"bits": 0.0, "torch": 0.0}
    closer = 0
    for i in range(100):
        k, n = (500, 613, 784)[i % 3], (784, 555)[i % 2]
        rows, scale = (1, 10, 50, 200, 2000)[i % 5 if i % 10 < 5 else i % 4], 10 ** (-3 + 5 * i / 99)
        W = scale * torch.randn(k, n, generator=generator)
        transposed = i % 2 == 1
        x = states(LOWS[i % 3 > 0], rows, n if transposed else k, generator)
        y = W.t() if transposed else W
        truth = x.double() @ y.double()
        errors = {
            "bits": float((Fixed(y).times(bits(x)) - truth).abs().max()),
            "torch": float((x @ y - truth).abs().max()),
        }
        closer += errors["bits"] <= errors["torch"]
        worst = {name: max(worst[name], errors[name] / scale) for name in worst}
    assert worst["bits"] <= worst["torch"]
    assert closer >= 97  # none of 400 was less exact


@pytest.mark.parametrize("low", LOWS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_from_every_side(low: float, shape: tuple[int, int, int]) -> None:
    """Of states and their transpose, of a matrix, its transpose and every second of its columns."""
    m, k, n = shape
    generator = torch.Generator().manual_seed(1)
    x = states(low, m, k, generator)
    y = torch.randn(k, 2 * n, generator=generator)[:, ::2]
    weights = torch.randn(k, generator=generator)
    truth = x.double() @ (weights.double().unsqueeze(-1) * y.double())
    for known in (bits(x), bits(x.t().contiguous(), transposed=True), bits(x.t(), transposed=True)):
        assert known.low == (low if bool((x != 1).any()) else 0.0)
        for matrix in (y, y.contiguous(), y.t().contiguous().t()):
            made = Fixed(matrix, weights).times(known)
            torch.testing.assert_close(made.double(), truth, rtol=0, atol=2e-5)
            total = torch.ones(m, n)
            fixed = Fixed(matrix, weights)
            assert fixed.times(known, total) is total
            torch.testing.assert_close(total.double(), truth + 1, rtol=0, atol=2e-5)
            assert torch.equal(fixed.times(known), made)  # what the first product wrote is read again


@pytest.mark.parametrize("value", [0.5, -0.5, 2.0, 1e-30, 1 + 2**-23, float("nan"), float("inf")])
@pytest.mark.parametrize("transposed", [False, True])
def test_what_has_other_values_is_not_taken(value: float, transposed: bool) -> None:
    for place in ((0, 0), (4, 39), (31, 24), (31, 39)):
        for low in LOWS:
            x = torch.full((32, 40), low)
            x[3] = 1
            assert bits(x, transposed) is not None
            x[place] = value
            assert bits(x, transposed) is None
        x[place] = 0  # all three values
        assert bits(x, transposed) is None


@pytest.mark.parametrize("transposed", [False, True])
def test_every_entry_is_looked_at(transposed: bool) -> None:
    x = torch.zeros(120, 130)
    for row in range(120):
        for column in (0, 23, 24, 47, 99, 120, 129):
            x[row, column] = 0.25
            assert bits(x, transposed) is None
            x[row, column] = 0
    x[:8, 9], x[8, 9] = 0.5, 2.0  # one above, where eight are below
    x[9, :8], x[9, 8] = 0.5, 2.0
    assert bits(x, transposed) is None
    x[:8, 9], x[8, 9] = 0.0, 0.0
    assert bits(x, transposed) is None


def test_sums_are_exact_in_fixed_point() -> None:
    """A unit is a 2^31st of the sum of a column's magnitudes; nothing but y and the result is rounded."""
    generator = torch.Generator().manual_seed(6)
    y = torch.randn(1000, 40, generator=generator)
    y[7, 3], y[:, 5], y[9, 6] = 1e6, 0.0, 1e-30
    for low in LOWS:
        x = states(low, 300, 1000, generator)
        truth = x.double() @ y.double()
        unit = y.double().abs().sum(0) / 2**31
        error = (Fixed(y).times(bits(x)) - truth).abs()
        # Entries are off by half a unit each, with signs by chance: 300 · 40 sums within six deviations.
        assert bool((error <= 6 * unit * (1000 / 12) ** 0.5 + 2**-23 * truth.abs()).all())
    assert bool((Fixed(torch.zeros(30, 40)).times(bits(x[:, :30])) == 0).all())
    y[0, 0], y[0, 1] = float("inf"), float("nan")
    broken = Fixed(y).times(bits(x)).isnan()
    assert bool(broken[:, :2].all()) and not bool(broken[:, 2:].any())


@pytest.mark.parametrize("kind", ["bits", "constant"])
def test_sums_of_many_are_as_exact_as_torchs(bits_always, kind: str) -> None:
    """Of 20,000 units, and of 100,000 rows that come a thousand at a time."""
    generator = torch.Generator().manual_seed(8)
    x = states(0.0, 200, 20_000, generator)
    y = torch.full((20_000, 40), 0.1) if kind == "constant" else torch.randn(20_000, 40, generator=generator)
    truth = x.double() @ y.double()
    error, others = ((z - truth).pow(2).mean().sqrt() for z in (Fixed(y).times(bits(x)), x @ y))
    assert float(error) <= 1.5 * float(others)
    sums = OuterProductSum(torch.zeros(40, 40))
    total, truth = torch.zeros(40, 40), torch.zeros(40, 40, dtype=torch.float64)
    for _ in range(100):
        x, y = states(0.0, 1000, 40, generator), torch.rand(1000, 40, generator=generator)
        if kind == "constant":
            y[:] = 0.1
        sums.add(x, y, 1e-5)
        total.addmm_(x.t(), y, alpha=1e-5)
        truth += 1e-5 * (x.double().t() @ y.double())
    assert float((sums.total - truth).abs().max()) <= 1.5 * float((total - truth).abs().max())


def test_what_does_not_fit_is_refused(bits_always) -> None:
    generator = torch.Generator().manual_seed(9)
    y, x = torch.randn(70, 40, generator=generator), states(0.0, 60, 72, generator)
    with pytest.raises(ValueError, match=r"x: expected \(m, 70\).*received \(60, 72\)"):
        Fixed(y).times(bits(x))
    with pytest.raises(ValueError, match=r"for a total \(m, 40\).*\(60, 39\)"):
        Fixed(y).times(bits(x[:, :70]), torch.zeros(60, 39))
    for weights in (torch.ones(69), torch.ones(1)):
        with pytest.raises(ValueError, match=r"y: expected .* weights \(k,\)"):
            Fixed(y, weights)
    with pytest.raises(ValueError, match="float64"):
        Fixed(y.double())
    for factor in (y, y.double()):
        with pytest.raises(RuntimeError):
            PreparedMatrix(factor).times(x)
    for weight in (torch.ones(59), torch.ones(61)):
        with pytest.raises(RuntimeError):
            OuterProductSum(torch.zeros(70, 40)).add(x[:, :70], y[:60], weight)
    sums = OuterProductSum(torch.zeros(70, 40))
    for weight in (torch.tensor(0.5), torch.full((1,), 0.5)):
        sums.add(x[:, :70], y[:60], weight)
    torch.testing.assert_close(sums.total, x[:, :70].t() @ y[:60])


def test_totals_that_grow_say_so(bits_always) -> None:
    generator = torch.Generator().manual_seed(10)
    sums, x, y = OuterProductSum(torch.zeros(50, 40)), states(0.0, 60, 50, generator), torch.rand(60, 40)
    sums.add(x, y)
    total = sums.total
    slope = torch.ones(50, 40, requires_grad=True)
    loss, factor = (total * slope).sum(), PreparedMatrix(total)
    before = factor.times(x)
    sums.add(x, y)
    torch.testing.assert_close(factor.times(x), 2 * before)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    weight = torch.ones(60, requires_grad=True)
    sums.add(x, y, weight)
    sums.total.sum().backward()
    assert weight.grad is not None


@pytest.mark.parametrize("width", [15, 31, 55, 127])
def test_nothing_is_read_beyond_the_last_row(width: int) -> None:
    room = torch.full((40 * width + 64,), float("nan"))
    x = room[: 40 * width].view(40, width)
    x.zero_()
    assert bits(x) is not None and bits(x.t(), transposed=True) is not None


BEYOND = """
import ctypes, mmap, sys
import numpy as np
import torch
from harmonium.backends.bits import Fixed, bits

LIBC, PAGE = ctypes.CDLL(None, use_errno=True), mmap.PAGESIZE
KEPT = []

def at_the_edge(x, before):
    "A copy with a page beside it that nobody may touch."
    room = -(-x.nbytes // PAGE) * PAGE
    memory = mmap.mmap(-1, room + 2 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    KEPT.append(memory)
    for page in (start, start + PAGE + room):
        assert LIBC.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0) == 0
    offset = PAGE if before else PAGE + room - x.nbytes
    made = np.frombuffer(memory, x.dtype, x.size, offset).reshape(x.shape)
    made[...] = x
    return torch.from_numpy(made)

random = np.random.default_rng(0)
for m, k, n in eval(sys.argv[1]):
    for before in (False, True):
        x, y = random.integers(0, 2, (m, k)).astype(np.float32), random.normal(size=(k, n)).astype(np.float32)
        by = random.normal(size=k).astype(np.float32)
        for states in (bits(at_the_edge(x, before)), bits(at_the_edge(x.T.copy(), before), True)):
            for factor in (at_the_edge(y, before), at_the_edge(y.T.copy(), before).t()):
                total = at_the_edge(np.zeros((m, n), np.float32), before)
                Fixed(factor, at_the_edge(by, before)).times(states, total)
                assert np.allclose(total.numpy(), x @ (by[:, None] * y), atol=1e-4), (m, k, n)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it protects pages of memory as Linux does")
@pytest.mark.slow
@pytest.mark.nightly
def test_nothing_is_touched_beyond_the_arrays() -> None:
    """Compiled code checks no index: a page beside each array ends a process that reads or writes there."""
    shapes = [shape for shape in SHAPES if all(shape)]
    done = subprocess.run(
        [sys.executable, "-c", BEYOND, repr(shapes)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_sums_over_rows_from_either_side(bits_always) -> None:
    generator = torch.Generator().manual_seed(2)
    sums, truth = OuterProductSum(torch.zeros(30, 20)), torch.zeros(30, 20, dtype=torch.float64)
    for i in range(12):
        rows = 100 + 7 * i
        x, y = states(0.0, rows, 30, generator), torch.rand(rows, 20, generator=generator)
        if i % 3 == 1:  # states stand second
            x, y = torch.rand(rows, 30, generator=generator), states(-1.0, rows, 20, generator)
        if i % 3 == 2:  # nothing has two values
            x = torch.rand(rows, 30, generator=generator)
        weight = 1 / rows if i % 2 else (torch.rand(rows, generator=generator) - 0.5) / rows
        each = weight if isinstance(weight, float) else weight.double().unsqueeze(-1)
        sums.add(x, y, weight)
        truth += x.double().t() @ (y.double() * each)
    assert float((sums.total - truth).abs().max()) < 2e-6
    assert sums.total.is_contiguous()


def test_a_matrix_is_written_at_once_or_when_it_is_met_again() -> None:
    """From its transposed side it takes three times the rows, with as many again as have come."""
    before = backends.backend_name()
    generator = torch.Generator().manual_seed(10)
    W = torch.randn(784, 500, generator=generator)
    try:
        backends.set_backend("torch,bits=96")
        x = states(0.0, 100, 784, generator)
        by_bits = Fixed(W).times(bits(x))
        assert not torch.equal(by_bits, x @ W)  # real numbers give other bits
        assert torch.equal(PreparedMatrix(W).times(x), by_bits)
        assert not torch.equal(PreparedMatrix(W).times(x[:95]), by_bits[:95])
        across = PreparedMatrix(W.t().contiguous())
        for met in (False, True):  # 200 and 300 rows
            assert torch.equal(across.times(x, transposed=True), by_bits) == met
    finally:
        backends.set_backend(before)


def test_threads_that_come_at_once_write_each_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one writes the matrix another begins: neither may find what the other has half written."""
    generator = torch.Generator().manual_seed(11)
    y, x = torch.randn(70, 40, generator=generator), bits(states(0.0, 60, 70, generator))
    fixed, truth, rooms, over = Fixed(y), Fixed(y).times(x), [], calls.over

    def noted(name: str, shares: int, *given: object) -> None:
        known, numbers = given[6:8]
        if not known:
            rooms.append(numbers)
            if len(rooms) == 1:
                assert torch.equal(fixed.times(x), truth)
        over(name, shares, *given)

    monkeypatch.setattr(calls, "over", noted)
    assert torch.equal(fixed.times(x), truth)
    assert len(rooms) == 2 and rooms[0] is not rooms[1]
    assert torch.equal(fixed.times(x), truth) and len(rooms) == 2


def test_weights_and_views_of_other_kinds() -> None:
    generator = torch.Generator().manual_seed(12)
    x, y = states(0.0, 60, 70, generator), torch.randn(70, 40, generator=generator)
    weights = torch.rand(70, generator=generator).bfloat16()
    made = Fixed(y, weights.requires_grad_()).times(bits(x))
    torch.testing.assert_close(made, x @ (weights.detach().float().unsqueeze(-1) * y))
    assert bool(Fixed(y, 1e300).times(bits(x)).isnan().all())
    negative = torch.complex(y, -y).conj().imag
    assert negative.is_neg() and torch.equal(Fixed(negative).times(bits(x)), Fixed(y).times(bits(x)))
    assert (bits(torch.complex(x, -x).conj().imag).words == bits(x).words).all()
