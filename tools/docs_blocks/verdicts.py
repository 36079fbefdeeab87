"""Verdicts: which published numbers our runs reproduce, one line for each system and image set."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path

from docs_blocks.common import table_row
from docs_blocks.layout import shared_words, signed
from ltpll.formatting import counted
from ltpll_research.benchmark import EDITION
from ltpll_research.paper.catalog import ITEMS, Cell, Item, Line, column_label
from ltpll_research.paper.compare import ComparedCell, compare
from ltpll_research.paper.grid import Finished
from ltpll_research.summary import Figure

NOTHING = "–"
TOLERANCE = 1.0  # percentage points within which a number counts as reproduced
SEEDS_FOR_SPREAD = 3  # from this many seeds on, the standard deviation may widen the tolerance
BY_CLASS_SIZE = ", by class size"


class Verdict(Enum):
    """Whether our runs give the published number."""

    REPRODUCED = "reproduced"
    ONLY_BEST = "only the best epoch agrees"
    NOT_REPRODUCED = "not reproduced"
    NOT_RUN = "not run"


def judge(last: Figure | None, best: Figure | None, published: float) -> Verdict:
    """Judge one cell by its figures in percent.

    A figure agrees with the published number if it is within one point of it or, with three seeds
    or more, within its standard deviation. The number is reproduced if the last epoch agrees. The
    best one is chosen on the test set, so its agreement alone is another verdict.

    Examples:
        >>> judge(Figure(46.1, None, 1), Figure(49.99, None, 1), 50.09)
        <Verdict.ONLY_BEST: 'only the best epoch agrees'>
    """
    if last is None:
        return Verdict.NOT_RUN
    if _agrees(last, published):
        return Verdict.REPRODUCED
    only_best = best is not None and _agrees(best, published)
    return Verdict.ONLY_BEST if only_best else Verdict.NOT_REPRODUCED


def _agrees(figure: Figure, published: float) -> bool:
    spread = figure.std if figure.std is not None and figure.n >= SEEDS_FOR_SPREAD else 0.0
    # Both numbers are shown with two decimals: what looks like one point is one point.
    return round(abs(figure.mean - published), 2) <= max(TOLERANCE, spread)


def verdict_of(cell: ComparedCell) -> Verdict | None:
    """Whether our runs give the published number; None if there is no such number."""
    return None if cell.published is None else judge(cell.last, cell.best, cell.published)


COUNTED = {
    Verdict.REPRODUCED: "{n} are reproduced",
    Verdict.ONLY_BEST: "for {n} only the best epoch agrees",
    Verdict.NOT_REPRODUCED: "{n} are not reproduced",
    Verdict.NOT_RUN: "{n} have not been run",
}
RUN = (Verdict.REPRODUCED, Verdict.ONLY_BEST, Verdict.NOT_REPRODUCED)


@dataclass
class Group:
    """The published numbers of one system on one image set, with our figures.

    Accuracies by class size are a group of their own.
    """

    system: str
    method: str
    data: str
    name: str
    # By setting, such as "ρ=100 q=0.5".
    cells: dict[str, ComparedCell] = field(default_factory=dict)
    # Those of `cells` that were only run with other epochs.
    other_lengths: dict[str, ComparedCell] = field(default_factory=dict)

    @property
    def has_runs(self) -> bool:
        return bool(self.settings(*RUN) or self.other_lengths)

    def settings(self, *verdicts: Verdict) -> list[str]:
        """The settings with one of these verdicts."""
        return [setting for setting, cell in self.cells.items() if verdict_of(cell) in verdicts]

    def line(self) -> list[str]:
        """The group's line in the table; what all its settings with runs share is named once."""
        run = self.settings(*RUN)
        shared, rest = shared_words([*run, *self.other_lengths])
        names = dict(zip([*run, *self.other_lengths], rest, strict=True))
        parts = []
        for verdict in RUN:
            found = [
                f"{names[setting]} ({_differences(self.cells[setting])})".lstrip()
                for setting in self.settings(verdict)
            ]
            parts += [f"**{verdict.value}** {', '.join(found)}"] if found else []
        for setting, cell in self.other_lengths.items():
            how = f"({', '.join(cell.departures)}: {signed(cell.difference)})"
            where = f"{names[setting]} {how}".lstrip()
            parts.append(f"{Verdict.NOT_RUN.value} in full {where}")
        differs = self.other_lengths or self.settings(Verdict.ONLY_BEST, Verdict.NOT_REPRODUCED)
        why = explanations().get((self.data, self.system), NOTHING) if differs else NOTHING
        done = f"{len(run)} of {len(self.cells)}"
        return [self.system, self.name, shared or NOTHING, done, "; ".join(parts), why]


def _differences(cell: ComparedCell) -> str:
    """The difference at the last epoch; where that does not agree, also at the best one."""
    last = signed(cell.difference)
    if verdict_of(cell) is Verdict.REPRODUCED or cell.best is None or cell.published is None:
        return last
    return f"{last}, best {signed(cell.best.mean - cell.published)}"


