"""Machines that compiled updates serve, their rows, and their noise for updates made one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium import _random
from harmonium.backends import choice, half_steps
from harmonium.layers import Layer, Theta
from harmonium.machine import join_layers
from harmonium.training import trainer

UNITS: dict[str, Any] = {
    "bernoulli": hm.Bernoulli,
    "spin": hm.Spin,
    "gaussian": hm.Gaussian,
    "gaussian with a floor": lambda n: hm.Gaussian(n, variance_floor=0.3),
    "categorical": lambda n: hm.Categorical(n, n_states=3),
}


def machine_of(
    visible: Sequence[str], hidden: str, n: int | Sequence[int], m: int, dtype: torch.dtype = torch.float64
) -> Any:
    """Returns a machine of visible layers of these kinds, of n units each, beside one hidden layer."""
    sizes = [n] * len(visible) if isinstance(n, int) else n
    layers = [UNITS[kind](size) for kind, size in zip(visible, sizes, strict=True)]
    machine = join_layers(layers, [UNITS[hidden](m)], seed=3).to(dtype)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=dtype) * 0.4)
    return machine


def rows_of(layers: Sequence[Layer], rows: int, seed: int) -> Any:
    """Returns rows that these visible layers take, not from their distribution."""
    choose, parts = np.random.default_rng(seed), list[Any]()
    for layer in layers:
        if layer.gaussian:
            parts.append(choose.normal(0.3, 1.2, (rows, layer.n_units)))
        elif layer.one_hot:
            digits = choose.integers(layer.n_states or 0, size=(rows, layer.n_units))
            parts.append(layer.from_digits(torch.from_numpy(digits)).numpy())
        else:
            low, high = layer.two_values or (0.0, 1.0)
            parts.append(np.where(choose.random((rows, layer.n_units)) < 0.4, high, low))
    return np.concatenate(parts, 1).astype(np.float64)


class Noise:
    """The noise of compiled updates, for those made one by one: each row has a stream of the update's key."""

    GAMMA, FAR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1342543DE82EF95)

    def __init__(self, draws: int) -> None:
        self._draws, self._number = draws, 0
        self._words: Any = None

    def next(self, rows: int, layer: Layer, generator: torch.Generator) -> Tensor:
        """Returns what ``layer.sample`` takes for so many rows; an update makes its draws in turn."""
        if self._number % self._draws == 0:
            self._words = _random.key(generator) + np.arange(rows, dtype=np.uint64) * self.FAR
        self._number += 1
        if layer.normal_noise:
            return torch.from_numpy(np.stack([self._normal(r, layer.n_units) for r in range(rows)]))
        half = (layer.n_units + 1) // 2
        words = self._words[:, None] + np.arange(1, half + 1, dtype=np.uint64) * self.GAMMA
        self._words = words[:, -1]
        x = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        whole = np.concatenate([x >> np.uint64(41), (x >> np.uint64(18)) & np.uint64(0x7FFFFF)], axis=1)
        return torch.from_numpy((whole[:, : layer.n_units].astype(np.float64) + 0.5) * 2.0**-23)

    def _normal(self, row: int, width: int) -> Any:
        from harmonium.backends.noise import fill_normal, room_for

        drawn, state = room_for(2 * width + 2)[: 2 * width + 2], self._words[row : row + 1]
        fill_normal(drawn[:width], drawn, state)
        return drawn[:width].astype(np.float64)


def one_by_one(monkeypatch: pytest.MonkeyPatch, noise: Noise, begun: int) -> None:
    """Lets updates be made one by one, with this noise after the first ``begun`` draws."""
    drawn = [0]
    usual = half_steps.sample_units

    def sample_units(
        kind: Layer, theta: Theta, field: Tensor, generator: torch.Generator, *more: Any
    ) -> Tensor:
        drawn[0] += 1
        if drawn[0] <= begun:
            return usual(kind, theta, field, generator, *more)
        return kind.sample(field, noise.next(len(field), kind, generator), theta)

    monkeypatch.setattr(trainer, "served", lambda *_: False)
    monkeypatch.setattr(half_steps, "sample_units", sample_units)


def serve_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serves runs of any length."""
    monkeypatch.setattr(choice, "LEAST_UPDATES", 1)
