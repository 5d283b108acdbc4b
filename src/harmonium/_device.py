"""The host: transfers to and from the device, with as few synchronisations as possible, and memory it keeps.

A GPU runs asynchronously: the host waits for it only where a value is read. On the CPU nothing here copies
anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad


def is_async(device: torch.device) -> bool:
    """Returns whether the device runs asynchronously (a GPU), where reading a value stalls the queue."""
    return device.type != "cpu"


def free_memory(device: torch.device) -> int:
    """Returns the free bytes of a GPU, of which the host has to be asked; of any other device, a gibibyte."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 1 << 30


def host_empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns unset memory of the host, pinned where a GPU is to copy from it or to it without a wait."""
    return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=device.type == "cuda")


def to_device(x: Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Sends a tensor to a device; the host does not wait for it to arrive, only for one that comes back."""
    return x.to(device=device, dtype=dtype, non_blocking=x.device.type == "cpu")


def needs_grad(*tensors: Tensor) -> bool:
    """Returns whether autograd may track results of these tensors, in backward or in forward mode."""
    backwards = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    return backwards or getattr(forward_ad, "_current_level", 0) >= 0


def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Selects as ``torch.where`` does, from two tensors of one type; by bits where that pays.

    On a CPU torch takes one entry after the other by a jump, and a processor that guesses wrong waits: for
    random conditions an entry takes many times as long.
    """
    words = _WORDS.get(x.dtype) if x.dtype is y.dtype else None
    if words is None or is_async(x.device) or needs_grad(x, y):  # a view as integers would lose them
        return torch.where(condition, x, y)
    x_bits, y_bits = x.view(words), y.view(words)
    return ((x_bits ^ y_bits) & condition.to(words).neg_() ^ y_bits).view(x.dtype)


_WORDS = {torch.float32: torch.int32, torch.float64: torch.int64}


def as_fast_array(x: Tensor) -> Any:
    """Returns x as an array if on the CPU in a type of NumPy, which compares in a tenth of torch's time."""
    return x.numpy(force=True) if x.device.type == "cpu" and x.dtype is not torch.bfloat16 else x


def to_floats(values: Sequence[float | Tensor]) -> list[float]:
    """Returns numbers, some given as tensors of one element, with one wait for all that are on one device."""
    tensors = [x for x in values if isinstance(x, Tensor)]
    together = len(tensors) > 1 and len({x.device for x in tensors}) == 1
    read = iter(torch.stack(tensors).tolist() if together else [x.item() for x in tensors])
    return [float(next(read)) if isinstance(x, Tensor) else x for x in values]


def read_numbers(numbers: Mapping[str, float | Tensor]) -> dict[str, float]:
    """Returns numbers by name as floats, with one wait for all that are on a device."""
    return dict(zip(numbers, to_floats([*numbers.values()]), strict=True))


@final
class Reading:
    """Numbers of a device, (numbers,), on their way to the host, which waits for them where they are read."""

    def __init__(self, numbers: Tensor) -> None:
        self._event: Any = None
        self._numbers = numbers
        if numbers.device.type == "cuda":
            self._numbers = host_empty(tuple(numbers.shape), numbers.dtype, numbers.device)
            self._numbers.copy_(numbers, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record(torch.cuda.current_stream(numbers.device))

    def read(self) -> list[float]:
        """Returns the numbers, as they were when they were sent."""
        if self._event is not None:
            self._event.synchronize()
        numbers: list[float] = self._numbers.tolist()
        return numbers


def split_indices(rows: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Returns indices of the rows that booleans do not mark, and of the ``number`` marked, without a wait."""
    places = rows.byte().argsort(stable=True)
    return places[: len(rows) - number], places[len(rows) - number :]


def selected_indices(rows: Tensor, device: torch.device) -> Tensor:
    """Returns indices on a device of the rows that booleans on the host mark, (chosen,) int64."""
    return to_device(rows.nonzero().squeeze(-1), device)


_LEARNED = 31 << 20  # bytes; glibc learns nothing from more than 32 MiB


def keep_memory() -> None:
    """Lets a block of memory come and go, unwritten, so that the process keeps what it frees later.

    The C library of Linux (glibc) gives large freed blocks back to the system and asks for them again, page
    by page, which takes about a tenth of an update with a thousand rows. It learns from what it frees: once a
    block has come and gone, others up to its size are taken from what was freed, and up to twice as much
    stays at the end of the heap. Other C libraries stay as they are, and so does this one where the user has
    set it (for instance by ``MALLOC_TRIM_THRESHOLD_``).
    """
    np.empty(_LEARNED, np.uint8)
