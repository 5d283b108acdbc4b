"""Names of version 0.2 that are gone, and what to write in their place."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any, TypeVar

_T = TypeVar("_T")

MOVED = {"edges": "couplings", "products": "matmul"}
"""Packages that have another name; ``couplings`` of 0.2 is ``coupled``, and refuses what stood in it."""
_PAIRS = (
    *("Block", "BlockCoupling", "CommonNoise", "Coupled", "Gibbs", "Independent", "Jumps", "Maximal"),
    *("Meetings", "Metropolis", "PairKernel", "Reflection", "meet", "mixing_bound", "mixing_limit"),
    "run_pairs",
)
GONE: dict[str, dict[str, str]] = {
    "harmonium.couplings": {
        **{name: f"pairs of chains are in harmonium.coupled; write coupled.{name}" for name in _PAIRS},
        "Place": "it is called coupled.ChainState",
    },
    "harmonium.chains": {
        "Step": "it is called KernelState, and diagnostics come beside it",
        "advance": "it is called run_kernel, from a KernelState to a KernelState",
        "begin": "it is called initial_states",
        "complete": "it is called fill_hidden",
        "completed": "it is called fill_hidden_state",
        "graphs": "CUDA graphs were never measured and are gone",
        "planted": "it is called sample_data_from",
    },
    "harmonium.machine": {
        "HIDDEN_KINDS": "harmonium.layers.Layer.registry has all kinds of units",
        "VISIBLE_KINDS": 'harmonium.layers.Layer.registry has all kinds of units; "auto" chooses one',
        "from_data_": "it is called init_from_data_",
        "joined": "it is called join_layers",
        "rebuilt": "it is called rebuild",
        "visible_from_data_": "it is called init_visible_biases_",
    },
    "harmonium.distributed": {"together": "it is called init_process_group"},
    "harmonium.learning": {
        "Task": "it is called ExpectationRequest",
        "wide": "every process holds the whole machine; hm.train(..., distributed=) shares rows and chains",
    },
}
"""Replacements of names that are gone, by module and name; docs/upgrade.md has the table."""
MEMBERS = {
    "Clamp": {"fixes": "is_clamped", "take": "select_rows"},
    "ExpectationRequest": {
        "each": "row_weight", "own": "chains_of_this_shard", "parts": "split_by_missing",
        "take": "select_rows",
    },
    "Graph": {"given": "kept"},
    "Hamiltonian": {
        "anew": "without_cache", "couplings": "J", "fixes": "is_clamped", "given": "clamp",
        "hold": "apply_clamp", "hold_all": "clamp_states", "only": "observe_only",
        "seen": "visible_states", "take": "select_rows",
    },
    "Rule": {"given": "condition_on", "task": "request"},
    "Statistics": {"couplings": "products"},
}  # fmt: skip
"""Methods and attributes that have another name, by class."""
OPTIONS = {"--watch": "--tensorboard writes curves and pictures, and harmonium report shows them"}
"""Replacements of options of the command."""


def refuse_gone(module: str) -> Callable[[str], Any]:
    """Returns a ``__getattr__`` for a module that names what has come in place of a name that is gone."""

    def __getattr__(name: str) -> Any:
        message = f"module {module!r} has no attribute {name!r}"
        instead = GONE[module].get(name)
        raise AttributeError(message if instead is None else f"{message} since version 0.3: {instead}")

    return __getattr__


def refuse_gone_members(cls: type[_T]) -> type[_T]:
    """Gives a class a ``__getattr__`` that names what has come in place of a method that is gone."""

    def __getattr__(self: object, name: str) -> Any:
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        instead = MEMBERS[cls.__name__].get(name)
        raise AttributeError(message if instead is None else f"{message} since version 0.3: write {instead}")

    cls.__getattr__ = __getattr__  # type: ignore[attr-defined]
    return cls


class MovedPackages:
    """Names the new package where an import of one that has moved fails; the last of ``sys.meta_path``."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        top, _, package = name.partition(".")
        if top == "harmonium" and package in MOVED:
            raise ModuleNotFoundError(
                f"No module named {name!r} since version 0.3: write harmonium.{MOVED[package]}", name=name
            )
        return None
