"""Prior files: how frequent each class is, as the user knows it, from a table."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ltpll.errors import InputError, shown
from ltpll.formatting import format_names
from ltpll.tables.columns import read_texts
from ltpll.tables.opening import READABLE, open_table

Prior = dict[str, float | list[float]]
"""For each class its share, or a lower and an upper bound of its share."""
ROUNDING = 1e-6


def read_prior(path: Path) -> Prior:
    """Read the share of each class from a table.

    It has a column `class` and a column `share`, columns `lower` and `upper`, or all four; a class
    with bounds is held between them.

    Args:
        path: The file.

    Returns:
        The shares or bounds by class; `check_prior` compares them with the classes of a table.

    Raises:
        InputError: The file cannot be read, or a number is missing or no number.

    Examples:
        >>> text = "class,share,lower,upper\\ncat,0.7,,\\ndog,,0.1,0.3\\n"
        >>> _ = Path("shares.csv").write_text(text)
        >>> read_prior(Path("shares.csv"))
        {'cat': 0.7, 'dog': [0.1, 0.3]}
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
    """Refuse shares that are impossible or belong to other classes.

    Shares without bounds may also be counts.

    Args:
        prior: For each class its share, or a list of a lower and an upper bound.
        classes: The names of the classes.

    Raises:
        InputError: A class is unknown or missing, or a share or bound is impossible.
    """
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
