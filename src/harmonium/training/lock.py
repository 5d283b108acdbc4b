"""One process at a time in the folder of a run."""

from __future__ import annotations

import json
import os
import time
import weakref
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from socket import gethostname
from typing import Any, final

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""The flag with which a symbolic link is not opened, where the system has one."""
_OURS = b'{"process": '  # how every lock file begins
_HELD: weakref.WeakSet[Lock] = weakref.WeakSet()
# A holder that changes its file takes microseconds; a second is enough on a network folder too.
_ATTEMPTS, _PAUSE = 50, 0.02  # seconds between two


@final
class Lock:
    """A file that names the process that has a folder, with the system's lock, which ends with that process.

    A lock left by a dead process of this host is therefore taken over. One left by another host is refused,
    as not every network file system shares locks between hosts, until somebody removes the file. Where the
    system or the file system has no locks, the file alone counts, and one left behind is always refused.

    Args:
        path: the file; its folder exists.

    Raises:
        ValueError: another process has it, or another object in this one.
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        for _ in range(_ATTEMPTS):
            if self._take():
                _HELD.add(self)
                return
            time.sleep(_PAUSE)
        raise ValueError(self._describe_holder({}))

    def held(self) -> bool:
        """Returns whether this process has the lock and its file, with the folder, is where it was."""
        return self._file is not None and _is_at(self._file, self._path)

    def release(self) -> None:
        """Removes the file, so that others may come."""
        if self.held():
            self._path.unlink(missing_ok=True)  # before others can lock it, or they would lose what they got
        self.drop()

    def drop(self) -> None:
        """Lets go of the file without removing it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _take(self) -> bool:
        """Tries to take the lock; returns whether it did. False also while a holder changes its file."""
        try:
            try:
                file, created = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), True
            except FileExistsError:
                file, created = os.open(self._path, os.O_RDWR | NO_LINK), False
        except FileNotFoundError:  # its holder has let go meanwhile
            return False
        except OSError:
            if self._path.is_symlink():
                raise ValueError(say_link(self._path)) from None
            raise
        try:
            free = _lock(file)
            holder = _read_holder(file)
            if not _is_at(file, self._path):
                return False
            if not (holder or _is_begun(file)):
                raise ValueError(
                    f"run_dir: expected a folder of a run's own, {self._path} is a file of something else; "
                    "choose another folder"
                )
            if free is None:
                free = created
            elif free and holder.get("host", gethostname()) != gethostname():
                free = False
            if not free:
                # One that is dead was named before; the process that has come after it is about to write.
                if holder and not _is_dead(holder):
                    raise ValueError(self._describe_holder(holder))
                return False
            since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
            content = json.dumps({"process": os.getpid(), "host": gethostname(), "since": since})
            with suppress(OSError):  # a full disk: the lock is had all the same, the file only explains it
                os.ftruncate(file, 0)
                os.lseek(file, 0, os.SEEK_SET)
                os.write(file, f"{content}\n".encode())
            self._file, file = file, -1
            return True
        finally:
            if file >= 0:
                os.close(file)

    def _describe_holder(self, holder: dict[str, Any]) -> str:
        who = "another process"
        if holder:
            who = f"process {holder['process']} on {holder['host']} since {holder['since']}"
        remedy = "expected a folder of its own for every run"
        if not fcntl or holder.get("host", gethostname()) != gethostname():
            remedy = f"if that process no longer runs, remove {self._path}"
        return f"run_dir: {self._path.parent} is in use by {who}; {remedy}"


def _lock(file: int) -> bool | None:
    """Takes the system's lock on a file; returns whether it did, None where the system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _read_holder(file: int) -> dict[str, Any]:
    """Reads the process that wrote a lock file; an empty mapping if the file is empty or damaged."""
    os.lseek(file, 0, os.SEEK_SET)
    try:
        holder = json.loads(os.read(file, 4096))
    except (ValueError, RecursionError):
        return {}
    kinds = {"process": int, "host": str, "since": str}
    fits = isinstance(holder, dict) and {key: type(value) for key, value in holder.items()} == kinds
    return holder if fits else {}


def _is_begun(file: int) -> bool:
    """Returns whether a lock file is empty, or what a process that died in writing it has left."""
    os.lseek(file, 0, os.SEEK_SET)
    content = os.read(file, 4096)
    return content.startswith(_OURS) or _OURS.startswith(content)


def say_link(path: Path) -> str:
    """Returns the error for a file of a run that is a symbolic link."""
    return (
        f"run_dir: expected files of a run's own, {path} is a symbolic link, whose target a run would "
        "change; remove it, or choose another folder"
    )


def _is_dead(holder: dict[str, Any]) -> bool:
    """Returns whether the holder is a process of this host that is known to have ended."""
    if fcntl is None or holder["host"] != gethostname():
        return False
    try:
        os.kill(holder["process"], 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


def _drop_all() -> None:
    for lock in list(_HELD):
        lock.drop()


if hasattr(os, "register_at_fork"):
    # The system's lock would stay as long as a child that outlives its parent.
    os.register_at_fork(after_in_child=_drop_all)
