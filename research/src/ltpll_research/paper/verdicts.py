"""Verdicts: which published numbers our runs reproduce, one line for each system and image set."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from ltpll.formatting import counted
from ltpll_research.benchmark import EDITION
from ltpll_research.paper.catalog import ITEMS, Cell, Line, column_label
from ltpll_research.paper.compare import (
    SEEDS_FOR_SPREAD,
    TOLERANCE,
    ComparedCell,
    Verdict,
    compare,
    compare_other_lengths,
)
from ltpll_research.paper.grid import Finished
from ltpll_research.paper.layout import NOTHING, markdown_row, shared_words, signed

BY_CLASS_SIZE = ", by class size"
COUNTED = {
    Verdict.REPRODUCED: "{n} are reproduced",
    Verdict.ONLY_BEST: "for {n} only the best epoch agrees",
    Verdict.NOT_REPRODUCED: "{n} are not reproduced",
    Verdict.NOT_RUN: "{n} have not been run",
}
RUN = (Verdict.REPRODUCED, Verdict.ONLY_BEST, Verdict.NOT_REPRODUCED)


@dataclass
class Group:
    """The published numbers of one system on one image set, with our figures; accuracies by class size are a group of their own."""

    system: str
    method: str
    data: str
    name: str
    cells: dict[str, ComparedCell] = field(
        default_factory=dict
    )  # by setting, such as "ρ=100 q=0.5"
    other_lengths: dict[str, ComparedCell] = field(
        default_factory=dict
    )  # those of `cells` that were only run with other epochs

    @property
    def has_runs(self) -> bool:
        return bool(self.settings(*RUN) or self.other_lengths)

    def settings(self, *verdicts: Verdict) -> list[str]:
        """The settings with one of these verdicts."""
        return [setting for setting, cell in self.cells.items() if cell.verdict in verdicts]

    def line(self) -> list[str]:
        """The cells of the group's line in the table; what all its settings with runs share is named once."""
        run = self.settings(*RUN)
        shared, rest = shared_words([*run, *self.other_lengths])
        names = dict(zip([*run, *self.other_lengths], rest, strict=True))
        parts = []
        for verdict in RUN:
            found = [
                _joined(names[setting], f"({_differences(self.cells[setting])})")
                for setting in self.settings(verdict)
            ]
            parts += [f"**{verdict.value}** {', '.join(found)}"] if found else []
        for setting, cell in self.other_lengths.items():
            how = f"({', '.join(cell.departures)}: {signed(cell.difference)})"
            parts.append(f"{Verdict.NOT_RUN.value} in full {_joined(names[setting], how)}")
        return [
            self.system,
            self.name,
            shared or NOTHING,
            f"{len(run)} of {len(self.cells)}",
            "; ".join(parts),
            self._explanation(),
        ]

    def _explanation(self) -> str:
        differs = self.other_lengths or self.settings(Verdict.ONLY_BEST, Verdict.NOT_REPRODUCED)
        return explanations().get((self.data, self.system), NOTHING) if differs else NOTHING


def _joined(*texts: str) -> str:
    return " ".join(text for text in texts if text)


def _differences(cell: ComparedCell) -> str:
    """The difference at the last epoch; where that does not agree, also at the best one."""
    last = signed(cell.difference)
    if cell.verdict is Verdict.REPRODUCED or cell.best is None or cell.published is None:
        return last
    return f"{last}, best {signed(cell.best.mean - cell.published)}"


@cache
def explanations() -> dict[tuple[str, str], str]:
    """Why numbers differ, where docs/reproduction.md says so, by image set and system."""
    entries = json.loads(
        files("ltpll_research.paper").joinpath("explanations.json").read_text(encoding="utf-8")
    )
    return {
        (entry["data"], system): entry["explanation"]
        for entry in entries
        for system in entry["systems"]
    }


