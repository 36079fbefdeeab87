"""Resolve the pinned versions anew: `make constraints`, which writes constraints.txt.

pip resolves the development extra for the oldest Python supported, with nothing configured, as it would on a fresh machine; torch stays at
its pinned version. Then the pins are resolved for the newer Pythons. pip evaluates environment markers for the Python that runs it, so
what all packages require is also compared with the pins for each Python here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
CUDA = ("nvidia-", "cuda-")
"""Libraries that torch's published build pins by itself, and that its CPU build does without."""
HEADER = """\
# The versions that the tests have passed with; installed by make, resolved anew by `make constraints`. Lower bounds are in pyproject.toml.
# What torch {torch} as published requires, CUDA libraries left out (they are not pinned here):
"""
MARK = "#   "


def pins_of(constraints: str) -> dict[str, str]:
    """The pinned version of each package, under its normalized name."""
    lines = [line.split("==") for line in constraints.splitlines() if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name): version.strip() for name, version in lines}


def recorded(constraints: str) -> list[str]:
    """What the published torch requires, as the comments of constraints.txt say."""
    return [line.removeprefix(MARK) for line in constraints.splitlines() if line.startswith(MARK)]


def linux(python: str) -> dict[str, str]:
    """What markers look at, on Linux under a version of Python."""
    system = {"os_name": "posix", "sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
    return {**system, "python_version": python, "python_full_version": f"{python}.0", "implementation_name": "cpython", "extra": ""}


def contradictions(pins: Mapping[str, str], requirements: Iterable[str], environments: Iterable[Mapping[str, str]]) -> list[str]:
    """The requirements that apply in any of the environments, and that the pin of their package does not satisfy."""
    places = [dict(one) for one in environments]
    found = []
    for text in requirements:
        wanted = Requirement(text)
        pin = pins.get(canonicalize_name(wanted.name))
        applies = wanted.marker is None or any(wanted.marker.evaluate(place) for place in places)
        if pin is not None and applies and not wanted.specifier.contains(pin, prereleases=True):
            found.append(f"{text} is required, but {pin} is pinned")
    return found


def written(report: Mapping[str, Any]) -> str:
    """The text of constraints.txt, from pip's report of what it would install."""
    packages = {one["metadata"]["name"]: one["metadata"] for one in report["install"]}
    torch = packages["torch"]
    required = [text for text in torch["requires_dist"] if not text.startswith(CUDA) and "extra ==" not in text]
    kept = [name for name in packages if canonicalize_name(name) != "ltpll" and not canonicalize_name(name).startswith(CUDA)]
    pinned = sorted((f"{name}=={packages[name]['version'].partition('+')[0]}" for name in kept), key=str.lower)
    return HEADER.format(torch=torch["version"]) + "".join(f"{MARK}{text}\n" for text in required) + "\n".join(pinned) + "\n"


def resolved(python: str, constraints: Path, folder: Path) -> dict[str, Any]:
    """pip's report for a Python, with nothing configured."""
    report = folder / f"{python}.json"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PIP_") or name in ("PIP_CERT", "PIP_PROXY")}
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run", "--ignore-installed"]
    command += ["--only-binary=:all:", "--python-version", python, "--target", str(folder / "target")]
    command += ["--constraint", str(constraints), "--report", str(report), ".[dev]"]
    subprocess.run(command, cwd=ROOT, env=plain | {"PIP_CONFIG_FILE": os.devnull}, check=True)
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


def unpinned(report: Mapping[str, Any], pins: Mapping[str, str]) -> list[str]:
    """Packages that another Python would install besides those pinned."""
    names = {canonicalize_name(one["metadata"]["name"]) for one in report["install"]}
    return sorted(name for name in names - set(pins) - {"ltpll"} if not name.startswith(CUDA))


def main() -> int:
    path = ROOT / "constraints.txt"
    torch = pins_of(path.read_text(encoding="utf-8"))["torch"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        only_torch = folder / "torch.txt"
        only_torch.write_text(f"torch=={torch}\n", encoding="utf-8")
        try:
            report = resolved(PYTHONS[0], only_torch, folder)
        except subprocess.CalledProcessError:
            print(f"error: nothing was written, since pip cannot resolve for Python {PYTHONS[0]}; above it says why.", file=sys.stderr)
            return 2
        text = written(report)
        path.write_text(text, encoding="utf-8")
        pins = pins_of(text)
        print(f"{path.name}: {len(pins)} packages, resolved for Python {PYTHONS[0]}")
        failed = 0
        for python in PYTHONS[1:]:
            try:
                report = resolved(python, path, folder)
                required = [
                    (one["metadata"]["name"], text) for one in report["install"] for text in one["metadata"].get("requires_dist", ())
                ]
                wrong = [f"{whose}: {line}" for whose, text in required for line in contradictions(pins, [text], [linux(python)])]
                wrong += [f"{one} is not pinned" for one in unpinned(report, pins)]
            except subprocess.CalledProcessError:
                wrong = ["above, pip says why"]
            failed += bool(wrong)
            print(f"Python {python}: " + ("the pins do not resolve: " + "; ".join(wrong) if wrong else "the pins resolve"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
