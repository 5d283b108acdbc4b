"""harmonium evaluate."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.data import Rows
from harmonium.likelihood import work_of_rows
from harmonium.sums import log2_states
from harmonium.training.checkpoint import write_checkpoint

from .command_line import CommandLine

BARS = "bars-and-stripes"


def random_machine(*layers: hm.layers.Layer, std: float = 0.3) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine(layers)
    hm.machine.normal_(machine, std, torch.Generator().manual_seed(1))
    return machine


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, hm.BoltzmannMachine]:
    machine = random_machine(hm.Bernoulli(16), hm.Bernoulli(5))
    machine.save(tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors", machine


def test_small_machines_are_exact(cli: CommandLine, saved: tuple[Path, hm.BoltzmannMachine]) -> None:
    path, machine = saved
    result = cli.succeed("evaluate", path, BARS, "--json").json
    X = torch.from_numpy(hm.data.bars_and_stripes())
    value = hm.likelihood.exact_log_partition(machine)
    likelihood = hm.likelihood.log_likelihood(machine, X, value)

    assert result["log_partition"] == {"method": "exact", "value": value, "standard_error": 0.0}
    (row,) = result["results"]
    assert row["log_likelihood"] == pytest.approx(likelihood.mean().item(), abs=1e-9)
    assert row["rows_standard_error"] == pytest.approx(likelihood.std().item() / math.sqrt(32), abs=1e-9)
    assert row["log_partition_standard_error"] == 0.0
    pseudo = hm.likelihood.pseudo_log_likelihood(machine, X).mean().item()
    assert row["pseudo_log_likelihood"] == pytest.approx(pseudo, abs=1e-6)


def test_annealing(cli: CommandLine, saved: tuple[Path, hm.BoltzmannMachine]) -> None:
    path, machine = saved
    arguments = ("evaluate", path, BARS, "--method", "ais", "--chains", 50, "--temperatures", 100)
    result = cli.succeed(*arguments, "--json").json["log_partition"]
    X = torch.from_numpy(hm.data.bars_and_stripes())
    expected = hm.likelihood.ais(machine, 50, 100, data=X, seed=0)
    assert [result[name] for name in expected._fields[:5]] == pytest.approx(list(expected[:5]), abs=1e-9)
    assert "vouched" not in result and result["doubts"] == list(expected.doubts)
    assert result["base"] == BARS
    other = cli.succeed(*arguments, "--seed", 1, "--json").json
    assert other["log_partition"]["value"] != result["value"]
    text = cli.succeed(*arguments).stdout
    assert "ess" in text and "log partition standard error" in text


def test_a_poor_estimate_says_so(cli: CommandLine, tmp_path: Path) -> None:
    """Weights of 200 strongly coupled units, annealed in one step, spread over dozens of nats."""
    random_machine(hm.Bernoulli(200), hm.Bernoulli(200), std=1.0).save(tmp_path / "m.safetensors")
    arguments = ("evaluate", tmp_path / "m.safetensors", "--temperatures")
    assert "more temperatures" in cli.succeed(*arguments, 1, "--json").json["notes"][0]


def test_an_unfinished_run_gives_its_checkpoint(cli: CommandLine, tmp_path: Path) -> None:
    run = tmp_path / "run"
    cli.train("digits", run, "--binarise", "threshold", "--averaging", 0.9)
    results = {}
    for averaged in ((), ("--averaged",)):
        results[averaged] = cli.succeed("evaluate", run, "digits", *averaged, "--json").json["results"]
    (run / "machine.safetensors").unlink()
    (run / "averaged.safetensors").unlink()
    for averaged, expected in results.items():
        answer = cli.succeed("evaluate", run, "digits", *averaged, "--json")
        assert answer.json["results"] == expected
        assert "unfinished" in answer.stderr and "20 updates" in answer.stderr

    content = hm.training.read_checkpoint(run / "checkpoint.safetensors")
    content["description"]["layers"][1]["n_units"] = 6
    write_checkpoint(run / "checkpoint.safetensors", content)
    assert "makes no machine" in cli.refuse("evaluate", run, "digits")
    (run / "checkpoint.safetensors").unlink()
    assert "neither" in cli.refuse("evaluate", run, "digits")


def test_mistakes(cli: CommandLine, saved: tuple[Path, hm.BoltzmannMachine], tmp_path: Path) -> None:
    path, _ = saved
    assert "no file or folder" in cli.refuse("evaluate", tmp_path / "nothing")
    assert "--averaged" in cli.refuse("evaluate", path, "--averaged")
    assert "digits: " in cli.refuse("evaluate", path, "digits")
    assert "--chains" in cli.refuse("evaluate", path, "--method", "ais", "--chains", 1)
    (tmp_path / "bad.safetensors").write_bytes(path.read_bytes()[:100])
    assert "bad.safetensors" in cli.refuse("evaluate", tmp_path / "bad.safetensors")
    cli.train(BARS, tmp_path / "run")
    assert "--averaging" in cli.refuse("evaluate", tmp_path / "run", "--averaged")


def test_deep_machines_that_cannot_be_enumerated_have_a_bound(cli: CommandLine, tmp_path: Path) -> None:
    machine = random_machine(hm.Bernoulli(16), hm.Bernoulli(40), hm.Bernoulli(40))
    machine.save(tmp_path / "deep.safetensors")
    arguments = (BARS, "--method", "ais", "--chains", 20, "--temperatures", 20)
    result = cli.succeed("evaluate", tmp_path / "deep.safetensors", *arguments, "--json").json
    (row,) = result["results"]
    X = torch.from_numpy(hm.data.bars_and_stripes())
    bound = hm.likelihood.variational_bound(machine, X, result["log_partition"]["value"], tolerance=1e-4)
    assert row["log_likelihood"] is None
    assert row["variational_bound"] == pytest.approx(bound.mean().item(), abs=1e-6)
    assert row["log_partition_standard_error"] == result["log_partition"]["standard_error"]
    assert any("variational_bound" in note for note in result["notes"])


def test_annealing_begins_from_whole_rows_alone_or_from_none(cli: CommandLine, tmp_path: Path) -> None:
    machine = random_machine(hm.Bernoulli(4), hm.Bernoulli(3), std=1.0)
    machine.save(tmp_path / "m.safetensors")
    X = np.float32([[0, 1, np.nan, 1], [1, 1, 0, 0], [np.nan, 0, np.nan, 1]])
    shown = hm.likelihood.exact_log_likelihood(machine, torch.from_numpy(X))
    shown = shown.detach() + hm.likelihood.exact_log_partition(machine)
    for rows in (3, 1):
        np.save(tmp_path / "part.npy", X[:rows])
        arguments = ("evaluate", tmp_path / "m.safetensors", tmp_path / "part.npy", "--json")
        annealed = cli.succeed(*arguments, "--method", "ais", "--temperatures", 50).json
        expected = float(shown[:rows].mean()) - annealed["log_partition"]["value"]
        assert annealed["results"][0]["log_likelihood"] == pytest.approx(expected, abs=1e-6)
        assert annealed["results"][0]["pseudo_log_likelihood"] is None
        assert any("what they show" in note for note in annealed["notes"])


@pytest.mark.parametrize(
    ("layers", "edges", "lacked", "log2"),
    [
        ((hm.Bernoulli(12), hm.Bernoulli(4)), None, 3, 3),  # the cells
        ((hm.Bernoulli(12), hm.Bernoulli(4)), None, 9, 4),  # or else the hidden units
        ((hm.Bernoulli(8),), [(0, 0)], 5, 5),
        ((hm.Bernoulli(8), hm.Bernoulli(3), hm.Bernoulli(9)), None, 6, 3),
        ((hm.Gaussian(4), hm.Bernoulli(5)), [(0, 0), (0, 1)], 1, 5),
    ],
)
def test_what_a_row_with_holes_costs(
    layers: tuple[hm.layers.Layer, ...], edges: list[tuple[int, int]] | None, lacked: int, log2: float
) -> None:
    """Of the row; the whole one beside it costs what the hidden layers do."""
    machine = hm.BoltzmannMachine(layers, edges=edges)
    v = machine.random_states(2, seed=0)[0]
    v[0, :lacked] = torch.nan
    found = log2_states(machine.hamiltonian(), v)
    assert float(found[0]) == pytest.approx(log2, abs=1e-4)
    deep = not machine.graph.independent
    rows = Rows.of(v, missing=True)
    width, whole = sum(layer.width for layer in layers), min(x.log2_states for x in layers[1:]) if deep else 0
    expected = width * (2.0**log2 + (2.0**whole if whole else 0.0))
    assert work_of_rows(machine, rows) == pytest.approx(expected, rel=1e-4)


def test_joined_visible_units_may_lack_too_much(cli: CommandLine, tmp_path: Path) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(40)], edges=[(0, 0)])
    machine.save(tmp_path / "m.safetensors")
    np.save(tmp_path / "x.npy", np.where(np.arange(40) < 28, np.nan, np.ones((5, 40))).astype(np.float32))
    arguments = ("evaluate", tmp_path / "m.safetensors", tmp_path / "x.npy", "--temperatures", 50, "--json")
    answer = cli.succeed(*arguments).json
    assert answer["results"][0]["log_likelihood"] is None
    assert answer["results"][0]["variational_bound"] == pytest.approx(-12 * math.log(2), abs=1.0)
    assert answer["log_partition"]["base"] == "pilot run of the machine"


def test_a_density_of_what_rows_show(cli: CommandLine, tmp_path: Path) -> None:
    """A row that shows one column has that column's own density, in the units of the data."""
    random = np.random.default_rng(0)
    rows = np.float32(np.stack([10 + 5 * random.normal(size=200), 300 + 70 * random.normal(size=200)], 1))
    np.save(tmp_path / "train.npy", rows)
    arguments = ("train", tmp_path / "train.npy", tmp_path / "run", "--hidden", 2, "--updates", 5)
    cli.succeed(*arguments, "--visible", "gaussian", "--threads", 1)
    machine = hm.load(tmp_path / "run")
    mean, scale = (torch.from_numpy(each) for each in (rows.mean(0), rows.std(0)))
    for shown in ((0, 1), (0,), (1,)):
        part = torch.full((200, 2), torch.nan)
        part[:, shown] = torch.from_numpy(rows)[:, shown]
        np.save(tmp_path / "part.npy", part.numpy())
        answer = cli.succeed("evaluate", tmp_path / "run", tmp_path / "part.npy", "--json").json
        states = hm.likelihood.exact_log_likelihood(machine, ((part - mean) / scale).float())
        expected = states.mean() - scale[list(shown)].log().sum()
        assert answer["results"][0]["log_likelihood"] == pytest.approx(float(expected), abs=1e-4), shown
