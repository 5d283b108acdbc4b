"""The processes that work as one, and what they tell each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal, final

import torch
from torch import Tensor, distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from harmonium import _device
from harmonium.distributed.memory import common_memory, local_barrier

TIMEOUT: Final = 600.0
"""Seconds after which a process gives up to wait for another that neither answers nor has died."""

FLAGS: Final = 3
"""Number of decisions that travel with every sum: to stop, to halt for a signal, to write a checkpoint."""

Distributed = Literal["auto"] | dist.ProcessGroup | None


@final
class Group:
    """Processes that do the same at the same time; one alone where there is no process group.

    All of them have to make the same calls in the same order. A process that dies closes its connections, and
    a call that waits for it fails then, or after the timeout that the process group was made with.

    Args:
        processes: a process group, or None.

    Attributes:
        size: how many.
        rank: which of them this one is.
        is_rank_zero: whether this one writes, prints and evaluates for all.
    """

    def __init__(self, processes: dist.ProcessGroup | None = None) -> None:
        self._processes = processes
        self.size = 1 if processes is None else dist.get_world_size(processes)
        self.rank = 0 if processes is None else dist.get_rank(processes)
        self.is_rank_zero = self.rank == 0
        self._buffer: _SumBuffer | None = None
        self._flags: Sequence[bool] = (False,) * FLAGS
        self._raised: Tensor = torch.zeros(FLAGS)

    def rows(self, number: int, name: str) -> slice:
        """Returns which of so many rows are this process's: as even a split as can be, in their order.

        Args:
            number: Number of all rows; the first processes have the remainder, one more each.
            name: the argument that has them.

        Raises:
            ValueError: fewer rows than processes.
        """
        if number < self.size > 1:
            raise ValueError(
                f"{name}: expected at least one for each of {self.size} processes, received {number}"
            )
        per_process, rest = divmod(number, self.size)
        start = self.rank * per_process + min(self.rank, rest)
        return slice(start, start + per_process + (self.rank < rest))

    def share(self, number: int, name: str) -> int:
        """Returns how many of so many chains are this process's, as ``rows`` has it."""
        rows = self.rows(number, name)
        return int(rows.stop - rows.start)

    def own_noise(self, generator: torch.Generator) -> torch.Generator:
        """Returns noise of this process's own, from a generator alike in all; one process goes on with it."""
        if self.size == 1:
            return generator
        drawn = torch.randint(1 << 62, (self.size,), generator=generator, device=generator.device)
        return torch.Generator(generator.device).manual_seed(drawn.tolist()[self.rank])

    def all_reduce_any(self, *flags: bool) -> list[bool]:
        """Returns for every flag whether a process has raised it."""
        if self.size == 1:
            return list(flags)
        raised = torch.tensor(flags, dtype=torch.int32, device=self._device)
        dist.all_reduce(raised, dist.ReduceOp.MAX, self._processes)
        return [bool(flag) for flag in raised.tolist()]

    @contextmanager
    def on_rank_zero(self) -> Iterator[bool]:
        """Yields whether this is rank 0; raises an exception of rank 0 in all processes."""
        failure: Exception | None = None
        try:
            yield self.is_rank_zero
        except Exception as error:
            failure = error
        failure = self.broadcast(failure)
        if failure is not None:
            raise failure

    def all_reduce_sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Sums each of several tensors over the processes, in one dtype on one device.

        The decisions of all processes travel with the sum (``agree``). The sums stand in memory that the next
        call with the same shapes writes over.
        """
        if self.size == 1:
            return [*tensors]
        flags = torch.tensor(self._flags, dtype=tensors[0].dtype)
        tensors = [*tensors, _device.to_device(flags, tensors[0].device)]
        if self._buffer is None or self._buffer.shapes != [x.shape for x in tensors]:
            self._buffer = _SumBuffer(tensors, self, self._processes)
        *sums, self._raised = self._buffer.all_reduce_sum(tensors)
        return sums

    def agree(self, *flags: bool) -> list[bool]:
        """Hands in decisions for the next sum, and returns those that were in the last one.

        So no update waits for them, and all processes act upon them after the same one.

        Args:
            flags: ``FLAGS`` of them.

        Returns:
            For each, whether a process had raised it.
        """
        self._flags = flags
        return [x > 0 for x in self._raised.tolist()]

    def all_gather(self, value: Any) -> list[Any]:
        """Returns the values of all processes, in their order; anything that can be pickled."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, self._processes)
        return values

    def broadcast(self, value: Any) -> Any:
        """Returns the value of rank 0, in all processes."""
        if self.size == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, group=self._processes, group_src=0)
        return held[0]

    @property
    def _device(self) -> torch.device:
        assert self._processes is not None
        if dist.get_backend(self._processes) == "nccl":
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")


