"""Densities of tables: machines beside a Gaussian, mixtures of Gaussians and independent columns.

    python experiments/table_density.py

Columns of real numbers alone; a quarter of the rows is the test set, 5 splits. Nats a test row in the table's
own units: every density is one of standardised columns, as they are or after the transform of Yeo & Johnson
(2000) that makes each column most nearly normal, and the same Jacobian is added for all arms.
ln Z of the machines is exact (12 hidden units). "whitened": the machine learns the columns after
``PCA(whiten=True)``, so that with no couplings it is a full-covariance Gaussian already; in the columns of
the table it is a machine with an inner edge (``tables_common.Lateral``).
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import PowerTransformer
from tables_common import TABLES, note, real

import harmonium as hm

HIDDEN, UPDATES, RIDGE = 12, 2000, 1e-6


def mixture(train: np.ndarray, seed: int) -> GaussianMixture:
    """The one of 1 to 8 components, of any kind of covariance, with the lowest BIC."""
    made = [
        GaussianMixture(count, covariance_type=kind, n_init=3, random_state=seed).fit(train)
        for kind in ("full", "tied", "diag")
        for count in range(1, 9)
    ]
    return min(made, key=lambda each: each.bic(train))


def machine(train: np.ndarray, seed: int) -> hm.RBM:
    epochs = round(100 * UPDATES / len(train))
    return hm.RBM(HIDDEN, visible="gaussian", epochs=epochs, random_state=seed).fit(train)


def densities(train: np.ndarray, test: np.ndarray, seed: int) -> dict[str, tuple[float, float]]:
    """Nats a row of both sets by each arm."""
    found = {
        "independent columns": GaussianMixture(1, covariance_type="diag").fit(train),
        "Gaussian": GaussianMixture(1, reg_covar=RIDGE).fit(train),
        "Gaussian mixture, BIC": mixture(train, seed),
        "RBM": machine(train, seed),
    }
    nats = {name: (model.score(train), model.score(test)) for name, model in found.items()}
    white = PCA(whiten=True).fit(train)
    volume = -0.5 * np.log(white.explained_variance_).sum()
    rbm = machine(white.transform(train), seed)
    nats["RBM, whitened"] = tuple(rbm.score(white.transform(x)) + volume for x in (train, test))
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
    parser.add_argument("--out", type=Path, default=Path("experiments/results/table_density.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    records = []
    for seed in range(arguments.seeds):
        for name in ("breast cancer", "wine", "diabetes"):
            table = TABLES[name]()
            rows = table.loc[:, real(table)].to_numpy()
            train, test = train_test_split(rows, test_size=0.25, random_state=seed)
            centre, scale = train.mean(0), train.std(0)
            plain = [(x - centre) / scale for x in (train, test)]
            started = time.process_time()
            for columns, (rows, slopes) in {
                "as they are": (plain, [0.0, 0.0]),
                "normalised": normalised(*plain),
            }.items():
                for arm, values in densities(*rows, seed).items():
                    added = [slope - np.log(scale).sum() for slope in slopes]
                    seen, new = (round(float(sum(pair)), 2) for pair in zip(values, added, strict=True))
                    where = {"table": name, "columns": columns, "seed": seed, "arm": arm}
                    records.append({**where, "train": seen, "test": new})
                    print(records[-1], flush=True)
            print(f"{time.process_time() - started:.0f} CPU seconds", flush=True)
            note(arguments.out, {"hidden": HIDDEN, "updates": UPDATES, "ridge": RIDGE}, records)
    means = pd.DataFrame(records).groupby(["table", "columns", "arm"], sort=False)
    print(means.agg({"train": "mean", "test": ["mean", "std"]}).round(2).to_string())


if __name__ == "__main__":
    main()
