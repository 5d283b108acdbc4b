"""Is ln Z by annealing without data ever wrong in silence? Random RBMs of 20 by 20 ±1 units, counted exactly.

Strong machines have couplings up to 4, where a forward run often misses a mode; weak ones are those where
annealing is right, so that a doubt is a false alarm.
"""

from __future__ import annotations

import argparse
import warnings
from math import log
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import harmonium as hm
from harmonium.likelihood import WITHOUT_DATA, LogPartition, ais, exact_log_partition

KINDS = ("normal", "positive", "uniform", "mostly positive")
TOLERANCE = 0.05  # nats by which bounds may exclude ln Z
UNITS = 20


class Tally(NamedTuple):
    """Counts of runs.

    Attributes:
        runs: all.
        excluded: whose bounds exclude ln Z by more than 0.05 nats.
        too_low: whose value plus three standard errors does, as the upper bound alone may save them.
        silent: excluded and without a doubt.
        silently_low: too low and without a doubt.
        doubted: with any doubt.
        alarms: with a doubt although value, bounds and effective sample size are all right.
        right: of which the last three are right.
    """

    runs: int = 0
    excluded: int = 0
    too_low: int = 0
    silent: int = 0
    silently_low: int = 0
    doubted: int = 0
    alarms: int = 0
    right: int = 0

    def with_run(self, found: LogPartition, truth: float, chains: int) -> Tally:
        """Adds one run."""
        excluded = found.lower > truth + TOLERANCE or found.upper < truth - TOLERANCE
        low = found.value + 3 * found.standard_error < truth - TOLERANCE
        doubted = bool({*found.doubts} - {WITHOUT_DATA})
        right = not excluded and not low and found.ess >= chains / 2
        more = (1, excluded, low, excluded and not doubted, low and not doubted, doubted)
        return Tally(*(a + b for a, b in zip(self, (*more, right and doubted, right), strict=True)))


def machine(number: int, strong: bool) -> hm.BoltzmannMachine:
    """Makes a random RBM; its kind, strength and fields follow from its number."""
    generator = torch.Generator().manual_seed((1000 if strong else 5000) + number)
    kind, shape = KINDS[number % len(KINDS)], (UNITS, UNITS)
    strength = float(torch.rand((), generator=generator))
    if kind == "normal":
        J = torch.randn(shape, generator=generator)
        J *= 0.7 + 0.6 * strength if strong else 0.1 + 0.3 * strength
    elif kind == "uniform":
        J = 2 * torch.rand(shape, generator=generator) - 1
        J *= 1 + 3 * strength if strong else 0.2 + 0.7 * strength
    else:
        J = torch.randn(shape, generator=generator).abs()
        J *= 0.5 + 0.8 * strength if strong else 0.05 + 0.15 * strength
        if kind == "mostly positive":
            J *= torch.where(torch.rand(shape, generator=generator) < 0.8, 1.0, -1.0)
    fields = float(torch.rand((), generator=generator))
    biases = [fields * torch.randn(UNITS, generator=generator) for _ in range(2)]
    return _spins([UNITS, UNITS], {(0, 1): J.clamp(-4, 4)}, biases)


def _spins(
    sizes: list[int], couplings: dict[tuple[int, int], Tensor], biases: list[Tensor]
) -> hm.BoltzmannMachine:
    edges = {edge: hm.Masked(J != 0) for edge, J in couplings.items()}
    made = hm.BoltzmannMachine([hm.Spin(size) for size in sizes], edges=edges, visible=[0])
    with torch.no_grad():
        for coupling, J in zip(made.couplings, couplings.values(), strict=True):
            coupling.weight.copy_(J)
        for layer, bias in zip(made.layers, biases, strict=True):
            layer.bias.copy_(bias)
    return made