@final
class _SumBuffer:
    """Memory for sums over processes of tensors of some shapes, which lie there end to end.

    Processes of one computer read each other's terms where they have memory in common. Others send them.
    """

    def __init__(self, like: Sequence[Tensor], group: Group, processes: dist.ProcessGroup | None) -> None:
        self.shapes = [x.shape for x in like]
        self._lengths, self._processes, self._rank = [x.numel() for x in like], processes, group.rank
        self._total = like[0].new_empty(sum(self._lengths))
        self._common: Tensor | None = None
        if like[0].device.type == "cpu":
            shape = (2, group.size, len(self._total))
            self._common = common_memory(shape, like[0].dtype, group.all_gather, group.rank)
        self._turn = 0
        self._wait: Callable[[], object] = partial(dist.all_reduce, torch.zeros(1), group=processes)
        if self._common is not None:
            self._wait = local_barrier(group.all_gather, group.rank, TIMEOUT) or self._wait

    def all_reduce_sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Returns the sums; they stand until the next call."""
        total, common = self._total, self._common
        flat = total if common is None else common[self._turn, self._rank]
        torch.cat([x.flatten() for x in tensors], out=flat)
        if common is None:
            dist.all_reduce(total, group=self._processes)
        else:
            self._wait()  # all have written
            first, second, *rest = common[self._turn]
            torch.add(first, second, out=total)  # in two thirds of the time of one sum of all
            for term in rest:
                total += term
            # Until the next message, others may still read what is here.
            self._turn = 1 - self._turn
        sums = torch.split(total, self._lengths)
        return [x.view(shape) for x, shape in zip(sums, self.shapes, strict=True)]


def as_group(distributed: Distributed) -> Group:
    """Returns the processes of the argument ``distributed``; None: this one alone.

    Args:
        distributed: "auto": all processes of the default group of ``torch.distributed``, or this one where it
            was started alone; or a process group.

    Raises:
        TypeError: anything else.
        ValueError: "auto" in one of several processes (``WORLD_SIZE``) that have no group yet.
    """
    if distributed is None:
        return Group()
    if distributed == "auto":
        there = dist.is_available() and dist.is_initialized()
        if count_started() > 1 and not there:
            raise ValueError(
                f"distributed: expected a process group in one of {count_started()} processes (WORLD_SIZE), "
                'received "auto" before there is one; call torch.distributed.init_process_group("gloo") '
                'first, or "nccl" with a GPU for each'
            )
        return Group(dist.group.WORLD if there else None)
    if not isinstance(distributed, dist.ProcessGroup):
        received = type(distributed).__name__
        raise TypeError(
            f'distributed: expected None, "auto" or a torch.distributed.ProcessGroup, received {received}'
        )
    return Group(distributed)


def count_started() -> int:
    """Returns how many processes a launcher such as ``torchrun`` has started (``WORLD_SIZE``)."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def init_process_group(device: str | torch.device = "cpu", timeout: float = TIMEOUT) -> Iterator[None]:
    """Joins the processes that ``torchrun``, or a launcher like it, has started, for the time of some work.

    It is ``torch.distributed.init_process_group`` over nccl between GPUs and gloo between CPUs, but for two
    things. Processes that ``torchrun --max-restarts`` starts again find each other: they share a store with
    those before them, whose addresses they would wait for in vain. And none waits longer than ``timeout``.

    A process that was started alone (``WORLD_SIZE`` is 1 or not set) has nobody to join.

    Args:
        device: where each works; "cuda" is the GPU that has its number on its computer, ``LOCAL_RANK``.
        timeout: seconds that one of them may let the others wait, above 0; what the first does alone, such as
            metrics and callbacks, counts.

    Raises:
        RuntimeError: there is a process group already, or the others do not come.
    """
    size = count_started()
    if size == 1:
        yield
        return
    where = torch.device(device)
    if where.type == "cuda":
        torch.cuda.set_device(where if where.index is not None else int(os.environ.get("LOCAL_RANK", "0")))
    patience = timedelta(seconds=timeout)
    # Whose store: torchrun's own, or one that the first process opens.
    theirs = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    rank = int(os.environ["RANK"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    opened = TCPStore(address, port, size, not theirs and rank == 0, patience)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = PrefixStore(f"harmonium/{attempt}", opened)
    dist.init_process_group(
        "nccl" if where.type == "cuda" else "gloo",
        store=store,
        rank=rank,
        world_size=size,
        timeout=patience,
    )
    try:
        yield
    finally:
        dist.destroy_process_group()
