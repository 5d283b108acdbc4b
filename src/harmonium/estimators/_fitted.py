"""A trained machine, and its way from rows of data to states and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _random
from harmonium._random import as_generator
from harmonium._storage import checksum
from harmonium.data import build
from harmonium.estimators._intake import Array, dtype_of
from harmonium.likelihood import LogPartition
from harmonium.machine import BoltzmannMachine
from harmonium.tables import Codec, Table
from harmonium.training import stream_seed

_BLOCK = 4096  # rows of a block
_KEPT = 1000  # rows kept, by which annealing is checked


@final
@dataclass(eq=False)
class Fitted:
    """A trained machine, whose metadata have the codec of its data, and what its training leaves to the next.

    Training makes another one. Only ln Z is put in later, where it is first needed.

    Attributes:
        machine: the machine; its last visible layer may be a label.
        seed: Seed of all noise, from which each purpose has a stream of its own.
        settings: parameters that the machine was begun with, see ``_training.structure_of``.
        history: records of the training.
        n_updates: updates made.
        rule: the name of the rule, with its settings, that ``chains`` belong to.
        chains: ``TrainingRun.rule_state``, for further training; None: there is none.
        optimizer: with what it remembers; None: plain gradient ascent, which remembers nothing.
        rows: some rows that the machine has learnt, as visible states; None: there are none.
        numbers: what an estimator has found for the machine as it is, by name.
        log_partition: ln Z, behind what it depends on; None: not yet found.
    """

    machine: BoltzmannMachine
    seed: int
    settings: dict[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)
    n_updates: int = 0
    rule: str = ""
    chains: Any = None
    optimizer: torch.optim.Optimizer | None = None
    rows: Tensor | None = None
    numbers: dict[str, Any] = field(default_factory=dict)
    log_partition: tuple[Any, LogPartition] | None = None

    # The machine

    @cached_property
    def codec(self) -> Codec:
        """Goes from rows to visible states and back; a table of a text file makes frames."""
        codec = Codec.of(self.machine)
        encoder = codec.encoder
        return replace(codec, encoder=encoder.in_frames()) if isinstance(encoder, Table) else codec

    @property
    def data_width(self) -> int:
        """Visible columns of the data, without those of a label."""
        return self.machine.visible_width - self.codec.label_width

    def double(self) -> BoltzmannMachine:
        """Returns a copy of the machine in float64."""
        return deepcopy(self.machine).double()

    def digest(self) -> str:
        """Returns a digest of the machine, by which numbers are known to be of it."""
        values = {name: x.detach().cpu() for name, x in self.machine.state_dict().items()}
        return checksum(self.machine.config(), values)

    def stream(self, purpose: str, index: int = 0) -> int:
        """Returns the seed of the noise for a purpose."""
        return stream_seed(self.seed, purpose, index)

    # Between rows and states

    def states(self, X: Any, *, beyond: str = "end", shown: str = "nothing") -> Iterator[Tensor]:
        """Yields validated rows as visible states in float64, a block at a time; a label's are missing.

        ``beyond`` and ``shown`` as of ``Codec.rows``.
        """
        rows, start = self.codec.rows(X, torch.float64, keep=False, shown=shown, beyond=beyond), 0
        for v in rows.chunks(_BLOCK):
            self.machine.check_batch(v, range(start, start + len(v)), "X")
            start += len(v)
            yield v.to(self.machine.device)

    def visible(self, X: Any) -> Tensor:
        """Returns the states of validated rows."""
        return torch.cat(list(self.states(X)))

    def compute(
        self, X: Any, function: Callable[[Tensor], Tensor], like: Any = None, *, beyond: str = "end"
    ) -> Array:
        """Returns what a function of states makes of validated rows, float32 where ``like`` is.

        Each has to show a cell, if only a label that was never seen and has no state.
        """
        values = torch.cat([function(v) for v in self.states(X, beyond=beyond, shown="data")])
        return values.cpu().numpy().astype(dtype_of(like), copy=False)

    def decode(self, v: Tensor, like: Any = None) -> Any:
        """Returns visible states or means as rows in the units of the data, arrays as in ``compute``."""
        encoder = self.codec.encoder
        rows = encoder.decode(v[:, : self.data_width].double())
        return rows if encoder.tabular else rows.cpu().numpy().astype(dtype_of(like), copy=False)

    def fill(self, X: Any, v: Tensor, *, rounded: bool = True, drawn: str | None = None) -> Any:
        """Returns validated rows with their missing cells taken from visible states, see ``Table.filled``."""
        encoder = self.codec.encoder
        if isinstance(encoder, Table):
            states = v[:, : self.data_width].double()
            return build(encoder.filled(X, states, rounded=rounded, drawn=drawn))
        return np.where(np.isnan(X), self.decode(v, like=X), X.astype(dtype_of(X)))

    def rows_to_keep(self, count: int) -> Tensor:
        """Draws the indices of up to 1,000 of so many rows."""
        generator = as_generator(self.stream("rows kept", self.n_updates))
        return _random.permutation(count, generator)[:_KEPT].sort().values
