"""Recordings: the operations of a step on a GPU, made once as a CUDA graph and then started by one launch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._states import leaves, map_leaves, values
from harmonium.backends import choice
from harmonium.backends.cuda import tensor_cores

# Steps before the recording: the first makes constants and picks algorithms, the second finds them there.
_EAGER = 2
_MOST_KEPT = 8  # by one owner, each with all that its step makes; a training needs some three
_STEPS = [0]  # of recordings that are being made


@final
class Recording:
    """A step from state to state, recorded at its third call where the device records (``choice.records``).

    The step makes the same operations at every call and asks the device for no value. What it reads beside
    the state lies in tensors that stay, which may be written over between two calls; numbers of Python are
    those of the third call, but for whole numbers in the state, such as counts of sweeps, which go on as they
    went then. On other devices every call runs the step, with the same results.

    Args:
        step: takes the state and returns the next one, a tree (``_states``) of the same build.
        state: where to begin, which is not written over; None where the first step makes it.
        device: where the tensors are.
        generators: sources of the step's noise, on the device. Their seeds may be set between two calls.
        carries: whether a step begins where the last one ended; otherwise each is given ``state``, and what
            it makes stays where it was made.
        steady: whether the step can be recorded at all; a step of one that is being recorded cannot.
    """

    def __init__(
        self,
        step: Callable[[Any], Any],
        state: Any,
        device: torch.device,
        generators: Sequence[torch.Generator] = (),
        carries: bool = True,
        steady: bool = True,
    ) -> None:
        self._begin, self._carries = state, carries
        self._step, self._generators, self._left, self._replays = step, generators, _EAGER + 1, 0
        self._grown: dict[str, int] = {}  # by how much a step changes whole numbers
        self._records = steady and choice.records(device) and not within_step()
        self._state = None
        if carries:
            self._state = map_leaves(_clone, state) if self._records else state
        self._graph: Any = None
        # One for all recordings: torch keeps a workspace of cuBLAS, tens of megabytes, for every stream.
        self._stream = side_stream(device, "recording")

    @property
    def state(self) -> Any:
        """The state after the steps so far; its tensors are written over by the next one."""
        if self._graph is not None:
            tensor_cores.forget()  # a replay writes over states unseen
        # Whole numbers are Python's, and no part of the graph: each replay adds to them what a step did.
        if not self._grown:
            return map_leaves(lambda value: value, self._state)
        paths = iter([path for path, _ in leaves(self._state)])

        def gone_on(value: Any) -> Any:
            grown = self._grown.get(next(paths), 0)
            return value + self._replays * grown if grown else value

        return map_leaves(gone_on, self._state)

    def advance(self) -> None:
        """Makes the next step.

        Warns:
            RuntimeWarning: The step asked the device for a value, so that it could not be recorded; it is
                made one by one from then on.
        """
        if not self._records:
            self._state = self._step(self._state if self._carries else self._begin)
        elif self._graph is not None:
            self._graph.replay()
            self._replays += 1
        elif self._stream is None or not self._left:
            self._run()
        elif self._left > 1:
            # Memory and algorithms of this stream are those that the recording is going to use.
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                self._run()
            torch.cuda.current_stream().wait_stream(self._stream)
            self._left -= 1
        else:
            self._record()

    def _record(self) -> None:
        """Records a step and makes it."""
        graph, state, self._left = torch.cuda.CUDAGraph(), self._state, 0
        used = [*self._generators, torch.cuda.default_generators[torch.cuda.current_device()]]
        noise = [generator.get_state() for generator in used]
        # A replay draws fresh noise only from generators that the graph has been given.
        for generator in self._generators:
            graph.register_generator_state(generator)
        tensor_cores.forget()  # what was made outside has other values at a replay
        collects = gc.isenabled()
        gc.disable()  # a graph that is thrown away meanwhile would end this recording
        try:
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                self._run()
            self._graph = graph
            graph.replay()  # to record is not to run
        except RuntimeError as error:
            self._state, self._grown = state, {}
            for generator, saved in zip(used, noise, strict=True):
                _set_state(generator, saved)
            reason = str(error).splitlines()[0]
            _checks.warn(
                f"recording: goes on one by one, as a step could not be recorded ({reason})", RuntimeWarning
            )
            self._run()
        finally:
            tensor_cores.forget()
            if collects:
                gc.enable()

    def _run(self) -> None:
        """Makes a step and writes its state over that of the step before, where the next one finds it."""
        _STEPS[0] += 1
        try:
            new, before = self._step(self._state if self._carries else self._begin), dict(leaves(self._state))
        finally:
            _STEPS[0] -= 1
        if not self._carries:
            self._state = new
            return
        if before.keys() != dict(leaves(new)).keys():  # there was none
            self._state = map_leaves(_clone, new)
            return
        # A graph reads where it read when it was recorded: each step's end is copied to where it began.
        for path, value in leaves(new):
            if isinstance(value, Tensor):
                before[path].copy_(value)
            elif isinstance(value, int) and value != before[path]:
                self._grown[path] = value - before[path]
        values_before = iter(before.values())
        self._state = map_leaves(lambda value: _other(value, next(values_before)), new)


def repeat(
    step: Callable[[Any], Any],
    state: Any,
    times: int,
    device: torch.device,
    generators: Sequence[torch.Generator] = (),
) -> Any:
    """Makes a step of a recording, see there, so many times; recorded where so many are worth it."""
    if not pays(device, times):
        for _ in range(times):
            state = step(state)
        return state
    recording = Recording(step, state, device, generators)
    for _ in range(times):
        recording.advance()
    return recording.state


def pays(device: torch.device, times: int) -> bool:
    """Returns whether to record a step that is made so many times on a device."""
    return times >= choice.LEAST_UPDATES and choice.records(device)


class _Recorded(NamedTuple):
    """A recording, the tensors that it reads, and its sources of noise."""

    inputs: list[Tensor]
    recording: Recording
    generators: Sequence[torch.Generator]


_RECORDED: WeakKeyDictionary[Any, dict[Hashable, _Recorded]] = WeakKeyDictionary()


def replay(
    owner: object,
    key: Hashable,
    step: Callable[[Any], Any],
    inputs: Any,
    device: torch.device,
    generators: Sequence[torch.Generator] = (),
) -> Any:
    """Makes a step by a recording that an earlier call of the same owner may have made.

    Args:
        owner: keeps its recordings as long as it lives; ``step`` must not hold it.
        key: whatever the operations depend on, beside the shapes and values of what is given.
        step: takes copies of what is given, which lie where they are, and returns what it made.
        inputs: a tree of tensors.
        device: where they are.
        generators: as for ``Recording``.

    Returns:
        What the step made; the next call with this key writes over it.
    """
    known, new = _RECORDED.setdefault(owner, {}), [x.detach() for x in values(inputs)]
    key = key, tuple(x.shape for x in new)
    recorded = known.get(key)
    if recorded is None or any(x is not y for x, y in zip(recorded.generators, generators, strict=True)):
        # All at once: shapes that change beyond these would fill the memory of the device.
        if len(known) == _MOST_KEPT:
            known.clear()
        copies = map_leaves(lambda x: x.detach().clone(), inputs)
        recording = Recording(step, copies, device, generators, carries=False)
        recorded = known[key] = _Recorded([*values(copies)], recording, generators)
    else:
        # The graph reads where its first inputs lay.
        torch._foreach_copy_(recorded.inputs, new)
    recorded.recording.advance()
    return recorded.recording.state


def within_step() -> bool:
    """Returns whether a recording makes its step, in which no value may be read."""
    return _STEPS[0] > 0


@contextmanager
def aside(device: torch.device) -> Iterator[None]:
    """Inside, a GPU works beside what follows, in a recording too; ``join`` waits for it.

    On other devices there is no beside.
    """
    side = side_stream(device, "aside")
    if side is None:
        yield
        return
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        yield


def join(device: torch.device) -> None:
    """Lets what follows wait for what was made ``aside``."""
    side = side_stream(device, "aside")
    if side is not None:
        torch.cuda.current_stream(device).wait_stream(side)


@cache
def side_stream(device: torch.device, purpose: str) -> Any:
    """Returns the stream of a GPU for a purpose, None for another device."""
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


def _set_state(generator: torch.Generator, state: Tensor) -> None:
    """Sets the state of a generator that a failed recording has left as if it still went on."""
    fresh = torch.Generator(generator.device)
    fresh.set_state(state)
    generator.graphsafe_set_state(fresh.graphsafe_get_state())


def _clone(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _other(value: Any, replacement: Any) -> Any:
    return replacement if isinstance(value, Tensor) else value
