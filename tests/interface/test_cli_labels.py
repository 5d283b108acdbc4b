"""The command line on rows with labels: --label, predict, and what is given of a row."""

from __future__ import annotations

from math import comb
from pathlib import Path

import numpy as np
import pytest

import harmonium as hm

from .command_line import CommandLine, read_csv, train_once, write_csv

pytestmark = pytest.mark.usefixtures("short_fits")
NAMES = ["x", "city", "kind", "y"]


def table(number: int, seed: int) -> list[list[object]]:
    """Two clouds of points, and where they are from; the kind is the cloud."""
    random = np.random.default_rng(seed)
    return [
        [
            round(6 * k + random.normal(), 3),
            ["Ulm", "Rom", "Bern"][k + random.integers(2)],
            "ab"[k],
            3 * k + 1,
        ]
        for k in random.integers(0, 2, number)
    ]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("labels")
    rows = table(80, 0)
    for row in rows[20:]:
        row[2] = ""  # three quarters of the labels are missing
    plain = [[y, city, x] for x, city, _, y in table(40, 1)]
    return {
        "train": write_csv(folder / "train.csv", rows, NAMES),
        "test": write_csv(folder / "test.csv", table(40, 1), NAMES),
        "plain": write_csv(folder / "plain.csv", plain, ["y", "city", "x"]),
    }


@pytest.fixture(scope="module")
def run(files: dict[str, Path]) -> Path:
    options = ("--label", "kind", "--objective", "joint", "--method", "chains", "--hidden", 6)
    options += ("--updates", 150, "--learning-rate", 0.05, "--schedule", "linear", "--threads", 1)
    made = train_once(files["train"].parent / "run", files["train"], *options)
    assert [str(layer) for layer in hm.load(made).layers][-2:] == ["Categorical(1, 2)", "Bernoulli(6)"]
    return made


