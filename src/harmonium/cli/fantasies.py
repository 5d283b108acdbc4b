"""Samples of a machine in training, as images."""

from __future__ import annotations

from math import prod
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from harmonium import _random
from harmonium.chains import Gibbs, run
from harmonium.cli.beginning import Beginning
from harmonium.cli.coding import codec_of, source_of
from harmonium.cli.evaluate import spread
from harmonium.data import BitPlanes, Rows, Table
from harmonium.machine import BoltzmannMachine, States
from harmonium.report import image_grid
from harmonium.report.receptive_fields import receptive_fields, signed_pixels
from harmonium.tasks.impute import visible_means

_ROWS = 200  # of the data, for the black and the white
_FIELDS = 64


@final
class Fantasies:
    """Chains beside those of the rule, which go on from one request to the next.

    They have a generator of their own, so that training goes as it would without them.

    Args:
        beginning: of the training, whose rows are images.
        shape: (h, w) or (h, w, channels) with 1 or 3 channels.
        number: of chains, from noise.
        sweeps: between two requests.
        seed: of the chains.
    """

    def __init__(
        self, beginning: Beginning, shape: tuple[int, ...], number: int, sweeps: int, seed: int
    ) -> None:
        machine = beginning.machine
        coding = codec_of(machine)
        self._encoder, self._width = coding.encoder, machine.visible_width - coding.label_width
        self._shape = (*shape, 1)[:3]
        self._number, self._sweeps = number, sweeps
        self._noise: int | torch.Generator = seed  # training may move the machine before it is drawn from
        self._states: States | None = None
        rows = spread(Rows.of(beginning.X, dtype=machine.dtype, missing=True), _ROWS)
        values = self._decoded(rows)
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        self._low, self._span = (0.0, 1.0) if low >= 0 and high <= 1 else (low, (high - low) or 1.0)

    @classmethod
    def of(cls, beginning: Beginning, number: int, sweeps: int, seed: int) -> Fantasies | None:
        """Makes the chains for data that are images; None for other data."""
        coding, shape = codec_of(beginning.machine), source_of(beginning.machine)[1]
        if len(shape) not in (2, 3) or (*shape, 1)[2] not in (1, 3) or isinstance(coding.encoder, Table):
            return None
        return cls(beginning, shape, number, sweeps, seed)

    def images(self, machine: BoltzmannMachine) -> NDArray[Any]:
        """Means of the pixels given the rest of each chain's state, (number, h, w, channels) in [0, 1].

        Of bit-planes, whose means are no grey levels, the states themselves.
        """
        self._noise = _random.as_generator(self._noise, machine.device)
        if self._states is None:
            self._states = machine.random_states(self._number, seed=self._noise)
        self._states = run(machine, Gibbs(), self._states, self._sweeps, seed=self._noise)
        hamiltonian = machine.hamiltonian()
        planes = isinstance(self._encoder, BitPlanes)
        v = hamiltonian.seen(self._states) if planes else visible_means(hamiltonian, self._states)
        levels = (self._decoded(v) - self._low) / self._span
        return np.clip(levels, 0, 1).reshape(len(levels), *self._shape)

    def pictures(self, machine: BoltzmannMachine) -> dict[str, NDArray[np.uint8]]:
        """Grids of the means, and of the receptive fields of the lowest hidden layer, by name."""
        found = {"samples": image_grid(np.rint(255 * self.images(machine)).astype(np.uint8))}
        fields = receptive_fields(machine)
        if machine.hidden and self._width == prod(self._shape):
            W = fields[machine.hidden[0]].detach().cpu().numpy()[:_FIELDS, : self._width]
            found["receptive fields"] = image_grid(signed_pixels(W, self._shape))
        return found

    def _decoded(self, v: Any) -> NDArray[Any]:
        return np.asarray(self._encoder.decode(v[:, : self._width].detach().cpu().numpy()), dtype=np.float64)
