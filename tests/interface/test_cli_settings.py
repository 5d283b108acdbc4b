"""run.toml, --config, --resume RUN and --from RUN."""

from __future__ import annotations

import inspect
import tomllib
import warnings
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium._settings import Setting, settings_of
from harmonium.chains import Kernel
from harmonium.cli.options import Chains
from harmonium.cli.settings import TrainSettings
from harmonium.learning import Rule, rules
from harmonium.tables import make_rule
from harmonium.training import as_toml
from harmonium.training.settings import Steps

from .command_line import TINY, CommandLine

pytestmark = pytest.mark.usefixtures("short_fits")
BARS = "bars-and-stripes"


def content(run: Path) -> dict[str, object]:
    return tomllib.loads((run / "run.toml").read_text("utf-8"))


def machine_bytes(run: Path) -> bytes:
    return (run / "machine.safetensors").read_bytes()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal():.3f},{'ab'[rng.integers(2)]},{rng.integers(5)}" for _ in range(60)]
    (tmp_path / "table.csv").write_text("\n".join(["x,y,n", *rows]))
    (tmp_path / "kinds.toml").write_text('n = { kind = "binomial", largest = 4 }\n"x" = "gaussian"\n')
    return tmp_path / "table.csv"


RUNS = {
    "pcd": f"{BARS} --schedule cosine --averaging 0.9 --centred --seed 3",
    "deep": f"{BARS} --hidden 4,3 --rule mean_field_pcd --chains 8",
    "table": "table --method chains --label y --kinds kinds --objective hybrid --joint 0.2",
    "stopped": f"{BARS} --validation {BARS} --evaluate-every 1 --early-stopping 1",
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_repeated_from_its_file_leaves_the_same_bytes(
    cli: CommandLine, tmp_path: Path, table: Path, name: str
) -> None:
    files = {"table": str(table), "kinds": str(tmp_path / "kinds.toml")}
    data, *options = (files.get(word, word) for word in RUNS[name].split())
    cli.train(data, tmp_path / "run", *options)
    (tmp_path / "kinds.toml").unlink()  # its content is in run.toml
    answer = cli.succeed("train", "--config", tmp_path / "run" / "run.toml", tmp_path / "again")

    assert "warning" not in answer.stderr
    assert machine_bytes(tmp_path / "run") == machine_bytes(tmp_path / "again")
    first, second = content(tmp_path / "run"), content(tmp_path / "again")
    assert first.pop("commands") != second.pop("commands")
    assert first == second


def test_the_file_holds_the_command_and_what_was_left_to_defaults(cli: CommandLine, tmp_path: Path) -> None:
    run = tmp_path / "a run"
    cli.succeed("train", BARS, run, *TINY)
    stored = content(run)
    assert stored["commands"] == [f"harmonium train {BARS} '{run}' {' '.join(TINY)}"]
    assert (stored["hidden"], stored["updates"], stored["threads"]) == (["5"], 20, 1)
    assert (stored["learning_rate"], stored["optimizer"], stored["schedule"]) == (0.192, "sgd", "linear")
    assert (stored["method"], stored["centred"], "clip_norm" in stored) == ("chains", True, False)
    text = (run / "run.toml").read_text()
    assert "# epochs =\n" in text and "# Learning rule: exact, cd, pcd" in text
    assert not {"resume", "overwrite", "config", "json", "run_dir"} & stored.keys()


def test_the_command_line_wins_over_the_file(cli: CommandLine, tmp_path: Path) -> None:
    cli.train(BARS, tmp_path / "run", "--rule", "pcd", "--chains", "7", "--centred")
    file = tmp_path / "run" / "run.toml"
    cli.succeed("train", "--config", file, tmp_path / "rate", "--learning-rate", "0.1", "--no-centred")
    rate = content(tmp_path / "rate")
    assert (rate["learning_rate"], rate["chains"], rate["centred"]) == (0.1, 7, False)

    # What belongs to a rule or a length goes with it.
    answer = cli.succeed(
        "train", "--config", file, tmp_path / "rule", "--rule", "cd", "--epochs", "2", "--json"
    )
    assert answer.json["rule"] == "centred(cd(1))" and answer.json["updates"] == 2

    cli.succeed("train", "digits", tmp_path / "data", "--config", file, "--binarise", "threshold")
    assert content(tmp_path / "data")["data"] == "digits"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("learing_rate = 0.1", ["'learing_rate'", "learning_rate"]),
        ("centred = 1", ["centred", "true or false", "1"]),
        ("hidden = 5 5", ["no TOML", "line 1"]),
        ('rule = "magic"', ["--rule: ", "magic"]),
    ],
)
def test_mistakes_in_a_file_are_named(cli: CommandLine, tmp_path: Path, text: str, parts: list[str]) -> None:
    (tmp_path / "x.toml").write_text(text + "\n")
    message = cli.refuse("train", BARS, tmp_path / "run", "--config", tmp_path / "x.toml")
    assert [part for part in parts if part not in message] == []
    assert not (tmp_path / "run").exists()


