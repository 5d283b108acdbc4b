"""Completion of test digits whose lower half is missing, beside scikit-learn's imputers (Taniguchi et al.
2023, Fig. 3).

    python experiments/imputation.py                                   # trains a 784x500 RBM first, minutes
    python experiments/imputation.py --machine dbm=RUN/averaged.safetensors --machine rbm=...

Pixels are cut at 0.5. The figure of merit is Matthews' correlation of the completed with the true pixels over
all that was missing, and the CPU time for 1000 images, that of learning included for scikit-learn's.
scikit-learn's imputers learn from fewer rows than the machine, and IterativeImputer from few features and
rounds, as it would take hours otherwise; the record says how many.

MNIST is read from $HARMONIUM_DATA or ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.metrics import matthews_corrcoef

import harmonium as hm
from harmonium.report import image_panels

SETTINGS = {
    "rows": 1000,
    "updates": 10_000,
    "knn_rows": 5_000,
    "iterative_rows": 2_000,
    "features": 100,
    "rounds": 3,
}
SWEEPS = {"gibbs": 100, "tempered": 20, "local_search": 100, "tap": 100}


def trained(out: Path) -> hm.BoltzmannMachine:
    """A 784x500 RBM, trained for a short while or read from where that was done."""
    grey = np.asarray(hm.data.read("mnist").samples)
    machine = hm.BoltzmannMachine([hm.Bernoulli(784), hm.Bernoulli(500)], seed=0)
    hm.machine.init_visible_biases_(machine, hm.data.Rows.of(hm.data.bernoulli_binarise(grey, 0)))
    run = hm.train(
        machine, hm.tables.Codec(hm.data.Standardise(0.0, 255.0), ()).rows(grey, keep=False),
        transform=hm.data.bernoulli_binarise,
        rule=hm.rules.centred(hm.rules.pcd(1, chains=100)), updates=SETTINGS["updates"], batch_size=100,
        learning_rate=0.05, schedule="linear", averaging=0.999, seed=0, run_dir=out / "rbm", resume=True,
    ).whole()  # fmt: skip
    return run.averaged_machine


def nearest(train: np.ndarray, given: np.ndarray) -> np.ndarray:
    imputer = KNNImputer(n_neighbors=5, keep_empty_features=True).fit(train[: SETTINGS["knn_rows"]])
    return imputer.transform(given)


def iterative(train: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Together with the training rows: it learns only what is missing in the rows that it is fitted to."""
    imputer = IterativeImputer(
        n_nearest_features=SETTINGS["features"],
        max_iter=SETTINGS["rounds"],
        random_state=0,
        tol=0.0,
        min_value=0.0,
        max_value=1.0,
        imputation_order="roman",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that so few rounds have not converged
        return imputer.fit_transform(np.concatenate([train[: SETTINGS["iterative_rows"]], given]))[
            -len(given) :
        ]


SCIKIT_LEARN = {
    "SimpleImputer (mean)": lambda train, given: SimpleImputer().fit(train).transform(given),
    "KNNImputer(5)": nearest,
    "IterativeImputer": iterative,
}


def completed_by(
    machine: hm.BoltzmannMachine, X: torch.Tensor, missing: torch.Tensor, method: str, sweeps: int
) -> np.ndarray:
    """The likeliest of five completions, 0 and 1; a machine of ±1 units is shown -1 and +1."""
    spin = isinstance(machine.layers[0], hm.Spin)
    states = 2 * X - 1 if spin else X
    best = hm.tasks.impute(machine, states, missing, method, draws=5, sweeps=sweeps).mode
    return ((best + 1) / 2 if spin else best).numpy()


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--machine", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--only", action="append", metavar="PART", help="rows whose name has this in it")
    parser.add_argument("--rows", type=int, default=SETTINGS["rows"])
    parser.add_argument("--out", type=Path, default=Path("runs/imputation"))
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    pairs = [entry.split("=", 1) for entry in arguments.machine]
    machines = {name: hm.load(path) for name, path in pairs} or {"rbm 784-500": trained(arguments.out)}

    train = (np.asarray(hm.data.read("mnist").samples) >= 128).astype(np.float32)
    test = (np.asarray(hm.data.read("mnist-test").samples)[: arguments.rows] >= 128).astype(np.float32)
    missing = hm.data.missing_half(len(test), (28, 28), "lower")
    holes = missing.numpy()
    file = arguments.out / "result.json"
    results = json.loads(file.read_text())["results"] if file.exists() else {}

    def record(name: str, complete: Callable[[], np.ndarray]) -> None:
        started = time.process_time()
        completed = complete()
        seconds = time.process_time() - started
        found = completed[holes] >= 0.5
        value = results[name] = {
            "matthews_correlation": float(matthews_corrcoef(test[holes] >= 0.5, found)),
            "agreement": float((found == (test[holes] >= 0.5)).mean()),
            "cpu_seconds_for_1000_images": 1000 * seconds / len(test),
        }
        np.save(arguments.out / f"{name}.npy", completed[:12])
        print(
            f"{name:36} MCC {value['matthews_correlation']:.4f}  agreement {value['agreement']:.4f}"
            f"  {value['cpu_seconds_for_1000_images']:8.2f} s for 1000 images",
            flush=True,
        )

    def wanted(name: str) -> bool:
        return not arguments.only or any(part in name for part in arguments.only)

    X = torch.from_numpy(test)
    for name, machine in machines.items():
        for method, sweeps in SWEEPS.items():
            if not wanted(f"{name}, {method}"):
                continue
            record(f"{name}, {method}", partial(completed_by, machine, X, missing, method, sweeps))
    given = np.where(holes, np.nan, test)
    for name, complete in SCIKIT_LEARN.items():
        if wanted(name):
            record(name, lambda complete=complete: complete(train, given))
    file.write_text(
        json.dumps(
            {
                "experiment": "lower halves of MNIST test digits, cut at 0.5",
                "settings": {
                    **SETTINGS,
                    "rows": len(test),
                    "sweeps": SWEEPS,
                    "draws": 5,
                    "updates": "as given" if pairs else SETTINGS["updates"],
                },
                "reduced": "IterativeImputer and KNNImputer learn from fewer rows than the machines",
                "results": results,
            },
            indent=2,
        )
        + "\n"
    )
    panels = {"given": test[:12], "truth": test[:12]}
    panels |= {name: np.load(arguments.out / f"{name}.npy") for name in results}
    title = "Lower halves of MNIST test digits, completed"
    picture = arguments.out / "completions.png"
    image_panels(panels, (28, 28), picture, title=title, columns=12, hidden={"given": holes[:12]})
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
