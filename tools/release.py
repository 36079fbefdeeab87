"""Builds the source distributions and wheels of ltpll and ltpll-research and checks them as a user
would install them.

`make release` runs it. All are built into dist/, checked by twine, and installed into a fresh
environment
outside the repository, where the demo and the first commands of the documentation must work.
Nothing is
uploaded.
"""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import yaml

from install import InstallError, make_environment, pip

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
BUILD = ROOT / "build" / "release"
LARGEST_WHEEL = 700_000  # bytes
NEEDED = {
    "ltpll": ("ltpll/py.typed", "ltpll/report/cleaning.html"),
    "ltpll_research": (
        "ltpll_research/py.typed",
        "ltpll_research/comparing/comparison.html",
        "ltpll_research/paper/published.json",
    ),
}


def newest_section(changelog: str) -> str | None:
    """The version of the newest dated section of the changelog."""
    found = re.search(r"(?m)^## \[?(\d[\w.]*)\]? - \d{4}-\d{2}-\d{2}$", changelog)
    return found[1] if found else None


def disagreements(version: str, changelog: str, citation: str) -> list[str]:
    """What names another version than the git tag: the changelog or the citation."""
    wrong = []
    newest = newest_section(changelog)
    if newest != version:
        wrong.append(f"the newest dated section of CHANGELOG.md is {newest or 'missing'}")
    cited = yaml.safe_load(citation)["version"]
    if str(cited) != version:
        wrong.append(f"CITATION.cff names {cited}")
    return wrong


def wheel_problems(wheel: Path) -> list[str]:
    """Files that the wheel lacks or should not have, and whether it is too large."""
    names, package = zipfile.ZipFile(wheel).namelist(), wheel.name.partition("-")[0]
    wrong = [f"{name} is missing" for name in NEEDED[package] if name not in names]
    wrong += [
        f"{name} does not belong in it"
        for name in names
        if not name.startswith((f"{package}/", f"{package}-"))
    ]
    size = wheel.stat().st_size
    if size > LARGEST_WHEEL:
        wrong.append(f"it has {size:,} bytes, more than {LARGEST_WHEEL:,}")
    return wrong


def run(doing: str, *command: str | Path, folder: Path = ROOT) -> None:
    print(f"{doing} …", flush=True)
    if subprocess.run([str(word) for word in command], cwd=folder, check=False).returncode:
        raise InstallError(f"{doing} failed; see the message above.")


def main() -> int:
    version = runpy.run_path(str(ROOT / "setup.py"))["version_of"](ROOT, ROOT)
    named = ("CHANGELOG.md", "CITATION.cff")
    wrong = disagreements(version, *((ROOT / name).read_text(encoding="utf-8") for name in named))
    if wrong:
        print(
            f"error: the git tag makes this version {version}, but {' and '.join(wrong)}: commit "
            "everything and tag the commit, such as v0.3.0.",
            file=sys.stderr,
        )
        return 2
    try:
        shutil.rmtree(DIST, ignore_errors=True)
        make_environment(BUILD / "tools")
        pip(BUILD / "tools", "install build and twine", "install", "build", "twine")
        tool = BUILD / "tools" / "bin" / "python"
        for folder in (ROOT, ROOT / "research"):
            run(f"Building {folder.name}", tool, "-m", "build", "--outdir", DIST, folder)
        files = sorted(DIST.iterdir())
        run("Checking the description", tool, "-m", "twine", "check", "--strict", *files)
        wheels = [path for path in files if path.suffix == ".whl"]
        for wheel in wheels:
            if problems := wheel_problems(wheel):
                raise InstallError(f"{wheel.name}: {'; '.join(problems)}.")
        shutil.rmtree(BUILD / "fresh", ignore_errors=True)
        make_environment(BUILD / "fresh")
        print("Installing the wheels into a fresh environment …", flush=True)
        pip(
            BUILD / "fresh",
            "install the wheels",
            "install",
            "--constraint",
            str(ROOT / "constraints.txt"),
            *map(str, wheels),
        )
        ltpll, research = (BUILD / "fresh" / "bin" / name for name in ("ltpll", "ltpll-research"))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            run("Asking for its version", ltpll, "--version", folder=folder)
            run(
                "Running the demo with one seed",
                research,
                "demo",
                "--seeds",
                "1",
                "--out",
                folder / "demo",
                folder=folder,
            )
            example = ("demo", "--only-table", "--out", folder)
            run("Writing an example table", ltpll, *example, folder=folder)
            run(
                "Training on it",
                ltpll,
                "train",
                "digits.csv",
                "--epochs",
                "2",
                "--folds",
                "2",
                "--out",
                "run",
                folder=folder,
            )
            run("Cleaning its labels", ltpll, "clean", "run", "--out", "cleaned.csv", folder=folder)
    except InstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted: rerun the command to start again.", file=sys.stderr)
        return 130
    for path in files:
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")
    print(f"ltpll {version} is ready: upload dist/ and push the tag.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
