"""The terminal of a run: Ctrl-C and SIGTERM as a request."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interruption:
    """While entered, the first SIGINT or SIGTERM is noted; a second one does what it did before.

    The training loop answers it between two updates. Signals can only be handled in the main thread;
    elsewhere this does nothing. One that the process was told to ignore stays ignored, as ``nohup`` and
    shells that start a process in the background want it; a handler of SIGTERM that somebody has set stays
    too. Earlier handlers are put back on leaving.

    Attributes:
        signal: the number of the signal that came, None before.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                self._previous[signal.SIGINT] = signal.signal(signal.SIGINT, self._handle)
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                self._previous[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        while self._previous:
            signum, handler = self._previous.popitem()
            # None stands for a handler that was not installed from Python and cannot be put back.
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            self.__exit__()
            signal.raise_signal(signum)
        self.signal = signum
