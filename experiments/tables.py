"""Public tables at the defaults: missing cells, labels, draws and outliers beside what people use for them.

    python experiments/tables.py                                    # missing cells, 5 seeds
    python experiments/tables.py --part labels
    python experiments/tables.py --part draws --tables penguins --seeds 0
    python experiments/tables.py --arms RBM IterativeImputer Gaussian --rows 1000 --seeds 0 1 2
    python experiments/tables.py --part fits --seeds $(seq 0 19)    # 200 fits of each of two machines

Sixteen tables come with packages (``tables_public``); a table whose package is not there is left out, with a
word, and so is miceforest. Every arm sees the same rows, holes and splits, and is at its defaults. Forests as
imputers are smaller than by default: 20 trees, four rounds. TabPFN is no arm, as its weights come with no
package. "Gaussian" is one normal distribution of all columns with labels as columns of 0 and 1, by
expectation-maximisation, 0.05 of the variances added to the covariance.

- ``holes``: 10 or 30 % of the cells are lost, each by itself or in blocks. Root mean square error of numbers
  over the deviation of their column; share of labels that are right, and how many of them the lines beside a
  machine put right (gained) and wrong (spoilt); coverage of 90 % intervals, and the share of draws they hold.
- ``labels``: a third of the rows is held out; log loss and accuracy, with and without 20 % of the cells.
- ``labels`` and ``draws`` hold out people where there are several rows of each (travel).
- ``draws``: as many rows are drawn as there were; a forest learns from them, and from the real rows, and
  tells the label of rows that were held out. Shares of values far outside of what was seen, and of copies.
- ``fits``: of some rows and columns of a table, with up to 40 % of the cells lost: whether ``RBM`` ends well,
  without chains and with, and the share of imputed numbers farther outside of those seen than their range.
- ``outliers``: in a twentieth of the rows a third of the cells comes from other rows. Area under the curve.
- ``novelty``: two thirds of the rows are learned from; in a tenth of the others one number is ten times the
  largest that was learned from. Area under the curve.

Every result is a line of --out as soon as it is there; a repeated command makes those that are missing.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from table_imputation import ROUNDS, TREES, judged, with_numbers
from tables_common import HOLES, completed, gaussian, real
from tables_public import TABLES, as_numbers

import harmonium as hm

DRAWS = 100
FRACTIONS = (0.1, 0.3)
FAR = 0.05  # of the range that was seen, outside of it


def halves(table: pd.DataFrame, label: str, seed: int) -> list[np.ndarray]:
    """Returns the rows to learn from, and a third for the test; those of one person stay together."""
    rows, together = np.arange(len(table)), table.attrs.get("together", 1)
    first, y = rows[::together], table[label].to_numpy(str)
    stratify = y if together == 1 else None  # all choose the same number of times
    parts = train_test_split(first, test_size=1 / 3, random_state=seed, stratify=stratify)
    return [(part[:, None] + np.arange(together)).ravel() for part in parts]


# Missing cells
# ----------------------------------------------------------------------------


def by_rbm(table: pd.DataFrame, seed: int) -> Any:
    rbm = hm.RBM(random_state=seed).fit(table)
    full, drawn = rbm.impute(table, value="mean"), rbm.imputations(table, DRAWS)
    rbm.machine_.metadata.pop("linear", None)
    return full, drawn, rbm.impute(table, value="mean")  # the last by the machine alone


def by_gaussian(x: np.ndarray) -> np.ndarray:
    scale = np.nanstd(x, 0).clip(1e-6)
    return completed(x / scale, *gaussian(x / scale, 30, ridge=0.05)) * scale


def by_miceforest(table: pd.DataFrame, seed: int) -> Any:
    import miceforest

    known = table.astype({name: "category" for name in table.columns[~real(table)]})
    kernel = miceforest.ImputationKernel(known, num_datasets=1, random_state=seed)
    kernel.mice(5, num_threads=1)
    done = kernel.complete_data(dataset=0)
    return done.astype({name: str for name in table.columns[~real(table)]}), []


def imputers(seed: int) -> dict[str, Callable[[pd.DataFrame], Any]]:
    trees = {"n_estimators": TREES, "max_features": "sqrt", "random_state": seed}
    forest, extra = RandomForestRegressor(**trees), ExtraTreesRegressor(**trees)
    of_numbers = {
        "SimpleImputer": SimpleImputer(),
        "KNNImputer": KNNImputer(),
        "IterativeImputer": IterativeImputer(random_state=seed),
        "IterativeImputer, forest": IterativeImputer(forest, max_iter=ROUNDS, random_state=seed),
        "IterativeImputer, extra trees": IterativeImputer(extra, max_iter=ROUNDS, random_state=seed),
    }
    arms: dict[str, Callable[[pd.DataFrame], Any]] = {"RBM": partial(by_rbm, seed=seed)}
    for name, imputer in of_numbers.items():
        arms[name] = partial(with_numbers, imputer.fit_transform)
    arms["Gaussian"] = partial(with_numbers, by_gaussian)
    return arms | {"miceforest": partial(by_miceforest, seed=seed)}


def holes(table: pd.DataFrame, label: str | None, seed: int) -> Any:
    for kind, lose in HOLES.items():
        for fraction in FRACTIONS:
            lost, truth = lose(table, fraction, np.random.default_rng(seed)), as_numbers(table)
            for arm, complete in imputers(seed).items():

                def made(
                    arm: str = arm, complete: Any = complete, lost: np.ndarray = lost, truth: Any = truth
                ) -> dict[str, float]:
                    full, drawn, *alone = complete((table if arm == "RBM" else truth).mask(lost))
                    found = judged(truth, lost, (as_numbers(full), [as_numbers(draw) for draw in drawn]))
                    if alone and not real(truth).all():
                        found |= compared(truth, lost, full, alone[0])
                    return found

                yield {"holes": kind, "fraction": fraction, "arm": arm}, made


def compared(
    truth: pd.DataFrame, lost: np.ndarray, full: pd.DataFrame, alone: pd.DataFrame
) -> dict[str, int]:
    """Counts the labels that were lost, and those that are right in one of two tables alone."""
    of_labels = ~real(truth)
    asked = (lost & truth.notna().to_numpy())[:, of_labels]
    right, before = ((table.to_numpy() == truth.to_numpy())[:, of_labels][asked] for table in (full, alone))
    return {"labels": len(right), "gained": sum(right & ~before), "spoilt": sum(before & ~right)}


# Labels
# ----------------------------------------------------------------------------


def prepared(X: pd.DataFrame, model: Any) -> Any:
    """A pipeline for models of numbers without holes."""
    names = list(X.columns[~real(X)])
    codes = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    scaled = make_pipeline(SimpleImputer(), StandardScaler())
    return make_pipeline(make_column_transformer((codes, names), remainder=scaled), model)


def classifiers(X: pd.DataFrame, seed: int) -> dict[str, Any]:
    return {
        "RBMClassifier": hm.RBMClassifier(random_state=seed),
        "LogisticRegression": prepared(X, LogisticRegression(max_iter=1000)),
        "RandomForest": prepared(X, RandomForestClassifier(random_state=seed)),
        "HistGradientBoosting": prepared(X, HistGradientBoostingClassifier(random_state=seed)),
    }


def labels(table: pd.DataFrame, label: str | None, seed: int) -> Any:
    if label is None:
        return
    X, y = table.drop(columns=label), table[label].to_numpy(str)
    for fraction in (0.0, 0.2):
        lost = HOLES["at random"](X, fraction, np.random.default_rng(seed))
        train, test = halves(table, label, seed)
        for arm, model in classifiers(as_numbers(X), seed).items():
            Z = (X if arm.startswith("RBM") else as_numbers(X)).mask(lost)

            def made(
                model: Any = model, Z: Any = Z, train: Any = train, test: Any = test
            ) -> dict[str, float]:
                p = model.fit(Z.iloc[train], y[train]).predict_proba(Z.iloc[test])
                right = model.classes_[p.argmax(1)] == y[test]
                return {"log_loss": log_loss(y[test], p, labels=model.classes_), "accuracy": right.mean()}

            yield {"fraction": fraction, "arm": arm}, made


# Draws
# ----------------------------------------------------------------------------


def draws(table: pd.DataFrame, label: str | None, seed: int) -> Any:
    if label is None:
        return
    train, test = (table.iloc[part] for part in halves(table, label, seed))

    def told(rows: pd.DataFrame) -> float:
        if rows[label].nunique() < 2:
            return float((test[label] == rows[label].iloc[0]).mean())
        known, asked = (as_numbers(part.drop(columns=label)) for part in (rows, test))
        model = prepared(known, RandomForestClassifier(random_state=seed))
        return float(model.fit(known, rows[label]).score(asked, test[label]))

    def by_machine() -> dict[str, float]:
        rows = hm.RBM(random_state=seed).fit(train).sample(len(train))
        numbers = table.columns[real(table)]
        low, high = train[numbers].min(), train[numbers].max()
        reach = FAR * (high - low)
        far = (rows[numbers] < low - reach) | (rows[numbers] > high + reach)
        seen = set(map(tuple, train.round(6).to_numpy().tolist()))
        copies = [
            sum(tuple(row) in seen for row in x.round(6).to_numpy().tolist()) / len(x) for x in (rows, test)
        ]
        shares = {"copies": copies[0], "copies_held_out": copies[1]}
        return {"accuracy": told(rows), "outside": float(far.to_numpy().mean()), **shares}

    yield {"arm": "RBM"}, by_machine
    yield {"arm": "real rows"}, lambda: {"accuracy": told(train)}


# Outliers
# ----------------------------------------------------------------------------


def outliers(table: pd.DataFrame, label: str | None, seed: int) -> Any:
    random = np.random.default_rng(seed)
    moved = random.random(len(table)) < 0.05
    other = table.iloc[random.permutation(len(table))].set_index(table.index)
    changed = table.where(~(moved[:, None] & (random.random(table.shape) < 1 / 3)), other)
    for arm, model in judges(as_numbers(table), seed).items():

        def made(arm: str = arm, model: Any = model) -> dict[str, float]:
            rows = changed if arm.startswith("RBM") else as_numbers(changed)
            return {"auc": roc_auc_score(~moved, model.fit(rows).decision_function(rows))}

        yield {"arm": arm}, made


def judges(table: pd.DataFrame, seed: int) -> dict[str, Any]:
    return {
        "RBMOutlier": hm.RBMOutlier(random_state=seed),
        "IsolationForest": prepared(table, IsolationForest(random_state=seed)),
        "LocalOutlierFactor": prepared(table, LocalOutlierFactor(novelty=True)),
    }


def novelty(table: pd.DataFrame, label: str | None, seed: int) -> Any:
    random = np.random.default_rng(seed)
    order = random.permutation(len(table))
    train, new = (table.iloc[x].reset_index(drop=True) for x in np.split(order, [2 * len(table) // 3]))
    numbers = [i for i in np.flatnonzero(real(table)) if train.iloc[:, i].max() > 0]
    moved = random.random(len(new)) < 0.1
    for row in np.flatnonzero(moved):
        name = table.columns[random.choice(numbers)]
        new.loc[row, name] = 10.0 * train[name].max()
    for arm, model in judges(as_numbers(table), seed).items():

        def made(arm: str = arm, model: Any = model) -> dict[str, float]:
            old, rows = (part if arm.startswith("RBM") else as_numbers(part) for part in (train, new))
            return {"auc": roc_auc_score(~moved, model.fit(old).decision_function(rows))}

        yield {"arm": arm}, made


# Fits
# ----------------------------------------------------------------------------


def fits(table: pd.DataFrame, label: str | None, seed: int) -> Any:
    random = np.random.default_rng(seed)
    rows = random.integers(0, len(table), random.integers(20, 400))
    columns = random.permutation(table.shape[1])[: random.integers(2, 13)]
    some = table.iloc[rows, columns].reset_index(drop=True)
    shown = some.mask(HOLES["at random"](some, random.uniform(0, 0.4), random))
    for arm, model in {"RBM": hm.RBM(random_state=seed), "RBM(30)": hm.RBM(30, random_state=seed)}.items():

        def made(model: Any = model) -> dict[str, float]:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                full = model.fit(shown).impute(shown, value="mean")
            numbers = some.columns[real(some)]
            low, high = shown[numbers].min(), shown[numbers].max()
            reach = high - low
            far = (full[numbers] < low - reach) | (full[numbers] > high + reach)
            finite = np.isfinite(full[numbers].dropna(axis=1, how="all").to_numpy()).all()
            slower = sum("training diverged" in str(warning.message) for warning in said)
            return {
                "finite": finite,
                "outside": far.to_numpy().mean() if len(numbers) else 0.0,
                "slower": slower,
            }

        yield {"arm": arm}, made


PARTS = {
    "holes": holes,
    "labels": labels,
    "draws": draws,
    "outliers": outliers,
    "novelty": novelty,
    "fits": fits,
}


def drawn(table: pd.DataFrame, rows: int) -> pd.DataFrame:
    """Returns some rows of a table, drawn at random and in their order; those of one person together."""
    together = table.attrs.get("together", 1)
    first = np.random.default_rng(0).permutation(len(table) // together)[: rows // together]
    some = (np.sort(first)[:, None] * together + np.arange(together)).ravel()
    return table.iloc[some].reset_index(drop=True)


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--part", choices=PARTS, default="holes")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--arms", nargs="+", help="these alone")
    parser.add_argument("--holes", nargs="+", choices=HOLES, help="these kinds alone")
    parser.add_argument("--rows", type=int, help="of larger tables, drawn at random; all")
    parser.add_argument("--out", type=Path, default=Path("experiments/results/tables.jsonl"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    records = (
        [json.loads(line) for line in arguments.out.read_text().splitlines()]
        if arguments.out.exists()
        else []
    )
    there = {json.dumps(record["setting"], sort_keys=True) for record in records}
    for name in arguments.tables:
        load, label = TABLES[name]
        try:
            table = load()
        except ImportError as error:
            print(f"{name} is left out: {error}")
            continue
        if arguments.rows and len(table) > arguments.rows:
            table = drawn(table, arguments.rows)
        for seed in arguments.seeds:
            for setting, made in PARTS[arguments.part](table, label, seed):
                setting = {"part": arguments.part, "table": name, "seed": seed, **setting}
                if json.dumps(setting, sort_keys=True) in there:
                    continue
                if arguments.arms and setting["arm"] not in arguments.arms:
                    continue
                if arguments.holes and setting.get("holes", arguments.holes[0]) not in arguments.holes:
                    continue
                started = time.process_time()
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        found = {key: round(float(value), 4) for key, value in made().items()}
                except ImportError as error:
                    print(f"{setting['arm']} is left out: {error}")
                    continue
                except Exception as error:  # an arm that fails is a result
                    found = {"failed": f"{type(error).__name__}: {error}"[:200]}
                seconds = round(time.process_time() - started, 2)
                records.append(
                    {"setting": setting, "rows": len(table), "result": found, "cpu_seconds": seconds}
                )
                with arguments.out.open("a") as file:
                    file.write(json.dumps(records[-1]) + "\n")
                print(records[-1], flush=True)
    rows = [r["setting"] | r["result"] | {"cpu_seconds": r["cpu_seconds"]} for r in records]
    frame = pd.DataFrame([row for row in rows if row["part"] == arguments.part])
    if len(frame):
        keys = [
            key for key in ("table", "holes", "fraction", "arm") if key in frame and frame[key].notna().any()
        ]
        mean = frame.groupby(keys, sort=False).mean(numeric_only=True).drop(columns="seed")
        print(mean.dropna(axis=1, how="all").round(3).to_string())


if __name__ == "__main__":
    main()
