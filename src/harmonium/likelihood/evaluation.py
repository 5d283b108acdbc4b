"""Evaluation of a machine on rows: ln Z, likelihoods with their errors, and those of independent columns."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, final

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._checks import Numbers
from harmonium._rows import Rows
from harmonium.likelihood.annealing import ais
from harmonium.likelihood.exact import exact_log_partition
from harmonium.likelihood.independent import score_separate, separate
from harmonium.likelihood.likelihood import (
    describe_excess,
    excess_of_rows,
    log_likelihood,
    variational_bound,
)
from harmonium.likelihood.log_partition import LogPartition, value_of
from harmonium.likelihood.pseudo import missing_pseudo_likelihood, pseudo_log_likelihood
from harmonium.machine import BoltzmannMachine
from harmonium.sums import affordable, log_weights, unit_updates

BASE_ROWS = 10_000
"""Rows at most that annealing starts from and independent columns are fitted to: means are known to 1 %."""
CHUNK_ROWS = 2048
"""Rows that are scored at a time: 16 MiB of 1,000 columns in float64."""
_PSEUDO_UNITS = 200_000  # visible units drawn for the pseudo-likelihood, over all rows
_TOLERANCE = 1e-4  # Means of the posterior that are wrong by so much change the bound by its square.


@final
@dataclass(frozen=True, eq=False)
class Evaluation:
    """Mean scores of rows under a machine, in nats.

    Attributes:
        log_partition: ln Z that the likelihoods have, as it was given or found; exact where the states of
            joined hidden layers were summed over.
        values: ln p of what each row shows, or the variational bound below it, (rows,), float64.
        is_bound: whether ``values`` are bounds, since a sum would take too long.
        lower: end of an interval for the mean ln p, by the upper bound of ln Z; -inf where unknown.
        upper: the other end, by the lower bound of ln Z or the rows themselves; inf where unknown.
        offset: mean of what the units of the data add to ln p of the states.
        independent: mean ln p of the rows under independent columns.
        pseudo: pseudo-log-likelihood of each row, (rows,); None where there is none.
        labels: scores of the predicted label by name, such as ``label_accuracy``; empty without labels.
        doubts: what to know beside the numbers, one sentence each.
    """

    log_partition: LogPartition
    values: Tensor = field(repr=False)
    is_bound: bool
    lower: float
    upper: float
    offset: float
    independent: float
    pseudo: Tensor | None = field(repr=False)
    labels: dict[str, float]
    doubts: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Returns the mean of ``values``."""
        return float(self.values.mean())

    @property
    def standard_error(self) -> float | None:
        """Returns the standard error of the mean by the spread of the rows; None of one row."""
        return _standard_error(self.values)

    def entries(self) -> dict[str, Any]:
        """Returns the scores by name, as ``harmonium evaluate`` prints them; None where there is none."""
        ends = {"log_likelihood_lower": self.lower, "log_likelihood_upper": self.upper}
        known = self.log_partition.ess < inf and (self.lower > -inf or self.upper < inf)
        return {
            "rows": len(self.values),
            **self.labels,
            **({name: x if isfinite(x) else None for name, x in ends.items()} if known else {}),
            "log_likelihood": None if self.is_bound else self.mean,
            "rows_standard_error": self.standard_error,
            "log_partition_standard_error": self.log_partition.standard_error,
            **({"variational_bound": self.mean} if self.is_bound else {}),
            "independent_columns_log_likelihood": self.independent,
            "pseudo_log_likelihood": None if self.pseudo is None else float(self.pseudo.mean()),
            "pseudo_standard_error": None if self.pseudo is None else _standard_error(self.pseudo),
        }


