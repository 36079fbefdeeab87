"""The blocks of docs/committee.md that compare it with single networks."""

from __future__ import annotations

import statistics

from docs_blocks.common import (
    block,
    grouped,
    measured_on,
    over_folds,
    records_in,
    signed,
    table_head,
    table_row,
)
from docs_blocks.origins import score_sentence
from ltpll.runs.run import Record

NETWORKS = ("mean-target", "records", "average", "set-evidence", "auto")
FIGURES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "recovery": "labels recovered",
}


def columns_of_the_paper() -> str:
    """The committee and `auto` in every column of Table 1, from `benchmarks/columns.py`."""
    records = [one for one in records_in("columns") if one["rebalancer"] in ("auto", "committee")]
    for record in records:
        record["setting"] = (
            record["data"] + ("-nu" if record.get("superclass") else ""),
            record.get("imbalance", 0.0),
            record.get("ambiguity", 0.0),
        )
    figures = {"balanced_accuracy": "balanced accuracy", "recovery": "labels recovered"}
    heads = [f"{name}, {who}" for name in figures.values() for who in ("`auto`", "**committee**")]
    lines = table_head("setting", "n", "steps", *heads)
    used: list[Record] = []
    for ((data, imbalance, ambiguity),), group in sorted(grouped(records, "setting").items()):
        by = grouped(group, "rebalancer")
        auto, committee = by.get(("auto",), []), by.get(("committee",), [])
        if not committee:
            continue
        steps = max(one["steps"] for one in committee)
        committee = [one for one in committee if one["steps"] == steps]
        used += committee
        cells = [
            over_folds([one[figure] for one in rows])
            for figure in figures
            for rows in (auto, committee)
        ]
        setting = f"{data}, ρ={imbalance:g}, q={ambiguity:g}" if imbalance else data
        lines.append(table_row(setting, len(committee), f"{steps:,}", *cells))
    return block(
        lines, "*Means ± standard deviations in %. Steps: of each network.*", measured_on(used)
    )


def committee_against_networks() -> str:
    """The committee beside single networks on sets of many origins, from `benchmarks/origins.py`."""
    records = records_in("choice")
    heads = ["features", "draws", "figure", "`auto`", "best network", "**committee**", "regret"]
    lines = table_head(*heads, texts=1)
    for (data,), group in grouped(records, "data").items():
        for figure, title in FIGURES.items():
            auto = [one["figures"]["auto"][figure] for one in group]
            committee = [one["figures"]["committee"][figure] for one in group]
            best = [max(one["figures"][name][figure] for name in NETWORKS) for one in group]
            means = [f"{100 * statistics.mean(rows):.1f}" for rows in (auto, best, committee)]
            regret = [100 * (b - c) for b, c in zip(best, committee, strict=True)]
            shown = f"{signed(statistics.mean(regret))} (worst {signed(max(regret))})"
            lines.append(table_row(data, len(group), title, *means, shown))
    note = (
        "*Means in %. Best network: the best of the five rebalancers in each draw and figure, by "
        "the true labels. Regret: how many points the committee is behind it.*"
    )
    chosen = score_sentence(
        records, "of these draws", "Set information", "did better on other rows"
    )
    return block(lines, note, chosen, measured_on(records))


BLOCKS = {
    "committee-columns": columns_of_the_paper,
    "committee-choice": committee_against_networks,
}
