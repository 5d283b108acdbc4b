"""The tests of other devices, in a process of their own.

With another device there, autograd starts threads, and a process with these cannot be forked; without it at
the first gradient there is none for as long as the process lives. Other tests fork, and make gradients first.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).with_name("test_devices.py")


@pytest.mark.nightly
def test_all_tests_of_devices_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
