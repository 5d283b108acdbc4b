"""Rows drawn from machines of tables: are they as good as real ones, and are they copies?

    python experiments/table_synthetic.py

Breast cancer and wine with their classes, a quarter of the rows for the test, 5 splits. A machine learns the
training rows with the class as a column of categories, or there is one for each class, or one in which the
class moves the means of all columns, or their quantiles, and 2000 rows are drawn. A random forest and a
logistic regression learn from real rows, and from as many drawn ones (the mean over disjoint sets of drawn
rows), and are tested on real ones; the largest difference and the mean of the differences of two columns'
correlation, real and drawn, beside those of the training and the test rows; and the median distance to the
nearest training row, of drawn and of test rows, in standardised columns. "copies" are drawn rows nearer to a
training row than any but 1 % of the test rows are.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tables_common import Lateral, Quantiles, note

import harmonium as hm

UPDATES, SWEEPS, ROWS = 1000, 1000, 2000
KNOTS, FEW = 10, 5  # quantiles of a column in a class, and hidden units beside them


def tables() -> dict[str, pd.DataFrame]:
    """Real columns, and the class as text."""
    made = {"breast cancer": load_breast_cancer(as_frame=True), "wine": load_wine(as_frame=True)}
    names = {name: np.array([str(each) for each in data.target_names]) for name, data in made.items()}
    return {
        name: data.data.astype(float).assign(label=names[name][data.target]) for name, data in made.items()
    }


def drawn(train: pd.DataFrame, seed: int) -> dict[str, pd.DataFrame]:
    """Rows from each machine."""
    kinds = dict.fromkeys(train.columns[:-1], "gaussian") | {"label": "categorical"}
    rbm = hm.RBM(100, visible=kinds, epochs=round(100 * UPDATES / len(train)), random_state=seed).fit(train)
    parts = []
    for label, rows in train.groupby("label"):
        epochs = round(100 * UPDATES / max(100, len(rows)))
        machine = Lateral(seed, epochs=epochs).fit(rows.drop(columns="label"))
        share = round(ROWS * len(rows) / len(train))
        parts.append(machine.sample(share, SWEEPS).assign(label=label))
    return {
        "RBM": rbm.sample(ROWS, sweeps=SWEEPS, random_state=seed),
        "lateral machines, one a class": pd.concat(parts).sample(frac=1, random_state=seed),
        "lateral machine, means by class": shifted(train, seed),
        "lateral machine, quantiles by class": shaped(train, seed),
    }


def shifted(train: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Rows of one machine in which the class moves the means, and nothing else."""
    columns = train.drop(columns="label")
    means = columns.groupby(train["label"]).mean()
    rest = columns - means.loc[train["label"]].to_numpy()
    machine = Lateral(seed, epochs=round(100 * UPDATES / len(train))).fit(rest)
    labels = train["label"].sample(ROWS, replace=True, random_state=seed).reset_index(drop=True)
    moved = machine.sample(ROWS, SWEEPS).reset_index(drop=True) + means.loc[labels].reset_index(drop=True)
    return moved.assign(label=labels)


def shaped(train: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Rows of one machine in which the class says which quantiles its columns have, and nothing else."""
    codes = {
        label: {name: Quantiles(rows[name].to_numpy(), KNOTS, even=True) for name in train.columns[:-1]}
        for label, rows in train.groupby("label")
    }

    def each(rows: pd.DataFrame, way: str) -> pd.DataFrame:
        made = rows.copy()
        for label, code in codes.items():
            at = rows["label"] == label
            for name, column in code.items():
                made.loc[at, name] = getattr(column, way)(rows.loc[at, name].to_numpy())
        return made

    machine = Lateral(seed, n_hidden=FEW, epochs=round(100 * UPDATES / len(train)))
    machine.fit(each(train, "encode").drop(columns="label"))
    labels = train["label"].sample(ROWS, replace=True, random_state=seed).reset_index(drop=True)
    return each(machine.sample(ROWS, SWEEPS).reset_index(drop=True).assign(label=labels), "decode")


def classifiers(seed: int) -> dict[str, object]:
    return {
        "forest": RandomForestClassifier(random_state=seed),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000)),
    }


def judged(rows: pd.DataFrame, train: pd.DataFrame, test: pd.DataFrame, seed: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, classifier in classifiers(seed).items():
        scores = [
            classifier.fit(few.iloc[:, :-1], few["label"]).score(test.iloc[:, :-1], test["label"])
            for few in (rows[start:][: len(train)] for start in range(0, len(rows), len(train)))
            if len(few) == min(len(rows), len(train))
        ]
        found[name] = np.mean(scores)
    ours, theirs = (np.corrcoef(each.iloc[:, :-1].T) for each in (rows, train))
    apart = abs(ours - theirs)[np.triu_indices(len(ours), 1)]
    found |= {"correlation, mean": apart.mean(), "correlation, largest": apart.max()}
    scaler = StandardScaler().fit(train.iloc[:, :-1])
    nearest = NearestNeighbors(n_neighbors=1).fit(scaler.transform(train.iloc[:, :-1]))
    near, new = (nearest.kneighbors(scaler.transform(each.iloc[:, :-1]))[0][:, 0] for each in (rows, test))
    found |= {"nearest": np.median(near), "nearest, test rows": np.median(new)}
    found["copies"] = float((near < np.quantile(new, 0.01)).mean())
    return {name: round(float(value), 3) for name, value in found.items()}


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("experiments/results/table_synthetic.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    records = []
    settings = {"updates": UPDATES, "sweeps": SWEEPS, "rows": ROWS, "quantiles": KNOTS, "few": FEW}
    for seed in range(arguments.seeds):
        for name, table in tables().items():
            train, test = train_test_split(table, test_size=0.25, random_state=seed, stratify=table["label"])
            for arm, rows in {"real rows": train, "test rows": test, **drawn(train, seed)}.items():
                found = judged(rows, train, test, seed)
                if arm == "test rows":  # of another set of real rows only the correlations say something
                    found = {key: value for key, value in found.items() if key.startswith("correlation")}
                records.append({"table": name, "seed": seed, "arm": arm, **found})
                print(records[-1], flush=True)
            note(arguments.out, settings, records)
    means = pd.DataFrame(records).drop(columns="seed").groupby(["table", "arm"], sort=False)
    print(means.mean().round(3).to_string())


if __name__ == "__main__":
    main()
