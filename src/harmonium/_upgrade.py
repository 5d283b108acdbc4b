"""Names of version 0.2 that are gone, and what to write in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

GONE: dict[str, dict[str, str]] = {
    "harmonium.matmul": {
        "Choice": "it is called Backend",
        "choice": "it is called get_backend",
        "made": "get_backend() returns the backend",
        "use": "it is called set_backend",
        "measure": "nothing is measured any more; get_backend() returns the backend",
        "repeat": "set_backend(name) sets a backend",
        "agree": "every process follows its own processor; set_backend(name) makes them alike",
        "int8_product": "torch._int_mm multiplies whole numbers",
        "int8_works": "torch._int_mm multiplies whole numbers",
    },
    "harmonium.chains": {
        "Step": "it is called KernelState, and diagnostics come beside it",
        "advance": "it is called run_kernel, from a KernelState to a KernelState",
        "graphs": "CUDA graphs were never measured and are gone",
    },
    "harmonium.distributed": {"together": "it is called init_process_group"},
    "harmonium.learning": {
        "wide": "every process holds the whole machine; hm.train(..., distributed=) shares rows and chains",
    },
}
"""Replacements of names that are gone, by module and name; docs/upgrade.md has the table."""
OPTIONS = {"--watch": "--tensorboard writes curves and pictures, and harmonium report shows them"}
"""Replacements of options of the command."""


def refuse_gone(module: str) -> Callable[[str], Any]:
    """Returns a ``__getattr__`` for a module that names what has come in place of a name that is gone."""

    def __getattr__(name: str) -> Any:
        message = f"module {module!r} has no attribute {name!r}"
        instead = GONE[module].get(name)
        raise AttributeError(message if instead is None else f"{message} since version 0.3: {instead}")

    return __getattr__
