"""States, decoded rows and slopes of small data sets, as recorded in ``recorded_states.json``."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.data import Frame
from harmonium.tables import Codec

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

RECORDED = Path(__file__).with_name("recorded_states.json")
ROWS = 60


def random() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(5))


def with_holes(X: Any) -> Any:
    return np.where(np.arange(X.size).reshape(X.shape) % 11 == 3, np.nan, X)


def frame() -> Any:
    draws = random()
    days = np.datetime64("2024-01-01") + draws.integers(0, 40, ROWS)
    columns = {
        "city": draws.choice(["Ulm", "Rom", "Bari"], ROWS),
        "member": draws.random(ROWS) < 0.3,
        "visits": draws.integers(1, 7, ROWS),
        "steps": draws.integers(0, 4, ROWS) * 5 + 10,
        "age": np.round(draws.normal(40, 12, ROWS)),
        "income": np.exp(draws.normal(8, 1.2, ROWS)),
        "rain": np.where(draws.random(ROWS) < 0.4, 0.0, draws.gamma(1.0, 5.0, ROWS)),
        "day": days.astype("datetime64[us]"),
        "size": pandas.Categorical(draws.choice(["S", "L"], ROWS), ["S", "M", "L"], ordered=True),
        "town": [f"t{i}" for i in np.minimum(draws.geometric(0.08, ROWS), 28)],
        "one": 3.5,
    }
    table = pandas.DataFrame(columns).mask(np.arange(ROWS * 11).reshape(ROWS, 11) % 13 == 5)
    return table.astype({"visits": "Int64"})


def polars_frame() -> Any:
    draws = random()
    start = datetime.datetime(2024, 1, 1)
    moments = [start + datetime.timedelta(minutes=int(m)) for m in draws.integers(0, 9999, ROWS)]
    return polars.DataFrame(
        {
            "moment": [None if i % 9 == 2 else moment for i, moment in enumerate(moments)],
            "kind": polars.Series(["a", "b", "c"] * 20, dtype=polars.Enum(["c", "b", "a", "d"])),
            "count": polars.Series(draws.integers(0, 30, ROWS).tolist(), dtype=polars.UInt8),
            "far": draws.standard_cauchy(ROWS).tolist(),
        }
    )


TEXT = """city,age,day,code,label
Rom,41,2024-03-01,007,yes
Ulm,,2024-03-04,012,no
,38.5,2024-03-02,007,yes
Rom,40,,012,
Ulm,39,2024-03-09,007,no
"""
FASTA = ">a\nACXD\n>b\nA-CD\n>c\nDDCX\n"
KINDS = {
    "visits": {"kind": "binomial", "largest": 20},
    "age": {"kind": "truncated_gaussian", "low": 0, "high": 120},
    "income": {"kind": "gaussian", "transform": "log"},
    "city": {"kind": "categorical", "values": ["Bari", "Oslo", "Rom", "Ulm"]},
    "rain": "relu",
    "town": "ignore",
}


def of_file(text: str, name: str, folder: Path) -> Any:
    (folder / name).write_text(text)
    return hm.data.read(folder / name, labels_apart=False, unknown="missing")


def grey() -> Any:
    return random().integers(0, 256, (ROWS, 5)).astype(np.uint8)


DATA: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "bits": (lambda _: with_holes(1.0 * (random().random((ROWS, 4)) < 0.4)), {}),
    "spins of bits": (lambda _: with_holes(1.0 * (grey() > 99)), {"visible": "spin"}),
    "thresholded": (lambda _: grey(), {"binarise": "threshold", "visible": "spin"}),
    "drawn": (lambda _: grey() / 255, {"binarise": "sample", "seed": 3}),
    "planes": (lambda _: grey(), {"binarise": "bit-planes"}),
    "Gray planes": (lambda _: grey(), {"binarise": "gray-planes"}),
    "digits": (lambda _: with_holes(grey() // 60 * 1.0), {"visible": "categorical"}),
    "counts": (lambda _: with_holes(grey() // 20 * 1.0), {"visible": "binomial"}),
    "real": (
        lambda _: with_holes(random().normal(3, 5, (ROWS, 3))).astype(np.float32),
        {"weights": torch.arange(1.0, ROWS + 1, dtype=torch.float64)},
    ),
    "positive": (lambda _: random().gamma(2.0, 3.0, (ROWS, 3)), {"visible": "relu"}),
    "interval": (lambda _: random().normal(3, 5, (ROWS, 3)), {"visible": "truncated_gaussian"}),
    "frame": (lambda _: frame(), {}),
    "frame of kinds": (lambda _: frame(), {"kinds": KINDS}),
    "weighted frame": (lambda _: frame(), {"weights": 1.0 + torch.arange(ROWS, dtype=torch.float64) % 4}),
    "polars": (lambda _: polars_frame(), {}),
    "text": (lambda _: np.array([["a", "1.50"], ["b", "2"], ["c", ""], ["a", "-3e0"]] * 3), {}),
    "file": (lambda folder: of_file(TEXT, "x.csv", folder), {}),
    "sequences": (lambda folder: of_file(FASTA, "x.fasta", folder), {}),
}


def plain(cells: Any) -> Any:
    """Cells as JSON holds them."""
    return [[x if isinstance(x, (str, float, int, type(None))) else str(x) for x in row] for row in cells]


def recording(name: str, folder: Path) -> dict[str, Any]:
    """Returns states, decoded rows and slopes of a data set."""
    make, options = DATA[name]
    X = make(folder)
    codec = Codec.fit(X, **options)
    states = codec.rows(X, torch.float64).all()
    rows, _ = codec.decode(states)
    table = isinstance(rows, Frame)
    decoded = zip(*(x.values.tolist() for x in rows.columns), strict=True) if table else rows.tolist()
    kinds = [f"{type(layer).__name__}({layer.n_units}, {layer.width})" for layer in codec.layers]
    return {
        "layers": kinds,
        "states": states.tolist(),
        "decoded": plain(decoded),
        "log_slopes": codec.log_slopes(states).tolist(),
    }


@pytest.mark.filterwarnings("ignore:X. nothing is learned")
@pytest.mark.parametrize("name", DATA)
def test_states_are_those_recorded(name: str, tmp_path: Path) -> None:
    recorded, found = json.loads(RECORDED.read_text("utf-8"))[name], recording(name, tmp_path)
    assert found["layers"] == recorded["layers"]
    for part in ("states", "log_slopes"):  # other processors may round logarithms in another way
        np.testing.assert_allclose(found[part], recorded[part], rtol=1e-12, atol=1e-12)
    for row, other in zip(found["decoded"], recorded["decoded"], strict=True):
        assert [type(x) for x in row] == [type(x) for x in other]
        for x, y in zip(row, other, strict=True):
            assert x == (pytest.approx(y, rel=1e-12, nan_ok=True) if isinstance(y, float) else y)
