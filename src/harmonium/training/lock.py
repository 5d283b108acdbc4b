"""One process at a time in the folder of a run."""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from socket import gethostname
from typing import Any, final

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # answers of file systems without locks
_PATIENCE, _PAUSE = 0.1, 0.02  # seconds; a holder that writes or removes its file takes microseconds


@final
class Lock:
    """A file that names the process that has a folder, with the system's lock, which ends with that process.

    One left by a dead process of this host is taken over; one of another host is refused until it is removed,
    as not every network shares locks. Where the file system has none, the file alone counts.

    Args:
        path: the file; its folder exists.

    Raises:
        ValueError: another process has it, or it is a file of something else.
        OSError: it is a symbolic link, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        from filelock import FileLock, Timeout  # slow to import, and only runs with a folder need it

        self._path, self._process, self._new = path, 0, False
        with suppress(FileExistsError):
            path.touch(exist_ok=False)
            self._new = True
        self._lock = FileLock(path, thread_local=False, on_acquired=self._sign)
        try:
            self._lock.acquire(_PATIENCE, _PAUSE)
        except Timeout:
            raise ValueError(self._describe(_read_holder(path.read_bytes()))) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            with path.open("r+b") as file:
                self._sign(file.fileno(), locked=False)

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

    def _sign(self, file: int, locked: bool = True) -> None:
        """Writes this process into the file, unless that is another host's or something else's."""
        content = os.read(file, 4096)
        holder = _read_holder(content)
        if content and not holder:
            raise ValueError(
                f"run_dir: expected a folder of a run's own, {self._path} is a file of something else; "
                "remove it, or choose another folder"
            )
        if holder.get("host", gethostname()) != gethostname() or not (locked or self._new):
            raise ValueError(self._describe(holder))
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        signature = {"process": os.getpid(), "host": gethostname(), "since": since}
        with suppress(OSError):  # a full disk: the lock is had all the same, the file only explains it
            os.ftruncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)
            os.write(file, f"{json.dumps(signature)}\n".encode())
        self._file, self._process = os.fstat(file), os.getpid()

    def _describe(self, holder: dict[str, Any]) -> str:
        who = "process {process} on {host} since {since}".format(**holder) if holder else "another process"
        return (
            f"run_dir: {self._path.parent} is in use by {who}; expected a folder of its own for every run. "
            f"If that process no longer runs, remove {self._path}"
        )


def _read_holder(content: bytes) -> dict[str, Any]:
    """Returns the process that signed a lock file; an empty mapping where none did."""
    try:
        holder = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return holder if isinstance(holder, dict) and holder.keys() == {"process", "host", "since"} else {}
