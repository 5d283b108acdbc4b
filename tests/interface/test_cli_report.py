"""harmonium report: one page for every kind of machine, that asks nothing of the network."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.cli import main
from harmonium.cli.commands import report
from harmonium.report import Resampling
from harmonium.report.page.figures import chart, histogram, interval
from harmonium.report.page.record import RunRecord
from harmonium.report.page.verdict import (
    activity_remarks,
    convergence_remarks,
    copy_remarks,
    equilibrium_remarks,
    likelihood_remarks,
    mixing_remarks,
    training_remarks,
)

from .command_line import TINY, CommandLine

QUICK = ("--sweeps", "5", "--temperatures", "10", "--mixing-sweeps", "200", "--threads", "1")
BARS = "bars-and-stripes"
SECTIONS = [
    *("verdict", "curves", "likelihood", "mixing", "equilibrium", "learned", "samples", "filters"),
    *("activity", "columns", "landscape", "completion", "denoising", "settings"),
]
IMAGES_HAVE_NO = {"columns", "learned"}
# Chains are not needed; the tiny machine has no mean field that settles beside.
TABLE_HAS_NO = {"completion", "denoising", "mixing", "equilibrium"}
VOID = {"meta", "img", "path"}  # path closes itself


@dataclass
class Page(HTMLParser):
    """What a page holds; a tag that is not closed, or an address, is an error at once."""

    ids: list[str] = field(default_factory=list)
    absent: set[str] = field(default_factory=set)
    text: str = ""
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    @classmethod
    def read(cls, path: Path) -> Page:
        page = cls()
        content = path.read_text("utf-8")
        assert "url(" not in content and "@import" not in content and "<script" not in content
        page.feed(content)
        page.close()
        assert page.open == []
        return page

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if (name := given.get("id")) is not None:
            assert name not in self.ids
            self.ids.append(name)
        if given.get("class") == "absent":
            self.absent.add(self.ids[-1])
        assert (given.get("href") or "#").startswith("#")
        assert (given.get("src") or "data:image/png;base64,").startswith("data:image/png;base64,")
        assert not any("//" in (value or "") for name, value in given.items() if name != "src")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tiny runs of every kind, and a machine that knows no data."""
    folder = tmp_path_factory.mktemp("runs")
    generator = np.random.default_rng(0)
    towns = generator.choice(["Oslo", "Rome", "Lima"], 60)
    lines = [f"{generator.normal():.3f},{town},{i % 2},person {i}" for i, town in enumerate(towns)]
    (folder / "people.csv").write_text("\n".join(["age,town,smoker,name", *lines, ",Oslo,1,nobody"]) + "\n")
    np.save(folder / "grey.npy", generator.normal(size=(40, 4, 4)).astype(np.float32))
    np.save(folder / "bytes.npy", generator.integers(0, 256, (40, 3, 3), dtype=np.uint8))
    kinds = {
        "ucd": (BARS, "--rule", "ucd", "--validation", BARS, "--evaluate-every", "2"),
        "gaussian": (str(folder / "grey.npy"),),
        "deep": (BARS, "--hidden", "5,3", "--rule", "mean_field_pcd"),
        "modes": (BARS, "--rule", "ucd_lmi"),
        "planes": (str(folder / "bytes.npy"), "--binarise", "bit-planes"),
        "table": (str(folder / "people.csv"), "--method", "chains"),
    }
    for name, (data, *options) in kinds.items():
        hidden = [] if "--hidden" in options else TINY[:2]
        assert main(["train", data, str(folder / name), *hidden, *TINY[2:], *options]) == 0
    ising = hm.BoltzmannMachine([hm.Spin(6)], edges=[(0, 0)], seed=0)
    ising.save(folder / "ising.safetensors")
    return folder


