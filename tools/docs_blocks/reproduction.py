"""The blocks of docs/reproduction.md, from results/images."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

from docs_blocks.common import ROOT, at_epochs, measured_on, table_head, table_row
from docs_blocks.layout import Comparison, ComparisonCell, lay_out
from docs_blocks.verdicts import compare_other_lengths, verdicts_markdown
from ltpll_research.benchmark import FIRST_EDITION
from ltpll_research.paper.catalog import ITEMS, Item, with_equal_lengths
from ltpll_research.paper.compare import ComparedCell, compare
from ltpll_research.paper.grid import Finished
from ltpll_research.paper.protocols import PROTOCOLS
from ltpll_research.records import results_under


def drift_table() -> str:
    """Accuracy and target recovery over the course of training."""
    records = [
        record
        for record in results_under(ROOT / "results" / "images")
        if (one := record["config"])["data"] == "cifar10"
        and (one["imbalance"], one["ambiguity"], one["method"]) == (100, 0.5, "corr")
        if one["rebalancer"] in ("none", "records")
        and (one["seed"], one["epochs"], one["extras"], one["options"]) == (0, 800, [], {})
    ]
    records.sort(
        key=lambda record: (
            record["config"]["rebalancer"],
            record["config"].get("edition", FIRST_EDITION),
        )
    )
    records = list(
        {record["config"]["rebalancer"]: record for record in records}.values()
    )  # of the newest edition
    epochs = range(100, 801, 100)
    lines = table_head("epoch", "", *epochs, texts=2)
    for record in records:
        curves, name = record["curves"], record["config"]["rebalancer"]
        for what, values in (
            ("accuracy (%)", curves["accuracy"]["test"]),
            ("target recovery (%)", curves["target_recovery"]),
        ):
            cells = [f"{100 * value:.1f}" for value in at_epochs(curves, values, epochs)]
            lines.append(f"| corr + {name} | {what} | " + " | ".join(cells) + " |")
    for record in records:
        best, last = (
            100 * max(zip(record["class_counts"], one["test"]["per_class"], strict=True))[1]
            for one in (record["best"]["test"], record["last"])
        )
        lines += [
            "",
            (
                f"The largest class under corr + {record['config']['rebalancer']}: {best:.0f}% at "
                f"the best epoch, {last:.0f}% at the last."
            ),
        ]
    return "\n".join(lines)


def image_runs() -> tuple[Finished, int]:
    """The recorded benchmark runs, and their number of seeds."""
    finished = Finished.under(ROOT / "results" / "images")
    return finished, 1 + max((record["config"]["seed"] for record in finished.all()), default=0)


def reproduction_tables() -> str:
    """Every table of the paper that has recorded runs, with the published numbers; those that only
    repeat others are named.
    """
    finished, seeds = image_runs()
    parts, repeated, shown = [], [], set[str]()
    for item in ITEMS.values():
        compared = compare(item, finished, seeds, {})
        numbers, comparison = identities_with_runs(item, compared), lay_out(item, compared)
        if comparison is not None and numbers <= shown:
            repeated.append(
                f"- {comparison.title} ({len(numbers)} of {sum(map(len, compared))} cells)"
            )
        elif comparison is not None:
            parts.append(f"### {comparison.title}\n\n{markdown(comparison)}")
        shown |= numbers
    parts += ["### Tables whose runs are all above\n\n" + "\n".join(repeated)] if repeated else []
    return "\n\n".join([*parts, measured_on(finished.all())])


# Of the paper's Tables 6 and 7: training crops, those of the class person, and the imbalance.
VOC_OF_PAPER = "11,706 (5,702; 118.8)"


def voc_note() -> str:
    """How the crops of our runs differ from those of the paper."""
    finished, _ = image_runs()
    counts = next(
        record["class_counts"] for record in finished.all() if record["config"]["data"] == "voc2007"
    )
    return (
        f"PASCAL VOC: our runs have {sum(counts):,} training crops ({max(counts):,} of persons; "
        f"imbalance {max(counts) / min(counts):.1f}) and test crops from VOC 2012, the paper "
        f"{VOC_OF_PAPER}. So the images differ, not only the training."
    )


def markdown(comparison: Comparison) -> str:
    """A comparison in Markdown; in a cell, ours is above the published number."""
    parts = []
    for table in comparison.tables:
        if table.caption:
            parts.append(f"**{table.caption}**")
        lines = table_head("last (best) epoch, %<br>paper, difference", *table.columns)
        lines += [table_row(label, *map(_markdown_cell, cells)) for label, cells in table.rows]
        parts.append("\n".join(lines))
    words = " ".join(f"{table.caption} {' '.join(table.columns)}" for table in comparison.tables)
    notes = [comparison.note, voc_note()] if "PASCAL VOC" in words else [comparison.note]
    return "\n\n".join([*parts, f"*{' '.join(notes)}*"])


def _markdown_cell(cell: ComparisonCell) -> str:
    ours = (cell.ours or "–") + (f" ({cell.best})" if cell.best else "")
    difference = f"**{cell.difference}**" if cell.marked else cell.difference
    theirs = ", ".join(text for text in (cell.other, difference) if text)
    below = " ".join(text for text in (theirs, cell.note) if text)
    return f"{ours}<br>{below}" if below else ours


def identities_with_runs(item: Item, compared: Sequence[Sequence[ComparedCell]]) -> set[str]:
    """What identifies each number of an item that has runs, to find items that repeat others."""
    return {
        json.dumps([cell.setting, cell.row, cell.figure], sort_keys=True)
        for line, cells in zip(item.lines, compared, strict=True)
        for cell, found in zip(line.cells, cells, strict=True)
        if found.last is not None
    }


def shortened_tables() -> str:
    """Runs with fewer epochs than the paper's, with its numbers where there are any."""
    finished, seeds = image_runs()
    parts, shown = [], set[str]()
    for item in ITEMS.values():
        for epochs, compared in compare_other_lengths(item, finished, seeds).items():
            numbers, comparison = (
                identities_with_runs(item, compared),
                lay_out(with_equal_lengths(item), compared),
            )
            if comparison is not None and not numbers <= shown:
                parts.append(f"### {item.title}, {epochs} epochs\n\n{markdown(comparison)}")
            shown |= numbers
    return "\n\n".join(parts)


@cache
def verdicts_table() -> str:
    """Which published numbers are reproduced."""
    return f"{verdicts_markdown(*image_runs())}\n\n*{voc_note()}*"


def protocols_table() -> str:
    """How the rows of the paper's tables and of other systems are trained."""
    lines = ["| rows labelled | training |", "|---|---|"]
    return "\n".join(
        lines
        + [
            f"| {protocol.mark or 'without a protocol named'} | {protocol.summary} |"
            for protocol in PROTOCOLS.values()
        ]
    )


BLOCKS = {
    "reproduction": reproduction_tables,
    "shortened": shortened_tables,
    "protocols": protocols_table,
    "drift": drift_table,
    "verdicts": verdicts_table,
    "verdicts-summary": lambda: verdicts_table().partition("\n")[0],
}
