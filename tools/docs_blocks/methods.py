"""The block of docs/beyond.md that compares methods, from `benchmarks/methods.py`."""

from __future__ import annotations

from docs_blocks.common import block, measured_on, over_folds, records_in, table_head, table_row
from ltpll.runs.run import Record

SETS = ("uniform", "instance-dependent", "lacking")
REBALANCERS = ("none", "records", "anchor", "auto")


def methods_table() -> str:
    """Methods with rebalancers on digits, for sets of three kinds."""
    records = records_in("methods")
    lines = table_head("sets, ρ", "method", "n", *REBALANCERS, texts=2)
    for sets in SETS:
        for imbalance in (1, 20):
            of_setting = [r for r in records if (r["sets"], r["imbalance"]) == (sets, imbalance)]
            for method in dict.fromkeys(r["method"] for r in in_order(of_setting)):
                own = [record for record in of_setting if record["method"] == method]
                cells = [cell([r for r in own if r["rebalancer"] == name]) for name in REBALANCERS]
                runs = {len([r for r in own if r["rebalancer"] == name]) for name in REBALANCERS}
                n = "–".join(map(str, sorted(runs - {0})))
                lines.append(table_row(f"{sets}, {imbalance}", method, n, *cells))
    return block(
        lines,
        "*Balanced accuracy on 500 test digits, mean ± standard deviation over n seeds, and labels "
        "of the training rows that were recovered, in %; each seed has its own rows, sets and test "
        "digits. –: not run.*",
        measured_on(records),
    )


def in_order(records: list[Record]) -> list[Record]:
    """Older methods first."""
    return sorted(records, key=lambda r: r["method"].split(",")[0] not in ("proden", "corr"))


def cell(records: list[Record]) -> str:
    if not records:
        return "–"
    recovered = over_folds([record["recovery"] for record in records]).partition(" ")[0]
    return f"{over_folds([record['balanced_accuracy'] for record in records])}, {recovered}"


BLOCKS = {"beyond-methods": methods_table}
