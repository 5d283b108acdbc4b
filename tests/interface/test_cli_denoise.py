"""harmonium denoise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import harmonium as hm

from .command_line import CommandLine

BARS = "bars-and-stripes"


@pytest.fixture
def run(cli: CommandLine, tmp_path: Path) -> Path:
    cli.train(BARS, tmp_path / "run")
    return tmp_path / "run"


def test_it_says_how_much_noise_was_removed(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    """By the nearest rows of the data themselves, which restores most; and every method writes its file."""
    arguments = ("denoise", run, BARS, "--corrupt", "--flip-probability", 0.05, "--clean", BARS, "--json")
    result = cli.succeed(*arguments, "--method", "neighbours", "--out", tmp_path / "n.npy").json
    rows = np.load(tmp_path / "n.npy")
    assert result["rows"] == len(rows) == 32
    assert set(np.unique(rows)) == {0, 1}
    assert 0 < result["wrong_after"] < result["wrong_before"] < 0.15 or result["wrong_after"] == 0
    for method in hm.tasks.DENOISE_METHODS:
        out = tmp_path / f"{method}.png"
        cli.succeed(*arguments, "--method", method, "--rows", 4, "--sweeps", 5, "--out", out)
        with Image.open(out) as image:
            # Given, truth and result below one another, under a title and beside their names.
            assert image.width > 4 * 54 + 6 + 24 and image.height > 3 * (54 + 6) + 24
    for name in ("a.npy", "b.npy"):
        cli.succeed(*arguments, "--out", tmp_path / name)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_without_noise_the_rows_come_back(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    cli.succeed("denoise", run, BARS, "--flip-probability", 0, "--out", tmp_path / "x.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.asarray(hm.data.read(BARS).samples))


def test_normal_noise_is_in_the_units_of_the_data(cli: CommandLine, tmp_path: Path) -> None:
    """Independent units of deviation 20 under noise of 20: the mean square error halves, to a tenth."""
    X = np.random.default_rng(0).normal([500, -300], [20, 20], size=(4000, 2))
    np.save(tmp_path / "x.npy", X)
    cli.train(tmp_path / "x.npy", tmp_path / "run", "--learning-rate", 0, "--initial-std", 0)
    noise = ("--corrupt", "--noise-std", 20, "--json", "--out", tmp_path / "y.npy")
    result = cli.succeed("denoise", tmp_path / "run", tmp_path / "x.npy", *noise).json
    assert result["mean_square_error_before"] == pytest.approx(400, rel=0.1)
    assert result["mean_square_error_after"] == pytest.approx(200, rel=0.1)
    assert np.mean((np.load(tmp_path / "y.npy") - X) ** 2) == pytest.approx(200, rel=0.1)


def test_mistakes_are_named(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "x.npy")
    both = cli.refuse("denoise", run, BARS, *out)
    assert both == "--flip-probability, --noise-std: expected one of the two"
    assert "--flip-probability" in cli.refuse("denoise", run, BARS, *out, "--flip-probability", 1.5)
    assert "--method" in cli.refuse("denoise", run, BARS, *out, "--flip-probability", 0.1, "--method", "x")
    missing = cli.refuse("denoise", run, BARS, *out, "--flip-probability", 0.1, "--method", "pointwise")
    assert "clean rows" in missing
