"""The machines of the exact tests, and random learnable parameters for them; numpy only."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from . import oracle
from .oracle import Array


@dataclass(frozen=True)
class Specification:
    """(kind, n_units) or ("categorical", n_units, q) per layer, and the size of the parameters."""

    name: str
    layers: tuple[tuple[str, int] | tuple[str, int, int], ...]
    coupling: float = 0.6
    log_variance: tuple[float, float] = (-0.7, 0.7)

    @property
    def kinds(self) -> list[str]:
        return [layer[0] for layer in self.layers]

    @property
    def hidden_layers(self) -> int:
        return len(self.layers) - 1


WIDE = (float(np.log(0.05)), float(np.log(5.0)))

SPECIFICATIONS = (
    Specification("smallest", (("bernoulli", 1), ("bernoulli", 1))),
    Specification("bernoulli-bernoulli", (("bernoulli", 6), ("bernoulli", 4))),
    Specification("spin-bernoulli-spin", (("spin", 4), ("bernoulli", 3), ("spin", 4))),
    Specification("gaussian-bernoulli", (("gaussian", 3), ("bernoulli", 6))),
    Specification("gaussian-spin wide", (("gaussian", 4), ("spin", 5)), 0.4, WIDE),
    Specification("bernoulli-gaussian", (("bernoulli", 5), ("gaussian", 3))),
    Specification("categorical-bernoulli", (("categorical", 3, 3), ("bernoulli", 4))),
    Specification("bernoulli-categorical-spin", (("bernoulli", 4), ("categorical", 2, 3), ("spin", 3))),
    Specification("gaussian-spin-gaussian wide", (("gaussian", 2), ("spin", 4), ("gaussian", 2)), 0.4, WIDE),
    Specification(
        "bernoulli-gaussian-categorical", (("bernoulli", 4), ("gaussian", 2), ("categorical", 2, 3))
    ),
    Specification(
        "categorical-spin-categorical-bernoulli",
        (("categorical", 2, 4), ("spin", 3), ("categorical", 2, 2), ("bernoulli", 3)),
    ),
    Specification(
        "gaussian-bernoulli-gaussian-categorical",
        (("gaussian", 2), ("bernoulli", 3), ("gaussian", 2), ("categorical", 1, 3)),
    ),
    Specification(
        "spin-gaussian-bernoulli-gaussian", (("spin", 3), ("gaussian", 2), ("bernoulli", 3), ("gaussian", 1))
    ),
    Specification(
        "bernoulli-spin-gaussian-spin", (("bernoulli", 3), ("spin", 4), ("gaussian", 2), ("spin", 3))
    ),
    Specification("largest", (("bernoulli", 5), ("spin", 4), ("bernoulli", 5))),
    Specification("strong", (("bernoulli", 5), ("spin", 4)), 30.0),
    Specification("gaussian-categorical", (("gaussian", 3), ("categorical", 2, 3))),
    Specification("truncated-bernoulli", (("truncated_gaussian", 2), ("bernoulli", 4))),
    Specification("sparse-spin", (("truncated_gauss_bernoulli", 2), ("spin", 3))),
    Specification("bernoulli-truncated-spin", (("bernoulli", 3), ("truncated_gaussian", 2), ("spin", 3))),
    Specification(
        "sparse-bernoulli-truncated",
        (("truncated_gauss_bernoulli", 1), ("bernoulli", 3), ("truncated_gaussian", 1)),
    ),
    Specification("categorical-sparse", (("categorical", 1, 3), ("truncated_gauss_bernoulli", 2))),
)

# Both parities hold a Gaussian layer, so no parity can be enumerated: energies and free energies only.
ADJACENT = Specification(
    "gaussian-gaussian-bernoulli", (("gaussian", 2), ("gaussian", 2), ("bernoulli", 3)), 0.3
)


def bounds(n_units: int) -> tuple[list[float], list[float]]:
    """The intervals of truncated layers: [0, 1], then wider and away from 0."""
    low, high = [0.0, -0.5, 0.25], [1.0, 1.75, 2.0]
    return low[:n_units], high[:n_units]


def seed_of(specification: Specification) -> list[int]:
    """A seed that is the specification's own, whatever the order of the list."""
    return list(specification.name.encode())


def learnable(specification: Specification) -> oracle.Learnable:
    """Random parameters of order 1."""
    rng = np.random.default_rng(seed_of(specification))
    layers, scales = [], []
    for layer in specification.layers:
        if layer[0] == "gaussian":
            log_variance = rng.uniform(*specification.log_variance, size=layer[1])
            # The two extremes themselves, so that a "wide" machine always is.
            log_variance[0], log_variance[-1] = specification.log_variance
            values = {"mean": rng.normal(size=layer[1]), "log_variance": log_variance}
            scales.append(np.exp(0.5 * log_variance))
        elif layer[0] in oracle.TRUNCATED:
            names = ("linear", "quadratic", "logit_rate")[: 2 + oracle.TRUNCATED.index(str(layer[0]))]
            values = {name: rng.normal(0, 0.8, size=layer[1]) for name in names}
            scales.append(np.ones(layer[1]))
        else:
            values = {"bias": rng.normal(0, 0.8, size=layer[1:])}
            scales.append(np.ones(int(np.prod(layer[1:]))))
        ends = None
        if layer[0] in oracle.TRUNCATED:
            low, high = bounds(layer[1])
            ends = np.array(low), np.array(high)
        layers.append(oracle.LearnableLayer(layer[0], values, ends))
    # W of order sigma keeps J^2 / V of order 1 on Gaussian sides.
    couplings = tuple(
        rng.normal(0, specification.coupling, size=(len(lower), len(upper))) * lower[:, None] * upper[None, :]
        for lower, upper in itertools.pairwise(scales)
    )
    return oracle.Learnable(tuple(layers), couplings)


def random_states(specification: Specification, rows: int, layer: int | None = None) -> list[Array]:
    """`rows` random states in the support, of one layer or of all."""
    rng = np.random.default_rng([*seed_of(specification), 1])
    states: list[Array] = []
    for entry in specification.layers:
        kind, n_units = entry[0], entry[1]
        if kind == "bernoulli":
            states.append(rng.integers(0, 2, (rows, n_units)).astype(float))
        elif kind == "spin":
            states.append(2.0 * rng.integers(0, 2, (rows, n_units)) - 1)
        elif kind == "categorical":
            states.append(np.eye(entry[2])[rng.integers(0, entry[2], (rows, n_units))].reshape(rows, -1))
        elif kind in oracle.TRUNCATED:
            x = rng.uniform(*bounds(n_units), size=(rows, n_units))
            if kind == "truncated_gauss_bernoulli":
                x *= rng.uniform(size=x.shape) < 0.6
            states.append(x)
        else:
            states.append(rng.normal(0, 1.5, (rows, n_units)))
    return states if layer is None else [states[layer]]
