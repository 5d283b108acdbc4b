"""Data sets of ``python -m benchmarks quality``: rows to learn, rows held out, and how far to train."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor

import harmonium as hm
from harmonium.layers import Layer


@final
@dataclass(frozen=True)
class Stage:
    """Runs of one length.

    Attributes:
        passes: over the rows that are learnt.
        options: how many of a contestant's pairs of schedule and rate still take part, the best of the stage
            before; None: all of the grid.
        temperatures: of annealed importance sampling; few will do to choose settings.
    """

    passes: int
    options: int | None
    temperatures: int


@final
@dataclass(frozen=True)
class DataSet:
    """Rows of one kind, split into those that are learnt and those that are held out.

    Attributes:
        name: as ``--only`` takes it.
        title: of its figure and table.
        layer: makes the visible layer.
        hidden: number of hidden units.
        train: (rows, width) states.
        test: (rows, width) states, which no contestant sees.
        grey: (rows, width) probabilities in [0, 1] that ``train`` was drawn from, or None.
        stages: from short to long.
        targets: nats; the time to each is reported.
        chains: of annealed importance sampling.
        notes: lines below the table.
    """

    name: str
    title: str
    layer: Callable[[], Layer]
    hidden: int
    train: Tensor
    test: Tensor
    grey: Tensor | None
    stages: tuple[Stage, ...]
    targets: tuple[float, ...]
    chains: int
    notes: tuple[str, ...]

    @property
    def sites(self) -> tuple[int, int] | None:
        """Categorical units and states of each, or None where units are 0 or 1."""
        layer = self.layer()
        return (layer.n_units, layer.columns_per_unit) if isinstance(layer, hm.Categorical) else None


def digits() -> DataSet:
    """Digits of 8 × 8 pixels at a threshold; the machine is 64 × 100."""
    X = torch.from_numpy(hm.data.threshold(hm.data.digits()[0])).float()
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))
    train, test = X[order[:1500]], X[order[1500:]]
    return DataSet(
        "digits",
        "8×8 digits, 64×100",
        lambda: hm.Bernoulli(64),
        100,
        train,
        test,
        None,
        tuple(
            Stage(passes, options, 1000)
            for passes, options in ((20, None), (60, None), (200, 4), (600, 2), (2000, 1))
        ),
        (-18.0, -17.0, -16.5),
        100,
        (f"pixels 0 or 1 at a threshold; {len(train):,} rows learnt, {len(test)} held out",),
    )


def mnist() -> DataSet:
    """MNIST by Bernoulli draws, as in ``experiments/mnist_rbm.py``; the machine is 784 × 500.

    Raises:
        FileNotFoundError: no files of MNIST; see ``harmonium.data.read``.
    """
    grey = np.asarray(hm.data.read("mnist").samples)
    test = hm.data.bernoulli_binarise(np.asarray(hm.data.read("mnist-test").samples), 1)
    train = hm.data.bernoulli_binarise(grey, 0)
    return DataSet(
        "mnist",
        "MNIST, 784×500",
        lambda: hm.Bernoulli(784),
        500,
        torch.from_numpy(train).float(),
        torch.from_numpy(test).float(),
        torch.from_numpy(grey).float() / 255,
        (
            Stage(1, None, 300),
            Stage(5, 2, 1000),
            Stage(20, 1, 3000),
            Stage(60, 1, 3000),
            Stage(100, 1, 3000),
        ),
        (-88.0, -87.0, -86.0),
        100,
        (
            "pixels are Bernoulli draws with the grey level as probability, as in "
            f"`experiments/mnist_rbm.py`; {len(train):,} rows learnt, {len(test):,} held out, drawn once",
            "training pixels are drawn anew at every update by whoever is given batches; "
            "scikit-learn's `fit` and harmonium's defaults get one draw",
        ),
    )


def rna() -> DataSet:
    """Aligned sequences of the RNA family RF00379, 136 sites of 5 states; 100 hidden units.

    Raises:
        FileNotFoundError: no ``rf00379/split.npz`` in the folders of data.
    """
    variable = os.environ.get("HARMONIUM_DATA")
    folders = [Path(variable)] if variable else []
    folders.append(Path(__file__).parents[2] / "shared" / "data")
    path = next((each for folder in folders if (each := folder / "rf00379" / "split.npz").exists()), None)
    if path is None:
        raise FileNotFoundError(
            f"rf00379/split.npz: expected it in {' or '.join(map(str, folders))}, found none; "
            "set HARMONIUM_DATA to the folder that holds rf00379"
        )
    with np.load(path) as split:
        train, test = (one_hot(torch.from_numpy(split[key]), 5) for key in ("train", "validation"))
    return DataSet(
        "rna",
        "RNA family RF00379, 136 sites of 5 states × 100",
        lambda: hm.Categorical(136, 5),
        100,
        train,
        test,
        None,
        (Stage(10, None, 300), Stage(40, 3, 1000), Stage(160, 1, 1000), Stage(600, 1, 1000)),
        (-105.0, -100.0, -95.0),
        50,
        (
            f"the family's usual split, every row alike: {len(train):,} rows learnt, {len(test)} held out",
            "scikit-learn has no categorical units: it learns the one-hot columns as 0/1, and is evaluated "
            "as the distribution of its machine given one state a site",
        ),
    )


def quick() -> DataSet:
    """Bars and stripes, and a machine so small that its likelihood is exact: to see that everything runs."""
    X = torch.as_tensor(hm.data.bars_and_stripes()).float().repeat(8, 1)
    return DataSet(
        "quick",
        "bars and stripes, 16×8",
        lambda: hm.Bernoulli(16),
        8,
        X,
        X,
        X,
        (Stage(20, 2, 10), Stage(40, 1, 10)),
        (-11.0, -1.0),
        10,
        (),
    )


def quick_sites() -> DataSet:
    """Sites of three states for the same purpose."""
    numbers = torch.randint(3, (60, 4), generator=torch.Generator().manual_seed(0))
    X = one_hot(numbers, 3)
    return DataSet(
        "quick-sites",
        "four sites of three states × 5",
        lambda: hm.Categorical(4, 3),
        5,
        X,
        X,
        None,
        (Stage(100, 1, 10),),
        (-5.0,),
        10,
        (),
    )


def one_hot(states: Tensor, count: int) -> Tensor:
    """Returns (rows, sites) numbers of states as float32 (rows, sites * count)."""
    return torch.nn.functional.one_hot(states.long(), count).flatten(1).float()


SETS: dict[str, Callable[[], DataSet]] = {"digits": digits, "rna": rna, "mnist": mnist}
QUICK: dict[str, Callable[[], DataSet]] = {"quick": quick, "quick-sites": quick_sites}
