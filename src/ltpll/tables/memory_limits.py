"""Memory limits: how much a file may take when it is read, decided before it is expanded."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ltpll.errors import InputError
from ltpll.formatting import format_bytes

ALWAYS = 256 << 20  # bytes to which any file may expand
RATIO = 100  # larger files may expand this often; zeros compress a thousandfold, features twofold
COPIES = 2  # of the data in memory at the same time during conversion


def largest_expansion(packed: int) -> int:
    """The bytes to which `packed` bytes may expand."""
    most, available = max(ALWAYS, RATIO * packed), available_memory()
    return most if available is None else min(most, available // COPIES)


def expansion_problem(packed: int, expanded: int) -> str | None:
    """Why `packed` bytes must not become `expanded` ones, as part of a sentence, or None."""
    if expanded > max(ALWAYS, RATIO * packed):
        sizes = f"{format_bytes(packed)} would expand to {format_bytes(expanded)}"
        return f"{sizes}, more than {RATIO} times as much"
    available = available_memory()
    if available is not None and COPIES * expanded > available:
        return (
            f"that would take {format_bytes(COPIES * expanded)} of memory, "
            f"but only {format_bytes(available)} are available"
        )
    return None


def check_expansion(path: Path, packed: int, expanded: int, advice: str = "") -> None:
    """Refuse a file that must not be expanded; `advice` ends the message."""
    reason = expansion_problem(packed, expanded)
    if reason is not None:
        raise InputError(f"{path} is not read because {reason}{advice and f': {advice}'}.")


def available_memory() -> int | None:
    """Bytes left on the machine or in the control group, whichever is less; None if unknown."""
    found = [left for left in (_machine(), _control_group()) if left is not None]
    return min(found, default=None)


def _machine(path: Path = Path("/proc/meminfo")) -> int | None:
    with suppress(OSError, KeyError):
        lines = dict(line.split(":") for line in path.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) << 10
    return None


def _control_group(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes left below a container's limit; reclaimable file cache does not count as used."""
    with suppress(OSError, ValueError):  # no control group, or "max", which means no limit
        limit, used = (int((root / name).read_text()) for name in ("memory.max", "memory.current"))
        lines = (root / "memory.stat").read_text().splitlines()
        counts = dict(line.split() for line in lines if line)
        return limit - used + int(counts.get("inactive_file", 0))
    return None