def test_labels_are_predicted(cli: CommandLine, run: Path, files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    found = cli.succeed("predict", run, files["test"], "--out", out, "--probabilities", "--json").json
    assert found["rows_scored"] == 40 and found["notes"] == []
    assert found["accuracy"] >= 0.9 and found["method"] == "exact" and found["column"] == "kind"
    header, *rows = read_csv(out)
    assert header == ["kind", "kind=a", "kind=b"]
    assert all(label == "ab"[float(b) > float(a)] for label, a, b in rows)
    assert [float(a) + float(b) for _, a, b in rows] == pytest.approx([1] * 40)
    cli.succeed("predict", run, files["plain"], "--out", tmp_path / "q.csv")  # without it, in another order
    assert [row[0] for row in read_csv(tmp_path / "q.csv")] == [row[0] for row in read_csv(out)]
    cli.succeed(
        "predict", run, files["test"], "--column", "y", "--probabilities", "--out", tmp_path / "y.csv"
    )
    assert read_csv(tmp_path / "y.csv")[0] == ["y", "y=1", "y=4"]
    scores = cli.succeed("evaluate", run, files["test"], "--json").json["results"][0]
    names = ["data", "rows", "label_accuracy", "majority_class_accuracy", "label_log_likelihood"]
    names.append("label_frequencies_log_likelihood")
    assert list(scores)[:6] == names
    of_a = np.mean([row[2] == "a" for row in table(40, 1)])
    majority = pytest.approx(max(of_a, 1 - of_a))
    assert scores["majority_class_accuracy"] == found["majority_class_accuracy"] == majority
    assert scores["label_accuracy"] == pytest.approx(found["accuracy"])
    assert -0.5 < scores["label_log_likelihood"] < 0 and scores["log_likelihood"] is not None
    # Rows without a label, or without a cell, are judged by what they show.
    gaps = [[*row[:2], "" if i % 2 else row[2], row[3]] for i, row in enumerate(table(40, 1))]
    gaps[0][0] = ""
    answer = cli.succeed("evaluate", run, write_csv(tmp_path / "gaps.csv", gaps, NAMES), "--json").json
    (some,) = answer["results"]
    assert some["label_accuracy"] >= 0.9 and some["log_likelihood"] > scores["log_likelihood"]
    assert "label_accuracy: of the 20 rows with a label that training has seen" in answer["notes"]
    new = [[*row[:2], "new", row[3]] if i == 1 else row for i, row in enumerate(gaps)]
    other = cli.succeed("evaluate", run, write_csv(tmp_path / "new.csv", new, NAMES), "--json").json
    fell = 40 * (some["log_likelihood"] - other["results"][0]["log_likelihood"])
    assert np.exp(fell) == pytest.approx(20 + 1, rel=1e-3)  # of 20 rows with a label
    assert other["results"][0]["label_accuracy"] == some["label_accuracy"]
    found = cli.succeed("predict", run, tmp_path / "gaps.csv", "--out", tmp_path / "g.csv", "--json").json
    assert found["rows_scored"] == 20 < found["rows"]
    of_a = np.mean([row[2] == "a" for row in gaps if row[2]])  # of the rows that have a label
    majority = pytest.approx(max(of_a, 1 - of_a))
    assert some["majority_class_accuracy"] == found["majority_class_accuracy"] == majority
    filled = cli.succeed("impute", run, tmp_path / "gaps.csv", "--out", tmp_path / "f.csv", "--json").json
    assert filled["missing_cells"] == f"21 of {40 * len(NAMES)}, in 21 rows"  # labels too
    learned = cli.succeed("predict", run, files["train"], "--out", tmp_path / "t.csv", "--json").json
    assert learned["notes"][0].startswith("accuracy: on the data of the training")


@pytest.mark.parametrize(("column", "score"), [("city", "accuracy"), ("x", "root_mean_square_error")])
def test_any_column_is_predicted(
    cli: CommandLine, run: Path, files: dict[str, Path], tmp_path: Path, column: str, score: str
) -> None:
    """A real column and one of labels beside another, exactly; the column itself may lack."""
    out = tmp_path / "p.tsv"
    arguments = ("--column", column, "--sweeps", 10, "--json")
    found = cli.succeed("predict", run, files["test"], "--out", out, *arguments).json
    assert 0.3 < found[score] < 3 and found["method"] == "exact"
    lacking = [[cell for name, cell in zip(NAMES, r, strict=True) if name != column] for r in table(40, 1)]
    path = write_csv(tmp_path / "lacking.csv", lacking, [name for name in NAMES if name != column])
    found = cli.succeed("predict", run, path, "--out", tmp_path / "q.tsv", *arguments).json
    assert score not in found and (tmp_path / "q.tsv").read_text() == out.read_text()


def test_columns_of_numbers_alone(cli: CommandLine, tmp_path: Path) -> None:
    """Where no table stands between file and machine, by name or else by number."""
    random = np.random.default_rng(0)
    x = random.normal(size=60)
    numbers = np.column_stack([x, 100 + 5 * x + random.normal(size=60)]).round(3)
    rows = write_csv(tmp_path / "x.csv", numbers.tolist(), ["x", "y"])
    half = write_csv(tmp_path / "half.csv", numbers[:, :1].tolist(), ["x"])
    np.save(tmp_path / "bits.npy", (numbers > 100).astype(np.uint8) * [1, 1])
    cli.train(rows, tmp_path / "real", "--updates", 150, "--learning-rate", 0.2)
    cli.train(tmp_path / "bits.npy", tmp_path / "bits")
    arguments = ("--column", "y", "--out", tmp_path / "p.csv", "--overwrite", "--json")
    found = cli.succeed("predict", tmp_path / "real", rows, *arguments).json
    assert found["root_mean_square_error"] < 0.8 * numbers[:, 1].std()
    first = (tmp_path / "p.csv").read_text()
    cli.succeed("predict", tmp_path / "real", half, *arguments)
    assert (tmp_path / "p.csv").read_text() == first
    few = ("--rows", 4, "--sweeps", 2, "--out", tmp_path / "s.npy", "--overwrite")
    cli.succeed("sample", tmp_path / "real", *few, "--given", "y=104.5")
    np.testing.assert_allclose(np.load(tmp_path / "s.npy")[:, 1], 104.5, rtol=1e-6)
    cli.succeed("sample", tmp_path / "bits", *few, "--given", "1=1")
    assert (np.load(tmp_path / "s.npy")[:, 1] == 1).all()
    found = cli.succeed("predict", tmp_path / "bits", tmp_path / "bits.npy", *arguments, "--column", "0").json
    assert found["accuracy"] == 1 and found["method"] == "exact"  # the first one is always 0


def test_a_machine_that_learns_to_tell_a_label_wants_some(
    cli: CommandLine, run: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    full = ("--out", tmp_path / "full.csv", "--json")
    found = cli.succeed("impute", run, files["plain"], *full).json  # without a column for it
    assert found["missing"] == 0 and "nothing is" in found["notes"][0]
    begun = ("train", "--from", run, files["plain"], tmp_path / "more", "--updates", 2)
    answer = cli.refuse(*begun, "--objective", "hybrid")
    assert "'kind'" in answer and "--objective joint" in answer and not (tmp_path / "more").exists()
    cli.succeed(*begun)  # the run learned p(x, y), which it can of rows without y


def test_rows_are_drawn_with_their_labels_and_given_them(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    few = ("--rows", 8, "--sweeps", 5)
    for given in ((), ("kind=b",), ("kind=a", "city=Rom", "x=2.5")):
        flags = [word for each in given for word in ("--given", each)]
        cli.succeed("sample", run, *few, *flags, "--out", tmp_path / "s.csv", "--overwrite")
        header, *rows = read_csv(tmp_path / "s.csv")
        assert header == NAMES and len(rows) == 8
        for each in given:
            name, value = each.split("=")
            cells = [row[NAMES.index(name)] for row in rows]
            assert (
                cells == [value] * 8 if name != "x" else [float(c) for c in cells] == pytest.approx([2.5] * 8)
            )


def test_labels_beside_images(cli: CommandLine, tmp_path: Path) -> None:
    """The first pixel; the machine is asked about what it has seen."""
    X = hm.data.bars_and_stripes().reshape(-1, 4, 4)
    np.savez(tmp_path / "x.npz", X=X, y=np.where(X[:, 0, 0] > 0, "on", "off"))
    run = tmp_path / "run"
    trained = cli.succeed(
        "train", tmp_path / "x.npz", run, "--label", "label", "--hidden", 20, "--threads", 1,
        *("--updates", 60, "--json"),
    ).json  # fmt: skip
    assert trained["rule"].startswith("hybrid(") and trained["rule"].endswith("joint=0.03)")
    found = cli.succeed("predict", run, tmp_path / "x.npz", "--out", tmp_path / "p.csv", "--json").json
    assert found["accuracy"] == 1
    pages = []
    for name, label in (("known", "on"), ("new", "neither"), ("none", None)):  # of the first picture
        np.savez(tmp_path / f"{name}.npz", X=X[:1], **({} if label is None else {"y": np.array([label])}))
        cli.succeed("score", run, tmp_path / f"{name}.npz", "--out", tmp_path / f"{name}.csv")
        pages.append(float(read_csv(tmp_path / f"{name}.csv")[1][0]))
    assert pages[2] - pages[1] == pytest.approx(np.log(len(X) + 1), rel=1e-4)
    few = ("--rows", 3, "--sweeps", 2, "--given", "label=on")
    cli.succeed("sample", run, *few, "--out", tmp_path / "s.npz")
    drawn = hm.data.read(tmp_path / "s.npz")
    assert drawn.samples.shape == (3, 16) and set(drawn.labels) == {"on"}
    noted = cli.succeed("sample", run, *few, "--out", tmp_path / "s.png", "--json").json
    assert "without the labels" in noted["notes"][0]
    cli.succeed("impute", run, tmp_path / "x.npz", "--missing", "random:0.5", "--out", tmp_path / "c.npz")
    assert "without a label" in cli.refuse(
        "denoise", run, tmp_path / "x.npz", "--out", tmp_path / "d.npy", "--flip-probability", 0.1
    )


def test_likelihoods_stand_beside_those_of_columns_that_nothing_joins(
    cli: CommandLine, tmp_path: Path
) -> None:
    """They are fitted to the training data, and of each row what it shows; counted from their cells here."""
    random, names = np.random.default_rng(0), ["x", "visits", "city", "kind"]
    cells = [random.normal(3, 2, 440).round(3), random.binomial(4, 0.3, 440)]
    cells += [random.choice(list(letters), 440, p=(0.2, 0.3, 0.5)) for letters in ("ABC", "abc")]
    rows: list[list[object]] = [list(row) for row in zip(*cells, strict=True)]
    learned, new, run = rows[:400], rows[400:], tmp_path / "run"
    new[0][0] = new[1][1] = new[2][3] = ""
    train, test = (write_csv(tmp_path / name, x, names) for name, x in (("a.csv", learned), ("b.csv", new)))
    cli.succeed("train", train, run, "--label", "kind", "--threads", 1)
    answer = cli.succeed("evaluate", run, test, "--json").json
    (scores,) = answer["results"]

    x, p = np.array([row[0] for row in learned]), np.mean([row[1] for row in learned]) / 4
    parts = [
        [-0.5 * ((row[0] - x.mean()) / x.std()) ** 2 - np.log(x.std()) - 0.919 for row in new if row[0] != ""]
    ]
    counts = [row[1] for row in new if row[1] != ""]
    parts.append([np.log(comb(4, k) * p**k * (1 - p) ** (4 - k)) for k in counts])
    for j in (2, 3):
        share = {cell: np.mean([row[j] == cell for row in learned]) for cell in {row[j] for row in learned}}
        parts.append([np.log(share[row[j]]) for row in new if row[j]])
    assert [len(part) for part in parts] == [39, 39, 40, 39]
    expected = pytest.approx(sum(map(sum, parts)) / 40, abs=0.03)
    assert scores["independent_columns_log_likelihood"] == expected
    assert scores["label_frequencies_log_likelihood"] == pytest.approx(np.mean(parts[3]), abs=0.01)
    assert any(f"fitted to {train}" in note for note in answer["notes"])
    train.unlink()
    alone = cli.succeed("evaluate", run, test, "--json").json
    assert any(f"fitted to {test}" in note for note in alone["notes"])


def test_columns_beside_the_label_are_called_rough_where_they_are_asked_for(
    cli: CommandLine, run: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    """The run for the label alone is told of once; that of ``--objective joint`` and labels are not."""
    hybrid, out = tmp_path / "run", ("--overwrite", "--out", tmp_path / "x.csv")
    cli.succeed("train", files["train"], hybrid, "--label", "kind", "--threads", 1)
    for command, *rest in [("sample", "--rows", 3), ("predict", files["test"], "--column=x")]:
        told = cli.succeed(command, hybrid, *rest, *out).stderr
        assert told.count("warning: ") == told.count("the objective joint") == 1, (command, told)
        assert "objective joint" not in cli.succeed(command, run, *rest, *out).stderr
    for command in ("impute", "predict"):
        assert "objective" not in cli.succeed(command, hybrid, files["train"], *out).stderr


def test_a_discriminative_machine_has_no_rows_to_draw(
    cli: CommandLine, files: dict[str, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    flags = ("--label", "kind", "--objective", "discriminative", "--hidden", 3, "--schedule", "constant")
    flags += ("--method", "chains")
    cli.succeed("train", files["train"], run, *flags, "--updates", 5)
    assert "hybrid or joint" in cli.refuse("sample", run, "--out", tmp_path / "s.csv")
    scores = cli.succeed("evaluate", run, files["test"], "--json").json
    assert any("and not the rest" in note for note in scores["notes"])
    again = ("train", files["train"], run, *flags, "--updates", 9, "--resume")
    assert "--objective" in cli.refuse(*again, "--objective", "hybrid")
    cli.succeed(*again)
