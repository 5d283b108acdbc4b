"""harmonium impute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm

from .command_line import CommandLine

BARS = "bars-and-stripes"


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
        (("--missing", "random:x"), "--missing: expected nan or random:FRACTION"),
        (("--missing", "random:2"), "--missing: expected nan or random:FRACTION of at most 1, received"),
        (("--method", "magic"), "--method: expected one of"),
        (("--value", "median"), "--value: expected one of"),
    ],
)
def test_mistakes(cli: CommandLine, saved: Path, tmp_path: Path, arguments, message) -> None:
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
