"""Environment: where and with what a run was made, which a figure needs beside it to be believed."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ltpll import __version__

Record = dict[str, Any]


def environment(device: str) -> Record:
    """What a figure needs beside it to be believed: versions, commit, hardware."""
    return {**_software(), "device": device, "hardware": _hardware(device), "threads": _threads()}


@cache
def code_fingerprint() -> str:
    """A hash of this package's source, so that runs of changed code are not taken for finished ones."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


@cache
def _software() -> Record:
    def version(name: str) -> str:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return "unknown"

    return {
        "ltpll": __version__,  # not its metadata, which a source tree on the path does not have
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", "scikit-learn")},
    }


def _commit() -> str:
    """What LTPLL_COMMIT says (for a copy of the source elsewhere), else the checkout's commit, marked where files differ from it."""
    here = Path(__file__).resolve().parent
    if stated := os.environ.get("LTPLL_COMMIT"):
        return stated

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        # An installed package may lie inside somebody else's repository; that repository's commit is not ours.
        if Path(git("rev-parse", "--show-toplevel")).resolve() != here.parents[1]:
            return "unknown"
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if git("status", "--porcelain", "--", str(here)) else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


@cache
def _hardware(device: str) -> str:
    if device.startswith("cuda"):
        import torch

        return str(torch.cuda.get_device_name(device))
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        name = names[0] if names else name
    return f"{name}, {os.cpu_count()} cores"


def _threads() -> int:
    import torch

    return torch.get_num_threads()
