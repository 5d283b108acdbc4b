"""A machine in float32 stays one where torch's default is float64, as physicists set it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.nightly

SCRIPT = """
import torch
import harmonium as hm

torch.set_default_dtype(torch.float64)
single = torch.float32
rules = [hm.rules.pcd(), hm.rules.ucd(chains=20, max_sweeps=20), hm.rules.mean_field_pcd()]
machines = {
    "products, which are measured first": [hm.Bernoulli(300), hm.Spin(200)],
    "chains one by one": [hm.Gaussian(4), hm.Bernoulli(6)],
    "large draws": [hm.Gaussian(60), hm.Bernoulli(50), hm.Categorical(40, 3)],
}
for name, layers in machines.items():
    machine = hm.BoltzmannMachine(layers).float()
    v = machine.random_states(300, seed=0)[0]
    for rule in rules:
        estimate = rule.gradient(machine, v, seed=0)
        assert {g.dtype for g in estimate.parameters.values()} == {single}, (name, rule)
        if getattr(estimate.state, "states", None):
            assert {x.dtype for x in estimate.state.states} == {single}, (name, rule)
    run = hm.train(machine, v, rule=hm.rules.centred(rules[0]), updates=3, batch_size=50, progress=False)
    assert {p.dtype for p in run.machine.parameters()} == {single}, name
    hm.likelihood.ais(machine, 10, 20, seed=0)
"""


def test_a_machine_in_float32_beside_a_default_of_float64(monkeypatch) -> None:
    monkeypatch.delenv("HARMONIUM_PRODUCTS", raising=False)
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
