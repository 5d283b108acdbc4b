"""Machines that are graphs of layers, small enough to enumerate, with random parameters."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import harmonium as hm

from .graph_oracle import GraphOracle

Bernoulli, Spin, Categorical, Gaussian = hm.Bernoulli, hm.Spin, hm.Categorical, hm.Gaussian


def _lattice(height: int, width: int) -> Tensor:
    """Which sites of a lattice with open ends are neighbours."""
    place = torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij"), -1).view(
        -1, 2
    )
    return (place.unsqueeze(1) - place).abs().sum(-1) == 1


def _mask(rows: int, columns: int, seed: int) -> Tensor:
    return torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed)) < 0.6


GRAPHS: dict[str, Callable[[], hm.BoltzmannMachine]] = {
    "two visible kinds": lambda: hm.BoltzmannMachine(
        [Bernoulli(4), Categorical(1, 3), Spin(3)], edges=[(0, 2), (1, 2)], visible=[0, 1]
    ),
    "a Gaussian and a Bernoulli table": lambda: hm.BoltzmannMachine(
        [Gaussian(2), Bernoulli(3), Bernoulli(4)], edges=[(0, 2), (1, 2)], visible=[0, 1]
    ),
    "three visible kinds": lambda: hm.BoltzmannMachine(
        [Gaussian(2), Bernoulli(2), Categorical(2, 3), Spin(3)],
        edges=[(0, 3), (1, 3), (2, 3)],
        visible=[0, 1, 2],
    ),
    "hidden layer in the middle": lambda: hm.BoltzmannMachine(
        [Bernoulli(3), Spin(3), Categorical(1, 3)], edges=[(0, 1), (1, 2)], visible=[2, 0]
    ),
    "label on top of a deep machine": lambda: hm.BoltzmannMachine(
        [Bernoulli(4), Bernoulli(3), Bernoulli(3), Categorical(1, 3)],
        edges=[(0, 1), (1, 2), (2, 3)],
        visible=[0, 3],
    ),
    "fully visible spins": lambda: hm.BoltzmannMachine([Spin(7)], edges=[(0, 0)]),
    "fully visible Potts": lambda: hm.BoltzmannMachine([Categorical(4, 3)], edges=[(0, 0)]),
    "spins on a lattice": lambda: hm.BoltzmannMachine([Spin(9)], edges={(0, 0): hm.Masked(_lattice(3, 3))}),
    "semi-restricted": lambda: hm.BoltzmannMachine([Bernoulli(5), Spin(3)], edges=[(0, 0), (0, 1)]),
    "semi-restricted and sparse": lambda: hm.BoltzmannMachine(
        [Spin(6), Spin(4)], edges={(0, 0): hm.Masked(_mask(6, 6, 0)), (0, 1): hm.Masked(_mask(6, 4, 1))}
    ),
    "lateral hidden units": lambda: hm.BoltzmannMachine([Bernoulli(4), Spin(4)], edges=[(0, 1), (1, 1)]),
    "spins on a lattice, by pair": lambda: hm.BoltzmannMachine(
        [Spin(9)], edges={(0, 0): hm.Sparse(_lattice(3, 3).triu().nonzero())}
    ),
    "Potts units, by pair": lambda: hm.BoltzmannMachine(
        [Categorical(4, 3)], edges={(0, 0): hm.Sparse([(0, 1), (3, 1), (2, 3), (0, 3)])}
    ),
    "semi-restricted, by pair": lambda: hm.BoltzmannMachine(
        [Spin(6), Categorical(2, 3)],
        edges={(0, 0): hm.Sparse([(0, 1), (5, 2), (2, 0)]), (0, 1): hm.Sparse(_mask(6, 2, 1).nonzero())},
    ),
    "Gaussian units, by pair": lambda: hm.BoltzmannMachine(
        [Gaussian(3), Bernoulli(4)], edges={(0, 1): hm.Sparse(_mask(3, 4, 2).nonzero())}
    ),
    "windows of an image": lambda: hm.BoltzmannMachine(
        [Bernoulli(9), Bernoulli(4)], edges={(0, 1): hm.Local((3, 3), 2)}
    ),
    "filters over an image": lambda: hm.BoltzmannMachine(
        [Spin(6), Bernoulli(4)], edges={(0, 1): hm.Local((2, 3), 2, filters=2)}
    ),
    "filters over Gaussian units, and a layer on top": lambda: hm.BoltzmannMachine(
        [Gaussian(6), Categorical(2, 2), Spin(2)],
        edges={(0, 1): hm.Local((2, 3), (2, 2), filters=1), (1, 2): hm.Dense()},
    ),
    "a triangle of layers": lambda: hm.BoltzmannMachine(
        [Bernoulli(3), Spin(3), Bernoulli(3)], edges=[(0, 1), (0, 2), (1, 2)]
    ),
    "four colours": lambda: hm.BoltzmannMachine(
        [Bernoulli(3), Spin(2), Bernoulli(2), Categorical(1, 3)],
        edges=[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)],
        visible=[0, 1],
    ),
    "two hidden layers beside each other": lambda: hm.BoltzmannMachine(
        [Bernoulli(4), Spin(3), Categorical(2, 3)], edges=[(0, 1), (0, 2)]
    ),
    "layers skipped": lambda: hm.BoltzmannMachine(
        [Bernoulli(3), Bernoulli(3), Spin(3), Bernoulli(2)], edges=[(0, 1), (1, 2), (0, 3), (2, 3)]
    ),
    "hidden layers at the ends of a path": lambda: hm.BoltzmannMachine(
        [Spin(3), Bernoulli(3), Spin(3), Categorical(1, 3)], edges=[(0, 1), (1, 2), (2, 3)], visible=[1, 2]
    ),
    "a hidden layer on a triangle": lambda: hm.BoltzmannMachine(
        [Bernoulli(3), Spin(3), Bernoulli(2), Spin(3)],
        edges=[(0, 1), (0, 2), (1, 2), (1, 3)],
        visible=[0, 1],
    ),
}
"""By name; each call makes a new machine."""


def make(name: str, scale: float = 0.6, dtype: torch.dtype = torch.float64) -> hm.BoltzmannMachine:
    """The machine of that name with parameters N(0, scale²)."""
    return with_drawn_parameters(GRAPHS[name]().to(dtype), scale)


@torch.no_grad()
def with_drawn_parameters(machine: hm.BoltzmannMachine, scale: float) -> hm.BoltzmannMachine:
    """Fills all parameters with draws of N(0, scale²), alike for like machines; returns the machine."""
    generator = torch.Generator().manual_seed(5)
    for layer in machine.layers:
        for p in layer.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=generator, dtype=machine.dtype))
    for coupling in machine.couplings:
        W = scale * torch.randn(coupling.weight.shape, generator=generator, dtype=machine.dtype)
        coupling.fill_(coupling.within(W))
    return machine


def oracle_of(machine: hm.BoltzmannMachine) -> GraphOracle:
    """The oracle's view: learnable parameters and which entries are joined, nothing that was computed."""
    couplings = [SimpleNamespace(weight=_weights(each), mask=each.joined) for each in machine.couplings]
    layers, edges, visible = list(machine.layers), list(machine.edges), machine.visible
    oracle = GraphOracle(SimpleNamespace(layers=layers, edges=edges, visible=visible, couplings=couplings))
    patterns = {f"couplings.{n}.weight": each for n, each in enumerate(machine.couplings) if each.sparsity}
    tied = {
        f"couplings.{n}.weight": each
        for n, each in enumerate(machine.couplings)
        if isinstance(each, hm.Local) and each.filters
    }
    if patterns or tied:
        whole = oracle.gradient

        def gradient(*arguments: Any, **named: Any) -> dict[str, Tensor]:
            made = whole(*arguments, **named)
            for name, coupling in patterns.items():
                assert coupling.sparsity is not None
                made[name] = coupling.sparsity.gather(made[name]).view_as(coupling.weight)
            for name, local in tied.items():
                made[name] = mean_over_copies(made[name], local)
            return made

        oracle.gradient = gradient  # type: ignore[method-assign]
    return oracle


