"""The version of both distributions: that of the newest git tag.

The tag v0.3.0 gives 0.3.0, and the twelfth commit after it 0.3.1.dev12+g1a2b3c4. A source
distribution
keeps the version that it was made with.
"""

import re
import subprocess
from pathlib import Path

from setuptools import setup

FALLBACK = "0.3.0.dev0"  # without a tag, or without git


def version_of(project: Path, checkout: Path) -> str:
    """The version of the distribution in a folder of a checkout, or in an unpacked archive."""
    stated = project / "PKG-INFO"  # of a source distribution
    if stated.is_file():
        found = re.search(r"(?m)^Version: (.+)$", stated.read_text(encoding="utf-8"))
        return found[1] if found else FALLBACK
    if not (checkout / ".git").exists():  # a repository around it has other tags
        return FALLBACK
    command = ["git", "describe", "--tags", "--long", "--dirty", "--match", "v[0-9]*"]
    try:
        ended = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    except OSError:  # there is no git
        return FALLBACK
    found = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)-(\d+)-(g\w+)(-dirty)?", ended.stdout.strip())
    if found is None:
        return FALLBACK
    major, minor, patch, commits, commit, dirty = found.groups()
    if commits == "0" and not dirty:
        return f"{major}.{minor}.{patch}"
    return f"{major}.{minor}.{int(patch) + 1}.dev{commits}+{commit}"


if __name__ == "__main__":
    HERE = Path(__file__).resolve().parent
    setup(version=version_of(HERE, HERE))
