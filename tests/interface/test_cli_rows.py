"""harmonium data, denoise and impute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

import harmonium as hm

from .command_line import CommandLine, write_csv

BARS = "bars-and-stripes"


# data ------------------------------------------------------------------------------------------------------


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


def test_mistakes_of_data(cli: CommandLine, tmp_path: Path) -> None:
    assert "no such file" in cli.refuse("data", tmp_path / "nothing.npy")
    assert ".npy" in cli.refuse("data", "digits", "--out", tmp_path / "d.txt")
    assert "--image-shape" in cli.refuse("data", "gaussian-mixture", "--out", tmp_path / "g.png")
    (tmp_path / "d.npy").write_text("mine")
    assert "d.npy" in cli.refuse("data", tmp_path / "d.npy")
    np.save(tmp_path / "inf.npy", np.array([[1.0, np.inf]]))
    assert "row 0, column 1" in cli.refuse("data", tmp_path / "inf.npy")


def test_missing_numbers_are_counted_and_not_refused(cli: CommandLine, tmp_path: Path) -> None:
    np.save(tmp_path / "holes.npy", np.array([[0.0, np.nan], [np.nan, 5.0], [2.0, 1.0]]))
    told = cli.succeed("data", tmp_path / "holes.npy", "--out", tmp_path / "holes.csv", "--json").json
    assert (told["missing_cells"], told["minimum"], told["maximum"]) == (2, 0, 5)
    np.save(tmp_path / "blank.npy", np.full((3, 2), np.nan))
    blank = cli.succeed("data", tmp_path / "blank.npy", "--json").json
    assert blank["missing_cells"] == 6 and "minimum" not in blank and "binary" not in blank
    assert (tmp_path / "holes.csv").read_text().split() == ["0.0,", ",5.0", "2.0,1.0"]
    named = write_csv(tmp_path / "named.csv", [["1", ""], ["", "7"], ["2.5", "3"]], ["a", "b"])
    columns = cli.succeed("data", named, "--json").json["table"]
    assert [column["missing"] for column in columns] == [1, 1]


# denoise ---------------------------------------------------------------------------------------------------


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


def test_mistakes_of_denoise(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "x.npy")
    both = cli.refuse("denoise", run, BARS, *out)
    assert both == "--flip-probability, --noise-std: expected one of the two"
    assert "--flip-probability" in cli.refuse("denoise", run, BARS, *out, "--flip-probability", 1.5)
    assert "--method" in cli.refuse("denoise", run, BARS, *out, "--flip-probability", 0.1, "--method", "x")
    missing = cli.refuse("denoise", run, BARS, *out, "--flip-probability", 0.1, "--method", "pointwise")
    assert "clean rows" in missing


# impute ----------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(6), hm.Bernoulli(3)])
    hm.machine.normal_(machine, 0.5, torch.Generator().manual_seed(0))
    machine.save(tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


@pytest.mark.parametrize("method", hm.tasks.IMPUTE_METHODS)
def test_what_is_given_comes_back(cli: CommandLine, saved: Path, tmp_path: Path, method) -> None:
    arguments = ("--missing", "random:0.3", "--method", method, "--sweeps", 4)
    result = cli.succeed("impute", saved, BARS, "--out", tmp_path / "c.npy", *arguments, "--json").json
    completed, X = np.load(tmp_path / "c.npy"), hm.data.bars_and_stripes()
    assert completed.shape == X.shape
    assert set(np.unique(completed)) <= {0, 1}
    assert (completed != X).mean() <= result["missing"]
    assert 0 < result["missing"] < 1
    assert 0.2 < result["agreement"] <= 1
    wrong = (completed != X).sum() / (result["missing"] * X.size)
    assert result["agreement"] == pytest.approx(1 - wrong, abs=1e-6)


def test_holes_in_the_file_are_what_is_missing(cli: CommandLine, saved: Path, tmp_path: Path) -> None:
    X = hm.data.bars_and_stripes().astype(np.float32)
    holes = np.random.Generator(np.random.PCG64(0)).random(X.shape) < 0.3
    np.save(tmp_path / "holes.npy", np.where(holes, np.nan, X))
    for value in ("nearest", "mean", "draw"):
        out = tmp_path / f"{value}.npy"
        said = cli.succeed("impute", saved, tmp_path / "holes.npy", "--out", out, "--value", value, "--json")
        assert said.json["missing"] == holes.mean()
        counted = f"{holes.sum()} of {holes.size}, in {holes.any(1).sum()} rows"
        assert said.json["missing_cells"] == counted
        assert said.json["value"] == value
        completed = np.load(out)
        assert np.array_equal(completed[~holes], X[~holes])
        assert np.isfinite(completed).all()
        assert (set(np.unique(completed)) <= {0, 1}) == (value != "mean")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--missing", "middle"), "--missing: expected nan"),
        (("--missing", "random:2"), "--missing: expected nan or random:FRACTION of at most 1, received"),
        (("--method", "magic"), "--method: expected one of"),
    ],
)
def test_mistakes_of_impute(cli: CommandLine, saved: Path, tmp_path: Path, arguments, message) -> None:
    np.save(tmp_path / "flat.npy", hm.data.bars_and_stripes())
    assert message in cli.refuse(
        "impute", saved, tmp_path / "flat.npy", "--out", tmp_path / "c.npy", *arguments
    )


def test_a_mean_along_a_curve_is_that_of_cells_at_both_doors(cli: CommandLine, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    x = random.normal(size=300)
    rows = pandas.DataFrame({"income": np.exp(x + random.normal(size=300)), "age": 40 + 10 * x})
    rbm = hm.RBM(random_state=0).fit(rows)
    assert any(column.curved for column in rbm.encoder_.columns)
    rbm.save(tmp_path / "rbm.safetensors")
    rows.loc[:99, "income"] = np.nan
    rows.to_csv(tmp_path / "holes.csv", index=False)
    arguments = ("--value", "mean", "--out", tmp_path / "full.csv")
    cli.succeed("impute", tmp_path / "rbm.safetensors", tmp_path / "holes.csv", *arguments)
    told = pandas.read_csv(tmp_path / "full.csv")["income"][:100]
    means = rbm.impute(rows, value="mean", draws=400, random_state=1)["income"][:100]
    assert told.mean() == pytest.approx(means.mean(), rel=0.05)
