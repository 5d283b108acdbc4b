"""What the experiments on tables share: tables, holes in them, codes of columns, a recipe for machines."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

import harmonium as hm

Holes = np.ndarray  # (rows, columns), bool


def breast_cancer() -> pd.DataFrame:
    """569 rows, 30 real columns, several of them nearly functions of others."""
    return load_breast_cancer(as_frame=True).data


def wine() -> pd.DataFrame:
    """178 rows, 13 real columns."""
    return load_wine(as_frame=True).data.astype(float)


def diabetes() -> pd.DataFrame:
    """442 rows, 9 real columns and the sex."""
    table = load_diabetes(as_frame=True, scaled=False).data.astype(float)
    return table.drop(columns="sex").assign(sex=np.where(table["sex"] > 1.5, "two", "one"))


def mixed() -> pd.DataFrame:
    """The wines with four columns of categories: the class, and three columns cut at their tertiles."""
    table, cut = wine(), ["alcohol", "hue", "proline"]
    levels = {name: pd.qcut(table[name], 3, labels=["low", "middle", "high"]).astype(str) for name in cut}
    table = table.drop(columns=cut).assign(**levels)  # columns of a kind side by side make one layer
    return table.assign(cultivar=np.array(["first", "second", "third"])[load_wine().target])


TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    "breast cancer": breast_cancer, "wine": wine, "diabetes": diabetes, "mixed": mixed,
}  # fmt: skip


def real(table: pd.DataFrame) -> np.ndarray:
    """Returns which columns are of real numbers."""
    return np.array([pd.api.types.is_numeric_dtype(dtype) for dtype in table.dtypes])


def at_random(table: pd.DataFrame, fraction: float, random: np.random.Generator) -> Holes:
    """Each cell by itself; a row keeps one cell at least."""
    holes = random.random(table.shape) < fraction
    holes[np.arange(len(table)), random.integers(0, table.shape[1], len(table))] = False
    return holes


def by_block(table: pd.DataFrame, fraction: float, random: np.random.Generator) -> Holes:
    """Half of the columns, next to each other, in twice as large a part of the rows."""
    rows, columns = table.shape
    start = random.integers(0, columns, (rows, 1))
    block = (np.arange(columns) - start) % columns < columns // 2
    lost = random.random((rows, 1)) < fraction * columns / (columns // 2)
    return block & lost


HOLES = {"at random": at_random, "by block": by_block}


def note(path: Path, settings: dict[str, Any], records: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"settings": settings, "records": records}, indent=1) + "\n")


class Quantiles:
    """A column's quantiles onto those of the standard normal distribution, by straight lines.

    Beyond the last quantiles the last lines go on, or with ``even`` lines of the whole column's slope.
    """

    def __init__(self, x: np.ndarray, knots: int, even: bool = False) -> None:
        share = (np.arange(knots) + 0.5) / knots
        self.x, first = np.unique(np.quantile(x, share), return_inverse=True)
        self.z = norm.ppf([share[first == i].mean() for i in range(len(self.x))])
        if len(self.x) == 1:
            raise ValueError("quantiles: expected a column that varies")
        if even:
            far = 10 * np.array([-1, 1])
            reach = self.x[[0, -1]] + far * self.x.std() / self.z.std()
            self.x = np.insert(reach, 1, self.x)
            self.z = np.insert(self.z[[0, -1]] + far, 1, self.z)
        self.slopes = np.diff(self.z) / np.diff(self.x)

    def segment(self, x: np.ndarray, knots: np.ndarray) -> np.ndarray:
        return np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)

    def encode(self, x: np.ndarray) -> np.ndarray:
        i = self.segment(x, self.x)
        return self.z[i] + (x - self.x[i]) * self.slopes[i]

    def decode(self, z: np.ndarray) -> np.ndarray:
        i = self.segment(z, self.z)
        return self.x[i] + (z - self.z[i]) / self.slopes[i]

    def log_slope(self, x: np.ndarray) -> np.ndarray:
        return np.log(self.slopes[self.segment(x, self.x)])


class Lateral:
    """A machine whose real columns are joined among themselves as well as to the hidden units.

    Real columns that are nearly functions of each other leave a machine without such couplings a long way to
    learn. Here a full-covariance Gaussian (by expectation-maximisation, as cells are missing) gives an affine
    map to columns without correlations, an ``hm.RBM`` learns those beside the categories, and its
    distribution, in the table's own columns, is that of a machine with an inner edge. Missing real cells are
    drawn from the Gaussian for the first fit, and from the machine for ``rounds`` - 1 more.
    """

    def __init__(self, seed: int, rounds: int = 2, **parameters: Any) -> None:
        self.seed, self.rounds = seed, rounds
        self.parameters = {"n_hidden": 20, "random_state": seed, **parameters}

    def fit(self, table: pd.DataFrame) -> Lateral:
        self.numbers = list(table.columns[real(table)])
        self.labels = [name for name in table.columns if name not in self.numbers]
        self.scale = hm.data.Standardise(table[self.numbers].mean(), table[self.numbers].std(ddof=0))
        x = self.scale.encode(table[self.numbers].to_numpy())
        self.mean, covariance = gaussian(x, ridge=best_ridge(x, self.seed))
        self.root = np.linalg.cholesky(covariance)
        drawn = completed(x, self.mean, covariance, np.random.default_rng(self.seed))
        for number in range(self.rounds):
            white = np.linalg.solve(self.root, (drawn - self.mean).T).T
            columns = pd.DataFrame(white, columns=self.numbers, index=table.index).join(table[self.labels])
            kinds = dict.fromkeys(self.numbers, "gaussian")
            self.rbm = hm.RBM(visible=kinds, **self.parameters).fit(columns)
            self.machine = self._folded()
            if not np.isnan(x).any():
                break
            if number + 1 < self.rounds:
                drawn = self._impute(table, 1).draws[0, :, : len(self.numbers)].numpy()
        return self

    def _folded(self) -> hm.BoltzmannMachine:
        """The machine of standardised columns x = centre + root u, with u the Gaussian units of the RBM."""
        machine = deepcopy(self.rbm.machine_).double()
        lines = self.rbm.encoder_.columns[: len(self.numbers)]
        centre = self.mean + self.root @ np.array([line.mean for line in lines])
        root = torch.from_numpy(self.root * np.array([line.scale for line in lines]))
        hamiltonian, first, hidden = machine.hamiltonian(), machine.visible[0], len(machine.layers) - 1
        back, at = torch.linalg.inv(root), torch.from_numpy(centre)
        J = {edge: hamiltonian.J[number].detach() for number, edge in enumerate(machine.edges)}
        linear, precision = (theta.detach() for theta in hamiltonian.thetas[first])
        joint = back.T @ (precision.unsqueeze(1) * back)
        across = back.T @ J[first, hidden]
        variance = 1 / joint.diagonal()
        edges = [(first, first), *machine.edges]
        made = hm.BoltzmannMachine(machine.layers, edges=edges, visible=machine.visible).double()
        with torch.no_grad():
            for edge, coupling in zip(made.edges, made.couplings, strict=True):
                if edge == (first, first):
                    coupling.fill_((-joint * torch.outer(variance, variance)).triu(1))
                elif edge == (first, hidden):
                    coupling.fill_(across * variance.unsqueeze(1))
                else:
                    coupling.fill_(machine.couplings[machine.edges.index(edge)].weight)
            units, above = made.layers[first], made.layers[hidden]
            units.mean.copy_((back.T @ linear + joint @ at) * variance)
            units.log_variance.copy_(variance.log())
            above.bias.sub_(across.T @ at)
        return made

    def _impute(self, table: pd.DataFrame, draws: int, sweeps: int = 100) -> hm.tasks.Imputation:
        white = table[self.numbers].assign(**dict.fromkeys(self.numbers, 0.0))
        v = torch.from_numpy(self.rbm.encoder_.encode(white.join(table[self.labels])))
        count = len(self.numbers)
        v[:, :count] = torch.from_numpy(self.scale.encode(table[self.numbers].to_numpy()))
        holes = torch.from_numpy(table[self.numbers + self.labels].isna().to_numpy())
        return hm.tasks.impute(self.machine, v, holes, draws=draws, sweeps=sweeps, seed=self.seed)

    def complete(self, table: pd.DataFrame, draws: int) -> tuple[pd.DataFrame, list[pd.DataFrame]]:
        """The table with means and most probable categories in its holes, and with draws in them."""
        done = self._impute(table, draws)
        return self._filled(table, done.mean), [self._filled(table, states) for states in done.draws]

    def sample(self, number: int, sweeps: int) -> pd.DataFrame:
        """Rows from independent chains, in which the real columns are free of each other."""
        rows = self.rbm.sample(number, sweeps=sweeps, random_state=self.seed)
        numbers = self.scale.decode(self.mean + rows[self.numbers].to_numpy() @ self.root.T)
        return pd.DataFrame(numbers, columns=self.numbers).join(rows[self.labels])

    def _filled(self, table: pd.DataFrame, states: Any) -> pd.DataFrame:
        labels = self.rbm.encoder_.decode(states)[self.labels]
        count = len(self.numbers)
        numbers = self.scale.decode(states[:, :count].numpy())
        found = pd.DataFrame(numbers, columns=self.numbers, index=table.index)
        return table.fillna(found.join(labels.set_index(table.index)))


def gaussian(x: np.ndarray, rounds: int = 50, ridge: float = 1e-4) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of standardised columns, NaN where missing, by expectation-maximisation."""
    mean, covariance = np.zeros(x.shape[1]), np.eye(x.shape[1])
    for _ in range(rounds if np.isnan(x).any() else 1):
        full, spread = _expected(x, mean, covariance)
        mean = full.mean(0)
        covariance = np.cov(full.T, ddof=0) + spread / len(x) + ridge * np.eye(len(mean))
    return mean, covariance


