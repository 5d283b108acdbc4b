"""A trained machine and all that stands between it and rows of data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from harmonium import _random, tasks
from harmonium._random import as_generator
from harmonium._storage import checksum
from harmonium.data import Encoder, build
from harmonium.estimators._intake import Array, dtype_of
from harmonium.likelihood import LogPartition, log_likelihood, variational_bound
from harmonium.machine import BoltzmannMachine
from harmonium.tables import Codec, ColumnCodec, Table
from harmonium.training import stream_seed

_BLOCK = 4096  # rows of a block
_KEPT = 1000  # rows kept, by which annealing is checked
_CHAINS = 10  # of a row that is drawn: the mean is known to a third of a deviation, or better


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
    def encoder(self) -> Encoder:
        """Turns data into states of the visible layers but a label, and back."""
        return self.codec.encoder

    @property
    def columns(self) -> tuple[ColumnCodec, ...]:
        """The columns of a table that have a unit; of arrays there are none."""
        return self.encoder.columns if isinstance(self.encoder, Table) else ()

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

    def generator(self, random_state: Any, purpose: str) -> torch.Generator:
        """Returns a generator for a purpose, seeded by a draw from scikit-learn's kind of random state."""
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        return as_generator(stream_seed(seed, purpose), self.machine.device)

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
        found = torch.cat([function(v) for v in self.states(X, beyond=beyond, shown="data")])
        return _as_array(found, dtype_of(like))

    def decode(self, v: Tensor, like: Any = None) -> Any:
        """Returns visible states or means as rows in the units of the data, arrays as in ``compute``."""
        rows = self.encoder.decode(v[:, : self.data_width].double())
        return rows if isinstance(self.encoder, Table) else _as_array(rows, dtype_of(like))

    def fill(self, X: Any, v: Tensor, *, rounded: bool = True, drawn: str | None = None) -> Any:
        """Returns validated rows with their missing cells taken from visible states, see ``Table.filled``."""
        if isinstance(self.encoder, Table):
            states = v[:, : self.data_width].double()
            return build(self.encoder.filled(X, states, rounded=rounded, drawn=drawn))
        return np.where(np.isnan(X), self.decode(v, like=X), X.astype(dtype_of(X)))

    def rows_to_keep(self, count: int) -> Tensor:
        """Draws the indices of up to 1,000 of so many rows."""
        generator = as_generator(self.stream("rows kept", self.n_updates))
        return _random.permutation(count, generator)[:_KEPT].sort().values

    def predict(self, v: Tensor, j: int, method: str, sweeps: int, seed: Any) -> Array:
        """Returns cells of a column, (rows,), given the rest of visible states; see ``tasks.predict_column``.

        ``j`` is its number among the columns with a unit.
        """
        unit = j
        for l in self.machine.visible:
            layer = self.machine.layers[l]
            if unit < layer.n_units:
                break
            unit -= layer.n_units
        known = self.columns[j] if self.columns else None
        label = None if known is None else bool(known.values)
        about: dict[str, Any] = {"label": label, "chains": _CHAINS, "sweeps": sweeps, "seed": seed}
        states = tasks.predict_column(self.machine, v, l, unit, method, **about).states
        if known is not None:
            cells: Array = known.decode(states.cpu().numpy(), rounded=bool(known.values))
            return cells
        split = self.machine.split(v.clone())
        layer.by_unit(split[l])[:, unit] = states.to(v)
        rows: Array = self.decode(torch.cat([split[k] for k in self.machine.visible], 1))
        return rows[:, j]


@torch.no_grad()
def log_states(machine: BoltzmannMachine, v: Tensor, constant: float | LogPartition) -> Tensor:
    """Returns ln p of what visible states show, or its variational bound, (rows,), float64."""
    scores = log_likelihood if machine.graph.independent else variational_bound
    return scores(machine, v, constant)


def _as_array(x: Tensor, dtype: Any) -> Array:
    array: Array = x.cpu().numpy().astype(dtype, copy=False)
    return array
