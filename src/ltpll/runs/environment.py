"""Environment: the versions, commit and hardware that a run was made with."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ltpll import __version__

Record = dict[str, Any]
PACKAGE = Path(__file__).resolve().parents[1]


def environment(device: str) -> Record:
    """The versions, commit, hardware and number of threads that belong beside every figure."""
    import torch

    hardware, threads = _hardware(device), torch.get_num_threads()
    return {**_software(), "device": device, "hardware": hardware, "threads": threads}


@cache
def _software() -> Record:
    return {
        "ltpll": __version__,  # a source tree on the path has no metadata
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("torch", "numpy", "scikit-learn")},
    }


def _commit() -> str:
    """The commit in LTPLL_COMMIT or of the checkout, marked if files differ from it."""
    if stated := os.environ.get("LTPLL_COMMIT"):
        return stated

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", PACKAGE, *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
        return done.stdout.strip()

    try:
        # An installed package may lie inside another project's repository.
        if Path(git("rev-parse", "--show-toplevel")).resolve() != PACKAGE.parents[1]:
            return "unknown"
        changed = git("status", "--porcelain", "--", str(PACKAGE))
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
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
        models = re.findall(r"^model name\s*:(.*)$", cpuinfo.read_text(), flags=re.M)
        name = models[0].strip() if models else name
    return f"{name}, {os.cpu_count()} cores"
