"""One process at a time in the folder of a run."""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from socket import gethostname
from typing import final


@final
class Lock:
    """A file that names the process that has a folder, with the system's lock, which ends with that process.

    One left by a dead process of this host is taken over; any other is refused until it is removed, as not
    every network shares locks. Where the file system has none, the file alone counts.

    Args:
        path: the file; its folder exists.

    Raises:
        ValueError: another process has it, or it is a file of something else.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        from filelock import FileLock, Timeout  # slow to import, and only runs with a folder need it

        self._path, self._process = path, 0
        self._lock = FileLock(path, thread_local=False, on_acquired=self._sign)
        try:
            # A holder that writes or removes its file takes microseconds.
            self._lock.acquire(timeout=0.1, poll_interval=0.02)
        except Timeout:
            raise ValueError(self._describe(path.read_bytes())) from None
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
                raise
            if content := path.read_bytes():
                raise ValueError(self._describe(content)) from error
            with path.open("r+b") as file:
                self._sign(file.fileno())

    def held(self) -> bool:
        """Returns whether this process has the lock and its file, with the folder, is where it was."""
        with suppress(FileNotFoundError):
            return self._process == os.getpid() and os.path.samestat(self._file, os.lstat(self._path))
        return False

    def release(self) -> None:
        """Removes the file, so that others may come."""
        if self.held():
            self._path.unlink()  # before others can lock it, or they would lose what they got
        self._process = 0
        self._lock.release()

    def _sign(self, file: int) -> None:
        """Writes this process into the file, unless that is another host's or something else's."""
        content = os.read(file, 4096)
        if content and f'"host": {json.dumps(gethostname())}, "since"'.encode() not in content:
            raise ValueError(self._describe(content))
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        signature = {"process": os.getpid(), "host": gethostname(), "since": since}
        with suppress(OSError):  # a full disk: the lock is had all the same, the file only explains it
            os.ftruncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)
            os.write(file, f"{json.dumps(signature)}\n".encode())
        self._file, self._process = os.fstat(file), os.getpid()

    def _describe(self, content: bytes) -> str:
        try:
            who = "process {process} on {host} since {since}".format(**json.loads(content))
        except (ValueError, TypeError, KeyError, RecursionError):
            who = "another process, or something else"
        return (
            f"run_dir: {self._path.parent} is in use by {who}; expected a folder of its own for every run. "
            f"If that process no longer runs, remove {self._path}"
        )
