"""Products of whole numbers in digits, against float64 and against torch's own product."""

from __future__ import annotations

import pytest
import torch

from harmonium import products
from harmonium.compiled import serving
from harmonium.products import Factor, RowProducts, calibration
from harmonium.products.digits import EXACT, MEANS, Digits, sum_over_rows, whole_numbers, work

pytest.importorskip("numba")
if not work():
    pytest.skip("int8 products are not to be had on this processor", allow_module_level=True)


def states(kind: str, rows: int, width: int, generator: torch.Generator) -> torch.Tensor:
    if kind == "counts":
        return torch.randint(0, 128, (rows, width), generator=generator).float()
    x = (torch.rand(rows, width, generator=generator) < 0.3).float()
    return 2 * x - 1 if kind == "spins" else x


def test_no_less_exact_than_float32_over_a_hundred_machines() -> None:
    """Largest error of 100 machines, weights of 1e-3 to 1e2, 1 to 2,000 rows, from either side.

    Of torch's product too it is the largest of all entries, in units of the weights: the largest of a single
    small product is as much chance as merit.
    """
    generator = torch.Generator().manual_seed(0)
    worst = {"digits": 0.0, "torch": 0.0}
    closer = 0
    for i in range(100):
        k, n = (500, 613, 784)[i % 3], (784, 555)[i % 2]
        rows, scale = (1, 10, 50, 200, 2000)[i % 5 if i % 10 < 5 else i % 4], 10 ** (-3 + 5 * i / 99)
        W = scale * torch.randn(k, n, generator=generator)
        transposed = i % 2 == 1
        x = states("spins" if i % 3 else "bits", rows, n if transposed else k, generator)
        y = W.t() if transposed else W
        truth = x.double() @ y.double()
        errors = {
            "digits": float((Digits(W, EXACT, transposed).times(whole_numbers(x)) - truth).abs().max()),
            "torch": float((x @ y - truth).abs().max()),
        }
        closer += errors["digits"] <= errors["torch"]
        worst = {name: max(worst[name], errors[name] / scale) for name in worst}
    assert worst["digits"] <= worst["torch"]
    assert closer >= 85  # a library that keeps many partial sums may win by a hair where rows are few


