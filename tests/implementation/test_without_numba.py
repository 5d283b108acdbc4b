"""Without numba, which some platforms lack, everything works, by eager tensor code alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

RULES = """
import sys
sys.modules["numba"] = None  # any import of it fails
import torch
import harmonium as hm
from harmonium.backends import choice

assert not choice.COMPILED
generator = torch.Generator().manual_seed(0)
binary = hm.BoltzmannMachine([hm.Bernoulli(100), hm.Spin(90)])
small = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(5)])
real = hm.BoltzmannMachine([hm.Gaussian(4), hm.Bernoulli(6)])
for machine in (binary, small, real):
    with torch.no_grad():
        machine.couplings[0].weight.mul_(0.1)
    v = machine.random_states(200, seed=generator)[0]
    rules = [hm.rules.pcd(chains=200), hm.rules.noise_cd(2)]
    for rule in rules + ([] if machine is real else [hm.rules.ucd(chains=200)]):
        estimate = rule.gradient(machine, v, seed=generator)
        assert all(bool(g.isfinite().all()) for g in estimate.parameters.values()), rule
potts = hm.BoltzmannMachine([hm.Categorical(30, 3), hm.Spin(40)], edges=[(0, 0), (0, 1), (1, 1)])
states = hm.chains.run(potts, hm.chains.Gibbs(), potts.random_states(300, seed=generator), 1, seed=generator)
assert bool((states[0].view(300, 30, 3).sum(-1) == 1).all())
ring = hm.Sparse([(i, (i + 1) % 5000) for i in range(5000)])
spins = hm.BoltzmannMachine([hm.Spin(5000)], {(0, 0): ring})
for kernel in (hm.chains.Gibbs(), hm.chains.Metropolis()):
    states = hm.chains.run(spins, kernel, spins.random_states(3, seed=generator), 2, seed=generator)
    assert len(spins.graph.colours) == 2 and set(states[0].unique().tolist()) == {-1.0, 1.0}
names = ("langevin", "pairs", "per_row", "potts", "sparse_sweeps", "updates")
compiled = {f"harmonium.backends.{name}" for name in names}
assert not compiled & sys.modules.keys()
"""


@pytest.mark.nightly
def test_rules_run_without_numba() -> None:
    done = subprocess.run([sys.executable, "-c", RULES], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
