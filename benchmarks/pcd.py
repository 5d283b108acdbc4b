"""A whole update of persistent contrastive divergence."""

from __future__ import annotations

import torch

from benchmarks import peers
from benchmarks.race import Table, compare, on_one_thread, repeat
from benchmarks.targets import HARMONIUM, ONE_THREAD, PLAIN, PRODUCTS, RBMS, SKLEARN

VISIBLE, HIDDEN = 784, 500


def pcd_1_small(quick: bool) -> Table:
    return _pcd("pcd-1-small", quick, batch=100, chains=100, k=1, updates=100)


def pcd_1_large(quick: bool) -> Table:
    return _pcd("pcd-1-large", quick, batch=1000, chains=1000, k=1, updates=40)


def pcd_10(quick: bool) -> Table:
    return _pcd("pcd-10", quick, batch=100, chains=1000, k=10, updates=6)


def _pcd(name: str, quick: bool, *, batch: int, chains: int, k: int, updates: int) -> Table:
    table = Table(name, f"PCD-{k}, {VISIBLE} × {HIDDEN}, batch {batch}, {chains} chains: one update")
    X = peers.rows(10_000, VISIBLE)
    size = (HIDDEN, batch, chains, k, updates)
    contestants = {HARMONIUM: peers.harmonium_training(X, *size)}
    if k == 1 and batch == chains:  # all that scikit-learn has
        contestants[SKLEARN] = peers.sklearn_fit(X, HIDDEN, batch, updates)
    if peers.has_rbms():
        contestants[RBMS] = peers.rbms_training(X, *size)
    contestants[PLAIN] = peers.plain_torch(X, *size)
    if batch == chains == 1000 and torch.get_num_threads() > 1:
        contestants[ONE_THREAD] = on_one_thread(contestants[HARMONIUM])
    products = peers.update_products(VISIBLE, HIDDEN, batch, chains, k)
    contestants[PRODUCTS] = repeat(products, updates)
    return peers.with_missing(compare(table, contestants, 3 if quick else 9))
