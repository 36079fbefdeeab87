"""Builds the source distribution and the wheel and checks them as a user would install them; `make release` runs it.

Both are built into dist/, checked by twine, and installed into a fresh environment outside the repository, where the demo and the first
commands of the documentation must work. Nothing is uploaded.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import yaml

from install import InstallError, make_environment, pip
from ltpll import __version__

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
BUILD = ROOT / "build" / "release"
LARGEST_WHEEL = 1_000_000  # bytes
NEEDED = ("ltpll/py.typed", "ltpll/report/study.html", "ltpll/experiments/paper/published.json")


def disagreements(version: str, changelog: str, citation: str) -> list[str]:
    """What still names another version than the package: the newest dated section of the changelog, and the citation."""
    wrong = []
    newest = re.search(r"(?m)^## \[?(\d[\w.]*)\]? - \d{4}-\d{2}-\d{2}$", changelog)
    if newest is None or newest[1] != version:
        wrong.append(f"the newest dated section of CHANGELOG.md is {newest[1] if newest else 'missing'}")
    cited = yaml.safe_load(citation)["version"]
    if str(cited) != version:
        wrong.append(f"CITATION.cff names {cited}")
    return wrong


def wheel_problems(wheel: Path) -> list[str]:
    """Files that the wheel lacks or should not have, and whether it is too large."""
    names = zipfile.ZipFile(wheel).namelist()
    wrong = [f"{name} is missing" for name in NEEDED if name not in names]
    wrong += [f"{name} does not belong in it" for name in names if not name.startswith(("ltpll/", "ltpll-"))]
    size = wheel.stat().st_size
    if size > LARGEST_WHEEL:
        wrong.append(f"it has {size:,} bytes, more than {LARGEST_WHEEL:,}")
    return wrong


def run(doing: str, *command: str | Path, folder: Path = ROOT) -> None:
    print(f"{doing} …", flush=True)
    if subprocess.run([str(word) for word in command], cwd=folder, check=False).returncode:
        raise InstallError(f"{doing} failed; see the message above.")


def main() -> int:
    wrong = disagreements(
        __version__, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    )
    if wrong:
        print(f"error: the package is version {__version__}, but {' and '.join(wrong)}.", file=sys.stderr)
        return 2
    try:
        shutil.rmtree(DIST, ignore_errors=True)
        make_environment(BUILD / "tools")
        pip(BUILD / "tools", "install build and twine", "install", "build", "twine")
        tool = BUILD / "tools" / "bin" / "python"
        run("Building", tool, "-m", "build", "--outdir", DIST, ROOT)
        files = sorted(DIST.iterdir())
        run("Checking the description", tool, "-m", "twine", "check", "--strict", *files)
        wheel = next(path for path in files if path.suffix == ".whl")
        if problems := wheel_problems(wheel):
            raise InstallError(f"{wheel.name}: {'; '.join(problems)}.")
        shutil.rmtree(BUILD / "fresh", ignore_errors=True)
        make_environment(BUILD / "fresh")
        print("Installing the wheel into a fresh environment …", flush=True)
        pip(BUILD / "fresh", "install the wheel", "install", "--constraint", str(ROOT / "constraints.txt"), str(wheel))
        ltpll = BUILD / "fresh" / "bin" / "ltpll"
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            run("Asking for its version", ltpll, "--version", folder=folder)
            run("Running the demo with one seed", ltpll, "demo", "--seeds", "1", "--out", folder / "demo", folder=folder)
            run("Writing an example table", ltpll, "data", "example", folder=folder)
            run("Training on it", ltpll, "train", "digits.csv", "--epochs", "2", "--folds", "2", "--out", "run", folder=folder)
            run("Cleaning its labels", ltpll, "clean", "run", "--out", "cleaned.csv", folder=folder)
    except InstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted: rerun the command to start again.", file=sys.stderr)
        return 130
    for path in files:
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")
    print(f"ltpll {__version__} is ready: tag the commit and upload dist/.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