@torch.no_grad()
def evaluate(
    machine: BoltzmannMachine,
    X: Numbers | Rows,
    log_partition: float | LogPartition | None = None,
    *,
    alone: BoltzmannMachine | None = None,
    offset: Callable[[BoltzmannMachine], Tensor] | None = None,
    seed: int | torch.Generator = 0,
) -> Evaluation:
    """Evaluates a machine on rows: ln p with its errors, beside pseudo-likelihood and independent columns.

    Sums over missing cells and joined hidden layers are exact where they take seconds. Elsewhere the
    variational bound stands in. ``tasks.evaluate_rows`` takes rows in the units of the data.

    Args:
        machine: the machine.
        X: visible states, (rows, visible_width), NaN where not observed; or ``data.Rows``.
        log_partition: ln Z, exact or estimated; None: ``find_log_partition`` of the complete rows.
        alone: Machine of independent columns (``separate``); None: they are fitted to X.
        offset: returns what to add to ln p of each row under one of the two machines, (rows,) on the CPU;
            None: nothing.
        seed: Seed of annealing and of the units that the pseudo-likelihood of many rows draws.

    Raises:
        TypeError, ValueError: rows or ln Z that do not fit the machine.

    Examples:
        >>> import harmonium as hm
        >>> machine, X = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(4)]), hm.data.bars_and_stripes()
        >>> scores = hm.likelihood.evaluate(machine, X)
        >>> scores.log_partition.standard_error, scores.mean < scores.independent < 0
        (0.0, True)
    """
    rows = read_rows(machine, X)
    if log_partition is None:
        log_partition = find_log_partition(machine, rows, seed=seed)
    elif not isinstance(log_partition, LogPartition):
        log_partition = LogPartition.exact(value_of(log_partition))
    if alone is None:
        alone = separate(machine, rows.take(rows.spread(BASE_ROWS)).to(machine.device, torch.float64))
    deep = not machine.graph.independent
    cost = work_of_rows(machine, rows) + (unit_updates(machine.hamiltonian()) if deep else 0.0)
    is_bound = not affordable(cost)
    if deep and not is_bound and log_partition.ess < inf:
        log_partition = LogPartition.exact(exact_log_partition(machine))
    doubts = note_rows(machine, rows, "variational_bound" if is_bound else "log_likelihood")
    if is_bound:
        which = "with hidden layers that are joined" if deep else "of missing cells, or else of hidden units"
        doubts.append(
            f"log_likelihood: not available, too many states to enumerate {which}; variational_bound is "
            "below it as far as ln Z is right"
        )
    zero = torch.zeros(len(rows), dtype=torch.float64, device="cpu")
    added, added_alone = (zero if offset is None else offset(model) for model in (machine, alone))
    chunks = (chunk.to(machine.device) for chunk in rows.chunks(CHUNK_ROWS))
    values, simplest = list[Tensor](), list[Tensor]()
    for v in chunks:
        values.append(score_states(machine, v, log_partition.value, is_bound).cpu())
        simplest.append(torch.stack(score_separate(alone, v)).sum(0).cpu())
    scores = torch.cat(values) + added
    mean = float(scores.mean())
    # As ln Z rises, likelihoods fall.
    lower, upper = (mean + (log_partition.value - z) for z in (log_partition.upper, log_partition.lower))
    discrete = all(machine.layers[l].discrete for l in machine.visible)
    if log_partition.ess < inf and discrete and not rows.missing and (excess := excess_of_rows(scores)) > 0:
        doubts.append(describe_excess(log_partition.value, excess))
        upper = mean - excess
    return Evaluation(
        log_partition=log_partition,
        values=scores,
        is_bound=is_bound,
        lower=lower,
        upper=inf if is_bound else upper,
        offset=float(added.mean()),
        independent=float((torch.cat(simplest) + added_alone).mean()),
        pseudo=_pseudo_likelihood(machine, rows, seed, doubts),
        labels={},
        doubts=tuple(doubts),
    )


