"""harmonium sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import harmonium as hm

from .command_line import CommandLine

BARS = "bars-and-stripes"
FEW = ("--rows", 6, "--sweeps", 5)


def test_states_and_means(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    result = cli.succeed("sample", run, *FEW, "--out", tmp_path / "s.npy", "--json").json
    states = np.load(tmp_path / "s.npy")
    assert result["rows"] == 6
    assert states.shape == (6, 16) and set(np.unique(states)) == {0, 1}

    cli.succeed("sample", run, *FEW, "--means", "--out", tmp_path / "m.npy")
    means = np.load(tmp_path / "m.npy")
    assert ((means > 0) & (means < 1)).all()

    cli.succeed("sample", run, *FEW, "--out", tmp_path / "again.npy")
    assert (tmp_path / "again.npy").read_bytes() == (tmp_path / "s.npy").read_bytes()
    cli.succeed("sample", run, *FEW, "--seed", 1, "--out", tmp_path / "other.npy")
    assert (np.load(tmp_path / "other.npy") != states).any()


def test_a_grid_has_the_shape_of_the_images(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    cli.succeed("sample", run, *FEW, "--out", tmp_path / "s.png")
    cli.succeed("sample", run, *FEW, "--image-shape", "2x8", "--out", tmp_path / "t.png")
    with Image.open(tmp_path / "s.png") as square, Image.open(tmp_path / "t.png") as wide:
        assert square.width > square.height - 100 and wide.width > wide.height


def test_chains_may_start_from_data(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    arguments = ("sample", run, "--rows", 6, "--sweeps", 0)
    cli.succeed(*arguments, "--data", BARS, "--out", tmp_path / "a.npy")
    rows = {row.tobytes() for row in hm.data.bars_and_stripes()}
    assert all(row.tobytes() in rows for row in np.load(tmp_path / "a.npy"))

    np.save(tmp_path / "ones.npy", np.ones((2, 16), dtype=np.uint8))
    cli.succeed(*arguments, "--data", tmp_path / "ones.npy", "--out", tmp_path / "b.npy")
    assert (np.load(tmp_path / "b.npy") == 1).all()


def test_mistakes(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(2)]).save(tmp_path / "plain.safetensors")
    out = ("--out", tmp_path / "s.png")
    assert "--image-shape" in cli.refuse("sample", tmp_path / "plain.safetensors", *FEW, *out)
    assert "image_shape" in cli.refuse("sample", run, *FEW, *out, "--image-shape", "5x5").replace("-", "_")
    assert ".npy or .png" in cli.refuse("sample", run, *FEW, "--out", tmp_path / "s.jpg")
    assert "no_such" in cli.refuse("sample", run, *FEW, "--out", tmp_path / "no_such" / "s.npy")
    assert "--out" in cli.refuse("sample", run, *FEW)
    assert not (tmp_path / "s.png").exists()


@pytest.mark.parametrize("flags", [(), ("--means",)])
def test_samples_have_the_columns_of_all_visible_layers(
    cli: CommandLine, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    machine = hm.BoltzmannMachine(
        [hm.Spin(5), hm.Bernoulli(3), hm.Bernoulli(4)], edges=[(0, 1), (0, 2)], visible=[2, 1]
    )
    machine.layers[1].bias.data.fill_(-20.0)
    machine.layers[2].bias.data.fill_(20.0)
    machine.save(tmp_path / "m.safetensors")
    out = tmp_path / "samples.npy"
    cli.succeed("sample", tmp_path / "m.safetensors", "--out", out, "--rows", 6, "--sweeps", 2, *flags)
    np.testing.assert_allclose(np.load(out), [[1, 1, 1, 1, 0, 0, 0]] * 6, atol=1e-6)