NO_SETTING = ["{ a = 1 }", "[[1]]", "1979-05-27", "1" + "0" * 400, "[true, 1]", "9223372036854775808"]
WRONG = {bool: ['"no such"', "-1", "nan"], int: ['"no such"', "1.5", "true"], float: ['"no such"', "true"]}


@pytest.mark.parametrize("name", settings_of(TrainSettings))
@pytest.mark.mostly_nightly(5)
def test_no_setting_takes_what_it_cannot_hold(cli: CommandLine, tmp_path: Path, name: str) -> None:
    """Every setting of the file, each with values of other types: one line, which names the setting."""
    setting = settings_of(TrainSettings)[name]
    kinds = get_args(setting.kind) or (setting.kind,)
    values = NO_SETTING + next((WRONG[kind] for kind in WRONG if kind in kinds), ["true"])
    if setting.words and str in kinds:
        values.append('"no such"')
    if get_origin(next(iter(kinds))) is Literal:
        values += ['"no such"', '""']
    for value in values:
        key, file = (setting.option or name).lstrip("-").replace("-", "_"), tmp_path / "c.toml"
        lines = {"data": f'"{BARS}"', "run_dir": f'"{tmp_path / "run"}"', "hidden": '["2"]', key: value}
        if name == "kinds" and value == "{ a = 1 }":  # which is a table of kinds
            continue
        file.write_text("".join(f"{each} = {text}\n" for each, text in lines.items()))
        refused = cli.refuse("train", "--config", file)
        assert key in refused.replace("-", "_"), (value, refused)
    assert not (tmp_path / "run").exists()


def test_a_file_written_by_hand(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        f'data = "{BARS}"\nrun_dir = "{tmp_path / "run"}"\nhidden = 6\nbatch-size = 8\nupdates = 3\n'
    )
    assert cli.succeed("train", "--config", file, "--json").json["layers"][1] == "Bernoulli(6)"
    assert cli.refuse("train", "--config", file).startswith("RUN_DIR: ")  # nothing is replaced unasked
    assert cli.refuse("train", "--config", tmp_path / "no.toml").startswith("--config: ")
    file.write_text("hidden = 6\n")
    assert cli.refuse("train", "--config", file, tmp_path / "b").startswith("DATA, RUN_DIR: ")
    assert cli.refuse("train").startswith("DATA, RUN_DIR: ")


