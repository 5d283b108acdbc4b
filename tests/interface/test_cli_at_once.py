"""Tables at the command line: trained without chains unless an option asks for them, and drawn exactly."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

import harmonium as hm
from harmonium.training import fit_table

from .command_line import CommandLine

torch.set_num_threads(1)
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


def test_a_table_is_trained_as_the_estimator_trains_it(cli: CommandLine, folder: Path) -> None:
    run = folder / "run"
    done = cli.succeed(
        "train", folder / "rows.csv", run, "--validation", folder / "others.csv", "--json"
    ).json
    assert done["rule"] == "exact()" and done["bias"] == "exact" and done["status"] == "completed"
    assert "Bernoulli(8)" in done["layers"] and np.isfinite(done["metrics"]["log_likelihood"])
    machine = hm.load(run)
    assert (
        cli.succeed("evaluate", run, folder / "rows.csv", "--json").json["log_partition"]["method"] == "exact"
    )

    codec = hm.data.Codec.fit(hm.data.read(str(folder / "rows.csv"), labels_apart=True), missing=False)
    begun = hm.machine.join_layers(codec.layers, [hm.Bernoulli(8)], 0)
    rows = codec.rows(hm.data.read(str(folder / "rows.csv")), begun.dtype, None, shown="anything").all()
    expected = fit_table(begun, rows).machine
    assert all(map(torch.equal, machine.parameters(), expected.parameters()))

    records = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert records[-1]["step"] == done["updates"] and "held_out_log_likelihood" in records[0]
    settings = tomllib.loads((run / "run.toml").read_text())
    assert settings["hidden"] == ["8"] and "rule" not in settings and "updates" not in settings


def test_what_is_drawn_and_filled_comes_from_the_exact_law(cli: CommandLine, folder: Path) -> None:
    run = folder / "run"
    drawn = cli.succeed("sample", run, "--number", 1000, "--out", folder / "new.csv", "--json").json
    assert drawn["method"] == "exact" and "sweeps" not in drawn
    new = pandas.read_csv(folder / "new.csv")
    assert (new["city"].map(CITIES) == new["country"]).mean() > 0.93
    told = ("sample", run, "--number", 50, "--given", "city=Rom", "--out", folder / "rom.csv", "--json")
    assert cli.succeed(*told).json["method"] == "exact"
    rom = pandas.read_csv(folder / "rom.csv")
    assert (rom["city"] == "Rom").all() and (rom["country"] == "I").mean() > 0.85 and rom["height"].mean() > 9
    chains = cli.succeed("sample", run, "--sweeps", 3, "--out", folder / "chains.csv", "--json").json
    assert chains["sweeps"] == 3 and "method" not in chains
    filled = cli.succeed("impute", run, folder / "rows.csv", "--out", folder / "full.csv", "--json").json
    assert filled["method"] == "exact"
    full = pandas.read_csv(folder / "full.csv")
    assert (full["city"].map(CITIES) == full["country"]).all()


def test_a_run_is_repeated_to_the_byte_and_has_nothing_to_resume(cli: CommandLine, folder: Path) -> None:
    run, again = folder / "run", folder / "again"
    cli.succeed("train", "--config", run / "run.toml", again)
    kept = (run / "machine.safetensors").read_bytes()
    assert (again / "machine.safetensors").read_bytes() == kept
    answer = cli.succeed("train", "--resume", run)
    assert "is whole: it was made at once" in answer.stderr
    assert (run / "machine.safetensors").read_bytes() == kept
    assert "holds a run" in cli.refuse("train", folder / "rows.csv", run)
    cli.succeed("train", folder / "rows.csv", again, "--seed", 1, "--overwrite")
    assert (again / "machine.safetensors").read_bytes() != kept
    page = Path(cli.succeed("report", run, "--sweeps", 20, "--mixing-steps", 20, "--json").json["file"])
    assert "Was it learned?" in page.read_text()


def test_a_label_is_learned_at_once(cli: CommandLine, folder: Path) -> None:
    run = folder / "label"
    done = cli.succeed("train", folder / "rows.csv", run, "--label", "city", "--hidden", 4, "--json").json
    assert done["rule"] == "exact()" and "Bernoulli(4)" in done["layers"]
    found = cli.succeed("evaluate", run, folder / "others.csv", "--json").json
    assert found["results"][0]["label_accuracy"] > 0.95
    assert tomllib.loads((run / "run.toml").read_text())["objective"] == "hybrid"


@pytest.mark.parametrize(
    "option",
    [("--rule", "pcd"), ("--updates", 3), ("--hidden", 13), ("--learning-rate", 0.1), ("--kernel", "gibbs"),
     ("--hidden", "spin:4"), ("--averaging", 0.9)],
    ids=str,
)  # fmt: skip
def test_an_option_of_chains_asks_for_them(cli: CommandLine, folder: Path, tmp_path: Path, option) -> None:
    short = () if "--updates" in option else ("--updates", 3)
    done = cli.succeed("train", folder / "rows.csv", tmp_path / "run", *option, *short, "--json").json
    assert done["rule"].startswith("pcd") and done["updates"] == 3


def test_settings_alone_decide() -> None:
    from harmonium.cli.settings import TrainSettings

    assert TrainSettings().few_hidden() == 8 and TrainSettings(hidden=["5"]).few_hidden() == 5
    for name, value in (("rule", "pcd"), ("hidden", ["4,3"]), ("epochs", 3), ("batch_size", 10),
                        ("initial_std", 0.1), ("shards", 8), ("early_stopping", 3)):  # fmt: skip
        assert TrainSettings(**{name: value}).few_hidden() is None, name
