"""The imputation task: shapes, what is kept, and errors."""

from __future__ import annotations

import pytest
import torch

import harmonium as hm
from harmonium.data import missing_at_random, missing_half
from harmonium.tasks import impute

LAYERS = {
    "bernoulli": lambda: [hm.Bernoulli(6), hm.Bernoulli(4)],
    "spin": lambda: [hm.Spin(6), hm.Spin(4), hm.Spin(3)],
    "categorical": lambda: [hm.Categorical(6, 3), hm.Bernoulli(4)],
    "gaussian": lambda: [hm.Gaussian(6), hm.Bernoulli(4), hm.Gaussian(2)],
}


def made(kind: str) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine(LAYERS[kind]())
    hm.machine.normal_(machine, 0.3, torch.Generator().manual_seed(0))
    return machine


@pytest.mark.parametrize("method", hm.tasks.IMPUTE_METHODS)
@pytest.mark.parametrize("kind", LAYERS)
def test_given_values_stay_and_the_rest_is_in_the_support(kind, method):
    machine = made(kind)
    layer = machine.layers[0]
    X = machine.random_states(9, seed=torch.Generator().manual_seed(1))[0]
    missing = missing_at_random(9, 6, 0.5, seed=1)
    columns = missing.repeat_interleave(layer.width // 6, -1)
    done = impute(machine, X.masked_fill(columns, torch.nan), missing, method, draws=3, sweeps=4)
    assert done.method == ("exact" if method == "auto" else method)
    assert done.mode.shape == done.mean.shape == X.shape
    assert done.draws.shape == (3, *X.shape)
    for part in (done.mode, done.mean, *done.draws):
        assert torch.equal(part[~columns], X[~columns])
        assert bool(torch.isfinite(part).all())
    for part in (done.mode, *done.draws):
        layer.check(part, "completed")
    again = impute(machine, X, missing, method, draws=3, sweeps=4)
    assert all(torch.equal(a, b) for a, b in zip(done[:3], again[:3], strict=True))


def test_nothing_or_all_may_be_missing():
    machine = made("bernoulli")
    X = machine.random_states(3, seed=torch.Generator().manual_seed(1))[0]
    nothing = impute(machine, X, torch.zeros(1, 6, dtype=torch.bool))
    assert torch.equal(nothing.mode, X)
    everything = impute(machine, torch.full_like(X, torch.nan), torch.ones(3, 1, dtype=torch.bool))
    machine.layers[0].check(everything.mode, "all")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"missing": torch.ones(2, 5, dtype=torch.bool)}, ValueError, "missing: expected"),
        ({"missing": torch.ones(3, 6)}, TypeError, "missing: expected booleans"),
        ({"X": torch.zeros(3, 5)}, ValueError, "X: expected"),
        ({"X": torch.full((3, 6), 0.5)}, ValueError, "X: expected values"),
        ({"X": torch.full((3, 6), torch.nan)}, ValueError, "X: expected finite"),
        ({"method": "magic"}, ValueError, "method: expected one of"),
        ({"sweeps": 1}, ValueError, "sweeps: expected"),
        ({"draws": 0}, ValueError, "draws: expected"),
    ],
)
def test_errors(arguments, error, message):
    given = {"X": torch.zeros(3, 6), "missing": torch.arange(6).unsqueeze(0) > 2, **arguments}
    with pytest.raises(error, match=message):
        impute(made("bernoulli"), **given)


def test_patterns():
    assert missing_at_random(200, 50, 0.3).double().mean().item() == pytest.approx(0.3, abs=0.02)
    for side in ("upper", "lower", "left", "right"):
        half = missing_half(2, (5, 4), side).view(2, 5, 4)
        assert int(half[0].sum()) == 2 * (4 if side in ("upper", "lower") else 5)
    assert bool(missing_half(1, (4, 4), "lower").view(4, 4)[3].all())
    assert bool(missing_half(1, (4, 4), "right").view(4, 4)[:, 3].all())
