"""What a forked child can do after its parent drew noise on several threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Two parents, each a fork of a process that has no threads yet, and each with a child.
NOISE = """
import os, torch
from harmonium import _random

def draw():
    return float(_random.uniform((1000, 1000), torch.Generator().manual_seed(0))[0, 0])

def status(run):
    child = os.fork()
    if child == 0:
        os._exit(run())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def after_noise():
    torch.set_num_threads(2)
    value = draw()
    return status(lambda: int(draw() != value))

def after_a_sum():
    torch.set_num_threads(2)
    torch.ones(1 << 22).sum()
    return status(lambda: int(not 0 < draw() < 1))

print(status(after_noise), status(after_a_sum))
"""


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_draws_noise_on_threads_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", NOISE], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("0 0\n", "")
