"""The command line on CSV files with names, text and empty cells."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import harmonium as hm
from harmonium.data import encoder_from_dict

from .command_line import CommandLine, read_csv, write_csv

pytestmark = pytest.mark.usefixtures("short_fits")
NAMES = ["age", "height", "city", "member"]
CITIES = ["Ulm", "Rom", "Bern"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    rows: list[list[object]] = []
    for group in random.integers(0, 3, 60):
        member = "yes" if random.random() < 0.2 + 0.3 * group else "no"
        rows.append(
            [20 * group + random.integers(18, 30), round(170 + random.normal(), 2), CITIES[group], member]
        )
    for row, column in ((0, 0), (1, 2), (2, 3), (3, 1)):
        rows[row][column] = "" if column else "NA"
    return write_csv(tmp_path / "table.csv", rows, NAMES)


def test_trained_on_sampled_and_imputed_with_names_kept(
    cli: CommandLine, table: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    result = cli.train(table, run, "--schedule", "constant")
    assert result["layers"] == ["Gaussian(2)", "Categorical(1, 3)", "Bernoulli(1)", "Bernoulli(5)"]
    cli.succeed("sample", run, "--rows", 7, "--sweeps", 5, "--out", tmp_path / "rows.csv")
    header, *rows = read_csv(tmp_path / "rows.csv")
    assert header == NAMES and len(rows) == 7
    assert all(
        row[2] in CITIES and row[3] in ("yes", "no") and row[0].lstrip("-").isdecimal() for row in rows
    )
    for value in ("nearest", "mean", "draw"):
        out = tmp_path / f"{value}.csv"
        done = cli.succeed("impute", run, table, "--out", out, "--sweeps", 5, "--value", value, "--json").json
        assert done["missing"] == pytest.approx(4 / 240)
        for given, full in zip(read_csv(table), read_csv(out), strict=True):
            assert all(cell in ("", "NA") or cell == other for cell, other in zip(given, full, strict=True))
            assert "" not in full and "NA" not in full
    again = encoder_from_dict(hm.load(run / "machine.safetensors").metadata["encoder"])
    assert again.names == tuple(NAMES)
    sampled = again.decode(np.zeros((2, again.width)))
    assert sampled.shape == (2, 4) and sampled[0, 2] == "Bern"
    cli.succeed("train", table, run, "--resume", *("--hidden", 5, "--updates", 30, "--threads", 1))


def test_fills_of_hidden_values_are_scored(cli: CommandLine, tmp_path: Path) -> None:
    """Column by column, from the file that was written, beside the commonest label and the mean."""
    random, names = np.random.default_rng(0), ["x", "city", "y", "spare"]
    rows = [
        [
            round(4 * k + random.normal(), 3),
            ["Ulm", "Rom"][k],
            round(3 * k + random.normal(), 3),
            "a" * (1 + k),
        ]
        for k in random.integers(0, 2, 100)
    ]
    for row in rows[::7]:
        row[2] = ""  # was never there
    run, out = tmp_path / "run", tmp_path / "full.csv"
    data = write_csv(tmp_path / "table.csv", rows, names)
    cli.succeed("train", data, run, "--kinds", 'spare = "ignore"', "--updates", 2, "--method", "chains")
    found = cli.succeed("impute", run, data, "--missing", "random:0.3", "--out", out, "--json").json
    hidden = hm.data.missing_at_random(100, 4, 0.3, seed=0).numpy()
    full = read_csv(out)[1:]
    listed = {line["column"]: line for line in found["hidden_cells"]}
    assert [line["column"] for line in found["hidden_cells"]] == ["x", "city", "y"]
    for j, name in enumerate(names[:3]):
        cells = [i for i in range(100) if hidden[i, j] and rows[i][j] != ""]
        given, filled = [rows[i][j] for i in cells], [full[i][j] for i in cells]
        if name == "city":
            score, fills = "accuracy", np.mean([a == b for a, b in zip(given, filled, strict=True)])
            simplest = max(given.count("Ulm"), given.count("Rom")) / len(cells)
        else:
            errors = np.array(given) - np.array(filled, dtype=float)
            score, fills = "root_mean_square_error", np.sqrt(np.mean(errors**2))
            simplest = np.std(given)
        assert (listed[name]["cells"], listed[name]["score"]) == (len(cells), score)
        assert listed[name]["fills"] == pytest.approx(fills, rel=1e-3)
        assert listed[name]["simplest"] == pytest.approx(simplest, rel=1e-3)


def test_a_table_is_described(cli: CommandLine, table: Path, tmp_path: Path) -> None:
    found = cli.succeed("data", table, "--json").json
    assert found["rows"] == 60 and found["table"][2] == {
        "column": "city",
        "kind": "categorical",
        "missing": 1,
        "values": "'Bern', 'Rom', 'Ulm'",
    }
    mixed = write_csv(
        tmp_path / "mixed.csv", [["yes", "1.5", "a"], ["no", "2.5", "b"], ["no", "3.5", "c"]] * 9, "xyz"
    )
    kinds = [column["kind"] for column in cli.succeed("data", mixed, "--json").json["table"]]
    assert kinds == ["bernoulli", "binomial", "categorical"]
    assert "table" in str(found) and "city" in cli.succeed("data", table).stdout
    assert "expected numbers in column 'city'" in cli.refuse("data", table, "--out", tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age\n31\nx31\n", "expected several columns, or numbers, received 'x31'"),
        ("size,when\n" + "".join(f"{i},{i}/1/2020\n" for i in range(22)), "'size' .*numbers.*'when' .*texts"),
    ],
)
def test_files_that_are_refused(cli: CommandLine, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    answer = cli.refuse("train", tmp_path / "x.csv", tmp_path / "run", "--hidden", 3, "--updates", 2)
    assert re.search(message, answer), answer


def test_what_does_not_fit_a_table_is_refused(cli: CommandLine, table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    cli.train(table, run)
    other = write_csv(tmp_path / "other.csv", [[30, 170.5, "Oslo", "yes"]], NAMES)
    answer = cli.succeed("impute", run, other, "--sweeps", 3, "--out", tmp_path / "full.csv")
    assert "taken as missing: 'Oslo' in column 'city'" in answer.stderr
    assert read_csv(tmp_path / "full.csv")[1][2] == "Oslo"  # what was given stays
    assert "--unknown" in cli.refuse("impute", run, other, "--unknown", "error", "--out", tmp_path / "x.csv")
    fewer = write_csv(tmp_path / "fewer.csv", [[30, "Ulm"]], ["age", "city"])
    assert "lacks 'height', 'member'" in cli.refuse("impute", run, fewer, "--out", tmp_path / "x.csv")
    assert "a .csv file takes text" in cli.refuse("sample", run, "--sweeps", 2, "--out", tmp_path / "x.npy")
    assert "no missing cell, received one in row 0; harmonium impute" in cli.refuse(
        "sample", run, "--sweeps", 2, "--data", table, "--out", tmp_path / "x.csv"
    )
    assert "binarise: expected none for a table" in cli.refuse(
        "train", table, tmp_path / "other", "--hidden", 3, "--binarise", "threshold"
    )


def test_frames_have_types_and_categories(cli: CommandLine, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    sizes = polars.Series(["M", "L", None] * 20, dtype=polars.Enum(["S", "M", "L"]))
    frame = polars.DataFrame(
        {"size": sizes, "n": polars.Series(range(60), dtype=polars.UInt8), "on": [True, False] * 30}
    )
    frame.write_parquet(tmp_path / "x.parquet")
    cli.train(tmp_path / "x.parquet", tmp_path / "run")
    few = ("--rows", 5, "--sweeps", 3)
    cli.succeed("sample", tmp_path / "run", *few, "--out", tmp_path / "s.parquet")
    drawn = polars.read_parquet(tmp_path / "s.parquet")
    assert drawn.schema["size"] == sizes.dtype and drawn.schema["on"] == polars.Boolean
    assert drawn.schema["n"].is_integer()
    cli.succeed("sample", tmp_path / "run", *few, "--given", "size=S", "--out", tmp_path / "g.csv")
    assert {row[0] for row in read_csv(tmp_path / "g.csv")[1:]} == {"S"}  # which no row had
    pytest.importorskip("pandas")
    loaded = hm.RBM.load(tmp_path / "run").sample(4)
    assert list(loaded["size"].cat.categories) == ["S", "M", "L"]
    assert loaded["on"].isin([True, False]).all() and loaded.dtypes["n"] == "UInt8"


def test_what_rows_are_given_stands_in_them_as_it_was_given(cli: CommandLine, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = [f"{20 + i},{'ab'[i % 2]},{random.normal(30_000, 7_000):.2f}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["age,kind,income", *rows]) + "\n")
    cli.train(tmp_path / "t.csv", tmp_path / "run")
    held = ("--given", "age=33", "--given", "income=30000.1")
    cli.succeed("sample", tmp_path / "run", *held, "--rows", 4, "--sweeps", 3, "--out", tmp_path / "s.csv")
    assert all(row[0] == "33" and row[2] == "30000.1" for row in read_csv(tmp_path / "s.csv")[1:])
    for value in ("33.4", "inf"):
        answer = cli.refuse(
            "sample", tmp_path / "run", "--given", f"age={value}", "--out", tmp_path / "n.csv"
        )
        assert "--given: expected a whole number in column 'age'" in answer and repr(value) in answer
    holes = write_csv(tmp_path / "holes.csv", [["33.4", "", "1.5"]], ["age", "kind", "income"])
    cli.succeed("impute", tmp_path / "run", holes, "--out", tmp_path / "full.csv", "--sweeps", 3)
    assert read_csv(tmp_path / "full.csv")[1][::2] == ["33.4", "1.5"]


def test_a_damaged_or_boastful_frame_is_refused(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    polars = pytest.importorskip("polars")
    polars.DataFrame({"x": [0.5] * 200_000}).write_parquet(tmp_path / "x.parquet")
    monkeypatch.setenv("HARMONIUM_READ_LIMIT", "1000000")
    answer = cli.refuse("data", tmp_path / "x.parquet")
    assert "the table claims 1600000 bytes" in answer and "HARMONIUM_READ_LIMIT=" in answer
    for suffix in ("parquet", "feather"):
        (tmp_path / f"y.{suffix}").write_text("no such thing")
        assert "cannot be read as" in cli.refuse("data", tmp_path / f"y.{suffix}")


def test_several_draws_are_several_files(cli: CommandLine, table: Path, tmp_path: Path) -> None:
    cli.train(table, tmp_path / "run")
    arguments = ("--imputations", 7, "--sweeps", 5, "--json", "--out", tmp_path / "full.csv")
    found = cli.succeed("impute", tmp_path / "run", table, *arguments).json
    files = [tmp_path / f"full-{i}.csv" for i in range(1, 8)]
    assert found["files"] == [str(path) for path in files] and not (tmp_path / "full.csv").exists()
    completions = [read_csv(path) for path in files]
    assert len({rows[1][0] for rows in completions}) > 1  # the age of the first row was missing
    assert all(rows[5:] == completions[0][5:] for rows in completions)
    assert "full-1.csv exists" in cli.refuse("impute", tmp_path / "run", table, *arguments)


def test_numbers_are_matched_by_their_names(cli: CommandLine, tmp_path: Path) -> None:
    """Also where no table stands between file and machine."""
    random = np.random.default_rng(0)
    rows = [[f"{x:.3f}", f"{100 + y:.3f}"] for x, y in random.normal(size=(40, 2))]
    whole = write_csv(tmp_path / "whole.csv", rows, ["east", "north"])
    cli.train(whole, tmp_path / "run", "--visible", "gaussian")
    turned = write_csv(tmp_path / "turned.csv", [["99.464", "0.35"], ["", "0.5"]], ["north", "east"])
    cli.succeed("impute", tmp_path / "run", turned, "--out", tmp_path / "full.csv", "--sweeps", 5)
    header, first, second = read_csv(tmp_path / "full.csv")
    assert header == ["east", "north"] and first == ["0.35", "99.464"]
    assert second[0] == "0.5" and 90 < float(second[1]) < 110
    other = write_csv(tmp_path / "other.csv", [["1", "2"]], ["east", "up"])
    assert "received none called 'north'" in cli.refuse(
        "impute", tmp_path / "run", other, "--out", tmp_path / "y.csv"
    )


def test_noise_in_a_table_of_real_columns_is_taken_out(cli: CommandLine, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = random.normal([5, 300], [0.1, 20], (60, 2)).round(3)
    data = write_csv(tmp_path / "data.csv", rows.tolist(), ["near", "far"])
    cli.train(data, tmp_path / "run")
    cli.train(data, tmp_path / "plain", "--visible", "gaussian")
    for run in ("run", "plain"):
        cli.succeed("denoise", tmp_path / run, data, "--noise-std", 0.5, "--out", tmp_path / f"{run}.npy")
    clean, other = (np.load(tmp_path / f"{run}.npy") for run in ("run", "plain"))
    np.testing.assert_allclose(clean, clean.round(3), rtol=1e-6)  # a table's columns keep their decimals
    np.testing.assert_allclose(clean, other, atol=0.001)
    assert abs(clean[:, 0] - rows[:, 0]).max() > 0.02  # most of that column would be noise
    np.testing.assert_allclose(clean[:, 1], rows[:, 1], atol=0.1)  # and next to nothing of the other


def test_what_is_hidden_is_filled_in_whatever_the_order_of_columns(cli: CommandLine, tmp_path: Path) -> None:
    """Kinds are mixed, so that units stand otherwise than columns; noise cannot be told from the rest."""
    random = np.random.default_rng(2)
    names, order = ["a", "city", "b", "flag", "c"], (4, 2, 0, 3, 1)
    rows = [
        [round(random.normal(), 3), str(random.choice(CITIES)), round(50 + random.normal(), 3),
         str(random.choice(["yes", "no"])), round(-50 + random.normal(), 3)]
        for _ in range(200)
    ]  # fmt: skip
    run = tmp_path / "run"
    cli.train(write_csv(tmp_path / "table.csv", rows, names), run)
    shuffled = [[row[j] for j in order] for row in rows]
    data = write_csv(tmp_path / "shuffled.csv", shuffled, [names[j] for j in order])
    out = tmp_path / "full.csv"
    cli.succeed(
        "impute", run, data, "--missing", "random:0.5", "--value", "draw", "--sweeps", 5, "--out", out
    )
    header, *full = read_csv(out)
    assert header == [names[j] for j in order]
    for name, centre in {"a": 0, "b": 50, "c": -50}.items():
        given, found = (np.array([float(row[header.index(name)]) for row in x]) for x in (shuffled, full))
        # Half are drawn anew, and of those as good as none comes out within rounding of what it was.
        assert 0.38 < np.mean(abs(given - found) < 1e-3) < 0.62, name
        assert abs(found - centre).max() < 15
