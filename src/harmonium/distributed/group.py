"""The processes that work as one, and what they tell each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar, final

import torch
from torch import Tensor, distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from harmonium import _checks
from harmonium.distributed.memory import common_memory

TIMEOUT: Final = 600.0
"""Seconds after which a process gives up to wait for another that neither answers nor has died."""

SHARDS: Final = 8
"""Into how many parts work is cut where nothing else is asked for."""

T = TypeVar("T")
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

        The sums stand in memory that the next call with the same shapes writes over.
        """
        if self.size == 1:
            return [*tensors]
        if self._buffer is None or self._buffer.shapes != [x.shape for x in tensors]:
            self._buffer = _SumBuffer(tensors, self, self._processes)
        return self._buffer.all_reduce_sum(tensors)

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

    Processes of one computer read each other's terms where they have memory in common. Others add up a part
    of the entries each and hand it to all: a reduction as one does it in a ring, with as many bytes, but in
    an order that does not depend on when what arrives.
    """

    def __init__(self, like: Sequence[Tensor], group: Group, processes: dist.ProcessGroup | None) -> None:
        self.shapes = [x.shape for x in like]
        self._lengths, self._processes, self._rank = [x.numel() for x in like], processes, group.rank
        self._length = sum(self._lengths)
        part = -(-self._length // group.size)  # the last part is filled up with zeros
        self._total = like[0].new_zeros(part * group.size)
        self._common: Tensor | None = None
        if like[0].device.type == "cpu":
            shape = (2, group.size, self._length)
            self._common = common_memory(shape, like[0].dtype, group.all_gather, group.rank)
        if self._common is None:
            self._own = torch.zeros_like(self._total)
            self._parts = torch.zeros_like(self._total).view(group.size, part)
        else:
            self._turn, self._signal = 0, torch.zeros(1)

    def all_reduce_sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Returns the sums; they stand until the next call."""
        flat = self._own[: self._length] if self._common is None else self._common[self._turn, self._rank]
        torch.cat([x.flatten() for x in tensors], out=flat)
        if self._common is None:
            self._send()
        else:
            self._read(self._common[self._turn])
        totals = torch.split(self._total[: self._length], self._lengths)
        return [total.view(shape) for total, shape in zip(totals, self.shapes, strict=True)]

    def _read(self, terms: Tensor) -> None:
        """Fills the total from the terms of all processes, (size, length), when all have written."""
        dist.all_reduce(self._signal, group=self._processes)
        left, right = (pairwise(part, torch.add) for part in terms.chunk(2))
        torch.add(left, right, out=self._total[: self._length])
        # Until the next message, others may still read what is here.
        self._turn = 1 - self._turn

    def _send(self) -> None:
        """Fills the total by messages."""
        if len(self._parts) == 2:  # in any order, and with the fewest copies
            dist.all_reduce(self._own, group=self._processes)
            self._total = self._own
            return
        dist.all_to_all_single(self._parts.view(-1), self._own, group=self._processes)
        # Its name of old is deprecated from torch 2.13 on.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        gather(self._total, pairwise(self._parts, Tensor.add_), group=self._processes)


def pairwise(terms: Iterable[T], add: Callable[[T, T], T]) -> T:
    """Sums a power of two of terms, neighbours first, each as soon as it is made.

    So it does not matter which processes add which of them, as long as neighbours are together.
    """
    sums = list[T]()
    for count, term in enumerate(terms, 1):
        total = term
        for _ in range((count & -count).bit_length() - 1):  # as often as 2 divides the count
            total = add(sums.pop(), total)
        sums.append(total)
    (total,) = sums
    return total


