"""Densities of tables: machines beside a Gaussian, mixtures of Gaussians and independent columns.

    python experiments/table_density.py

A quarter of the rows is the test set, 5 splits. Nats a test row in the table's own units: every density is
one of standardised columns, as they are or after the transform of Yeo & Johnson (2000) that makes each column
most nearly normal, and the same Jacobian is added for all arms. ln Z of the machines is exact (12 hidden
units). "whitened": the machine learns the real columns after ``PCA(whiten=True)``, so that with no couplings
it is a full-covariance Gaussian already; in the columns of the table it is a machine with an inner edge
(``tables_common.Lateral``).

Of breast cancer, wine and diabetes the real columns alone. The mixed table has categories too: a component of
a mixture is then a Gaussian of the real columns and independent categories (the location model), and
"Gaussian" and "independent columns" are such components.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import PowerTransformer
from tables_common import TABLES, note, real

import harmonium as hm

HIDDEN, UPDATES = 12, 2000


class Location:
    """Mixture of ``count`` components, in each a Gaussian of real columns and independent categories.

    Expectation-maximisation as scikit-learn's ``GaussianMixture`` does it, whose names and defaults these
    are, but that the best of ten starts is kept; a component has half a row more of every category.
    """

    def __init__(self, count: int, covariance_type: str, reg_covar: float = 1e-6, starts: int = 10) -> None:
        self.count, self.kind, self.ridge, self.starts = count, covariance_type, reg_covar, starts

    def fit(self, table: pd.DataFrame, seed: int) -> Location:
        x = table.loc[:, real(table)].to_numpy()
        labels = table.loc[:, ~real(table)]
        self.levels = {name: sorted(labels[name].unique()) for name in labels}
        hot = self._hot(table)
        best = -np.inf
        for start in range(self.starts):
            among = KMeans(self.count, n_init=1, random_state=self.starts * seed + start).fit_predict(x)
            share, reached = np.eye(self.count)[among], -np.inf
            for _ in range(100):
                state = self._maximised(x, hot, share)
                terms = self._terms(x, hot, state)
                total = logsumexp(terms, axis=1, keepdims=True)
                share, before, reached = np.exp(terms - total), reached, float(total.mean())
                if reached - before < 1e-3:
                    break
            if reached > best:
                best, self.state = reached, state
        return self

    def _hot(self, table: pd.DataFrame) -> dict[str, np.ndarray]:
        return {
            name: (table[name].to_numpy()[:, None] == np.array(levels)).astype(float)
            for name, levels in self.levels.items()
        }

    def _maximised(self, x: np.ndarray, hot: dict[str, np.ndarray], share: np.ndarray) -> list:
        weight = share.sum(0) + 1e-10
        means = share.T @ x / weight[:, None]
        apart = [x - m for m in means]
        spreads = [(d * r[:, None]).T @ d / w for d, r, w in zip(apart, share.T, weight, strict=True)]
        if self.kind == "tied":
            spreads = [sum(w * each for w, each in zip(weight, spreads, strict=True)) / len(x)] * self.count
        if self.kind == "diag":
            spreads = [np.diag(np.diag(each)) for each in spreads]
        spreads = [each + self.ridge * np.eye(x.shape[1]) for each in spreads]
        tables = []
        for codes in hot.values():
            counts = share.T @ codes + 0.5
            tables.append(np.log(counts / counts.sum(1, keepdims=True)))
        return [weight / weight.sum(), means, spreads, tables]

    def _terms(self, x: np.ndarray, hot: dict[str, np.ndarray], state: list) -> np.ndarray:
        weight, means, spreads, tables = state
        densities = [multivariate_normal(m, c).logpdf(x) for m, c in zip(means, spreads, strict=True)]
        of_categories = sum(codes @ logs.T for codes, logs in zip(hot.values(), tables, strict=True))
        return np.log(weight) + np.stack(densities, 1) + of_categories

    def score(self, table: pd.DataFrame) -> float:
        """Nats a row."""
        x = table.loc[:, real(table)].to_numpy()
        return float(logsumexp(self._terms(x, self._hot(table), self.state), axis=1).mean())

    def bic(self, table: pd.DataFrame) -> float:
        d = real(table).sum()
        of_spread = {"full": self.count * d * (d + 1) / 2, "tied": d * (d + 1) / 2, "diag": self.count * d}
        of_categories = sum(len(levels) - 1 for levels in self.levels.values())
        free = self.count - 1 + self.count * (d + of_categories) + of_spread[self.kind]
        return float(free * np.log(len(table)) - 2 * len(table) * self.score(table))


def machine(train: pd.DataFrame, seed: int) -> hm.RBM:
    epochs = round(100 * UPDATES / len(train))
    kinds = {name: "gaussian" if on else "categorical" for name, on in zip(train, real(train), strict=True)}
    return hm.RBM(HIDDEN, visible=kinds, method="chains", epochs=epochs, random_state=seed).fit(train)


def densities(train: pd.DataFrame, test: pd.DataFrame, seed: int) -> dict[str, tuple[float, float]]:
    """Nats a row of both sets by each arm."""
    mixtures = [
        Location(count, kind).fit(train, seed) for kind in ("full", "tied", "diag") for count in range(1, 9)
    ]
    found = {
        "independent columns": Location(1, "diag").fit(train, seed),
        "Gaussian": Location(1, "full").fit(train, seed),
        "Gaussian mixture, BIC": min(mixtures, key=lambda each: each.bic(train)),
        "RBM": machine(train, seed),
    }
    nats = {name: (model.score(train), model.score(test)) for name, model in found.items()}
    numbers = list(train.columns[real(train)])
    white = PCA(whiten=True).fit(train[numbers].to_numpy())
    volume = -0.5 * np.log(white.explained_variance_).sum()

    def whitened(rows: pd.DataFrame) -> pd.DataFrame:
        columns = pd.DataFrame(white.transform(rows[numbers].to_numpy()), columns=numbers, index=rows.index)
        return columns.join(rows.drop(columns=numbers))

    rbm = machine(whitened(train), seed)
    nats["RBM, whitened"] = tuple(rbm.score(whitened(rows)) + volume for rows in (train, test))
    return nats


def normalised(train: np.ndarray, test: np.ndarray) -> tuple[list[np.ndarray], list[float]]:
    """Both sets after Yeo & Johnson's transform, and the mean ln |Jacobian| of each."""
    transform = PowerTransformer(standardize=False).fit(train)
    scale = transform.transform(train).std(0)
    rows = [transform.transform(x) for x in (train, test)]
    slopes = [((transform.lambdas_ - 1) * np.sign(x) * np.log1p(abs(x))).sum(1).mean() for x in (train, test)]
    return [x / scale for x in rows], [float(slope - np.log(scale).sum()) for slope in slopes]


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--out", type=Path, default=Path("experiments/results/table_density.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    records = []
    for seed in range(arguments.seeds):
        for name in arguments.tables:
            table = TABLES[name]()
            if name != "mixed":
                table = table.loc[:, real(table)]
            numbers = list(table.columns[real(table)])
            train, test = train_test_split(table, test_size=0.25, random_state=seed)
            x = [rows[numbers].to_numpy() for rows in (train, test)]
            centre, scale = x[0].mean(0), x[0].std(0)
            plain = [(rows - centre) / scale for rows in x]
            started = time.process_time()
            for columns, (coded, slopes) in {
                "as they are": (plain, [0.0, 0.0]),
                "normalised": normalised(*plain),
            }.items():
                sets = [
                    rows.assign(**dict(zip(numbers, values.T, strict=True)))
                    for rows, values in zip((train, test), coded, strict=True)
                ]
                for arm, values in densities(*sets, seed).items():
                    added = [slope - np.log(scale).sum() for slope in slopes]
                    seen, new = (round(float(sum(pair)), 2) for pair in zip(values, added, strict=True))
                    where = {"table": name, "columns": columns, "seed": seed, "arm": arm}
                    records.append({**where, "train": seen, "test": new})
                    print(records[-1], flush=True)
            print(f"{time.process_time() - started:.0f} CPU seconds", flush=True)
            note(arguments.out, {"hidden": HIDDEN, "updates": UPDATES}, records)
    means = pd.DataFrame(records).groupby(["table", "columns", "arm"], sort=False)
    print(means.agg({"train": "mean", "test": ["mean", "std"]}).round(2).to_string())


if __name__ == "__main__":
    main()
