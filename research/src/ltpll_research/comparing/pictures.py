"""Pictures: the figures of all systems of a problem, single runs, and curves over epochs."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import Any

from ltpll.runs.schema import Record
from ltpll_research.comparing.systems import MEASURES, WORDS, Problem, System
from ltpll_research.summary import Figure

MOST_TICKS = 30
SNAPSHOTS = 2  # of the course of training, beside the last epoch

# What a record holds of each epoch or class, if anything, for a row such as "test".
Lists = Callable[[Record, str], Sequence[float | None] | None]
CURVES: dict[str, Lists] = {
    "balanced test accuracy (%)": lambda one, row: one["curves"].get("accuracy", {}).get(row),
    "labels recovered (%)": lambda one, row: (
        one["curves"].get("target_recovery") if row == "test" else None
    ),
    "distance of the prior from the class frequencies (%)": lambda one, row: (
        one["curves"].get("prior_distance") if row == "test" else None
    ),
}
BY_CLASS: dict[str, Lists] = {
    "test accuracy by class (%)": lambda one, row: one["last"][row].get("per_class"),
    "average prediction by class after the last epoch (%)": lambda one, row: one["last"][row].get(
        "mean_prediction"
    ),
    "class prior that training estimates (%)": lambda one, row: (
        one["last"].get("prior") if row == "test" else None
    ),
}


def draw_problems(problems: Sequence[Problem], form: str = "png") -> bytes:
    """Draw each problem, as a picture in a format of matplotlib."""
    from matplotlib.figure import Figure as Canvas

    heights = [1.4 + 0.32 * len(problem.systems) for problem in problems]
    curves = [(problem, panel) for problem in problems for panel in _panels(problem)]
    heights += [4.2] * math.ceil(len(curves) / 2)
    canvas = Canvas(figsize=(13, sum(heights)), layout="constrained")
    grid = canvas.add_gridspec(len(heights), 2, height_ratios=heights)
    for number, problem in enumerate(problems):
        _draw_figures(canvas.add_subplot(grid[number, :]), problem)
    for number, (problem, (what, lines)) in enumerate(curves):
        axis = canvas.add_subplot(grid[len(problems) + number // 2, number % 2])
        _draw_lines(axis, what, lines, _colours(problem))
        axis.set_title(problem.title if len(problems) > 1 else "")
    for axis in canvas.axes:
        for text in (axis.title, *axis.get_xticklabels(), *axis.get_yticklabels()):
            text.set_parse_math(False)  # a $ in a name does not begin a formula
    file = io.BytesIO()
    canvas.savefig(file, format=form, dpi=90)
    return file.getvalue()


def _colours(problem: Problem) -> list[Any]:
    """One colour per system, in every plot."""
    from matplotlib import colormaps

    n = len(problem.systems)
    name = "tab10" if n <= 10 else "tab20" if n <= 20 else "turbo"
    return [colormaps[name](k if n <= 20 else k / n) for k in range(n)]


def _draw_figures(axis: Any, problem: Problem) -> None:
    """The measure that is compared: mean and standard deviation, and single runs."""
    measure = problem.measures[0]
    for place, (system, colour) in enumerate(zip(problem.systems, _colours(problem), strict=True)):
        if (figure := system.figure(measure)) is not None:
            values = [MEASURES[measure](one, system.row.key) for one in system.row.records]
            known = [100 * value for value in values if value is not None]
            axis.plot(known, [place] * len(known), "o", color="0.75", markersize=3)
            spread = 100 * (figure.std or 0.0)
            axis.errorbar(100 * figure.mean, place, xerr=spread, fmt="o", capsize=3, color=colour)
    axis.set_yticks(range(len(problem.systems)), [one.label for one in problem.systems])
    axis.invert_yaxis()
    axis.set(title=problem.title, xlabel=WORDS[measure])
    axis.grid(axis="x", alpha=0.3)


Line = tuple[int, Sequence[Any], Sequence[Figure | None]]  # number of a system, places, figures


def _panels(problem: Problem) -> list[tuple[str, list[Line]]]:
    """The plots that the records of a problem have data for."""
    found = [(what, _over_epochs(problem.systems, read)) for what, read in CURVES.items()]
    by_class = BY_CLASS | _during_training(problem)
    found += [(what, _over_classes(problem.systems, read)) for what, read in by_class.items()]
    return [(what, lines) for what, lines in found if lines]


def _during_training(problem: Problem) -> dict[str, Lists]:
    """The average prediction at epochs that all records keep, as in Figure 1 of the paper."""
    records = [one for system in problem.systems for one in system.row.records]
    kept = [set(one.get("snapshots", {}).get("epoch", ())) for one in records]
    shared = sorted(set.intersection(*kept))[:-1]  # the last is that of the last epoch
    chosen = shared[:: math.ceil(len(shared) / SNAPSHOTS) or 1]

    def at(epoch: int) -> Lists:
        def read(one: Record, row: str) -> Sequence[float | None] | None:
            found = one["snapshots"]["mean_prediction"].get(row)
            return None if found is None else found[one["snapshots"]["epoch"].index(epoch)]

        return read

    return {f"average prediction by class after epoch {epoch} (%)": at(epoch) for epoch in chosen}


def _over_epochs(systems: Sequence[System], read: Lists) -> list[Line]:
    lines: list[Line] = []
    for number, system in enumerate(systems):
        columns = [
            dict(zip(record["curves"]["epoch"], values, strict=True))
            for record in system.row.records
            if "curves" in record and (values := read(record, system.row.key)) is not None
        ]
        # Only epochs that all seeds have: a mean over other seeds at every other epoch would
        # zigzag.
        epochs = sorted(set.intersection(*map(set, columns))) if columns else []
        figures = [Figure.of(column[epoch] for column in columns) for epoch in epochs]
        lines += [(number, epochs, figures)] if any(figures) else []
    return lines


def _over_classes(systems: Sequence[System], read: Lists) -> list[Line]:
    """Classes from the most training examples to the fewest, with those of the first record."""
    records = [one for system in systems for one in system.row.records if one.get("class_counts")]
    if not records:
        return []
    counts, names = records[0]["class_counts"], records[0].get("classes")
    order = sorted(range(len(counts)), key=lambda c: -counts[c])
    ticks = [f"{str(names[c])[:20] if names else c} ({counts[c]:.0f})" for c in order]
    lines: list[Line] = []
    for number, system in enumerate(systems):
        columns = [read(one, system.row.key) for one in system.row.records]
        known = [one for one in columns if one is not None and len(one) == len(order)]
        figures = [Figure.of(values[c] for values in known) for c in order]
        lines += [(number, ticks, figures)] if any(figures) else []
    return lines


def _draw_lines(axis: Any, what: str, lines: Sequence[Line], colours: Sequence[Any]) -> None:
    ticks = lines[0][1]
    by_class = isinstance(ticks[0], str)
    for number, xs, figures in lines:
        pairs = enumerate(figures) if by_class else zip(xs, figures, strict=True)
        known = [(x, 100 * one.mean, 100 * (one.std or 0.0)) for x, one in pairs if one is not None]
        places, means, _ = zip(*known, strict=True)
        axis.plot(places, means, "o-" if by_class else "-", color=colours[number], markersize=3)
        if not by_class:
            ends = [(mean - spread, mean + spread) for _, mean, spread in known]
            lower, upper = zip(*ends, strict=True)
            axis.fill_between(places, lower, upper, color=colours[number], alpha=0.12, linewidth=0)
    if by_class:
        shown = range(0, len(ticks), math.ceil(len(ticks) / MOST_TICKS))
        axis.set_xticks(shown, [ticks[c] for c in shown], rotation=90, fontsize=7)
    axis.set(ylabel=what, xlabel="class (training examples)" if by_class else "epoch")
