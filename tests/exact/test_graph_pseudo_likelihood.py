"""The pseudo-likelihood on graphs of layers, unit by unit against an oracle written from the formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.likelihood import pseudo_log_likelihood

from .graphs import GRAPHS, data_for, make, oracle_of

NAMES = [
    name
    for name in GRAPHS
    if make(name).graph.independent and all(make(name).layers[l].discrete for l in make(name).visible)
]


def conditionals(name: str, v: torch.Tensor) -> np.ndarray:
    """ln p(v_i | others), (rows, units): the row against the row without that unit."""
    machine, oracle = make(name), oracle_of(make(name))
    parts, first = [], 0
    for layer in (machine.layers[l] for l in machine.visible):
        columns = layer.width // layer.n_units
        for _ in range(layer.n_units):
            without = v.clone()
            without[:, first : first + columns] = torch.nan
            parts.append(oracle.log_unnormalised(v) - oracle.log_unnormalised(without))
            first += columns
    return torch.stack(parts, 1).detach().numpy()


@pytest.mark.mostly_nightly(6)
@pytest.mark.parametrize("name", NAMES)
def test_sum_over_units(name: str) -> None:
    machine, v = make(name), data_for(make(name), 12)
    expected = conditionals(name, v)
    np.testing.assert_allclose(pseudo_log_likelihood(machine, v), expected.sum(1), atol=1e-9)
    # Drawn units: every value is a mean of conditionals, and all of them come up.
    generator = torch.Generator().manual_seed(0)
    seen = np.stack([pseudo_log_likelihood(machine, v, sampled=1, seed=generator) for _ in range(100)])
    distance = np.abs(seen[:, :, None] / expected.shape[1] - expected)
    assert distance.min(2).max() < 1e-9 and len(np.unique(distance.argmin(2))) > 2


@pytest.mark.parametrize("name", [name for name in GRAPHS if name not in NAMES])
def test_others_are_refused_by_name(name: str) -> None:
    machine = make(name)
    words = "no edge joins" if not machine.graph.independent else "discrete visible units"
    with pytest.raises(ValueError, match=f"machine: expected .*{words}"):
        pseudo_log_likelihood(machine, data_for(machine, 2))


def test_a_fully_visible_machine_needs_one_field() -> None:
    """A fully visible machine is vectorised: no loop over its units."""
    machine = hm.BoltzmannMachine([hm.Spin(400)], edges=[(0, 0)])
    hm.machine.normal_(machine, 0.05, torch.Generator().manual_seed(0))
    v = data_for(machine, 50)
    hamiltonian = machine.hamiltonian()
    units = machine.layers[0].log_conditional(v, hamiltonian.field(0, [v])).sum(-1, dtype=torch.float64)
    torch.testing.assert_close(pseudo_log_likelihood(machine, v), units.detach())
