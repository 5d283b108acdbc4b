"""A limit on the bytes that a file claims to unpack to: by its own size, or as the user allows."""

from __future__ import annotations

import os

LIMIT = "HARMONIUM_READ_LIMIT"
LEAST = 64 << 20  # bytes that any computer has: no claim up to here does harm
FACTOR = 256  # deflate reaches 1032; binarised digits as float64 take 98


def check_claim(claimed: int, size: int, part: str) -> None:
    """Refuse what would unfold far beyond its file, before memory is asked for it.

    Compressed, sparse and never written data are larger than their file, honestly by a factor up to a hundred
    or so, in a file made to do harm by millions. Up to ``FACTOR`` times the file, and always up to ``LEAST``,
    a claim is accepted; the variable ``HARMONIUM_READ_LIMIT``, a number of bytes, takes the place of both.

    Args:
        claimed: bytes in memory, at least 0.
        size: bytes of the file.
        part: the subject of the message.

    Raises:
        ValueError: more than the limit, or a variable that is not a number.
    """
    allowed = os.environ.get(LIMIT, "")
    if allowed and not allowed.isdecimal():
        raise ValueError(f"{LIMIT}: expected a number of bytes, received {allowed!r}")
    limit = int(allowed) if allowed else max(LEAST, FACTOR * size)
    if claimed > limit:
        raise ValueError(
            f"{part} claims {claimed} bytes, where a file of {size} bytes may claim up to {limit}; "
            f"if it is honest, set {LIMIT}={claimed}"
        )
