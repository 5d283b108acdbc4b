"""Taniguchi et al. (2023) as published: one command, and the experiment with the paper's budget, reduced."""

from __future__ import annotations

import re
import shlex
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.coupled import Metropolis

from .command_line import CommandLine

ROOT = Path(__file__).parents[2]


def published(program: str = "train") -> list[str]:
    """Returns the words of a command of the page behind ``harmonium``."""
    page = (ROOT / "docs" / "recipes.md").read_text("utf-8").partition("## As published")[2]
    code = re.findall(r"```bash\n(.*?)```", page, re.S)[0].replace("\\\n", " ")
    return next(words[1:] for words in map(shlex.split, code.splitlines()) if words[1] == program)


def write_images(folder: Path, name: str, X: np.ndarray) -> None:
    """Writes images and labels as the four files of MNIST are."""
    labels = np.arange(len(X), dtype=np.uint8) % 10
    for kind, array in (("images-idx3", X), ("labels-idx1", labels)):
        head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        (folder / f"{name}-{kind}-ubyte").write_bytes(head + array.tobytes())


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes images of 28x28 grey levels stand where MNIST is looked for."""
    folder, rng = tmp_path / "mnist", np.random.Generator(np.random.PCG64(0))
    folder.mkdir()
    for name, rows in (("train", 60), ("t10k", 40)):
        write_images(folder, name, rng.integers(0, 256, (rows, 28, 28)).astype(np.uint8))
    monkeypatch.setenv("HARMONIUM_DATA", str(tmp_path))
    return folder


def is_orthogonal(W: torch.Tensor) -> bool:
    """Returns whether columns are orthogonal and of norm 1."""
    return torch.allclose(W.t() @ W, torch.eye(W.shape[1]), atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # of a machine that has learned nothing
def test_the_command_of_the_page_runs_at_small_size(cli: CommandLine, digits: Path, tmp_path: Path) -> None:
    words, run = published(), tmp_path / "run"
    changed = {"--hidden": "spin:6,spin:5", "--batch-size": "10", "--updates": "2", "--device": "cpu"}
    changed["--learning-rate"] = "0"  # so that the start is seen
    for option, value in changed.items():
        words[words.index(option) + 1] = value
    words[words.index("mnist") + 1] = str(run)
    made = cli(*words, "--json").json
    assert made["layers"] == ["Spin(6272)", "Spin(6)", "Spin(5)"]
    assert made["rule"] == hm.rules.ucd_lmi(10).name
    assert made["bias"] == "unbiased" and made["updates"] == 2
    machine = hm.load(run / "machine.safetensors")
    assert all(is_orthogonal(coupling.weight.detach()) for coupling in machine.couplings)
    assert all(float(layer.bias.detach().abs().max()) > 0.1 for layer in machine.layers)
    modes = hm.chains.local_search(machine, machine.random_states(4, seed=0), seed=0)
    assert modes[0][0].shape == (4, 6272)
    words[words.index(str(run))] = str(tmp_path / "other")
    assert cli(*words, "--rule-option", "pair_kernel=none", "--json").json["bias"] == "biased"


def test_command_and_experiment_are_one_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Appendices B and C of the paper; batch and schedule are those of its program."""
    monkeypatch.syspath_prepend(ROOT / "experiments")
    from mnist_ucd_lmi import BUDGETS, ROWS, USUAL, fresh

    paper, row = BUDGETS["paper"], ROWS[USUAL["paper"]]
    assert paper == {
        "bits": 8, "hidden": (6272, 6272), "batch": 1000, "updates": 100_000, "rate": 0.01,
        "schedule": "inverse_sqrt", "start": "logistic",
    }  # fmt: skip
    assert row.spin and row.orthogonal and row.rule.name == hm.rules.ucd_lmi().name
    machine = fresh(row, (24, 12, 12), 0)
    assert all(is_orthogonal(coupling.weight.detach()) for coupling in machine.couplings)
    assert all(isinstance(side.pair_kernel, Metropolis) for side in (row.rule.clamped, row.rule.free))
    words = published()
    options = {word.removeprefix("--"): words[i + 1] for i, word in enumerate(words[:-1]) if word[:2] == "--"}
    assert float(options["learning-rate"]) == paper["rate"] and options["schedule"] == paper["schedule"]
    assert (int(options["batch-size"]), int(options["updates"])) == (paper["batch"], paper["updates"])
    assert options["hidden"] == ",".join(f"spin:{size}" for size in paper["hidden"])
    assert options["init"] == "orthogonal,logistic" and "--no-centred" in words
