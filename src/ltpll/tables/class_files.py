"""Class files: what a user knows about the classes: how frequent they are, and their groups."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ltpll.candidates.taxonomy import Taxonomy, build_taxonomy
from ltpll.errors import InputError, shown
from ltpll.formatting import format_names
from ltpll.tables.columns import read_texts
from ltpll.tables.opening import READABLE, open_table
from ltpll.tables.streaming import require_file

Prior = dict[str, float | list[float]]
"""For each class its share, or a lower and an upper bound of its share."""
ROUNDING = 1e-6
LARGEST = 1 << 26  # bytes of a text file
TAB = 8  # columns to which a tab in front of a name moves, if tabs and spaces are mixed


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
    """Read a taxonomy, whose leaves are the classes.

    A table has the columns `class` and `parent`, and may have a column
    `rank`; roots have no parent. In any other file, each line is a name, indented under its parent;
    `genus: Vulpes` says that Vulpes is a genus.

    Raises:
        InputError: The file cannot be read, a name has two parents, or names form a circle.
    """
    if path.suffix.lower() in READABLE:
        table = open_table(path)
        names, parents, *ranks = read_texts(
            table, ["class", "parent", *(["rank"] if "rank" in table.names else [])]
        )
        rows = zip(names, parents, *(ranks or [[""] * len(names)]), strict=True)
        return build_taxonomy(rows, table.describe_row)
    require_file(path)
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"it is larger than {LARGEST >> 20} MiB")
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
        numbers = [i for i, line in enumerate(lines) if line.strip()]
        if not numbers:
            raise ValueError("it is empty")
    except ValueError as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
        raise InputError(
            f"{path} cannot be read as a taxonomy ({reason}): write UTF-8 text with one name per "
            "line, indented under its parent, or a table."
        ) from None

    def line_of(i: int) -> str:
        return f"Line {numbers[i] + 1} of {path}"

    entries: list[tuple[str, str, str]] = []  # name, parent and rank of each line
    above: list[tuple[int, str]] = []  # indentations and names of lines that may hold this one
    for i, number in enumerate(numbers):
        line = lines[number].expandtabs(TAB)
        indentation = len(line) - len(line.lstrip())
        rank, _, name = (part.strip() for part in line.partition(":"))
        rank, name = (rank, name) if rank and name else ("", line.strip())
        closed = indentation
        while above and above[-1][0] >= indentation:
            closed = above.pop()[0]
        if closed != indentation:
            raise InputError(
                f"{line_of(i)} is indented by {indentation} columns, unlike every line above it "
                "that could be its sibling: indent siblings by the same amount."
            )
        entries.append((name, above[-1][1] if above else "", rank))
        above.append((indentation, name))
    return build_taxonomy(entries, line_of)
