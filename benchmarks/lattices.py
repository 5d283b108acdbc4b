"""Gibbs sweeps of large sparse machines of spins, beside thrml where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import torch
from torch import Tensor

import harmonium as hm
from benchmarks.race import Contestant, Row, Table, compare, now, on_one_thread
from benchmarks.targets import HARMONIUM, ONE_THREAD

THRML = "thrml 0.1.4"
WAYS = (HARMONIUM, f"{HARMONIUM}, Metropolis", ONE_THREAD, THRML)
HOW_TO_GET_THRML = "not installed; python -m pip install thrml==0.1.4 'jax[cpu]', beside torch and numpy"
# Name, chains, sweeps of one call.
CASES = {
    "lattice 32 × 32": (100, 200),
    "lattice 100 × 100": (100, 20),
    "lattice 316 × 316": (100, 4),
    "lattice 1000 × 1000": (10, 4),
    "random, 269,568 spins of degree 16": (100, 2),
}


def pairs_of(case: str) -> tuple[int, Tensor]:
    """The number of spins of a case and the pairs that are joined."""
    kind, _, size = case.partition(" ")
    if kind == "lattice":
        side = int(size.split()[0])
        node = torch.arange(side * side).view(side, side)
        steps = [torch.stack((node, node.roll(-1, axis)), -1).view(-1, 2) for axis in (0, 1)]
        return side * side, torch.cat(steps)
    spins, degree = 269_568, 16
    ends = np.random.default_rng(0).permutation(np.repeat(np.arange(spins), degree)).reshape(-1, 2)
    ends = ends[ends[:, 0] != ends[:, 1]]
    return spins, torch.from_numpy(np.unique(np.sort(ends, 1), axis=0))


def machine_of(case: str) -> tuple[int, hm.BoltzmannMachine]:
    """The number of spins of a case and its machine, with normal couplings."""
    spins, pairs = pairs_of(case)
    machine = hm.BoltzmannMachine([hm.Spin(spins)], {(0, 0): hm.Sparse(pairs)}, [0], seed=None)
    machine.couplings[0].fill_(0.3 * torch.randn(len(pairs), generator=torch.Generator().manual_seed(0)))
    return spins, machine


def lattice_sweeps(quick: bool) -> Table:
    table = Table(
        "lattice-sweeps",
        "Sparse machines of spins: one Gibbs sweep",
        notes=["100 chains, 10 of the largest lattice; ns: for one spin of one chain"],
    )
    for case, (chains, sweeps) in CASES.items():
        spins, machine = machine_of(case)
        gibbs = _runs(machine, hm.chains.Gibbs(), chains, sweeps)
        ways = {WAYS[0]: gibbs, WAYS[1]: _runs(machine, hm.chains.Metropolis(), chains, sweeps)}
        if torch.get_num_threads() > 1:
            ways[WAYS[2]] = on_one_thread(gibbs)
        # thrml makes objects of all spins, which takes minutes for more.
        if importlib.util.find_spec("thrml") is not None and spins <= 100_000:
            ways[THRML] = _thrml(machine, chains, sweeps)
        scale = 1e9 / (spins * chains)
        rounds = 3 if quick else 7
        compare(table, ways, rounds, group=case, figures=lambda seconds, scale=scale: {"ns": seconds * scale})
        if THRML not in ways:
            table.rows.append(Row(f"{case}: {THRML}"))
    if importlib.util.find_spec("thrml") is None:
        table.notes.append(f"{THRML}: {HOW_TO_GET_THRML}")
    return table


def _runs(machine: hm.BoltzmannMachine, kernel: hm.chains.Kernel, chains: int, sweeps: int) -> Contestant:
    """Goes on from the last states, by so many sweeps."""
    generator = torch.Generator().manual_seed(1)
    states = machine.random_states(chains, seed=generator)

    def sweep() -> float:
        nonlocal states
        start = now()
        states = hm.chains.run(machine, kernel, states, sweeps, seed=generator)
        return (now() - start) / sweeps

    return sweep


def _thrml(machine: hm.BoltzmannMachine, chains: int, sweeps: int) -> Contestant:
    """The same machine and colours in thrml, whose chains are a batch by ``vmap``."""
    jax: Any = importlib.import_module("jax")
    thrml: Any = importlib.import_module("thrml")
    models: Any = importlib.import_module("thrml.models")
    coupling = machine.couplings[0]
    nodes = [thrml.SpinNode() for _ in range(machine.layers[0].n_units)]
    edges = [(nodes[i], nodes[j]) for i, j in coupling.pairs.tolist()]
    weights = jax.numpy.asarray(coupling.weight.detach().numpy())
    model = models.IsingEBM(nodes, edges, jax.numpy.zeros(len(nodes)), weights, jax.numpy.array(1.0))
    parts = [part.columns for colour in machine.graph.colours for part in colour]
    blocks = [thrml.Block([nodes[i] for i in columns.tolist()]) for columns in parts if columns is not None]
    program = models.IsingSamplingProgram(model, blocks, [])
    begun = models.hinton_init(jax.random.key(0), model, blocks, (chains,))
    schedule = thrml.SamplingSchedule(n_warmup=sweeps - 1, n_samples=1, steps_per_sample=1)
    every = [thrml.Block(nodes)]

    def sample(key: Any, state: Any) -> Any:
        return thrml.sample_states(key, program, schedule, state, [], every)

    batch = jax.jit(jax.vmap(sample))
    keys = jax.random.split(jax.random.key(1), chains)
    jax.block_until_ready(batch(keys, begun))

    def sweep() -> float:
        start = now()
        jax.block_until_ready(batch(keys, begun))
        return (now() - start) / sweeps

    return sweep
