"""One process at a time in the folder of a run."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from socket import gethostname
from typing import final


@final
class Lock:
    """A file that names the process that has a folder, with the system's lock, which ends with that process.

    One left by a dead process of this host is taken over; any other is refused until it is removed, as not
    every network shares locks.

    Args:
        path: the file; its folder exists.

    Raises:
        ValueError: another process has it, or it is a file of something else.
        OSError: it cannot be written, or its file system has no locks.
    """

    def __init__(self, path: Path) -> None:
        from filelock import FileLock, Timeout  # slow to import, and only runs with a folder need it

        self._path, host = path, json.dumps(gethostname())
        self._lock = FileLock(path, thread_local=False, fallback_to_soft=False)
        try:
            with suppress(Timeout):  # a holder that writes or removes its file takes microseconds
                self._lock.acquire(timeout=0.1, poll_interval=0.02)
        except OSError as why:
            raise OSError(why.errno, f"run_dir: expected a file system with locks ({why})", path) from why
        content = path.read_bytes()
        if not self._lock.is_locked or (content and f'"host": {host}'.encode() not in content):
            self._lock.release()
            who = "another process, or something else"
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                who = "process {process} on {host}".format(**json.loads(content))
            raise ValueError(
                f"run_dir: {path.parent} is in use by {who}; expected a folder of its own for every run. "
                f"If that process no longer runs, remove {path}"
            )
        with suppress(OSError):  # a full disk: the lock is had all the same, the file only explains it
            path.write_text(f'{{"process": {os.getpid()}, "host": {host}}}\n')
        self._file = path.lstat()

    def held(self) -> bool:
        """Returns whether this process has the lock and its file, with the folder, is where it was."""
        path = self._path
        return self._lock.is_locked and path.exists() and os.path.samestat(self._file, path.lstat())

    def release(self) -> None:
        """Removes the file, so that others may come."""
        if self.held():
            self._path.unlink()  # before others can lock it, or they would lose what they got
        self._lock.release()
