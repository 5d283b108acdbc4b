"""Deep machines on MNIST from random couplings: local mode initialisation, and what each part of it does.

    python experiments/mnist_ucd_lmi.py                        # reduced: 784-256-256, one bit a pixel
    python experiments/mnist_ucd_lmi.py --budget paper --device cuda   # 6272-6272-6272, 8 bits
    python experiments/mnist_ucd_lmi.py --only "UCD-LMI"       # one row of the table

Taniguchi et al. 2023, Table 2 (FID with Inception features, 8 bits): all parts 10.33; without the unbiased
gradient 112.1, without ±1 units 30.27, without marginalisation 13.70, without orthogonal couplings 18.20.
Figure 2: mean field with PCD learns nothing without pretraining. The distances here use a small classifier's
features and cannot be set beside theirs; the order of the rows can.

A row is saved when it is done, and not run again while its file is there. MNIST is read from $HARMONIUM_DATA
or ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import harmonium as hm
from harmonium.report import (
    ClassifierFeatures,
    class_coverage,
    frechet_distance,
    image_grid,
    nearest_neighbours,
)

PUBLISHED = {
    "UCD-LMI": 10.33,
    "mean field and PCD, ±1 units, orthogonal": 112.1,
    "without ±1 units": 30.27,
    "without marginalisation": 13.70,
    "without orthogonal couplings": 18.20,
}
BUDGETS = {
    "quick": {"bits": 1, "hidden": 256, "batch": 200, "updates": 2_000, "samples": 2_000},
    "paper": {"bits": 8, "hidden": 6272, "batch": 1000, "updates": 100_000, "samples": 10_000},
}
LOCAL_MODES, PERSISTENT = hm.rules.ucd_lmi(), hm.rules.mean_field_pcd()
ROWS: dict[str, dict[str, Any]] = {
    "UCD-LMI": {"rule": LOCAL_MODES, "spin": True, "orthogonal": True},
    "mean field and PCD": {"rule": PERSISTENT, "spin": False, "orthogonal": False},
    "mean field and PCD, ±1 units, orthogonal": {"rule": PERSISTENT, "spin": True, "orthogonal": True},
    "without ±1 units": {"rule": LOCAL_MODES, "spin": False, "orthogonal": True},
    "without marginalisation": {
        "rule": hm.rules.ucd_lmi(marginalise=False), "spin": True, "orthogonal": True,
    },
    "without orthogonal couplings": {"rule": LOCAL_MODES, "spin": True, "orthogonal": False},
    "centred mean field and PCD": {
        "rule": hm.rules.centred(PERSISTENT), "spin": False, "orthogonal": False
    },
}  # fmt: skip


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def encode(grey: np.ndarray, bits: int, spin: bool) -> np.ndarray:
    """Grey levels as bits of 0 and 1, or of -1 and +1."""
    states = (grey >= 128).astype(np.float32) if bits == 1 else hm.data.BitPlanes().encode(grey)
    states = np.asarray(states, dtype=np.float32)
    return 2 * states - 1 if spin else states


def decode(states: torch.Tensor, bits: int, spin: bool) -> np.ndarray:
    """Intensities in [0, 1]."""
    zero_one = ((states + 1) / 2 if spin else states).cpu().numpy()
    return zero_one if bits == 1 else np.asarray(hm.data.BitPlanes().decode(zero_one)) / 255


def samples(machine: hm.BoltzmannMachine, count: int, method: str) -> torch.Tensor:
    """Visible states: local modes from noise, or the ends of 1000 Gibbs sweeps from noise."""
    start = machine.random_states(count, seed=generator(7))
    if method == "local modes":
        return hm.chains.local_search(machine, start, seed=generator(8))[0][0]
    return hm.chains.run(machine, hm.chains.Gibbs(), start, 1000, seed=generator(8))[0]


def run(
    name: str, budget: dict[str, int], out: Path, features: ClassifierFeatures, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Trains one row and looks at its samples."""
    row, bits = ROWS[name], budget["bits"]
    grey = np.asarray(hm.data.read("mnist").samples)
    X = encode(grey, bits, row["spin"])
    layer = hm.Spin if row["spin"] else hm.Bernoulli
    sizes = (X.shape[1], budget["hidden"], budget["hidden"])
    machine = hm.BoltzmannMachine([layer(size) for size in sizes])
    if row["orthogonal"]:
        hm.machine.orthogonal_(machine, 1.0, generator(1))
    if row["rule"] is not PERSISTENT:
        hm.machine.logistic_biases_(machine, generator(2))
    cpu, wall = time.process_time(), time.perf_counter()
    trained = hm.train(
        machine, X, rule=row["rule"], updates=budget["updates"], batch_size=budget["batch"],
        learning_rate=arguments.rate, schedule="inverse_sqrt", seed=0, device=arguments.device,
    )  # fmt: skip
    record: dict[str, Any] = {
        "row": name,
        "rule": repr(row["rule"]),
        "settings": {**budget, "learning_rate": arguments.rate, "schedule": "inverse_sqrt"},
        "training_cpu_seconds": time.process_time() - cpu,
        "training_seconds": time.perf_counter() - wall,
        "diagnostics": {k: v for k, v in trained.history[-1].items() if isinstance(v, float)},
        "longest_meeting_time": max(
            (r.get("longest_meeting_time", 0.0) for r in trained.history), default=0.0
        ),
    }
    test = np.asarray(hm.data.read("mnist-test").samples)[: budget["samples"]]
    real = decode(torch.from_numpy(encode(test, bits, False)), bits, False)
    training = decode(torch.from_numpy(encode(grey[:10_000], bits, False)), bits, False)
    for method in ("local modes", "Gibbs"):
        drawn = decode(samples(machine, budget["samples"], method), bits, row["spin"])
        coverage = class_coverage(drawn, features).double()
        entropy = -(coverage * coverage.clamp(min=1e-12).log()).sum()
        record[method] = {
            "FID (classifier features)": frechet_distance(real, drawn, features),
            "distinct": len(np.unique(drawn, axis=0)),
            "classes": float(entropy.exp()),
            "distance to training data": float(nearest_neighbours(drawn[:500], training).distances.mean()),
        }
        image_grid(drawn[:100], (28, 28), 10, out / f"{slug(name)}-{slug(method)}.png")
    machine.save(out / f"{slug(name)}.safetensors", overwrite=True)
    return record


