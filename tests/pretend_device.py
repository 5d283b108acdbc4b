"""A device that is not there: the arithmetic of the CPU under the rules of CUDA.

Inside ``pretend_device()`` tensors may live on ``DEVICE``. What they hold is computed on the CPU, with the
CPU's bits, but as on a GPU

- operations that mix their devices fail, except for single numbers and for index tensors;
- noise needs a generator on the device of what is drawn;
- NumPy cannot read them;
- operations are launched and not waited for, until the host asks for a value. Launches, waits and copies from
  the host are counted.

An operation of torch counts as one launch. On a GPU it may be several kernels; views and empty tensors are
none. A copy to or from the host waits for the device, unless it goes there with ``non_blocking=True``.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

if torch._C._get_privateuse1_backend_name() != "pretend":  # torch takes one such device in a process
    # At its first derivative torch starts a thread for each device, after which no fork may differentiate.
    torch.zeros((), requires_grad=True).clone().backward()
    _setup_privateuseone_for_python_backend("pretend")
DEVICE = torch.device("pretend", 0)

_CPU = torch.device("cpu")
_aten = torch.ops.aten
_COPIES = {_aten._to_copy, _aten.copy_, _aten.copy}
_INDEXED = {_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_, _aten._unsafe_index}
# Their shapes, or the host's own answer, depend on values.
_WAITING = {
    _aten._linalg_check_errors, _aten._local_scalar_dense, _aten._unique2, _aten.bincount, _aten.equal,
    _aten.histc, _aten.linalg_lstsq, _aten._linalg_eigh, _aten._linalg_svd, _aten.masked_select,
    _aten.nonzero, _aten.unique_consecutive, _aten.unique_dim,
}  # fmt: skip
_FREE = {_aten.empty, _aten.empty_like, _aten.empty_strided, _aten.new_empty, _aten.new_empty_strided}
# They make tensors like another and read nothing of it.
_LIKE = {_aten.lift_fresh, _aten.detach, _aten.alias}

Exempt = Callable[[Exception], bool]


@dataclass
class Counts:
    """What was asked of the device.

    Attributes:
        launches: operations by name.
        waits: what the host waited for, by the name of the operation.
        sent: copies from the host that are not waited for.
    """

    launches: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    sent: int = 0

    def clear(self) -> None:
        self.launches.clear()
        self.waits.clear()
        self.sent = 0


class PretendTensor(Tensor):
    """A tensor on the device: its values lie on the CPU, where nobody else finds them."""

    counts: ClassVar[Counts] = Counts()
    exempt: ClassVar[Exempt]
    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> PretendTensor:
        made: PretendTensor = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=DEVICE,
        )
        made.values = values
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            _refuse(TypeError(f"can't convert {DEVICE} device type tensor to numpy. Use Tensor.cpu() first"))
        return self.detach().cpu().numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"{self.values!r} on {DEVICE}"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else repr(self)


class PretendGenerator(torch.Generator):
    """Noise for the device, with the bits of torch's generator on the CPU."""

    device = DEVICE  # type: ignore[assignment]
    addresses: ClassVar[set[int]] = set()  # what an operation gets is another object of the same address

    def __init__(self) -> None:
        self.addresses.add(self._cdata)
        weakref.finalize(self, self.addresses.discard, self._cdata)

    @classmethod
    def has(cls, generator: torch.Generator) -> bool:
        """Whether a generator is one of these."""
        return generator._cdata in cls.addresses


class _GeneratorOf(type):
    """Stands for ``torch.Generator``, which knows no such device."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Generator)

    def __call__(cls, device: Any = "cpu") -> torch.Generator:
        return PretendGenerator() if torch.device(device).type == DEVICE.type else _Generator(device=device)


_Generator = torch.Generator


class _GeneratorClass(metaclass=_GeneratorOf):
    pass


class _Mode(TorchDispatchMode):
    """Lets operations that make tensors make them on the device."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler, for seconds, only to have it leave this alone

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


@contextmanager
def pretend_device(exempt: Exempt = lambda error: False) -> Iterator[Counts]:
    """Makes ``DEVICE`` be there, and counts what is asked of it.

    Args:
        exempt: asked with an error that a GPU would make, True where the work is to be done nevertheless.
    """
    PretendTensor.counts = Counts()
    PretendTensor.exempt = staticmethod(exempt)
    before = torch._C._only_lift_cpu_tensors()  # type: ignore[attr-defined]
    torch._C._set_only_lift_cpu_tensors(True)  # type: ignore[attr-defined]
    # A module's parameters on the device take another type as a whole, as values beside a tensor do not.
    swapped = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        one_thread = torch.autograd.set_multithreading_enabled(False)
        with mock.patch.object(torch, "Generator", _GeneratorClass), one_thread, _Mode():
            yield PretendTensor.counts
    finally:
        torch._C._set_only_lift_cpu_tensors(before)  # type: ignore[attr-defined]
        torch.__future__.set_swap_module_params_on_conversion(swapped)


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    given = _given((args, kwargs))
    asked = kwargs.get("device")
    if not given.inside and (asked is None or asked.type != DEVICE.type):
        if any(PretendGenerator.has(x) for x in given.generators):
            _refuse(RuntimeError(f"{func}: expected a generator on the CPU, received one on {DEVICE}"))
        return func(*args, **kwargs)
    kind = _kind(func)
    if kind.reshapes:
        with no_dispatch():
            func(*args, **kwargs)
    on_device = asked is None or asked.type == DEVICE.type
    if given.outside:
        _check_devices(func, kind, args, given.outside)
    if on_device:
        _check_noise(func, given.generators)
    _count(kind, args, kwargs, on_device)
    of = {id(x.values): x for x in given.inside}
    plain = {**kwargs, "device": _CPU} if asked is not None else kwargs
    args, plain = _mapped(_inner, args), _mapped(_inner, plain)
    plain.pop("pin_memory", None)
    if kind.operation in _COPIES:
        plain.pop("non_blocking", None)
        if kind.operation is _aten.copy_:  # the host's tensor may be what is written to
            args = args[:2]
            on_device = id(args[0]) in of
    result = func(*args, **plain)
    return result if not on_device else _wrapped(result, of)


