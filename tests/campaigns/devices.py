"""The test suite with its machines and tensors on the pretend device, whose mixing rules are CUDA's.

What a test makes lives on the device (``tests/campaigns/_moved.py`` says how), and every line of harmonium
where the host and the device meet is listed as a fault, whether the test passes or not. What a test
computes by itself may mix them. Other failures are listed with the line that they come from: they are no
mixed devices, but where a test compares bits, counts or timings of the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
HOST = {
    "test_devices.py": "has the device already",
    "test_pretend_device.py": "starts the tests of the device",
    "test_fork.py": "forks, which a process with other devices cannot",
    "test_campaign_damaged.py": "forks, which a process with other devices cannot",
    "test_distributed.py": "starts processes, which are on the CPU",
    "test_cli_process.py": "starts processes, which are on the CPU",
    "test_compiled.py": "compiled code, which serves the CPU alone",
    "test_noise.py": "compiled code, which serves the CPU alone",
    "test_without_numba.py": "compiled code, which serves the CPU alone",
    "test_products.py": "products that serve the CPU alone",
    "test_fast_products.py": "products that serve the CPU alone",
    "test_sparse_products.py": "products that serve the CPU alone",
    "test_whole_products.py": "products that serve the CPU alone",
}
"""Files of tests that are about the host, and why."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns devices", description=__doc__)
    parser.add_argument(
        "files", nargs="*", type=Path, help="of tests; by default all that are about machines"
    )
    parser.add_argument("--limit", type=float, default=60.0, help="CPU seconds of a test")
    parser.add_argument("--cases", type=int, help="of a test with many cases; all by default")
    parser.add_argument("--together", type=int, default=10, help="files in one process")
    parser.add_argument("--report", type=Path, help="where to keep a line of JSON for every test")
    chosen = parser.parse_args(arguments)
    files = chosen.files or [path for path in sorted(TESTS.glob("*/test_*.py")) if path.name not in HOST]
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        report = chosen.report or Path(folder) / "report"
        for part in (files[i : i + chosen.together] for i in range(0, len(files), chosen.together)):
            before = len(found)
            status = _run(part, report, chosen)
            found = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
            names = f"{part[0].name} ... {part[-1].name}" if len(part) > 1 else part[0].name
            print(f"{names}: {_counted(found[before:])}", file=sys.stderr)
            if status not in (0, 1):
                print(f"  pytest ended with {status}", file=sys.stderr)
                found.append({"test": names, "outcome": "lost", "faults": [], "launches": 0})
    faults = Counter(fault for each in found for fault in each["faults"])
    for fault, times in faults.most_common():
        print(f"fault, {times} times: {fault}")
    for each in found:
        if each["outcome"] in ("failed", "cut short", "lost"):
            print(f"{each['test']}: {each.get('error', 'lost')} ({each.get('place', '')})")
    print(f"{_counted(found)}, {len(faults)} faults")
    return int(bool(faults))


def _counted(found: list[dict[str, Any]]) -> str:
    counts = Counter(each["outcome"] for each in found)
    used = sum(each["launches"] > 0 for each in found)
    return ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())) + f"; {used} used the device"


def _run(files: list[Path], report: Path, chosen: argparse.Namespace) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["--continue-on-collection-errors"]
    command += ["-p", "campaigns._moved", "--moved-report", str(report), "--moved-limit", str(chosen.limit)]
    command += [] if chosen.cases is None else ["--moved-cases", str(chosen.cases)]
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command + [str(path) for path in files], env=environment, stdout=subprocess.DEVNULL)
    return done.returncode
