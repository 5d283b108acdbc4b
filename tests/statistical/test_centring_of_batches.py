"""Batches of few rows, drawn anew, move a centred machine nowhere that it should not go.

Where data have the machine's own distribution the mean direction over batches and chains is 0. Offsets made
of the batch alone would take 2/rows of the covariance of units away from the data, as a decay of couplings
would; at the midpoint of as many rows and chains what both do to them cancels. Rules whose estimate is no
mean over chains take the rows of the batch before, and states where coupled chains begin, which know nothing
of either.

Failure rate of a correct program on a fresh seed: 1e-3, shared over the parameters.
"""

from __future__ import annotations

import pytest
import torch
from machines import request_of, with_normal_parameters

import harmonium as hm

from .support import largest_z

ROWS = 4


def made(units: tuple[int, ...]) -> hm.BoltzmannMachine:
    return with_normal_parameters(hm.BoltzmannMachine([hm.Bernoulli(n) for n in units]).double())


def drawn(machine: hm.BoltzmannMachine, rows: int) -> list[torch.Tensor]:
    """Exact draws of all layers."""
    units = [layer.width for layer in machine.layers]
    states = torch.cartesian_prod(*[torch.arange(2.0, dtype=torch.float64)] * sum(units)).split(units, 1)
    p = torch.softmax(-machine.energy(list(states)), 0)
    which = torch.multinomial(p, rows, replacement=True, generator=torch.Generator().manual_seed(1))
    return [x[which] for x in states]


def directions(rule: hm.learning.Rule, units: tuple[int, ...], times: int) -> torch.Tensor:
    """One for every batch, (times, parameters), from chains that have the machine's distribution."""
    machine, generator = made(units), torch.Generator().manual_seed(2)
    data, chains = drawn(machine, ROWS * times)[0], drawn(machine, 2 * ROWS * times)
    result = []
    for rows in torch.arange(ROWS * times).split(ROWS):
        state = [x[ROWS * times + rows] for x in chains]
        estimate = rule.gradient(machine, data[rows], state, seed=generator)
        result.append(torch.cat([g.flatten() for g in estimate.parameters.values()]))
    return torch.stack(result)


@pytest.mark.parametrize(("units", "sweeps", "times"), [((3, 2), 1, 1_500), ((3, 2, 2), 10, 500)], ids=str)
@pytest.mark.nightly
def test_few_rows_do_not_shrink_couplings(units: tuple[int, ...], sweeps: int, times: int) -> None:
    found = directions(hm.rules.centred(hm.rules.pcd(sweeps, chains=ROWS)), units, times)
    z, limit = largest_z(found, torch.zeros(found.shape[1], dtype=torch.float64))
    assert z < limit


@pytest.mark.mostly_nightly(2)
@pytest.mark.parametrize(
    ("rule", "low", "high"),
    [
        (hm.rules.cd(1), 1.0, 1.0),
        (hm.rules.noise_cd(20, burn_in=19), 1.0, 1.0),
        (hm.rules.noise_cd(20), 0.0, 0.1),
        (hm.rules.ucd_lmi(pair_kernel=None), 0.5, 1.0),
    ],
    ids=repr,
)
def test_means_over_states_have_the_noise_of_independent_ones(
    rule: hm.learning.Rule, low: float, high: float
) -> None:
    """What the midpoint rests on: C times the covariance of two layers' means over that of their units.

    Within 4 standard errors of its range, which fails by chance less than once in 15,000 seeds.
    """
    machine, times, generator = made((3, 2)), 300, torch.Generator().manual_seed(3)
    data = drawn(machine, 10_000)
    v, h = (x - x.mean(0) for x in data)
    covariance = v.T @ h / len(v)
    means = []
    for rows in data[0][: ROWS * times].split(ROWS):
        task = request_of(machine, rows, generator)
        with torch.no_grad():
            rule.free.add(task)
        means.append(torch.cat(task.into.means()))
    off = torch.stack(means) - torch.stack(means).mean(0)
    ratios = ROWS * torch.einsum("ni,nj,ij->n", off[:, :3], off[:, 3:], covariance)
    ratios = ratios / covariance.square().sum()
    error = 4 * float(ratios.std()) / times**0.5 + 0.05  # and what 10,000 draws leave of the covariance
    assert low - error < float(ratios.mean()) < high + error


RIGHT = {
    "exact": hm.rules.exact(),
    "ucd": hm.rules.ucd(chains=ROWS),
    "ucd, in fact without a cap": hm.rules.ucd(chains=ROWS, max_sweeps=10_000),
    "local modes": hm.rules.ucd_lmi(chains=ROWS, pair_kernel=hm.coupled.Gibbs()),
}


def from_batches(
    rule: hm.learning.Rule, units: tuple[int, ...], times: int, *, forget: bool = False
) -> torch.Tensor:
    """As ``directions``, each with what the one before has left; the first, which had none, is not there."""
    machine, generator = made(units), torch.Generator().manual_seed(2)
    state, result = None, []
    for v in drawn(machine, ROWS * (times + 1))[0].split(ROWS):
        estimate = rule.gradient(machine, v, None if forget else state, seed=generator)
        state = estimate.state
        result.append(torch.cat([g.flatten() for g in estimate.parameters.values()]))
    return torch.stack(result[1:])


@pytest.mark.parametrize(
    ("name", "units"),
    [(name, (3, 2)) for name in RIGHT] + [(name, (3, 2, 2)) for name in ("exact", "ucd", "local modes")],
    ids=str,
)
@pytest.mark.mostly_nightly(1)
def test_rules_that_are_right_on_average_are_so_over_batches(name: str, units: tuple[int, ...]) -> None:
    found = from_batches(hm.rules.centred(RIGHT[name]), units, 250 if len(units) == 2 else 100)
    z, limit = largest_z(found, torch.zeros(found.shape[1], dtype=torch.float64))
    assert z < limit


@pytest.mark.nightly
def test_offsets_of_their_own_batch_would_be_seen() -> None:
    found = from_batches(hm.rules.centred(hm.rules.exact()), (3, 2), 800, forget=True)
    z, limit = largest_z(found, torch.zeros(found.shape[1], dtype=torch.float64))
    assert z > 2 * limit


@pytest.mark.nightly
def test_offsets_of_the_batch_alone_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As rules take them that do not say that they sample, where nothing is handed on but chains."""
    add = hm.learning.FreeChains.add
    monkeypatch.setattr(
        hm.learning.FreeChains, "add", lambda self, task: add(self, task)._replace(is_plain_mean=False)
    )
    found = directions(hm.rules.centred(hm.rules.pcd(1, chains=ROWS)), (3, 2), 1_500)
    z, limit = largest_z(found, torch.zeros(found.shape[1], dtype=torch.float64))
    assert z > 2 * limit