NEEDS_DATA = {"learned", "equilibrium", "activity", "columns", "landscape", "completion", "denoising"}


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("ucd", IMAGES_HAVE_NO),
        ("gaussian", IMAGES_HAVE_NO),
        ("deep", IMAGES_HAVE_NO),
        ("planes", IMAGES_HAVE_NO),
        ("table", TABLE_HAS_NO),
        ("ising.safetensors", {"curves"} | NEEDS_DATA),
    ],
)
@pytest.mark.mostly_nightly(2)
def test_every_machine_has_every_section(
    name: str, absent: set[str], cli: CommandLine, runs: Path, tmp_path: Path
) -> None:
    answer = cli.succeed("report", runs / name, "--out", tmp_path / "page.html", *QUICK, "--json").json
    assert answer["file"] == str(tmp_path / "page.html")
    page = Page.read(tmp_path / "page.html")
    assert page.ids == [
        *(id for id in SECTIONS if id not in absent),
        "absent",
        *filter(absent.__contains__, SECTIONS),
    ]
    assert page.absent == absent
    if name == "ising.safetensors":
        assert "the machine names none; --data FILE gives some" in page.text
    else:
        config = tomllib.loads((runs / name / "run.toml").read_text())
        for told in (config["run"]["rule"], *config["made_with"].values()):
            assert told in page.text


def test_runs_side_by_side(cli: CommandLine, runs: Path, tmp_path: Path) -> None:
    compared = ("--compare", runs / "modes", "--compare", runs / "deep")
    cli.succeed("report", runs / "ucd", *compared, "--out", tmp_path / "page.html", *QUICK)
    page = Page.read(tmp_path / "page.html")
    assert all(f"{name} ({i})" in page.text for i, name in enumerate(("ucd", "modes", "deep"), start=1))
    content = (tmp_path / "page.html").read_text()
    rows = {row.split("</th>")[0].split("<th>")[1]: row for row in content.split("<tr")[1:] if "</th>" in row}
    assert 'class="marked"' in rows["rule"] and 'class="marked"' not in rows["batch size"]


def test_a_table_whose_data_are_gone(cli: CommandLine, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "table", tmp_path / "run")
    (runs / "people.csv").rename(runs / "moved.csv")
    try:
        cli.succeed("report", tmp_path / "run", *QUICK)
        page = Page.read(tmp_path / "run" / "report.html")
        assert page.absent >= NEEDS_DATA and "--data FILE gives some" in page.text
        cli.succeed("report", tmp_path / "run", "--overwrite", "--data", runs / "moved.csv", *QUICK)
        page = Page.read(tmp_path / "run" / "report.html")
        assert page.absent - {"landscape"} == TABLE_HAS_NO and "60 complete rows of moved.csv" in page.text
        assert "--data FILE" not in page.text
        shown = page.text.partition("Samples beside data")[2].partition("As recorded when training")[0]
        assert (
            "smoker" in shown and "None" not in shown
        )  # as the column of names would be, of which no unit is
    finally:
        (runs / "moved.csv").rename(runs / "people.csv")


@pytest.mark.parametrize("objective", ["hybrid", "joint"])
def test_little_learned_beside_the_label_has_its_own_remedy(
    objective: str, cli: CommandLine, runs: Path, tmp_path: Path
) -> None:
    """Too few updates to learn anything of two columns that are one."""
    cells = np.random.default_rng(0).choice(["p", "q"], 80)
    lines = [f"{cell},{cell},{'no' if i % 3 else 'yes'}" for i, cell in enumerate(cells)]
    (tmp_path / "t.csv").write_text("\n".join(["one,other,kind", *lines]) + "\n")
    chosen = ("--label", "kind", "--objective", objective, "--method", "chains")
    cli.succeed("train", tmp_path / "t.csv", tmp_path / "run", *TINY, *chosen, "--updates", 1)
    told = cli.succeed("report", tmp_path / "run", *QUICK, "--json").json["notes"]
    (gain,) = [note for note in told if "than independent columns" in note]
    (link,) = [note for note in told if "strong links" in note]
    for text in (gain, link):
        assert ("--objective joint" in text) == (objective == "hybrid") == ("more units" not in text)


