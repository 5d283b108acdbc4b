"""Log-likelihoods of data, given ln Z: exact, bounds for deep machines, and by TAP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, log

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.likelihood.annealing import anneal_chains, check_weights, read_temperatures
from harmonium.likelihood.log_partition import LogPartition, value_of
from harmonium.likelihood.tap_partition import TapPartition
from harmonium.machine import BoltzmannMachine, Hamiltonian, require_distribution
from harmonium.meanfield import naive, tap
from harmonium.sums import LIMIT_TEXT, log_weights

_ROUNDING = 1e-3  # nats: of free energies in float32, and of rows counted twice where they round apart
_ROWS = 4096  # at a time: 26 MB of 784 pixels and 800 hidden fields


def excess_of_rows(values: Tensor) -> float:
    """Returns how many nats ln p of discrete rows is too high at least, 0 where nothing shows it.

    Probabilities of different rows add up to 1 at most; rows whose values differ are different.

    Args:
        values: ln p of rows, or bounds below it, (rows,), float64, all with one ln Z.
    """
    # To a millionth of a nat equal rows have equal values, whatever the batch that they were summed in.
    different = torch.unique((values * 1e6).round()) / 1e6
    return max(0.0, float(different.logsumexp(0)) - _ROUNDING)


def describe_excess(value: float, excess: float) -> str:
    """Returns the doubt about an estimate of ln Z that rows show to be too low."""
    return (
        f"log_partition: the rows alone put ln Z at {value + excess:.3f} or above, and the estimate is "
        f"{value:.3f}: their log-likelihoods are too high by {excess:.3g} nats at least"
    )


@torch.no_grad()
def log_likelihood(machine: BoltzmannMachine, X: Numbers, log_partition: float | LogPartition) -> Tensor:
    """Returns ln p(v) = -F(v) - ln Z of every row, for a machine whose hidden layers can all be summed out.

    Args:
        machine: the machine.
        X: visible states, (batch, visible_width). NaN is not observed: of such a row it is ln p of what is
            observed, the missing entries summed over, with the hidden units where that is less.
        log_partition: ln Z, exact or estimated; an error in it shifts every row alike. Of a ``LogPartition``
            the value is taken, which is on average too low and so flatters the machine; its ``upper`` given
            here bounds the log-likelihood from below, its ``lower`` from above.

    Returns:
        (batch,), float64, in nats (a density for Gaussian units).

    Raises:
        ValueError: hidden layers that are joined, X of the wrong shape or support, or rows with
            too many states to list (``exact_log_partition``).

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(4)], seed=0)
        >>> X = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3)  # every state once
        >>> log_partition = hm.likelihood.exact_log_partition(machine)
        >>> round(float(hm.likelihood.log_likelihood(machine, X, log_partition).exp().sum()), 4)
        1.0
    """
    if not machine.graph.independent:
        raise ValueError(
            "machine: expected hidden layers that no edge joins, such as one hidden layer, received "
            f"{len(machine.hidden)} with edges among them; such machines have exact_log_likelihood where "
            "they can be enumerated, and bounds"
        )
    X = machine.visible_rows(X, "X", missing=True)
    value, hamiltonian = value_of(log_partition), machine.hamiltonian()
    require_distribution(hamiltonian)

    def weigh(v: Tensor) -> Tensor:
        return -hamiltonian.free_energy(hamiltonian.split(v), hamiltonian.graph.summed)

    if _checks.observed(X):
        values = _in_parts(X, weigh) - value
        estimated = isinstance(log_partition, LogPartition) and log_partition.ess < inf
        discrete = all(machine.layers[l].discrete for l in machine.visible)
        if estimated and discrete and (excess := excess_of_rows(values)) > 0:
            _checks.warn(describe_excess(value, excess), RuntimeWarning)
        return values
    whole = ~X.isnan().any(1)
    result = torch.empty(len(X), dtype=torch.float64, device=X.device)
    if bool(whole.any()):
        result[whole] = _in_parts(X[whole], weigh)
    try:
        result[~whole] = log_weights(hamiltonian.to(torch.float64), X[~whole].double())
    except ValueError as error:
        raise ValueError(
            f"X: expected rows whose missing cells (NaN), or else the hidden units, take {LIMIT_TEXT}; "
            f"received {int((~whole).sum())} rows with missing cells, of which some have more: leave these "
            "out, or impute(X)"
        ) from error
    return result - value


@torch.no_grad()
def variational_bound(
    machine: BoltzmannMachine,
    X: Numbers,
    log_partition: float | LogPartition,
    *,
    tolerance: float = 1e-5,
) -> Tensor:
    """Returns E_q[-E] + H(q) - ln Z ≤ ln p(v), q the mean-field posterior (Salakhutdinov & Larochelle 2010).

    Where no two hidden layers are joined and all is observed q is exact, and so is the value. It is a bound
    at any q, converged or not, as far as ln Z is right: an estimate of ln Z that is too low makes it too
    good.

    Args:
        machine: the machine.
        X: visible states, (batch, visible_width). NaN is not observed: of such a row it is a bound on ln p of
            what is observed, with the distribution of the rest, given that, factorised too.
        log_partition: ln Z, exact or estimated; an error in it shifts every row alike. Of a ``LogPartition``
            the value is taken, which is on average too low; only with its ``upper`` is the result a bound as
            far as that is one.
        tolerance: see ``meanfield.naive``.

    Returns:
        (batch,), float64, in nats.
    """
    X = machine.visible_rows(X, "X", missing=True)
    value = value_of(log_partition)

    def bound(v: Tensor) -> Tensor:
        return -naive(machine, v, v, tolerance=tolerance).free_energy

    return _in_parts(X, bound) - value


@torch.no_grad()
def annealed_bound(
    machine: BoltzmannMachine,
    X: Numbers,
    log_partition: float | LogPartition,
    *,
    chains: int = 10,
    temperatures: int | Sequence[float] = 100,
    seed: int | torch.Generator = 0,
) -> Tensor:
    """Estimates a bound on ln p(v) by annealing from the mean-field posterior to the true one.

    The path is geometric: every field is (1-β) times its mean-field value plus β times that of the
    neighbours. The layers of ``graph.summed`` are summed out with ψ. The mean of the weights is p̃(v) on
    average, so that its log is on average not above ln p̃(v), and not below the variational bound; it
    tightens with chains and temperatures.

    Args:
        machine: the machine.
        X: visible states, (batch, visible_width).
        log_partition: ln Z, as in ``variational_bound``.
        chains: annealing runs for every row, at least 1.
        temperatures: number of evenly spaced β after 0, at least 1; or the β themselves, rising from 0 to 1.
        seed: an int or a generator.

    Returns:
        (batch,), float64, in nats.
    """
    X = machine.visible_rows(X, "X")
    chains = _checks.positive_int(chains, "chains")
    betas, value = read_temperatures(temperatures), value_of(log_partition)
    if machine.graph.independent:
        return variational_bound(machine, X, log_partition)
    generator = _random.as_generator(seed, machine.device)

    def anneal(v: Tensor) -> Tensor:
        fields = naive(machine, v, v).fields
        return _anneal_clamped(machine.hamiltonian(), v, fields, chains, betas, generator)

    return _in_parts(X, anneal, max(1, _ROWS // chains)) - value


@torch.no_grad()
def tap_log_likelihood(
    machine: BoltzmannMachine,
    X: Numbers,
    log_partition: float | LogPartition | TapPartition,
    *,
    order: int = 2,
    tolerance: float = 1e-5,
    max_sweeps: int = 1000,
) -> Tensor:
    """Returns -F of TAP with the row clamped, minus ln Z: an approximation of ln p(v) at any depth.

    Where no two hidden layers are joined the clamped part is exact. Elsewhere (Tramel et al. 2018, Eq. 121),
    rows that have not converged after ``max_sweeps`` count with their last sweep.

    Args:
        machine: the machine.
        X: visible states, (batch, visible_width).
        log_partition: Estimate of ``tap_log_partition``; a number stands for ln Z from elsewhere.
        order: see ``meanfield.tap``.
        tolerance: see ``meanfield.naive``.
        max_sweeps: see ``meanfield.naive``.

    Returns:
        (batch,), float64, in nats.
    """
    X = machine.visible_rows(X, "X")
    value = value_of(log_partition)

    def weigh(v: Tensor) -> Tensor:
        return -tap(machine, v, v, order=order, tolerance=tolerance, max_sweeps=max_sweeps).free_energy

    return _in_parts(X, weigh) - value


def _anneal_clamped(
    hamiltonian: Hamiltonian,
    v: Tensor,
    base: list[Tensor],
    chains: int,
    betas: list[float],
    generator: torch.Generator,
) -> Tensor:
    """Returns ln of the mean weight of every row, (rows,)."""
    graph = hamiltonian.graph
    seen = hamiltonian.split(v)
    start = torch.stack([hamiltonian.log_weight(l, seen[l]).double() for l in graph.visible]).sum(0)
    start = start + torch.stack([hamiltonian.log_partition(l, base[l]) for l in graph.hidden]).sum(0)

    rows = torch.arange(len(v), device=v.device).repeat_interleave(chains)
    base = [field[rows] for field in base]
    states = [x[rows] if l in graph.visible else x for l, x in enumerate(seen)]
    for l in graph.hidden:
        states[l] = hamiltonian.sample(l, base[l], generator)
    total, _ = anneal_chains(hamiltonian, base, betas, states, generator, clamped=graph.visible)
    weights = total.view(len(v), chains).logsumexp(-1) - log(chains)
    check_weights(weights)
    return start + weights - hamiltonian.offset


def _in_parts(X: Tensor, function: Callable[[Tensor], Tensor], size: int = _ROWS) -> Tensor:
    """Returns a function of rows, (rows,), computed for some of them at a time."""
    return torch.cat([function(v) for v in torch.split(X, size)])
