"""Exact likelihoods, by the sums of ``harmonium.sums``."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from harmonium._checks import Numbers
from harmonium.machine import BoltzmannMachine, Hamiltonian
from harmonium.sums import log_weights


def exact_log_partition(machine: BoltzmannMachine) -> float:
    """Returns ln Z in float64: some layers are summed out with ψ, the states of the others listed.

    Where that is less work, units are summed out one by one, by tables over the neighbours of each (Dechter
    1999). So are trees, strips, chains of narrow layers, and lattices up to 20 units wide.

    Args:
        machine: the layers that are left to list must be discrete, with at most 2^35 unit updates, their
            joint states times the columns of the machine (25 units beside 784, say). What is summed out is
            chosen so that they are fewest (in a chain the even or the odd layers). Gaussian layers that edges
            join are integrated beside at most 4096 states of the others (``HiddenStates``).

    Returns:
        ln Z of exp(-E), with E as in ``BoltzmannMachine.energy``.

    Raises:
        ValueError: too many states, real units that cannot be summed out, or couplings among Gaussian layers
            that leave no distribution; or all states are forbidden.

    Examples:
        >>> from math import log
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3)], seed=0)
        >>> abs(hm.likelihood.exact_log_partition(machine) - 7 * log(2)) < 0.1  # weak couplings, 2^7 states
        True
    """
    return float(_log_normalisers(machine.hamiltonian(forbidden=True).to(torch.float64)))


def exact_log_likelihood(machine: BoltzmannMachine, X: Numbers) -> Tensor:
    """Returns ln p(v) of every row by enumeration, on any graph: (batch,), float64.

    Args:
        machine: see ``exact_log_partition``.
        X: visible states, (batch, visible_width); NaN is not observed, and is summed out.
    """
    hamiltonian = machine.hamiltonian(forbidden=True).to(torch.float64)
    rows = machine.visible_rows(X, "X", missing=True, dtype=hamiltonian.dtype)
    return log_weights(hamiltonian, rows) - _log_normalisers(hamiltonian)


def conditional_log_likelihood(machine: BoltzmannMachine, X: Numbers, condition_on: Iterable[int]) -> Tensor:
    """Returns ln p(other visible layers | given layers) of every row by enumeration: (batch,), float64.

    ln Z cancels. With the pixels given it is what a classifier is judged by (Larochelle & Bengio 2008).

    Args:
        machine: hidden layers, and the layers that are not given, as in ``exact_log_partition``; the given
            ones are not listed.
        X: visible states, (batch, visible_width); NaN is not observed, and is summed out on both sides.
        condition_on: visible layers, not all of them.

    Raises:
        ValueError: layers that cannot be given, too many states, or X that does not fit.
    """
    hamiltonian = machine.hamiltonian(forbidden=True).to(torch.float64)
    layers = machine.check_condition(condition_on)
    rows = machine.visible_rows(X, "X", missing=True, dtype=hamiltonian.dtype)
    conditions = hamiltonian.observe_only(layers, rows)
    return log_weights(hamiltonian, rows) - _log_normalisers(hamiltonian, conditions)


def _log_normalisers(hamiltonian: Hamiltonian, rows: Tensor | None = None) -> Tensor:
    """Returns ``log_weights``; refuses a machine, or rows, of which nothing is allowed."""
    values = log_weights(hamiltonian, rows)
    if bool(values.isneginf().any()):
        where = "all states" if rows is None else f"what row {int(values.argmin())} of X gives"
        raise ValueError(f"machine: expected a state that is allowed, received -inf for {where} (Z = 0)")
    return values


@torch.no_grad()
def quadrature_log_partition(machine: BoltzmannMachine) -> float:
    """Returns ln Z in float64 on a grid over the visible units, whatever the number of hidden units.

    Args:
        machine: Gaussian visible units, one or two or perhaps three, and one hidden layer of discrete units;
            the points of the grid times the columns of the machine are at most 2^35.

    Raises:
        ValueError: another machine, or too many points.
    """
    return float(log_weights(machine.hamiltonian().to(torch.float64), grid=True))