def test_mean_field_that_fails_is_no_caution_where_sums_are_exact(cli: CommandLine, tmp_path: Path) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], seed=0)
    couplings = 3 * torch.randn(machine.couplings[0].weight.shape, generator=torch.Generator().manual_seed(0))
    machine.couplings[0].fill_(couplings)
    starts = machine.random_states(50, seed=1)[0]
    assert not bool(hm.meanfield.landscape(machine, starts).admissible.any())
    machine.save(tmp_path / "strong.safetensors")
    np.save(tmp_path / "x.npy", starts.numpy())
    told = cli.succeed(
        "report", tmp_path / "strong.safetensors", "--data", tmp_path / "x.npy", *QUICK, "--json"
    )
    text = Page.read(tmp_path / "strong.html").text
    assert "do not rest on it" in text and "likelihood.ais" not in text
    assert not any("olution" in note for note in told.json["notes"])


def test_a_run_that_has_not_ended(cli: CommandLine, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "ucd", tmp_path / "run")
    (tmp_path / "run" / "machine.safetensors").unlink()
    cli.succeed("report", tmp_path / "run", *QUICK)
    assert "unfinished: 20 of 20 updates" in Page.read(tmp_path / "run" / "report.html").text


def test_refusals(cli: CommandLine, runs: Path, tmp_path: Path) -> None:
    assert "there is no file or folder" in cli.refuse("report", tmp_path / "nowhere")
    assert "holds no run" in cli.refuse("report", tmp_path)
    assert "holds no run" in cli.refuse(
        "report", runs / "ucd", "--compare", tmp_path, "--out", tmp_path / "a.html"
    )
    out = tmp_path / "page.html"
    assert "no such file" in cli.refuse("report", runs / "ucd", "--out", out, "--data", "nowhere.csv")
    assert ".html" in cli.refuse("report", runs / "ucd", "--out", tmp_path / "page.pdf")
    out.write_text("mine")
    assert "--overwrite replaces it" in cli.refuse("report", runs / "ucd", "--out", out)
    assert out.read_text() == "mine"
    shutil.copytree(runs / "ucd", tmp_path / "run")
    with open(tmp_path / "run" / "history.jsonl", "a") as file:
        file.write("{}\n")
    assert "history.jsonl is damaged" in cli.refuse("report", tmp_path / "run")


