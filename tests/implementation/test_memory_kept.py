"""Freed memory stays with the process, where the C library can be taught so."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys

import pytest

MAPPED = """
import ctypes
import numpy as np
import torch

FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()


class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


info = ctypes.CDLL(None).mallinfo2
info.restype = Info

def mapped():
    before = info().hblks
    block = np.empty(20 << 20, np.uint8)
    return info().hblks - before


print(mapped())
import harmonium.machine
print(mapped())
"""


@pytest.mark.nightly
@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="needs glibc 2.33 or later",
)
def test_large_blocks_come_from_what_was_freed():
    """A block that the system gives by itself is given back as soon as it is freed."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run([sys.executable, "-c", MAPPED], env=own, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0"]  # torch alone, and with harmonium
