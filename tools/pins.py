"""Parses constraints.txt with the standard library alone, since tools/install.py runs before
anything is installed.
"""

from __future__ import annotations

import re


def parse_pins(constraints: str) -> list[tuple[str, str]]:
    """The names and versions of all pins, as written."""
    return re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", constraints, flags=re.M)


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins_of(constraints: str) -> dict[str, str]:
    """The pinned version of each package, by normalized name."""
    return {normalized(name): version for name, version in parse_pins(constraints)}
