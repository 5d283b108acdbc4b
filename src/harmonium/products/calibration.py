"""What multiplies on this processor: measured once in a process, at the first product that is large."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from time import get_clock_info, perf_counter, thread_time
from typing import Final, cast, final

import torch

from harmonium.distributed import Group
from harmonium.products import bits, dense

VARIABLE: Final = "HARMONIUM_PRODUCTS"
"""Environment variable that says what to use and spares the measurement: "torch", "onednn,bits=96", ..."""

_ROWS, _INNER, _OUTER = 256, 784, 512  # of the product that is timed
_ROUNDS = 7
_CLEAR = 1.1  # a lead that measurements on a busy machine do not turn around


@final
@dataclass(frozen=True)
class Choice:
    """What multiplies.

    Attributes:
        library: of products of real numbers: "torch" (what torch was built with) or "onednn".
        bits_from: rows of states of two values from which on they are multiplied by their bits; None: never.
        gflops: what was measured on one thread, in 10⁹ multiplications and additions a second; empty where
            nothing was.
    """

    library: str
    bits_from: int | None = None
    gflops: dict[str, float] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return self.library if self.bits_from is None else f"{self.library},bits={self.bits_from}"

    @staticmethod
    def parse(text: str) -> Choice:
        """A choice from its string, such as "torch" or "onednn,bits=96".

        Raises:
            ValueError: text that is none.
        """
        library, bits, rows = text.partition(",bits=")
        if library in dense.LIBRARIES and (not bits or (rows.isdecimal() and int(rows) > 0)):
            return Choice(library, int(rows) if bits else None)
        raise ValueError(
            f"products: expected {' or '.join(dense.LIBRARIES)}, then perhaps ,bits=ROWS (states of so many "
            f"rows are multiplied by bits), received {text!r}"
        )

    @property
    def possible(self) -> bool:
        """Whether this processor and these packages have it."""
        return dense.works(self.library) and (self.bits_from is None or bits.work())


_LOCK = threading.Lock()
_MADE: Choice | None = None


def choice() -> Choice:
    """What multiplies large products: what ``use`` says, else the environment, else the clock.

    The measurement takes some tens of milliseconds, once in a process.

    Raises:
        ValueError: the environment variable asks for what is not there.
    """
    global _MADE
    with _LOCK:
        if _MADE is None:
            asked = os.environ.get(VARIABLE)
            _MADE = _checked(Choice.parse(asked)) if asked else measure()
        return _MADE


def made() -> Choice | None:
    """The choice, if this process has made it yet."""
    return _MADE


def use(what: Choice | str | None) -> None:
    """Sets what multiplies from now on; None: what is measured at the next large product.

    Raises:
        ValueError: what is not there.
    """
    global _MADE
    asked = None if what is None else _checked(Choice.parse(what) if isinstance(what, str) else what)
    with _LOCK:
        _MADE = asked


def agree(group: Group) -> None:
    """Makes all processes of a group multiply as the one that leads."""
    if group.size > 1:
        use(group.share(str(choice())))


def repeat(what: str) -> None:
    """Multiplies as another process did, whose choice had this string, unless this one has made its own.

    Raises:
        ValueError: another choice was made here, or that one cannot be had; nothing is changed.
    """
    before = made()
    try:
        Choice.parse(what)
    except ValueError:
        raise ValueError(
            f"products: the run to resume was made with {what}, which this version does not have"
        ) from None
    if before is None:
        use(what)
    elif str(before) != what:
        raise ValueError(
            f"products: the run to resume was made with {what}, this process multiplies with {before}; "
            f"{VARIABLE}={what} repeats it"
        )


def _checked(what: Choice) -> Choice:
    if not what.possible:
        raise ValueError(
            f"products: expected what this processor and these packages have, received {what}; "
            f"harmonium info lists it"
        )
    return what


def measure() -> Choice:
    """Times the ways to a product."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(_ROWS, _INNER, generator=generator, device="cpu") < 0.5).float()
    y = torch.randn(_INNER, _OUTER, generator=generator, device="cpu").float()
    means = torch.rand(_ROWS, _OUTER, generator=generator, device="cpu").float()
    ways: dict[str, Callable[[], object]] = {}
    for each in dense.LIBRARIES:
        if dense.works(each):
            ways[each] = partial(dense.multiply, each, x, y)
            ways[f"{each}, statistics"] = partial(dense.multiply, each, x.t(), means)
    if bits.work():
        fixed = bits.Fixed(y)
        states, half = (cast("bits.Bits", bits.bits(x[:rows])) for rows in (_ROWS, _ROWS // 2))
        ways["bits"], ways["bits, once"] = partial(fixed.times, states), lambda: bits.Fixed(y).times(half)
    seconds = _best(ways)
    work = 2e-9 * x.numel() * _OUTER
    amount = dict.fromkeys(seconds, 1.0) | {"bits, once": 0.5}
    library, there = "torch", [each for each in dense.LIBRARIES if each in seconds]
    both = {each: seconds[each] + seconds[f"{each}, statistics"] for each in there}
    if both.get("onednn", inf) < both["torch"] * _CLEAR:
        library = "onednn"
    bits_from: int | None = None
    if seconds.get("bits", inf) * _CLEAR < seconds[library]:
        # A new matrix and tables of its sums for 128 rows, of the library's time: what is left is for the
        # rows, and says how few are worth it.
        share = seconds["bits, once"] / (seconds[library] / 2)
        bits_from = 32 if share < 0.5 else 96 if share < 1 else _ROWS
    gflops = {name: work * part / seconds[name] for name, part in amount.items() if name in seconds}
    return Choice(library, bits_from, gflops)


def _best(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The shortest of a few times each, taken in turn: what disturbs a machine makes none of them shorter.

    In CPU time of one thread: several that wait for each other on a busy machine are all disturbed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    clock = thread_time if get_clock_info("thread_time").resolution < 1e-5 else perf_counter
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(_ROUNDS + 1):
            for name, way in ways.items():
                start = clock()
                way()
                seconds[name].append(clock() - start)
    finally:
        torch.set_num_threads(threads)
    return {name: min(times[1:]) for name, times in seconds.items()}
