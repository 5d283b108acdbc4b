"""Training on digits of which a tenth or half of the pixels were never seen, beside complete digits.

    python experiments/missing_entries.py            # three minutes
    python experiments/missing_entries.py --quick    # one seed, fewer updates

8x8 digits (scikit-learn's), cut at half intensity; an RBM of 64 and 16 Bernoulli units, so that ln Z is exact;
the mean log-likelihood of complete test digits in nats. Arms: all rows, complete; and for each fraction that
is missing, every row with such gaps at random (NaN), with several numbers of clamped sweeps; as many rows,
complete, as have the same number of observed entries; and the gaps filled with the column's more frequent value.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

import harmonium as hm
from harmonium.learning import expectations

SETTINGS = {
    "hidden": 16,
    "train_rows": 1200,
    "fractions": [0.1, 0.5],
    "updates": 2000,
    "batch_size": 100,
    "learning_rate": 0.05,
    "schedule": "linear",
    "averaging": 0.999,
}
SWEEPS = (1, 5, 10, 20)
SHIPPED = expectations.FILLING_SWEEPS


def test_likelihood(X: np.ndarray, test: torch.Tensor, seed: int, updates: int) -> tuple[float, float]:
    """Nats a test row after training on X, and the seconds that it took."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(64), hm.Bernoulli(SETTINGS["hidden"])], seed=seed)
    hm.machine.visible_from_data_(machine, hm.data.Rows.of(X, missing=True))
    started = time.perf_counter()
    run = hm.train(
        machine, X, rule=hm.rules.pcd(), updates=updates, batch_size=SETTINGS["batch_size"],
        learning_rate=SETTINGS["learning_rate"], schedule=SETTINGS["schedule"],
        averaging=SETTINGS["averaging"], seed=seed, progress=False,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    found = hm.likelihood.exact_log_likelihood(run.averaged_machine.double(), test)
    return float(found.mean()), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("experiments/results/missing_entries.json"))
    arguments = parser.parse_args()
    seeds, updates = (1, 1000) if arguments.quick else (3, SETTINGS["updates"])
    digits = (load_digits().data > 8).astype(np.float64)
    record: dict[str, dict[str, list[float]]] = {}

    def note(arm: str, X: np.ndarray, test: torch.Tensor, seed: int) -> None:
        nats, seconds = test_likelihood(X, test, seed, updates)
        for key, value in (("nats", round(nats, 3)), ("seconds", round(seconds, 1))):
            record.setdefault(arm, {}).setdefault(key, []).append(value)
        print(f"seed {seed}, {arm}: {nats:.3f} nats, {seconds:.1f} s", flush=True)

    def compare(fraction: float, train: np.ndarray, test: torch.Tensor, seed: int) -> None:
        gaps = hm.data.missing_at_random(*train.shape, fraction, seed=seed).numpy()
        holed = np.where(gaps, np.nan, train)
        note(f"{fraction}: as many observed", train[: round(len(train) * (1 - gaps.mean()))], test, seed)
        for sweeps in SWEEPS:
            expectations.FILLING_SWEEPS = sweeps
            note(f"{fraction}: {sweeps} sweeps", holed, test, seed)
        expectations.FILLING_SWEEPS = SHIPPED
        frequent = (np.nanmean(holed, 0) > 0.5).astype(np.float64)
        note(f"{fraction}: gaps filled", np.where(gaps, frequent, train), test, seed)

    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(digits))
        rows = SETTINGS["train_rows"]
        train, test = digits[order[:rows]], torch.from_numpy(digits[order[rows:]])
        note("complete, all rows", train, test, seed)
        for fraction in SETTINGS["fractions"]:
            compare(fraction, train, test, seed)

    for arm, values in record.items():
        print(f"{arm}: {np.mean(values['nats']):.3f} nats, {np.mean(values['seconds']):.1f} s")
    lost = {}
    for fraction in SETTINGS["fractions"]:
        with_gaps, without = f"{fraction}: {SHIPPED} sweeps", f"{fraction}: as many observed"
        loss = np.subtract(record[without]["nats"], record[with_gaps]["nats"]).round(3)
        lost[str(fraction)] = loss.tolist()
        print(
            f"{fraction} missing costs, of as many observed entries: {loss.mean():.3f} nats, by seed {loss}"
        )
    content = {"settings": {**SETTINGS, "updates": updates, "seeds": seeds}, "arms": record}
    arguments.out.write_text(json.dumps({**content, "nats_lost_by_gaps": lost}, indent=1) + "\n")


if __name__ == "__main__":
    main()