def test_resume_needs_nothing_but_the_run(cli: CommandLine, tmp_path: Path) -> None:
    options = ("--batch-size", 8, "--rule", "cd", "--seed", 4, "--schedule", "constant")
    cli.train(BARS, tmp_path / "whole", *options)
    cli.train(BARS, tmp_path / "parts", *options, "--updates", 7)
    cli.succeed("train", "--resume", tmp_path / "parts", "--updates", 20)
    assert machine_bytes(tmp_path / "whole") == machine_bytes(tmp_path / "parts")
    stored = content(tmp_path / "parts")
    assert stored["updates"] == 20 and len(stored["commands"]) == 2

    cli.succeed("train", tmp_path / "parts", "--resume")  # nothing is left to do
    assert machine_bytes(tmp_path / "whole") == machine_bytes(tmp_path / "parts")
    message = cli.refuse("train", "--resume", tmp_path / "parts", "--learning-rate", 0.2)
    assert message.startswith("--learning-rate: ")
    assert "run.toml" in cli.refuse("train", "--resume", tmp_path)
    assert cli.refuse("train", "--resume", tmp_path / "nowhere").startswith("RUN_DIR: ")
    assert cli.refuse("train", "--resume", tmp_path / "parts", "--from", tmp_path).startswith(
        "--resume, --from"
    )