def find_log_partition(
    machine: BoltzmannMachine,
    X: Numbers | Rows | None = None,
    method: str = "auto",
    *,
    weights: Tensor | None = None,
    fraction: float = 1.0,
    **annealing: Any,
) -> LogPartition:
    """Finds ln Z: exactly where that takes seconds, and else by annealing.

    Args:
        machine: the machine.
        X: visible states for the base of annealing, see ``data`` of ``ais``, best those of the training; rows
            that lack a cell are left out, and of more than 10,000 as many are taken, evenly spaced.
        method: "exact", "ais", or "auto", the first of them that takes seconds.
        weights: Row weights of X, (rows,); None means uniform.
        fraction: share of the usual seconds that "auto" may spend on an exact sum, in (0, 1].
        **annealing: options of ``ais``, such as ``chains``, ``temperatures`` and ``seed``.

    Warns:
        RuntimeWarning: as ``ais``.

    Raises:
        ValueError: an unknown method, too many states for "exact", or rows that do not fit.
    """
    _checks.one_of(method, "method", ("auto", "exact", "ais"))
    cheap = method == "auto" and affordable(unit_updates(machine.hamiltonian(forbidden=True)), fraction)
    if cheap or method == "exact":
        # Of parameters in float64: from float32 the variance of a unit keeps seven digits.
        return LogPartition.exact(exact_log_partition(deepcopy(machine).double()))
    if X is not None:
        rows = read_rows(machine, X)
        index = rows.spread(BASE_ROWS, whole=True)
        X = rows.take(index) if len(index) else None
        weights = None if weights is None or X is None else weights[index.to(weights.device)]
    return ais(machine, data=X, weights=weights, **annealing)


def score_states(machine: BoltzmannMachine, v: Tensor, log_partition: float, is_bound: bool) -> Tensor:
    """Returns ln p of what each row of states shows, (rows,) float64, or the variational bound below it."""
    if is_bound:
        return variational_bound(machine, v, log_partition, tolerance=_TOLERANCE)
    if machine.graph.independent:
        return log_likelihood(machine, v, log_partition)
    hamiltonian = machine.hamiltonian(forbidden=True).to(torch.float64)
    return log_weights(hamiltonian, v.to(torch.float64)) - log_partition


def note_rows(machine: BoltzmannMachine, rows: Rows, name: str) -> list[str]:
    """Returns notes on what a score of this name compares in rows: observed cells, densities."""
    notes = [f"{name}: of rows with missing cells, of what they show"] if rows.missing else []
    if not all(machine.layers[l].discrete for l in machine.visible):
        of = "" if name == "log_likelihood" else "of "
        notes.append(f"{name}: {of}a density in the units of the data")
    return notes


def read_rows(machine: BoltzmannMachine, X: Numbers | Rows) -> Rows:
    """Returns visible states, (rows, visible_width), as rows that tell whether a cell is missing."""
    if isinstance(X, Rows):
        return X
    v = machine.visible_rows(X, "X", missing=True)
    return Rows.of(v, v.dtype, missing=not _checks.observed(v))


def work_of_rows(machine: BoltzmannMachine, rows: Rows) -> float:
    """Returns the unit updates of a sum over what is left to sum over in rows; see ``sums.unit_updates``."""
    if machine.graph.independent and not rows.missing:
        return 0.0
    hamiltonian = machine.hamiltonian()
    return sum(unit_updates(hamiltonian, chunk.to(machine.device)) for chunk in rows.chunks(CHUNK_ROWS))


def _pseudo_likelihood(
    machine: BoltzmannMachine, rows: Rows, seed: int | torch.Generator, doubts: list[str]
) -> Tensor | None:
    """Returns the pseudo-log-likelihood of rows, (rows,); None, and a doubt, where there is none."""
    lacking = missing_pseudo_likelihood(machine) or ("cells are missing" if rows.missing else None)
    if lacking:
        doubts.append(f"pseudo_log_likelihood: not available, {lacking}")
        return None
    units, all_units = -(-_PSEUDO_UNITS // len(rows)), sum(machine.layers[l].n_units for l in machine.visible)
    if units < all_units:
        doubts.append("pseudo_log_likelihood: from visible units drawn for every row, not from all")
    sampled, parts = units if units < all_units else None, list[Tensor]()
    for number, v in enumerate(rows.chunks(CHUNK_ROWS)):
        noise = seed + number if isinstance(seed, int) else seed
        parts.append(pseudo_log_likelihood(machine, v.to(machine.device), sampled=sampled, seed=noise))
    return torch.cat(parts).cpu()


def _standard_error(values: Tensor) -> float | None:
    """Returns the standard error of a mean; None of one value."""
    return float(values.std()) / len(values) ** 0.5 if len(values) > 1 else None