def judged_groups(finished: Finished, seeds: int) -> list[Group]:
    """Every published number once, by system and image set."""
    groups: dict[tuple[str, str], Group] = {}
    for item in ITEMS.values():
        compared, by_length = (
            compare(item, finished, seeds, {}),
            compare_other_lengths(item, finished, seeds),
        )
        for i, line in enumerate(item.lines):
            for j, cell in enumerate(line.cells):
                if cell.published is None:
                    continue
                group, setting = _group_of(cell, line, item.columns[j], groups)
                group.cells.setdefault(setting, compared[i][j])
                shortened = [
                    cells[i][j] for cells in by_length.values() if cells[i][j].last is not None
                ]
                if shortened and compared[i][j].last is None:
                    group.other_lengths.setdefault(setting, shortened[-1])
    return sorted(groups.values(), key=lambda group: group.name.endswith(BY_CLASS_SIZE))


def _group_of(
    cell: Cell, line: Line, column: str, groups: dict[tuple[str, str], Group]
) -> tuple[Group, str]:
    """The group of a cell, and the label of the cell in it."""
    images = column_label(
        {key: value for key, value in cell.setting.items() if key in ("data", "superclass")}
    )
    name = images if cell.figure == "balanced_accuracy" else images + BY_CLASS_SIZE
    group = groups.setdefault(
        (line.label, name), Group(line.label, cell.setting["method"], cell.setting["data"], name)
    )
    return group, column.removeprefix(images).removesuffix("overall").strip()


def verdicts_markdown(finished: Finished, seeds: int) -> str:
    """The verdicts in Markdown: a line for every system and image set with runs, then those without any, and the rule."""
    groups = judged_groups(finished, seeds)
    counts = Counter(cell.verdict for group in groups for cell in group.cells.values())
    ours = [
        cell
        for group in groups
        for cell in (*group.cells.values(), *group.other_lengths.values())
        if cell.last is not None
    ]
    earlier = sum(cell.edition != EDITION for cell in ours)
    seeds_used = sorted(
        {cell.last.n for group in groups for cell in group.cells.values() if cell.last is not None}
    )
    summary = (
        f"Of {sum(counts.values())} published numbers, {'; '.join(COUNTED[verdict].format(n=counts[verdict]) for verdict in Verdict)} "
        f"(n = {' or '.join(map(str, seeds_used)) or 0})."
    )
    if earlier:
        summary += f" {'All our figures' if earlier == len(ours) else f'{earlier} of our {len(ours)} figures'} are of an earlier edition."
    lines = [
        ["system", "images", "setting", "cells run", "verdict (ours − paper, in points)", "why"]
    ]
    lines.append(["---", "---", "---", "---:", "---", "---"])
    lines += [
        group.line()
        for group in sorted(groups, key=lambda group: not group.settings(*RUN))
        if group.has_runs
    ]
    for name in dict.fromkeys(group.name for group in groups):
        here = [group for group in groups if group.name == name]
        missing = [group for group in here if not group.has_runs]
        if missing:
            run = f"0 of {sum(len(group.cells) for group in missing)}"
            lines.append(
                [_systems(missing, here), name, NOTHING, run, Verdict.NOT_RUN.value, NOTHING]
            )
    rule = (
        f"*Reproduced: the last epoch is within {TOLERANCE:g} point of the published number or, with {SEEDS_FOR_SPREAD} seeds or more, "
        "within one standard deviation. The best epoch is chosen on the test set; if only that one agrees, the verdict says so.*"
    )
    return "\n".join([summary, "", *map(markdown_row, lines), "", rule])


def _systems(missing: Sequence[Group], groups: Sequence[Group]) -> str:
    """The systems without runs; those of a method that has no runs at all are counted, not named."""
    parts = []
    for method in dict.fromkeys(group.method for group in missing):
        names = [group.system for group in missing if group.method == method]
        every = sum(group.method == method for group in groups)
        parts += [f"{method} ({counted(every, 'system')})"] if len(names) == every > 1 else names
    return "; ".join(parts)
