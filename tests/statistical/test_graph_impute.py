"""Imputation on graphs of layers.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

import pytest
import torch
from exact.graphs import GRAPHS, data_for, holes, make, oracle_of

import harmonium as hm
from harmonium.tasks import impute

from .support import largest_z

COPIES = 1500
DISCRETE = [name for name in GRAPHS if all(layer.discrete for layer in make(name).layers)]


def units(machine: hm.BoltzmannMachine, columns: torch.Tensor) -> torch.Tensor:
    """Booleans of columns as booleans of units, over all visible layers."""
    parts = machine.split(columns).items()
    return torch.cat([machine.layers[l].by_unit(x)[..., 0] for l, x in parts], -1)


@pytest.mark.parametrize("name", DISCRETE)
def test_chains_give_the_conditional_means(name):
    machine = make(name)
    first = machine.layers[machine.visible[0]]
    v = data_for(machine, 1)
    missing = torch.ones_like(v, dtype=torch.bool)
    missing[:, : first.width // first.n_units] = False
    v = v.masked_fill(missing, torch.nan)
    states, probability = (x for x in oracle_of(machine).probabilities())
    grid = machine.hamiltonian().visible_states(states)
    weight = probability.detach() * ((grid == v) | missing).all(-1)
    truth = (weight / weight.sum()) @ grid
    done = impute(machine, v.repeat(COPIES, 1), units(machine, missing), "gibbs", draws=1, sweeps=40)
    for found in (done.mean, done.draws[0]):
        z, limit = largest_z(found[:, missing[0]], truth[missing[0]])
        assert z < limit
    assert torch.equal(done.mode[:, ~missing[0]], v[:, ~missing[0]].repeat(COPIES, 1))


@pytest.mark.mostly_nightly(48)
@pytest.mark.parametrize("method", hm.tasks.IMPUTE_METHODS)
@pytest.mark.parametrize("name", GRAPHS)
def test_every_method_gives_states_or_refuses_by_name(name, method):
    machine = make(name, scale=0.3)
    v = holes(machine, data_for(machine, 5))
    missing = units(machine, v.isnan())
    try:
        done = impute(machine, v, missing, method, draws=2, sweeps=6)
    except ValueError as error:
        reasons = {"exact": "joint states"}.get(method, "colours"), "inner edges"
        assert method in ("exact", "local_search")
        assert any(reason in str(error) for reason in reasons)
        return
    for part in (done.mode, *done.draws):
        machine.check_rows(part, "completed")
        assert torch.equal(part[~v.isnan()], v[~v.isnan()])
    assert bool(done.mean.isfinite().all())


def test_denoising_refuses_several_visible_layers_and_takes_any_one():
    machine = make("two visible kinds")
    with pytest.raises(ValueError, match="machine: expected one visible layer"):
        hm.tasks.denoise(machine, data_for(machine, 2), 0.1)
    layers = [hm.Bernoulli(3), hm.Spin(5)]
    upside = hm.BoltzmannMachine(layers, edges=[(0, 1)], visible=[1]).double()
    plain = hm.BoltzmannMachine([hm.Spin(5), hm.Bernoulli(3)]).double()
    with torch.no_grad():
        plain.couplings[0].fill_(upside.couplings[0].weight.T)
    noisy = data_for(plain, 4)
    one, other = (hm.tasks.denoise(each, noisy, 0.1, method="gibbs") for each in (upside, plain))
    torch.testing.assert_close(one.mean, other.mean, atol=0.2, rtol=0)
    one, other = (hm.tasks.denoise(each, noisy, 0.1) for each in (upside, plain))
    torch.testing.assert_close(one.mean, other.mean, atol=1e-4, rtol=0)
