"""The command line called in this process, as a process would call it."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from harmonium.cli import main

TINY = ("--hidden", "5", "--updates", "20", "--threads", "1")


def train_once(run: Path, data: object, *arguments: object) -> Path:
    """Trains a run that several tests read, outside of any of them; returns its folder."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        assert main(["train", *map(str, (data, run, *arguments))]) == 0
    return run


def write_csv(path: Path, rows: Iterable[Iterable[object]], names: Iterable[str]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def read_csv(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@dataclass(frozen=True)
class Answer:
    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        def refuse(constant: str) -> float:
            raise AssertionError(f"{constant} is not JSON")

        return json.loads(self.stdout, parse_constant=refuse)


class CommandLine:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Answer:
        self._capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        return Answer(status, captured.out, captured.err)

    def succeed(self, *arguments: object) -> Answer:
        answer = self(*arguments)
        assert answer.status == 0, answer.stderr
        return answer

    def refuse(self, *arguments: object, status: int = 2) -> str:
        """The one line on stderr of a command that fails as it should."""
        answer = self(*arguments)
        assert answer.status == status, answer
        assert answer.stdout == ""
        assert answer.stderr.startswith("error: ") and answer.stderr.count("\n") == 1, answer.stderr
        return answer.stderr.removeprefix("error: ").strip()

    def train(self, data: object, run: Path, *arguments: object) -> Any:
        return self.succeed("train", data, run, *TINY, "--json", *arguments).json
