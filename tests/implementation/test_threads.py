"""Compiled work that is cut among torch's threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("numba")
from harmonium.backends import parallel
from harmonium.backends.calls import over
from harmonium.backends.noise import jit


@jit
def note(first, last, counts, ends):
    for share in range(first, last):
        counts[share] += 1
        ends[share] = last


@jit
def want_room(first, last, room, done):
    for share in range(first, last):
        np.empty(room[share])[0] = 1.0
        done[share] = 1


@pytest.fixture(params=["torch's", "its own"])
def threads(request, monkeypatch):
    if request.param == "its own":
        monkeypatch.setattr(parallel, "torch_has_threads", lambda: False)
    before = torch.get_num_threads()
    yield request.param
    torch.set_num_threads(before)


def test_torch_has_threads():
    openmp = "ATen parallel backend: OpenMP" in torch.__config__.parallel_info()
    if sys.platform != "linux" or not openmp:
        pytest.skip("torch may have none to share")
    assert parallel.torch_has_threads()


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("shares", [0, 1, 2, 7, 1000])
def test_every_share_is_done_once(threads, number, shares):
    torch.set_num_threads(number)
    counts, ends = np.zeros(shares, np.int64), np.zeros(shares, np.int64)
    over(note, shares, counts, ends)
    assert (counts == 1).all()
    assert len(set(ends)) == min(number, shares)


def test_a_share_has_so_many_at_least(threads):
    torch.set_num_threads(5)
    counts, ends = np.zeros(100, np.int64), np.zeros(100, np.int64)
    over(note, 100, counts, ends, least=40)
    assert len(set(ends)) == 2


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("failing", [0, 6])
def test_a_share_that_fails_fails_when_all_others_are_done(threads, number, failing):
    torch.set_num_threads(number)
    room, done = np.ones(7, np.int64), np.zeros(7, np.int64)
    over(want_room, 7, room, done)
    assert (done == 1).all()
    room[failing], done[:] = 1 << 58, 0
    with pytest.raises(MemoryError):
        over(want_room, 7, room, done)
    cuts = [range(7 * part // number, 7 * (part + 1) // number) for part in range(number)]
    others = [share for cut in cuts if failing not in cut for share in cut]
    assert done[others].all() and not done[failing]


def test_several_callers_at_once(threads):
    torch.set_num_threads(2)
    counts = np.zeros((4, 1000), np.int64)

    def call(caller):
        torch.set_num_threads(2)  # a thread of Python starts with torch's default
        for _ in range(50):
            over(note, 1000, counts[caller], np.zeros(1000, np.int64))

    callers = [threading.Thread(target=call, args=(caller,)) for caller in range(len(counts))]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert (counts == 50).all()


KEPT = """
import numpy as np, torch
import harmonium as hm
from harmonium.backends import calls, parallel
torch.set_num_threads(1)
X = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Spin(9)], seed=1).random_states(70, seed=0)[0]
machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Spin(9)], seed=1)
hm.train(machine, X, rule=hm.rules.pcd(), updates=200, weight_decay=1e-3, seed=3)
print(machine.couplings[0].weight.tolist())
small = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Spin(9)], seed=1)
print(hm.rules.ucd(chains=40).gradient(small, X, seed=2).parameters["couplings.0.weight"].tolist())
real = hm.BoltzmannMachine([hm.Gaussian(6), hm.Spin(9)], seed=1)
rule = hm.rules.noise_cd(20, kernel=hm.chains.Langevin(step=0.1, adjust=10))
print(rule.gradient(real, X[:, :6], seed=2).parameters["couplings.0.weight"].tolist())
torch.set_num_threads(2)
noise = np.zeros(200, np.float32)
calls.over("per_row.uniform", 100, 2, np.uint64(1), noise)
assert (noise > 0).all()
over = parallel._over_threads("harmonium.backends.per_row", "uniform")
print(sum(over.stats.cache_hits.values()), sum(over.stats.cache_misses.values()))
"""


@pytest.mark.nightly
def test_what_was_compiled_is_kept_and_gives_the_same_bits(tmp_path):
    known = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", KEPT]
    runs = [subprocess.run(command, capture_output=True, text=True, timeout=300, env=known) for _ in range(2)]
    assert [(run.returncode, run.stderr) for run in runs] == 2 * [(0, "")]
    (*bits, made), (*bits_again, loaded) = (run.stdout.splitlines() for run in runs)
    assert bits == bits_again and len(bits) == 3
    assert (made, loaded) == ("0 1", "1 0")  # found kept, and compiled


NOWHERE = """
from numba.core import caching
caching.CacheImpl._locator_classes = []  # as where no folder can be written
import numpy as np, torch
from harmonium import Bernoulli
from harmonium.backends import calls
print(float(calls.draw(Bernoulli(100), torch.zeros(100), torch.full((200, 100), 50.0), np.uint64(1)).mean()))
"""


@pytest.mark.nightly
def test_compiled_code_runs_where_it_cannot_be_kept():
    done = subprocess.run([sys.executable, "-c", NOWHERE], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1.0\n", "")


CHANGED = """
import numpy as np, torch
from harmonium import Bernoulli
from harmonium.backends import calls
for threads in (1, 2):
    torch.set_num_threads(threads)
    x = calls.draw(Bernoulli(100), torch.zeros(100), torch.full((200, 100), 50.0), np.uint64(1))
    print(float(x.mean()))
"""


@pytest.mark.nightly
def test_what_was_compiled_is_made_anew_when_a_function_that_it_calls_changes(tmp_path):
    package = tmp_path / "harmonium"
    shutil.copytree(Path(parallel.__file__).parents[1], package, ignore=shutil.ignore_patterns("__pycache__"))
    known = {**os.environ, "PYTHONPATH": str(tmp_path)}
    known.pop("NUMBA_CACHE_DIR", None)

    def means():
        command = [sys.executable, "-c", CHANGED]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=known, cwd=tmp_path)
        assert done.stderr == ""
        return [float(line) for line in done.stdout.splitlines()]

    assert means() == [1.0, 1.0]
    units = package / "backends" / "per_unit.py"
    right, wrong = "(large if s >= 0 else small)", "(small if s >= 0 else large)"
    assert units.read_text().count(right) == 1
    units.write_text(units.read_text().replace(right, wrong))
    assert means() == [0.0, 0.0]
