"""The order of rows, and data larger than memory: what is read, when, and how a run goes on."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import harmonium as hm
from harmonium.training.batch_source import RowBatches

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.integers(0, 2, (64, 6), dtype=np.uint8)


def machine() -> hm.BoltzmannMachine:
    made = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)])
    hm.machine.normal_(made, 0.1, torch.Generator().manual_seed(2))
    return made


def bits(run: hm.training.TrainingRun) -> bytes:
    return b"".join(p.detach().numpy().tobytes() for p in run.machine.parameters())


def train(X, **settings) -> hm.training.TrainingRun:
    settings = {"updates": 20, "batch_size": 10, "rule": "pcd", "progress": False, **settings}
    return hm.train(machine(), X, **settings)


# Order -----------------------------------------------------------------------------------------------------


def test_every_row_with_a_weight_appears_once_in_an_epoch() -> None:
    weights = torch.ones(107)
    weights[:7] = 0
    rows = hm.data.Rows.of(torch.zeros(107, 1))
    batches = RowBatches(rows, 8, seed=3, weights=weights)
    steps = batches.updates(epochs=2)
    shown = torch.cat([batches.indices(step) for step in range(steps)])
    for epoch in range(2):
        part = shown[epoch * 100 : (epoch + 1) * 100]
        assert sorted(part.tolist()) == list(range(7, 107))
    assert torch.equal(RowBatches(rows, 8, seed=3, weights=weights).indices(9), batches.indices(9))


# Files -----------------------------------------------------------------------------------------------------


def test_a_file_is_trained_as_its_rows_in_memory_and_goes_on(tmp_path) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    whole = bits(train(ROWS))
    assert bits(train(mapped)) == whole
    part = train(mapped, updates=7, run_dir=tmp_path / "run")
    assert part.updates == 7
    assert bits(train(mapped, run_dir=tmp_path / "run", resume=True)) == whole


def test_rows_of_a_file_are_read_ahead_by_one_thread_that_ends(tmp_path) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    rows = hm.data.Rows.of(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    source = RowBatches(rows, 10, seed=3)
    for step in (0, 1, 2, 9, 4):  # also where a step is asked for that was not expected
        expected = RowBatches(hm.data.Rows.of(ROWS), 10, seed=3).indices(step)
        assert torch.equal(source.take(step).v, torch.from_numpy(ROWS).float()[expected])
        assert any(thread.name.startswith("harmonium-rows") for thread in threading.enumerate())
    source.close()
    assert not any(thread.name.startswith("harmonium-rows") for thread in threading.enumerate())


def test_pages_of_a_map_that_may_be_written_to_are_kept(tmp_path) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    for mode in ("r+", "c", "r"):
        mapped = np.load(tmp_path / "rows.npy", mmap_mode=mode)
        if mode != "r":
            mapped[3] = 1 - mapped[3]
        rows = hm.data.Rows.of(mapped)
        expected = torch.from_numpy(np.array(mapped)).float()
        for _ in range(2):
            assert torch.equal(rows.take(torch.arange(64)), expected)


@pytest.mark.parametrize("X", [(x for x in ()), DataLoader(ROWS)], ids=["generator", "DataLoader"])
def test_batches_in_the_place_of_rows_are_refused(X) -> None:
    with pytest.raises(TypeError, match=r"X: expected a numpy array, .* or h5py dataset, received"):
        train(X)
