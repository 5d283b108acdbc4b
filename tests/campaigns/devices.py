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
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
HOST = {
    "has the device already": ("test_devices.py", "test_pretend_device.py"),
    "starts processes or threads, which do not know of the device": (
        "test_distributed.py",
        "test_cli_process.py",
        "test_training_resume.py::test_training_works_outside_the_main_thread",
    ),
    "forks, which a process with other devices cannot": (
        "test_fork.py",
        "test_campaigns.py",
        "test_campaign_damaged.py",
    ),
    "compiled code, which serves the CPU alone": (
        "test_compiled.py",
        "test_noise.py",
        "test_without_numba.py",
        "test_two_valued.py",
        "test_coupled.py::test_the_compiled_kernel",
        "test_langevin.py::test_.*compiled_",
    ),
    "products that serve the CPU alone": (
        "test_products.py",
        "test_fast_products.py",
        "test_sparse_products.py",
        "test_cached_fields.py::test_data_meet_a_coupling_once",
    ),
    "writes files itself, of tensors whose memory nothing can read": (
        "test_declared_sizes.py::test_a_machine_file_that_claims",
        "test_declared_sizes.py::test_no_(header|metadata)",
        "test_declared_sizes.py::test_parameters_that_repeat",
        "test_declared_sizes.py::test_tensors_that_are_no_parameters",
        "test_machine_files.py::test_a_(header|safetensors_file)",
        "test_machine_files.py::test_an(other_version|_unknown_kind)",
        "test_machine_files.py::test_values_that_are_not_finite",
        "test_crafted_checkpoints.py::test_what_does_not_fit",
    ),
    "sparse tensors, which the device does not have": (
        "test_numbers.py::test_all_else_is_refused_by_name.*sparse",
    ),
    "names what the campaign puts another thing in place of": (
        "test_seeds.py::test_a_generator_of_another_device",
        "test_imports.py::test_names_are_the_same",
    ),
    "gives what an oracle computed on the CPU to inner functions": (
        "test_graphs.py::test_expected_statistics_of_every_reading",
    ),
}
"""Why tests are left out that are about the host, and which: patterns of their ids."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns devices", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="of tests; all by default")
    parser.add_argument("--limit", type=float, default=60.0, help="CPU seconds of a test")
    parser.add_argument("--cases", type=int, help="of a test with many cases; all by default")
    parser.add_argument("--together", type=int, default=10, help="files in one process")
    parser.add_argument(
        "--report", type=Path, help="a line of JSON for every test; one that it has is not run again"
    )
    parser.add_argument(
        "--again", action="store_true", help="run those again that did not pass in the report"
    )
    chosen = parser.parse_args(arguments)
    files = chosen.files or sorted(TESTS.glob("*/test_*.py"))
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        report = chosen.report or Path(folder) / "report"
        for part in (files[i : i + chosen.together] for i in range(0, len(files), chosen.together)):
            before = read(report)
            status = _run(part, report, chosen)
            found |= (now := read(report))
            new = [each for test, each in now.items() if each != before.get(test)]
            names = f"{part[0].name} ... {part[-1].name}" if len(part) > 1 else part[0].name
            print(f"{names}: {_counted(new)}", file=sys.stderr)
            if status not in (0, 1):
                print(f"  pytest ended with {status}", file=sys.stderr)
                found[names] = {"test": names, "outcome": "lost", "faults": [], "launches": 0}
    faults = Counter(fault for each in found.values() for fault in each["faults"])
    for fault, times in faults.most_common():
        print(f"fault, {times} times: {fault}")
    for each in found.values():
        if each["outcome"] in ("failed", "cut short", "lost"):
            print(f"{each['test']}: {each.get('error', 'lost')} ({each.get('place', '')})")
    for reason, times in Counter(each["reason"] for each in found.values() if "reason" in each).items():
        print(f"{times} left out: {reason}")
    print(f"{_counted(found.values())}, {len(faults)} faults")
    return int(bool(faults))


def left_out(test: str) -> str | None:
    """Why a test is left out, by its id; None for one that is run."""
    found = (why for why, names in HOST.items() for name in names if re.search(f"/{name}", test))
    return next(found, None)


def read(report: Path) -> dict[str, dict[str, Any]]:
    """The last line of every test in a report."""
    lines = report.read_text().splitlines() if report.exists() else []
    return {each["test"]: each for each in map(json.loads, lines)}


def _counted(found: Collection[dict[str, Any]]) -> str:
    counts = Counter(each["outcome"] for each in found)
    used = sum(each["launches"] > 0 for each in found)
    return ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())) + f"; {used} used the device"


def _run(files: list[Path], report: Path, chosen: argparse.Namespace) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["--continue-on-collection-errors"]
    command += ["-p", "campaigns._moved", "--moved-report", str(report), "--moved-limit", str(chosen.limit)]
    command += ["--moved-again"] if chosen.again else []
    command += [] if chosen.cases is None else ["--moved-cases", str(chosen.cases)]
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command + [str(path) for path in files], env=environment, stdout=subprocess.DEVNULL)
    return done.returncode if done.returncode != pytest.ExitCode.NO_TESTS_COLLECTED else 0
