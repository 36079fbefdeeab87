"""Resolves all pinned versions again and writes constraints.txt; `make constraints` runs it.

pip resolves the development extra for the oldest supported Python, ignoring its configuration, as
on a fresh machine; torch stays at its pinned version. Then the pins are tried with the newer
Pythons. pip evaluates environment markers for the Python that runs it, so the requirements of all
packages are also compared with the pins for each Python here.
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

from pins import pins_of

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
OURS = {"ltpll", "ltpll-research"}
CUDA = ("nvidia-", "cuda-")
"""Libraries that the published build of torch pins, and that its CPU build does not need."""
HEADER = """\
# The versions that the tests have passed with; installed by make, updated by `make constraints`.
# Lower bounds are in pyproject.toml.
# What torch {torch} as published requires, except CUDA libraries (they are not pinned here):
"""
MARK = "#   "


def torch_requirements(constraints: str) -> list[str]:
    """The requirements of the published torch, from the comments in constraints.txt."""
    return [line.removeprefix(MARK) for line in constraints.splitlines() if line.startswith(MARK)]


def linux(python: str) -> dict[str, str]:
    """The environment that markers are evaluated in, on Linux with a version of Python."""
    system = {
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
    }
    return {
        **system,
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "extra": "",
    }


def contradictions(
    pins: Mapping[str, str], requirements: Iterable[str], environments: Iterable[Mapping[str, str]]
) -> list[str]:
    """The requirements that apply in any of the environments and that the pin of their package does
    not satisfy.
    """
    places = [dict(environment) for environment in environments]
    found = []
    for text in requirements:
        wanted = Requirement(text)
        pin = pins.get(canonicalize_name(wanted.name))
        applies = wanted.marker is None or any(wanted.marker.evaluate(place) for place in places)
        if pin is not None and applies and not wanted.specifier.contains(pin, prereleases=True):
            found.append(f"{text} is required, but {pin} is pinned")
    return found


def constraints_text(report: Mapping[str, Any]) -> str:
    """The content of constraints.txt, from pip's report of what it would install."""
    packages = {package["metadata"]["name"]: package["metadata"] for package in report["install"]}
    torch = packages["torch"]
    required = [
        text
        for text in torch["requires_dist"]
        if not text.startswith(CUDA) and "extra ==" not in text
    ]
    kept = [
        name
        for name in packages
        if canonicalize_name(name) not in OURS and not canonicalize_name(name).startswith(CUDA)
    ]
    pinned = sorted(
        (f"{name}=={packages[name]['version'].partition('+')[0]}" for name in kept), key=str.lower
    )
    return (
        HEADER.format(torch=torch["version"])
        + "".join(f"{MARK}{text}\n" for text in required)
        + "\n".join(pinned)
        + "\n"
    )


def resolve(python: str, constraints: Path, folder: Path) -> dict[str, Any]:
    """Let pip resolve the development extra for a Python, ignoring pip's configuration; returns its
    report.
    """
    report = folder / f"{python}.json"
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PIP_") or name in ("PIP_CERT", "PIP_PROXY")
    }
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--dry-run",
        "--ignore-installed",
    ]
    command += [
        "--only-binary=:all:",
        "--python-version",
        python,
        "--target",
        str(folder / "target"),
    ]
    command += ["--constraint", str(constraints), "--report", str(report), ".[dev]", "./research"]
    subprocess.run(command, cwd=ROOT, env=plain | {"PIP_CONFIG_FILE": os.devnull}, check=True)
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


def unpinned(report: Mapping[str, Any], pins: Mapping[str, str]) -> list[str]:
    """Packages that another Python would install and that are not pinned."""
    names = {canonicalize_name(package["metadata"]["name"]) for package in report["install"]}
    return sorted(name for name in names - set(pins) - OURS if not name.startswith(CUDA))


def main() -> int:
    path = ROOT / "constraints.txt"
    torch = pins_of(path.read_text(encoding="utf-8"))["torch"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        only_torch = folder / "torch.txt"
        only_torch.write_text(f"torch=={torch}\n", encoding="utf-8")
        try:
            report = resolve(PYTHONS[0], only_torch, folder)
        except subprocess.CalledProcessError:
            print(
                f"error: pip cannot resolve Python {PYTHONS[0]} (see its message above); "
                "nothing was written.",
                file=sys.stderr,
            )
            return 2
        text = constraints_text(report)
        path.write_text(text, encoding="utf-8")
        pins = pins_of(text)
        print(f"{path.name}: {len(pins)} packages, resolved for Python {PYTHONS[0]}")
        failed = 0
        for python in PYTHONS[1:]:
            try:
                report = resolve(python, path, folder)
                wrong = [
                    f"{package['metadata']['name']}: {line}"
                    for package in report["install"]
                    for line in contradictions(
                        pins, package["metadata"].get("requires_dist", ()), [linux(python)]
                    )
                ]
                wrong += [f"{name} is not pinned" for name in unpinned(report, pins)]
            except subprocess.CalledProcessError:
                wrong = ["see pip's message above"]
            failed += bool(wrong)
            print(
                f"Python {python}: "
                + ("the pins do not resolve: " + "; ".join(wrong) if wrong else "the pins resolve")
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
