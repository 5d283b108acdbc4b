"""Predicted numbers are means, whatever else a row lacks and by whatever method; labels are likely ones."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harmonium.estimators import DBM, RBM
from harmonium.sums import log_weights

from .command_line import CommandLine

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)

RANDOM = np.random.default_rng(0)
GROUP = RANDOM.random(150) < 0.5
FRAME = pandas.DataFrame(
    {
        "visits": RANDOM.binomial(6, np.where(GROUP, 0.2, 0.75)).astype(float),
        "city": np.where(GROUP ^ (RANDOM.random(150) < 0.2), "Ulm", "Rom"),
        "height": RANDOM.normal(np.where(GROUP, 170.0, 175.0), 3.0),
        "member": RANDOM.random(150) < 0.5,
    }
)
COUNTS = {"visible": {"visits": "binomial"}}
ROWS = FRAME[:6]
UNRELATED = ROWS.assign(member=pandas.Series([None] * 6, dtype=object))
SOME = ROWS.assign(member=pandas.Series([None, True] * 3, dtype=object))
HOLES = {"whole": ROWS, "unrelated cell missing": UNRELATED, "some rows": SOME}
every_hole = pytest.mark.parametrize("holes", HOLES)


@pytest.fixture(scope="module")
def rbm() -> RBM:
    return RBM(5, method="chains", max_updates=300, learning_rate=0.2, random_state=0, **COUNTS).fit(FRAME)


def predicted(made: RBM | DBM, rows: pandas.DataFrame, column: str, **how: Any) -> np.ndarray:
    """The column given the rest of each row: what fills it in where all of it is missing."""
    holes = rows.assign(**{column: pandas.Series([None] * len(rows), dtype=object)})
    return made.impute(holes, value="mean", draws=10, **how)[column].infer_objects().to_numpy()


@torch.no_grad()
def hamiltonian(rbm: RBM, rows: pandas.DataFrame, column: str, values: np.ndarray) -> np.ndarray:
    """p(value | rest) of every row by weights of its states with that of each value, (rows, values).

    Scores are of cells, which may lie beyond the last state of a count.
    """
    table, hamiltonian = rbm.encoder_, rbm._fitted.double().hamiltonian()
    known, v = table.columns[[c.name for c in table.columns].index(column)], table.encode(rows)
    start = sum(c.width for c in table.columns[: table.columns.index(known)])
    place, weights = slice(start, start + known.width), []
    for state in known.states_of(values)[:, None]:
        v[:, place] = state
        weights.append(log_weights(hamiltonian, torch.from_numpy(v)).numpy())
    scores = np.stack(weights, 1)
    p = np.exp(scores - scores.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


@pytest.mark.mostly_nightly(1)
@every_hole
def test_a_count_is_predicted_by_its_mean(rbm: RBM, holes: str) -> None:
    rows, values = HOLES[holes], np.arange(7.0)
    p = hamiltonian(rbm, rows, "visits", values)
    mean, deviation = p @ values, np.sqrt(p @ values**2 - (p @ values) ** 2)
    assert np.abs(mean - p.argmax(1)).max() > 0.2  # the mode is another answer
    np.testing.assert_allclose(predicted(rbm, rows, "visits", method="exact"), mean, atol=1e-6)
    auto = predicted(rbm, rows, "visits", sweeps=60, random_state=1)
    # Ten chains of 30 conditional means each; were a chain but three independent draws, z above 5 in one of
    # these 36 comparisons would have a chance of 2e-5.
    error = deviation / np.sqrt(30)
    assert (np.abs(auto - mean) < 5 * error).all()
    gibbs = predicted(rbm, rows, "visits", method="gibbs", sweeps=60, random_state=1)
    assert (np.abs(gibbs - mean) < 5 * error).all() and (gibbs != np.round(gibbs)).all()
    if holes == "whole":
        np.testing.assert_allclose(auto, mean, atol=1e-6)


def test_the_command_gives_means_and_their_error(cli: CommandLine, rbm: RBM, tmp_path: Path) -> None:
    rbm.save(tmp_path / "rbm.safetensors")
    UNRELATED.to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "p.csv"
    for column, atol in (("visits", 1e-6), ("height", 1.0)):
        arguments = ("--column", column, "--sweeps", 150, "--out", out, "--overwrite", "--json")
        found = cli.succeed("predict", tmp_path / "rbm.safetensors", tmp_path / "rows.csv", *arguments).json
        with out.open() as file:
            header, *cells = csv.reader(file)
        told = np.array([float(cell) for (cell,) in cells])
        values = np.arange(7.0) if column == "visits" else np.linspace(140.0, 205.0, 66)
        mean = hamiltonian(rbm, UNRELATED, column, values) @ values
        assert header == [column]
        np.testing.assert_allclose(told, mean, atol=atol)
        error = np.sqrt(np.mean((told - ROWS[column].to_numpy()) ** 2))
        assert found["root_mean_square_error"] == pytest.approx(error, rel=1e-4)
        assert found["standard_deviation"] == pytest.approx(ROWS[column].std(ddof=0), rel=1e-4)


@pytest.mark.mostly_nightly(1)
@every_hole
def test_a_real_number_is_predicted_by_its_mean_without_chains(rbm: RBM, holes: str) -> None:
    rows, values = HOLES[holes], np.linspace(140, 205, 66)
    mean = hamiltonian(rbm, rows, "height", values) @ values
    for method in ("auto", "exact"):
        np.testing.assert_allclose(predicted(rbm, rows, "height", method=method), mean, rtol=1e-5)
    chains = predicted(rbm, rows, "height", method="gibbs", sweeps=60, random_state=1)
    assert 0 < np.abs(chains - mean).max() < 1.5
