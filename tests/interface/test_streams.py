"""Data that are larger than memory or come by themselves: what is read, when, and how a run goes on."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.data import _read_arrays
from harmonium.training import Stream, batch_source
from harmonium.training.batch_source import RowBatches
from harmonium.training.checkpoint import read_checkpoint
from harmonium.training.seeds import KeyedPermutation

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


class Bits:
    """Batches of random bits, four an epoch, of a size that changes."""

    def __init__(self, batches: int = 4, width: int = 6, seed: int = 0) -> None:
        self.batches, self.width, self.seed, self.place, self.epoch = batches, width, seed, 0, 0

    def __iter__(self):
        while self.place < self.batches:
            self.place += 1
            generator = np.random.default_rng((self.seed, self.epoch, self.place))
            yield generator.integers(0, 2, (8 + self.place, self.width))
        self.place, self.epoch = 0, self.epoch + 1

    def state_dict(self):
        return {"place": self.place, "epoch": self.epoch}

    def load_state_dict(self, state):
        self.place, self.epoch = state["place"], state["epoch"]


# Order -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5, 64, 1000, 4097])
def test_a_keyed_permutation_takes_every_place_once(n: int) -> None:
    order = KeyedPermutation(n, 7)(np.arange(n))
    assert sorted(order.tolist()) == list(range(n))
    if n > 100:
        assert not np.array_equal(order, KeyedPermutation(n, 8)(np.arange(n)))
        assert np.array_equal(order[::-7], KeyedPermutation(n, 7)(np.arange(n)[::-7]))


def test_a_keyed_permutation_of_very_many_rows_takes_no_memory() -> None:
    n = 10**10
    order = KeyedPermutation(n, 1)(np.arange(n - 1000, n))
    assert order.min() >= 0 and order.max() < n and len(set(order.tolist())) == 1000


def test_keyed_permutations_look_uniform() -> None:
    """Chi-squared of where places go, of pairs of neighbours and of pairs of keys: |z| < 4.5 fails a right
    program less than once in 50,000 seeds."""
    n, cells = 300_000, 32
    one, other = (KeyedPermutation(n, key)(np.arange(n)) for key in (11, 12))
    part = one[: n // 3] * cells // n
    pairs = {
        "places and images": (np.arange(n) * cells // n, one * cells // n),
        "neighbours": (one[:-1] * cells // n, one[1:] * cells // n),
        "far apart": (one[: -n // 2] * cells // n, one[n // 2 :] * cells // n),
        "keys": (one * cells // n, other * cells // n),
        "low digits": (np.arange(n) % cells, one % cells),
        "a third": (part, np.arange(len(part)) % cells),
    }
    for name, (x, y) in pairs.items():
        counts = np.bincount(x * cells + y, minlength=cells * cells)
        expected = len(x) / cells**2
        freedom = (cells - 1) ** 2
        chi = ((counts - expected) ** 2).sum() / expected
        # The margins are fixed, or all but fixed, by every place being taken once.
        assert abs(chi - freedom) < 4.5 * (2 * freedom) ** 0.5 + 0.05 * freedom, (name, chi, freedom)
    moves = one[:-1] < one[1:]
    assert abs(moves.mean() - 0.5) < 4.5 * (1 / 12 / n) ** 0.5


@pytest.mark.parametrize("weighted", [False, True])
def test_every_row_appears_once_in_an_epoch_of_many(monkeypatch, weighted: bool) -> None:
    monkeypatch.setattr(batch_source, "HELD", 50)
    weights = None
    if weighted:
        weights = torch.ones(107)
        weights[:7] = 0
    rows = hm.data.Rows.of(torch.zeros(107, 1))
    batches = RowBatches(rows, 8, seed=3, weights=weights)
    steps = batches.updates(epochs=2)
    shown = torch.cat([batches.indices(step) for step in range(steps)])
    first = 7 if weighted else 0
    for epoch in range(2):
        part = shown[epoch * (107 - first) : (epoch + 1) * (107 - first)]
        assert sorted(part.tolist()) == list(range(first, 107))
    assert torch.equal(RowBatches(rows, 8, seed=3, weights=weights).indices(9), batches.indices(9))


# Files -----------------------------------------------------------------------------------------------------


def test_a_file_is_trained_as_its_rows_in_memory_and_goes_on(tmp_path, monkeypatch) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    monkeypatch.setattr(batch_source, "HELD", 50)
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


def test_what_a_file_holds_beyond_the_support_is_found_on_the_way(tmp_path) -> None:
    wrong = ROWS.copy()
    wrong[40, 2] = 3
    np.save(tmp_path / "rows.npy", wrong)
    with pytest.raises(ValueError, match=r"X\[40\].*received 3"):
        train(np.load(tmp_path / "rows.npy", mmap_mode="r"), epochs=1, updates=None)


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


def test_a_large_idx_file_is_mapped(tmp_path, monkeypatch) -> None:
    images = RANDOM.integers(0, 256, (50, 3, 2), dtype=np.uint8)
    sides = b"".join(side.to_bytes(4, "big") for side in images.shape)
    (tmp_path / "images.idx").write_bytes(b"\0\0\x08\x03" + sides + images.tobytes())
    whole = hm.data.read(tmp_path / "images.idx").samples
    assert hm.data.Rows.of(whole).in_memory
    monkeypatch.setattr(_read_arrays, "_MAPPED", 300)
    mapped = hm.data.read(tmp_path / "images.idx").samples
    rows = hm.data.Rows.of(mapped)
    assert not rows.in_memory and np.array_equal(mapped, whole)
    assert torch.equal(rows.take(torch.tensor([49, 3])), torch.from_numpy(whole[[49, 3]]).float())
    monkeypatch.setattr(_read_arrays, "_MAPPED", 301)
    assert hm.data.Rows.of(hm.data.read(tmp_path / "images.idx").samples).in_memory


# Streams ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [1, 6, 8])  # 8: between two epochs
def test_a_stream_goes_on_where_it_was(tmp_path, stop: int) -> None:
    assert isinstance(Bits(), Stream)
    whole = train(Bits())
    train(Bits(), updates=stop, run_dir=tmp_path / "run")
    fresh = Bits()
    assert bits(train(fresh, run_dir=tmp_path / "run", resume=True)) == bits(whole)
    assert (fresh.epoch, fresh.place) == (4, 4)
    kept = read_checkpoint(tmp_path / "run" / "checkpoint.safetensors")["data"]
    assert kept == {"epochs": 4, "stream": {"place": 4, "epoch": 4}}


def test_epochs_of_a_stream_are_counted() -> None:
    seen = []
    train(Bits(), updates=10, callbacks=[lambda update: seen.append(update.epoch)])
    assert seen == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("X", "settings", "message"),
    [
        (Bits, {"updates": None, "epochs": 1}, "epochs: expected updates with a stream"),
        (Bits, {"weights": [1.0]}, "weights: expected None with a stream"),
        (lambda: Bits(width=5), {}, "6"),
        (lambda: Bits(batches=0), {}, "X: expected a stream of batches, received one without any"),
        (lambda: (x for x in ()), {}, r"X: expected rows, or a stream of batches with state_dict\(\)"),
    ],
)
def test_what_is_no_stream_is_refused(X, settings, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        train(X(), **settings)


def test_a_run_does_not_go_on_from_rows_to_a_stream(tmp_path) -> None:
    train(ROWS, updates=3, run_dir=tmp_path / "run")
    with pytest.raises(ValueError, match="X: the run to resume has"):
        train(Bits(), run_dir=tmp_path / "run", resume=True)
