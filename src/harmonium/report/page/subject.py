"""The machine of a page, with its data and samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium.data import BitPlanes, Encoder, Table
from harmonium.machine import BoltzmannMachine
from harmonium.report.page.pictures import Greys


@dataclass
class Subject:
    """A machine with its data and samples.

    Attributes:
        machine: any machine.
        encoder: of its data.
        width: columns of its states that are data; what follows them is a label.
        shape: of an image, or ().
        names: of the columns where there is no table.
        data: name of the data.
        rows: states of complete rows, (rows, visible_width), or None where no data are at hand.
        lacking: why there are none.
        training: rows that the machine was trained on, where ``rows`` are others; else None.
        samples: states for each layer, of chains from noise.
        sweeps: of these chains.
        seed: of what is drawn here.
    """

    machine: BoltzmannMachine
    encoder: Encoder
    width: int
    shape: tuple[int, ...]
    names: Sequence[str] | None
    data: str
    rows: Tensor | None
    lacking: str
    training: Tensor | None
    samples: list[Tensor]
    sweeps: int
    seed: int

    @cached_property
    def seen(self) -> Tensor:
        return self.machine.hamiltonian().seen(self.samples)

    def spread(self, most: int) -> Tensor:
        """At most so many rows, evenly spaced.

        Raises:
            ValueError: no data are at hand.
        """
        return self.given[
            torch.linspace(0, len(self.given) - 1, min(most, len(self.given)), device="cpu").long()
        ]

    @property
    def given(self) -> Tensor:
        """The rows of the data.

        Raises:
            ValueError: none are at hand.
        """
        if self.rows is None:
            raise ValueError(self.lacking)
        return self.rows

    def decoded(self, v: Tensor) -> NDArray[Any]:
        """Rows in the units of the data, without their label."""
        return np.asarray(self.encoder.decode(v[:, : self.width].cpu().numpy()))

    def estimate(self, mean: Tensor, state: Tensor) -> NDArray[Any]:
        """Means decoded; of bit-planes, whose means are no grey levels, the states."""
        return self.decoded(state if isinstance(self.encoder, BitPlanes) else mean)

    @cached_property
    def images(self) -> Greys | None:
        """The drawing of rows as images; None if they are none."""
        drawable = len(self.shape) in (2, 3) and (*self.shape, 1)[2] in (1, 3)
        if isinstance(self.encoder, Table) or not drawable:
            return None
        values = self.decoded(self.seen if self.rows is None else self.rows)
        return Greys(self.shape, values) if prod(self.shape) == values.shape[1] else None

    def greys(self) -> Greys:
        """Returns the drawing of rows as images.

        Raises:
            ValueError: its rows are no images.
        """
        if self.images is None:
            raise ValueError("the rows are no images.")
        return self.images
