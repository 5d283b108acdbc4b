"""Launches and waits of an update of every rule, and of a sweep of every kernel, on the pretend device.

``python -m benchmarks.launches`` prints the tables of docs/experiments_methods.md. Nothing is timed: what is
counted is what any GPU would be asked for, see tests/pretend_device.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

import harmonium as hm
from tests.pretend_device import DEVICE, Counts, pretend_device

ROWS = torch.randint(0, 2, (40, 16), generator=torch.Generator().manual_seed(0)).float()
REAL = torch.randn(40, 16, generator=torch.Generator().manual_seed(1))
_FIRST, _LAST = 5, 7  # updates in which nothing is recorded or looked at beside the update


class Cost(NamedTuple):
    """What is asked of the device: operations, waits of the host, and copies that nobody waits for."""

    launches: float
    waits: float
    sent: float


def binary() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(8)], seed=3)


def real() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Gaussian(16), hm.Bernoulli(8)], seed=3)


def deep() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(8), hm.Bernoulli(6)], seed=3)


def plane() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Gaussian(2), hm.Bernoulli(8)], seed=3)


def lattice() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(16)], edges={(0, 0): hm.Local((4, 4), 3)}, seed=3)


def labelled() -> hm.BoltzmannMachine:
    return hm.machine.join_layers([hm.Bernoulli(15), hm.Bernoulli(1)], [hm.Bernoulli(8)], seed=3)


def rules() -> Iterator[tuple[str, Callable[[], hm.BoltzmannMachine], hm.learning.Rule, Tensor]]:
    """Every rule with a machine that suits it."""
    r = hm.rules
    langevin = hm.chains.Langevin(0.1)
    yield (
        "exact",
        lambda: hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], seed=3),
        r.exact(),
        ROWS[:, :6],
    )
    yield "cd(1)", binary, r.cd(), ROWS
    yield "cd(10)", binary, r.cd(10), ROWS
    yield "pcd(1)", binary, r.pcd(), ROWS
    yield "pcd(10)", binary, r.pcd(10), ROWS
    yield "centred pcd(1)", binary, r.centred(r.pcd()), ROWS
    yield "tempered_pcd(1)", binary, r.tempered_pcd(), ROWS
    yield "pcd(1), Gaussian", real, r.pcd(), REAL
    yield "noise_cd(100)", real, r.noise_cd(), REAL
    yield "noise_cd(100), Langevin", real, r.noise_cd(kernel=langevin), REAL
    yield "noise_cd(100), GibbsLangevin", real, r.noise_cd(kernel=hm.chains.GibbsLangevin(0.1)), REAL
    yield "pcd(1), Metropolis", binary, r.pcd(kernel=hm.chains.Metropolis()), ROWS
    yield "pcd(1), deep", deep, r.pcd(), ROWS
    yield "mean_field_pcd(1), deep", deep, r.mean_field_pcd(), ROWS
    yield "mean_field", binary, r.mean_field(), ROWS
    yield "tap", binary, r.tap(), ROWS
    yield "adatap", binary, r.adatap(), ROWS
    yield "ucd(1)", binary, r.ucd(), ROWS
    yield "ucd(1), deep", deep, r.ucd(), ROWS
    yield "ucd_lmi", binary, r.ucd_lmi(), ROWS
    yield "quadrature", plane, r.quadrature(), REAL[:, :2]
    yield "pseudo_likelihood, lattice", lattice, r.pseudo_likelihood(), ROWS
    yield "pcd(1), lattice", lattice, r.pcd(), ROWS
    yield "conditional", labelled, r.conditional(r.pcd(), condition_on=[0]), ROWS
    yield "hybrid", labelled, r.hybrid(r.pcd(), condition_on=[0], joint=0.5), ROWS


def of_update(build: Callable[[], hm.BoltzmannMachine], rule: hm.learning.Rule, X: Tensor) -> Cost:
    """The mean over a few updates of ``harmonium.train``, the optimiser's step included."""
    seen: dict[int, Cost] = {}
    with pretend_device() as counts, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)

        def note(update: hm.training.Update) -> None:
            seen[update.step] = total(counts)

        hm.train(
            build(), X, rule=rule, updates=_LAST + 1, batch_size=20, record_every=100, seed=0,
            device=DEVICE, callbacks=[note], progress=False,
        )  # fmt: skip
    return Cost(*((b - a) / (_LAST - _FIRST) for a, b in zip(seen[_FIRST], seen[_LAST], strict=True)))