@pytest.mark.parametrize("kind", ["bits", "spins", "counts"])
@pytest.mark.parametrize("transposed", [False, True])
def test_both_directions_and_the_largest_digits(kind: str, transposed: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    W = torch.randn(33, 21, generator=generator)
    W[3, 4], W[:, 7], W[9] = 1e4, 0.0, -W[3].abs().max()
    x = states(kind, 50, 21 if transposed else 33, generator)
    y = (W.t() if transposed else W).double()
    error = (Digits(W, EXACT, transposed).times(whole_numbers(x)) - x.double() @ y).abs()
    rounded = 6.1e-8 * x.abs().sum(-1, keepdim=True) * y.abs().amax(0)
    assert bool((error <= rounded + 6e-8 * (x.double() @ y).abs()).all())


def test_sums_over_rows_from_either_side(digits_always) -> None:
    generator = torch.Generator().manual_seed(2)
    sums, truth = RowProducts(torch.zeros(30, 20)), torch.zeros(30, 20, dtype=torch.float64)
    for i in range(12):
        rows = 100 + 7 * i
        x, y = states("bits", rows, 30, generator), torch.rand(rows, 20, generator=generator)
        if i % 3 == 1:  # states stand second
            x, y = torch.rand(rows, 30, generator=generator), states("spins", rows, 20, generator)
        if i % 3 == 2:  # nothing is whole
            x = torch.rand(rows, 30, generator=generator)
        weight = 1 / rows if i % 2 else (torch.rand(rows, generator=generator) - 0.5) / rows
        each = weight if isinstance(weight, float) else weight.double().unsqueeze(-1)
        sums.add(x, y, weight)
        truth += x.double().t() @ (y.double() * each)
    assert (
        float((sums.total - truth).abs().max()) < 12 * 1.6e-5 * 1.8
    )  # as many batches, of up to 1.8 times as many rows as the first
    before = sums.total.clone()
    sums.grow(torch.ones(30, 20))
    torch.testing.assert_close(sums.total, before + 1)


def test_sums_over_no_rows_are_zero() -> None:
    assert torch.equal(RowProducts(torch.ones(3, 2)).total, torch.zeros(3, 2))


def test_means_in_two_digits_are_off_by_what_is_said() -> None:
    generator = torch.Generator().manual_seed(3)
    means, each = torch.rand(500, 40, generator=generator), whole_numbers(torch.eye(500))
    error = (Digits(means, MEANS).times(each) - means).abs()
    assert 0.9e-5 < float(error.max()) < 1.6e-5


@pytest.mark.parametrize("value", [0.5, 1e-30, 256.0, -200.0, float("nan"), float("inf"), 1e12])
def test_what_is_not_whole_is_not_taken(value: float) -> None:
    x = torch.zeros(5, 40)
    assert torch.equal(whole_numbers(x).entries, x.to(torch.uint8)) and whole_numbers(x).zero == 0
    whole = whole_numbers(x - 1)
    assert torch.equal(whole.entries.float() - whole.zero, x - 1) and whole.zero > 0
    for row in (4, 0):
        x[row, 39] = value
        assert whole_numbers(x) is None


def test_numbers_up_to_255_are_taken_wherever_they_stand() -> None:
    for row in (0, 4):
        x = torch.zeros(5, 40)
        x[row, 7] = 255.0
        whole = whole_numbers(x)
        assert whole is not None and whole.zero == 0 and torch.equal(whole.entries[:5].float(), x)


def test_the_choice_says_what_was_measured() -> None:
    measured = calibration.measure()
    assert measured.possible
    assert measured.gflops.keys() >= {"torch", "digits"} and min(measured.gflops.values()) > 0
    assert products.Choice.parse(str(measured)) == measured


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 1.0])
@pytest.mark.parametrize("transposed", [False, True])
def test_sums_of_the_rows_that_states_pick(monkeypatch, share: float, transposed: bool) -> None:
    monkeypatch.setattr(serving, "WORTHWHILE", 0)
    before = products.made()
    products.use("torch,sparse=1")
    try:
        generator = torch.Generator().manual_seed(6)
        W = torch.randn(70, 45, generator=generator)
        x = torch.randn(150, 45 if transposed else 70, generator=generator)
        x[torch.rand(x.shape, generator=generator) >= share] = 0
        truth = x.double() @ (W.t() if transposed else W).double()
        actual = Factor(W).times(x, transposed)
        assert actual.is_contiguous() and float((actual - truth).abs().max()) < 2e-5
        assert torch.equal(Factor(W).times(x[30:], transposed), actual[30:])
        y = torch.rand(150, 20, generator=generator)
        sums = RowProducts(torch.zeros(x.shape[1], 20))
        for weight in (1.0, -0.5):
            sums.add(x, y, weight)
        assert float((sums.total - 0.5 * x.double().t() @ y.double()).abs().max()) < 2e-5
    finally:
        products.use(before)


@pytest.mark.parametrize("summed", ["units", "rows"])
def test_sums_that_32_bits_do_not_hold_are_left_to_real_numbers(digits_always, summed: str) -> None:
    """140,000 counts of 127 times the largest digit pass 2^31."""
    many, few = torch.full((8, 140_000), 127.0), torch.ones(140_000, 8)
    if summed == "units":
        actual = Factor(few).times(many)
    else:
        sums = RowProducts(torch.zeros(8, 8))
        sums.add(many.t(), few)
        actual = sums.total
    # float32 itself loses half a thousandth where it adds 127 to more than 2^24.
    torch.testing.assert_close(actual, torch.full((8, 8), 127.0 * 140_000), rtol=1e-3, atol=0)


@pytest.mark.parametrize("rows", [1, 70, 1043, 2500])
def test_sums_over_rows_take_no_row_beyond_those_of_x(rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = states("counts", rows, 40, generator), torch.rand(rows, 30, generator=generator)
    actual, expected = sum_over_rows(whole_numbers(x), y), x.double().t() @ y.double()
    # A mean is off by at most 1.6e-5 of the largest in its column.
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=1.6e-5 * float(x.sum(0).max()))
