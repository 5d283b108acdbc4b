"""Train, save and load a tiny machine with the installed wheel; run from a directory outside the sources."""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

import harmonium as hm

package = Path(hm.__file__).parent
assert package.is_relative_to(sys.prefix), f"imported {package}, expected the wheel's copy under {sys.prefix}"
for file in ("py.typed", "report/page/page.html", "report/page/verdict.toml"):
    assert (package / file).is_file(), f"the wheel lacks {file}"

X = torch.from_numpy(np.random.default_rng(0).integers(0, 2, size=(32, 6))).float()
machine = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], seed=0)
before = machine.couplings[0].weight.detach().clone()
hm.train(machine, X, rule=hm.rules.pcd(k=1, chains=16), updates=20, batch_size=16, learning_rate=0.05, seed=0)
assert not torch.equal(machine.couplings[0].weight, before), "training changed nothing"

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "machine.safetensors"
    machine.save(path)
    loaded = hm.load(path)
for name, value in machine.state_dict().items():
    assert torch.equal(value, loaded.state_dict()[name]), f"{name} changed between save and load"

log_partition = hm.likelihood.exact_log_partition(loaded)
total = hm.likelihood.log_likelihood(loaded, X, log_partition).mean().item()
print(f"harmonium {version('harmonium')} from {package}: mean log-likelihood {total:.3f} nats")
