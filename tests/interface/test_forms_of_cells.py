"""Text that stands for numbers, dates and times: column by column, by a rule, and back as it was written."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas
import pytest

import harmonium as hm
from harmonium.data import frame_of, read
from harmonium.data._forms import form_of, from_numbers, to_numbers
from harmonium.data._layouts import fitting_layouts, layout_of
from harmonium.tables import Table
from harmonium.tables.questions import question_of

from .command_line import CommandLine

pytestmark = pytest.mark.usefixtures("short_fits")

MOMENTS = [
    datetime(1970, 1, 1) + timedelta(seconds=int(s)) for s in np.random.default_rng(0).integers(0, 2**31, 60)
]
FORMATS = {  # a layout, and what strftime calls it
    "dd/mm/yyyy": "%d/%m/%Y",
    "mm/dd/yyyy": "%m/%d/%Y",
    "dd.mm.yyyy": "%d.%m.%Y",
    "mm-dd-yyyy": "%m-%d-%Y",
    "yyyy/mm/dd": "%Y/%m/%d",
    "yyyy-mm": "%Y-%m",
    "dd/mm/yy": "%d/%m/%y",
    "dd-mmm-yyyy": "%d-%b-%Y",
    "mmm dd yyyy": "%b %d %Y",
    "mmmm dd, yyyy": "%B %d, %Y",
    "hh:mm": "%H:%M",
    "hh:mm:ss": "%H:%M:%S",
    "mm/dd/yyyy hh:mm": "%m/%d/%Y %H:%M",
    "mm/dd/yyyy hh:mm:ss AM/PM": "%m/%d/%Y %I:%M:%S %p",
}


@pytest.mark.parametrize(("layout", "written"), FORMATS.items())
def test_dates_and_times_are_read_and_written_as_python_does(layout: str, written: str) -> None:
    cells = [moment.strftime(written) for moment in MOMENTS]
    assert [found.name for found in fitting_layouts(cells)] == [layout]
    read_by_python = [datetime.strptime(cell, written) for cell in cells]
    form = form_of(cells)
    assert form == f"text {layout}"
    numbers = to_numbers(cells, form)
    if "y" in layout and "h" not in layout:
        assert numbers.tolist() == [moment.toordinal() for moment in read_by_python]
    else:
        start = datetime(1970, 1, 1) if "y" in layout else datetime(1900, 1, 1)
        assert numbers.tolist() == [(moment - start) / timedelta(microseconds=1) for moment in read_by_python]
    assert from_numbers(numbers, form).tolist() == cells


@pytest.mark.parametrize(
    ("cells", "layout", "numbers"),
    [
        (["$1,000.50", "$5", "-$0.25"], "$#,##0.00", [1000.5, 5, -0.25]),
        (["12.3%", "0%", "+4.50%"], "0.00%", [12.3, 0, 4.5]),
        (["1,000", "25", "-1,234,567"], "#,##0", [1000, 25, -1234567]),
        (["1.234,5 €", "7,25 €"], "#.##0,00 €", [1234.5, 7.25]),
        (["3,5", "-,5", "12,25"], None, []),
        (["3,5", "-0,5", "12,25"], "0,00", [3.5, -0.5, 12.25]),
        (["£3", "$5"], None, []),
        (["1,00", "1,000.5"], None, []),
        (["1.5", "2"], None, []),
        (["9:05", "23:59"], "h:mm", [9 * 3_600_000_000 + 300_000_000, 86_340_000_000]),
        (["24:00", "23:59"], None, []),
        (["30/02/2020", "01/02/2020"], None, []),
        (["12:00 AM", "12:30 PM"], "hh:mm AM/PM", [0, 45_000_000_000]),
        (["A1", "B2"], None, []),
    ],
)
def test_one_layout_for_all_cells_of_a_column(
    cells: list[str], layout: str | None, numbers: list[float]
) -> None:
    found = fitting_layouts(cells)
    assert [x.name for x in found] == ([] if layout is None else [layout])
    if found:
        assert [found[0].read(cell) for cell in cells] == pytest.approx(numbers)
        assert layout_of(found[0].name) == found[0]
        again = [found[0].write(x) for x in numbers]
        assert [found[0].read(cell) for cell in again] == pytest.approx(numbers)


def test_day_and_month_are_decided_by_one_cell() -> None:
    undecided = ["01/02/2020", "03/04/2020"]
    assert [x.name for x in fitting_layouts(undecided)] == ["dd/mm/yyyy", "mm/dd/yyyy"]
    assert form_of(undecided) is None
    assert form_of([*undecided, "03/14/2020"]) == "text mm/dd/yyyy"
    assert form_of([*undecided, "14/03/2020"]) == "text dd/mm/yyyy"
    assert form_of(["01.02.2020"]) == "text dd.mm.yyyy"  # with points the day comes first


def write(path: Path, columns: dict[str, list[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


RANDOM = np.random.default_rng(1)
WRITTEN = {
    "cost": ([f"${x:,.2f}" for x in RANDOM.lognormal(6, 1, 90)], r"-?\$[\d,]+\.\d\d"),
    "share": ([f"{x:.1f}%" for x in RANDOM.uniform(0, 30, 90)], r"-?\d+\.\d%"),
    "people": ([f"{x:,}" for x in RANDOM.integers(100, 10**6, 90)], r"-?\d{1,3}(,\d{3})*"),
    "at": ([f"{x // 60:02d}:{x % 60:02d}" for x in RANDOM.integers(0, 1440, 90)], r"\d\d:\d\d"),
    "on": ([f"{m}/{d}/2024" for m, d in RANDOM.integers([1, 1], [13, 29], (90, 2))], r"\d+/\d+/2024"),
}


def test_a_file_with_written_numbers_is_learned_filled_in_and_drawn(cli: CommandLine, tmp_path: Path) -> None:
    columns = {name: list(cells) for name, (cells, _) in WRITTEN.items()}
    columns["group"] = list("abc" * 30)
    whole = {name: list(cells) for name, cells in columns.items()}
    for i, name in enumerate(columns):
        columns[name][7 * i + 3] = "" if i % 2 else "NA"
    data, run = write(tmp_path / "x.csv", columns), tmp_path / "run"
    answer = cli.succeed("train", data, run, "--hidden", 3, "--json")
    assert answer.json["layers"][0] == "Gaussian(5)" and "warning" not in answer.stderr
    cli.succeed("impute", run, data, "--out", tmp_path / "full.csv")
    cli.succeed("sample", run, "--rows", 20, "--out", tmp_path / "drawn.csv")
    full, drawn = rows_of(tmp_path / "full.csv"), rows_of(tmp_path / "drawn.csv")
    for name, (_, pattern) in WRITTEN.items():
        for i, row in enumerate(full):
            hole = columns[name][i] in ("", "NA")
            assert re.fullmatch(pattern, row[name]) if hole else row[name] == whole[name][i]
        assert all(re.fullmatch(pattern, row[name]) for row in drawn)
    few = {name: cells[:2] for name, cells in whole.items()} | {"people": ["500", "700"]}
    cli.succeed("evaluate", run, write(tmp_path / "few.csv", few))  # plain numbers where amounts were
    given = ("--given", "cost=$1,200.00", "--given", "at=09:30")
    cli.succeed("sample", run, *given, "--rows", 2, "--out", tmp_path / "given.csv")
    assert {(row["cost"], row["at"]) for row in rows_of(tmp_path / "given.csv")} == {("$1,200.00", "09:30")}


def test_a_question_about_dates_is_answered_on_the_command_line(cli: CommandLine, tmp_path: Path) -> None:
    days = [f"{a:02d}/{b:02d}/2020" for a, b in RANDOM.integers(1, 13, (60, 2))]
    data = write(tmp_path / "x.csv", {"day": days, "x": [f"{x:.3f}" for x in RANDOM.normal(size=60)]})
    answer = cli.succeed("train", data, tmp_path / "a", "--hidden", 2)
    assert answer.stderr.count("warning: ") == 1 and "does the day or the month come first" in answer.stderr
    for layout in ("dd/mm/yyyy", "mm/dd/yyyy"):
        told = f'"day" = {{ form = "{layout}" }}'
        assert told in answer.stderr
        run = tmp_path / layout[:2]
        done = cli.succeed("train", data, run, "--hidden", 2, "--kinds", told, "--json")
        assert done.json["layers"][0] == "Gaussian(2)" and "warning" not in done.stderr
        assert hm.load(run).metadata["encoder"]["all_columns"][0]["form"] == f"text {layout}"
        again = cli.succeed("train", "--config", run / "run.toml", tmp_path / f"{layout[:2]}_again", "--json")
        assert again.json["layers"] == done.json["layers"]
    refused = cli.refuse("train", data, tmp_path / "c", "--kinds", 'day = { form = "dd.mm.yyyy" }')
    assert "column 'day': form: expected cells such as dd.mm.yyyy, received" in refused
    refused = cli.refuse("train", data, tmp_path / "c", "--kinds", 'day = { form = "first" }')
    assert "form: expected" in refused and "received 'text first'" in refused


def test_words_for_missing_cells(cli: CommandLine, tmp_path: Path) -> None:
    ages = [str(x) for x in RANDOM.integers(20, 70, 60)]
    city = ["Ulm", "Rom", "-"] * 20
    ages[4], ages[9] = "?", "?"
    data, run = write(tmp_path / "x.csv", {"age": ages, "city": city}), tmp_path / "run"
    answer = cli.succeed("train", data, tmp_path / "none", "--hidden", 2)
    assert """58 of 60 cells are numbers; missing_words "?" takes '?' as missing""" in answer.stderr
    done = cli.succeed("train", data, run, "--hidden", 2, "--missing-words", "?,-", "--json")
    assert done.json["layers"][:2] == ["Gaussian(1)", "Bernoulli(1)"] and "warning" not in done.stderr
    cli.succeed("impute", run, data, "--out", tmp_path / "full.csv")  # the words of training
    full = rows_of(tmp_path / "full.csv")
    assert {row["city"] for row in full} == {"Ulm", "Rom"} and all(row["age"].isdecimal() for row in full)
    assert read(data, missing_words=["?", "-"]).frame().columns[0].missing.sum() == 2
    listed = cli.succeed("data", data, "--missing-words", "?,-", "--json").json["table"]
    assert [(each["kind"], each["missing"]) for each in listed] == [("gaussian", 2), ("bernoulli", 20)]


def test_numbers_that_stand_for_missing_cells(cli: CommandLine, tmp_path: Path) -> None:
    """They are asked about, and matched with any number of decimals; one that no cell has is told."""
    ages = [f"{x},0" for x in RANDOM.integers(20, 70, 60)]
    ages[4], ages[9], ages[11], ages[20], ages[30] = "-99,0", "-99", "-99,00", "9999,0", "9999"
    text = "\r\n".join(["age;paid", *(f"{age};{k % 7},5" for k, age in enumerate(ages))])
    (tmp_path / "x.csv").write_bytes(text.encode())
    data = tmp_path / "x.csv"
    asked = cli.succeed("data", data)
    said = "9999 in 2 cells and -99 in 3 cells, far from the others, 2"
    assert said in asked.stderr and 'missing_words "9999,-99"' in asked.stderr
    found = cli.succeed("data", data, "--missing-words", "9999,-99", "--json")
    assert [each["missing"] for each in found.json["table"]] == [5, 0] and not found.stderr
    found = cli.succeed("data", data, "--missing-words", "0,5;-99;-98", "--json")
    assert [each["missing"] for each in found.json["table"]] == [3, 9]
    assert "x.csv: no cell is '-98', and none is missing for it" in found.stderr


def test_a_comma_between_digits_is_no_end_of_a_word_beside_decimal_commas(tmp_path: Path) -> None:
    """Else "-99,0" would be the words -99 and 0, and zeros were lost."""
    path = tmp_path / "x.csv"
    path.write_text("age;paid\n31,0;0,0\n-99,0;2,5\n40,0;0,0\n")
    with pytest.raises(ValueError, match=r"missing_words: expected semicolons .*received '-99,0'"):
        read(path, missing_words="-99,0")
    for words in ("-99", "-99,0;x", ["-99,0"]):
        missing = [cells.missing.sum() for cells in read(path, missing_words=words).frame().columns]
        assert missing == [1, 0]


def test_far_numbers_are_asked_about_where_they_are_codes() -> None:
    def asks(*far: float) -> bool:
        frame = frame_of(pandas.DataFrame({"x": np.append(np.arange(60) % 21, far).astype(float)}))
        return question_of(frame.columns[0]) is not None

    assert asks(99, 99) and asks(-99, -99) and asks(-9, -9, 999999, 999999) == asks(999999, 999999)
    assert not asks(99) and not asks(98, 98) and not asks(39, 39) and not asks(-9, -9) and not asks()


def test_numbers_as_text_are_told_before_training_alone(cli: CommandLine, tmp_path: Path) -> None:
    """Not of a column that is ignored, and not by commands on a machine that has learned it."""
    codes = [f"{x:05}" for x in RANDOM.integers(100, 104, 60)]
    data = write(tmp_path / "x.csv", {"zip": codes, "age": [str(x) for x in RANDOM.integers(20, 70, 60)]})
    run, told, out = tmp_path / "run", "column 'zip' is read as text", ("--out", tmp_path / "out.csv")
    assert told in cli.succeed("data", data, *out).stderr
    assert told in cli.succeed("train", data, run, "--hidden", 2).stderr
    for command in ("score", "impute"):
        assert told not in cli.succeed(command, run, data, *out, "--overwrite").stderr
    assert told not in cli.succeed("evaluate", run, data).stderr
    ignored = ("--kinds", 'zip = "ignore"')
    assert told not in cli.succeed("data", data, *ignored).stderr
    assert told not in cli.succeed("train", data, tmp_path / "other", "--hidden", 2, *ignored).stderr
    assert told not in cli.succeed("score", tmp_path / "other", data, *out, "--overwrite").stderr


def test_an_ignored_column_may_hold_anything(cli: CommandLine, tmp_path: Path) -> None:
    cells = ["113904", "B/7 31172", "9007199254740993"] * 20
    x = [f"{x:.3f}" for x in RANDOM.normal(size=60)]
    data, kinds = write(tmp_path / "x.csv", {"code": cells, "x": x}), tmp_path / "kinds.toml"
    kinds.write_text('code = "ignore"\n')
    done = cli.succeed("train", data, tmp_path / "run", "--hidden", 2, "--kinds", kinds, "--json")
    assert done.json["layers"][0] == "Gaussian(1)" and "warning" not in done.stderr
    listed = cli.succeed("data", data, "--kinds", kinds, "--json").json["table"]
    assert [each["kind"] for each in listed] == ["ignore", "gaussian"]


def test_text_in_a_column_of_numbers_is_a_cell_without_a_state(cli: CommandLine, tmp_path: Path) -> None:
    x, n = [f"{x:.2f}" for x in RANDOM.normal(50, 5, 60)], ["0", "1", "2"] * 20
    data, run = write(tmp_path / "x.csv", {"x": x, "n": n}), tmp_path / "run"
    cli.succeed("train", data, run, "--hidden", 2)
    later = write(tmp_path / "later.csv", {"x": ["51.5", "tall", "1,050.0"], "n": ["two", "1", "2"]})
    refused = cli.refuse("impute", run, later, "--out", tmp_path / "y.csv", "--unknown", "error")
    assert "column 'x': expected a number, received 'tall' at row 1" in refused
    whole = write(tmp_path / "whole.csv", {"x": ["51.5", "1,050.0"], "n": ["2", "1"]})
    plain = write(tmp_path / "plain.csv", {"x": ["51.5", "1050"], "n": ["2", "1"]})
    found = [cli.succeed("evaluate", run, path, "--json").json["results"][0] for path in (whole, plain)]
    assert found[0]["log_likelihood"] == pytest.approx(found[1]["log_likelihood"])


def test_text_of_a_frame_is_read_by_the_same_rule() -> None:
    frame = pandas.DataFrame({"cost": WRITTEN["cost"][0], "on": WRITTEN["on"][0], "kind": list("abc" * 30)})
    frame.loc[3, "cost"] = None
    table = Table.fit(frame)
    assert table.kinds == {"cost": "gaussian", "on": "gaussian", "kind": "categorical"}
    full = table.fill(frame, np.nan_to_num(table.encode(frame)))
    assert full["cost"].str.fullmatch(r"\$[\d,]+\.\d\d").all() and (full["on"] == frame["on"]).all()


# Names of rows


def _with(ids: np.ndarray, **columns: np.ndarray) -> pandas.DataFrame:
    return pandas.DataFrame({"id": ids, **columns})


def _kinds(frame: pandas.DataFrame) -> dict[str | int, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Table.fit(frame).kinds


def test_numbers_of_rows_are_left_out_where_they_begin_near_0() -> None:
    """Others may be years or prices, and are learned."""
    random = np.random.default_rng(0)
    data = {"x": random.normal(size=300), "g": random.choice(list("abc"), 300)}
    for ids in (np.arange(300), random.permutation(300) + 1):
        assert _kinds(_with(ids, **data))["id"] == "ignore"
        assert Table.fit(_with(ids, **data), {"id": "gaussian"}).kinds["id"] == "gaussian"
    for ids in (np.arange(300) + 10_001, random.permutation(9 * 10**5)[:300] + 10**5):
        assert _kinds(_with(ids, **data))["id"] == "gaussian"


@pytest.mark.parametrize("seed", range(5))
def test_different_numbers_that_something_depends_on_are_learned(seed: int) -> None:
    random = np.random.default_rng(seed)
    years, noise = np.arange(300) + 1700, random.normal(size=300)
    assert _kinds(_with(years, x=0.02 * years + noise))["id"] == "gaussian"
    assert _kinds(_with(years, x=((years - 1850) / 60) ** 2 + noise))["id"] == "gaussian"
    assert _kinds(_with(years, g=np.where(years > 1800, "new", "old")))["id"] == "gaussian"
    prices = np.unique(random.lognormal(10, 1, 400).astype(int))[:300]  # all different, but not even
    assert _kinds(_with(random.permutation(prices), x=noise))["id"] == "gaussian"


# Files that many begin with


def _titanic(random: np.random.Generator) -> dict[str, list[str]]:
    n = 200
    sex, level = random.choice(["male", "female"], n), random.integers(1, 4, n)
    tickets = [
        f"{random.integers(1000, 400_000)}" if random.random() < 0.74 else f"PC {random.integers(10**4)}"
        for _ in range(n)
    ]
    age = [f"{x:g}" if random.random() < 0.8 else "" for x in np.round(random.normal(30, 12, n).clip(1))]
    return {
        "PassengerId": [str(i + 1) for i in range(n)],
        "Survived": [str(int(random.random() < 0.2 + 0.5 * (x == "female"))) for x in sex],
        "Pclass": [str(x) for x in level],
        "Name": [f'Person {i}, Mr. "B" of {i}' for i in range(n)],
        "Sex": [*sex],
        "Age": age,
        "Ticket": tickets,
        "Fare": [f"{x:.4f}" for x in random.lognormal(4 - level / 2, 0.5)],
        "Cabin": [f"C{i}" if i % 5 == 0 else "" for i in range(n)],
        "Embarked": [*random.choice(["S", "C", "Q", ""], n, p=[0.7, 0.19, 0.1, 0.01])],
    }


def _movies(random: np.random.Generator) -> dict[str, list[str]]:
    n = 150
    days = [datetime(1980, 1, 1) + timedelta(days=int(x)) for x in random.integers(0, 12_000, n)]
    gross = [f"{x}" for x in random.integers(10**5, 10**8, n)]
    gross[3] = gross[70] = "Unknown"
    return {
        "Title": ["300", "1776", "8 1/2", *(f"Film {i}" for i in range(n - 3))],
        "US Gross": gross,
        "Released": [f"{x:%b} {x.day} {x.year}" for x in days],
        "MPAA": [*random.choice(["R", "PG-13", "PG", ""], n)],
        "Minutes": [str(x) if x < 150 else "" for x in random.integers(70, 180, n)],
        "Distributor": [*random.choice([f"House {i}" for i in range(60)], n)],
    }


def _adult(random: np.random.Generator) -> dict[str, list[str]]:
    n = 200
    return {
        "age": [str(x) for x in random.integers(17, 90, n)],
        " workclass": [f" {x}" for x in random.choice(["Private", "State-gov", "?"], n)],
        " fnlwgt": [f" {x}" for x in random.integers(12_285, 1_484_705, n)],
        " capital-gain": [f" {x if x > 90_000 else 0}" for x in random.integers(0, 99_999, n)],
        " country": [f" {'United-States' if random.random() < 0.9 else '?'}" for _ in range(n)],
        " income": [*random.choice([" <=50K", " >50K"], n)],
    }


def _taxis(random: np.random.Generator) -> dict[str, list[str]]:
    n = 150
    start = [datetime(2019, 3, 1) + timedelta(seconds=int(s)) for s in random.integers(0, 2_600_000, n)]
    end = [x + timedelta(seconds=int(s)) for x, s in zip(start, random.integers(200, 3000, n), strict=True)]
    return {
        "pickup": [f"{x:%Y-%m-%d %H:%M:%S}" for x in start],
        "dropoff": [f"{x:%m/%d/%Y %I:%M:%S %p}" for x in end],
        "passengers": [str(x) for x in random.integers(1, 7, n)],
        "fare": [f"${x:.2f}" for x in random.lognormal(2.5, 0.5, n)],
        "payment": [*random.choice(["credit card", "cash", ""], n)],
        "zone": [*random.choice([f"Zone {i}" for i in range(80)], n)],
    }


@pytest.mark.mostly_nightly(2)
@pytest.mark.parametrize(
    ("make", "left_out", "questions"),
    [
        (_titanic, {"PassengerId", "Name", "Ticket", "Cabin"}, 0),
        (_movies, {"Title", "US Gross"}, 1),
        (_adult, set[str](), 0),
        (_taxis, set[str](), 0),
    ],
)
def test_files_as_they_are_published_are_learned(
    cli: CommandLine,
    tmp_path: Path,
    make: Callable[[np.random.Generator], dict[str, list[str]]],
    left_out: set[str],
    questions: int,
) -> None:
    data, run = write(tmp_path / "x.csv", make(np.random.default_rng(2))), tmp_path / "run"
    answer = cli.succeed("train", data, run, "--hidden", 2)
    columns = hm.load(run).metadata["encoder"]["all_columns"]
    assert {column["name"] for column in columns if column["kind"] == "ignore"} == left_out
    assert answer.stderr.count("cells are numbers; missing_words") == questions
    assert answer.stderr.count("nothing is learned from columns") == bool(left_out)
    cli.succeed("impute", run, data, "--out", tmp_path / "full.csv")
    given, full = rows_of(data), rows_of(tmp_path / "full.csv")
    for row, filled in zip(given, full, strict=True):
        assert all(filled[name.strip()] == cell for name, cell in row.items() if cell.strip())
