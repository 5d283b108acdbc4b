"""CIFAR-10 as bit-planes in a deep Boltzmann machine trained from local modes (Taniguchi et al. 2023, §5.2).

    python experiments/cifar_ucd_lmi.py                        # reduced: 16x16 pixels, small layers
    python experiments/cifar_ucd_lmi.py --budget paper --device cuda   # 24576-10000-10000

Every one of the 256 levels of a channel is eight bits, in Gray code so that neighbouring levels differ in
one; samples come back as images without loss. The paper reports an FID of 36.58 (Inception features) from all
50,000 images; this takes the first 4000 images, writes a picture, and claims no figure. In the reduced run
local modes are blurs at best.

Images are read from $HARMONIUM_DATA/cifar10 or ../shared/data/cifar10.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch

import harmonium as hm
from harmonium.report import image_grid

BUDGETS = {
    "quick": {"side": 16, "hidden": 256, "batch": 100, "updates": 200, "samples": 49},
    "paper": {"side": 32, "hidden": 10_000, "batch": 1000, "updates": 100_000, "samples": 100},
}


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--budget", choices=sorted(BUDGETS), default="quick")
    parser.add_argument("--updates", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None, help="default: runs/cifar_ucd_lmi_BUDGET")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    budget = dict(BUDGETS[arguments.budget])
    budget["updates"] = arguments.updates or budget["updates"]
    out = arguments.out or Path("runs") / f"cifar_ucd_lmi_{arguments.budget}"
    out.mkdir(parents=True, exist_ok=True)

    folder = Path(os.environ.get("HARMONIUM_DATA", "../shared/data")) / "cifar10"
    images = np.load(folder / "cifar10-first-4000.npz")["images"]
    factor, side = 32 // budget["side"], budget["side"]
    blocks = images.reshape(len(images), side, factor, side, factor, 3).astype(np.float32)
    images = blocks.mean((2, 4)).round().astype(np.uint8)
    planes = hm.data.BitPlanes(gray=True)
    X = planes.encode(images.reshape(len(images), -1)).astype(np.float32) * 2 - 1

    machine = hm.BoltzmannMachine([hm.Spin(X.shape[1]), hm.Spin(budget["hidden"]), hm.Spin(budget["hidden"])])
    generator = torch.Generator().manual_seed(0)
    hm.machine.orthogonal_(machine, 1.0, generator)
    hm.machine.logistic_biases_(machine, generator)
    cpu = time.process_time()
    run = hm.train(
        machine, X, rule=hm.rules.ucd_lmi(), updates=budget["updates"], batch_size=budget["batch"],
        learning_rate=0.01, schedule="inverse_sqrt", seed=0, device=arguments.device,
    ).whole()  # fmt: skip
    seconds = time.process_time() - cpu
    generator = torch.Generator(machine.device).manual_seed(1)
    start = machine.random_states(budget["samples"], seed=generator)
    modes, sweeps = hm.chains.local_search(machine, start, seed=generator)
    levels = planes.decode(((modes[0] + 1) / 2).cpu().numpy())
    image_grid(levels, (side, side, 3), path=out / "samples.png")
    record = {
        "experiment": f"CIFAR-10 (4000 images, {side}x{side}), eight Gray-coded bits a channel, UCD-LMI",
        "settings": budget,
        "reduced": True,
        "training_cpu_seconds": seconds,
        "distinct_modes": len(np.unique(levels, axis=0)),
        "search_sweeps": float(sweeps.double().mean()),
        "diagnostics": {k: v for k, v in run.history[-1].items() if isinstance(v, float)},
    }
    (out / "result.json").write_text(json.dumps(record, indent=2) + "\n")
    print(
        f"{budget['updates']} updates in {seconds:.0f} s of CPU; {record['distinct_modes']} distinct local "
        f"modes of {budget['samples']}, {record['search_sweeps']:.1f} sweeps of search"
    )
    print(f"a reduced experiment, no figure to compare; written to {out}: samples.png, result.json")


if __name__ == "__main__":
    main()
