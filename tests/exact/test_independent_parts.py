"""Machines too large for the oracle, made of uncoupled parts that are small enough for it.

Couplings are block diagonal, so the parts are independent: ln Z is the sum of theirs, expectations within a
part are its own, and across parts E[x y] = E[x] E[y]. The machine sees 2^18 states of either parity, enough
for enumeration to run in several blocks.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import harmonium as hm

from . import oracle
from .machines import array, exact_gradient, fill, make_layer, named_gradient
from .oracle import Array, Learnable, LearnableLayer
from .specifications import Specification, learnable, random_states

PARTS = {
    "one hidden layer": [(("spin", 6), ("bernoulli", 6))] * 3,
    "two hidden layers": [(("bernoulli", 3), ("spin", 6), ("bernoulli", 3))] * 3,
    "Gaussian visible": [(("gaussian", 2), ("bernoulli", 6))] * 3,
}


def specifications_of(name: str) -> list[Specification]:
    return [Specification(f"{name} {k}", layers) for k, layers in enumerate(PARTS[name])]


def joined(parts: list[Learnable]) -> Learnable:
    """The parts side by side, with no coupling between them."""
    layers = tuple(
        LearnableLayer(
            same[0].kind,
            {key: np.concatenate([layer.values[key] for layer in same]) for key in same[0].values},
        )
        for same in zip(*[part.layers for part in parts], strict=True)
    )
    couplings = []
    for blocks in zip(*[part.couplings for part in parts], strict=True):
        whole = np.zeros((sum(len(b) for b in blocks), sum(b.shape[1] for b in blocks)))
        row = column = 0
        for block in blocks:
            whole[row : row + len(block), column : column + block.shape[1]] = block
            row, column = row + len(block), column + block.shape[1]
        couplings.append(whole)
    return Learnable(layers, tuple(couplings))


def joined_gradient(parts: list[Learnable], visible: list[Array]) -> dict[str, Array]:
    """The oracle's gradient of each part, and the couplings between parts from products of means."""
    gradients = [oracle.gradient(part, v) for part, v in zip(parts, visible, strict=True)]
    result = {name: np.concatenate([g[name] for g in gradients]) for name in gradients[0] if "layers" in name}
    descriptions = [oracle.natural(part) for part in parts]
    free = [oracle.expectations(d) for d in descriptions]
    clamped = [
        [oracle.expectations(d, {0: row}) for row in v] for d, v in zip(descriptions, visible, strict=True)
    ]
    for i in range(len(parts[0].couplings)):
        blocks = []
        for a, part in enumerate(parts):
            layer = part.layers[i]
            scale = 1.0 if layer.kind != "gaussian" else np.exp(-layer.values["log_variance"])[:, None]
            row = []
            for b in range(len(parts)):
                if a == b:
                    row.append(gradients[a][f"couplings.{i}.weight"])
                    continue
                products = [
                    np.outer(left.statistics[i][0], right.statistics[i + 1][0])
                    for left, right in zip(clamped[a], clamped[b], strict=True)
                ]
                unclamped = np.outer(free[a].statistics[i][0], free[b].statistics[i + 1][0])
                row.append((np.mean(products, axis=0) - unclamped) * scale)
            blocks.append(row)
        result[f"couplings.{i}.weight"] = np.block(blocks)
    return result


@pytest.mark.parametrize("name", PARTS)
def test_independent_parts(name: str) -> None:
    """ln Z, exact log-likelihood and gradient of the whole from its parts."""
    specifications = specifications_of(name)
    parts = [learnable(s) for s in specifications]
    visible = [random_states(s, 2, layer=0)[0] for s in specifications]
    together = [(layer[0], layer[1] * 3) for layer in PARTS[name][0]]
    machine = fill(
        hm.BoltzmannMachine([make_layer(entry) for entry in together], seed=0).double(), joined(parts)
    )
    descriptions = [oracle.natural(part) for part in parts]
    log_z = hm.likelihood.exact_log_partition(machine)
    assert log_z == pytest.approx(sum(oracle.log_partition(d) for d in descriptions), rel=1e-8)
    rows = torch.from_numpy(np.concatenate(visible, axis=1))
    if len(together) == 2:
        np.testing.assert_allclose(
            array(hm.likelihood.log_likelihood(machine, rows, log_z)),
            sum(oracle.log_probability(d, v) for d, v in zip(descriptions, visible, strict=True)),
            rtol=1e-8,
        )
    actual = exact_gradient(machine, rows)
    expected = named_gradient(machine, joined_gradient(parts, visible))
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(array(actual[key]), value, rtol=1e-8, atol=1e-8, err_msg=key)
