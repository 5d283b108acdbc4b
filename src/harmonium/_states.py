"""States between two calls of a kernel, a rule or a callback: trees of records that checkpoints can hold.

A tree has dicts, lists, tuples and records inside, and tensors, numbers, strings and None at its leaves.
A record is a dataclass or NamedTuple that was declared with ``record``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import torch
from torch import Tensor

Class = TypeVar("Class", bound=type)

RECORDS: dict[str, type] = {}
"""Every kind of record, by the name of its class."""


def record(cls: Class) -> Class:
    """Declares a dataclass or NamedTuple a record, which checkpoints keep by the name of its class.

    Raises:
        ValueError: another class has this name.
    """
    if cls.__name__ in RECORDS:
        raise ValueError(f"record: expected one class {cls.__name__}, received two")
    RECORDS[cls.__name__] = cls
    return cls


def field_names(cls: type) -> tuple[str, ...]:
    """Returns the names of a record's fields, in the order of its arguments."""
    return cls._fields if issubclass(cls, tuple) else tuple(x.name for x in fields(cls))  # type: ignore


def branches(value: Any) -> list[Any] | None:
    """Returns the parts of a dict, list, tuple or record; None of a leaf."""
    if isinstance(value, dict):
        return [*value.values()]
    if type(value) in (list, tuple):
        return [*value]
    if RECORDS.get(type(value).__name__) is type(value):
        return [getattr(value, name) for name in field_names(type(value))]
    return None


def places(value: Any) -> list[str]:
    """Returns the places of the parts of a dict, list, tuple or record, as one writes them in Python."""
    if isinstance(value, dict):
        return [f"[{key!r}]" for key in value]
    if type(value) in (list, tuple):
        return [f"[{i}]" for i in range(len(value))]
    return [f".{name}" for name in field_names(type(value))]


def values(value: Any) -> Iterator[Any]:
    """Yields the leaves of a tree, in the order of ``leaves``."""
    parts = branches(value)
    if parts is None:
        yield value
    else:
        for part in parts:
            yield from values(part)


def leaves(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the leaves of a tree, each with its place."""
    parts = branches(value)
    if parts is None:
        yield where, value
    else:
        for place, part in zip(places(value), parts, strict=True):
            yield from leaves(part, where + place)


def map_leaves(function: Callable[..., Any], value: Any, *others: Any) -> Any:
    """Returns a tree of a function's values at its leaves, and at those of others of the same build."""
    parts = branches(value)
    if parts is None:
        return function(value, *others)
    together = zip(parts, *(branches(other) or () for other in others), strict=True)
    mapped = [map_leaves(function, *part) for part in together]
    if isinstance(value, dict):
        return dict(zip(value, mapped, strict=True))
    return type(value)(mapped) if type(value) in (list, tuple) else type(value)(*mapped)


def join_rows(trees: Sequence[Any]) -> Any:
    """Returns a tree of tensors whose rows are those of several trees of one build, one after the other."""
    if len(trees) == 1:
        return trees[0]
    return map_leaves(lambda *x: None if x[0] is None else torch.cat(x), *trees)


def require_alike(received: Any, expected: Any, name: str) -> None:
    """Refuses a tree, read from a file, of another build: keys, lengths, types; shapes, dtypes of tensors.

    Tensors must be finite besides. Devices and the values of numbers and strings may differ.

    Raises:
        ValueError: naming the first place that differs.
    """
    if isinstance(expected, Tensor):
        if not isinstance(received, Tensor):
            raise ValueError(f"{name}: expected a tensor, received {type(received).__name__}")
        if received.shape != expected.shape or received.dtype != expected.dtype:
            raise ValueError(
                f"{name}: expected {expected.dtype} of shape {tuple(expected.shape)}, "
                f"received {received.dtype} of shape {tuple(received.shape)}"
            )
        if not bool(torch.isfinite(received).all()):
            raise ValueError(f"{name}: holds values that are not finite")
        return
    if type(received) is not type(expected):
        raise ValueError(f"{name}: expected {type(expected).__name__}, received {type(received).__name__}")
    if isinstance(expected, dict):
        if received.keys() != expected.keys():
            raise ValueError(f"{name}: expected {list(expected)}, received {list(received)}")
        received = {key: received[key] for key in expected}
    parts, built = branches(received), branches(expected)
    if parts is None or built is None:
        return
    if len(parts) != len(built):
        raise ValueError(f"{name}: expected {len(built)} entries, received {len(parts)}")
    for place, part, other in zip(places(expected), parts, built, strict=True):
        require_alike(part, other, name + place)
