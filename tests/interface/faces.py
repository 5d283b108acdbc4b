"""What packages offer."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType


def names_of(face: ModuleType) -> list[str]:
    """Returns the names that a package has by ``import name as name``, or that its ``__all__`` lists."""
    body = ast.parse(inspect.getsource(face)).body
    aliases = [alias for node in body if isinstance(node, ast.ImportFrom) for alias in node.names]
    return getattr(face, "__all__", [alias.asname for alias in aliases if alias.asname])