def read(path: Path) -> tuple[hm.BoltzmannMachine, float]:
    """Reads a pairwise model of binary variables: a machine of ±1 units, and its ln Z from ``path``.PR.

    Variables of a bipartite graph become two layers, those of any other graph one layer with inner edges.
    """
    machine = hm.exchange.read(path, form="uai").machine
    found, offset = machine.hamiltonian(), machine.constant
    if [layer.kind for layer in found.layers] != ["bernoulli"] or not found.edges:
        raise ValueError(f"path: expected joined binary variables, received others in {path}")
    ((_, _, W),), ((b,),) = found.edges, found.thetas
    n, W, b = len(b), W.detach(), b.detach()
    J, bias = W / 4, b / 2 + W.sum(1) / 4  # of spins s, where the bits are (1 + s) / 2
    truth = float(path.with_name(path.name + ".PR").read_text().split()[1]) * log(10)
    truth += offset - float(b.sum() / 2 + W.sum() / 8)
    side = _sides(J != 0)
    if side is None:
        return _spins([n], {(0, 0): J}, [bias]), truth
    return _spins(
        [int(side.sum()), int((~side).sum())], {(0, 1): J[side][:, ~side]}, [bias[side], bias[~side]]
    ), truth


def _sides(joined: Tensor) -> Tensor | None:
    """Returns one side of a bipartite graph, (n,) booleans, or None where the graph is not bipartite."""
    side = torch.zeros(len(joined), dtype=torch.int8)
    for first in range(len(joined)):
        reached = [] if side[first] else [first]
        side[reached] = 1
        for i in reached:
            for j in joined[i].nonzero().flatten().tolist():
                if side[j] == side[i]:
                    return None
                if not side[j]:
                    side[j] = -side[i]
                    reached.append(j)
    return side > 0


def random_machines(numbers: range, strong: bool, seeds: int, chains: int, temperatures: int) -> Tally:
    """Anneals random machines, prints what is wrong or doubted, and counts."""
    tally = Tally()
    for number in numbers:
        made = machine(number, strong)
        truth = exact_log_partition(made)
        for seed in range(seeds):
            found = ais(made, chains, temperatures, seed=seed)
            before, tally = tally, tally.with_run(found, truth, chains)
            if tally.silent > before.silent or tally.alarms > before.alarms:
                which = "silent" if tally.silent > before.silent else "alarm"
                print(f"{which}: machine {number}, seed {seed}, {_errors(found, truth)}", flush=True)
        print(f"{KINDS[number % len(KINDS)]} {number}: {tally}", flush=True)
    return tally


def _errors(found: LogPartition, truth: float) -> str:
    bounds = f"[{found.lower - truth:+.2f}, {found.upper - truth:+.2f}]"
    return f"{found.value - truth:+.2f} in {bounds}, ess {found.ess:.0f}, doubts {len(found.doubts)}"


def main(arguments: list[str]) -> int:
    """Runs the campaign; 1 where a run was wrong in silence or more than 10 % of right ones were doubted."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("annealing", description=__doc__, formatter_class=layout)
    parser.add_argument("--strong", type=int, default=100, help="machines with couplings up to 4")
    parser.add_argument("--weak", type=int, default=50, help="machines where annealing is right")
    parser.add_argument("--first", type=int, default=0, help="number of the first machine")
    parser.add_argument("--seeds", type=int, default=4, help="runs of each machine")
    parser.add_argument("--chains", type=int, default=100)
    parser.add_argument("--temperatures", type=int, default=1000)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # doubts are counted
        numbers = [range(given.first, given.first + count) for count in (given.strong, given.weak)]
        sizes = (given.seeds, given.chains, given.temperatures)
        strong, weak = (
            random_machines(each, s, *sizes) for each, s in zip(numbers, (True, False), strict=True)
        )
    failures = strong.silent + weak.silent + (weak.alarms > 0.1 * weak.right)
    print(f"strong {strong}\nweak   {weak}\n{failures} failures")
    return int(failures > 0)
