"""The folder of a run: one process at a time, the checkpoint before, what goes missing during a run."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harmonium.training import TrainingRun, Update, lock

from .test_training_resume import assert_same, run as resumable

pytestmark = pytest.mark.usefixtures("one_thread")


def run(run_dir: Path | None, *observers: Any, **settings: Any) -> TrainingRun:
    """The run of the tests of resuming, with callbacks: checkpoints after every tenth of 60 updates."""
    return resumable(run_dir, callbacks=observers, optimizer="adam", momentum=0.0, **settings)


@cache
def whole_run() -> TrainingRun:
    """That run without a folder, which nothing ended early."""
    return run(None)


def at(step: int, do: Callable[[], Any]) -> Callable[[Update], None]:
    """A callback that does something after one of the updates."""

    def callback(update: Update) -> None:
        if update.step == step:
            do()

    return callback


class Crash(BaseException):
    """Stands for whatever ends a process at some point."""


def crash() -> None:
    raise Crash


# One process at a time -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"resume": True}, {"overwrite": True}], ids=str)
def test_a_folder_in_use_is_refused_by_name(how: dict[str, bool], tmp_path: Path) -> None:
    who = rf"in use by process {os.getpid()} on {re.escape(socket.gethostname())};"

    def second() -> None:
        with pytest.raises(ValueError, match=rf"^run_dir: .*{who}"):
            run(tmp_path, **how)

    assert_same(whole_run(), run(tmp_path, at(15, second)))
    with pytest.raises(Crash):
        run(tmp_path, at(7, crash), overwrite=True)
    assert not (tmp_path / "lock.json").exists()


def test_a_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    left = {"process": 4_000_000, "host": socket.gethostname()}
    for content in (json.dumps(left).encode(), b""):  # empty: it died before it could sign
        (tmp_path / "lock.json").write_bytes(content)
        assert_same(whole_run(), run(tmp_path, overwrite=True))
        assert not (tmp_path / "lock.json").exists()


def test_a_lock_of_another_host_is_refused_until_it_is_removed(tmp_path: Path) -> None:
    left = {"process": 7, "host": "elsewhere.example"}
    (tmp_path / "lock.json").write_text(json.dumps(left))
    with pytest.raises(ValueError, match=r"in use by process 7 on elsewhere\.example;.*remove .*lock\.json"):
        run(tmp_path)
    assert json.loads((tmp_path / "lock.json").read_text()) == left
    (tmp_path / "lock.json").unlink()
    run(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*arguments: Any) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(
        OSError, match=r"^\[Errno 38\] run_dir: expected a file system with locks .*lock\.json"
    ):
        run(tmp_path)


def test_a_lock_that_is_released_meanwhile_is_taken(tmp_path: Path) -> None:
    held = lock.Lock(tmp_path / "lock.json")
    release = threading.Timer(0.03, held.release)
    release.start()
    taken = lock.Lock(tmp_path / "lock.json")
    release.join()
    assert taken.held() and not held.held()
    taken.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    (reading, writing), (ready, begun) = os.pipe(), os.pipe()
    holder = os.fork()
    if holder == 0:
        held = lock.Lock(tmp_path / "lock.json")
        if os.fork() == 0:
            os.close(writing)
            os.write(begun, b"n" if held.held() else b"y")
            os.read(reading, 1)
        os._exit(0)
    os.waitpid(holder, 0)
    try:
        assert os.read(ready, 1) == b"y"
        lock.Lock(tmp_path / "lock.json").release()
    finally:
        for end in (writing, reading, ready, begun):
            os.close(end)


# The checkpoint before -------------------------------------------------------------------------------------


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "flipped":
        place = len(content) // 2
        path.write_bytes(content[:place] + bytes([content[place] ^ 64]) + content[place + 1 :])
    else:
        path.write_bytes(content[:-100])


@pytest.mark.parametrize("how", ["truncated", "flipped"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(how: str, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, at(37, crash))
    damage(tmp_path / "checkpoint.safetensors", how)
    (tmp_path / "history.jsonl").write_bytes(b"{")  # which is for others to read
    with (
        pytest.warns(
            UserWarning, match=r"checkpoint\.safetensors: damaged.*the checkpoint before, of update 20"
        ),
        pytest.raises(Crash),
    ):
        run(tmp_path, at(21, crash), resume=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(whole_run(), run(tmp_path, resume=True))


def test_where_both_are_damaged_the_error_says_what_can_be_done(tmp_path: Path) -> None:
    run(tmp_path)
    for name in ("checkpoint.safetensors", "checkpoint-previous.safetensors"):
        damage(tmp_path / name, "truncated")
    message = (
        r"checkpoint\.safetensors: .*checkpoint-previous\.safetensors: .*no other.*overwrite begins again"
    )
    with pytest.raises(ValueError, match=message):
        run(tmp_path, resume=True)
    run(tmp_path, overwrite=True)


@pytest.mark.parametrize("call", range(1, 5))
def test_a_run_ended_between_two_renames_goes_on(
    call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def replace(source: Any, target: Any) -> None:
        calls.append(target)
        if len(calls) > call:
            raise Crash
        original(source, target)

    original = os.replace
    with pytest.raises(Crash):
        run(tmp_path, at(29, lambda: monkeypatch.setattr(os, "replace", replace)))
    monkeypatch.undo()
    (tmp_path / ".checkpoint.safetensors.abc").write_bytes(b"left")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(whole_run(), run(tmp_path, resume=True))
    assert not list(tmp_path.glob(".*"))


# What goes missing during a run ----------------------------------------------------------------------------


def test_a_folder_renamed_during_a_run_is_resumed_where_it_is(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    message = (
        r"here or its lock\.json was removed, renamed or replaced.*of update 10, is where its files are now"
    )
    with pytest.raises(OSError, match=message):
        run(here, at(13, lambda: here.rename(there)))
    assert not here.exists()
    assert_same(whole_run(), run(there, resume=True))


def test_files_left_by_a_kill_go_and_folders_stay(tmp_path: Path) -> None:
    for name in ("run.toml", "checkpoint.safetensors", "history.jsonl", "machine.safetensors"):
        (tmp_path / f".{name}.abcd1234").write_bytes(b"left")
        (tmp_path / f".{name}.folder").mkdir()
        (tmp_path / f".{name}.folder" / "mine").write_bytes(b"mine")
    assert_same(whole_run(), run(tmp_path, resume=True))
    assert sorted(path.suffix for path in tmp_path.glob(".*")) == [".folder"] * 4


# Files that are not a run's
# ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["lock.json", "history.jsonl"])
def test_a_symbolic_link_in_the_place_of_a_file_is_refused_and_its_target_kept(name, overwrite, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "precious.txt").write_text("precious\n" * 100)
    for target in ("precious.txt", "not there"):
        (tmp_path / "run" / name).symlink_to(tmp_path / target)
        with pytest.raises(ValueError, match=f"{name} is a symbolic link"):
            run(tmp_path / "run", overwrite=overwrite)
        assert (tmp_path / "precious.txt").read_text() == "precious\n" * 100
        assert not (tmp_path / "not there").exists()
        assert [path.name for path in (tmp_path / "run").iterdir()] == [name]
        (tmp_path / "run" / name).unlink()


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"overwrite": True}], ids=str)
@pytest.mark.parametrize(
    ("name", "content"), [("lock.json", '{"process": 12'), ("run.toml", '{"mine": "settings"}')]
)
def test_a_file_of_something_else_is_refused_and_kept(name, content, options, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=rf"something else.*{name}|{name} is a file of something else"):
        run(tmp_path, **options)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == content
