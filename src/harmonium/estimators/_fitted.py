"""A trained machine and all that stands between it and rows of data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from harmonium import _checks, _random, chains
from harmonium._progress import show_progress
from harmonium._random import as_generator
from harmonium._rows import refuse_blank
from harmonium._storage import checksum
from harmonium.data import Encoder, frame_of
from harmonium.estimators._intake import Array, dtype_of
from harmonium.layers import Layer
from harmonium.learning import Rule
from harmonium.likelihood import LogPartition, ais, exact_log_partition
from harmonium.machine import BoltzmannMachine
from harmonium.meanfield import naive
from harmonium.sums import (
    EXPLICIT_LIMIT,
    LONG,
    UNIT_UPDATES_PER_SECOND,
    HiddenStates,
    affordable,
    has_hidden_states,
    in_words,
    unit_updates,
    unit_updates_by_row,
)
from harmonium.tables import Codec, Table, blank_rows, log_masses
from harmonium.tasks import impute, sample, unobserved, usual_sweeps
from harmonium.training import stream_seed

_TOLERANCE = 1e-5  # of mean field
_BLOCK = 4096  # rows of a block
_KEPT = 1000  # rows kept, by which annealing is checked

SAMPLERS: dict[str, chains.Kernel | None] = {
    "local_mode": None,
    "local_mode_metropolis": chains.Metropolis("state"),
}
"""Methods of ``sample``, beside every kernel of ``chains.Kernel.registry`` by its name."""


class Progress(NamedTuple):
    """Chains and optimiser at the end of a run.

    Attributes:
        rule: the name of the rule, with its settings, that the chains belong to.
        chains: ``TrainingRun.rule_state``.
        optimizer: with what it remembers; None: plain gradient ascent, which remembers nothing.
    """

    rule: str
    chains: Any
    optimizer: torch.optim.Optimizer | None

    def chains_of(self, rule: Rule) -> Any:
        """Returns a copy of the chains for a rule to go on with, where they are its own; else None."""
        return deepcopy(self.chains) if rule.name == self.rule else None

    def remind(self, optimizer: torch.optim.Optimizer) -> None:
        """Gives an optimiser of the same kind a copy of the memory of this one."""
        if self.optimizer is not None and isinstance(optimizer, type(self.optimizer)):
            memory = deepcopy(self.optimizer.state_dict()["state"])  # else the tensors would be shared
            optimizer.load_state_dict({**optimizer.state_dict(), "state": memory})


@final
@dataclass(eq=False)
class Fitted:
    """A trained machine, the encoder of its data, and what its training leaves to the next.

    Training makes another one. Only ln Z and ``masses`` are put in later, where they are first needed.

    Attributes:
        machine: the machine; its last visible layer may be a label.
        encoder: turns data into states of the other visible layers and back.
        seed: Seed of all noise, from which each purpose has a stream of its own.
        n_features: columns of the data.
        data_width: visible columns of the data, without those of a label.
        settings: parameters that the machine was begun with, see ``_training.structure_of``.
        generative: whether the machine has learnt p(x), and not p(y | x) alone.
        history: records of the training.
        n_updates: updates made.
        progress: chains and optimiser for further training; None: there are none.
        rows: some rows that the machine has learnt, as visible states; None: there are none.
        numbers: what an estimator has found for the machine as it is, by the name of its attribute.
        log_partition: ln Z, behind what it depends on; None: not yet found.
        masses: ``log_masses`` of a table, behind a digest of the machine; None: not yet found.
    """

    machine: BoltzmannMachine
    encoder: Encoder
    seed: int
    n_features: int
    data_width: int
    settings: dict[str, Any]
    generative: bool = True
    history: list[dict[str, Any]] = field(default_factory=list)
    n_updates: int = 0
    progress: Progress | None = None
    rows: Tensor | None = None
    numbers: dict[str, Any] = field(default_factory=dict)
    log_partition: tuple[Any, LogPartition] | None = None
    masses: tuple[str, Tensor] | None = None

    # The machine
    # ----------------------------------------------------------------------------

    @property
    def data_layers(self) -> list[Layer]:
        """The visible layers of the data: all but a label."""
        layers = [self.machine.layers[l] for l in self.machine.visible]
        return layers if self.machine.visible_width == self.data_width else layers[:-1]

    @property
    def ends(self) -> list[int]:
        """Units up to the end of each of the data's layers."""
        ends: list[int] = np.cumsum([layer.n_units for layer in self.data_layers]).tolist()
        return ends

    def double(self) -> BoltzmannMachine:
        """Returns a copy of the machine in float64."""
        return deepcopy(self.machine).double()

    def stream(self, purpose: str, index: int = 0) -> int:
        """Returns the seed of the noise for a purpose."""
        return stream_seed(self.seed, purpose, index)

    def require_density(self, purpose: str) -> None:
        """Refuses a machine that has learnt p(y | x) alone."""
        if not self.generative:
            raise ValueError(
                f'objective: expected "hybrid" or "joint" for {purpose}: a discriminative machine has '
                "learned p(y | x) and nothing of p(x)"
            )

    # Between rows and states
    # ----------------------------------------------------------------------------

    def encode(self, X: Any, *, beyond: str = "end") -> Iterator[Tensor]:
        """Yields validated rows in float64, a block at a time; noise may make them no states.

        ``beyond`` as of ``Codec.rows``.
        """
        codec = Codec(self.encoder, self.data_layers)
        return codec.rows(X, torch.float64, keep=False, beyond=beyond).chunks(_BLOCK)

    def states(self, X: Any, *, beyond: str = "end") -> Iterator[Tensor]:
        """Yields validated rows as states of the data's layers in float64, a block at a time."""
        layers, start = self.data_layers, 0
        for rows in self.encode(X, beyond=beyond):
            v = rows.to(self.machine.device, torch.float64)
            name = f"X[{start}:]" if start else "X"
            for layer, x in zip(layers, torch.split(v, [layer.width for layer in layers], 1), strict=True):
                layer.observed(x, name)
            start += len(v)
            yield v

    def visible(self, X: Any) -> Tensor:
        """Returns validated rows as states of all visible layers in float64; a label's are missing."""
        v = torch.cat(list(self.states(X)))
        label = v.new_full((len(v), self.machine.visible_width - v.shape[1]), torch.nan)
        return torch.cat([v, label], 1)

    def compute(
        self, X: Any, function: Callable[[Tensor], Tensor], like: Any = None, *, beyond: str = "end"
    ) -> Array:
        """Returns what a function of states, (rows, data_width) in float64, makes of validated rows.

        They are read a block at a time, a row of missing cells only is refused, and the result is float32
        where ``like`` is. A label that was never seen is no missing cell.
        """
        if isinstance(self.encoder, Table):
            blank = np.where(blank_rows(frame_of(X), self.encoder), np.nan, 0.0)
            refuse_blank(torch.from_numpy(blank).unsqueeze(1))
            found = [function(v) for v in self.states(X, beyond=beyond)]
            return _as_array(torch.cat(found), dtype_of(like))
        return _as_array(torch.cat([function(refuse_blank(v)) for v in self.states(X)]), dtype_of(like))

    def compute_sums(
        self,
        X: Any,
        function: Callable[[Tensor], Tensor],
        summed: Callable[[Tensor], Sequence[Tensor]],
        progress: bool | None,
        *,
        beyond: str = "end",
    ) -> Array:
        """Returns ``compute`` of a function that sums over what rows lack, which may take long.

        Where it takes more than 20 seconds a warning tells the cost before it begins, and a line the rows
        that are done. Those that cost most come first, so that one that is refused is refused at once.

        Args:
            X: validated rows.
            function: Function of states, (rows, data_width) in float64, that returns scores, (rows, ...).
            summed: returns the rows whose sums the function needs, NaN where not observed.
            progress: True shows a line on stderr, False none; None: in a terminal or a notebook.
        """
        hamiltonian = self.machine.hamiltonian()
        if has_hidden_states(hamiltonian.graph, hamiltonian.layers):
            return self.compute(X, function, beyond=beyond)

        def list_costs(v: Tensor) -> Tensor:
            nothing = torch.zeros(len(v), dtype=torch.float64, device="cpu")
            return sum(
                (unit_updates_by_row(hamiltonian, x.to(hamiltonian.dtype)) for x in summed(v)), nothing
            )

        costs = torch.cat([list_costs(v) for v in self.states(X, beyond=beyond)])
        seconds, most = float(costs.sum()) / UNIT_UPDATES_PER_SECOND, float(costs.max())
        if seconds < LONG:
            return self.compute(X, function, beyond=beyond)
        if most <= EXPLICIT_LIMIT:
            _checks.warn(
                "X: the states of missing cells, or those of the hidden units, are listed for "
                f"{int((costs > 0).sum())} rows, which takes about {in_words(seconds)} on one core; leave "
                "out the rows that lack most, or fit at most 12 hidden units, whose states are listed once "
                "for all rows"
            )
        done = 0
        with show_progress(len(costs), 0, progress) as show:

            def compute_parts(v: Tensor) -> Tensor:
                nonlocal done
                scores = list[Tensor]()
                cost, order = list_costs(v).sort(descending=True)
                cost = cost.clamp(max=2 * EXPLICIT_LIMIT) / UNIT_UPDATES_PER_SECOND  # finite, if refused
                parts = torch.unique(cost.cumsum(0).long(), return_counts=True)[1]
                for rows in torch.split(order, parts.tolist()):
                    scores.append(function(v[rows]))
                    done += len(rows)
                    if show is not None:
                        show(done, dict)
                return torch.cat(scores)[order.argsort()]

            return self.compute(X, compute_parts, beyond=beyond)

    def decode(self, v: Tensor, like: Any = None) -> Any:
        """Returns visible states or means as rows in the units of the data, arrays as in ``compute``."""
        rows = self.encoder.decode(v[:, : self.data_width].double())
        return rows if isinstance(self.encoder, Table) else _as_array(rows, dtype_of(like))

    def fill(self, X: Any, v: Tensor, *, rounded: bool = True, drawn: str | None = None) -> Any:
        """Returns validated rows with their missing cells taken from visible states, see ``Table.fill``."""
        if isinstance(self.encoder, Table):
            states = v[:, : self.data_width].double()
            return self.encoder.fill(X, states, rounded=rounded, drawn=drawn)
        return np.where(np.isnan(X), self.decode(v, like=X), X.astype(dtype_of(X)))

    def rows_to_keep(self, count: int, weights: Tensor | None = None) -> Tensor:
        """Draws the indices of up to 1,000 of so many rows, by their weights where there are any."""
        generator = as_generator(self.stream("rows kept", self.n_updates))
        index = _random.permutation(count, generator)[:_KEPT]
        if weights is not None:
            ends = weights.cumsum(0)
            places = _random.uniform((len(index),), generator, torch.float64) * ends[-1]
            index = torch.searchsorted(ends, places).clamp(max=count - 1)
        return index.sort().values

    def log_slopes(self, given: Tensor, v: Tensor) -> Tensor:
        """Returns ln |slope| of the encoder at states v, summed over the given units of each row."""
        return Codec(self.encoder, self.data_layers).log_slopes(v, given)

    def log_shares(
        self, X: Any, units: Sequence[bool] | None = None, *, beyond: str = "tail"
    ) -> Array | float:
        """Returns ln p(cells | their states) of validated rows, (rows,), of all units of the data or of some.

        It is to be added to ln p of the states, see ``Codec.log_shares``.
        """
        if not isinstance(self.encoder, Table):
            return 0.0
        digest = digest_of(self.machine)
        if self.masses is None or self.masses[0] != digest:
            self.masses = digest, log_masses(self.encoder, self.machine)
        shares = Codec(self.encoder, self.data_layers).log_shares(X, self.machine, self.masses[1], beyond)
        assert shares is not None
        return (shares if units is None else shares[:, list(units)]).sum(1).numpy()

    # What is computed with it
    # ----------------------------------------------------------------------------

    def generator(self, random_state: Any, purpose: str) -> torch.Generator:
        """Returns a generator for a purpose, seeded by a draw from scikit-learn's kind of random state."""
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        return as_generator(stream_seed(seed, purpose), self.machine.device)

    def draw(
        self, rows: int, clamp: Tensor | None, method: str, sweeps: int | None, random_state: Any
    ) -> list[Tensor]:
        """Draws states of all layers given visible ones, (rows, visible_width), NaN where they are drawn.

        "auto" and "exact" as in ``tasks.sample``; their hidden layers are left empty.
        """
        _checks.one_of(method, "method", ("auto", "exact", *chains.Kernel.registry, *SAMPLERS))
        self.require_density("sample")
        machine, generator = self.machine, self.generator(random_state, "sample")
        sweeps = usual_sweeps(machine) if sweeps is None else sweeps
        if method in ("auto", "exact"):
            number = rows if clamp is None else 1
            drawn = sample(machine, number, given=clamp, method=method, sweeps=sweeps, seed=generator)
            return machine.hamiltonian().split(drawn.rows)
        states = machine.random_states(rows, seed=generator)
        if method in SAMPLERS:
            states, _ = chains.local_search(machine, states, clamp, seed=generator)
        kernel = SAMPLERS[method] if method in SAMPLERS else chains.Kernel.registry[method]()
        if kernel is not None:
            states = chains.run(machine, kernel, states, sweeps, clamp, seed=generator)
        return states

    def find_log_partition(self, method: str, runs: int, temperatures: int) -> LogPartition:
        """Finds ln Z by enumeration ("exact"), by annealing ("ais"), or by the quicker of the two ("auto").

        Annealing is checked on the rows that the machine has learnt; it draws their missing cells. An exact
        value has standard error 0 and infinite effective sample size.
        """
        machine, rows = self.machine, self.rows
        if method == "auto":
            method = "exact" if affordable(unit_updates(machine.hamiltonian())) else "ais"
        if method == "exact":
            return LogPartition.exact(exact_log_partition(self.double()))
        seed = self.stream("log_partition", self.n_updates)
        if rows is not None and bool((holes := unobserved(machine, rows)).any()):
            rows = impute(machine, rows, holes, draws=1, seed=seed).draws[0]
        return ais(machine, runs, temperatures, data=rows, seed=seed)


@torch.no_grad()
def posterior_means(machine: BoltzmannMachine, v: Tensor) -> Tensor:
    """Returns the means of all hidden layers given rows, side by side.

    By a sum over their states where ``HiddenStates`` takes the machine, else by naive mean field, which is
    exact where nothing is missing and hidden layers are not joined.
    """
    if has_hidden_states(machine.graph, machine.layers):
        table = HiddenStates(machine.hamiltonian())
        return torch.cat([posterior.hidden_means() for _, posterior in table.blocks(v)])
    means = naive(machine, v, v, tolerance=_TOLERANCE).means
    return torch.cat([means[l] for l in machine.hidden], -1)


def digest_of(machine: BoltzmannMachine) -> str:
    """Returns a digest of layers, edges and parameters, by which numbers are known to be of a machine."""
    return checksum(machine.config(), {name: x.detach().cpu() for name, x in machine.state_dict().items()})


def _as_array(x: Tensor, dtype: Any) -> Array:
    array: Array = x.cpu().numpy().astype(dtype, copy=False)
    return array
