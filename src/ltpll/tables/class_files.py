"""Class files: what a user knows about the classes: how frequent they are, and their groups."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ltpll.candidates.taxonomy import Taxonomy
from ltpll.errors import InputError, shown
from ltpll.formatting import format_names
from ltpll.tables.columns import read_texts
from ltpll.tables.opening import READABLE, open_table

Prior = dict[str, float | list[float]]
"""For each class its share, or a lower and an upper bound of its share."""
ROUNDING = 1e-6


def read_prior(path: Path) -> Prior:
    """Read the share of each class, or its bounds, from a table.

    It has a column `class` and a column `share`, columns `lower` and `upper`, or all four; a class
    with bounds is held between them. `check_prior` compares them with the classes of a table.

    Raises:
        InputError: The file cannot be read, or a number is missing or no number.
    """
    if path.suffix.lower() not in READABLE:
        raise InputError(
            "A prior is auto, average, sets, or a file that ends in "
            f"{', '.join(READABLE)}, not {shown(str(path))}."
        )
    table = open_table(path)
    kinds = [name for name in ("share", "lower", "upper") if name in table.names] or ["share"]
    names, *columns = read_texts(table, ["class", *kinds])
    prior: Prior = {}
    for i, (name, *cells) in enumerate(zip(names, *columns, strict=True)):
        try:
            given = zip(kinds, cells, strict=True)
            numbers = {kind: float(cell) for kind, cell in given if cell}
            if name in prior:
                raise ValueError
            if numbers.keys() == {"share"}:
                prior[name] = numbers["share"]
            else:
                prior[name] = [numbers["lower"], numbers["upper"]]
        except (KeyError, ValueError):
            raise InputError(
                f"{table.describe_row(i)} has the class {shown(name)} again, or without numbers: "
                "give each class once, with a share such as 0.25, or a lower and an upper bound."
            ) from None
    return prior


def check_prior(prior: Mapping[str, Any], classes: Iterable[Hashable]) -> None:
    """Refuse shares that are impossible or of other classes; without bounds, they may be counts."""
    names = [str(name) for name in classes]
    other = {*map(str, prior)} ^ {*names}
    if other:
        raise InputError(
            f"The prior needs one share for each of the {len(names)} classes: "
            f"{format_names(sorted(other))} {'is' if len(other) == 1 else 'are'} missing, or no "
            "candidate of any set."
        )
    bounds = []
    for name, value in prior.items():
        pair = value if isinstance(value, (list, tuple)) else (value, value)
        plain = len(pair) == 2 and all(type(number) in (int, float) for number in pair)
        if not plain or not 0 <= pair[0] <= pair[1] <= sys.float_info.max:
            raise InputError(
                f"The prior of {shown(name)} is {shown(value)}: give a finite number that is not "
                "negative, or a lower and an upper bound."
            )
        bounds.append(pair)
    least, most = (sum(float(pair[side]) for pair in bounds) for side in (0, 1))
    if most <= 0:
        raise InputError("All shares of the prior are 0: give the share of each class.")
    bounded = any(isinstance(value, (list, tuple)) for value in prior.values())
    if bounded and not least - ROUNDING <= 1 <= most + ROUNDING:
        raise InputError(
            f"The lower bounds of the prior sum to {least:.4g} and the upper bounds to {most:.4g}: "
            "no shares between them sum to 1."
        )


def read_taxonomy(path: Path) -> Taxonomy:
    """Read a taxonomy from a table with the columns `class` and `parent`; roots have no parent.

    Raises:
        InputError: The file cannot be read, a name has two parents, or names form a circle.
    """
    table = open_table(path)
    parents: dict[str, str] = {}
    for i, (name, parent) in enumerate(zip(*read_texts(table, ["class", "parent"]), strict=True)):
        if not name:
            which = f"{table.describe_row(i)} has no name"
            raise InputError(f"{which}: name a class or a group, or drop it.")
        before = parents.setdefault(name, parent)
        if before != parent:
            given = f"{table.describe_row(i)} gives {shown(name)} the parent {shown(parent)}"
            raise InputError(
                f"{given}, but it had {shown(before or 'none')} before: keep one of them."
            )
    return Taxonomy(parents)
