"""Is ln Z by TAP ever wrong in silence? Random nets of spins and bits, small enough to list their states.

Each machine is solved at orders 1, 2 and 3 of the expansion. A value is off where it differs from ln Z by
more than a nat; a doubt about another one is a false alarm.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable
from math import inf, isnan

import numpy as np
import torch

import harmonium as hm

Net = tuple[np.ndarray, np.ndarray, list[int], str]
"""Couplings (units, units) and fields (units,) of all units, the sizes of layers, and the kind of units."""


def _joined(random: np.random.Generator, J: np.ndarray, fields: float, unit: str = "spin") -> Net:
    J = np.triu(J, 1)
    J = J + J.T
    h = fields * random.normal(size=len(J))
    if unit == "bernoulli":  # about the middle of the bits, else most of them are on or off
        J, h = 4 * J, 2 * h - 2 * J.sum(1)
    return J, h, [len(J)], unit


def _glass(random: np.random.Generator, unit: str = "spin") -> Net:
    n = random.integers(8, 15)
    J = random.uniform(0.1, 1.5) * random.normal(size=(n, n)) / n**0.5
    return _joined(random, J, random.choice([0.0, 0.3, 1.0]), unit)


def _sparse(random: np.random.Generator) -> Net:
    n = random.integers(8, 15)
    J = random.uniform(0.1, 1.5) * random.normal(size=(n, n)) * (random.random((n, n)) < 3 / n)
    return _joined(random, J, random.choice([0.0, 0.3, 1.0]))


def _hopfield(random: np.random.Generator, unit: str = "spin") -> Net:
    n, patterns = random.integers(10, 16), random.integers(1, 5)
    xi = random.choice([-1.0, 1.0], (patterns, n))
    return _joined(random, random.uniform(0.3, 3) * xi.T @ xi / n, random.choice([0.0, 0.1, 0.5]), unit)


def _ferromagnet(random: np.random.Generator) -> Net:
    n = random.integers(8, 16)
    J = np.full((n, n), random.uniform(0.3, 5) / n)
    J, h, sizes, unit = _joined(random, J, random.choice([0.0, 0.2]))
    return J, h + random.uniform(0, 1), sizes, unit


def _antiferromagnet(random: np.random.Generator) -> Net:
    n = random.integers(8, 14)
    return _joined(random, np.full((n, n), -random.uniform(0.3, 5) / n), random.choice([0.0, 0.2, 1.0]))


def _ring(random: np.random.Generator) -> Net:
    n = random.integers(8, 15)
    return _joined(random, random.uniform(0.1, 1.5) * np.roll(np.eye(n), 1, 1), random.choice([0.0, 0.3]))


def _pairs(random: np.random.Generator) -> Net:
    n = 2 * random.integers(4, 7)
    J = np.kron(np.eye(n // 2), [[0, random.uniform(0.3, 3)], [0, 0]]) * random.choice([-1, 1], (n, n))
    return _joined(random, J + 0.05 * random.normal(size=(n, n)), random.choice([0.0, 0.5]))


def _layered(random: np.random.Generator, unit: str, positive: bool = False, deep: bool = False) -> Net:
    sizes = [int(random.integers(5, 9)), int(random.integers(3, 7)), *([int(random.integers(2, 4))] * deep)]
    ends = np.cumsum([0, *sizes])
    J, strength = np.zeros((ends[-1], ends[-1])), random.uniform(0.1, 1.6) * (2 if unit == "bernoulli" else 1)
    for a, b, c in zip(ends, ends[1:], ends[2:], strict=False):
        W = strength * random.normal(size=(b - a, c - b)) * (2 / (c - a)) ** 0.5
        J[a:b, b:c] = np.abs(W) if positive else W
    J = J + J.T
    h = random.choice([0.0, 0.3, 1.0]) * random.normal(size=len(J))
    return J, h - (J.sum(1) / 2 if unit == "bernoulli" else 0.0), sizes, unit


KINDS: dict[str, Callable[[np.random.Generator], Net]] = {
    "glass": _glass,
    "glass of bits": lambda random: _glass(random, "bernoulli"),
    "sparse glass": _sparse,
    "Hopfield": _hopfield,
    "Hopfield of bits": lambda random: _hopfield(random, "bernoulli"),
    "ferromagnet": _ferromagnet,
    "antiferromagnet": _antiferromagnet,
    "ring": _ring,
    "pairs": _pairs,
    "RBM of spins": lambda random: _layered(random, "spin"),
    "RBM of bits": lambda random: _layered(random, "bernoulli"),
    "positive RBM": lambda random: _layered(random, "bernoulli", positive=True),
    "DBM of bits": lambda random: _layered(random, "bernoulli", deep=True),
}


def exact(net: Net) -> float:
    """ln Z from the list of all states, by couplings and fields alone."""
    J, h, _, unit = net
    n = len(h)
    x = (np.arange(1 << n)[:, None] >> np.arange(n) & 1).astype(np.float64)
    x = 2 * x - 1 if unit == "spin" else x
    weight = ((x @ J) * x).sum(1) / 2 + x @ h
    return float(weight.max() + np.log(np.exp(weight - weight.max()).sum()))


def build(net: Net) -> hm.BoltzmannMachine:
    """Makes the machine of a net, in float64."""
    J, h, sizes, unit = net
    layers = [(hm.Spin if unit == "spin" else hm.Bernoulli)(size) for size in sizes]
    edges = {(0, 0): hm.Dense()} if len(sizes) == 1 else None
    made = hm.BoltzmannMachine(layers, edges=edges, visible=[0], seed=0).double()
    ends = np.cumsum([0, *sizes])
    with torch.no_grad():
        for l, layer in enumerate(made.layers):
            layer.set_finite_(bias=torch.from_numpy(h[ends[l] : ends[l + 1]]))
        if len(sizes) == 1:
            made.couplings[0].fill_(torch.from_numpy(J))
        for l, coupling in enumerate(made.couplings if len(sizes) > 1 else ()):
            coupling.fill_(torch.from_numpy(J[ends[l] : ends[l + 1], ends[l + 1] : ends[l + 2]].copy()))
    return made


def make(kind: str, number: int) -> Net:
    """Makes the net of a kind and a number."""
    return KINDS[kind](np.random.default_rng([number, *kind.encode()]))


def main(arguments: list[str]) -> int:
    """Runs the campaign; 1 where a value was off in silence."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("tap", description=__doc__, formatter_class=layout)
    parser.add_argument("--machines", type=int, default=24, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="number of the first machine")
    parser.add_argument("--starts", type=int, default=20, help="rows of noise that are given as data")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), help="a part of the kinds")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    silent = 0
    print("kind, order: machines, off > 1 nat, of these doubted; doubts in all, false alarms")
    for kind in given.kinds:
        tallies = {order: Counter[str]() for order in (1, 2, 3)}
        for number in range(given.first, given.first + given.machines):
            net = make(kind, number)
            made, truth = build(net), exact(net)
            X = made.random_states(given.starts, seed=number)[0]
            for order, tally in tallies.items():
                value, doubts = _solve(made, X, order)
                off, doubted = isnan(value) or abs(value - truth) > 1, bool(doubts)
                tally.update(n=1, off=off, caught=off and doubted, doubts=doubted, alarms=doubted and not off)
                if off and not doubted:
                    silent += 1
                    print(f"silent: {kind} {number}, order {order}, {value - truth:+.2f}", flush=True)
        for order, tally in tallies.items():
            counts = ", ".join(str(int(tally[name])) for name in ("n", "off", "caught", "doubts", "alarms"))
            print(f"{kind}, {order}: {counts}", flush=True)
    print(f"{silent} failures")
    return int(silent > 0)


def _solve(made: hm.BoltzmannMachine, X: torch.Tensor, order: int) -> tuple[float, tuple[str, ...]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # doubts are counted
        try:
            found = hm.likelihood.tap_log_partition(made, X, order=order)
        except ValueError as error:  # no start converges
            return inf, (str(error),)
    return found.value, found.doubts