def kernels() -> Iterator[tuple[str, Callable[[], hm.BoltzmannMachine], hm.chains.Kernel]]:
    """Every kernel with a machine that suits it."""
    yield "Gibbs", binary, hm.chains.Gibbs()
    yield "Gibbs, deep", deep, hm.chains.Gibbs()
    yield "Gibbs, Gaussian", real, hm.chains.Gibbs()
    yield "Langevin", real, hm.chains.Langevin(0.1)
    yield "GibbsLangevin", real, hm.chains.GibbsLangevin(0.1)
    yield "GibbsLangevin, metropolis", real, hm.chains.GibbsLangevin(0.1, correction="metropolis")
    yield "Tempering", binary, hm.chains.Tempering(10)
    yield "Metropolis", binary, hm.chains.Metropolis()


def of_sweep(build: Callable[[], hm.BoltzmannMachine], kernel: hm.chains.Kernel) -> Cost:
    """What 20 sweeps cost more than 10, a tenth of it."""
    with pretend_device() as counts:
        machine, costs = build().to(DEVICE), []
        for sweeps in (10, 10, 20):
            before = total(counts)
            hm.chains.run(machine, kernel, machine.random_states(20, seed=1), sweeps, seed=2)
            costs.append([b - a for a, b in zip(before, total(counts), strict=True)])
    return Cost(*((b - a) / 10 for a, b in zip(*costs[1:], strict=True)))


def of_coupled_sweep(build: Callable[[], hm.BoltzmannMachine], coupling: hm.coupled.PairKernel) -> Cost:
    """Of pairs that run until they meet, for each sweep of the longest."""
    costs, sweeps = [], 0
    with pretend_device() as counts, torch.no_grad():
        machine = build().to(DEVICE)
        machine.couplings[0].weight *= 60  # so that it takes some sweeps
        hamiltonian, generator = machine.hamiltonian(), torch.Generator(DEVICE).manual_seed(1)
        for seed in range(4):
            start = machine.random_states(20, seed=seed)
            counts.clear()
            met = hm.coupled.run_pairs(
                hamiltonian, coupling, start, k=1, m=1, lag=1, max_sweeps=30, generator=generator
            )
            costs.append(total(counts))
            sweeps += int(met.times.max())
    return Cost(*(sum(each) / sweeps for each in zip(*costs, strict=True)))


def total(counts: Counts) -> Cost:
    """All that was counted."""
    return Cost(counts.launches.total(), counts.waits.total(), counts.sent)


def table(title: str, rows: Iterator[tuple[str, Cost]]) -> Iterator[str]:
    """Lines of Markdown."""
    yield f"| {title} | launches | waits | copies |"
    yield "|---|---|---|---|"
    for name, cost in rows:
        yield f"| {name} | {cost.launches:.0f} | {cost.waits:.3g} | {cost.sent:.3g} |"


def main() -> None:
    torch.set_num_threads(1)
    print(*table("update", ((name, of_update(*rest)) for name, *rest in rules())), sep="\n", end="\n\n")
    print(*table("sweep", ((name, of_sweep(*rest)) for name, *rest in kernels())), sep="\n", end="\n\n")
    couplings: dict[str, tuple[Any, Any]] = {
        "coupled.Gibbs()": (binary, hm.coupled.Gibbs()),
        "coupled.Gibbs(), Gaussian": (real, hm.coupled.Gibbs()),
        "coupled.Metropolis()": (binary, hm.coupled.Metropolis()),
    }
    pairs = ((name, of_coupled_sweep(*rest)) for name, rest in couplings.items())
    print(*table("sweep of pairs", pairs), sep="\n")


if __name__ == "__main__":
    main()
