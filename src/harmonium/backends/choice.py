"""The one place that decides what computes: compiled code or torch, and which library multiplies.

It decides by the kind and number of units, by the size of the work, by the processor, and by whether numba is
installed. Needs no numba.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor
from torch.autograd import forward_ad

from harmonium.backends import bits
from harmonium.backends.calls import Values
from harmonium.backends.rounding import ASKED

Machine = Any
"""A ``machine.Hamiltonian``, which stands above this package."""
COMPILED = find_spec("numba") is not None
"""True if numba is installed, as it is wherever it has wheels."""
VALUES = frozenset(((0.0, 1.0), (-1.0, 1.0)))
"""The pairs of values of units that compiled code supports."""
VARIABLE: Final = "HARMONIUM_PRODUCTS"
"""Environment variable that names the backend of products: "torch", "onednn,bits=96", ..."""
RECORDS = frozenset(("cuda",))
"""The devices on which work is recorded."""
UNITS = frozenset(("cuda",))
"""The kinds of devices that may have matrix units, which a small update asks first."""
LIBRARIES: Final = ("torch", "onednn")
"""Names the libraries that multiply real numbers: what torch was built with, or oneDNN."""

# Where compiled code is the faster way (docs/decisions/0010 to 0012).
SMALL_PAIRS = 1 << 14  # couplings up to which a pair alone is faster than a batch of pairs
SMALL_CHAINS = 1 << 12  # couplings up to which a chain alone is faster than a batch of chains
NOISE = 1 << 13  # uniform variates from which on a call of compiled code pays
HALF_STEP = 1 << 13  # units of a batch from which one pass over its rows is faster than torch's five,
NARROW = 8  # unless the rows are narrower
LEAST_UPDATES = 200  # of a run that is worth the time to load what is compiled, half a second
SMALL_UPDATES = 1 << 23  # couplings times rows and sweeps up to which many updates at once are faster
FEW_CHAINS = 256  # chains or rows up to which they are: from 300 on torch is level, at 1,000 twice as fast
IN_TURN = 1 << 10  # units of a batch from which on it is worth loading numba to draw them one by one
WORTHWHILE = 1 << 20  # multiplications from which on it matters how they are done
_BITS_FROM = 96  # rows from which bits are faster; docs/decisions/0010 has the measurements
_BITS_WORK = 8  # times ``WORTHWHILE``, from which on they repay the seconds that compiling them takes
_VECTORS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8", "asimddp", "i8mm", "sve")


def records(device: torch.device) -> bool:
    """Returns whether work of one shape is recorded on a device and replayed (``Recording``)."""
    return device.type in RECORDS


def replays(machine: Machine) -> bool:
    """Returns whether steps under a distribution are recorded, which has to be one for all rows."""
    return (
        records(machine.device)
        and machine.held is None
        and isinstance(machine.beta, float)
        and all(p.dim() == 1 for theta in machine.thetas for p in theta)
    )


@cache
def matrix_units(device: torch.device) -> bool:
    """Returns whether a device has matrix units that Triton's kernels use (``tensor_cores``)."""
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def tensor_cores(machine: Machine, rows: int, size: int) -> bool:
    """Returns whether ``tensor_cores`` multiplies so many rows of states by a matrix of so many entries."""
    like = machine.thetas[0][0]
    return (
        rows * size >= WORTHWHILE
        and like.dtype is torch.float32
        and matrix_units(like.device)
        and ASKED.get() == "float32"
        and machine.held is None
        and not machine.graph.sparse
        and not torch.is_grad_enabled()
        and all(theta[0].dim() == 1 for theta in machine.thetas)
    )


def single(like: Tensor) -> bool:
    """Returns whether compiled code supports tensors like this one: float32 on a CPU."""
    return COMPILED and like.device.type == "cpu" and like.dtype is torch.float32


def two_valued(like: Tensor, values: Iterable[Values]) -> bool:
    """Returns whether compiled code supports tensors like this one, of units with these values."""
    return single(like) and VALUES.issuperset(values)


def layers_in_turn(machine: Machine, rows: int) -> set[int]:
    """Returns the layers with inner edges whose units ``calls.draw_in_turn`` draws, in so many rows."""
    if not COMPILED or ASKED.get() != "float32":  # compiled sums do not round couplings
        return set()
    return {
        l
        for l in machine.graph.in_turn
        if rows * machine.layers[l].n_units >= IN_TURN
        and single(machine.thetas[l][0])
        and (
            machine.layers[l].two_values in VALUES
            or (machine.layers[l].one_hot and machine.graph.patterns[machine.graph.inner[l]] is None)
        )
    }


