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
{imported}

FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()


class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


info = ctypes.CDLL(None).mallinfo2
info.restype = Info
before = info().hblks
block = np.empty(20 << 20, np.uint8)
print(info().hblks - before)
"""


@pytest.mark.nightly
@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="needs glibc 2.33 or later",
)
@pytest.mark.parametrize(("imported", "mapped"), [("import torch", 1), ("import harmonium.machine", 0)])
def test_large_blocks_come_from_what_was_freed(imported, mapped):
    """A block that the system gives by itself is given back as soon as it is freed."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    code = MAPPED.format(imported=imported)
    done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True, check=True)
    assert int(done.stdout) == mapped
