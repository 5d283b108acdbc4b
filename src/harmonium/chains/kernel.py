"""Markov kernels that move chains, and their state between two sweeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._states import record, require_alike
from harmonium.machine import Hamiltonian, States

Info = Mapping[str, float | Tensor]
"""Diagnostics of a sweep by name, such as an acceptance rate: floats, or tensors of one element, for which
the host need not wait on a GPU."""


@record
class KernelState(NamedTuple):
    """Chains between two sweeps of a kernel.

    Attributes:
        states: chains that follow the machine's distribution, for each layer (batch, width_l).
        sweeps: that they have taken since they began.
        memory: what the kernel keeps beside them, such as a step size: a record, or nested dicts and lists,
            of tensors and numbers. Rules keep it from update to update and in checkpoints. None: nothing.
        fields: Fields of layers given the others of ``states``, where the last sweep has made them. A cache,
            which is dropped when the distribution changes.
        cache: other intermediate results of the last sweep that the next one can reuse, dropped as ``fields``
            are.
    """

    states: States
    sweeps: int
    memory: Any = None
    fields: Mapping[int, Tensor] = MappingProxyType({})
    cache: Any = None

    def without_caches(self) -> KernelState:
        """Returns the chains as they go on under another distribution, or in a file."""
        # Fields of the old distribution would be taken for those of the new one, and bias every chain.
        return KernelState(self.states, self.sweeps, self.memory, {})


class Kernel(ABC):
    """A Markov kernel on the states of a machine.

    A kernel holds settings only. What changes from sweep to sweep is in the ``KernelState`` that ``step``
    takes and returns, and which rules, checkpoints and ``chains.run`` keep whole. A new kernel is a subclass
    with ``invariant`` and ``step``, with ``init`` if it keeps something of its own, and with ``kind`` if it
    is to be chosen by name.
    """

    kind: ClassVar[str]
    """The name of a kernel that can be made without arguments, for the command, estimators and tasks."""
    registry: ClassVar[dict[str, type[Kernel]]] = {}
    """Every kernel that has a ``kind``, by that name."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in vars(cls):
            _checks.add_kind(Kernel.registry, cls.kind, cls)

    @property
    @abstractmethod
    def invariant(self) -> bool:
        """Returns whether the kernel leaves the machine's distribution invariant, after finitely many sweeps.

        Chains that start with other sweeps, such as unadjusted ones, count as long as those come to an end. A
        class declares it in one line, ``invariant = True``. Rules with persistent chains are "asymptotic" for
        such kernels and "biased" for all others.
        """

    def init(
        self,
        hamiltonian: Hamiltonian,
        states: Sequence[Tensor],
        generator: torch.Generator,
        planned: int | None = None,
    ) -> KernelState:
        """Returns chains that have taken no sweep yet.

        A kernel that keeps something of its own begins it here, in the form that it will always have, also
        for another ``planned``: numbers of one type, tensors of one shape.

        Args:
            hamiltonian: the machine in natural parameters, with what is held.
            states: where the chains begin, for each layer (batch, width_l).
            generator: source of noise.
            planned: sweeps of the run, or of every update of persistent chains, for schedules; None: not
                known.
        """
        # A list of its own: the caller's keeps its states.
        return KernelState(list(states), 0)

    @abstractmethod
    def step(
        self, hamiltonian: Hamiltonian, state: KernelState, generator: torch.Generator
    ) -> tuple[KernelState, Info]:
        """Moves every chain by one sweep, except clamped entries; nothing that is given is changed.

        Args:
            hamiltonian: as for ``init``; another one than at the last sweep where a machine learns.
            state: what ``init`` or the last sweep returned.
            generator: source of all noise.

        Returns:
            The chains after one more sweep (``state.sweeps + 1``), and diagnostics.
        """

    def run_sweeps(
        self, hamiltonian: Hamiltonian, state: KernelState, generator: torch.Generator, sweeps: int
    ) -> KernelState | None:
        """Moves every chain by so many sweeps at once, where that is faster than ``step`` by ``step``.

        Returns:
            The chains, with the bits that as many steps give; None: they are to be made one by one, and no
            noise was drawn.
        """
        return None

    def is_steady(self, persistent: bool) -> bool:
        """Returns whether the sweeps of an update are the same operations in every update of a run.

        They then ask for no value, and a GPU may record them. A kernel that changes with the number of sweeps
        is so for chains that begin again in every update, but not for ``persistent`` ones.
        """
        return False

    @property
    def period(self) -> int | None:
        """Returns after how many sweeps under one distribution the operations repeat, which a GPU may record.

        None: sweeps differ, or ask for a value.
        """
        # Where even and odd sweeps differ, as a ladder's exchanges do, a kernel says 2.
        return 1 if self.is_steady(persistent=True) else None

    def check(self, hamiltonian: Hamiltonian, state: KernelState) -> None:
        """Refuses a state, read from a file, that this kernel could not have returned for this distribution.

        What it keeps of its own has to be built as ``init`` builds it: keys, lengths, types, shapes.

        Raises:
            TypeError, ValueError: naming what is wrong with it.
        """
        # What the kernel keeps is compared with what it begins with: only a kernel can say what that is, and
        # a file that was cut or made for another machine must not reach compiled code.
        check_chains(hamiltonian, state.states)
        _checks.positive_int(state.sweeps, "state.sweeps", minimum=0)
        fresh = self.init(hamiltonian, state.states, _random.as_generator(0, hamiltonian.device), planned=1)
        require_alike(state.memory, fresh.memory, "state.memory")

    def __repr__(self) -> str:
        """Returns the settings; rules, and through them runs that go on, are recognised by it."""
        # Read off the attributes, so that a setting which a subclass adds cannot be left out.
        settings = (f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({', '.join(settings)})"


def not_a_step(kernel: Kernel, returned: Any) -> TypeError:
    """Returns what refuses something else than the pair that ``Kernel.step`` has to return."""
    return TypeError(
        f"kernel: expected step of {kernel} to return a pair, a KernelState and diagnostics, received "
        f"{type(returned).__name__}"
    )


def swap_where(swap: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Returns two tensors, such as (chains, width_l), that have exchanged their entries where ``swap``."""
    return torch.where(swap, y, x), torch.where(swap, x, y)


def check_chains(hamiltonian: Hamiltonian, states: Any) -> None:
    """Refuses what are not chains of a machine: their number of layers, widths, rows, dtype and support.

    Raises:
        TypeError, ValueError: naming what is wrong.
    """
    _checks.instance(states, "state", Sequence, "what the last call returned, or None")
    received = [tuple(x.shape)[1:] if isinstance(x, Tensor) else type(x).__name__ for x in states]
    expected = [(layer.width,) for layer in hamiltonian.layers]
    if received != expected:
        raise ValueError(f"state: expected chains of width {expected}, received {received}")
    for l, (layer, x) in enumerate(zip(hamiltonian.layers, states, strict=True)):
        layer.check_rows(x, f"state[{l}]")
        if x.dtype != hamiltonian.dtype or len(x) != len(states[0]):
            raise ValueError(
                f"state[{l}]: expected {len(states[0])} rows of {hamiltonian.dtype}, "
                f"received {len(x)} of {x.dtype}"
            )
