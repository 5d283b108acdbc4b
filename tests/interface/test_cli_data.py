"""harmonium data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import sparse

from .command_line import CommandLine


def test_data_are_described(cli: CommandLine) -> None:
    result = cli.succeed("data", "digits", "--json").json
    assert result["rows"] == 1797 and result["columns"] == 64 and result["dtype"] == "float32"
    assert (result["minimum"], result["maximum"], result["binary"]) == (0.0, 1.0, False)
    assert result["image_shape"] == "8x8" and result["different_labels"] == 10
    assert cli.succeed("data", "bars-and-stripes", "--json").json["binary"] is True
    assert "1797" in cli.succeed("data", "digits").stdout


def test_conversion_keeps_images_and_labels(cli: CommandLine, tmp_path: Path) -> None:
    answer = cli.succeed("data", "digits", "--out", tmp_path / "d.npz", "--json").json
    assert answer["files"] == [str(tmp_path / "d.npz")]
    before = cli.succeed("data", "digits", "--json").json
    after = cli.succeed("data", tmp_path / "d.npz", "--json").json
    assert after == {**before, "data": "d.npz"}
    cli.succeed("data", tmp_path / "d.npz", "--out", tmp_path / "d.npy")
    assert np.load(tmp_path / "d.npy").shape == (1797, 8, 8)


def test_sparse_data(cli: CommandLine, tmp_path: Path) -> None:
    matrix = sparse.random(20, 30, density=0.1, format="csr", rng=np.random.default_rng(0))
    sparse.save_npz(tmp_path / "s.npz", matrix)
    assert cli.succeed("data", tmp_path / "s.npz", "--json").json["minimum"] == 0
    cli.succeed("data", tmp_path / "s.npz", "--out", tmp_path / "t.npy")
    cli.succeed("data", tmp_path / "s.npz", "--out", tmp_path / "t.png", "--image-shape", "5x6")
    np.testing.assert_array_equal(np.load(tmp_path / "t.npy"), matrix.toarray())


def test_mistakes(cli: CommandLine, tmp_path: Path) -> None:
    assert "no such file" in cli.refuse("data", tmp_path / "nothing.npy")
    assert ".npy" in cli.refuse("data", "digits", "--out", tmp_path / "d.txt")
    assert "--image-shape" in cli.refuse("data", "gaussian-mixture", "--out", tmp_path / "g.png")
    (tmp_path / "d.npy").write_text("mine")
    assert "--overwrite" in cli.refuse("data", "digits", "--out", tmp_path / "d.npy")
    assert "d.npy" in cli.refuse("data", tmp_path / "d.npy")
    np.save(tmp_path / "nan.npy", np.array([[1.0, np.nan]]))
    assert "row 0, column 1" in cli.refuse("data", tmp_path / "nan.npy")
