"""Compiled work that is cut among torch's threads."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("numba")
from harmonium.compiled import parallel
from harmonium.compiled.noise import jit
from harmonium.compiled.serving import over


@jit
def note(first, last, counts, ends):
    for share in range(first, last):
        counts[share] += 1
        ends[share] = last


@jit
def want_room(first, last, room):
    for share in range(first, last):
        np.empty(room[share])[0] = 1.0


@pytest.fixture(params=["torch's", "its own"])
def threads(request, monkeypatch):
    if request.param == "its own":
        monkeypatch.setattr(parallel, "torch_has_threads", lambda: False)
    before = torch.get_num_threads()
    yield request.param
    torch.set_num_threads(before)


def test_torch_has_threads():
    if sys.platform != "linux" or "OpenMP" not in torch.__config__.parallel_info():
        pytest.skip("torch may have none to share")
    assert parallel.torch_has_threads()


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("shares", [0, 1, 2, 7, 1000])
def test_every_share_is_done_once(threads, number, shares):
    torch.set_num_threads(number)
    counts, ends = np.zeros(shares, np.int64), np.zeros(shares, np.int64)
    over(note, shares, 1, counts, ends)
    assert (counts == 1).all()
    assert len(set(ends)) == min(number, shares)


def test_a_share_has_so_many_at_least(threads):
    torch.set_num_threads(5)
    counts, ends = np.zeros(100, np.int64), np.zeros(100, np.int64)
    over(note, 100, 40, counts, ends)
    assert len(set(ends)) == 2


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("failing", [0, 6])
def test_a_share_that_fails_fails_all(threads, number, failing):
    torch.set_num_threads(number)
    room = np.ones(7, np.int64)
    over(want_room, 7, 1, room)
    room[failing] = 1 << 58
    with pytest.raises((RuntimeError, MemoryError), match=r"memory|Allocation failed"):
        over(want_room, 7, 1, room)


KEPT = """
import os, sys, numpy as np, torch
from harmonium.compiled import rows, serving
torch.set_num_threads(2)
x, counts = torch.eye(100), np.zeros(100, np.int64)
serving.over_rows("count_entries", 100, x, counts)
assert (counts == 1).all()
from harmonium.compiled import parallel
over = parallel._over_threads("harmonium.compiled.rows", "count_entries")
print(sum(over.stats.cache_hits.values()), sum(over.stats.cache_misses.values()))
"""


def test_what_was_compiled_is_kept(tmp_path):
    known = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, timeout=120, env=known)
        for _ in range(2)
    ]
    assert [(run.stdout, run.stderr) for run in runs] == [("0 1\n", ""), ("1 0\n", "")]
