"""Gibbs sweeps that compiled code makes unit by unit, and categorical half-steps, beside tensor code."""

from __future__ import annotations

import torch

import harmonium as hm
from benchmarks.race import Contestant, Table, compare, on_one_thread, repeat
from benchmarks.sparse_sweeps import lattice, sweep_of
from benchmarks.targets import HARMONIUM, ONE_THREAD
from harmonium.backends import choice
from harmonium.couplings import Coupling
from harmonium.layers import Layer

EAGER = "tensor code"
WAYS = (HARMONIUM, EAGER, ONE_THREAD)
CASES = (
    "136 Categorical of 5 states, all joined",
    "96 Categorical of 21 states, all joined",
    "136 Categorical of 5 states, 100 hidden",
    "96 Categorical of 21 states, 100 hidden",
    "400 Spin, 20 × 20 lattice",
    "400 Spin, all joined",
)
CHAINS = 2000


def sweeps_in_turn(quick: bool) -> Table:
    table = Table("sweeps-in-turn", "One Gibbs sweep, 2,000 chains")
    machines = (
        _inner(hm.Categorical(136, 5), hm.Dense()),
        _inner(hm.Categorical(96, 21), hm.Dense()),
        _restricted(hm.Categorical(136, 5)),
        _restricted(hm.Categorical(96, 21)),
        _inner(hm.Spin(400), hm.Masked(lattice(20))),
        _inner(hm.Spin(400), hm.Dense()),
    )
    for case, machine in zip(CASES, machines, strict=True):
        sweep = repeat(sweep_of(machine, CHAINS), 1)
        ways = {HARMONIUM: sweep, EAGER: _eager(sweep), ONE_THREAD: on_one_thread(sweep)}
        with torch.no_grad():
            compare(table, ways, 5 if quick else 15, group=case)
    return table


def _inner(layer: Layer, coupling: Coupling) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine([layer], {(0, 0): coupling})
    noise = torch.randn(coupling.weight.shape, generator=torch.Generator().manual_seed(0))
    coupling.fill_(coupling.within(0.05 * noise))
    return machine


def _restricted(layer: Layer) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine([layer, hm.Bernoulli(100)])
    hm.machine.normal_(machine, 0.05, torch.Generator().manual_seed(0))
    return machine


def _eager(sweep: Contestant) -> Contestant:
    """The same sweep as if numba were not installed, but for products and noise."""

    def eager() -> float:
        limits = choice.IN_TURN, choice.HALF_STEP
        choice.IN_TURN = choice.HALF_STEP = 1 << 60
        try:
            return sweep()
        finally:
            choice.IN_TURN, choice.HALF_STEP = limits

    return eager
