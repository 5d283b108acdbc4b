"""Contestants of ``python -m benchmarks quality``: each trains a machine and returns it as one of harmonium.

Every run has batches of 100 rows and as many chains, one sweep an update, in float32 where the library
allows it. Each contestant starts as its authors have it; a plain loop starts at the visible units' own
frequencies, as rbms and harmonium's recipe do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, final

import numpy as np
import torch
from sklearn.neural_network import BernoulliRBM
from torch import Tensor

import harmonium as hm
from benchmarks import peers
from benchmarks.quality_sets import DataSet
from benchmarks.targets import PLAIN, RBMS

BATCH = 100
CONSTANT, LINEAR = "constant", "linear"
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
DEFAULTS, RECIPE, SKLEARN = "harmonium, defaults", "harmonium, recipe", "scikit-learn"


@final
@dataclass(frozen=True)
class Option:
    """What is chosen from the grid.

    Attributes:
        schedule: ``CONSTANT``, or ``LINEAR``: to 0 at the end of the run.
        rate: the learning rate at the start of the run.
        centred: whether the gradient is, for those who have both.
    """

    schedule: str
    rate: float
    centred: bool = False

    def __str__(self) -> str:
        return f"{self.schedule} {self.rate:g}" + (", centred" if self.centred else "")

    def at(self, step: int, total: int) -> float:
        """Returns the rate of an update, counted from 0."""
        return self.rate * (1 - step / total) if self.schedule == LINEAR else self.rate


Training = Callable[[DataSet, Option, int], hm.BoltzmannMachine]
"""Trains for so many passes over the rows."""


def recipe(data: DataSet, option: Option, passes: int) -> hm.BoltzmannMachine:
    """Trains by PCD-1 from independent columns, and averages the parameters where the rate stays."""
    machine = hm.BoltzmannMachine([data.layer(), hm.Bernoulli(data.hidden)], seed=0)
    X = data.train if data.grey is None else data.grey
    hm.machine.init_visible_biases_(machine, hm.data.Rows.of(data.train))
    rule = hm.rules.pcd(1, chains=BATCH)
    run = hm.train(
        machine,
        X,
        rule=hm.rules.centred(rule) if option.centred else rule,
        transform=None if data.grey is None else hm.data.bernoulli_binarise,
        updates=updates(data, passes),
        batch_size=BATCH,
        learning_rate=option.rate,
        schedule=option.schedule,
        averaging=0.999 if option.schedule == CONSTANT else None,
        progress=False,
    )
    return machine if run.averaged_machine is None else run.averaged_machine


def defaults(data: DataSet) -> hm.BoltzmannMachine:
    """Fits ``RBM`` with nothing said but the number of hidden units, and of sites what they are."""
    if data.sites is None:
        return hm.RBM(data.hidden, random_state=0).fit(data.train.numpy()).machine_
    sites, states = data.sites
    numbers = data.train.view(-1, sites, states).argmax(2).numpy()
    fitted = hm.RBM(data.hidden, visible="categorical", random_state=0).fit(numbers)
    machine: hm.BoltzmannMachine = fitted.machine_
    if machine.layers[0].width != data.train.shape[1]:
        raise ValueError(f"defaults: expected {states} states of every site, received {machine.layers[0]}")
    return machine


def sklearn(data: DataSet, option: Option, passes: int) -> hm.BoltzmannMachine:
    """Trains by ``fit``; where the rate falls by ``partial_fit``, which computes in float64."""
    model = BernoulliRBM(
        data.hidden, learning_rate=option.rate, batch_size=BATCH, n_iter=passes, random_state=0
    )
    if option.schedule == CONSTANT:
        model.fit(data.train.numpy())
    else:
        total = updates(data, passes)
        for step, v in enumerate(batches(data, total)):
            model.learning_rate = option.at(step, total)
            model.partial_fit(v.numpy())
    return of_parameters(data, model.components_.T, model.intercept_visible_, model.intercept_hidden_)


def rbms(data: DataSet, option: Option, passes: int) -> hm.BoltzmannMachine:
    """Trains by the body of ``rbms.training.pcd.train``, without its log file."""
    from rbms.bernoulli_bernoulli.classes import BBRBM
    from rbms.potts_bernoulli.classes import PBRBM
    from rbms.potts_bernoulli.utils import ensure_zero_sum_gauge
    from rbms.training.pcd import fit_batch_pcd

    X = data.train if data.grey is None else data.grey
    if data.sites is not None:
        X = data.train.view(-1, *data.sites).argmax(2).float()
    total = updates(data, passes)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(0)
        kind = BBRBM if data.sites is None else PBRBM
        model = kind.init_parameters(data.hidden, SimpleNamespace(data=X), torch.device("cpu"), torch.float32)
        model.init_grad()
        weights = torch.ones(len(X))
        optimizer = torch.optim.SGD(model.parameters(), lr=option.rate, maximize=True)
        chains = model.init_chains(num_samples=BATCH)
        for step in range(total):
            indices = torch.randperm(len(X))[:BATCH]
            v = X[indices] if data.grey is None else _drawn(X[indices], None)
            optimizer.param_groups[0]["lr"] = option.at(step, total)
            optimizer.zero_grad(set_to_none=False)
            chains, _ = fit_batch_pcd(
                (v, weights[indices]), chains, model, gibbs_steps=1, beta=1.0, centered=option.centred
            )
            optimizer.step()
            if data.sites is not None:
                ensure_zero_sum_gauge(model)
    return of_parameters(data, model.weight_matrix.flatten(0, -2), model.vbias, model.hbias)


def plain(data: DataSet, option: Option, passes: int) -> hm.BoltzmannMachine:
    """Trains by PCD-1 as one writes it down in torch, with products in place."""
    generator = torch.Generator().manual_seed(0)
    W = 0.01 * torch.randn(data.train.shape[1], data.hidden, generator=generator)
    frequency = data.train.mean(0).clamp(1e-4, 1 - 1e-4)
    b = frequency.logit() if data.sites is None else frequency.log()
    c = torch.zeros(data.hidden)
    h = torch.bernoulli(torch.full((BATCH, data.hidden), 0.5), generator=generator)
    total = updates(data, passes)
    with torch.no_grad():
        for step, v in enumerate(batches(data, total)):
            rate = option.at(step, total) / BATCH
            mean = torch.sigmoid(torch.addmm(c, v, W))
            field = torch.addmm(b, h, W.t())
            if data.sites is None:
                x = torch.bernoulli(torch.sigmoid(field), generator=generator)
            else:
                probabilities = torch.softmax(field.view(-1, data.sites[1]), 1)
                drawn = torch.multinomial(probabilities, 1, generator=generator)
                x = torch.zeros_like(probabilities).scatter_(1, drawn, 1.0).view(BATCH, -1)
            free = torch.sigmoid(torch.addmm(c, x, W))
            h = torch.bernoulli(free, generator=generator)
            W.addmm_(v.t(), mean, alpha=rate).addmm_(x.t(), free, alpha=-rate)
            b.add_(v.sum(0), alpha=rate).sub_(x.sum(0), alpha=rate)
            c.add_(mean.sum(0), alpha=rate).sub_(free.sum(0), alpha=rate)
    return of_parameters(data, W, b, c)


def updates(data: DataSet, passes: int) -> int:
    """Returns how many updates of ``BATCH`` rows so many passes are."""
    return passes * len(data.train) // BATCH


def batches(data: DataSet, total: int) -> Iterator[Tensor]:
    """Yields so many batches of rows in a new order every pass, of grey levels with pixels drawn anew."""
    generator = torch.Generator().manual_seed(1)
    X = data.train if data.grey is None else data.grey
    order, begun = torch.randperm(len(X), generator=generator), 0
    for _ in range(total):
        if begun + BATCH > len(X):
            order, begun = torch.randperm(len(X), generator=generator), 0
        v = X[order[begun : begun + BATCH]]
        yield v if data.grey is None else _drawn(v, generator)
        begun += BATCH


def _drawn(grey: Tensor, generator: torch.Generator | None) -> Tensor:
    return (torch.rand(grey.shape, generator=generator) < grey).float()


def of_parameters(data: DataSet, W: Any, visible: Any, hidden: Any) -> hm.BoltzmannMachine:
    """Returns the machine with a peer's parameters: p(v, h) ∝ exp(b·v + c·h + vᵀWh).

    Args:
        data: says what the visible units are. Parameters of a machine of 0/1 units, learnt from one-hot
            sites, are taken for those of categorical units: its distribution given one state a site.
        W: (width, hidden).
        visible: biases b, (width,) or (sites, states).
        hidden: biases c, (hidden,).
    """
    machine = hm.BoltzmannMachine([data.layer(), hm.Bernoulli(data.hidden)])
    parts = {
        "couplings.0.weight": W,
        "layers.0.bias": visible,
        "layers.1.bias": hidden,
    }
    parameters = dict(machine.named_parameters())
    with torch.no_grad():
        for name, values in parts.items():
            parameter = parameters[name]
            parameter.copy_(torch.as_tensor(np.asarray(values)).reshape(parameter.shape))
    return machine


CHOOSING: dict[str, Training] = {RECIPE: recipe, SKLEARN: sklearn, RBMS: rbms, PLAIN: plain}
CONTESTANTS = (RECIPE, SKLEARN, RBMS, PLAIN, DEFAULTS)


def grid(contestant: str) -> tuple[Option, ...]:
    """Returns the settings that a contestant chooses from: all that it can use."""
    gradients = (True, False) if contestant in (RECIPE, RBMS) else (False,)
    return tuple(
        Option(schedule, rate, centred)
        for schedule in (LINEAR, CONSTANT)
        for rate in RATES
        for centred in gradients
    )


def available() -> list[str]:
    """Returns the contestants that can take part: rbms only where it is installed."""
    return [name for name in CONTESTANTS if name != RBMS or peers.has_rbms()]


def warm_up(contestant: str, data: DataSet) -> None:
    """Makes 200 updates of a few rows, so that no run is charged for what a process does once."""
    few = 2 * BATCH
    cut = replace(data, train=data.train[:few], grey=None if data.grey is None else data.grey[:few])
    training = CHOOSING.get(contestant, recipe)  # the defaults run the code of the recipe
    for schedule in (CONSTANT, LINEAR):
        training(cut, Option(schedule, 0.001), 100)
