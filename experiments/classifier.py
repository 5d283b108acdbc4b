"""A machine with a label beside the data against scikit-learn's classifiers, on the same splits.

    python experiments/classifier.py            # a few minutes
    python experiments/classifier.py --quick    # one split

Digits of 8×8 pixels (scikit-learn's), in grey and cut at half intensity; a quarter of them, stratified, is
the test set, 5 splits. RBMClassifier has its defaults but for a seed. The others: logistic regression
(standardised, defaults else) and a support vector machine (RBF kernel, defaults).

With few labels: 1 % of the training rows keep theirs, one of each digit at least, and the rest are known to
be digits. Logistic regression sees the labelled rows alone; label spreading has its kernel of 7 neighbours.
"hidden units": logistic regression, and label spreading by 10 neighbours, on the hidden units of an RBM that
learnt all rows.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC

import harmonium as hm

torch.set_num_threads(1)

LABELLED = 0.01
FEW = "1 % of the labels"


def logistic():
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))


class Labelled(LogisticRegression):
    """Logistic regression that leaves out rows labelled -1."""

    def fit(self, X, y):
        return super().fit(X[y >= 0], y[y >= 0])


def few(y: np.ndarray, seed: int) -> np.ndarray:
    """Which rows keep their label: one of each class first, then any."""
    order = np.random.default_rng(seed).permutation(len(y))
    first = [order[y[order] == label][0] for label in np.unique(y)]
    rest = [row for row in order if row not in first]
    return np.array((first + rest)[: round(LABELLED * len(y))])


def split(seed: int, note, wanted) -> None:
    grey, y = load_digits(return_X_y=True)
    for name, X in (("grey", grey), ("cut", (grey > 8).astype(float))):
        train, test, known, truth = train_test_split(X, y, test_size=0.25, random_state=seed, stratify=y)
        arms = {
            "RBMClassifier": hm.RBMClassifier(random_state=seed),
            "logistic regression": logistic(),
            "support vector machine": SVC(),
        }
        for arm, model in arms.items():
            if not wanted(name, arm):
                continue
            started = time.process_time()
            note(name, arm, seed, model.fit(train, known).score(test, truth), time.process_time() - started)
        kept = few(known, seed)
        some = np.full(len(known), -1)
        some[kept] = known[kept]
        semi = {
            "RBMClassifier": hm.RBMClassifier(missing_label=-1, random_state=seed),
            "hidden units, logistic regression": make_pipeline(hm.RBM(100, random_state=seed), Labelled()),
            "hidden units, label spreading": make_pipeline(
                hm.RBM(100, random_state=seed), LabelSpreading(kernel="knn", n_neighbors=10, max_iter=1000)
            ),
            "label spreading": make_pipeline(StandardScaler(), LabelSpreading(kernel="knn")),
        }
        name = f"{name}, {FEW}"
        for arm, model in semi.items():
            if not wanted(name, arm):
                continue
            started = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # label spreading divides by 0 degrees
                score = model.fit(train, some).score(test, truth)
            note(name, arm, seed, score, time.process_time() - started)
        if wanted(name, "logistic regression"):
            score = logistic().fit(train[kept], known[kept]).score(test, truth)
            note(name, "logistic regression", seed, score, 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", metavar="ARM", help="this arm alone, added to the earlier record")
    parser.add_argument("--few", action="store_true", help="with few labels alone, added likewise")
    parser.add_argument("--out", type=Path, default=Path("experiments/results/classifier.json"))
    arguments = parser.parse_args()
    found: dict[str, dict[str, list[dict[str, float]]]] = {}

    def wanted(data: str, arm: str) -> bool:
        return arguments.only in (None, arm) and (FEW in data or not arguments.few)

    if (arguments.only or arguments.few) and arguments.out.exists():
        found = json.loads(arguments.out.read_text())["accuracy"]
        for data, arms in found.items():
            found[data] = {arm: records for arm, records in arms.items() if not wanted(data, arm)}

    def note(data: str, arm: str, seed: int, accuracy: float, seconds: float) -> None:
        record = {"seed": seed, "accuracy": round(accuracy, 4), "cpu_seconds": round(seconds, 2)}
        found.setdefault(data, {}).setdefault(arm, []).append(record)
        print(f"{data}, {arm}, split {seed}: {accuracy:.4f} ({seconds:.1f} s)", flush=True)
        settings = {"defaults": hm.RBMClassifier().get_params(), "test": 0.25, "labelled": LABELLED}
        arguments.out.write_text(json.dumps({"settings": settings, "accuracy": found}, indent=1) + "\n")

    for seed in range(1 if arguments.quick else 5):
        split(seed, note, wanted)
    for data, arms in found.items():
        for arm, records in arms.items():
            scores = [record["accuracy"] for record in records]
            print(f"{data:28} {arm:24} {np.mean(scores):.4f} ± {np.std(scores, ddof=1):.4f}")


if __name__ == "__main__":
    main()
