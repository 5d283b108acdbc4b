"""Annealed importance sampling, for each temperature."""

from __future__ import annotations

from functools import partial

from benchmarks import peers
from benchmarks.race import Table, compare, repeat, share
from benchmarks.targets import HARMONIUM, PRODUCTS, RBMS
from harmonium.backends import product
from harmonium.likelihood import ais

VISIBLE, HIDDEN, CHAINS = 784, 500, 100


def annealing(quick: bool) -> Table:
    temperatures = 50 if quick else 200
    table = Table(
        "ais",
        f"AIS, {VISIBLE} × {HIDDEN}, {CHAINS} chains, {temperatures} temperatures: one temperature",
        notes=["the forward run alone, preparation included; harmonium also returns a standard error"],
    )
    X = peers.rows(CHAINS, VISIBLE)
    machine = peers.machine(VISIBLE, HIDDEN)
    annealed = partial(ais, machine, CHAINS, temperatures, data=X, reverse=False)
    contestants = {HARMONIUM: share(annealed, temperatures)}
    if peers.has_rbms():
        contestants[RBMS] = peers.rbms_annealing(X, HIDDEN, CHAINS, temperatures)
    W, h = machine.couplings[0].weight.detach(), peers.rows(CHAINS, HIDDEN)

    def products() -> None:
        product(X, W)
        product(h, W.t())

    contestants[PRODUCTS] = repeat(products, temperatures)
    return peers.with_missing(compare(table, contestants, 3 if quick else 11))