def test_a_run_begins_with_the_machine_of_another(cli: CommandLine, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    cli.train(BARS, first, "--batch-size", 8, "--schedule", "constant")
    cli.succeed("train", "--from", first, second, "--learning-rate", 0, "--rule", "cd", "--updates", 1)
    before, after = (hm.load(run / "machine.safetensors") for run in (first, second))
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
    stored = content(second)
    assert (stored["from"], stored["batch_size"], stored["rule"]) == (str(first), 8, "cd")
    assert "hidden" not in stored

    cli.succeed("train", "--from", first, tmp_path / "third")
    cli.succeed("train", "--config", tmp_path / "third" / "run.toml", tmp_path / "fourth")
    assert machine_bytes(tmp_path / "third") == machine_bytes(tmp_path / "fourth") != machine_bytes(first)
    cli.succeed("train", "--resume", tmp_path / "third", "--updates", 25)

    file = first / "machine.safetensors"
    cli.succeed("train", "--from", file, BARS, tmp_path / "fifth", "--updates", 2)
    assert cli.refuse("train", "--from", first, tmp_path / "x", "--hidden", 3).startswith("--hidden: ")
    assert cli.refuse("train", "--from", first, "digits", tmp_path / "x").startswith("digits: ")


def test_a_table_goes_on_with_other_rows(cli: CommandLine, tmp_path: Path, table: Path) -> None:
    cli.train(table, tmp_path / "first", "--label", "y")
    lines = table.read_text().splitlines()
    turned = [",".join(reversed(line.split(","))) for line in lines[:31]]  # other order, other rows
    (tmp_path / "more.csv").write_text("\n".join([*turned, "1,,0.5"]))
    cli.succeed("train", "--from", tmp_path / "first", tmp_path / "more.csv", tmp_path / "second")
    before, after = (hm.load(tmp_path / run / "machine.safetensors") for run in ("first", "second"))
    assert [str(layer) for layer in before.layers] == [str(layer) for layer in after.layers]
    for part in ("label", "objective"):
        assert before.metadata[part] == after.metadata[part]
    columns, widened = (made.metadata["encoder"].pop("all_columns") for made in (before, after))
    assert before.metadata["encoder"] == after.metadata["encoder"]
    for column, wider in zip(columns, widened, strict=True):  # each has seen more cells, by the same coding
        assert wider["seen"] > column["seen"]
        known = ("seen", "ends", "filled", "drawn")
        assert all(column[name] == wider[name] for name in column.keys() - known)
    assert after.metadata["data"]["names"] == ["x", "y", "n"]
    cli.succeed("evaluate", tmp_path / "second", table)


def test_text_that_needs_care_comes_back() -> None:
    value = {"a b": ['"\\', "\x7f\x00\n", "é\U0001f600", True, -3, 1e-05, 2.5, float("inf")], "c": {}}
    assert tomllib.loads(f"x = {as_toml(value)}")["x"] == value
    with pytest.raises(TypeError, match="NoneType"):
        as_toml([None])


def test_what_the_trainer_takes_is_what_the_command_and_the_estimators_take() -> None:
    """Defaults that the command leaves open are those of ``hm.train``; estimators refuse what it refuses."""
    known = inspect.signature(hm.train).parameters
    decided = {"learning_rate": 0.05, "schedule": "constant", "optimizer": "sgd", "on_divergence": "raise"}
    for name in settings_of(Steps):
        assert known[name].default == decided.get(name, getattr(Steps, name)), name
    own = settings_of(hm.RBM)
    for name, setting in settings_of(Steps).items():
        for value in (-1, 0, 0.5, 1, 1.5, None, "sgd", "linear", "magic"):
            if name in own and not (name == "learning_rate" and value is None):
                assert accepts(own[name], name, value) is accepts(setting, name, value), (name, value)


def accepts(setting: Setting, name: str, value: object) -> bool:
    try:
        setting.check(value, name)
    except (TypeError, ValueError):
        return False
    return value is not None or (NoneType in get_args(setting.kind) and name not in ("schedule", "optimizer"))


def test_a_kernel_has_its_options_and_a_new_one_does_not_take_them(cli: CommandLine, tmp_path: Path) -> None:
    moves = ["--kernel", "langevin"]
    for option in ("step=0.2", "adjust=10", "anneal=true", "variance=mean"):
        moves += ["--kernel-option", option]
    kernel = hm.chains.Langevin(0.2, adjust=10, anneal=True, variance="mean")
    options = ("--rule", "noise_cd", "--visible", "gaussian", "--method", "chains", "--updates", 2)
    assert repr(kernel) in cli.train(BARS, tmp_path / "run", *options, *moves)["rule"]
    file = tmp_path / "run" / "run.toml"
    cli.succeed("train", "--config", file, tmp_path / "gibbs", "--kernel", "gibbs")
    stored = content(tmp_path / "gibbs")
    assert stored["kernel"] == "gibbs" and "kernel_option" not in stored
    cli.succeed("train", "--config", file, tmp_path / "same", "--rule", "noise_cd")
    assert machine_bytes(tmp_path / "run") == machine_bytes(tmp_path / "same")
    few = ("--rows", 6, "--sweeps", 4, "--out", tmp_path / "s.npy", "--json")
    assert cli.succeed("sample", tmp_path / "run", *few, *moves).json["kernel"] == repr(kernel)


def made_rule(kind: str, options: list[str]) -> Rule:
    settings, told = TrainSettings(rule=kind, rule_option=options), {"centred": False, "batch_size": 8}
    return settings.with_rule_options(lambda own: make_rule(kind, "sgd", **told, **own))


@pytest.mark.parametrize("value", ["{[]:1}", "(" * 3000, "9" * 6000, "nan", "", "a\0b"])
def test_nonsense_for_any_option_is_refused_by_its_name(value: str) -> None:
    """Of rules and kernels, in our words, without a warning of Python; some take numbers of any size."""
    asked = [
        ("rule_option: ", option, partial(made_rule, kind, [f"{option}={value}"]))
        for kind in rules.BY_NAME
        for option in rules.options(kind)
    ]
    asked += [
        ("kernel_option: ", option, Chains(kernel=kind, kernel_option=[f"{option}={value}"]).make_kernel)
        for kind, kernel in Kernel.registry.items()
        for option in inspect.signature(kernel).parameters
    ]
    for name, option, make in asked:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                make()
            except ValueError as error:
                assert str(error).startswith(name) and option in str(error), (option, error)
            else:
                assert value.isdigit() or value == "", option


def test_more_chains_than_there_is_memory_for_are_refused_in_one_line(cli, tmp_path):
    for number in (10**14, 10**18):
        said = cli.refuse(
            "train", BARS, tmp_path / f"{number}", *TINY, "--chains", number, "--rule", "pcd", status=1
        )
        assert said.startswith("not enough memory")
