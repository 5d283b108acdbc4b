"""Streams of a GPU without one: copies that nobody waits for are made in any order that is allowed.

Inside ``pretend_streams`` a copy of torch is put at the end of the queue of its stream, and so is what
``Streams.later`` is given. Queues go on by chance between two steps of the host, each in its own order, but
for events: a stream that waits for one stands until another stream has recorded it. So whatever is not
ordered by an event comes in one order or another, and memory that is written over too early shows it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from harmonium.backends import recording

Task = Callable[[], bool]  # makes its work and returns True, or returns False where it has to wait


class Event:
    """Stands for ``torch.cuda.Event``."""

    streams: Streams

    def __init__(self) -> None:
        self.asked = self.reached = 0  # records so far: those that were queued, and those that were come to

    def record(self, stream: Stream | None = None) -> None:
        self.asked += 1
        number = self.asked

        def reach() -> bool:
            self.reached = number
            return True

        (stream or self.streams.current).queue.append(reach)

    def synchronize(self) -> None:
        number = self.asked
        while self.reached < number:
            assert self.streams.go_on(), "the host waits for ever"


class Stream:
    """Stands for ``torch.cuda.Stream``."""

    def __init__(self) -> None:
        self.queue: deque[Task] = deque()

    def wait_event(self, event: Event) -> None:
        number = event.asked  # 0 where it was never recorded: there is nothing to wait for
        self.queue.append(lambda: event.reached >= number)


class Streams(TorchDispatchMode):
    """A main stream and one beside it.

    Args:
        eager: chance with which a stream goes on after each step of the host; 0: only where the host waits.
        favour: chance that it is the one beside, where both could.
    """

    def __init__(self, seed: int, eager: float, favour: float) -> None:
        super().__init__()
        self.main = self.current = Stream()
        self.beside = Stream()
        self.chance, self.eager, self.favour = random.Random(seed), eager, favour

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket is not torch.ops.aten.copy_:
            return func(*args, **kwargs)
        self.later(lambda: func(*args, **kwargs))
        return args[0]

    def later(self, work: Callable[[], object]) -> None:
        """Puts work at the end of the current stream."""
        self.current.queue.append(lambda: (work(), True)[1])
        while self.chance.random() < self.eager:
            self.go_on()

    def go_on(self) -> bool:
        """Makes the next work of a stream; returns False where none can go on."""
        order = [self.main, self.beside]
        if self.chance.random() < self.favour:
            order.reverse()
        with no_dispatch():
            for stream in order:
                if stream.queue and stream.queue[0]():
                    stream.queue.popleft()
                    return True
        return False

    def finish(self) -> None:
        """Makes all that is queued."""
        while self.go_on():
            pass
        assert not self.main.queue and not self.beside.queue, "streams wait for each other"


@contextmanager
def pretend_streams(
    monkeypatch: pytest.MonkeyPatch, seed: int = 0, eager: float = 0.5, favour: float = 0.5
) -> Iterator[Streams]:
    """Makes the CPU a device with a stream beside its main one."""
    streams = Event.streams = Streams(seed, eager, favour)

    @contextmanager
    def within(stream: Stream) -> Iterator[None]:
        before, streams.current = streams.current, stream
        yield
        streams.current = before

    with monkeypatch.context() as patched:
        patched.setattr(torch.cuda, "Event", Event)
        patched.setattr(torch.cuda, "stream", within)
        patched.setattr(torch.cuda, "current_stream", lambda *_: streams.current)
        patched.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
        patched.setattr(recording, "side_stream", lambda device, purpose: streams.beside)
        with streams:
            yield streams