@cache
def explanations() -> dict[tuple[str, str], str]:
    """Why numbers differ, where docs/reproduction.md says so, by image set and system."""
    text = Path(__file__).with_name("explanations.json").read_text(encoding="utf-8")
    return {
        (entry["data"], system): entry["explanation"]
        for entry in json.loads(text)
        for system in entry["systems"]
    }


def compare_other_lengths(
    item: Item, finished: Finished, seeds: int
) -> dict[int, list[list[ComparedCell]]]:
    """Compare runs that differ from the paper's protocol in their number of epochs alone.

    Returns:
        The cells by number of epochs; those without such runs hold the published number only.
    """
    usual = compare(item, finished, seeds, {})
    found: dict[int, list[list[ComparedCell]]] = {}
    for epochs in sorted({record["config"]["epochs"] for record in finished.all()}):
        other = compare(item, finished, seeds, {"epochs": epochs})
        # A run of the paper's own length is one of the usual cells.
        found[epochs] = []
        for cells, line in zip(other, usual, strict=True):
            pairs = zip(cells, line, strict=True)
            found[epochs].append(
                [
                    ComparedCell(None, None, one.published) if one == same else one
                    for one, same in pairs
                ]
            )
    return found


def judged_groups(finished: Finished, seeds: int) -> list[Group]:
    """Every published number once, by system and image set."""
    groups: dict[tuple[str, str], Group] = {}
    for item in ITEMS.values():
        compared = compare(item, finished, seeds, {})
        by_length = compare_other_lengths(item, finished, seeds)
        for i, line in enumerate(item.lines):
            for j, cell in enumerate(line.cells):
                if cell.published is None:
                    continue
                group, setting = _group_of(cell, line, item.columns[j], groups)
                group.cells.setdefault(setting, compared[i][j])
                shortened = [cells[i][j] for cells in by_length.values() if cells[i][j].last]
                if shortened and compared[i][j].last is None:
                    group.other_lengths.setdefault(setting, shortened[-1])
    return sorted(groups.values(), key=lambda group: group.name.endswith(BY_CLASS_SIZE))


def _group_of(
    cell: Cell, line: Line, column: str, groups: dict[tuple[str, str], Group]
) -> tuple[Group, str]:
    """The group of a cell, and the label of the cell in it."""
    data, method = cell.setting["data"], cell.setting["method"]
    images = column_label({"data": data, "superclass": cell.setting.get("superclass")})
    name = images if cell.figure == "balanced_accuracy" else images + BY_CLASS_SIZE
    group = groups.setdefault((line.label, name), Group(line.label, method, data, name))
    return group, column.removeprefix(images).removesuffix("overall").strip()


def verdicts_markdown(finished: Finished, seeds: int) -> str:
    """The verdicts in Markdown: systems with runs, then those without any, and the rule."""
    groups = judged_groups(finished, seeds)
    counts = Counter(verdict_of(cell) for group in groups for cell in group.cells.values())
    ours = [cell for group in groups for cell in group.cells.values() if cell.last]
    seeds_used = sorted({cell.last.n for cell in ours if cell.last})
    ours += [cell for group in groups for cell in group.other_lengths.values()]
    earlier = sum(cell.edition != EDITION for cell in ours)
    numbers = "; ".join(COUNTED[verdict].format(n=counts[verdict]) for verdict in Verdict)
    summary = (
        f"Of {sum(counts.values())} published numbers, {numbers} "
        f"(n = {' or '.join(map(str, seeds_used)) or 0})."
    )
    if earlier:
        which = f"{earlier} of our {len(ours)} figures"
        if earlier == len(ours):
            which = "All our figures"
        summary += f" {which} are of an earlier edition."
    verdict_column = "verdict (ours − paper, in points)"
    lines = [["system", "images", "setting", "cells run", verdict_column, "why"]]
    lines.append(["---", "---", "---", "---:", "---", "---"])
    in_order = sorted(groups, key=lambda group: not group.settings(*RUN))
    lines += [group.line() for group in in_order if group.has_runs]
    for name in dict.fromkeys(group.name for group in groups):
        here = [group for group in groups if group.name == name]
        missing = [group for group in here if not group.has_runs]
        if missing:
            run = f"0 of {sum(len(group.cells) for group in missing)}"
            systems, verdict = _systems(missing, here), Verdict.NOT_RUN.value
            lines.append([systems, name, NOTHING, run, verdict, NOTHING])
    rule = (
        f"*Reproduced: the last epoch is within {TOLERANCE:g} point of the published number or, "
        f"with {SEEDS_FOR_SPREAD} seeds or more, within one standard deviation. The best epoch is "
        "chosen on the test set; if only that one agrees, the verdict says so.*"
    )
    return "\n".join([summary, "", *(table_row(*line) for line in lines), "", rule])


def _systems(missing: Sequence[Group], groups: Sequence[Group]) -> str:
    """The systems without runs; those of a method without any runs are counted, not named."""
    parts = []
    for method in dict.fromkeys(group.method for group in missing):
        names = [group.system for group in missing if group.method == method]
        every = sum(group.method == method for group in groups)
        parts += [f"{method} ({counted(every, 'system')})"] if len(names) == every > 1 else names
    return "; ".join(parts)