def slug(name: str) -> str:
    return name.replace(",", "").replace("±1", "spin").replace(" ", "_").lower()


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--budget", choices=sorted(BUDGETS), default="quick")
    parser.add_argument("--only", choices=list(ROWS), action="append")
    parser.add_argument("--updates", type=int, default=None)
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--out", type=Path, default=None, help="default: runs/mnist_ucd_lmi_BUDGET")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    budget = dict(BUDGETS[arguments.budget])
    budget["updates"] = arguments.updates or budget["updates"]
    budget["batch"] = arguments.batch or budget["batch"]
    out = arguments.out or Path("runs") / f"mnist_ucd_lmi_{arguments.budget}"
    out.mkdir(parents=True, exist_ok=True)

    bits = budget["bits"]
    read = hm.data.read("mnist")
    pixels = decode(torch.from_numpy(encode(np.asarray(read.samples), bits, False)), bits, False)
    features = ClassifierFeatures.fit(pixels, read.labels, image_shape=(28, 28), seed=0)
    test = np.asarray(hm.data.read("mnist-test").samples)[: budget["samples"]]
    real = decode(torch.from_numpy(encode(test, bits, False)), bits, False)
    floor = frechet_distance(real, pixels[: budget["samples"]], features)

    print(f"{'FID (classifier features)':45} {'local modes':>12} {'Gibbs':>8} {'paper (Inception)':>18}")
    print(f"{'training data':45} {floor:12.1f}", flush=True)
    for name in arguments.only or ROWS:
        file = out / f"{slug(name)}.json"
        if not file.exists():
            record = run(name, budget, out, features, arguments)
            record["floor"] = floor
            record["reduced"] = arguments.budget == "quick"
            file.write_text(json.dumps(record, indent=2) + "\n")
        record = json.loads(file.read_text())
        distance = {m: record[m]["FID (classifier features)"] for m in ("local modes", "Gibbs")}
        published = PUBLISHED.get(name, "")
        print(f"{name:45} {distance['local modes']:12.1f} {distance['Gibbs']:8.1f} {published!s:>18}", end="")
        print(
            f"   {record['training_cpu_seconds']:.0f} s, {record['local modes']['distinct']} distinct", end=""
        )
        print(f", {record['local modes']['classes']:.1f} classes", flush=True)
    if arguments.budget == "quick":
        print("a reduced experiment; other features than the paper's: only the order of the rows compares")


if __name__ == "__main__":
    main()
