"""How much memory training takes on a file of rows that is larger than memory.

``python experiments/streamed_rows.py`` writes 12 GB of 0/1 rows (784 columns, one byte each), trains a
machine on them in 2 processes, each row once, and looks four times a second at what each process holds. The
file is removed. It fails where a process held more than ``--limit``.

What is measured, from /proc, the largest value of the whole run of each process:

- resident: every page that is in memory for the process, those of code, libraries and the file included
  (VmHWM);
- anonymous: what no file stands behind, and what the system could not drop (RssAnon);
- proportional: resident, with shared pages divided among those that share them (Pss).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WIDTH, HIDDEN = 784, 64
PATTERNS, FLIPPED = 10, 1 / 8
PIECE = 1 << 16  # rows written at once
MIB = 1 << 20


def write(path: Path, rows: int) -> None:
    """Rows near one of ten patterns: an eighth of the bits flipped."""
    random = np.random.default_rng(0)
    patterns = random.integers(0, 256, (PATTERNS, WIDTH // 8), dtype=np.uint8)
    file = np.lib.format.open_memmap(path, "w+", np.uint8, (rows, WIDTH))
    size = 1 << 30
    for start in range(0, rows, PIECE):
        count = min(PIECE, rows - start)
        shape = (count, WIDTH // 8)
        noise = np.frombuffer(random.bytes(3 * count * shape[1]), np.uint8).reshape(3, *shape)
        flips = noise[0] & noise[1] & noise[2]
        rows_of = patterns[random.integers(PATTERNS, size=count)] ^ flips
        file[start : start + count] = np.unpackbits(rows_of, axis=1)
        if start * WIDTH // size != (start + count) * WIDTH // size:
            file.flush()
    file.flush()


def train(path: str, rows: int, batch: int) -> None:
    """What each process does."""
    import torch

    import harmonium as hm

    torch.set_num_threads(1)
    X = hm.data.read(path).samples
    machine = hm.BoltzmannMachine([hm.Bernoulli(WIDTH), hm.Bernoulli(HIDDEN)])
    hm.machine.normal_(machine, 0.01, torch.Generator().manual_seed(0))
    with hm.distributed.init_process_group("cpu"):
        begun = time.process_time(), time.perf_counter()
        run = hm.train(
            machine,
            X,
            rule=hm.rules.pcd(1, 1024),
            updates=rows // batch,
            batch_size=batch,
            learning_rate=0.05,
            progress=False,
            distributed="auto",
        ).whole()
        seconds = time.process_time() - begun[0], time.perf_counter() - begun[1]
    v = torch.from_numpy(np.array(X[:1000])).float()
    score = float(hm.likelihood.pseudo_log_likelihood(machine, v, seed=0).mean())
    norm = run.history[-1]["weight_norm"]
    print(json.dumps({"cpu_seconds": seconds[0], "seconds": seconds[1], "pseudo": score, "norm": norm}))


def held(process: int) -> dict[str, float]:
    """MiB that a process holds now, and the most that it has held."""
    found = {}
    for name, file in (("VmHWM", "status"), ("RssAnon", "status"), ("Pss", "smaps_rollup")):
        lines = Path(f"/proc/{process}/{file}").read_text().splitlines()
        found[name] = next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024
    return found


def watch(command: list[str], environment: dict[str, str]) -> tuple[list[dict[str, float]], str]:
    """Runs processes under torchrun; the most that each of them held, and what they said."""
    started = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    most: dict[int, dict[str, float]] = {}
    while started.poll() is None:
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
        for child in map(int, children):
            try:
                now = held(child)
            except (OSError, StopIteration):  # it has just ended
                continue
            before = most.setdefault(child, now)
            most[child] = {name: max(before[name], value) for name, value in now.items()}
        time.sleep(0.25)
    assert started.returncode == 0, started.returncode
    assert started.stdout is not None
    return list(most.values()), started.stdout.read()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=12.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--part", type=float, default=1.0, help="of an epoch")
    parser.add_argument("--limit", type=float, default=1024.0, help="MiB a process")
    parser.add_argument("--folder", type=Path, help="where the file is written; a temporary folder otherwise")
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.train:
        train(chosen.train[0], int(chosen.train[1]), int(chosen.train[2]))
        return 0
    rows = int(chosen.gigabytes * 1e9) // WIDTH
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        path = Path(folder) / "rows.npy"
        write(path, rows)
        print(f"{path.stat().st_size / 1e9:.2f} GB, {rows:,} rows of {WIDTH}", flush=True)
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={chosen.processes}"]
        shown = int(rows * chosen.part)
        arguments = [__file__, "--train", str(path), str(shown), str(chosen.batch)]
        most, said = watch([*command, *arguments], {**os.environ, "OMP_NUM_THREADS": "1"})
    print(said.strip())
    for each in most:
        print(
            f"resident {each['VmHWM']:.0f} MiB, anonymous {each['RssAnon']:.0f} MiB, "
            f"proportional {each['Pss']:.0f} MiB"
        )
    return int(not most or max(each["VmHWM"] for each in most) > chosen.limit)


if __name__ == "__main__":
    sys.exit(main())