def two_valued_in_turn(machine: Machine, rows: int) -> set[int]:
    """Returns those of ``layers_in_turn`` that ``calls.sweep_two_valued`` moves."""
    return {l for l in layers_in_turn(machine, rows) if not machine.layers[l].one_hot}


def small_pairs(machine: Machine) -> bool:
    """Returns whether pairs of Gibbs chains that ``pairs`` knows run one by one."""
    return _small(machine, SMALL_PAIRS, machine.layers)


def small_chains(machine: Machine) -> bool:
    """Returns whether Gibbs and Langevin chains run one by one (``langevin``)."""
    return machine.layers[0].gaussian and _small(machine, SMALL_CHAINS, machine.layers[1:])


def _small(machine: Machine, couplings: int, two_valued_layers: Iterable[Any]) -> bool:
    """Returns whether the machine is a small chain of two layers at one temperature, with nothing clamped."""
    return (
        len(machine.layers) == 2
        and machine.graph.is_chain
        and machine.held is None
        and isinstance(machine.beta, float)
        and not machine.graph.sparse
        and machine.J[0].numel() <= couplings
        and two_valued(machine.J[0], [layer.two_values for layer in two_valued_layers])
    )


def small_updates(machine: Machine, chains: int, rows: int, updates: int) -> bool:
    """Returns whether updates are made many at once (``updates``).

    That parameters are natural ones, and couplings dense, is for ``training.compiled_updates`` to see.

    Args:
        machine: the machine.
        chains: Chains, or rows of the batch if they are more.
        rows: Rows of the batch, and chains times their sweeps.
        updates: Updates of the run.
    """
    J, last = machine.J, len(machine.layers) - 1
    return (
        COMPILED
        and updates >= LEAST_UPDATES
        and chains <= FEW_CHAINS
        and all(x.gaussian or x.one_hot or x.two_values in VALUES for x in machine.layers)
        and machine.graph.edges == tuple((l, last) for l in range(last))
        and machine.graph.visible == tuple(range(last))
        and machine.held is None
        and isinstance(machine.beta, float)
        and not machine.graph.sparse
        and sum(edge.numel() for edge in J) * rows <= SMALL_UPDATES
        and machine.layers[last].two_values in VALUES
        and all(edge.device.type == "cpu" for edge in J)
        and J[0].dtype in (torch.float32, torch.float64)
    )


def search(machine: Machine, layers: Collection[int]) -> bool:
    """Returns whether a search for local modes of these layers moves chains one by one (``climb``)."""
    return (
        any(l in layers and m in layers for l, m in machine.graph.edges)
        and not machine.graph.sparse
        and isinstance(machine.beta, float)
        and all(machine.mask(l) is None and machine.thetas[l][0].dim() == 1 for l in layers)
        and COMPILED
        and machine.thetas[0][0].device.type == "cpu"
        and VALUES.issuperset(machine.layers[l].two_values for l in layers)
    )


def multiply(library: str, x: Tensor, y: Tensor) -> Tensor:
    """The product by a library that ``works``."""
    if library == "torch":
        return x @ y
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x.detach(), y.detach().t(), None, "none", [], "")
    return result


@cache
def works(library: str) -> bool:
    """Returns whether a library, or "bits", is available and gives right results, by a small trial."""
    if library == "bits" and not COMPILED:
        return False
    x = torch.arange(3 * 70, device="cpu").remainder(7).view(3, 70).lt(3).float()
    y = torch.arange(70 * 40, device="cpu").view(70, 40).float()
    try:  # what oneDNN and numba offer for this is not all public, so it is tried before it is trusted
        if library != "bits":
            products = [multiply(library, x, factor) for factor in (y, y.t().contiguous().t())]
            return all(torch.allclose(z, x @ y, rtol=1e-5, atol=0) for z in products)
        made = []
        for states in (x, 2 * x - 1):
            for known in (bits.bits(states), bits.bits(states.t(), transposed=True)):
                assert known is not None
                made.append(torch.allclose(bits.Fixed(y).times(known), states @ y, rtol=1e-5, atol=0))
        return all(made)
    except Exception:  # instructions that this version or this processor does not have
        return False


