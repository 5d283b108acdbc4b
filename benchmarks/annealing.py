"""Annealed importance sampling, for each temperature."""

from __future__ import annotations

from benchmarks import peers
from benchmarks.race import Table, compare, repeat
from harmonium._products import product
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
    whole = repeat(lambda: ais(machine, CHAINS, temperatures, data=X, reverse=False), 1)
    contestants = {"harmonium": lambda: whole() / temperatures}
    missing = {}
    if peers.has_rbms():
        contestants[peers.RBMS] = peers.rbms_annealing(X, HIDDEN, CHAINS, temperatures)
    else:
        missing[peers.RBMS] = peers.HOW_TO_GET_RBMS
    W, h = machine.couplings[0].weight.detach(), peers.rows(CHAINS, HIDDEN)

    def products() -> None:
        product(X, W)
        product(h, W.t())

    contestants["its own products alone"] = repeat(products, temperatures)
    return compare(table, contestants, 3 if quick else 11, {peers.RBMS: 4.0}, missing)
