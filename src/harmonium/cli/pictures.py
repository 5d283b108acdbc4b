"""Pictures that commands draw: the range of their greys, words for their titles, samples in training."""

from __future__ import annotations

from math import prod
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium import _random
from harmonium.chains import Gibbs, run
from harmonium.cli.coding import source_of
from harmonium.data import Rows
from harmonium.data.dataset import dense
from harmonium.machine import BoltzmannMachine, States
from harmonium.report import image_grid
from harmonium.report.hidden_units import receptive_fields
from harmonium.report.images import find_limits, is_drawable, signed_pixels
from harmonium.tables import Codec, Table
from harmonium.tasks import visible_means

Limits = tuple[float, float]

_ROWS = 200  # of the data, for the black and the white of samples in training
_FIELDS = 64  # hidden units whose receptive fields are drawn, eight lines of eight


def data_range(coding: Codec, *rows: NDArray[Any] | None) -> Limits | None:
    """The smallest and largest number of the data, which are to be black and white.

    Real units go beyond the data's numbers, and a single pixel far off would turn all others grey.

    Returns:
        None where units are discrete, whose states say what is black and white, or no data are known.
    """
    machine = coding.machine
    if all(machine.layers[l].discrete for l in machine.visible):
        return None
    known = next((x for x in rows if x is not None), None)
    if known is None:
        try:
            source, _ = source_of(machine)
            known = None if source is None else dense(coding.read(source).samples)
        except (ValueError, OSError, ImportError):  # moved since, or of another kind
            return None
    if known is None or known.dtype.kind not in "biuf":
        return None
    low, high = float(np.nanmin(known)), float(np.nanmax(known))
    return (low, high) if low < high else None


def in_words(limits: Limits | None) -> str:
    """Describes the range of the greys, for the end of a title; empty without limits."""
    return "" if limits is None else f"; black and white are the data's range, {limits[0]:g} to {limits[1]:g}"


def images_of(coding: Codec, states: Tensor) -> NDArray[Any]:
    """Visible states as rows in the units of the data, NaN where a state is NaN."""
    rows = coding.decode(states.nan_to_num())[0]
    return np.asarray(rows if isinstance(rows, np.ndarray) else rows.numbers())


@final
class SampleImages:
    """Samples of a machine in training, by chains beside those of the rule, as images.

    The chains go on from one request to the next. They have a generator of their own, so that training goes
    as it would without them.

    Args:
        machine: the machine in training.
        X: the states that it learns, of images.
        shape: (h, w) or (h, w, channels) with 1 or 3 channels.
        number: Number of chains, which begin at noise.
        sweeps: Sweeps between two requests.
        seed: Seed of the chains.
    """

    def __init__(
        self, machine: BoltzmannMachine, X: Any, shape: tuple[int, ...], number: int, sweeps: int, seed: int
    ) -> None:
        self._coding, self._shape, self._number, self._sweeps = Codec.of(machine), shape, number, sweeps
        self._noise: int | torch.Generator = seed  # training may move the machine before it is drawn from
        self._states: States | None = None
        rows = Rows.of(X, dtype=machine.dtype, missing=True)
        values = self._decode(rows.take(rows.spread(_ROWS)))
        self._limits = find_limits(values)

    @classmethod
    def of(
        cls, machine: BoltzmannMachine, X: Any, number: int, sweeps: int, seed: int
    ) -> SampleImages | None:
        """Makes the chains for data that are images; None for other data."""
        shape = source_of(machine)[1]
        images = is_drawable(shape) and not isinstance(Codec.of(machine).encoder, Table)
        return cls(machine, X, shape, number, sweeps, seed) if images else None

    def images(self, machine: BoltzmannMachine) -> NDArray[Any]:
        """Means of the pixels given the rest of each chain's state, (number, h, w, channels) in [0, 1].

        Of bit-planes, whose means are no grey levels, the states themselves.
        """
        self._noise = _random.as_generator(self._noise, machine.device)
        if self._states is None:
            self._states = machine.random_states(self._number, seed=self._noise)
        self._states = run(machine, Gibbs(), self._states, self._sweeps, seed=self._noise)
        hamiltonian, averaged = machine.hamiltonian(), self._coding.encoder.takes_means
        v = visible_means(hamiltonian, self._states) if averaged else hamiltonian.visible_states(self._states)
        low, high = self._limits
        levels = (self._decode(v) - low) / (high - low)
        return np.clip(levels, 0, 1).reshape(len(levels), *(*self._shape, 1)[:3])

    def pictures(self, machine: BoltzmannMachine) -> dict[str, NDArray[np.uint8]]:
        """Grids of the means, and of the receptive fields of the lowest hidden layer, by name."""
        found = {"samples": image_grid(np.rint(255 * self.images(machine)).astype(np.uint8))}
        width = machine.visible_width - self._coding.label_width
        if machine.hidden and width == prod(self._shape):
            W = receptive_fields(machine)[machine.hidden[0]].detach().cpu().numpy()[:_FIELDS, :width]
            found["receptive fields"] = image_grid(signed_pixels(W, (*self._shape, 1)[:3]))
        return found

    def _decode(self, v: Tensor) -> NDArray[Any]:
        """Returns visible states, or means, in the units of the data, without a label."""
        rows = v[:, : v.shape[1] - self._coding.label_width].detach().cpu().numpy()
        return np.asarray(self._coding.encoder.decode(rows), dtype=np.float64)
