"""States between two calls of a kernel, a rule or a callback: trees of records that checkpoints can hold.

A tree has dicts, lists, tuples and records inside, and tensors, numbers, strings and None at its leaves.
A record is a dataclass or NamedTuple that was declared with ``record``. Trees are torch's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Class = TypeVar("Class", bound=type)

RECORDS: dict[str, type] = {}
"""Every kind of record, by the name of its class."""

values = pytree.tree_leaves
"""Returns the leaves of a tree, in the order of ``leaves``."""
map_leaves = pytree.tree_map
"""Returns a tree of a function's values at its leaves, and at those of others of the same build."""


def record(cls: Class) -> Class:
    """Declares a dataclass or NamedTuple a record, which checkpoints keep by the name of its class.

    Raises:
        ValueError: another class has this name.
    """
    if cls.__name__ in RECORDS:
        raise ValueError(f"record: expected one class {cls.__name__}, received two")
    RECORDS[cls.__name__] = cls
    if not issubclass(cls, tuple):
        names = field_names(cls)
        pytree.register_pytree_node(
            cls,
            lambda x: ([getattr(x, name) for name in names], None),
            lambda parts, _: cls(*parts),
            flatten_with_keys_fn=lambda x: ([(pytree.GetAttrKey(y), getattr(x, y)) for y in names], None),
        )
    return cls


def field_names(cls: type) -> tuple[str, ...]:
    """Returns the names of a record's fields, in the order of its arguments."""
    return cls._fields if issubclass(cls, tuple) else tuple(x.name for x in fields(cls))  # type: ignore


def leaves(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the leaves of a tree, each with its place, as one writes it in Python."""
    for path, leaf in pytree.tree_flatten_with_path(value)[0]:
        yield where + pytree.keystr(path), leaf


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
    parts, built = _parts(received), _parts(expected)
    if isinstance(expected, dict) and parts.keys() != built.keys():
        raise ValueError(f"{name}: expected {list(expected)}, received {list(received)}")
    if len(parts) != len(built):
        raise ValueError(f"{name}: expected {len(built)} entries, received {len(parts)}")
    for key, other in built.items():
        require_alike(parts[key], other, name + key)


def _parts(value: Any) -> dict[str, Any]:
    """Returns the parts of a dict, list, tuple or record by their places; none of a leaf."""
    flat, _ = pytree.tree_flatten_with_path(value, is_leaf=lambda part: part is not value)
    return {pytree.keystr(path): part for path, part in flat if path}
