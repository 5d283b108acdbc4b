"""Training on digits of which a tenth or half of the pixels were never seen, beside complete digits.

    python experiments/missing_entries.py            # a few minutes
    python experiments/missing_entries.py --quick    # one seed, fewer updates
    python experiments/missing_entries.py --bias     # of the clamped phase alone, seconds

8x8 digits (scikit-learn's), cut at half intensity; an RBM of 64 and 16 Bernoulli units, so that ln Z is
exact; the mean log-likelihood of complete test digits in nats. Arms, for a fraction that is missing: every
row with such gaps at random (NaN); as many rows, complete, as have the same number of observed entries; and
the gaps filled with the column's more frequent value. On the first seed with several numbers of clamped
sweeps too. Rows with gaps teach more slowly: runs that stop early lose more by them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

import harmonium as hm
from harmonium.learning import expectation
from harmonium.learning.expectation import ExpectationRequest
from harmonium.machine import Statistics

SETTINGS = {
    "hidden": 16,
    "train_rows": 1200,
    "updates": 3000,
    "batch_size": 100,
    "learning_rate": 0.3,
    "schedule": "linear",
    "averaging": 0.999,
}
SWEEPS = (1, 5, 10, 20)
SHIPPED = expectation.FILLING_SWEEPS


def test_likelihood(X: np.ndarray, test: torch.Tensor, seed: int, updates: int) -> float:
    """Nats a test row after training on X."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(64), hm.Bernoulli(SETTINGS["hidden"])], seed=seed)
    hm.machine.init_visible_biases_(machine, hm.data.Rows.of(X, missing=True))
    run = hm.train(
        machine, X, rule=hm.rules.pcd(), updates=updates, batch_size=SETTINGS["batch_size"],
        learning_rate=SETTINGS["learning_rate"], schedule=SETTINGS["schedule"],
        averaging=SETTINGS["averaging"], seed=seed, progress=False,
    ).whole()  # fmt: skip
    return float(hm.likelihood.exact_log_likelihood(run.averaged_machine.double(), test).mean())


@torch.no_grad()
def bias(digits: np.ndarray) -> dict[str, dict[str, float]]:
    """Of the couplings' clamped statistics after so many sweeps, over the norm of the exact gradient.

    In a trained machine of 10 hidden units, over 40 rows; by fraction missing and number of sweeps. Two means
    of 4,000 chains each, whose product has no noise of its own on average, tell 0.01 from nothing.
    """
    machine = hm.BoltzmannMachine([hm.Bernoulli(64), hm.Bernoulli(10)])
    hm.machine.init_visible_biases_(machine, hm.data.Rows.of(digits))
    hm.train(
        machine, digits, rule=hm.rules.pcd(), updates=1500, learning_rate=SETTINGS["learning_rate"],
        schedule=SETTINGS["schedule"], progress=False,
    ).whole()  # fmt: skip
    hamiltonian = machine.double().hamiltonian()
    generator = torch.Generator().manual_seed(0)

    def of(expectation: hm.learning.Expectation, v: torch.Tensor) -> torch.Tensor:
        total = Statistics(hamiltonian)
        complete = not bool(v.isnan().any())
        expectation.add(ExpectationRequest(hamiltonian, v, generator, total, complete))
        return total.products[0]

    found: dict[str, dict[str, float]] = {}
    for fraction in (0.1, 0.5, 0.9):
        gaps = hm.data.missing_at_random(40, 64, fraction, seed=1)
        v = torch.where(gaps, torch.nan, torch.from_numpy(digits[:40]))
        truth = of(expectation.Enumeration(clamped=True), v)
        gradient = float((truth - of(expectation.Enumeration(clamped=False), v)).norm())
        for sweeps in SWEEPS:
            expectation.FILLING_SWEEPS = sweeps
            one, other = (of(expectation.ClampedChains(), v.repeat(100, 1)) - truth for _ in range(2))
            size = float((one * other).sum().clamp(min=0).sqrt()) / gradient
            found.setdefault(str(fraction), {})[str(sweeps)] = round(size, 3)
            print(f"{fraction} missing, {sweeps} sweeps: bias {size:.3f} of the gradient", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("experiments/results/missing_entries.json"))
    parser.add_argument("--bias", action="store_true")
    arguments = parser.parse_args()
    seeds, updates = (1, 500) if arguments.quick else (3, SETTINGS["updates"])
    digits = (load_digits().data > 8).astype(np.float64)
    if arguments.bias:
        found = bias(digits)
        arguments.out.with_name("missing_entries_bias.json").write_text(json.dumps(found, indent=1) + "\n")
        return
    settings = {**SETTINGS, "updates": updates, "sweeps": SHIPPED}
    arms: dict[str, list[dict[str, float]]] = {}

    def note(fraction: float, arm: str, seed: int, sweeps: int = SHIPPED) -> None:
        order = np.random.default_rng(seed).permutation(len(digits))
        train, test = digits[order[: SETTINGS["train_rows"]]], digits[order[SETTINGS["train_rows"] :]]
        gaps = hm.data.missing_at_random(*train.shape, fraction, seed=seed).numpy()
        X = np.where(gaps, np.nan, train)
        if arm == "complete, as many observed entries":
            X = train[: round(len(train) * (1 - gaps.mean()))]
        elif arm == "gaps filled":
            X = np.where(gaps, np.nanmean(X, 0) > 0.5, train)
        expectation.FILLING_SWEEPS = sweeps
        nats = test_likelihood(X, torch.from_numpy(test), seed, updates)
        name = f"{fraction:g} missing: {arm}"
        arms.setdefault(name, []).append({"seed": seed, "nats": round(nats, 3)})
        print(f"{name}, seed {seed}: {nats:.3f} nats", flush=True)
        arguments.out.write_text(json.dumps({"settings": settings, "arms": arms}, indent=1) + "\n")

    for seed in range(seeds):
        for arm in ("complete, as many observed entries", "gaps", "gaps filled"):
            note(0.1, arm, seed)
    for fraction in (0.1, 0.5):
        if fraction > 0.1:
            note(fraction, "complete, as many observed entries", 0)
        for sweeps in SWEEPS:
            note(fraction, f"gaps, {sweeps} sweeps", 0, sweeps)

    nats = {name: np.mean([each["nats"] for each in entries]) for name, entries in arms.items()}
    lost = nats["0.1 missing: complete, as many observed entries"] - nats["0.1 missing: gaps"]
    print(f"a tenth missing costs {lost:.3f} nats beside complete rows with as many observed entries")


if __name__ == "__main__":
    main()