def _wrapped(result: Any, of: dict[int, PretendTensor]) -> Any:
    """Tensors of a result on the device; what was changed in place is the tensor that it was."""

    def wrapped(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return of[id(x)] if id(x) in of else PretendTensor(x)

    return _mapped(wrapped, result)


def _inner(x: Any) -> Any:
    return x.values if isinstance(x, PretendTensor) else x


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [x for each in value for x in _leaves(each)] if isinstance(value, (list, tuple)) else [value]


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _mapped(function, each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_mapped(function, each) for each in value])
    return function(value)


class _Given(NamedTuple):
    """What an operation is given: tensors on the device and on the host, and generators."""

    inside: list[PretendTensor]
    outside: list[Tensor]
    generators: list[torch.Generator]


def _given(value: Any) -> _Given:
    given = _Given([], [], [])
    rest = [value]
    for each in rest:
        if isinstance(each, PretendTensor):
            given.inside.append(each)
        elif isinstance(each, (list, tuple)):
            rest += each
        elif isinstance(each, dict):
            rest += each.values()
        elif isinstance(each, Tensor):
            given.outside.append(each)
        elif isinstance(each, _Generator):
            given.generators.append(each)
    return given


class _Kind(NamedTuple):
    """What is known of an operation."""

    operation: Any
    name: str
    view: bool  # whether the result shares the memory of an argument and nothing is written
    pointwise: bool  # whether a single number may come from the host
    reshapes: bool  # whether it gives an argument another shape and the same memory


@cache
def _kind(func: Any) -> _Kind:
    operation, returns = func.overloadpacket, func._schema.returns
    shared = [r.alias_info is not None and not r.alias_info.is_write for r in returns]
    numbers = (_aten.fill_, _aten.fill, _aten.masked_fill_)
    pointwise = torch.Tag.pointwise in func.tags or operation in numbers
    name = str(operation).removeprefix("aten.")
    view = bool(returns) and all(shared)
    return _Kind(operation, name, view, pointwise, torch.Tag.inplace_view in func.tags)


def _refuse(error: Exception) -> None:
    if not PretendTensor.exempt(error):
        raise error


def _check_devices(func: Any, kind: _Kind, args: Any, outside: list[Tensor]) -> None:
    if kind.operation in _COPIES or kind.operation in _LIKE:
        return
    if kind.operation in _INDEXED and isinstance(args[0], PretendTensor):
        outside = [x for x in args[2:] if isinstance(x, Tensor) and not isinstance(x, PretendTensor)]
        if all(x.dim() == 0 for x in outside):
            return
    elif kind.pointwise:
        outside = [x for x in outside if x.dim() > 0]
        if not outside:
            return
    _refuse(
        RuntimeError(
            f"{func}: expected all tensors on one device, received some on {DEVICE} and one of shape "
            f"{tuple(outside[0].shape) if outside else '()'} on the CPU"
        )
    )


def _check_noise(func: Any, generators: Iterable[torch.Generator]) -> None:
    for generator in generators:
        if not PretendGenerator.has(generator):
            _refuse(RuntimeError(f"{func}: expected a generator on {DEVICE}, received one on the CPU"))


def _count(kind: _Kind, args: Any, kwargs: dict[str, Any], on_device: bool) -> None:
    counts, operation, name = PretendTensor.counts, kind.operation, kind.name
    if operation in _COPIES:
        to_host = not on_device or (not isinstance(args[0], PretendTensor) and operation is _aten.copy_)
        of = args[1] if operation is _aten.copy_ else args[0]
        if isinstance(of, PretendTensor) and not to_host:
            counts.launches[name] += 1
        elif to_host:
            assert not _non_blocking(operation, args, kwargs), "a copy to the host has to be waited for"
            counts.waits["copy to the host"] += 1
        elif _non_blocking(operation, args, kwargs):
            counts.sent += 1
        else:
            counts.waits["copy to the device"] += 1
        return
    if operation in _INDEXED:
        _count_index(counts, name, args)
    elif operation in _WAITING or (
        operation is _aten.repeat_interleave and kwargs.get("output_size") is None
    ):
        counts.waits[name] += 1
    free = operation in _FREE or operation in _LIKE or operation is _aten._local_scalar_dense
    if not (free or kind.view):
        counts.launches[name] += 1


def _count_index(counts: Counts, name: str, args: Any) -> None:
    """Booleans are counted by the host, but where they say what one number is written over."""
    given = [x for x in args[1] if x is not None]
    one_number = len(args) > 2 and isinstance(args[2], Tensor) and args[2].numel() == 1
    if any(x.dtype in (torch.bool, torch.uint8) for x in given):
        if not (one_number and len(given) == 1):
            counts.waits[f"{name} by booleans"] += 1
    elif any(not isinstance(x, PretendTensor) for x in given):
        counts.waits[f"{name} by places on the host"] += 1


def _non_blocking(operation: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    return bool(kwargs.get("non_blocking", operation is _aten.copy_ and len(args) > 2 and args[2]))
