"""harmonium denoise."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import harmonium as hm

from .command_line import CommandLine

BARS = "bars-and-stripes"


def test_every_method_writes_its_file(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    clean = hm.data.bars_and_stripes()
    noise = np.random.default_rng(0).random(clean.shape) < 0.05
    np.save(tmp_path / "noisy.npy", np.where(noise, 1 - clean, clean))
    arguments = ("denoise", run, tmp_path / "noisy.npy", "--flip-probability", 0.05, "--clean", BARS)
    for method in hm.tasks.DENOISE_METHODS:
        out = tmp_path / f"{method}.npy"
        told = ("--method", method, "--sweeps", 5, "--out", out, "--overwrite", "--json")
        assert cli.succeed(*arguments, *told).json["rows"] == 32
        rows = np.load(out)
        assert rows.shape == (32, 16) and set(np.unique(rows)) == {0, 1}
    for name in ("a.npy", "b.npy"):
        cli.succeed(*arguments, "--out", tmp_path / name)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_without_noise_the_rows_come_back(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    cli.succeed("denoise", run, BARS, "--flip-probability", 0, "--out", tmp_path / "x.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.asarray(hm.data.read(BARS).samples))


def test_mistakes_are_named(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "x.npy")
    both = cli.refuse("denoise", run, BARS, *out)
    assert both == "--flip-probability, --noise-std: expected one of the two"
    assert "--flip-probability" in cli.refuse("denoise", run, BARS, *out, "--flip-probability", 1.5)
    assert "--method" in cli.refuse("denoise", run, BARS, *out, "--flip-probability", 0.1, "--method", "x")
    missing = cli.refuse("denoise", run, BARS, *out, "--flip-probability", 0.1, "--method", "pointwise")
    assert "clean rows" in missing