def test_what_is_missing_is_named(
    cli: CommandLine, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("jinja2", "matplotlib.figure"):
        with monkeypatch.context() as lacking:
            lacking.setitem(sys.modules, name, None)
            told = cli.refuse("report", runs / "ucd", "--out", tmp_path / "page.html", status=1)
        assert f"needs {name}" in told and "pip install 'harmonium[report]'" in told


def record(values: list[float], **extra: float) -> RunRecord:
    history = [
        {"step": i, "seconds": 1.0, "learning_rate": 0.1, "gradient_norm": 2.0, **extra, "weight_norm": 1.0}
        | {"log_likelihood": value}
        for i, value in enumerate(values, start=1)
    ]
    return RunRecord("run", {"updates": len(values), "clip_norm": 1.0}, history, "", True)


def told(remarks: list[tuple[str, str]], level: str) -> str:
    return " ".join(text for found, text in remarks if found == level)


def test_a_verdict_says_what_the_numbers_carry() -> None:
    noise = np.random.default_rng(0).normal(size=60) * 0.01
    rising, level = np.linspace(-20, -10, 60) + noise, -10 - 10 * np.exp(-np.arange(60.0)) + noise
    assert "still rose, by" in told(training_remarks(record(rising.tolist())), "caution")
    assert "still fell, by" in told(training_remarks(record((-rising).tolist())), "caution")
    assert "had levelled off" in told(training_remarks(record(level.tolist())), "good")
    faults = training_remarks(
        record(level.tolist(), capped=0.2, mean_field_converged=0.5, acceptance=0.1, clipped=0.75)
    )
    assert all(each in told(faults, "caution") for each in ("20.0% of the pairs", "for 50% of", "Only 10%"))
    assert "75% of the updates were clipped at a norm of 1" in told(faults, "note")

    ais = {"method": "ais", "ess": 3.0, "chains": 100, "lower": 1.0, "upper": 9.0, "value": 5.0}
    assert "3 of 100" in told(likelihood_remarks(ais, None), "caution")
    assert "within 8 nats" in told(likelihood_remarks(ais, None), "caution")
    met = hm.coupled.mixing_times(hm.BoltzmannMachine([hm.Spin(4), hm.Spin(4)], seed=0), pairs=400, seed=0)
    apart = met._replace(given_up=0.1, longest_meeting_time=100, sweeps=None, sweeps_with_confidence=None)
    assert "40 of 400 pairs of chains had not met after 100" in told(mixing_remarks(apart, 10), "caution")
    bound = met._replace(sweeps=40, sweeps_with_confidence=50)
    assert "too few" in told(mixing_remarks(bound, 10), "caution")
    assert "after 50 sweeps, by 400 pairs" in told(mixing_remarks(bound, 60), "good")
    assert "3 of 10 hidden units are never active" in told(activity_remarks(3, 0, 0.0, 10), "caution")
    assert "saturated" in told(activity_remarks(0, 0, 0.95, 10), "note")
    assert "near copies" in told(copy_remarks(0.1, 1.0), "caution") and copy_remarks(1.0, 0.0) == []


def test_annealing_and_mixing_are_judged_together() -> None:
    """There was a good "within 0.1 nats" and a ± beside pairs of chains that had never met."""
    ais = {"method": "ais", "ess": 98.0, "chains": 100, "lower": 1.0, "upper": 1.1, "value": 1.05}
    row = {"data": "x", "log_likelihood": -9.0, "rows_standard_error": 0.05}
    apart = {"given_up": 0.055, "pairs": 400, "longest_meeting_time": 1000}
    together = likelihood_remarks(ais, row, apart)
    assert "22 of 400 pairs of chains had not met after 1000 sweeps. So its standard error" in told(
        together, "caution"
    )
    assert told(together, "good") == "" and "±" not in " ".join(text for _, text in together)
    met = likelihood_remarks(ais, row, {**apart, "given_up": 0.0})
    assert "all 400 pairs" in told(met, "good") and "-9.00 ± 0.05" in told(met, "note")
    blind = likelihood_remarks(
        {**ais, "doubts": [hm.likelihood.WITHOUT_DATA]}, row, None
    )  # annealed without data
    assert "no data to start from" in told(blind, "caution") and told(blind, "good") == ""
    falls = likelihood_remarks(ais, row, {"falls": True, "peak": 32})
    assert "trained out of equilibrium" in told(falls, "caution") and told(falls, "good") == ""
    stays = likelihood_remarks(ais, row, {"falls": False, "peak": 32})
    assert told(stays, "caution") == "" and "-9.00 ± 0.05" in told(stays, "note")
    exact = {"method": "exact", "value": 1.0}  # counting needs no chains
    assert told(likelihood_remarks(exact, row, apart), "caution") == ""


def test_a_verdict_on_the_equilibrium() -> None:

    def curve(correlation: list[float], certain: bool) -> Resampling:
        values = torch.tensor(correlation)
        drop = values - values[-1]
        return Resampling(torch.tensor([1, 2, 4]), values, drop, drop, 100.0 * certain * drop, 0.95, [])

    (falling,) = equilibrium_remarks(curve([0.2, 0.9, 0.7], True))
    assert falling.level == "caution" and "by 0.90 after 2 sweeps, and by 0.70 after 4" in falling.text
    assert equilibrium_remarks(curve([0.2, 0.5, 0.9], True))[0].level == "note"
    (level,) = equilibrium_remarks(curve([0.2, 0.9, 0.9], False))
    assert level.level == "good" and "0.90 after 4 sweeps" in level.text
    assert equilibrium_remarks(curve([0.1, 0.1, 0.1], False))[0].level == "note"
    for r_hat, expected in ((1.0, "good"), (1.05, "note"), (float("nan"), "caution")):
        quantity = hm.chains.Convergence(r_hat, 900.0, 900.0, 0.0, 0.1)
        found = hm.chains.Diagnosis({"free energy": quantity}, 50_000, {}, {})
        assert convergence_remarks(found)[0].level == expected


def test_parts_that_do_not_fit_into_the_seconds_are_named(
    cli: CommandLine, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock on which a step takes half a second: of three probes the last takes 2 s more for 4 steps."""
    ticks = (k * k for k in count())
    monkeypatch.setattr(report, "time", SimpleNamespace(perf_counter=ticks.__next__))
    given = ("report", runs / "ucd", "--out", tmp_path / "page.html", "--overwrite", *QUICK)
    notes = cli.succeed(*given, "--seconds", 9, "--json").json["notes"]
    page, parts = Page.read(tmp_path / "page.html"), {"mixing", "equilibrium", "landscape"}
    assert parts <= page.absent and {*page.ids} == {*SECTIONS, "absent"}
    assert "20 sweeps cannot be made in 1.8 s, a fifth of --seconds" in page.text
    assert {note.partition(":")[0] for note in notes if "--seconds" in note} == {
        "Pairs of chains", "Equilibrium", "Landscape"
    }  # fmt: skip
    notes = cli.succeed(*given, "--seconds", 60, "--json").json["notes"]
    page = Page.read(tmp_path / "page.html")
    assert not parts & page.absent
    for cut in ("Pairs of chains: 24 of 200 sweeps", "Landscape: 24 of 32 rows"):
        assert f"{cut} were made in 12 s, a fifth of --seconds" in notes and cut in page.text
    assert "seconds" in cli.refuse(*given, "--seconds", 0)


def test_charts_hold_their_points_between_their_axes() -> None:
    lines = {"a": [(0.0, 1.0), (1.0, float("nan")), (2.0, 1000.0)], "b": [(1.0, float("inf"))]}
    drawn = chart("title", lines, "x", "y", errors={"a": [(0.0, 0.25)]})
    assert drawn is not None and drawn.legend == [("a", 0, False)]
    line, *others = re.findall(r'd="M ([^"]*)" style="fill: none; stroke: var\(--c0\)', drawn.svg)
    x0, y0, x1, y1 = map(float, line.split())
    assert not others and 0 < x0 < x1 <= 380 and 0 <= y1 < y0 <= 230  # upwards is up
    assert all(f">{text}</text>" in drawn.svg for text in (1, 10, 100, 1000)) and "opacity: 0.2" in drawn.svg
    assert chart("title", {"b": lines["b"]}, "x", "y") is None
    words = histogram("town", {"data": np.array(["Oslo", None, "<$x_$>", "Oslo"], dtype=object)})
    assert words is not None and ">Oslo<" in words.svg and ">&lt;$x_$&gt;<" in words.svg
    assert ">bounds<" in interval("ln Z", {"± 2 SE": (1.0, 1.25), "bounds": (0.75, 2.0)}, 1.1, "nats").svg


def test_charts_leave_names_and_close_numbers_as_they_are() -> None:
    names = ["St Louis", "New L", "#abcde1"]
    svg = histogram("cities", {"data": np.array(names, dtype=object)}).svg
    assert all(f">{name}</text>" in svg for name in names)
    svg = interval("ln Z", {"bounds": (13245.30, 13245.36)}, 13245.33, "nats").svg
    ticks = re.findall(r">([\d.]+)</text>", svg)
    assert len(ticks) > 2 and len({*ticks}) == len(ticks)


def test_samples_from_data_stand_beside_those_from_noise(cli: CommandLine, tmp_path: Path) -> None:
    """Of two modes that a chain never leaves, chains from the data's stay there."""
    machine = hm.BoltzmannMachine([hm.Spin(40)], edges=[(0, 0)], seed=0)
    machine.couplings[0].fill_(0.3 * (1 - torch.eye(40)))
    machine.save(tmp_path / "modes.safetensors")
    np.save(tmp_path / "up.npy", np.ones((30, 40), dtype=np.float32))
    data = ("--data", tmp_path / "up.npy", *QUICK, "--mixing-sweeps", 1)
    cli.succeed("report", tmp_path / "modes.safetensors", *data)
    content = (tmp_path / "modes.html").read_text()
    shown = content.partition("samples from data")[2].partition("</table>")[0]
    assert "<td>1</td>" in shown and "<td>-1</td>" not in shown
    assert "Comparable with likelihoods in nats a row of 40 columns, not binarised." in content
