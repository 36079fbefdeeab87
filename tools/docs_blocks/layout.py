"""Lays out compared cells as tables like the paper's: methods down, settings across."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from ltpll.formatting import counted
from ltpll_research.benchmark import Experiment
from ltpll_research.paper.catalog import Item, Setting
from ltpll_research.paper.compare import LARGE_DIFFERENCE, ComparedCell, figure_text

MOST_COLUMNS = 6  # a wider table is split
# What splits a table that is too wide: first the image set, then the finer settings.
SPLITS: tuple[Callable[[Setting], Hashable], ...] = (
    lambda setting: (setting["data"], setting.get("superclass")),
    lambda setting: setting.get("imbalance"),
    lambda setting: setting.get("ambiguity"),
)


@dataclass(frozen=True)
class ComparisonCell:
    """Our number beside another one, such as a paper's, as texts; empty without a number."""

    ours: str
    best: str  # ours at the best test epoch
    other: str
    difference: str
    # In brackets: the number of our runs and how they were trained, where that differs.
    note: str = ""
    marked: bool = False  # whether the difference is large


@dataclass(frozen=True)
class ComparisonTable:
    """A table of such cells: a label per column, and a label and the cells of every row."""

    caption: str  # what all columns share
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[ComparisonCell]]]


@dataclass(frozen=True)
class Comparison:
    """Tables that compare our numbers with others, and a sentence on how ours were made."""

    title: str
    tables: Sequence[ComparisonTable]
    note: str


def lay_out(item: Item, compared: Sequence[Sequence[ComparedCell]]) -> Comparison | None:
    """Lay out an item without its empty rows and columns; None if there are no runs at all.

    The label of a row names its protocol. Cells that depart from it in another way than most say
    how, such as "(200 epochs)".
    """
    cells = [cell for line in compared for cell in line if cell.last is not None]
    if not cells:
        return None
    usual = Counter(cell.manner for cell in cells).most_common(1)[0][0]
    counts = {cell.last.n for cell in cells if cell.last is not None}
    pairs = zip(item.lines, compared, strict=True)
    lines = [(line, row) for line, row in pairs if any(cell.last is not None for cell in row)]
    columns = range(len(item.columns))
    used = [i for i in columns if any(row[i].last is not None for _, row in lines)]

    def texts(cell: ComparedCell) -> ComparisonCell:
        words = [f"n = {cell.last.n}"] if cell.last is not None and len(counts) > 1 else []
        words += [] if cell.manner == usual else cell.manner or ["as the row says"]
        return _texts(cell, f"({', '.join(words)})" if words else "")

    rows = [(line.label, [texts(cell) for cell in row]) for line, row in lines]
    tables = [_table(item, rows, numbers) for numbers in _split(item, used, SPLITS)]
    trained = list(usual)
    if not any(word.endswith(" epochs") for word in usual):
        trained.insert(0, f"{Experiment.epochs} epochs")
    differs = [line for line, _ in lines if line.protocol.mark]
    said = ""
    if differs or any(cell.manner != usual for cell in cells):
        said = " unless a row or a cell says otherwise"
    seeds = f"n = {counts.pop()}" if len(counts) == 1 else "n in each cell"
    have = "has" if len(cells) == 1 else "have"
    note = (
        f"{', '.join(trained)}{said}; {seeds}. {len(cells)} of "
        f"{counted(sum(map(len, compared)), 'cell')} {have} runs; empty rows and columns are left "
        f"out. Differences of more than {LARGE_DIFFERENCE:g} points are marked."
    )
    return Comparison(f"{item.where}: {item.title}", tables, note)


def _split(
    item: Item, numbers: Sequence[int], splits: Sequence[Callable[[Setting], Hashable]]
) -> list[Sequence[int]]:
    """Divide column numbers into tables that are not too wide."""
    if len(numbers) <= MOST_COLUMNS or not splits:
        return [numbers]
    groups: dict[Hashable, list[int]] = {}
    for number in numbers:
        groups.setdefault(splits[0](item.lines[0].cells[number].setting), []).append(number)
    return [part for group in groups.values() for part in _split(item, group, splits[1:])]


def _table(
    item: Item, rows: Iterable[tuple[str, list[ComparisonCell]]], numbers: Sequence[int]
) -> ComparisonTable:
    labels = [item.columns[number] for number in numbers]
    caption, columns = shared_words(labels)
    if not all(columns):  # such as a single column
        caption, columns = "", labels
    chosen = [(label, [row[number] for number in numbers]) for label, row in rows]
    filled = [(label, cells) for label, cells in chosen if any(cell.ours for cell in cells)]
    return ComparisonTable(caption, columns, filled)


def shared_words(labels: Sequence[str]) -> tuple[str, list[str]]:
    """The words with which all labels begin, and the rest of each label."""
    words = [label.split() for label in labels]
    shared = sum(1 for _ in takewhile(lambda at: len(set(at)) == 1, zip(*words, strict=False)))
    return " ".join(words[0][:shared]), [" ".join(one[shared:]) for one in words]


def _texts(cell: ComparedCell, note: str) -> ComparisonCell:
    published = "" if cell.published is None else f"{cell.published:.2f}"
    if cell.last is None:
        return ComparisonCell("", "", published, "")
    best = "" if cell.best is None else f"{cell.best.mean:.2f}"
    return ComparisonCell(
        figure_text(cell.last), best, published, signed(cell.difference), note, cell.is_far
    )


def signed(difference: float | None) -> str:
    """A difference with its sign, and a minus sign that does not break a line."""
    return "" if difference is None else f"{difference:+.2f}".replace("-", "−")
