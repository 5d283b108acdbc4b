"""harmonium train."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

import harmonium as hm

from .command_line import TINY, CommandLine

BARS = "bars-and-stripes"


def test_a_run_is_written_and_summarised(cli: CommandLine, tmp_path: Path) -> None:
    result = cli.train(BARS, tmp_path / "run")

    assert result["status"] == "completed" and result["updates"] == 20
    assert result["layers"] == ["Bernoulli(16)", "Bernoulli(5)"]
    assert "rule pcd" in result["chosen_by_data"] and "hidden" not in result["chosen_by_data"]
    assert {"machine.safetensors", "checkpoint.safetensors"} < {x.name for x in (tmp_path / "run").iterdir()}
    machine = hm.load(tmp_path / "run" / "machine.safetensors")
    assert machine.metadata["data"] == {"name": BARS, "source": BARS, "image_shape": [4, 4]}
    assert machine.metadata["encoder"] == {"codec": "Identity"}


@pytest.mark.parametrize(
    ("options", "layers", "encoder"),
    [
        ("--visible categorical", ["Categorical(16, 2)", "Bernoulli(5)"], "OneHot"),
        (
            "--hidden spin:4,categorical:2:3",
            ["Bernoulli(16)", "Bernoulli(5)", "Spin(4)", "Categorical(2, 3)"],
            "Identity",
        ),
    ],
)
def test_machines(cli: CommandLine, tmp_path: Path, options: str, layers: list[str], encoder: str) -> None:
    result = cli.train(BARS, tmp_path / "run", *options.split())
    machine = hm.load(tmp_path / "run" / "machine.safetensors")
    assert [str(layer) for layer in machine.layers] == result["layers"] == layers
    assert machine.metadata["encoder"]["codec"] == encoder


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("--rule pcd --sweeps 2 --chains 7", "pcd(2, chains=7)"),
        ("--rule tempered_pcd --rule-option replicas=3", "tempered_pcd(1, chains=100, replicas=3)"),
        ("--rule tap --rule-option order=3 --rule-option tolerance=none", "tap(order=3, tolerance=None)"),
    ],
)
def test_rules(cli: CommandLine, tmp_path: Path, options: str, name: str) -> None:
    told = (BARS, tmp_path / "run", *options.split(), "--updates", 1)
    assert cli.train(*told)["rule"].startswith(f"centred({name}")
    assert cli.train(*told, "--no-centred", "--overwrite")["rule"].startswith(name)


def test_a_resume_with_another_encoding_is_refused(cli: CommandLine, tmp_path: Path) -> None:
    cli.train("digits", tmp_path / "run", "--binarise", "threshold")
    message = cli.refuse("train", "digits", tmp_path / "run", *TINY, "--binarise", "sample", "--resume")
    assert message.startswith("encoder: the run to resume has ")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["nowhere.npy"], ["nowhere.npy", "no such file"]),
        ([BARS, "--rule", "magic"], ["--rule: ", "pcd", "magic"]),
        ([BARS, "--rule", "cd", "--chains", "5"], ["--chains: ", "cd", "5"]),
        ([BARS, "--hidden", "0,5"], ["--hidden: ", "'0'"]),
        ([BARS, "--hidden", "soft:5"], ["--hidden: ", "soft"]),
        (["gaussian-mixture", "--hidden", "0"], ["hidden: ", "beside real columns"]),
        ([BARS, "--optimizer", "adam", "--centred"], ["centred: expected False"]),
        ([BARS, "--updates", "5", "--epochs", "5"], ["--updates, --epochs: "]),
        ([BARS, "--metric", "pseudo-likelihood"], ["--metric: ", "--validation"]),
        ([BARS, "--validation", "digits"], ["digits: ", "16", "64"]),
        (
            [BARS, "--visible", "gaussian", "--validation", BARS, "--metric", "pseudo-likelihood"],
            ["--metric: ", "Gaussian"],
        ),
        ([BARS, "--early-stopping", "3"], ["--early-stopping: ", "--validation"]),
        ([BARS, "--joint", "0.3"], ["joint: ", "--label", "0.3"]),
        (["digits", "--visible", "bernoulli"], ["digits: ", "0.3125", "binarise"]),
        (["digits", "--binarise", "bit-planes"], ["digits: ", "uint8"]),
    ],
)
def test_mistakes_are_one_line_and_leave_no_run(
    cli: CommandLine, tmp_path: Path, arguments: list[str], parts: list[str]
) -> None:
    data, *options = arguments
    message = cli.refuse("train", data, tmp_path / "run", *options)
    assert [part for part in parts if part not in message] == []
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_divergence_ends_with_status_1_after_five_attempts(cli: CommandLine, tmp_path: Path) -> None:
    """Beside discrete units, whose numbers stay finite, too."""
    for data, rate in (("gaussian-mixture", 1e6), ("bars-and-stripes", 1e9)):
        arguments = ("train", data, tmp_path / data, *TINY, "--learning-rate", rate, "--method", "chains")
        answer = cli(*arguments)
        *attempts, last = answer.stderr.splitlines()
        assert answer.status == 1 and answer.stdout == ""
        assert len(attempts) == 4 and all("begins again at a third" in each for each in attempts)
        assert last.startswith("error: training diverged after") and f"rate {rate / 81:.4g}" in last
        assert not (tmp_path / data / "machine.safetensors").exists()


def test_grey_images_train_with_no_option_at_all(cli: CommandLine, tmp_path: Path) -> None:
    answer = cli.succeed("train", "digits", tmp_path / "run", "--updates", "40")
    assert "Gaussian(64), Bernoulli(100)" in answer.stdout and "completed" in answer.stdout
    settings = tomllib.loads((tmp_path / "run" / "run.toml").read_text())
    assert settings["hidden"] == ["100"] and settings["schedule"] == "linear"


@pytest.mark.nightly
def test_a_run_of_few_rows_is_as_long_as_it_takes(cli: CommandLine, tmp_path: Path) -> None:
    """500 updates, or more by the rows and by how far they lead; wide data have 500 hidden units."""
    few = cli.succeed("train", BARS, tmp_path / "few", "--hidden", 3, "--method", "chains", "--json").json
    assert few["updates"] == 500 and few["layers"] == ["Bernoulli(16)", "Bernoulli(3)"]
    many = np.random.default_rng(0).integers(0, 2, (400, 4))
    np.save(tmp_path / "many.npy", many.astype(np.float32))
    options = ("--batch-size", 100, "--hidden", 2, "--method", "chains", "--json")
    longer = cli.succeed("train", tmp_path / "many.npy", tmp_path / "many", *options).json
    assert 500 < longer["updates"] <= 5000
    np.save(tmp_path / "wide.npy", np.eye(20, 500, dtype=np.float32))
    wide = cli.succeed("train", tmp_path / "wide.npy", tmp_path / "wide", "--updates", 1, "--json").json
    assert wide["layers"] == ["Bernoulli(500)", "Bernoulli(500)"]