def mean_over_copies(values: Tensor, local: hm.Local) -> Tensor:
    """Every filter's weights as the mean over the units of its map, by a loop over all of them."""
    assert local.joined is not None and local.filters is not None
    out = torch.zeros_like(values)
    columns = values.shape[1] // (local.filters * local.copies)  # of a unit
    for place in range(local.filters * columns):
        start, state = place // columns * local.copies * columns, place % columns
        own = [start + copy * columns + state for copy in range(local.copies)]
        windows = [local.joined[:, column].nonzero().flatten() for column in own]
        mean = torch.stack([values[w, column] for w, column in zip(windows, own, strict=True)]).mean(0)
        for window, column in zip(windows, own, strict=True):
            out[window, column] = mean
    return out


def _weights(coupling: hm.couplings.Coupling) -> Tensor:
    """W with those of a pair in a layer above the diagonal."""
    if coupling.sparsity is None:
        return coupling.weight
    W = coupling.matrix().detach()
    return W.triu() if coupling.inner else W


def data_for(machine: hm.BoltzmannMachine, rows: int, seed: int = 1) -> Tensor:
    """Noise of every visible layer, side by side."""
    generator = torch.Generator().manual_seed(seed)
    return machine.hamiltonian().visible_states(machine.random_states(rows, seed=generator)).detach()


def holes(machine: hm.BoltzmannMachine, v: Tensor, seed: int = 3) -> Tensor:
    """The rows with some of their units not observed; the first row complete, the second not seen at all."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for l, x in machine.split(v).items():
        layer = machine.layers[l]
        missing = torch.rand(len(v), layer.n_units, generator=generator) < 0.5
        missing[0], missing[1] = False, True
        parts.append(x.masked_fill(missing.repeat_interleave(layer.width // layer.n_units, 1), torch.nan))
    return torch.cat(parts, -1)
