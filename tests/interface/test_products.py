"""What multiplies: said by the user or measured, kept by a run, never at import."""

from __future__ import annotations

import pytest
import torch

import harmonium as hm
from harmonium import products
from harmonium.training.checkpoint import read_checkpoint, write_checkpoint


@pytest.fixture(autouse=True)
def restored():
    before = products.made()
    products.use(None)
    yield
    products.use(before)


def test_nothing_is_measured_before_a_large_product() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(30), hm.Bernoulli(20)])
    v = machine.random_states(50, seed=torch.Generator().manual_seed(0))[0]
    hm.rules.cd().gradient(machine, v, seed=torch.Generator().manual_seed(1))
    assert products.made() is None


def test_the_environment_is_asked_first(monkeypatch) -> None:
    monkeypatch.setenv("HARMONIUM_PRODUCTS", "torch")
    assert str(products.choice()) == "torch"
    products.use(None)
    monkeypatch.setenv("HARMONIUM_PRODUCTS", "abacus")
    with pytest.raises(ValueError, match="products: expected torch or onednn"):
        products.choice()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "torch:64",
        "torch,bits=0",
        "mkl",
        "onednn,bits=many",
        "torch,digits=64",
        "torch,bits=64,sparse=0.25",
        "torch,fast=1",
    ],
)
def test_what_is_no_choice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"products: expected torch or onednn, then perhaps ,bits=ROWS"):
        products.use(text)
    assert products.made() is None


def test_the_choice_says_what_was_measured() -> None:
    pytest.importorskip("numba")
    measured = products.measure()
    assert measured.possible
    assert measured.gflops.keys() >= {"torch", "bits"} and min(measured.gflops.values()) > 0
    assert products.Choice.parse(str(measured)) == measured


def test_a_choice_is_kept() -> None:
    products.use("torch")
    assert str(products.choice()) == str(products.made()) == "torch"


def train(run, updates: int, **more) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine([hm.Bernoulli(784), hm.Bernoulli(64)], seed=0)
    X = (torch.rand(60, 784, generator=torch.Generator().manual_seed(0)) < 0.2).float()
    rule = hm.rules.pcd(1, 60)
    hm.train(machine, X, rule=rule, updates=updates, batch_size=30, run_dir=run, progress=False, **more)
    return machine


def test_a_resumed_run_multiplies_as_before(tmp_path) -> None:
    pytest.importorskip("numba")
    products.use("torch,bits=32")
    whole = train(tmp_path / "whole", 6)
    train(tmp_path / "cut", 3)
    products.use(None)
    resumed = train(tmp_path / "cut", 6, resume=True)
    assert str(products.made()) == "torch,bits=32"
    assert torch.equal(resumed.couplings[0].weight, whole.couplings[0].weight)


OTHER = r"made with onednn,bits=12345.*HARMONIUM_PRODUCTS=onednn,bits=12345 repeats it"
UNKNOWN = "made with torch,sparse=0.25, which this version does not have: the run goes on"


@pytest.mark.parametrize(
    ("before", "here", "said"),
    [
        ("onednn,bits=12345", "torch", OTHER),
        ("torch,sparse=0.25", "torch", UNKNOWN),
        ("torch,sparse=0.25", None, UNKNOWN),
    ],
)
def test_a_resumed_run_says_when_it_cannot(tmp_path, before: str, here: str | None, said: str) -> None:
    products.use("torch")
    train(tmp_path, 3)
    path = tmp_path / "checkpoint.safetensors"
    write_checkpoint(path, {**read_checkpoint(path), "products": before})
    products.use(here)
    with pytest.warns(UserWarning, match=said):
        train(tmp_path, 6, resume=True)
