"""The matrix-multiplication backend: which library multiplies, and from how many rows on bits do."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final, final

from torch import Tensor

from harmonium.matmul import bits, dense
from harmonium.matmul.processor import vendor, wide

VARIABLE: Final = "HARMONIUM_PRODUCTS"
"""Environment variable that names the backend: "torch", "onednn,bits=96", ..."""

_BITS_FROM = 96  # rows; docs/decisions/0003 has the measurements behind this and the library


@final
@dataclass(frozen=True)
class Backend:
    """The backend of products of large matrices in float32 on a CPU.

    Attributes:
        library: of products of real numbers: "torch" (what torch was built with) or "onednn".
        bits_from: rows of states of two values from which on they are multiplied by their bits; None: never.
    """

    library: str
    bits_from: int | None = None

    def __str__(self) -> str:
        return self.library if self.bits_from is None else f"{self.library},bits={self.bits_from}"

    @staticmethod
    def parse(text: str) -> Backend:
        """Returns the backend that a string such as "torch" or "onednn,bits=96" names.

        Raises:
            ValueError: text that names none.
        """
        library, bits, rows = text.partition(",bits=")
        if library in dense.LIBRARIES and (not bits or (rows.isdecimal() and int(rows) > 0)):
            return Backend(library, int(rows) if bits else None)
        raise ValueError(
            f"products: expected {' or '.join(dense.LIBRARIES)}, then perhaps ,bits=ROWS (states of so many "
            f"rows are multiplied by bits), received {text!r}"
        )

    @staticmethod
    def default() -> Backend:
        """Returns the backend for this processor: oneDNN on AMD's with AVX-512, torch's own library else."""
        idle = vendor() == "AuthenticAMD" and wide()  # torch's own library leaves half of these vectors idle
        library = "onednn" if idle and dense.works("onednn") else "torch"
        return Backend(library, _BITS_FROM if bits.work() else None)

    @property
    def possible(self) -> bool:
        """True if this processor and the installed packages support it."""
        return dense.works(self.library) and (self.bits_from is None or bits.work())


_current: Backend | None = None


def get_backend() -> Backend:
    """Returns what ``set_backend`` set, else what the environment names, else the processor's default.

    Raises:
        ValueError: the environment variable names what is not there.
    """
    global _current
    if _current is None:
        named = os.environ.get(VARIABLE)
        _current = _checked(Backend.parse(named)) if named else Backend.default()
    return _current


def backend_name() -> str | None:
    """Returns the name of the backend, None where nothing large has been multiplied yet."""
    return None if _current is None else str(_current)


def set_backend(backend: Backend | str | None) -> None:
    """Sets what multiplies from now on.

    Args:
        backend: a backend or its string; None: as in a new process.

    Raises:
        ValueError: a backend that is not there.
    """
    global _current
    asked = Backend.parse(backend) if isinstance(backend, str) else backend
    _current = None if asked is None else _checked(asked)


def _checked(backend: Backend) -> Backend:
    if not backend.possible:
        raise ValueError(
            f"products: expected what this processor and these packages have, received {backend}; "
            f"harmonium info shows it"
        )
    return backend


def product(x: Tensor, y: Tensor) -> Tensor:
    """Returns the matrix product ``x @ y`` of shapes (m, k) and (k, n)."""
    return dense.multiply(get_backend().library, x, y) if dense.large(x, y) else x @ y