def best_ridge(x: np.ndarray, seed: int) -> float:
    """The ridge with which the Gaussian best fills a tenth of the cells that are there."""
    hidden = ~np.isnan(x) & (np.random.default_rng(seed).random(x.shape) < 0.1)
    holed = np.where(hidden, np.nan, x)

    def error(ridge: float) -> float:
        return float((completed(holed, *gaussian(holed, 15, ridge)) - x)[hidden].std())

    return min((1e-4, 1e-3, 1e-2, 1e-1), key=error)


def completed(
    x: np.ndarray, mean: np.ndarray, covariance: np.ndarray, random: np.random.Generator | None = None
) -> np.ndarray:
    """Rows with a draw given what they show in their holes, or without a generator with its mean."""
    return _expected(x, mean, covariance, random)[0]


def _expected(
    x: np.ndarray, mean: np.ndarray, covariance: np.ndarray, random: np.random.Generator | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The rows with their expectation (or a draw), and the sum of the covariances of what they lack."""
    full, spread = x.copy(), np.zeros_like(covariance)
    patterns, which = np.unique(np.isnan(x), axis=0, return_inverse=True)
    for number, lost in enumerate(patterns):
        rows = np.flatnonzero(which.ravel() == number)
        slope = np.linalg.solve(covariance[np.ix_(~lost, ~lost)], covariance[np.ix_(~lost, lost)])
        left = covariance[np.ix_(lost, lost)] - covariance[np.ix_(lost, ~lost)] @ slope
        found = mean[lost] + (x[np.ix_(rows, ~lost)] - mean[~lost]) @ slope
        if random is not None and lost.any():
            root = np.linalg.cholesky((left + left.T) / 2 + 1e-9 * np.eye(len(left)))
            found += random.standard_normal(found.shape) @ root.T
        full[np.ix_(rows, lost)] = found
        spread[np.ix_(lost, lost)] += len(rows) * left
    return full, spread
