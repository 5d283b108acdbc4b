"""harmonium landscape, and TAP in harmonium evaluate."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import harmonium as hm
from harmonium.report import basin_map, embedding, free_energy_bands, solution_maps

from .command_line import CommandLine

BARS = "bars-and-stripes"
pytest.importorskip("matplotlib")


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, hm.BoltzmannMachine]:
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(8)])
    hm.machine.normal_(machine, 2.0, torch.Generator().manual_seed(1))
    machine.metadata = {"data": {"image_shape": [4, 4]}}
    machine.save(tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors", machine


def test_figures_and_record(
    cli: CommandLine, saved: tuple[Path, hm.BoltzmannMachine], tmp_path: Path
) -> None:
    path, machine = saved
    answer = cli.succeed("landscape", path, BARS, "--json")
    folder = tmp_path / "landscape"
    record = json.loads((folder / "landscape.json").read_text())
    X = torch.from_numpy(hm.data.bars_and_stripes())
    found = hm.meanfield.landscape(machine, X)
    assert record["basin"] == found.basin.tolist()
    assert record["counts"] == found.counts.tolist()
    assert record["solutions"] == answer.json["solutions"] == len(found.counts)
    for name in answer.json["files"]:
        assert (folder / name).exists()
        if name.endswith(".png"):
            with Image.open(folder / name) as image:
                assert image.width > 5
    assert "modes.png" in answer.json["files"]

    assert "--overwrite" in cli.refuse("landscape", path, BARS)
    text = cli.succeed("landscape", path, BARS, "--overwrite", "--starts", 5).stdout
    assert "solutions" in text
    assert len(json.loads((folder / "landscape.json").read_text())["basin"]) == 5


def test_mistakes(cli: CommandLine, saved: tuple[Path, hm.BoltzmannMachine]) -> None:
    path, _ = saved
    assert "solver" in cli.refuse("landscape", path, BARS, "--solver", "other")
    assert "columns" in cli.refuse("landscape", path, "digits")


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize("solver", ["adatap", "relaxed_bp"])
def test_other_solvers_by_the_command(cli: CommandLine, tmp_path: Path, solver: str) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(8)])
    hm.machine.normal_(machine, 0.5, 1)
    machine.save(tmp_path / "m.safetensors")
    X = torch.from_numpy(hm.data.bars_and_stripes())
    found = hm.meanfield.landscape(machine, X, solver=solver)
    answer = cli.succeed("landscape", tmp_path / "m.safetensors", BARS, "--solver", solver, "--json").json
    assert answer["solutions"] == len(found.counts)
    assert answer["admissible"] is None
    record = json.loads((tmp_path / "landscape" / "landscape.json").read_text())
    assert record["solver"] == solver
    assert record["free_energies"] == pytest.approx(found.free_energies.tolist())


def test_without_matplotlib_nothing_is_solved_first(
    cli: CommandLine,
    saved: tuple[Path, hm.BoltzmannMachine],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("too late")

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr("harmonium.cli.commands.landscape.explore", work)
    message = cli.refuse("landscape", saved[0], BARS, status=1)
    assert message.endswith("needs matplotlib; pip install 'harmonium[plot]'")


def test_few_points_are_told_apart() -> None:
    two = torch.tensor([[0.0, 1, 1], [1, 0, 1]])
    first, other = embedding(two, two[1:])
    assert first.shape == (2, 2) and other.shape == (1, 2)
    assert np.linalg.norm(first[0] - first[1]) == pytest.approx(2**0.5)
    assert np.allclose(other[0], first[1])
    (line,) = embedding(torch.arange(6.0).unsqueeze(-1))
    assert line.shape == (6, 2) and len(np.unique(line[:, 0].round(6))) == 6
    for alike in (two[:1], two[:1].expand(6, -1)):
        assert not embedding(alike)[0].any()
    with pytest.raises(ValueError, match="features"):
        embedding(torch.eye(6)[:, :3], two[:, :2])
    with pytest.raises(ValueError, match="NaN"):
        embedding(two * torch.nan)


def test_two_solutions_are_two_dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a ferromagnet, up and down; also on the map of a later machine that has one."""
    figures = []
    module = sys.modules["harmonium.report.landscape_maps"]
    monkeypatch.setattr(module, "save_figure", lambda figure, path: figures.append(figure))
    late, early = (hm.BoltzmannMachine([hm.Spin(8), hm.Spin(4)]) for _ in range(2))
    with torch.no_grad():
        early.couplings[0].weight.fill_(0.6)
        late.layers[0].bias.fill_(2.0)
    X = torch.ones(12, 8) * torch.tensor([[1.0], [-1.0]] * 6)
    two, one = (hm.meanfield.landscape(machine, X) for machine in (early, late))
    assert (len(two.counts), len(one.counts)) == (2, 1)
    solution_maps({"early": two, "late": one}, tmp_path / "s.png")
    basin_map(X, two, tmp_path / "b.png")
    with pytest.raises(ValueError, match="12 starts"):
        basin_map(X[:2], two, tmp_path / "b.png")
    for draw in (free_energy_bands, solution_maps):
        with pytest.raises(ValueError, match="landscapes"):
            draw({}, tmp_path / "x.png")
    (maps, basins), titles = figures, [axis.get_title() for axis in figures[0].axes[:2]]
    assert titles == ["early: 2 solutions", "late: 1 solution"]
    for axis, what in ((maps.axes[0], 0), (basins.axes[0], -1)):
        places = np.asarray(axis.collections[what].get_offsets())
        spread = np.ptp(np.asarray(axis.dataLim), axis=0).max()
        assert places.shape == (2, 2) and np.linalg.norm(places[0] - places[1]) > 0.5 * spread
