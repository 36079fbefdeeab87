"""The blocks of docs/studies.md, from results/digits and results/toy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from docs_blocks.common import ROOT, block, measured_on, percent
from ltpll.runs.run import Record
from ltpll_research.comparing.systems import compare_systems
from ltpll_research.records import results_under
from ltpll_research.summary import Row, rows


def table(records: Sequence[Record], columns: dict[str, Callable[[Row], str]]) -> str:
    found = rows(records)
    lines = [
        "| " + " | ".join(["", "seeds", *columns]) + " |",
        "|---|" + "---:|" * (len(columns) + 1),
    ]
    lines += [
        f"| {row.label} | {row.n} | "
        + " | ".join(column(row) for column in columns.values())
        + " |"
        for row in found
    ]
    return block(lines, measured_on(records))


def demo_table() -> str:
    records = sorted(
        results_under(ROOT / "results" / "digits"),
        key=lambda record: (order(record), record["config"]["seed"]),
    )
    (problem,) = compare_systems(records)
    gains = {system.label: problem.gain(system) for system in problem.systems}

    def gain(row: Row) -> str:
        return "–" if row.bare else gains[row.label].replace("−", "-")

    return table(
        records,
        {
            "balanced accuracy, last epoch (%)": lambda row: percent(row.last("balanced_accuracy")),
            "best epoch (%)": lambda row: percent(row.best()),
            "many": lambda row: percent(row.last("many")),
            "medium": lambda row: percent(row.last("medium")),
            "few": lambda row: percent(row.last("few")),
            "target recovery (%)": lambda row: percent(row.target_recovery),
            "gain ± std. error": gain,
        },
    )


def toy_table(*, cosine: bool) -> str:
    records = [
        record
        for record in results_under(ROOT / "results" / "toy")
        if (record["config"]["final_lr"] != 1.0) == cosine
    ]
    records.sort(key=lambda record: (order(record), record["config"]["seed"]))

    def every(row: Row) -> str:
        return " ".join(
            f"{100 * record['last']['test']['balanced_accuracy']:.0f}" for record in row.records
        )

    return table(
        records,
        {
            "test accuracy, last epoch (%)": lambda row: percent(row.last("balanced_accuracy")),
            "best epoch (%)": lambda row: percent(row.best()),
            "target recovery (%)": lambda row: percent(row.target_recovery),
            "last epoch, seed by seed": every,
        },
    )


def order(record: Record) -> tuple[int, int]:
    methods, rebalancers = ["proden", "corr"], ["none", "oracle-la", "records", "anchor"]
    return methods.index(record["config"]["method"]), rebalancers.index(
        record["config"]["rebalancer"]
    )


BLOCKS = {
    "demo": demo_table,
    "toy": lambda: toy_table(cosine=False),
    "toy-cosine": lambda: toy_table(cosine=True),
}
