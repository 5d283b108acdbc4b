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
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from llvmlite import binding, ir
from numba import types
from numba.core.errors import NumbaError
from numba.extending import intrinsic

from harmonium.backends.calls import PROCESS
from harmonium.backends.noise import jit

# Entry points of OpenMP: GNU's library has them, and LLVM's but for Windows.
_REGION, _NUMBER, _THREADS = "GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads"

_INT, _WORD, _ANY = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()


def run(function: Any, threads: int, shares: int, arguments: Sequence[Any]) -> None:
    """Runs a compiled function(first, last, *arguments) over all shares, cut among so many threads.

    Raises:
        MemoryError: a thread had no room.
    """
    forked = os.getpid() != PROCESS  # since harmonium was loaded; the child lacks torch's threads
    if forked or not torch_has_threads():
        _run_on_own(function, threads, shares, arguments)
        return
    # A region of fewer threads than torch has would end the others, which torch would have to start again.
    team = torch.get_num_threads()
    _over_threads(function.__module__, function.__name__)(team, threads, shares, tuple(arguments))


@cache
def torch_has_threads() -> bool:
    """Returns whether torch's threads can be used; a forked child may have none and must not try."""
    try:
        # What was loaded before torch has precedence, as it has for torch, before what torch brings.
        libraries = ctypes.CDLL(None), ctypes.CDLL(torch._C.__file__)
        entries = _REGION, _NUMBER, _THREADS
        library = next(
            candidate for candidate in libraries if all(hasattr(candidate, name) for name in entries)
        )
        for name in entries:
            binding.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
        # What numba offers for this is not all public, so it is tried before it is trusted.
        seen = np.zeros(2)
        _over_threads(__name__, "_count")(torch.get_num_threads(), 2, len(seen), (seen,))
    except (StopIteration, NumbaError, AttributeError, OSError, RuntimeError, TypeError):
        return False
    return bool((seen == 1).all())


@jit
def _count(first: int, last: int, seen: Any) -> None:
    for share in range(first, last):
        seen[share] += 1


@cache
def _over_threads(module: str, name: str) -> Any:
    # What is kept on disk is of this version of the function's file.
    region = f"{module} {name} {crc32(Path(str(import_module(module).__file__)).read_bytes())}"

    def over_threads(team: int, threads: int, shares: int, arguments: Any) -> None:
        if _region(region, team, threads, shares, arguments):  # type: ignore[call-arg]
            raise MemoryError("compiled code had no room on one of its threads")

    # With one name for all, processes that compile at once could keep one function in another's place.
    over_threads.__qualname__ = f"over_threads_{module}_{name}".replace(".", "_")
    return jit(over_threads)


@intrinsic(prefer_literal=True)
def _region(typing: Any, region: Any, team: Any, threads: Any, shares: Any, arguments: Any) -> Any:
    """An OpenMP region in which so many threads of a team run the function at a place; whether one failed."""
    module, name, _ = region.literal_value.split()
    function = getattr(import_module(module), name)
    wanted = types.int64, types.int64, *arguments.types

    def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
        function.compile(wanted)
        compiled = function.overloads[wanted]
        context.active_code_library.add_linking_library(compiled.library)

        # What the threads share lies on the stack of the one that asks.
        team, threads, shares, packed = values[1:]
        frame = ir.LiteralStructType([_WORD, _WORD, packed.type, _INT])
        shared = builder.alloca(frame)
        for i, value in enumerate((threads, shares, packed, _INT(0))):
            builder.store(value, _field(builder, shared, i))

        task = ir.FunctionType(ir.VoidType(), [_ANY])
        worker = ir.Function(builder.module, task, builder.module.get_unique_name("worker"))
        worker.linkage = "internal"
        body = ir.IRBuilder(worker.append_basic_block())
        seen = body.bitcast(worker.args[0], frame.as_pointer())
        most, count, thread_arguments = (body.load(_field(body, seen, i)) for i in range(3))
        number, had = (body.zext(body.call(_entry(body, n, _INT), []), _WORD) for n in (_NUMBER, _THREADS))
        parts = body.select(body.icmp_signed("<", had, most), had, most)
        with body.if_then(body.icmp_signed(">=", number, parts)):
            body.ret_void()
        first, last = (body.sdiv(body.mul(count, n), parts) for n in (number, body.add(number, _WORD(1))))
        status, _ = context.call_conv.call_function(
            body,
            context.declare_function(builder.module, compiled.fndesc),
            types.none,
            wanted,
            [first, last, *(body.extract_value(thread_arguments, i) for i in range(len(arguments.types)))],
        )
        with body.if_then(status.is_error):
            body.store(_INT(1), _field(body, seen, 3))
        body.ret_void()

        region = _entry(builder, _REGION, ir.VoidType(), task.as_pointer(), _ANY, _INT, _INT)
        builder.call(region, [worker, builder.bitcast(shared, _ANY), builder.trunc(team, _INT), _INT(0)])
        return builder.load(_field(builder, shared, 3))

    return types.int32(region, types.int64, types.int64, types.int64, arguments), generate


def _field(builder: Any, struct: Any, number: int) -> Any:
    return builder.gep(struct, [_INT(0), _INT(number)])


def _entry(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)


@cache
def _pool(process: int) -> ThreadPoolExecutor:  # a forked child has not the threads of its parent's
    return ThreadPoolExecutor(max_workers=64, thread_name_prefix="harmonium")


def _run_on_own(function: Any, threads: int, shares: int, arguments: Sequence[Any]) -> None:
    cuts = list(pairwise(shares * part // threads for part in range(threads + 1)))
    pool = _pool(os.getpid())
    others = [pool.submit(function, *cut, *arguments) for cut in cuts[1:]]
    try:
        function(*cuts[0], *arguments)
    finally:  # they work on the same arrays
        wait(others)
    for future in others:
        future.result()
