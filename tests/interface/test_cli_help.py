"""Help with examples, what the shell completes, and the list of experiments."""

from __future__ import annotations

import shlex
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import torch
import typer

import harmonium as hm
from harmonium.cli import main
from harmonium.cli.app import command_names, parser_of

from .command_line import CommandLine

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
INDEX = tomllib.loads((EXPERIMENTS / "index.toml").read_text("utf-8"))


@pytest.mark.parametrize("command", command_names())
def test_help_ends_with_examples_that_the_parser_takes(cli: CommandLine, command: str) -> None:
    shown = " ".join(cli.succeed(command, "-h").stdout.split())
    assert shown == " ".join(cli.succeed(command, "--help").stdout.split())
    examples = import_module(f"harmonium.cli.commands.{command}").EXAMPLES
    parser = parser_of(command)
    for example in examples:
        assert example in shown
        program, name, *arguments = shlex.split(example)
        assert (program, name) == ("harmonium", command)
        context = typer.Context(parser, **parser.context_settings)
        known, rest, _ = parser.make_parser(context).parse_args(arguments)
        needed = [each.name for each in parser.params if each.required]
        assert rest == [] and [name for name in needed if not known.get(name)] == []


@pytest.mark.parametrize("command", command_names())
def test_every_option_is_described(command: str) -> None:
    described = {each.name: each.help for each in parser_of(command).params}
    assert [name for name, text in described.items() if not text or text[0].islower()] == []


def test_the_command_of_the_page_runs(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "extending_commands.md").read_text("utf-8")
    (tmp_path / "energies.py").write_text(page.split("```python\n")[1].split("```")[0])
    monkeypatch.setattr(sys.modules["harmonium.cli.app"], "_FOLDER", tmp_path)
    monkeypatch.setattr("harmonium.cli.commands.__path__", [str(tmp_path)])
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(3)], seed=0)
    machine.save(tmp_path / "m.safetensors")
    arguments = ("energies", tmp_path / "m.safetensors", "bars-and-stripes")
    found = cli.succeed(*arguments, "--rows", 5, "--json").json
    X = torch.from_numpy(hm.data.bars_and_stripes()[:5])
    assert found["rows"] == 5
    assert found["free_energy"] == pytest.approx(float(machine.free_energy(X).mean().detach()))
    assert "m.safetensors" in cli.succeed(*arguments).stdout
    assert cli.refuse(*arguments, "--rows", 0).startswith("--rows: ")
    assert cli.refuse(*arguments, "--threads", 0).startswith("--threads: ")
    assert "Print the mean free energy of DATA" in cli.succeed("--help").stdout
    shown = " ".join(cli.succeed("energies", "--help").stdout.replace("│", " ").split())
    parts = ["Only so many rows, from the start.", "--averaged", "--threads", "Examples:", "--rows 10"]
    assert [part for part in parts if part not in shown] == [] and "Args" not in shown


def test_the_demo_runs_commands_that_the_parser_takes(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harmonium.cli.commands import demo

    called: list[list[str]] = []
    monkeypatch.setattr(demo, "main", lambda words: called.append(words) or 0)
    shown = cli.succeed("demo", tmp_path / "a" / "first").stderr
    assert [words[0] for words in called] == ["train", "evaluate", "sample", "report"]
    for name, *arguments in called:
        parser = parser_of(name)
        _, rest, _ = parser.make_parser(typer.Context(parser)).parse_args(arguments)
        assert rest == [] and f"$ harmonium {name}" in shown
    (tmp_path / "there").mkdir()
    assert "exists" in cli.refuse("demo", tmp_path / "there")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("harmonium re", ["report"]),
        ("harmonium train dig", ["digits"]),
        ("harmonium train --early", ["--early-stopping"]),
        ("harmonium impute run d --method l", ["local_search"]),
    ],
)
def test_the_shell_completes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    line: str,
    expected: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("_HARMONIUM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    assert capsys.readouterr().out.split() == expected


def test_every_experiment_is_listed_with_its_records() -> None:
    scripts = {path.stem for path in EXPERIMENTS.glob("*.py") if "__main__" in path.read_text("utf-8")}
    assert set(INDEX) == scripts
    records = [record for about in INDEX.values() for record in about["records"]]
    assert sorted(records) == sorted(path.name for path in (EXPERIMENTS / "results").iterdir())
