"""JSON examples: what the readers of labelling tools and detectors return, and checks that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.candidates.cells import as_texts, unknown_class_error
from ltpll.candidates.scores import ROUNDING
from ltpll.candidates.votes import AnnotatorVotes
from ltpll.errors import InputError, shown
from ltpll.formatting import are, counted
from ltpll.tables.set_columns import sorted_class_names


@dataclass(frozen=True)
class JsonExamples:
    """The examples of a file, in its order; `fields` says where they were found, by the names of `Reading`."""

    ids: Sequence[str]
    paths: Sequence[str] | None
    candidates: Candidates | None
    labels: npt.NDArray[np.int64] | None = None  # true class numbers; −1 if unknown
    votes: AnnotatorVotes | None = None
    groups: Sequence[str] | None = None
    urls: Sequence[str] | None = (
        None  # what a labelling tool calls the pictures, if not by their paths
    )
    notes: tuple[str, ...] = ()  # sentences about what was skipped
    fields: Mapping[str, str] = field(default_factory=dict)


def member(value: Any, key: str, kind: type[Any] | tuple[type[Any], ...]) -> Any:
    """A member of an object if it has this type, otherwise None."""
    found = value.get(key) if isinstance(value, dict) else None
    return (
        found
        if isinstance(found, kind) and not (isinstance(found, bool) and kind is not bool)
        else None
    )


def checked_names(path: Path, names: Sequence[str], what: str) -> list[str]:
    """Names of examples, which must be valid text, distinct and not empty."""
    as_texts(names, range(len(names)), lambda i: f"Entry {i + 1} of {path}")
    if len(set(names)) < len(names) or "" in names:
        seen: set[str] = set()
        for name in names:
            if name in seen or not name:
                problem = "twice" if name else "without a value"
                raise InputError(
                    f"{path} has the {what} {shown(name)} {problem}: every example needs its own; rename or drop one of them."
                )
            seen.add(name)
    return list(names)


def known_classes(names: Sequence[str], classes: Sequence[Any] | None) -> tuple[Any, ...]:
    """The given classes, or else the names that occur, sorted."""
    return tuple(sorted_class_names(names)) if classes is None else tuple(classes)


def class_numbers(
    path: Path, names: Sequence[str], classes: Sequence[Any], what: str = "label"
) -> npt.NDArray[np.int64]:
    """The class number of each name."""
    as_texts(names, range(len(names)), lambda i: f"One of the labels of {path}")
    number = {name: i for i, name in enumerate(classes)}
    unknown = next((name for name in names if name not in number), None)
    if unknown is not None:
        raise InputError(f"{path} has the {what} {unknown_class_error(unknown, classes)}.")
    return np.asarray([number[name] for name in names], dtype=np.int64)


def skipped(n: int, total: int, what: str, why: str) -> tuple[str, ...]:
    """A sentence about the examples that were skipped, if there are any."""
    return (
        (
            f"{n:,} of {counted(total, what)} {are(n)} skipped because {'it has' if n == 1 else 'they have'} {why}.",
        )
        if n
        else ()
    )


def scored_candidates(
    rows: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float64],
    classes: Sequence[Any],
    *,
    top_k: int | None = None,
    mass: float | None = None,
) -> Candidates:
    """Candidates weighted by scores: the classes with the largest ones, whose scores are summed where a row has a class twice.

    Args:
        rows: The example of each score; every example from 0 has a positive one.
        numbers: The class number of each score.
        scores: The scores, from 0 to 1.
        classes: The names of the classes.
        top_k: Keep this many classes of each example.
        mass: Keep the fewest classes of each example whose scores sum to this; all of them if they do not.

    Examples:
        >>> scored_candidates(np.array([0, 0, 0]), np.array([0, 1, 2]), np.array([0.6, 0.3, 0.1]), ("a", "b", "c"), top_k=2).weights
        tensor([0.6667, 0.3333])
    """
    keys, position = np.unique(rows * len(classes) + numbers, return_inverse=True)
    sums = np.bincount(position, weights=scores)
    keys, sums = keys[sums > 0], sums[sums > 0]
    row = keys // len(classes)
    start = np.searchsorted(row, np.arange(int(rows.max(initial=-1)) + 2))
    order = np.lexsort((keys, -sums, row))
    kept = np.ones(len(keys), dtype=bool)
    if top_k is not None:
        kept = np.arange(len(keys)) - start[row] < top_k
    if mass is not None:
        before = np.cumsum(sums[order]) - sums[order]
        kept &= before - before[start[row]] < mass - ROUNDING
    chosen = np.sort(order[kept])
    indptr = np.searchsorted(row[chosen], np.arange(len(start)))
    return Candidates.from_flat(
        indptr, keys[chosen] % len(classes), len(classes), tuple(classes)
    ).with_weights(sums[chosen])