@final
@dataclass(frozen=True)
class Backend:
    """The backend of products of large matrices in float32 on a CPU.

    Attributes:
        library: Library of products of real numbers: "torch" (what torch was built with) or "onednn".
        bits_from: Rows of states of two values from which on bits multiply them, in products of 2²³
            multiplications or more; None: never.
    """

    library: str
    bits_from: int | None = None

    def uses_bits(self, rows: int, multiplications: int) -> bool:
        """Returns whether bits multiply states of so many rows in a product of so many multiplications."""
        return (
            self.bits_from is not None
            and rows >= self.bits_from
            and multiplications >= _BITS_WORK * WORTHWHILE
            and works("bits")  # last, as the first answer takes the seconds to compile them
        )

    def __str__(self) -> str:
        return self.library if self.bits_from is None else f"{self.library},bits={self.bits_from}"

    @staticmethod
    def parse(text: str) -> Backend:
        """Returns the backend that a string such as "torch" or "onednn,bits=96" names.

        Raises:
            ValueError: text that names none.
        """
        library, bits, rows = text.partition(",bits=")
        if library in LIBRARIES and (not bits or (rows.isdecimal() and int(rows) > 0)):
            return Backend(library, int(rows) if bits else None)
        raise ValueError(
            f"products: expected {' or '.join(LIBRARIES)}, then perhaps ,bits=ROWS (states of so many "
            f"rows are multiplied by bits), received {text!r}"
        )

    @staticmethod
    def default() -> Backend:
        """Returns the backend for this processor: oneDNN on AMD's with AVX-512, torch's own library else."""
        # Windows tells the maker in the description, "AMD64 Family 25 Model 17 Stepping 1, AuthenticAMD".
        maker = _read_processor().get("vendor_id", platform.processor().rpartition(", ")[2])
        wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
        idle = wide and maker == "AuthenticAMD"  # torch's own library leaves half of these vectors idle
        library = "onednn" if idle and works("onednn") else "torch"
        return Backend(library, _BITS_FROM if COMPILED else None)


_current: Backend | None = None


def notes() -> list[str]:
    """Returns what differs on this system from what most have, in sentences for a user."""
    sentences = list[str]()
    if os.environ.get(VARIABLE):
        sentences.append(f"{VARIABLE} says so; by default {Backend.default()}")
    if not COMPILED:
        sentences.append(
            "numba is not installed: everything works, slower; harmonium requires it where it has wheels; "
            "elsewhere pip install numba adds it"
        )
    return sentences


def get_backend() -> Backend:
    """Returns what ``set_backend`` set, else what the environment names, else the processor's default.

    Raises:
        ValueError: the environment variable names what is not there.
    """
    global _current
    if _current is None and os.environ.get(VARIABLE):
        set_backend(os.environ[VARIABLE])
    if _current is None:  # whose bits are tried at the first product that they serve, as that compiles them
        _current = Backend.default()
    return _current


def backend_of(x: Tensor, y: Tensor) -> Backend | None:
    """Returns what multiplies x @ y; None (torch) where a choice does not pay, or autograd may follow.

    It pays for large products in float32 on a CPU.
    """
    if not (
        x.dtype is y.dtype is torch.float32
        and x.device.type == "cpu"
        and x.dim() == y.dim() == 2
        and x.shape[1] == y.shape[0]
        and x.shape[0] * y.numel() >= WORTHWHILE
    ):
        return None
    if getattr(forward_ad, "_current_level", 0) >= 0:
        return None
    if torch.is_grad_enabled() and (x.requires_grad or y.requires_grad):
        return None
    return _current or get_backend()


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
    if asked is not None and not (works(asked.library) and (asked.bits_from is None or works("bits"))):
        raise ValueError(
            f"products: expected what this processor and these packages have, received {asked}; "
            f"harmonium info shows it"
        )
    _current = asked


@cache
def _read_processor() -> dict[str, str]:
    """Returns what the system tells of its first processor, by its own names; nothing where it does not."""
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    return fields


def processor() -> str:
    """Returns name, family and vector instructions of the processor."""
    fields = _read_processor()
    name = fields.get("model name") or platform.processor() or platform.machine()
    family = f", family {fields['cpu family']} model {fields['model']}" if "cpu family" in fields else ""
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    return f"{name}{family} ({' '.join(flag for flag in _VECTORS if flag in flags) or 'no flags known'})"