@final
class Shards:
    """Parts of some work, each with noise of its own, which the processes of a group share out.

    The cut depends on the number of shards alone, and what they make is put together in one order: so 1, 2,
    4, ... processes get the same bits.

    Args:
        group: the processes.
        number: Number of shards, a power of two that the number of processes divides.

    Attributes:
        local: Shards of this process, in rising order.

    Raises:
        ValueError: another number.
    """

    def __init__(self, group: Group, number: int = SHARDS) -> None:
        _checks.positive_int(number, "shards")
        if number & (number - 1) or number % group.size:
            raise ValueError(
                f"shards: expected a power of two that the number of processes, {group.size}, divides, "
                f"received {number}"
            )
        self.group, self.number = group, number
        per_process = number // group.size
        self.local = range(group.rank * per_process, (group.rank + 1) * per_process)

    def generators(
        self, generator: torch.Generator, device: torch.device | None = None
    ) -> list[torch.Generator]:
        """Returns noise for each of this process's shards, from a generator alike in all processes.

        Args:
            generator: Source of their seeds; one of a GPU is waited for.
            device: where the noise is needed; None: that of the generator.
        """
        drawn = torch.randint(1 << 62, (self.number,), generator=generator, device=generator.device)
        words = drawn.tolist()
        return [torch.Generator(device or drawn.device).manual_seed(words[shard]) for shard in self.local]

    def divide(self, number: int, name: str) -> int:
        """Divides a number by the number of shards.

        Args:
            number: The number for all shards together.
            name: Name of the argument, for messages.

        Raises:
            ValueError: a number that the shards do not divide.
        """
        if number % self.number:
            raise ValueError(f"{name}: expected a multiple of the {self.number} shards, received {number}")
        return number // self.number

    def rows(self, number: int, name: str) -> list[slice]:
        """Cuts rows into shards, in their order; returns the slices of this process's shards.

        Args:
            number: Number of all rows, split as evenly as possible; every shard gets at least one.
            name: the argument that has them.

        Raises:
            ValueError: fewer rows than shards.
        """
        if number < self.number:
            raise ValueError(
                f"{name}: expected at least one for each of {self.number} shards, received {number}"
            )
        starts = [-(-shard * number // self.number) for shard in range(self.number + 1)]
        return [slice(starts[shard], starts[shard + 1]) for shard in self.local]

    def all_gather(self, values: Iterable[Any]) -> list[Any]:
        """Returns the values of all shards, in their order, from those of this process's own shards."""
        return [value for part in self.group.all_gather(list(values)) for value in part]


def as_shards(distributed: Distributed, number: int) -> Shards | None:
    """Returns the shards for the arguments ``distributed`` and ``shards``; None: one process, in one piece.

    Args:
        distributed: "auto": all processes of the default group of ``torch.distributed``, or this one where it
            was started alone; or a process group.
        number: as for ``Shards``.

    Raises:
        TypeError: anything else.
        ValueError: several processes were started and no argument says how they work together; or as
            ``Shards``.
    """
    started = int(os.environ.get("WORLD_SIZE", "1"))
    there = dist.is_available() and dist.is_initialized()
    if distributed is None:
        if started > 1:
            raise ValueError(
                f'distributed: expected "auto" in one of {started} processes (WORLD_SIZE), received None, '
                "with which each would train a machine of its own; call "
                'torch.distributed.init_process_group("gloo") and write distributed="auto"'
            )
        return None
    if distributed == "auto":
        if started > 1 and not there:
            raise ValueError(
                f"distributed: expected a process group in one of {started} processes (WORLD_SIZE), received "
                '"auto" before there is one; call torch.distributed.init_process_group("gloo") first, or '
                '"nccl" with a GPU for each'
            )
        return Shards(Group(dist.group.WORLD if there else None), number)
    if not isinstance(distributed, dist.ProcessGroup):
        received = type(distributed).__name__
        raise TypeError(
            f'distributed: expected None, "auto" or a torch.distributed.ProcessGroup, received {received}'
        )
    return Shards(Group(distributed), number)


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
    size = int(os.environ.get("WORLD_SIZE", "1"))
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
