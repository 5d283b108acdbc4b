"""Real columns standardised against quantile-normalised: what a machine then makes of the same splits.

    python experiments/real_columns.py

Tables of scikit-learn (breast-cancer, wine, diabetes), a quarter of the rows for the test, 5 splits. Each arm
codes every real column, and one machine (16 hidden units, 3,000 updates) learns the codes:

- standardised: what ``harmonium.tables.Table`` does;
- quantiles: a column's distribution becomes the standard normal one, by straight lines between so many
  quantiles of the training rows, and by the last of them beyond.

log-likelihood: mean over test rows of ln p(row) in nats, in the units of the data: ln |slope| of the codes is
added, column by column. RMSE: 30 % of the test cells are hidden at random; the mean of 20 draws, each taken
back to the units of the data, is compared with what was hidden, in standard deviations of each column.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.model_selection import train_test_split
from tables_common import Quantiles, note

import harmonium as hm

torch.set_num_threads(1)

HIDDEN, UPDATES, BATCH = 16, 3000, 100
CODES = {"standardised": None, "10 quantiles": 10, "100 quantiles": 100}
TABLES = {"breast-cancer": load_breast_cancer, "wine": load_wine, "diabetes": load_diabetes}


def coded(frame: pd.DataFrame, codes: dict[str, Quantiles]) -> pd.DataFrame:
    return frame.assign(**{name: code.encode(frame[name].to_numpy()) for name, code in codes.items()})


def arm(train: pd.DataFrame, test: pd.DataFrame, knots: int | None, seed: int) -> tuple[float, float]:
    real = [name for name in train if train[name].nunique() > 2]
    codes = {name: Quantiles(train[name].to_numpy(), knots) for name in real} if knots else {}
    epochs = -(-UPDATES * min(BATCH, len(train)) // len(train))
    rbm = hm.RBM(HIDDEN, epochs=epochs, random_state=seed, log_partition="exact").fit(coded(train, codes))
    slopes = sum(code.log_slope(test[name].to_numpy()) for name, code in codes.items())
    likelihood = float(np.mean(rbm.score_samples(coded(test, codes)) + slopes))

    hidden = np.random.default_rng(seed).random(test.shape) < 0.3
    hidden[hidden.all(1), 0] = False
    draws = rbm.imputations(coded(test, codes).mask(hidden), 20, random_state=seed)
    back = [
        d.assign(**{name: code.decode(d[name].to_numpy()) for name, code in codes.items()}) for d in draws
    ]
    mean = np.mean([d[real].to_numpy() for d in back], axis=0)
    error = (mean - test[real].to_numpy()) / train[real].std(ddof=0).to_numpy()
    return likelihood, float(np.sqrt(np.mean(error[hidden[:, [name in real for name in test]]] ** 2)))


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("experiments/results/real_columns.json"))
    arguments = parser.parse_args()
    records = []
    for seed in range(arguments.seeds):
        for table, load in TABLES.items():
            frame = load(as_frame=True).data
            train, test = train_test_split(frame, test_size=0.25, random_state=seed)
            for codes, knots in CODES.items():
                started = time.process_time()
                nats, error = arm(train, test, knots, seed)
                where = {"table": table, "codes": codes, "seed": seed}
                found = {"test": round(nats, 3), "rmse": round(error, 4)}
                records.append({**where, **found, "cpu_seconds": round(time.process_time() - started, 1)})
                print(records[-1], flush=True)
        note(arguments.out, {"hidden": HIDDEN, "updates": UPDATES}, records)
    means = pd.DataFrame(records).groupby(["table", "codes"], sort=False)
    print(means[["test", "rmse"]].agg(["mean", "std"]).round(3).to_string())


if __name__ == "__main__":
    main()
