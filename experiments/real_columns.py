"""Real columns standardised against quantile-normalised: what a machine then makes of the same splits.

    python experiments/real_columns.py            # about five minutes of one core
    python experiments/real_columns.py --quick    # one split

Tables of scikit-learn (breast-cancer, wine, diabetes), a quarter of the rows for the test, 3 splits. Each arm
codes every real column, and one machine (16 hidden units, 3,000 updates) learns the codes:

- standardised: what ``harmonium.data.Table`` does;
- quantiles: a column's distribution becomes the standard normal one, by straight lines between so many
  quantiles of the training rows, and by the last of them beyond.

log-likelihood: mean over test rows of ln p(row) in nats, in the units of the data: ln |slope| of the codes is
added, column by column. RMSE: 30 % of the test cells are hidden at random; the mean of 20 draws, each taken
back to the units of the data, is compared with what was hidden, in standard deviations of each column.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.model_selection import train_test_split
from tables_common import Quantiles

import harmonium as hm

torch.set_num_threads(1)

HIDDEN, UPDATES, BATCH = 16, 3000, 100
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one split")
    splits = 1 if parser.parse_args().quick else 3
    print("| table | codes | log-likelihood | RMSE of hidden cells |\n|---|---|---|---|", flush=True)
    for table, load in TABLES.items():
        frame = load(as_frame=True).data
        for name, knots in (("standardised", None), ("10 quantiles", 10), ("100 quantiles", 100)):
            started, found = time.process_time(), []
            for seed in range(splits):
                train, test = train_test_split(frame, test_size=0.25, random_state=seed)
                found.append(arm(train, test, knots, seed))
            (ll, rmse), (ll_sd, rmse_sd) = np.mean(found, 0), np.std(found, 0)
            print(f"| {table} | {name} | {ll:.2f} ± {ll_sd:.2f} | {rmse:.3f} ± {rmse_sd:.3f} |", flush=True)
            print(f"{time.process_time() - started:.0f} CPU seconds", file=sys.stderr)


if __name__ == "__main__":
    main()
