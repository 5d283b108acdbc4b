"""Missing cells of tables: machines beside scikit-learn's imputers and a loop of forests.

    python experiments/table_imputation.py                     # 5 seeds
    python experiments/table_imputation.py --tables wine --seeds 0
    python experiments/table_imputation.py --trees 100 --rounds 10 --seeds 0 --only missForest-like --out FILE

A tenth, three tenths and half of the cells are lost, each by itself or in blocks: half of the columns at once
in some rows. Every imputer learns from the table with its holes and fills them. Real cells: root mean square
error over the standard deviation of the whole column; categories: how many are right. Imputers of numbers see
standardised columns, and k categories as k - 1 columns of 0 and 1; the most probable one is taken.

Machines also draw 100 completions. Coverage is how often intervals of 90 % of a cell's draws hold its truth
(quantiles of the draws), and held the share of the draws that they hold: more than 0.9 where values are few.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from tables_common import HOLES, TABLES, Lateral, completed, gaussian, note, real

import harmonium as hm

FRACTIONS = (0.1, 0.3, 0.5)
DRAWS = 100
TREES, ROUNDS = 20, 4  # of forests
UPDATES = 1000

Completed = tuple[pd.DataFrame, list[pd.DataFrame]]


def with_numbers(complete: Callable[[np.ndarray], np.ndarray], table: pd.DataFrame) -> Completed:
    """What an imputer of numbers makes of a table."""
    numbers = table.columns[real(table)]
    centre, scale = table[numbers].mean(), table[numbers].std(ddof=0)
    parts = [(table[numbers] - centre) / scale]
    for name in table.columns[~real(table)]:
        # Of k categories k - 1 columns: the last one, a sum of the others, would hold them at their means.
        indicators = pd.get_dummies(table[name], dtype=float).iloc[:, 1:].add_prefix(f"{name}_")
        indicators[table[name].isna()] = np.nan
        parts.append(indicators)
    full = pd.concat(parts, axis=1)
    full = pd.DataFrame(complete(full.to_numpy()), columns=full.columns, index=table.index)
    filled = table.copy()
    filled[numbers] = table[numbers].fillna(full[numbers] * scale + centre)
    for part in parts[1:]:
        name = part.columns[0].rsplit("_", 1)[0]
        scores = full[part.columns].to_numpy()
        scores = np.column_stack([1 - scores.sum(1), scores])
        best = np.sort(table[name].dropna().unique())[scores.argmax(1)]
        filled[name] = table[name].fillna(pd.Series(best, table.index))
    return filled, []


def by_gaussian(x: np.ndarray) -> np.ndarray:
    return completed(x, *gaussian(x))


def by_forests(table: pd.DataFrame, seed: int, forest: dict[str, Any], rounds: int) -> Completed:
    """Forests of each column given the others, in turns (Stekhoven & Bühlmann 2012)."""
    holes, numeric = table.isna(), dict(zip(table.columns, real(table), strict=True))
    full = table.fillna({c: table[c].mean() if numeric[c] else table[c].mode()[0] for c in table.columns})
    before = np.inf
    for _ in range(rounds):
        last = full.copy()
        for name in holes.sum().sort_values().index:
            lost = holes[name]
            if not lost.any():
                continue
            others = pd.get_dummies(full.drop(columns=name), dtype=float)
            kind = RandomForestRegressor if numeric[name] else RandomForestClassifier
            learned = kind(**forest, random_state=seed).fit(others[~lost], table.loc[~lost, name])
            full.loc[lost, name] = learned.predict(others[lost])
        change = sum(
            ((full[c] - last[c]) ** 2).sum() / table[c].var() if numeric[c] else (full[c] != last[c]).sum()
            for c in table.columns
        )
        if change >= before:
            return last, []
        before = change
    return full, []


def by_machine(table: pd.DataFrame, seed: int) -> Completed:
    kinds = dict.fromkeys(table.columns[real(table)], "gaussian")
    rbm = hm.RBM(100, random_state=seed, visible=kinds, epochs=round(100 * UPDATES / len(table))).fit(table)
    return rbm.impute(table, value="mean"), rbm.imputations(table, DRAWS)


def arms(seed: int, forest: dict[str, Any], rounds: int) -> dict[str, Callable[[pd.DataFrame], Completed]]:
    simple = {
        "SimpleImputer": SimpleImputer(),
        "KNNImputer": KNNImputer(),
        "IterativeImputer": IterativeImputer(random_state=seed),
    }
    made = {name: partial(with_numbers, imputer.fit_transform) for name, imputer in simple.items()}
    made["Gaussian"] = partial(with_numbers, by_gaussian)
    made["RBM"] = partial(by_machine, seed=seed)
    made["lateral machine"] = lambda table: (
        Lateral(seed, epochs=round(100 * UPDATES / len(table))).fit(table).complete(table, DRAWS)
    )
    regressor = RandomForestRegressor(**forest, random_state=seed)
    iterative = IterativeImputer(regressor, max_iter=rounds, random_state=seed)
    made["IterativeImputer, forest"] = partial(with_numbers, iterative.fit_transform)
    made["missForest-like"] = partial(by_forests, seed=seed, forest=forest, rounds=rounds)
    return made


def judged(truth: pd.DataFrame, holes: np.ndarray, done: Completed) -> dict[str, float]:
    full, draws = done
    numeric = real(truth)
    lost = holes & truth.notna().to_numpy()
    x, of_labels, lost = truth.loc[:, numeric].to_numpy(float), lost[:, ~numeric], lost[:, numeric]
    scale = np.nanstd(x, 0)
    found = full.loc[:, numeric].to_numpy(float)
    result = {"nrmse": float(np.sqrt((((found - x) / scale)[lost] ** 2).mean()))}
    if not numeric.all():
        right = full.loc[:, ~numeric].to_numpy() == truth.loc[:, ~numeric].to_numpy()
        result["accuracy"] = float(right[of_labels].mean())
    if draws:
        cells = np.stack([draw.loc[:, numeric].to_numpy(float) for draw in draws])
        low, high = np.quantile(cells, [0.05, 0.95], axis=0, method="weibull")
        result["coverage"] = float(((low <= x) & (x <= high))[lost].mean())
        result["held"] = float(((low <= cells) & (cells <= high)).mean(0)[lost].mean())
    return {name: round(value, 4) for name, value in result.items()}


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--tables", nargs="+", choices=sorted(TABLES), default=list(TABLES))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--trees", type=int, default=TREES, help="of a forest")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="through the columns, of forests")
    parser.add_argument("--only", nargs="+", metavar="ARM")
    parser.add_argument("--out", type=Path, default=Path("experiments/results/table_imputation.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # that few rounds have not converged
    records = []
    forest = {"n_estimators": arguments.trees, "max_features": "sqrt"}
    settings = {
        "updates": UPDATES,
        "draws": DRAWS,
        "forest": forest,
        "rounds": arguments.rounds,
    }
    for seed in arguments.seeds:
        for name in arguments.tables:
            truth = TABLES[name]()
            for kind, lose in HOLES.items():
                for fraction in FRACTIONS:
                    holes = lose(truth, fraction, np.random.default_rng(seed))
                    for arm, complete in arms(seed, forest, arguments.rounds).items():
                        if arguments.only and arm not in arguments.only:
                            continue
                        started = time.process_time()
                        done = complete(truth.mask(holes))
                        seconds = round(time.process_time() - started, 2)
                        where = {"table": name, "holes": kind, "fraction": fraction, "seed": seed, "arm": arm}
                        records.append({**where, **judged(truth, holes, done), "cpu_seconds": seconds})
                        print(records[-1], flush=True)
                    note(arguments.out, settings, records)
    keys = ["table", "holes", "fraction", "arm"]
    frame = pd.DataFrame(records).groupby(keys, sort=False).mean(numeric_only=True)
    print(frame.drop(columns="seed").round(3).to_string())


if __name__ == "__main__":
    main()
