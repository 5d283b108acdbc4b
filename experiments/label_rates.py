"""Which learning rate ``RBMClassifier`` wants, by the width of what it classifies.

    python experiments/label_rates.py [--quick]

The 8×8 digits, a quarter of them for the test, 5 splits; the first 5,000 training images of MNIST, and its
test images. Both as they are (Gaussian units) and cut at half (Bernoulli units), with the defaults of the
classifier but for the rate. Reduced: MNIST has 60,000 rows.

MNIST is read from $HARMONIUM_DATA or ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import harmonium as hm

RATES = (0.05, 0.03, 0.015, 0.0086, 0.005, 0.0025, 0.001)
ROWS = 5_000

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def digits(seed: int) -> Split:
    X, y = load_digits(return_X_y=True)
    return train_test_split(X / 16, y, test_size=0.25, random_state=seed, stratify=y)


def mnist(rows: int) -> Split:
    (X, y), (test, truth) = (
        (np.asarray(part.samples, np.float32) / 255, np.asarray(part.labels).astype(int))
        for part in (hm.data.read("mnist"), hm.data.read("mnist-test"))
    )
    return X[:rows], test, y[:rows], truth


def cases(quick: bool) -> Iterator[tuple[str, int, Split, tuple[tuple[str, int], ...]]]:
    """A name, a seed, rows, and the objectives and numbers of hidden units to try on them."""
    for seed in range(1 if quick else 5):
        yield "digits", seed, digits(seed), (("hybrid", 100), ("joint", 100))
    arms = (("hybrid", 100), ("hybrid", 500), ("joint", 100), ("joint", 500))
    yield "mnist", 0, mnist(500 if quick else ROWS), arms[:1] if quick else arms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("experiments/results/label_rates.jsonl"))
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w") as record:
        for name, seed, (train, test, known, truth), arms in cases(arguments.quick):
            for cut in (False, True):
                X, Z = ((part > 0.5).astype(np.float32) if cut else part for part in (train, test))
                for objective, hidden in arms:
                    for rate in RATES:
                        started = time.process_time()
                        made = hm.RBMClassifier(
                            hidden, objective=objective, learning_rate=rate, random_state=seed
                        )
                        with warnings.catch_warnings():
                            warnings.simplefilter("ignore")  # of runs that are far from their end
                            try:
                                accuracy = round(float(made.fit(X, known).score(Z, truth)), 4)
                            except hm.training.TrainingDiverged:
                                accuracy = None
                        found = {
                            "data": name,
                            "cut": cut,
                            "rows": len(X),
                            "objective": objective,
                            "hidden": hidden,
                            "rate": rate,
                            "seed": seed,
                            "accuracy": accuracy,
                            "cpu_seconds": round(time.process_time() - started, 1),
                        }
                        print(json.dumps(found), file=record, flush=True)
                        print(*found.values(), flush=True)


if __name__ == "__main__":
    main()
