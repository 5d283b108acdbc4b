"""What a newcomer types wrong: every answer is one line that names what it is about and what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from .command_line import CommandLine

CITIES = ["Ulm", "Rom", "Bern"]
FILES = {
    "spaces.csv": "age weight\n31 60\n",
    "latin.csv": "city,x\nKöln,1\n",
    "one_class.csv": "x,y\n1.5,u\n2,u\n3.5,\n",
    "kinds.toml": 'agee = "gaussian"\n',
    "bell.toml": 'age = "normal"\n',
}
TRAIN = ["train", "table.csv", "new", "--hidden", "2", "--updates", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("newcomer")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="latin-1")
    random = np.random.default_rng(0)
    rows = [f"{random.integers(20, 90)},{CITIES[i % 3]},{random.normal():.3f}" for i in range(40)]
    (folder / "table.csv").write_text("\n".join(["age,city,score", *rows]) + "\n")
    (folder / "old.csv").write_text("mine")
    return folder


MISTAKES = {
    "spaces": (["train", "spaces.csv", "new"], ["received '31 60'", r"--read sep='\s+'"]),
    "a missing option": (["impute", "run", "table.csv"], ["'--out'", "(see harmonium impute --help)"]),
    "another encoding": (["data", "latin.csv"], ["latin.csv", "UTF-8", "--read encoding=latin-1"]),
    "no such label": ([*TRAIN, "--label", "town"], ["--label: ", "'age', 'city', 'score'", "'town'"]),
    "a real label": (
        [*TRAIN, "--label", "score"],
        ["--label: ", "'score'", "real numbers", "can be predicted"],
    ),
    "one class": (["train", "one_class.csv", "new", "--label", "y"], ["--label: ", "two classes", "['u']"]),
    "a column of --kinds": ([*TRAIN, "--kinds", "kinds.toml"], ["--kinds: ", "'age'", "'agee'"]),
    "a kind": ([*TRAIN, "--kinds", "bell.toml"], ["--kinds: ", "gaussian", "'age'", "'normal'"]),
    "a rule's option": ([*TRAIN, "--rule-option", "sweep=3"], ["--rule-option: ", "k, chains", "'sweep=3'"]),
    "twice": ([*TRAIN, "--rule-option", "k=2", "--sweeps", "3"], ["--rule-option: ", "k once"]),
    "data for a run": (
        ["predict", "table.csv", "run", "--out", "p.csv"],
        ["RUN: ", "table.csv", "run's folder", "DATA come after"],
    ),
    "a column's name": (
        ["predict", "run", "table.csv", "--out", "p.csv", "--column", "ages"],
        ["--column: ", "received 'ages'; close to it: age"],
    ),
    "a command's name": (["imput", "run"], ["No such command 'imput'. Did you mean 'impute'?"]),
    "probabilities of a number": (
        ["predict", "run", "table.csv", "--out", "p.csv", "--column", "age", "--probabilities"],
        ["--probabilities: ", "labels or counts", "'age'"],
    ),
    "draws that are means": (
        ["impute", "run", "table.csv", "--out", "f.csv", "--imputations", "3", "--value", "mean"],
        ["--imputations: ", "the value draw", "mean"],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered(
    cli: CommandLine, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(folder)
    if not Path("run").exists():
        by_chains = ("--method", "chains", "--hidden", 2, "--updates", 2, "--threads", 1)
        cli.succeed("train", "table.csv", "run", *by_chains)
    arguments, words = MISTAKES[name]
    answer = cli.refuse(*arguments)
    assert [word for word in words if word not in answer] == [], answer
    assert Path("old.csv").read_text() == "mine"
    assert not Path("new", "run.toml").exists()


def test_a_frame_without_a_library_names_one(
    cli: CommandLine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "x.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(sys.modules["harmonium.data.table_files"], "find_spec", lambda name: None)
    answer = cli.refuse("data", folder / "x.parquet", status=1)
    assert "pip install" in answer and "polars" in answer and ".csv" in answer
