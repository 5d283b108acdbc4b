"""A sweep of TAP over many starts."""

from __future__ import annotations

from benchmarks import peers
from benchmarks.race import Table, compare, repeat, share
from benchmarks.targets import HARMONIUM, PRODUCTS
from harmonium.backends import product
from harmonium.meanfield import Plefka, iterate

VISIBLE, HIDDEN, STARTS = 784, 500, 1000


def tap(quick: bool) -> Table:
    sweeps = 20
    table = Table(
        "tap",
        f"TAP, {VISIBLE} × {HIDDEN}, {STARTS} starts, {sweeps} sweeps: one sweep",
        notes=[
            "start and convergence check included; 0.67 says that harmonium takes 1.5 times as "
            "long as its products"
        ],
    )
    machine = peers.machine(VISIBLE, HIDDEN)
    hamiltonian = machine.hamiltonian()
    v, h = peers.rows(STARTS, VISIBLE), peers.rows(STARTS, HIDDEN)
    J = hamiltonian.J[0].detach()
    squares = J.square()

    def solve() -> None:
        iterate(Plefka(hamiltonian), v, tolerance=1e-30, damping=0.0, max_sweeps=sweeps)

    def products() -> None:
        product(v, J)
        product(v, squares)
        product(h, J.t())
        product(h, squares.t())

    contestants = {HARMONIUM: share(solve, sweeps), PRODUCTS: repeat(products, sweeps)}
    return compare(table, contestants, 3 if quick else 11)
