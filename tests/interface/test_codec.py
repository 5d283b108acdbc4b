"""The codec: how often rows are read and encoded, and units of a user's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import harmonium as hm
from harmonium import _rows
from harmonium.data import Encoder
from harmonium.data.frame import Frame
from harmonium.layers import Layer
from harmonium.tables import Codec, ColumnCodec as Column, Table

from .command_line import CommandLine
from .test_documentation import blocks

ROOT = Path(__file__).parents[2]
pandas = pytest.importorskip("pandas")

ROWS = 3000


class Counts:
    """Passes over rows, in rows: what is read in slices, and what each column looks at to be fitted."""

    def __init__(self) -> None:
        self.read = 0
        self.encoded = 0


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    found, columns = Counts(), list[int]()

    def reading(function: Callable[..., Any]) -> Callable[..., Any]:
        def read(X: Any, index: Any) -> Any:
            rows = function(X, index)
            found.read += len(rows) if isinstance(index, slice) else 0
            return rows

        return read

    for name in ("read_array", "read_tensor", "read_sparse", "read_file"):
        monkeypatch.setattr(_rows, name, reading(getattr(_rows, name)))
    monkeypatch.setattr(Frame, "take", reading(Frame.take))
    fit, table_fit = Column.fit.__func__, Table.fit.__func__

    def fit_column(cls: Any, cells: Any, *arguments: Any) -> Column:
        columns.append(len(cells.values))
        return fit(cls, cells, *arguments)

    def fit_table(cls: Any, X: Any, *arguments: Any, **settings: Any) -> Table:
        table = table_fit(cls, X, *arguments, **settings)
        found.read += sum(columns) // len(table.columns)
        return table

    monkeypatch.setattr(Column, "fit", classmethod(fit_column))
    monkeypatch.setattr(Table, "fit", classmethod(fit_table))
    for kind in set(Encoder.registry.values()) - {hm.data.Identity}:
        if issubclass(kind, Column):  # whose table counts
            continue

        def encode(self: Any, X: Any, original: Any = kind.encode, **first: Any) -> Any:
            found.encoded += len(X)
            return original(self, X, **first)

        monkeypatch.setattr(kind, "encode", encode)
    return found


OF_RATE, JUDGED = 1024, 2048  # rows that tell the rate, and rows that are judged in the end


def digits() -> np.ndarray:
    X, _ = hm.data.digits()
    return np.concatenate([X, X])[:ROWS]


def frame() -> Any:
    random = np.random.default_rng(0)
    X = random.normal(size=ROWS)
    named = {"x": X, "city": random.choice(["Ulm", "Rom", "Bari"], ROWS), "member": X > 0}
    return pandas.DataFrame(named).mask(random.random((ROWS, 3)) < 0.1).dropna(how="all")


DATA: dict[str, Callable[[], Any]] = {
    "0 and 1": lambda: hm.data.threshold(digits()),
    "grey": digits,
    "holes": lambda: np.where(np.random.default_rng(0).random((ROWS, 64)) < 0.1, np.nan, digits()),
    "frame": frame,
}


@pytest.mark.parametrize("name", DATA)
@pytest.mark.mostly_nightly(2)
def test_an_estimator_reads_rows_twice_and_encodes_them_once(name: str, counts: Counts) -> None:
    X = DATA[name]()
    hm.RBM(4, method="chains", epochs=2, batch_size=1000, random_state=0).fit(X)
    # Simple distributions are fitted to a few rows, some tell the rate, and some whether it has collapsed.
    assert len(X) <= counts.read <= 2 * len(X) + 512 + OF_RATE + JUDGED
    assert counts.encoded <= len(X) + 1  # a row of zeros tells the width


@pytest.mark.parametrize("options", [(), ("--label", "city")], ids=["rows", "label"])
def test_the_command_reads_a_table_twice(
    cli: CommandLine, counts: Counts, tmp_path: Path, options: tuple[str, ...]
) -> None:
    table = frame()
    table.to_csv(tmp_path / "x.csv", index=False)
    counts.read = counts.encoded = 0
    by_chains = ("--method", "chains", "--hidden", 4, "--updates", 5, "--batch-size", 1000)
    cli.succeed("train", tmp_path / "x.csv", tmp_path / "run", *by_chains, *options)
    some = 512 + OF_RATE + JUDGED  # simple distributions are fitted to 512, where there is no label
    assert counts.read <= 2 * len(table) + some and counts.encoded <= len(table) + some


def test_a_dark_first_image_is_no_sign_of_binary_data() -> None:
    X = np.array([[0, 1], [200, 0]], dtype=np.uint8)
    codec = Codec.fit(X, binarise="threshold")
    assert codec.rows(X).all().tolist() == [[0, 0], [1, 0]]


# The codec -------------------------------------------------------------------------------------------------


# Units of a user's own -------------------------------------------------------------------------------------


@pytest.fixture
def source() -> Iterator[str]:
    """The first example of docs/extending.md, which makes ``Ternary``."""
    before = dict(Layer.registry)
    yield blocks((ROOT / "docs" / "extending.md").read_text("utf-8"))[0].code
    for kind in Layer.registry.keys() - before.keys():
        del Layer.registry[kind]


def trends() -> Any:
    random = np.random.default_rng(0)
    X = random.integers(-1, 2, 200)
    mood = np.array(["bad", "fair", "good"])[np.clip(X + random.integers(0, 2, 200), -1, 1) + 1]
    return pandas.DataFrame({"trend": X, "mood": mood, "age": np.round(random.normal(40, 9, 200), 1)})


def test_a_unit_of_ones_own_in_a_data_frame(source: str, tmp_path: Path) -> None:
    exec(source, made := {})
    table = trends()
    holes = table.mask(np.random.default_rng(1).random(table.shape) < 0.1).dropna(how="all")
    named = {"kind": "ternary", "values": ["bad", "fair", "good"]}
    rbm = hm.RBM(
        4, visible={"trend": "ternary", "mood": named}, method="chains", epochs=3, random_state=0
    ).fit(holes)
    assert [str(layer) for layer in rbm.machine_.layers] == ["Ternary(2)", "Gaussian(1)", "Bernoulli(4)"]
    states = Codec.of(rbm.machine_).rows(table).all()
    assert states[:, 0].tolist() == table["trend"].tolist()
    assert states[:, 1].tolist() == [["bad", "fair", "good"].index(x) - 1 for x in table["mood"]]
    full, drawn = rbm.impute(holes), rbm.sample(20, random_state=0)
    assert not full.isna().any().any() and set(drawn["mood"]) <= {"bad", "fair", "good"}
    assert set(drawn["trend"]) <= {-1, 0, 1}
    rbm.save(tmp_path / "m.safetensors")
    assert hm.RBM.load(tmp_path / "m.safetensors").score(table) == pytest.approx(rbm.score(table))
    assert isinstance(rbm.machine_.layers[0], made["Ternary"])


def test_columns_that_a_unit_of_ones_own_does_not_take(source: str) -> None:
    exec(source, {})
    table = pandas.DataFrame({"mood": ["bad", "good"] * 30, "age": np.arange(60) % 5 + 1})
    for column, received in (("mood", "'bad', 'good'"), ("age", "1, 2, 3, 4, 5")):
        said = (
            f'X: column {column!r} for "ternary": expected -1, 0, 1 or 3 labels for them, received {received}'
        )
        with pytest.raises(ValueError, match=said):
            hm.RBM(4, visible={column: "ternary"}).fit(table)
    with pytest.raises(
        ValueError, match=r'for visible="ternary": expected values in \{-1, 0, 1\}, received 2'
    ):
        hm.RBM(4, visible="ternary").fit(np.array([[0.0, 1.0], [2.0, -1.0]]))


def test_a_unit_of_ones_own_from_the_command(
    source: str, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_units.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HARMONIUM_IMPORT", "own_units")
    trends().to_csv(tmp_path / "x.csv", index=False)
    (tmp_path / "kinds.toml").write_text(
        'trend = "ternary"\nmood = { kind = "ternary", values = ["bad", "fair", "good"] }'
    )
    options = ("--hidden", 4, "--updates", 20)
    cli.succeed("train", tmp_path / "x.csv", tmp_path / "run", "--kinds", tmp_path / "kinds.toml", *options)
    cli.succeed("sample", tmp_path / "run", "--rows", 9, "--given", "mood=good", "--out", tmp_path / "y.csv")
    drawn = pandas.read_csv(tmp_path / "y.csv")
    assert set(drawn["mood"]) == {"good"} and set(drawn["trend"]) <= {-1, 0, 1}
    np.save(tmp_path / "x.npy", trends()[["trend"]].to_numpy().repeat(4, 1))
    answer = cli.succeed("train", tmp_path / "x.npy", tmp_path / "other", "--visible", "ternary", *options)
    assert "Ternary(4)" in answer.stdout
    monkeypatch.setenv("HARMONIUM_IMPORT", "no_such_units")
    assert "no_such_units" in cli.refuse("data", tmp_path / "x.csv", status=1)
    sys.modules.pop("own_units")


@pytest.mark.parametrize(
    ("part", "value"),
    [("names", "a"), ("source", 3), ("image_shape", [0, 2]), ("read", [1])],
)
def test_damaged_notes_on_the_training_data_are_refused(part: str, value: Any) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
    machine.metadata = {"data": {part: value}}
    with pytest.raises(ValueError, match=f"metadata are damaged, expected {part} of data, received"):
        getattr(Codec.of(machine), "reading" if part == "read" else part)
