"""A made-up family of proteins, whose fold is known: small data for contacts, mutations and tutorials."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium._random import as_generator, uniform
from harmonium.data.dataset import DataSet
from harmonium.sequences import ALPHABETS, align, spell

FAMILY = "family"
"""Name of the family among built-in data."""

_STRANDS, _LENGTH = 6, 8  # an antiparallel sheet, whose chain goes to and fro
_SPACING = 6.0  # Å between neighbours on the sheet, so that those across a corner (8.5) do not touch
_ANCESTORS, _ROWS = 60, 1500  # clades, and sequences; about 25 of a clade are relatives
_SWEEPS, _CHANGED = 30, 0.7  # sweeps to equilibrium, and the most sites that relatives draw again, as a share
_ENDS, _LOST = 0.15, 0.01  # share of rows whose end is cut off, and of letters that are deleted
_CLASSES = ("AILMFVWCY", "KRH", "DE", "GNPQST")  # that like water less, that are charged, others
# Energies between letters of these classes that touch, in units of kT: like seeks like, but for charges.
_ENERGIES = np.array(
    [[1.6, -0.8, -0.8, -0.4], [-0.8, -1.2, 2.2, 0.0], [-0.8, 2.2, -1.2, 0.0], [-0.4, 0.0, 0.0, 0.9]]
)
_PREFERENCE = 0.7  # deviation of what a site prefers, in kT


def protein_family(rows: int = _ROWS, seed: int | torch.Generator = 0) -> DataSet:
    """Draws a family of 48 sites: relatives that evolved under one fold, a sheet of six strands.

    Letters that touch attract or repel each other by their class (water, charge, size), and every site has
    preferences of its own. Sequences come in clades, with gaps and names as of Pfam. The fold is that of
    ``family_distances``. It stands for no protein; it shows what commands do, and where they end up.

    Args:
        rows: Number of sequences.
        seed: an int, or a ``torch.Generator`` to advance. The fold and its energies are always the same.

    Examples:
        >>> import harmonium as hm
        >>> hm.data.protein_family(10).samples.shape
        (10, 48)
    """
    generator, sites = as_generator(seed), _STRANDS * _LENGTH
    fold = _Fold()
    clades = -(-rows * _ANCESTORS // _ROWS)
    codes = 1 + (20 * _draw((clades, sites), generator)).astype(np.int64)
    for _ in range(_SWEEPS):
        codes = fold.sweep(codes, np.ones(clades), generator)
    codes = codes[np.sort((clades * _draw((rows,), generator)).astype(np.int64))]
    codes = fold.sweep(codes, _CHANGED * _draw((rows,), generator) ** 2, generator)  # many near, few far
    places, cut = np.arange(sites), (_LENGTH * _draw((rows, 2), generator)).astype(np.int64)
    cut = np.where(_draw((rows, 2), generator) < _ENDS, cut, 0)
    lost = (places < cut[:, :1]) | (places >= sites - cut[:, 1:]) | (_draw(codes.shape, generator) < _LOST)
    codes = np.where(lost, 0, codes)
    starts = 1 + (200 * _draw((rows,), generator)).astype(np.int64)
    ends = starts + (codes > 0).sum(1) - 1
    names = [f"P{k + 1:04d}/{start}-{end}" for k, (start, end) in enumerate(zip(starts, ends, strict=True))]
    alignment = align(spell(codes, "protein"), names, alphabet="protein")
    return DataSet.of(alignment.codes, None, FAMILY, alignment=alignment)


def family_distances() -> Tensor:
    """Returns the distances of the sites of ``protein_family`` in Å, (48, 48) float64; below 8 they touch.

    Examples:
        >>> import harmonium as hm
        >>> hm.data.family_distances()[0, :3]
        tensor([ 0.,  6., 12.], dtype=torch.float64)
    """
    places = _places()
    return torch.from_numpy(_SPACING * np.linalg.norm(places[:, None] - places, axis=2))


def _places() -> NDArray[np.int64]:
    """Returns the places of the sites on the sheet, (sites, 2): the chain turns at the end of a strand."""
    strand, step = np.divmod(np.arange(_STRANDS * _LENGTH), _LENGTH)
    return np.stack([strand, np.where(strand % 2 == 0, step, _LENGTH - 1 - step)], 1)


def _draw(shape: tuple[int, ...], generator: torch.Generator) -> NDArray[np.float64]:
    """Returns uniform numbers in [0, 1)."""
    return uniform(shape, generator, dtype=torch.float64).numpy()


class _Fold:
    """Energies of letters at the sites of the sheet.

    Attributes:
        fields: (sites, 20).
        pairs: between letters that touch, (20, 20).
        touching: (sites, sites) bool, neighbours along the chain left out.
    """

    def __init__(self) -> None:
        letters = ALPHABETS["protein"][1:]
        kinds = np.array(
            [next(k for k, known in enumerate(_CLASSES) if letter in known) for letter in letters]
        )
        apart = np.abs(np.subtract.outer(*[np.arange(_STRANDS * _LENGTH)] * 2))
        self.pairs = _ENERGIES[kinds][:, kinds]
        self.touching = (family_distances().numpy() < _SPACING + 1) & (apart > 1)
        numbers = _draw((_STRANDS * _LENGTH, 20, 12), as_generator(1)).sum(2) - 6  # normal, nearly
        self.fields = _PREFERENCE * numbers

    def sweep(
        self, codes: NDArray[np.int64], redrawn: NDArray[np.float64], generator: torch.Generator
    ) -> NDArray[np.int64]:
        """Returns sequences, (rows, sites) from 1, with shares of their sites, (rows,), drawn again."""
        codes = codes.copy()
        for site, touching in enumerate(self.touching):
            weights = np.repeat(self.fields[site : site + 1], len(codes), 0)
            for other in touching.nonzero()[0]:
                weights += self.pairs[codes[:, other] - 1]
            weights = np.exp(weights - weights.max(1, keepdims=True)).cumsum(1)
            drawn = 1 + (weights < weights[:, -1:] * _draw((len(codes), 1), generator)).sum(1)
            codes[:, site] = np.where(_draw((len(codes),), generator) < redrawn, drawn, codes[:, site])
        return codes
