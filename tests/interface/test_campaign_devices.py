"""The campaign of the pretend device finds devices that are mixed, and goes on from a report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from campaigns import devices
from campaigns.__main__ import main

SUITE = """
import torch
from pretend_device import DEVICE


def test_mixed():
    torch.ones(3, device=DEVICE) + torch.ones(3, device="cpu")


def test_known():
    raise AssertionError("it is run again")


def test_well():
    torch.ones(3, device=DEVICE) + 1
"""


@pytest.mark.nightly
def test_it_finds_a_fault_and_runs_again_what_did_not_pass(tmp_path: Path, capfd) -> None:
    suite, report = tmp_path / "test_suite.py", tmp_path / "report"
    suite.write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")  # names of tests begin here
    passed = {"faults": [], "launches": 1, "test": "test_suite.py::test_known", "outcome": "passed"}
    failed = {**passed, "test": "test_suite.py::test_mixed", "outcome": "failed", "faults": ["one before"]}
    report.write_text("".join(json.dumps(each) + "\n" for each in (passed, failed)))
    assert main(["devices", str(suite), "--report", str(report), "--again"]) == 1
    out = capfd.readouterr().out
    assert "fault, 1 times" in out and "1 failed, 2 passed; 3 used the device, 1 faults" in out
    known, _, mixed, well = map(json.loads, report.read_text().splitlines())
    assert well.keys() == known.keys() and well["outcome"] == "passed" and well["test"].endswith("test_well")
    assert mixed["test"] == failed["test"] and mixed["faults"] != failed["faults"]


@pytest.mark.parametrize("name", [name for names in devices.HOST.values() for name in names])
def test_what_is_left_out_is_there(name: str) -> None:
    file, _, function = name.partition("::")
    (path,) = devices.TESTS.glob(f"*/{file}")
    named = re.findall(r"def (test_\w+)", path.read_text())
    assert not function or any(re.match(function, f"{each}[sparse-True]") for each in named)
