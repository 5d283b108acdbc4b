"""Batches on their way from the host to a GPU, each sent while the one before is worked on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from harmonium import _device
from harmonium.backends import recording


@final
class Sender:
    """Sends batches of one shape to a GPU ahead of their use, on a stream of its own.

    Two buffers of pinned memory are filled in turn, so that the host writes one while the other travels. They
    arrive in one buffer on the device, which is free again as soon as it was received. So the host is two
    batches ahead at most. On other devices the copies are made in their order.

    Args:
        fill: writes the batch of an update, by its number, into a tensor on the host.
        shape: shape of a batch.
        dtype: type in which it travels.
        device: where to.
    """

    def __init__(
        self, fill: Callable[[int, Tensor], object], shape: tuple[int, ...], dtype: torch.dtype,
        device: torch.device,
    ) -> None:  # fmt: skip
        self._fill, self._device = fill, device
        self._stream = recording.side_stream(device, "sending")
        self._buffers = [_device.host_empty(shape, dtype, device) for _ in range(2)]
        self._arrived = torch.empty(shape, dtype=dtype, device=device)
        self._ahead: int | None = None  # number of the batch that was sent and not received
        if self._stream is not None:
            event: Any = torch.cuda.Event
            self._left, self._received = [event(), event()], event()  # buffers on the host; the one there
            self._arrived.record_stream(self._stream)  # else its memory may serve others while a copy arrives
            self._received.record(torch.cuda.current_stream(device))  # what had it before has ended by then

    def send(self, step: int) -> None:
        """Sends the batch of an update; the host waits at most until the last but one has left."""
        self._ahead = None
        self._buffers.reverse()
        buffer = self._buffers[0]
        if self._stream is None:
            self._fill(step, buffer)
            self._arrived.copy_(buffer, non_blocking=True)
            self._ahead = step
            return
        self._left.reverse()
        self._left[0].synchronize()
        self._fill(step, buffer)
        self._stream.wait_event(self._received)
        with torch.cuda.stream(self._stream):
            self._arrived.copy_(buffer, non_blocking=True)
            self._left[0].record()
        self._ahead = step

    def receive(self, step: int, batch: Tensor) -> None:
        """Writes the batch of an update into a tensor on the device, in the type that this one has."""
        if self._ahead != step:
            self.send(step)
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_event(self._left[0])
        batch.copy_(self._arrived)
        if self._stream is not None:
            self._received.record(torch.cuda.current_stream(self._device))
        self._ahead = None
