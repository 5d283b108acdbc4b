"""Fields in tf32 and bf16: what is rounded, what is not, and that a run remembers it."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.backends import PRECISIONS, precision
from harmonium.backends.rounding import rounded

X = torch.randint(0, 2, (12, 6), generator=torch.Generator().manual_seed(0)).float()


def machine() -> hm.BoltzmannMachine:
    made = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], seed=1)
    hm.machine.normal_(made, 1.0, seed=1)
    return made


@pytest.mark.parametrize(("name", "bits"), [("tf32", 10), ("bf16", 7)])
def test_numbers_keep_their_leading_bits(name: str, bits: int) -> None:
    x = torch.randn(1000, generator=torch.Generator().manual_seed(1)) * 10.0 ** torch.linspace(-20, 20, 1000)
    mantissa, exponent = np.frexp(x.double().numpy())
    expected = np.ldexp(np.round(mantissa * 2.0 ** (bits + 1)) / 2.0 ** (bits + 1), exponent)
    assert np.array_equal(rounded(name, x).double().numpy(), expected)
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 1.0, -3.0])
    assert torch.equal(rounded(name, special), special) and bool(rounded(name, special[:0] + 1).numel() == 0)


@pytest.mark.parametrize("name", ["tf32", "bf16"])
def test_chains_follow_the_machine_with_rounded_couplings(name: str) -> None:
    """To the bit: states of discrete units are as they are in fewer bits."""
    other = copy.deepcopy(machine())
    with torch.no_grad():
        other.couplings[0].weight.copy_(rounded(name, other.couplings[0].weight))
    with precision(name):
        found = hm.chains.run(machine(), hm.chains.Gibbs(), X, 20, seed=3)
    expected = hm.chains.run(other, hm.chains.Gibbs(), X, 20, seed=3)
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))
    fields = [hm.BoltzmannMachine.hamiltonian(each).field(1, [X, X[:, :0]]) for each in (machine(), other)]
    assert not torch.equal(*fields)  # and outside nothing is rounded


def test_statistics_are_not_rounded() -> None:
    real = hm.BoltzmannMachine([hm.Gaussian(6), hm.Bernoulli(4)], seed=None)
    v = torch.randn(12, 6, generator=torch.Generator().manual_seed(2))
    exact = hm.rules.cd().gradient(real, v, seed=0).parameters["layers.0.mean"]
    with precision("bf16"):
        found = hm.rules.cd().gradient(real, v, seed=0).parameters["layers.0.mean"]
    assert torch.equal(found, exact)  # without couplings there is no field to round


def test_a_run_remembers_its_precision(tmp_path: Path) -> None:
    def train(updates: int, name: str) -> torch.Tensor:
        made = machine()
        hm.train(
            made, X, rule="pcd", updates=updates, batch_size=5, precision=name, run_dir=tmp_path,
            resume=True, progress=False,
        )  # fmt: skip
        return made.couplings[0].weight.detach()

    train(2, "bf16")
    with pytest.raises(ValueError, match=r"^precision: the run to resume has 'bf16', received 'float32'"):
        train(4, "float32")
    assert train(4, "bf16").isfinite().all()


def test_what_is_no_precision_is_named() -> None:
    with pytest.raises(ValueError, match=r"^precision: expected one of bf16, float32, tf32; received 'fp16'"):
        hm.train(machine(), X, rule="pcd", updates=1, precision="fp16")
    assert PRECISIONS == ("float32", "tf32", "bf16")
    with pytest.raises(ValueError, match=r"^precision: expected"), precision("half"):
        pass
