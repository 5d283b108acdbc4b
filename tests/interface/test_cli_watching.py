"""What is seen of harmonium train while it runs: --metric, --early-stopping."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm

from .command_line import TINY, CommandLine

pytestmark = pytest.mark.usefixtures("short_fits")
BARS = "bars-and-stripes"
DEEP = ("--hidden", "4,3", "--rule", "mean_field_pcd")
FOLLOWED = ("--validation", BARS, "--evaluate-every", 5)


def history(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ((), {"pseudo_log_likelihood"}),
        (("--metric", "likelihood"), {"log_likelihood"}),
        (DEEP, {"variational_bound"}),
    ],
)
def test_every_machine_has_a_metric(
    cli: CommandLine, tmp_path: Path, options: tuple[str, ...], names: set[str]
) -> None:
    result = cli.succeed("train", BARS, tmp_path / "run", *TINY, *options, *FOLLOWED, "--json").json
    assert set(result["metrics"]) == names
    assert [names <= record.keys() for record in history(tmp_path / "run")].count(True) == 4

    machine = hm.load(tmp_path / "run" / "machine.safetensors")
    X = torch.from_numpy(hm.data.bars_and_stripes())
    if "variational_bound" in names:
        exact = hm.likelihood.exact_log_likelihood(machine, X).mean().item()
        assert exact - 0.5 < result["metrics"]["variational_bound"] <= exact
    elif names == {"log_likelihood"}:
        exact = hm.likelihood.exact_log_likelihood(machine, X).mean().item()
        assert result["metrics"]["log_likelihood"] == pytest.approx(exact, abs=1e-5)


def test_where_states_cannot_be_counted_the_error_of_annealing_is_recorded(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--visible", "gaussian", "--initial-std", "0.01", "--validation", BARS, "--evaluate-every", 20)
    options += ("--method", "chains")
    exact = cli.train(BARS, tmp_path / "exact", *options)["metrics"]
    monkeypatch.setattr("harmonium.tasks.metrics._LOOK_SHARE", 0.0)
    annealed = cli.train(BARS, tmp_path / "annealed", *options)["metrics"]
    assert set(exact) == {"log_likelihood"}
    assert 0 < annealed["log_likelihood_standard_error"] < 0.5
    # Seed 0, whatever else: five standard errors, or what rounding leaves.
    off = abs(annealed["log_likelihood"] - exact["log_likelihood"])
    assert off < 5 * annealed["log_likelihood_standard_error"] + 1e-3


def test_held_out_rows_may_have_holes(cli: CommandLine, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = [[a, "" if i % 3 else a + rng.normal(), "yes" if a else "no"] for i, a in enumerate([0, 1] * 20)]
    (tmp_path / "t.csv").write_text("a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in table))
    data, more = tmp_path / "t.csv", ("--validation", tmp_path / "t.csv", "--method", "chains")
    more += ("--evaluate-every", 20)
    metrics = cli.train(data, tmp_path / "usual", *more)["metrics"]
    assert set(metrics) == {"predictive_log_score"} and -5 < metrics["predictive_log_score"] < 0
    metrics = cli.train(data, tmp_path / "run", *more, "--metric", "likelihood")["metrics"]
    found = cli.succeed("evaluate", tmp_path / "run", data, "--json").json["results"][0]
    coding = hm.tables.Codec.of(machine := hm.load(tmp_path / "run"))
    shares = coding.log_shares(coding.read(str(data)), machine)  # a run follows the likelihood of states
    assert metrics["log_likelihood"] + float(shares.sum(1).mean()) == pytest.approx(
        found["log_likelihood"], abs=1e-5
    )
    # Where too much is missing to sum over, a bound.
    wide = np.where(rng.random((30, 40)) < 0.9, np.nan, 1.0).astype(np.float32)
    wide[:, 0] = 1  # no row without any cell
    np.save(tmp_path / "wide.npy", wide)
    np.save(tmp_path / "ones.npy", np.ones((30, 40), np.float32))
    options = ("--validation", tmp_path / "wide.npy", "--metric", "likelihood", "--hidden", 40)
    options += ("--evaluate-every", 20)
    metrics = cli.train(tmp_path / "ones.npy", tmp_path / "wide", *options)["metrics"]
    assert "variational_bound" in metrics and "log_likelihood" not in metrics
    (tmp_path / "c.csv").write_text("a,c\n0,x\n1,\n0,y\n1,x\n")
    options = ("--validation", tmp_path / "c.csv", "--metric", "pseudo-likelihood")
    answer = cli.refuse("train", tmp_path / "c.csv", tmp_path / "no", *options)
    assert "cells of the validation rows are missing" in answer and "predictive" in answer


def test_only_rows_with_a_label_tell_how_well_it_is_learned(cli: CommandLine, tmp_path: Path) -> None:
    for name, last in (("some", "1,yes\n0,\n"), ("all", "1,yes\n"), ("none", None)):
        rows = "0,no\n1,yes\n0,no\n" + last if last else "0,\n1,\n"
        (tmp_path / f"{name}.csv").write_text("a,y\n" + rows)
    options = ("--label", "y", "--objective", "hybrid", "--validation")
    found = [
        cli.train(tmp_path / "all.csv", tmp_path / name, *options, tmp_path / f"{name}.csv")["metrics"]
        for name in ("some", "all")
    ]
    assert found[0] == found[1] and set(found[0]) == {"label_accuracy", "label_log_likelihood"}
    options += (tmp_path / "none.csv",)
    answer = cli.refuse("train", tmp_path / "all.csv", tmp_path / "no", *options, "--metric", "label")
    assert "metric: expected validation rows that have labels" in answer


def test_a_label_is_followed_as_evaluate_has_it(cli: CommandLine, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = "\n".join(f"{a},{'yes' if a else 'no'}" for a in rng.integers(0, 2, 40))
    (tmp_path / "t.csv").write_text(f"a,y\n{rows}\n")
    data = tmp_path / "t.csv"
    metrics = cli.train(data, tmp_path / "run", "--label", "y", "--validation", data)["metrics"]
    found = cli.succeed("evaluate", tmp_path / "run", data, "--json").json["results"][0]
    assert metrics["label_accuracy"] == found["label_accuracy"]
    assert metrics["label_log_likelihood"] == pytest.approx(found["label_log_likelihood"])


def test_early_stopping_keeps_the_best_machine(cli: CommandLine, tmp_path: Path) -> None:
    options = ("--learning-rate", 5, "--early-stopping", 2, "--evaluate-every", 1, "--validation", BARS)
    result = cli.train(BARS, tmp_path / "run", "--metric", "likelihood", "--updates", 200, *options)
    values = [record["log_likelihood"] for record in history(tmp_path / "run")]
    assert result["status"] == "stopped" and len(values) == result["updates"] < 200
    assert max(values) == values[-3]
    assert result["best"] == {"log_likelihood": values[-3], "updates": len(values) - 2}
    machine = hm.load(tmp_path / "run" / "machine.safetensors")
    X = torch.from_numpy(hm.data.bars_and_stripes())
    assert hm.likelihood.exact_log_likelihood(machine, X).mean().item() == pytest.approx(
        max(values), abs=1e-5
    )
