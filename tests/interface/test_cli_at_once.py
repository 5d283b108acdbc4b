"""Tables at the command line: trained without chains unless an option asks for them, and drawn exactly."""

from __future__ import annotations

import csv
import importlib
import json
import tomllib
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

import harmonium as hm
from harmonium.cli.settings import TrainSettings
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

    codec = hm.tables.Codec.fit(hm.data.read(str(folder / "rows.csv"), labels_apart=True), missing=False)
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
    assert TrainSettings().few_hidden() == 8 and TrainSettings(hidden=["5"]).few_hidden() == 5
    for name, value in (("rule", "pcd"), ("hidden", ["4,3"]), ("epochs", 3), ("batch_size", 10),
                        ("initial_std", 0.1), ("shards", 8), ("early_stopping", 3)):  # fmt: skip
        assert TrainSettings(**{name: value}).few_hidden() is None, name


def test_a_run_with_a_label_is_repeated_to_the_byte(cli: CommandLine, folder: Path) -> None:
    again = folder / "label again"
    cli.succeed("train", "--config", folder / "label" / "run.toml", again)
    kept = (folder / "label" / "machine.safetensors").read_bytes()
    assert (again / "machine.safetensors").read_bytes() == kept


@pytest.mark.parametrize("objective", ["joint", "discriminative"])
def test_any_objective_is_learned_at_once(
    cli: CommandLine, folder: Path, tmp_path: Path, objective: str
) -> None:
    told = ("--label", "city", "--objective", objective, "--hidden", 4, "--json")
    done = cli.succeed("train", folder / "rows.csv", tmp_path / "run", *told).json
    assert done["rule"] == "exact()"
    found = cli.succeed("evaluate", tmp_path / "run", folder / "others.csv", "--json").json
    assert found["results"][0]["label_accuracy"] > 0.8


def test_no_hidden_units_are_a_potts_machine_by_chains(cli: CommandLine, tmp_path: Path) -> None:
    states = np.random.default_rng(0).choice(["a", "b", "c"], (40, 3))
    pandas.DataFrame(states, columns=["x", "y", "z"]).to_csv(tmp_path / "rows.csv", index=False)
    told = ("--hidden", 0, "--updates", 3, "--json")
    assert TrainSettings(hidden=["0"]).few_hidden() is None
    done = cli.succeed("train", tmp_path / "rows.csv", tmp_path / "run", *told).json
    assert done["rule"].startswith("pcd") and not any("Bernoulli" in layer for layer in done["layers"])


def test_what_is_followed_is_refused_before_anything_is_learned(
    cli: CommandLine, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("harmonium.cli.commands.train")
    monkeypatch.setattr(module, "fit_table", lambda *arguments, **named: pytest.fail("it was trained"))
    data, run = folder / "rows.csv", tmp_path / "run"
    assert "no such file" in cli("train", data, run, "--validation", tmp_path / "no.csv").stderr
    told = ("--validation", folder / "others.csv", "--metric", "label")
    assert "expected label with --label" in cli.refuse("train", data, run, *told)


def test_a_run_by_chains_goes_on_by_chains(cli: CommandLine, folder: Path, tmp_path: Path) -> None:
    """Without run.toml, as older versions left it, the checkpoint alone tells."""
    run, data = tmp_path / "run", folder / "rows.csv"
    cli.succeed("train", data, run, "--rule", "pcd", "--hidden", 4, "--epochs", 1, "--schedule", "constant")
    (run / "run.toml").unlink()
    told = ("--hidden", 4, "--schedule", "constant", "--epochs", 2, "--json")
    done = cli.succeed("train", "--resume", data, run, *told).json
    assert done["rule"].startswith("pcd") and (run / "checkpoint.safetensors").exists()
    (run / "run.toml").unlink()
    (run / "machine.safetensors").unlink()  # as where it was interrupted
    kept = (run / "checkpoint.safetensors").read_bytes()
    assert "--schedule: the run to resume" in cli.refuse("train", "--resume", data, run, "--hidden", 4)
    assert (run / "checkpoint.safetensors").read_bytes() == kept
