"""The processes that work together, and what they tell each other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, final

import torch
from torch import Tensor
from torch import distributed as dist

Distributed = Literal["auto"] | dist.ProcessGroup | None


@final
class Group:
    """Processes that do the same at the same time; one by itself where there is no process group.

    All of them have to make the same calls in the same order. A process that dies closes its connections, and
    a call that waits for it fails then, or after the timeout that the process group was made with.

    Args:
        processes: a process group, or None.

    Attributes:
        size: how many.
        rank: which of them this one is.
    """

    def __init__(self, processes: dist.ProcessGroup | None = None) -> None:
        self._processes = processes
        self.size = 1 if processes is None else dist.get_world_size(processes)
        self.rank = 0 if processes is None else dist.get_rank(processes)

    @property
    def leads(self) -> bool:
        """True if this process writes, prints and evaluates for all."""
        return self.rank == 0

    def any(self, *flags: bool) -> list[bool]:
        """For every flag whether a process has raised it."""
        if self.size == 1:
            return list(flags)
        raised = torch.tensor(flags, dtype=torch.int32, device=self._device)
        dist.all_reduce(raised, dist.ReduceOp.MAX, self._processes)
        return [bool(flag) for flag in raised.tolist()]

    @contextmanager
    def leading(self) -> Iterator[bool]:
        """Yields whether this process leads; raises an exception of the leading process in all of them."""
        failure: Exception | None = None
        try:
            yield self.leads
        except Exception as error:
            failure = error
        failure = self.share(failure)
        if failure is not None:
            raise failure

    def sums(self, vectors: Iterable[Tensor]) -> list[Tensor]:
        """Sums each of several vectors, (entries,), over the processes; sends one while the next is made.

        Every process adds a part of the entries and hands it to the others: a reduction as one does it in a
        ring, with as many bytes, but in an order that does not depend on when what arrives.
        """
        if self.size == 1:
            return list(vectors)
        sent = [(len(x), *self._sent(x)) for x in vectors]
        handed = [(length, *self._handed(received, work)) for length, received, work in sent]
        for _, _, work in handed:
            work.wait()
        return [total[:length] for length, total, _ in handed]

    def _sent(self, x: Tensor) -> tuple[Tensor, Any]:
        """Starts to exchange the parts of x; returns the buffer of this process's part, and pending work."""
        part = -(-len(x) // self.size)
        padded = torch.nn.functional.pad(x, (0, part * self.size - len(x)))
        received = torch.empty_like(padded)
        return received, dist.all_to_all_single(received, padded, group=self._processes, async_op=True)

    def _handed(self, received: Tensor, work: Any) -> tuple[Tensor, Any]:
        """Sums this process's part and starts to gather all; returns the buffer of sums, and pending work."""
        work.wait()
        added = pairwise(list(received.view(self.size, -1)))
        total = torch.empty_like(received)
        # Its name of old is deprecated from torch 2.13 on.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return total, gather(total, added.contiguous(), group=self._processes, async_op=True)

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all processes, in their order; anything that can be pickled."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, self._processes)
        return values

    def share(self, value: Any) -> Any:
        """Returns the value of the process that leads, in all processes."""
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


def pairwise(terms: Sequence[Tensor]) -> Tensor:
    """The sum of a power of two of tensors, neighbours first.

    So it does not matter which processes add which of them, as long as neighbours are together.
    """
    while len(terms) > 1:
        terms = [terms[i] + terms[i + 1] for i in range(0, len(terms), 2)]
    return terms[0]


def as_group(distributed: Distributed) -> Group | None:
    """Returns the group for an argument ``distributed``; None: this process by itself.

    Args:
        distributed: "auto": all processes of the default group of ``torch.distributed``, or this one where it
            was started alone; or a process group.

    Raises:
        TypeError: anything else.
        ValueError: several processes were started and nothing says what they are to do together.
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
        return Group(dist.group.WORLD if there else None)
    if not isinstance(distributed, dist.ProcessGroup):
        received = type(distributed).__name__
        hint = "; for a mesh of rows and columns see harmonium.learning.wide" * (received == "DeviceMesh")
        raise TypeError(
            'distributed: expected None, "auto" or a torch.distributed.ProcessGroup, '
            f"received {received}{hint}"
        )
    return Group(distributed)
