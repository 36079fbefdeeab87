"""Make .venv and install the package into it, editable and with the pinned versions; called by make with the Python chosen.

`--dev` adds the development extra. `--torch` says which torch: any requirement that pip takes (a version, a wheel file), `existing` (the
one that this Python has), `pinned`, or nothing: then an existing one is used for the demo, and for tests if it is of the pinned version.
What was asked for holds until something else is asked for. Only the standard library is needed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LINK = "zz_existing_torch.pth"  # behind other .pth files, so that what .venv itself has comes first
CORE, DEV = "installed", "installed-dev"  # stamps
ASKED = "torch-asked-for"
COMMANDS = ("ruff", "mypy")  # of the development extra, as make calls them


class InstallError(Exception):
    """The message is one sentence that says what to do."""


class Torch(NamedTuple):
    """A torch that is installed: its version and the folder that it lies in."""

    version: str
    folder: Path


class Choice(NamedTuple):
    """Which torch to use: one that exists, one that pip finds by a requirement, or neither for the pinned one."""

    existing: Torch | None = None
    requirement: str = ""


# ---- decisions --------------------------------------------------------------------------------------------------------


def release(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: (2, 13, 0) of 2.13.0+cpu."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def public(version: str) -> str:
    """A version without what a build adds to it."""
    return version.partition("+")[0]


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def choose(asked: str, *, dev: bool, own: str | None, existing: Torch | None, pin: str, lowest: str) -> Choice:
    """Which torch to use, where .venv has the version `own` already and `lowest` is the oldest that will do."""
    if asked == "pinned":
        return Choice()
    if asked not in ("", "existing"):
        return Choice(requirement=asked)
    if asked == "existing":
        if existing is None:
            raise InstallError(f"TORCH=existing was given, but {sys.executable} has no torch: install one there, or leave TORCH out.")
        if release(existing.version) < release(lowest):
            what = "the development tools need" if dev else "ltpll needs"
            raise InstallError(f"The torch {existing.version} in {existing.folder} is too old: {what} {lowest} or newer.")
        return Choice(existing)
    if existing is None or release(existing.version) < release(lowest) or (own is not None and public(own) == pin):
        return Choice()
    return Choice(existing) if public(existing.version) == pin or not dev else Choice()


def kept_constraints(constraints: str, torch: Torch | None, requires: Iterable[str]) -> str:
    """The pins for a chosen torch: the very one that is there, and none for what it requires if its version is not the pinned one."""
    pins = pins_of(constraints)
    if torch is None:
        return constraints
    others = {"torch"}
    if public(torch.version) != pins["torch"]:
        others |= {normalized(found[0]) for one in requires if (found := re.match(r"[A-Za-z0-9_.-]+", one))}
    lines = [f"{name}=={version}" for name, version in pins.items() if name not in others]
    return "\n".join([*lines, f"torch=={torch.version}"]) + "\n"


def pins_of(constraints: str) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", constraints, flags=re.M)
    return {normalized(name): version for name, version in found}


def lowest_torch(project: Mapping[str, object], dev: bool) -> str:
    """The oldest torch that pyproject.toml allows, with or without its extras."""
    texts = [str(project["dependencies"]), *([str(project["optional-dependencies"])] if dev else [])]
    return max(re.findall(r"'torch>=([\d.]+)'", " ".join(texts)), key=release)


# ---- what is there ----------------------------------------------------------------------------------------------------


def torch_in(path: Iterable[str], outside: Path | None = None) -> Torch | None:
    """The first torch on a path, unless it lies in the folder `outside`."""
    for found in metadata.distributions(name="torch", path=list(path)):
        folder = Path(str(found.locate_file(""))).resolve()
        if found.version and (outside is None or outside.resolve() not in folder.parents):
            return Torch(found.version, folder)
    return None


def requirements_of(torch: Torch) -> list[str]:
    for found in metadata.distributions(name="torch", path=[str(torch.folder)]):
        return list(found.requires or ())
    return []


def existing_torch(venv: Path) -> Torch | None:
    """The torch of the Python that runs this, if it can be imported."""
    found = torch_in(sys.path, outside=venv)
    if found is None:
        return None
    tried = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False)
    if tried.returncode:
        print(f"The torch {found.version} in {found.folder} cannot be imported and is not used.", flush=True)
        return None
    return found


def asked_before(venv: Path) -> str:
    kept = venv / ASKED
    return kept.read_text(encoding="utf-8").strip() if kept.is_file() else ""


# ---- doing ------------------------------------------------------------------------------------------------------------


def make_environment(venv: Path) -> Path:
    """An environment with pip, made or mended; its site-packages."""
    python = venv / "bin" / "python"
    if venv.exists() and (venv / "bin").exists():
        answer = _said(python, "import sys; print('{}.{}'.format(*sys.version_info[:2]))")
        wanted = "{}.{}".format(*sys.version_info[:2])
        if answer != wanted:
            made = f"made for Python {answer}, not {wanted}" if answer else "broken"
            raise InstallError(f"{venv.name} is {made}: `make clean` removes it, and the next call makes it anew.")
    if _said(python, "import pip; print('there')") != "there":
        made = subprocess.run([sys.executable, "-m", "venv", str(venv)], check=False)
        if made.returncode:
            raise InstallError(f"{sys.executable} cannot make a virtual environment: on Debian or Ubuntu install python3-venv.")
    return Path(_said(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))


def _said(python: Path, code: str) -> str:
    """What a Python prints; nothing if it fails."""
    try:
        return subprocess.run([str(python), "-I", "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def pip(venv: Path, doing: str, command: str, *arguments: str) -> None:
    # Isolated (-I): what PYTHONPATH holds is not in the environment.
    line = [str(venv / "bin" / "python"), "-I", "-m", "pip", command, "--quiet", "--disable-pip-version-check", *arguments]
    if subprocess.run(line, cwd=ROOT, check=False).returncode:
        raise InstallError(f"pip failed to {doing}; its own message is above.")


def install(venv: Path, asked: str, *, dev: bool) -> None:
    """Make the environment what was asked for; a stamp says that it is ready."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pin = pins_of(constraints)["torch"]
    site = make_environment(venv)
    asked = asked or asked_before(venv)
    for stamp in (CORE, DEV):
        (venv / stamp).unlink(missing_ok=True)
    own = torch_in([str(site)])
    existing = existing_torch(venv) if asked in ("", "existing") else None
    choice = choose(asked, dev=dev, own=own.version if own else None, existing=existing, pin=pin, lowest=lowest_torch(project, dev))
    torch = take_torch(venv, site, choice, own, pin)
    what = ".[dev]" if dev else "."
    print(f"Installing ltpll{what[1:]} and what it requires into {venv.name}; the first time takes minutes.", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "constraints.txt"
        kept.write_text(kept_constraints(constraints, torch, requirements_of(torch) if torch else ()), encoding="utf-8")
        pip(venv, "install the package and what it requires", "install", "--constraint", str(kept), "--editable", what)
        # A tool that is found beside an existing torch has its command there and not in .venv.
        missing = [name for name in COMMANDS if dev and not (venv / "bin" / name).exists()]
        if missing:
            options = ("--ignore-installed", "--no-deps", "--constraint", str(kept))
            pip(venv, f"install {' and '.join(missing)}", "install", *options, *missing)
    (venv / ASKED).write_text(f"{asked}\n", encoding="utf-8")
    for stamp in (CORE, DEV) if dev else (CORE,):
        (venv / stamp).touch()


def take_torch(venv: Path, site: Path, choice: Choice, own: Torch | None, pin: str) -> Torch | None:
    """Link or install the torch chosen; None where pip is to find the pinned one."""
    link = site / LINK
    link.unlink(missing_ok=True)
    if choice.existing:
        if own:
            pip(venv, f"remove torch {own.version} from {venv.name}", "uninstall", "--yes", "torch")
        link.write_text(f"{choice.existing.folder}\n", encoding="utf-8")
        print(f"Using torch {choice.existing.version} of {choice.existing.folder} (TORCH=pinned installs {pin} instead).", flush=True)
        return choice.existing
    if not choice.requirement:
        return None
    print(f"Installing {choice.requirement} into {venv.name}.", flush=True)
    pip(venv, f"install TORCH={choice.requirement}", "install", "--no-deps", choice.requirement)
    torch = torch_in([str(site)])
    if torch is None:
        raise InstallError(f"TORCH={choice.requirement} is not torch: give a requirement such as torch=={pin}, or a wheel file of torch.")
    return torch


def main() -> int:
    parser = argparse.ArgumentParser(description="Make .venv and install the package into it.")
    parser.add_argument("--dev", action="store_true", help="with the development extra")
    parser.add_argument("--torch", default="", help="a requirement, existing, pinned, or nothing to choose by what is there")
    given = parser.parse_args()
    try:
        install(ROOT / ".venv", given.torch.strip(), dev=given.dev)
    except (InstallError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted: the same command goes on.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
