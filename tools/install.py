"""Creates .venv and installs ltpll and ltpll-research into it, editable and with the pinned versions; make runs it with the chosen Python.

`--dev` adds the development extra. `--torch` chooses torch: a requirement that pip accepts (a
version, a wheel file), `existing` (the one
that this Python has) or `pinned`. Without it, an existing torch is used for the demo, and for tests
if it has the pinned version. A choice
is remembered until another one is made. The script needs only the standard library.
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

from pins import normalized, pins_of

ROOT = Path(__file__).resolve().parents[1]
LINK = (
    "zz_existing_torch.pth"  # sorted after other .pth files, so that packages in .venv come first
)
CORE, DEV = "installed", "installed-dev"  # stamps
ASKED = "torch-asked-for"
COMMANDS = (
    "ruff",
    "mypy",
    "codespell",
    "mkdocs",
)  # commands of the development extra that make runs


class InstallError(Exception):
    """Installing failed; the message says what to do."""


class Torch(NamedTuple):
    """An installed torch: its version and its folder."""

    version: str
    folder: Path


class Choice(NamedTuple):
    """Which torch to use: an existing one, one that pip installs for a requirement, or (if both are empty) the pinned one."""

    existing: Torch | None = None
    requirement: str = ""


# ---- decisions -------------------------------------------------------------------------------


def release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (2, 13, 0) for 2.13.0+cpu."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def public(version: str) -> str:
    """A version without its local part, such as +cpu."""
    return version.partition("+")[0]


def choose(
    asked: str, *, dev: bool, own: str | None, existing: Torch | None, pin: str, lowest: str
) -> Choice:
    """Choose a torch; `own` is the version that .venv already has, and `lowest` the oldest version that works."""
    if asked == "pinned":
        return Choice()
    if asked not in ("", "existing"):
        return Choice(requirement=asked)
    if asked == "existing":
        if existing is None:
            raise InstallError(
                f"TORCH=existing was given, but {sys.executable} has no torch: install one there, or omit TORCH."
            )
        if release(existing.version) < release(lowest):
            what = "the development tools need" if dev else "ltpll needs"
            raise InstallError(
                f"The torch {existing.version} in {existing.folder} is too old: {what} {lowest} or newer."
            )
        return Choice(existing)
    if (
        existing is None
        or release(existing.version) < release(lowest)
        or (own is not None and public(own) == pin)
    ):
        return Choice()
    return Choice(existing) if public(existing.version) == pin or not dev else Choice()


def kept_constraints(constraints: str, torch: Torch | None, requires: Iterable[str]) -> str:
    """The pins for a chosen torch: its exact version, and no pins for its requirements if that is not the pinned version."""
    pins = pins_of(constraints)
    if torch is None:
        return constraints
    others = {"torch"}
    if public(torch.version) != pins["torch"]:
        others |= {
            normalized(found[0])
            for requirement in requires
            if (found := re.match(r"[A-Za-z0-9_.-]+", requirement))
        }
    lines = [f"{name}=={version}" for name, version in pins.items() if name not in others]
    return "\n".join([*lines, f"torch=={torch.version}"]) + "\n"


def lowest_torch(project: Mapping[str, object], dev: bool) -> str:
    """The oldest torch that pyproject.toml allows, with or without the extras."""
    texts = [
        str(project["dependencies"]),
        *([str(project["optional-dependencies"])] if dev else []),
    ]
    return max(re.findall(r"'torch>=([\d.]+)'", " ".join(texts)), key=release)


# ---- what is installed -----------------------------------------------------------------------


def torch_in(path: Iterable[str], outside: Path | None = None) -> Torch | None:
    """The first torch on a path that is not inside the folder `outside`."""
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
    """The torch of the Python that runs this script, if it can be imported."""
    found = torch_in(sys.path, outside=venv)
    if found is None:
        return None
    tried = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False)
    if tried.returncode:
        print(
            f"The torch {found.version} in {found.folder} cannot be imported and is not used.",
            flush=True,
        )
        return None
    return found


def asked_before(venv: Path) -> str:
    kept = venv / ASKED
    return kept.read_text(encoding="utf-8").strip() if kept.is_file() else ""


# ---- installing ------------------------------------------------------------------------------


def make_environment(venv: Path) -> Path:
    """Create or complete an environment with pip; returns its site-packages."""
    python = venv / "bin" / "python"
    if venv.exists() and (venv / "bin").exists():
        version = _output_of(python, "import sys; print('{}.{}'.format(*sys.version_info[:2]))")
        wanted = "{}.{}".format(*sys.version_info[:2])
        if version != wanted:
            problem = f"made for Python {version}, not {wanted}" if version else "broken"
            raise InstallError(
                f"{venv.name} is {problem}: `make clean` removes it, and the next call creates it again."
            )
    if _output_of(python, "import pip; print('found')") != "found":
        created = subprocess.run([sys.executable, "-m", "venv", str(venv)], check=False)
        if created.returncode:
            raise InstallError(
                f"{sys.executable} cannot create a virtual environment: on Debian or Ubuntu install python3-venv."
            )
    return Path(_output_of(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))


def _output_of(python: Path, code: str) -> str:
    """The output of a Python command; empty if it fails."""
    try:
        return subprocess.run(
            [str(python), "-I", "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def pip(venv: Path, doing: str, command: str, *arguments: str) -> None:
    # Isolated (-I), so that packages on PYTHONPATH do not count as installed.
    line = [
        str(venv / "bin" / "python"),
        "-I",
        "-m",
        "pip",
        command,
        "--quiet",
        "--disable-pip-version-check",
        *arguments,
    ]
    if subprocess.run(line, cwd=ROOT, check=False).returncode:
        raise InstallError(f"pip failed to {doing}; see its message above.")


def install(venv: Path, asked: str, *, dev: bool) -> None:
    """Install what was asked for; a stamp marks the environment as ready."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pin = pins_of(constraints)["torch"]
    site = make_environment(venv)
    asked = asked or asked_before(venv)
    for stamp in (CORE, DEV):
        (venv / stamp).unlink(missing_ok=True)
    own = torch_in([str(site)])
    existing = existing_torch(venv) if asked in ("", "existing") else None
    choice = choose(
        asked,
        dev=dev,
        own=own.version if own else None,
        existing=existing,
        pin=pin,
        lowest=lowest_torch(project, dev),
    )
    torch = provide_torch(venv, site, choice, own, pin)
    what = ".[dev]" if dev else "."
    print(
        f"Installing ltpll{what[1:]}, ltpll-research and their requirements into {venv.name}; the first time takes minutes.",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "constraints.txt"
        kept.write_text(
            kept_constraints(constraints, torch, requirements_of(torch) if torch else ()),
            encoding="utf-8",
        )
        packages = ("--editable", what, "--editable", "./research")
        pip(
            venv,
            "install the packages and their requirements",
            "install",
            "--constraint",
            str(kept),
            *packages,
        )
        # pip skips a tool that is installed beside an existing torch, but its command is not in
        # .venv.
        missing = [name for name in COMMANDS if dev and not (venv / "bin" / name).exists()]
        if missing:
            options = ("--ignore-installed", "--no-deps", "--constraint", str(kept))
            pip(venv, f"install {' and '.join(missing)}", "install", *options, *missing)
    (venv / ASKED).write_text(f"{asked}\n", encoding="utf-8")
    for stamp in (CORE, DEV) if dev else (CORE,):
        (venv / stamp).touch()


def provide_torch(
    venv: Path, site: Path, choice: Choice, own: Torch | None, pin: str
) -> Torch | None:
    """Link or install the chosen torch; None if it is the pinned one, which pip installs with the package."""
    link = site / LINK
    link.unlink(missing_ok=True)
    if choice.existing:
        if own:
            pip(venv, f"remove torch {own.version} from {venv.name}", "uninstall", "--yes", "torch")
        link.write_text(f"{choice.existing.folder}\n", encoding="utf-8")
        print(
            f"Using torch {choice.existing.version} in {choice.existing.folder} (TORCH=pinned installs {pin} instead).",
            flush=True,
        )
        return choice.existing
    if not choice.requirement:
        return None
    print(f"Installing {choice.requirement} into {venv.name}.", flush=True)
    pip(venv, f"install TORCH={choice.requirement}", "install", "--no-deps", choice.requirement)
    torch = torch_in([str(site)])
    if torch is None:
        raise InstallError(
            f"TORCH={choice.requirement} is not torch: use a requirement such as torch=={pin}, or a wheel file of torch."
        )
    return torch


def main() -> int:
    parser = argparse.ArgumentParser(description="Create .venv and install the package into it.")
    parser.add_argument("--dev", action="store_true", help="add the development extra")
    parser.add_argument(
        "--torch",
        default="",
        help="a requirement, existing or pinned (default: an existing torch if it is suitable)",
    )
    options = parser.parse_args()
    try:
        install(ROOT / ".venv", options.torch.strip(), dev=options.dev)
    except (InstallError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted: rerun the command to continue.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
