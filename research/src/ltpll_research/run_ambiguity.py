"""The quantities of Proposition 1 for a finished run: its size, its ambiguity degree and the distance that it measured."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ltpll.analysis.describe import ambiguity_degree
from ltpll.errors import InputError
from ltpll.runs.run import read_result
from ltpll_research.benchmark import redraw_candidates


class RunAmbiguity(NamedTuple):
    n: int
    n_classes: int
    degree: float
    prior_distance: float | None  # between the estimated and the true prior at the last epoch


def ambiguity_of_run(
    folder: Path, data_root: Path | None, degree: float | None = None
) -> RunAmbiguity:
    """Read a run's record, and draw its candidate sets again unless the ambiguity degree is given."""
    record = read_result(folder)
    counts, last = record.get("class_counts"), record.get("last")
    if (
        not isinstance(counts, list)
        or not counts
        or not all(type(count) is int for count in counts)
        or not isinstance(last, dict)
    ):
        raise InputError(
            f"The record of {folder} does not say how many examples each class has: give --n, --classes and --eta instead."
        )
    if degree is None:
        drawn = redraw_candidates(record["config"], data_root)
        degree = ambiguity_degree(drawn.candidates, drawn.labels)
    distance = last.get("prior_distance")
    return RunAmbiguity(
        sum(counts), len(counts), degree, distance if isinstance(distance, float) else None
    )
