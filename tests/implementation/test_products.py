"""The matrix-multiplication backend: named by the user or fixed by the processor, noted by a run."""

from __future__ import annotations

import warnings

import pytest
import torch

import harmonium as hm
from harmonium import backends
from harmonium.training.checkpoint import read_checkpoint, write_checkpoint


@pytest.fixture(autouse=True)
def restored():
    before = backends.backend_name()
    backends.set_backend(None)
    yield
    backends.set_backend(before)


def test_small_products_need_no_backend() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(30), hm.Bernoulli(20)])
    v = machine.random_states(50, seed=torch.Generator().manual_seed(0))[0]
    hm.rules.cd().gradient(machine, v, seed=torch.Generator().manual_seed(1))
    assert backends.backend_name() is None


def test_bits_are_tried_where_they_serve(monkeypatch) -> None:
    """Not before, as they are compiled then."""
    pytest.importorskip("numba")
    monkeypatch.delenv(backends.choice.VARIABLE, raising=False)
    asked, works = [], backends.choice.works
    monkeypatch.setattr(backends.choice, "works", lambda library: asked.append(library) or works(library))
    x, y = torch.zeros(500, 64), torch.zeros(64, 100)
    for rows, served in ((x, False), (x.repeat(4, 1), True)):
        backends.PreparedMatrix(y).times(rows)
        assert ("bits" in asked) is served


def test_the_environment_is_asked_first(monkeypatch) -> None:
    monkeypatch.setenv("HARMONIUM_PRODUCTS", "torch")
    assert str(backends.get_backend()) == "torch"
    backends.set_backend(None)
    monkeypatch.setenv("HARMONIUM_PRODUCTS", "abacus")
    with pytest.raises(ValueError, match="products: expected torch or onednn"):
        backends.get_backend()


@pytest.mark.parametrize(
    ("vendor", "wide", "library"),
    [
        ("AuthenticAMD", True, "onednn"),
        ("AuthenticAMD", False, "torch"),
        ("GenuineIntel", True, "torch"),
        ("", True, "torch"),
    ],
)
def test_the_processor_decides_and_not_the_clock(vendor, wide, library, monkeypatch) -> None:
    if library == "onednn" and not backends.choice.works("onednn"):
        pytest.skip("torch has no oneDNN here")
    monkeypatch.setattr(backends.choice, "_read_processor", lambda: {"vendor_id": vendor})
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512" if wide else "AVX2")
    backend = backends.Backend.default()
    assert backend.library == library and backend == backends.Backend.default()
    assert backends.Backend.parse(str(backend)) == backend


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
def test_what_is_no_backend_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"products: expected torch or onednn, then perhaps ,bits=ROWS"):
        backends.set_backend(text)
    assert backends.backend_name() is None


def test_a_backend_is_kept() -> None:
    backends.set_backend("torch")
    assert str(backends.get_backend()) == backends.backend_name() == "torch"


def train(run, updates: int, **more) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine([hm.Bernoulli(784), hm.Bernoulli(64)], seed=0)
    X = (torch.rand(60, 784, generator=torch.Generator().manual_seed(0)) < 0.2).float()
    rule = hm.rules.pcd(1, 60)
    hm.train(machine, X, rule=rule, updates=updates, batch_size=30, run_dir=run, progress=False, **more)
    return machine


@pytest.mark.parametrize("other", ["torch", "torch,sparse=0.25"])
def test_a_run_resumed_with_another_backend_says_so(other: str, tmp_path) -> None:
    pytest.importorskip("numba")
    backends.set_backend("torch,bits=32")
    whole = train(tmp_path / "whole", 6)
    train(tmp_path / "cut", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed = train(tmp_path / "cut", 6, resume=True)
    assert torch.equal(resumed.couplings[0].weight, whole.couplings[0].weight)
    path = tmp_path / "cut" / "checkpoint.safetensors"
    write_checkpoint(path, {**read_checkpoint(path), "products": other})
    with pytest.warns(UserWarning, match=f"products by {other} and this process multiplies by torch,bits=32"):
        train(tmp_path / "cut", 9, resume=True)


def test_a_resumed_run_writes_the_checkpoint_of_an_uninterrupted_one(tmp_path) -> None:
    """Small products need no backend, and going on is no reason to look for one."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], seed=0)
    X = (torch.rand(20, 6, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    settings = {"rule": "pcd", "batch_size": 10, "run_dir": tmp_path, "progress": False}
    hm.train(machine, X, updates=3, **settings)
    hm.train(machine, X, updates=6, resume=True, **settings)
    assert read_checkpoint(tmp_path / "checkpoint.safetensors")["products"] is None
