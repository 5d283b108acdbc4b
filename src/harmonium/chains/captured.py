"""Sweeps as one launch: CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, final

import torch
from torch import Tensor

Results = dict[str, list[Tensor]]
Function = Callable[..., Results]

_WARM_UP = 2  # runs before the recording, in which libraries set themselves up
_MOST = 32  # recordings; each holds the memory of what it computes
_RECORDINGS: ContextVar[dict[Hashable, Recording] | None] = ContextVar("recordings", default=None)
_BACKENDS: Final[dict[str, Any]] = {"cuda": torch.cuda}
"""What records on which kind of device."""


@final
class Recording:
    """A function of tensors, recorded once and played again on others of the same shapes.

    The function is nothing but operations of fixed shapes on the device: it asks for no value, copies nothing
    from the host and draws noise from the given generator alone, which goes on from play to play.

    Args:
        function: tensors to lists of new tensors by name.
        inputs: of the first call.
        generator: on their device.
    """

    def __init__(self, function: Function, inputs: Sequence[Tensor], generator: torch.Generator) -> None:
        self._keeps = function, generator  # so that nothing else gets their addresses
        backend = _BACKENDS[inputs[0].device.type]
        self._inputs = [x.detach().clone() for x in inputs]
        before = generator.get_state()
        side = backend.Stream()
        side.wait_stream(backend.current_stream())
        with backend.stream(side):
            for _ in range(_WARM_UP):
                function(*self._inputs)
        backend.current_stream().wait_stream(side)
        generator.set_state(before)
        self._graph = backend.CUDAGraph()
        self._graph.register_generator_state(generator)
        with backend.graph(self._graph):
            self._outputs = function(*self._inputs)

    def __call__(self, inputs: Sequence[Tensor]) -> Results:
        """What the function returns, in new tensors."""
        for own, x in zip(self._inputs, inputs, strict=True):
            own.copy_(x)
        self._graph.replay()
        return {name: [x.clone() for x in values] for name, values in self._outputs.items()}


@contextmanager
def graphs() -> Iterator[None]:
    """Inside, on a CUDA device, the sweeps of ``rules.pcd`` and ``rules.noise_cd`` and of annealing are CUDA
    graphs: recorded at their first call and launched as one from then on.

    Of kernels that have one shape (Gibbs, Langevin, Gibbs-Langevin), free chains and units whose draws have
    (discrete and Gaussian ones); everything else stays as it is. What was recorded is dropped at the end.
    Off unless asked for: no test has seen it on a GPU yet.
    """
    token = _RECORDINGS.set({})
    try:
        yield
    finally:
        _RECORDINGS.reset(token)


def serve(device: torch.device) -> bool:
    """Whether functions are recorded on this device here."""
    return _RECORDINGS.get() is not None and device.type in _BACKENDS


@torch.no_grad()
def played(
    function: Function, inputs: Sequence[Tensor], generator: torch.Generator, key: Hashable
) -> Results:
    """function(*inputs), recorded where ``serve`` says so.

    Args:
        function: as in ``Recording``.
        inputs: at least one tensor.
        generator: of its noise.
        key: what else the function depends on; two functions of one key are the same one.
    """
    recordings = _RECORDINGS.get()
    if recordings is None or not serve(inputs[0].device):
        return function(*inputs)
    whole = (key, id(generator), *((x.shape, x.dtype) for x in inputs))
    if whole not in recordings:
        if len(recordings) == _MOST:
            return function(*inputs)
        recordings[whole] = Recording(function, inputs, generator)
    return recordings[whole](inputs)
