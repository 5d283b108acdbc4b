"""What a forked child can do after its parent drew noise on several threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

NOISE = """
import os, torch
from harmonium import _random
torch.set_num_threads(2)

def draw():
    return float(_random.uniform((1000, 1000), torch.Generator().manual_seed(0))[0, 0])

value = draw()
child = os.fork()
if child == 0:
    os._exit(int(draw() != value))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


AFTER_A_SUM = NOISE.replace("value = draw()", "torch.ones(1 << 22).sum(); value = None").replace(
    "int(draw() != value)", "int(not 0 < draw() < 1)"
)


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("what", [NOISE, AFTER_A_SUM], ids=["after noise", "after a sum of torch's"])
def test_a_child_draws_noise_on_threads_of_its_own(what: str) -> None:
    done = subprocess.run([sys.executable, "-c", what], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("0\n", "")
