"""Guards against what no reader may do: write elsewhere, start a process, open a connection,
unpickle, or use all memory.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

MEMORY = 2 << 30  # bytes, in addition to what the imports use
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.mkdir",
    "os.rmdir",
    "os.remove",
    "os.rename",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "os.chown",
    "os.utime",
}
_NEVER = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "socket.connect",
    "pickle.find_class",
)


class ForbiddenError(BaseException):
    """A reader did something forbidden; not an Exception, so that `except Exception` does not catch
    it.
    """


class SlowError(BaseException):
    """A case exceeded the time limit."""


class Guard:
    """Watches this process from `start` on; a violation is reported even if the reader catches the
    error.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder.resolve())
        self.violation: str | None = None
        self.active = False

    def start(self) -> None:
        sys.dont_write_bytecode = True
        sys.addaudithook(self._audit)
        signal.signal(signal.SIGPROF, _too_slow)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active or event in ("import", "compile", "exec", "object.__getattr__"):
            return
        if event == "subprocess.Popen" and "ltpll.tables.guarded" in arguments[1]:
            return  # the process that opens binary files
        if (
            event in _NEVER
            or (event == "open" and self._is_write(*arguments))
            or (event in _CHANGES and self._is_outside(arguments[0]))
        ):
            self.violation = f"{event} {str(arguments)[:200]}"
            raise ForbiddenError(self.violation)

    def _is_write(self, path: Any, mode: Any, flags: Any) -> bool:
        writes = (
            any(letter in mode for letter in "wax+")
            if isinstance(mode, str)
            else bool(int(flags or 0) & _WRITES)
        )
        return writes and self._is_outside(path)

    def _is_outside(self, path: Any) -> bool:
        if isinstance(path, int):
            return False
        found = os.path.realpath(os.fsdecode(path))
        return found not in (os.devnull, self.folder) and not found.startswith(self.folder + os.sep)

    @contextmanager
    def watching(self, seconds: float) -> Iterator[None]:
        self.active, self.violation = True, None
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.active = False
        if self.violation:
            raise ForbiddenError(self.violation)


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise SlowError


def limit_memory(extra: int = MEMORY) -> None:
    """Limit this process to `extra` bytes more than it uses now; allocating more raises
    MemoryError.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + extra
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
