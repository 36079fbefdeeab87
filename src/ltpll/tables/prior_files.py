"""Prior files: how frequent each class is, as the user knows it, from a table."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ltpll.errors import InputError, first_line, shown
from ltpll.formatting import format_names
from ltpll.tables.columns import read_texts
from ltpll.tables.opening import READABLE, open_table

Prior = dict[str, float | list[float]]
"""For each class its share, or a lower and an upper bound of its share."""
BOUNDS = ("lower", "upper")
ROUNDING = 1e-6


def read_prior(path: Path) -> Prior:
    """Read the share of each class from a .csv, .tsv or .parquet file.

    A table has a column `class` and a column `share`, columns `lower` and `upper`, or all four; a
    class with bounds is held between them.

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
    kinds = [name for name in ("share", *BOUNDS) if name in table.names] or ["share"]
    names, *columns = read_texts(table, ["class", *kinds])
    prior: Prior = {}
    for i, (name, *cells) in enumerate(zip(names, *columns, strict=True)):
        found = {kind: cell.strip() for kind, cell in zip(kinds, cells, strict=True)}
        try:
            numbers = {kind: float(cell) for kind, cell in found.items() if cell}
            if name.strip() in prior:
                raise ValueError("an earlier row has the same class")
            prior[name.strip()] = _share_or_bounds(numbers)
        except ValueError as error:
            raise InputError(
                f"{table.describe_row(i)} has the class {shown(name)}, which cannot be used "
                f"({first_line(error)}): give each class once, with a share such as 0.25, "
                "or a lower and an upper bound."
            ) from None
    return prior


def _share_or_bounds(numbers: Mapping[str, float]) -> float | list[float]:
    bounds = [numbers[kind] for kind in BOUNDS if kind in numbers]
    if len(bounds) == 1 or not numbers:
        raise ValueError("it has only one bound" if bounds else "it has no share")
    if not bounds:
        return numbers["share"]
    lower, upper = bounds
    if lower <= upper and not lower <= numbers.get("share", lower) <= upper:
        raise ValueError(f"its share {numbers['share']:g} is outside its bounds")
    return bounds


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
    known = set(names)
    unknown = next((name for name in prior if str(name) not in known), None)
    if unknown is not None:
        raise InputError(
            f"The prior has the class {shown(unknown)}, which no candidate set has: "
            f"the classes are {format_names(names)}."
        )
    missing = [name for name in names if name not in prior]
    if missing:
        raise InputError(
            f"The prior lacks {len(missing)} of {len(names)} classes ({format_names(missing)}): "
            "give a share for every class."
        )
    bounds = [_bounds(name, value) for name, value in prior.items()]
    least, most = (sum(pair[side] for pair in bounds) for side in (0, 1))
    if most <= 0:
        raise InputError("All shares of the prior are 0: give the share of each class.")
    bounded = any(isinstance(value, (list, tuple)) for value in prior.values())
    if bounded and not least - ROUNDING <= 1 <= most + ROUNDING:
        raise InputError(
            f"The lower bounds of the prior sum to {least:.4g} and the upper bounds to {most:.4g}: "
            "no shares between them sum to 1."
        )


def _bounds(name: str, value: Any) -> tuple[float, float]:
    numbers = value if isinstance(value, (list, tuple)) else (value, value)
    if len(numbers) != 2 or not all(
        type(number) in (int, float) and 0 <= number <= sys.float_info.max for number in numbers
    ):
        raise InputError(
            f"The prior of {shown(name)} is {shown(value)}: give a finite number that is not "
            "negative, or a lower and an upper bound."
        )
    lower, upper = numbers
    if lower > upper:
        raise InputError(
            f"The prior of {shown(name)} has the lower bound {lower:g} above its upper bound "
            f"{upper:g}: exchange them."
        )
    return float(lower), float(upper)
