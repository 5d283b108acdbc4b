"""Tables at the command line: trained without chains, as estimators train them, and drawn exactly."""

from __future__ import annotations

import csv
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

import harmonium as hm

from .command_line import CommandLine, train_once
from .conftest import shorten

torch.set_num_threads(1)
short = pytest.mark.usefixtures("short_fits")
CITIES = {"Ulm": "D", "Rom": "I", "Bern": "CH"}


def write(path: Path, rows: int, seed: int) -> Path:
    """Cities, their country, and a height that both tell; a fifth of the cities is missing."""
    random = np.random.default_rng(seed)
    city = random.choice([*CITIES], rows)
    height = np.round(10 * (city == "Rom") + random.normal(size=rows), 3)
    country = [CITIES[each] for each in city]
    shown = np.where(random.random(rows) < 0.2, "", city)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("city", "country", "height"), *zip(shown, country, height, strict=True)])
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tables")
    write(made / "rows.csv", 150, 0)
    write(made / "others.csv", 60, 1)
    return made


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    return train_once(folder / "run", folder / "rows.csv", "--validation", folder / "others.csv")


@pytest.fixture(scope="module")
def labelled(folder: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        return train_once(folder / "label", folder / "rows.csv", "--label", "city", "--hidden", 4)


def test_what_is_drawn_and_filled_comes_from_the_exact_distribution(
    cli: CommandLine, folder: Path, trained: Path
) -> None:
    run = trained
    drawn = cli.succeed("sample", run, "--rows", 1000, "--out", folder / "new.csv", "--json").json
    assert drawn["method"] == "exact" and "sweeps" not in drawn
    new = pandas.read_csv(folder / "new.csv")
    assert (new["city"].map(CITIES) == new["country"]).mean() > 0.93
    told = ("sample", run, "--rows", 50, "--given", "city=Rom", "--out", folder / "rom.csv", "--json")
    assert cli.succeed(*told).json["method"] == "exact"
    rom = pandas.read_csv(folder / "rom.csv")
    assert (rom["city"] == "Rom").all() and (rom["country"] == "I").mean() > 0.85 and rom["height"].mean() > 9
    chains = cli.succeed("sample", run, "--sweeps", 3, "--out", folder / "chains.csv", "--json").json
    assert chains["sweeps"] == 3 and "method" not in chains
    filled = cli.succeed("impute", run, folder / "rows.csv", "--out", folder / "full.csv", "--json").json
    assert filled["method"] == "exact"
    full = pandas.read_csv(folder / "full.csv")
    assert (full["city"].map(CITIES) == full["country"]).all()


@pytest.mark.nightly
def test_a_run_is_repeated_to_the_byte_and_has_nothing_to_resume(
    cli: CommandLine, folder: Path, trained: Path
) -> None:
    run, again = trained, folder / "again"
    cli.succeed("train", "--config", run / "run.toml", again)
    kept = (run / "machine.safetensors").read_bytes()
    assert (again / "machine.safetensors").read_bytes() == kept
    cli.succeed("train", "--resume", run)
    assert (run / "machine.safetensors").read_bytes() == kept
    refused = cli.refuse("train", folder / "rows.csv", run)
    assert "holds a run" in refused and "; --resume continues it, --overwrite replaces it" in refused
    cli.succeed("train", folder / "rows.csv", again, "--seed", 1, "--overwrite")
    assert (again / "machine.safetensors").read_bytes() != kept
    page = Path(cli.succeed("report", run, "--sweeps", 20, "--mixing-sweeps", 20, "--json").json["file"])
    assert "Was it learned?" in page.read_text()


def test_a_label_is_learned_at_once(cli: CommandLine, folder: Path, labelled: Path) -> None:
    run = labelled
    assert str(hm.load(run).layers[-1]) == "Bernoulli(4)"
    found = cli.succeed("evaluate", run, folder / "others.csv", "--json").json
    assert found["results"][0]["label_accuracy"] > 0.95
    assert tomllib.loads((run / "run.toml").read_text())["objective"] == "hybrid"


# Options of training by chains, of every part of it.
CHAINS = {
    "batch_size": 99, "learning_rate": 0.1, "rule": "pcd", "kernel": "gibbs", "penalty": "group=0.01",
    "initial_std": 0.1, "init": "normal,data",
}  # fmt: skip


@short
def test_no_option_of_training_changes_the_model(cli: CommandLine, folder: Path, tmp_path: Path) -> None:
    """The machine is that of a run without them, and one warning names them all."""
    plain = ("train", folder / "rows.csv", tmp_path / "run", "--validation", folder / "others.csv")
    assert "hidden 8" in cli.succeed(*plain).stdout
    kept = (tmp_path / "run" / "machine.safetensors").read_bytes()
    named = {"--" + option.replace("_", "-"): value for option, value in CHAINS.items()}
    every = [word for pair in named.items() for word in pair]
    done = cli.succeed(*plain, *every, "--overwrite")
    (told,) = re.findall(r"warning: (.*) are not used by method='exact'", done.stderr)
    assert {*told.split(", ")} == {*named}
    assert (tmp_path / "run" / "machine.safetensors").read_bytes() == kept


def test_exact_sums_that_cannot_be_are_refused(
    cli: CommandLine, folder: Path, trained: Path, tmp_path: Path
) -> None:
    said = cli.refuse("train", folder / "rows.csv", tmp_path / "run", "--hidden", 13, "--method", "exact")
    assert '--method: expected "chains" or "auto" for hidden units other than one layer of at most 12' in said
    assert "--method: expected" in cli.refuse(
        "train", "--from", trained, tmp_path / "run", "--method", "exact"
    )


# The same machine from both doors
# --------------------------------------------------------------------------------


def same(run: Path, estimator: Any, name: str = "machine.safetensors") -> bool:
    one, other = hm.load(run / name), estimator.machine_
    return one.config() == other.config() and all(map(torch.equal, one.parameters(), other.parameters()))


@short
@pytest.mark.parametrize("method", ["auto", "chains"])
def test_tables_give_the_machine_of_the_estimator(
    cli: CommandLine, folder: Path, tmp_path: Path, method: str
) -> None:
    frame = pandas.read_csv(folder / "rows.csv")
    updates = None if method == "auto" else 8
    told = ("--seed", 3, "--method", method, *([] if updates is None else ["--updates", updates]))
    cli.succeed("train", folder / "rows.csv", tmp_path / "rbm", *told)
    assert same(tmp_path / "rbm", hm.RBM(method=method, max_updates=updates, random_state=3).fit(frame))
    cli.succeed("train", folder / "rows.csv", tmp_path / "label", "--label", "country", *told)
    classifier = hm.RBMClassifier(method=method, max_updates=updates, random_state=3)
    classifier.fit(frame[["city", "height"]], frame["country"])
    averaged = "machine.safetensors" if method == "auto" else "averaged.safetensors"
    assert same(tmp_path / "label", classifier, averaged)


def test_images_give_the_machine_of_the_estimator(cli: CommandLine, tmp_path: Path) -> None:
    images, label = hm.data.digits()
    X = hm.data.threshold(images)
    told = ("digits", tmp_path / "run", "--binarise", "threshold", "--seed", 3, "--overwrite")
    for options, estimator in (
        (("--hidden", "20,10"), hm.DBM((20, 10), max_updates=5, random_state=3)),
        (("--label", "label"), hm.RBMClassifier(max_updates=5, random_state=3, averaging=None)),
    ):
        cli.succeed("train", *told, *options, "--updates", estimator.max_updates)
        fitted = estimator.fit(X, label) if "--label" in options else estimator.fit(X)
        assert same(tmp_path / "run", fitted)
