"""One kind of file that a campaign damages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Files = dict[str, bytes]


class Kind(NamedTuple):
    """One kind of file: honest examples of the folder that it lies in, and what reads it.

    Attributes:
        name: of the kind.
        target: the file in the folder that is damaged.
        variants: honest folders.
        use: reads the target; what it returns tells one content from another.
        command: arguments of the command line that read it.
        names_file: whether every refusal by the library must name the file.
        sealed: whether a checksum covers all: damage that leaves it alone must not change what is read.
        writes: whether reading changes the folder.
        share: of the cases.
    """

    name: str
    target: str
    variants: list[Files]
    use: Callable[[Path], Any]
    command: Callable[[Path], list[str]]
    names_file: bool = True
    sealed: bool = False
    writes: bool = False
    share: int = 4
