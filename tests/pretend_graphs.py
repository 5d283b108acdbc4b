"""CUDA graphs without a GPU: operations of the CPU that are recorded, and replayed in the same memory.

Inside ``pretend_graphs`` the CPU is a device that records, with the rules of CUDA's graphs:

- while a graph is recorded nothing is done: what was written over has its old values afterwards, and
  generators are where they were;
- an operation that the host would wait for ends the recording with torch's error, and leaves its generators
  unusable until they are given another state;
- a replay makes the operations again, in the memory of the recording. It runs no Python, so that numbers of
  Python and tensors that were replaced meanwhile stay those of the recording.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from pretend_device import _INDEXED, _WAITING
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from harmonium import _device
from harmonium.backends import choice, recording

Operation = tuple[Any, Any, dict[str, Any], Any]  # with its arguments and its result


@dataclass
class Counts:
    """What was done.

    Attributes:
        recorded: graphs that were recorded.
        failed: recordings that ended with an error.
        replays: replays of all graphs.
    """

    recorded: int = 0
    failed: int = 0
    replays: int = 0
    broken: set[int] = field(default_factory=set)  # addresses of generators that a failed recording has left


class Graph:
    """Stands for ``torch.cuda.CUDAGraph``."""

    counts: Counts

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.generators: list[torch.Generator] = []

    def register_generator_state(self, generator: torch.Generator) -> None:
        self.generators.append(generator)

    def replay(self) -> None:
        self.counts.replays += 1
        with torch.no_grad():
            for func, args, kwargs, result in self.operations:
                made = func(*args, **kwargs)
                for old, new in zip(_tensors(result), _tensors(made), strict=True):
                    if old is not new and old.data_ptr() != new.data_ptr():
                        old.detach().copy_(new)


class _Recorder(TorchDispatchMode):
    """Lists the operations of a graph, and what they write over."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.before: list[tuple[Tensor, Tensor]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operation, schema = func.overloadpacket, func._schema
        by_marks = operation in _INDEXED and any(
            x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1]
        )
        one_number = len(args) > 2 and isinstance(args[2], Tensor) and args[2].numel() == 1
        if operation in _WAITING or (by_marks and not one_number):
            raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing ({func})")
        for place, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = args[place] if place < len(args) else kwargs.get(argument.name)
                self.before += [(x, x.detach().clone()) for x in _tensors(given)]
        result = func(*args, **kwargs)
        shared = [r.alias_info is not None and not r.alias_info.is_write for r in schema.returns]
        if not (shared and all(shared)):  # views share the memory that is written over
            self.graph.operations.append((func, args, kwargs, result))
        return result

    def undo(self) -> None:
        for x, before in reversed(self.before):
            x.detach().copy_(before)


class _Stream:
    """A stream whose work is done at once: tests/pretend_streams.py has others."""

    def wait_stream(self, other: Any) -> None:
        pass

    wait_event = wait_stream


class _Event:
    def record(self, stream: Any = None) -> None:
        pass

    def synchronize(self) -> None:
        pass


@contextmanager
def pretend_graphs(monkeypatch: pytest.MonkeyPatch, least: int = 4) -> Iterator[Counts]:
    """Makes the CPU record steps from ``least`` of them on, and counts graphs and replays."""
    counts = Graph.counts = Counts()
    default = torch.Generator()

    @contextmanager
    def capture(graph: Graph, **_: Any) -> Iterator[None]:
        generators = [*graph.generators, default]
        noise, recorder = [generator.get_state() for generator in generators], _Recorder(graph)
        try:
            with recorder:
                yield
            counts.recorded += 1
            for generator, state in zip(generators, noise, strict=True):
                generator.set_state(state)
        except RuntimeError:
            counts.failed += 1
            counts.broken |= {generator._cdata for generator in generators}
            raise
        finally:
            recorder.undo()

    def mend(generator: torch.Generator, state: Tensor) -> None:
        generator.set_state(state)
        counts.broken.discard(generator._cdata)

    cuda = {
        "CUDAGraph": Graph,
        "Event": _Event,
        "graph": capture,
        "stream": lambda stream: nullcontext(),
        "current_stream": lambda *_: _Stream(),
        "current_device": lambda: 0,
        "default_generators": (default,),
    }
    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
        for name, value in cuda.items():
            patched.setattr(torch.cuda, name, value)
        patched.setattr(recording, "side_stream", lambda device, purpose: _Stream())
        patched.setattr(recording, "_set_state", mend)
        patched.setattr(_device, "is_async", lambda device: True)
        patched.setattr(_device, "as_fast_array", lambda x: x)  # NumPy's work would not be recorded
        patched.setattr(choice, "COMPILED", False)
        patched.setattr(choice, "RECORDS", frozenset(("cpu",)))
        patched.setattr(choice, "LEAST_UPDATES", least)
        yield counts


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [x for each in value for x in _tensors(each)] if isinstance(value, (list, tuple)) else []
