"""The contestants of a training update and of annealing, each used as its authors mean it to be used."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.neural_network import BernoulliRBM
from torch import Tensor

import harmonium as hm
from benchmarks.race import Contestant, Row, Table, now, repeat, share
from benchmarks.targets import RBMS
from harmonium.backends import product

LEARNING_RATE = 0.01
HOW_TO_GET_RBMS = "not installed; python -m pip install --no-deps -r benchmarks/requirements.txt"


def has_rbms() -> bool:
    """Whether rbms and what it imports are there."""
    return all(importlib.util.find_spec(name) is not None for name in ("rbms", "tqdm", "h5py"))


def with_missing(table: Table) -> Table:
    """The table with a row for rbms, where it could not take part."""
    if not has_rbms():
        table.rows.append(Row(RBMS))
        table.notes.append(f"{RBMS}: {HOW_TO_GET_RBMS}")
    return table


def rows(count: int, width: int) -> Tensor:
    """Random binary rows with as many ones as handwritten digits have."""
    generator = torch.Generator().manual_seed(1)
    return (torch.rand(count, width, generator=generator) < 0.13).float()


def machine(visible: int, hidden: int) -> hm.BoltzmannMachine:
    """A Bernoulli machine with small random couplings."""
    return hm.BoltzmannMachine([hm.Bernoulli(visible), hm.Bernoulli(hidden)], seed=0)


class Stopwatch:
    """A callback of ``hm.train`` that leaves out the first and the last update, with what a run does once."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def __call__(self, update: object) -> None:
        self.marks.append(now())

    def seconds(self) -> float:
        """Mean time of the others."""
        return (self.marks[-2] - self.marks[0]) / (len(self.marks) - 2)


def harmonium_training(X: Tensor, hidden: int, batch: int, chains: int, k: int, updates: int) -> Contestant:
    """Whole updates of PCD-k by ``hm.train``."""
    return training(machine(X.shape[1], hidden), X, hm.rules.pcd(k, chains), batch, updates)


def training(
    trained: hm.BoltzmannMachine, X: Tensor, rule: hm.learning.Rule, batch: int, updates: int, **settings: Any
) -> Contestant:
    """Whole updates of ``hm.train``; every call goes on with the machine of the last.

    Of several processes the first takes the time.
    """

    def contestant() -> float:
        stopwatch = Stopwatch()
        hm.train(
            trained,
            X,
            rule=rule,
            updates=updates + 2,
            batch_size=batch,
            learning_rate=LEARNING_RATE,
            record_every=100,  # as in a run of the usual length
            callbacks=[stopwatch],
            **settings,
        )
        return stopwatch.seconds() if stopwatch.marks else 0.0

    return contestant


def sklearn_fit(X: Tensor, hidden: int, batch: int, updates: int) -> Contestant:
    """``fit`` less its preparation: PCD-1 in float32, with as many chains as the batch has rows."""
    data = _repeated(X, batch * updates)
    model = BernoulliRBM(hidden, learning_rate=LEARNING_RATE, batch_size=batch, random_state=0)

    def seconds(epochs: int) -> float:
        start = now()
        model.set_params(n_iter=epochs).fit(data)
        return now() - start

    return lambda: (seconds(1) - seconds(0)) / updates


def _repeated(X: Tensor, count: int) -> Any:
    """So many rows, over and over where there are fewer."""
    return np.resize(X.numpy(), (count, X.shape[1]))


def rbms_training(X: Tensor, hidden: int, batch: int, chains: int, k: int, updates: int) -> Contestant:
    """The body of ``rbms.training.pcd.train``, without its log file, and without centring (as the others)."""
    from rbms.training.pcd import fit_batch_pcd

    model = _rbms_model(X, hidden)
    model.init_grad()
    weights = torch.ones(len(X))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, maximize=True)
    state = model.init_chains(num_samples=chains)

    @torch.no_grad()
    def update() -> None:
        nonlocal state
        indices = torch.randperm(len(X))[:batch]
        optimizer.zero_grad(set_to_none=False)
        state, _ = fit_batch_pcd(
            (X[indices], weights[indices]), state, model, gibbs_steps=k, beta=1.0, centered=False
        )
        optimizer.step()

    return repeat(update, updates)


def rbms_annealing(X: Tensor, hidden: int, chains: int, temperatures: int) -> Contestant:
    """``rbms.partition_function.ais``, for each temperature."""
    from rbms.partition_function.ais import compute_partition_function_ais

    model = _rbms_model(X, hidden)
    anneal = torch.no_grad()(
        partial(compute_partition_function_ais, num_chains=chains, num_beta=temperatures + 1, params=model)
    )
    return share(anneal, temperatures)


def _rbms_model(X: Tensor, hidden: int) -> Any:
    from rbms.bernoulli_bernoulli.classes import BBRBM

    initial = machine(X.shape[1], hidden)
    return BBRBM(
        weight_matrix=initial.couplings[0].weight.detach(),
        vbias=torch.zeros(X.shape[1]),
        hbias=torch.zeros(hidden),
    )


def plain_torch(X: Tensor, hidden: int, batch: int, chains: int, k: int, updates: int) -> Contestant:
    """The update as one writes it down in torch, with ``torch.bernoulli`` and products in place."""
    generator = torch.Generator().manual_seed(0)
    initial = machine(X.shape[1], hidden)
    W = initial.couplings[0].weight.detach().clone()
    b, c = torch.zeros(X.shape[1]), torch.zeros(hidden)
    h = torch.bernoulli(torch.full((chains, hidden), 0.5), generator=generator)
    positive, negative = LEARNING_RATE / batch, LEARNING_RATE / chains

    @torch.no_grad()
    def update() -> None:
        nonlocal h
        v = X[torch.randperm(len(X), generator=generator)[:batch]]
        mean = torch.sigmoid(torch.addmm(c, v, W))
        for _ in range(k):
            x = torch.bernoulli(torch.sigmoid(torch.addmm(b, h, W.t())), generator=generator)
            free = torch.sigmoid(torch.addmm(c, x, W))
            h = torch.bernoulli(free, generator=generator)
        W.addmm_(v.t(), mean, alpha=positive).addmm_(x.t(), free, alpha=-negative)
        b.add_(v.sum(0), alpha=positive).sub_(x.sum(0), alpha=negative)
        c.add_(mean.sum(0), alpha=positive).sub_(free.sum(0), alpha=negative)

    return repeat(update, updates)


def update_products(visible: int, hidden: int, batch: int, chains: int, k: int) -> Callable[[], None]:
    """The matrix products of one update of PCD-k and nothing else, by the library that was chosen.

    Harmonium itself may take fewer digits for some of them than float32 has, and is then faster.
    """
    W = machine(visible, hidden).couplings[0].weight.detach()
    v, x = rows(batch, visible), rows(chains, visible)
    mean, h = rows(batch, hidden), rows(chains, hidden)

    def products() -> None:
        product(v, W)
        for _ in range(k):
            product(h, W.t())
            product(x, W)
        product(v.t(), mean)
        product(x.t(), h)

    return products
