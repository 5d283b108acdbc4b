"""Compiled work on several threads. Needs numba.

They are torch's own, which OpenMP keeps awake for a while after each operation: other threads have to be
woken, and where there is a core for each of torch's they wait until these have gone to sleep.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from llvmlite import binding, ir
from numba import types
from numba.core.errors import NumbaError
from numba.extending import intrinsic

from harmonium.compiled.noise import jit

# Entry points of OpenMP: GNU's library has them, and LLVM's but for Windows.
_REGION, _NUMBER, _THREADS = "GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads"

_INT, _WORD, _ANY = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()


def run(function: Any, threads: int, shares: int, arguments: Sequence[Any]) -> None:
    """Runs a compiled function(first, last, *arguments) over all shares, cut among threads.

    Raises:
        RuntimeError: a thread failed.
    """
    if torch_has_threads() and not _forked:
        _over_threads(function.__module__, function.__name__)(threads, shares, tuple(arguments))
    else:
        _run_on_own(function, threads, shares, arguments)


@cache
def torch_has_threads() -> bool:
    """Whether torch's threads can be had here."""
    library = ctypes.CDLL(torch._C.__file__)  # and all that it needs
    entries = _REGION, _NUMBER, _THREADS
    if not all(hasattr(library, name) for name in entries):
        return False
    for name in entries:
        binding.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
    # What numba offers for this is not all public, so it is tried before it is trusted.
    seen = np.zeros(2)
    try:
        _over_threads(__name__, "_count")(2, len(seen), (seen,))
    except (NumbaError, AttributeError, TypeError, RuntimeError):
        return False
    return bool((seen == 1).all())


@jit
def _count(first: int, last: int, seen: Any) -> None:
    for share in range(first, last):
        seen[share] += 1


@cache
def _over_threads(module: str, name: str) -> Any:
    # What is kept on disk is of this version of the function.
    written = os.stat(str(import_module(module).__file__)).st_mtime_ns
    place = f"{module} {name} {written}"

    @jit
    def over_threads(threads: int, shares: int, arguments: Any) -> None:
        if _region(place, threads, shares, arguments):  # type: ignore[call-arg]
            raise RuntimeError("a thread of compiled code failed, most likely for want of memory")

    return over_threads


@intrinsic(prefer_literal=True)
def _region(typing: Any, place: Any, threads: Any, shares: Any, arguments: Any) -> Any:
    """An OpenMP region in which every thread runs the function at a place; returns whether one failed."""
    module, name, _ = place.literal_value.split()
    function = getattr(import_module(module), name)
    wanted = types.int64, types.int64, *arguments.types

    def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
        function.compile(wanted)
        compiled = function.overloads[wanted]
        context.active_code_library.add_linking_library(compiled.library)

        # What the threads share lies on the stack of the one that asks.
        threads, shares, given = values[1:]
        frame = ir.LiteralStructType([_WORD, given.type, _INT])
        shared = builder.alloca(frame)
        for i, value in enumerate((shares, given, _INT(0))):
            builder.store(value, _field(builder, shared, i))

        task = ir.FunctionType(ir.VoidType(), [_ANY])
        worker = ir.Function(builder.module, task, builder.module.get_unique_name("worker"))
        worker.linkage = "internal"
        own = ir.IRBuilder(worker.append_basic_block())
        seen = own.bitcast(worker.args[0], frame.as_pointer())
        count, each = (own.load(_field(own, seen, i)) for i in range(2))
        number, team = (own.zext(own.call(_entry(own, n, _INT), []), _WORD) for n in (_NUMBER, _THREADS))
        first, last = (own.sdiv(own.mul(count, n), team) for n in (number, own.add(number, _WORD(1))))
        status, _ = context.call_conv.call_function(
            own,
            context.declare_function(builder.module, compiled.fndesc),
            types.none,
            wanted,
            [first, last, *(own.extract_value(each, i) for i in range(len(arguments.types)))],
        )
        with own.if_then(status.is_error):
            own.store(_INT(1), _field(own, seen, 2))
        own.ret_void()

        region = _entry(builder, _REGION, ir.VoidType(), task.as_pointer(), _ANY, _INT, _INT)
        builder.call(region, [worker, builder.bitcast(shared, _ANY), builder.trunc(threads, _INT), _INT(0)])
        return builder.load(_field(builder, shared, 2))

    return types.int32(place, types.int64, types.int64, arguments), generate


def _field(builder: Any, struct: Any, number: int) -> Any:
    return builder.gep(struct, [_INT(0), _INT(number)])


def _entry(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)


_pool = ThreadPoolExecutor(max_workers=64, thread_name_prefix="harmonium")
_forked = False


def _run_on_own(function: Any, threads: int, shares: int, arguments: Sequence[Any]) -> None:
    cuts = list(pairwise(shares * part // threads for part in range(threads + 1)))
    others = [_pool.submit(function, *cut, *arguments) for cut in cuts[1:]]
    try:
        function(*cuts[0], *arguments)
    finally:  # they work on the same arrays
        wait(others)
    for each in others:
        each.result()


def _in_child() -> None:
    """A child has neither OpenMP's threads nor those of the pool, and would wait for them for ever."""
    global _pool, _forked
    _pool, _forked = ThreadPoolExecutor(max_workers=64, thread_name_prefix="harmonium"), True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
