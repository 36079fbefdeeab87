"""The blocks of docs/tables.md and docs/committee.md."""

from __future__ import annotations

import statistics
import sys
from typing import Any

from docs_blocks.common import (
    RELABELLED,
    ROOT,
    bench_records,
    block,
    measured_on,
    over_folds,
    records_in,
    table_head,
    table_row,
)
from ltpll.runs.run import Record

TABULAR_ROWS = {
    "neighbours": "neighbours",
    "logistic": "logistic",
    "corr+none": "corr",
    "corr+mean-target": "corr + mean-target",
    "corr+records": "corr + records",
    "corr+set-evidence": "corr + set-evidence",
    "corr+auto": "corr + auto, the default of one network",
    "corr+average": "corr + auto, told that rows share sets",
    "committee": "**committee** (default)",
}


COMPARED = {"corr+auto": "network", "committee": "**committee**"}


FIGURES_OF_TABLES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "recovery": "labels recovered",
}


def tabular_records() -> dict[tuple[str, str], Record]:
    """Ten-fold cross-validation on small real tables, from `benchmarks/tabular.py`, by table and
    row.
    """
    records = records_in("tabular")
    return {(record["table"], record["row"]): record for record in records}


def tabular_table() -> str:
    """Every row and figure of the real tables."""
    found = tabular_records()
    tables = sorted({table for table, _ in found})
    lines = []
    for figure, title in (
        ("accuracy", "Accuracy (%)"),
        ("balanced_accuracy", "Balanced accuracy (%)"),
        ("recovery", "Recovered labels (%)"),
    ):
        lines += table_head(title, *tables)
        lines += [
            f"| {label} | " + " | ".join(over_folds(found[t, row][figure]) for t in tables) + " |"
            for row, label in TABULAR_ROWS.items()
        ]
        lines.append("")
    first = [found[table, "neighbours"] for table in tables]
    sizes = [
        (
            f"{r['table']}: {r['n']:,} × {r['features']}, {r['classes']} classes, "
            f"{r['set_size']:.1f} candidates"
        )
        for r in first
    ]
    folds = first[0]["folds"]
    note = f"*{'; '.join(sizes)}. Mean and standard deviation over {folds} folds.*"
    return block([*lines, note], measured_on(list(found.values())))


def committee_table() -> str:
    """The committee beside the single network that was the default before, on the real tables."""
    found = tabular_records()
    tables = sorted({table for table, _ in found})
    lines = table_head("%", "", *tables, texts=2)
    for figure, title in FIGURES_OF_TABLES.items():
        for row, label in COMPARED.items():
            cells = [over_folds(found[table, row][figure]) for table in tables]
            lines.append(table_row(title, label, *cells))
    seconds = {row: [found[table, row] for table in tables] for row in COMPARED}
    for row, records in seconds.items():
        # Of one thread, so that wall time is CPU time; newer records have both.
        cells = [f"{one.get('cpu_seconds', one['seconds']) / one['folds']:.0f}" for one in records]
        lines.append(f"| seconds of one fit | {COMPARED[row]} | " + " | ".join(cells) + " |")
    used = [found[table, row] for table in tables for row in COMPARED]
    return block(lines, measured_on(used))


def set_information_table() -> str:
    """How often set information ranks two models wrongly, from `benchmarks/set_information.py`."""
    records = records_in("set-information")
    lines = table_head("sets arise", *(record["problem"] for record in records))
    for origin in records[0]["origins"]:
        cells = []
        for record in records:
            shares = [
                f"{100 * wrong / total:.0f}"
                for wrong, total in (
                    record["origins"][origin][name]
                    for name in ("accuracy", "likelihood", "balanced")
                )
            ]
            cells.append(" / ".join(shares))
        lines.append(table_row(origin, *cells))
    return block(lines, measured_on(records))


def stopping_table() -> str:
    """The test accuracy of the last, chosen and best epoch, from `benchmarks/stopping.py`."""
    groups: dict[tuple[str, str, float], list[Record]] = {}
    records = records_in("stopping")
    for record in records:
        key = record["kind"], record["rebalancer"], record["ambiguity"]
        groups.setdefault(key, []).append(record)
    lines = [
        "| network, rebalancer | q | n | last | **chosen** | best |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for (kind, rebalancer, ambiguity), own in sorted(groups.items()):
        cells = [over_folds([one[name] for one in own]) for name in ("last", "chosen", "best")]
        lines.append(f"| {kind}, {rebalancer} | {ambiguity} | {len(own)} | {' | '.join(cells)} |")
    images = records_in("held-out")
    for one in sorted(images, key=lambda record: record["config"]["method"]):
        config = one["config"]
        rows = one["last"], one["chosen"], one["best"]["test"]
        cells = [f"{100 * row['test']['balanced_accuracy']:.1f}" for row in rows]
        name = f"CIFAR-10-LT, {config['method']} + {config['rebalancer']}"
        lines.append(f"| {name} | {config['ambiguity']} | 1 | {' | '.join(cells)} |")
    return block(lines, measured_on([*records, *images]))


def raw_tables_table() -> str:
    """Raw tables, our default beside what people use instead, from `benchmarks/raw_tables.py`."""
    sys.path.append(str(ROOT))  # benchmarks are no package that is installed
    from benchmarks.raw_tables import TABLES, read_records, results_table

    found = read_records()
    records = [one for some in found.values() for one in some]
    first = {record["table"]: record for record in reversed(records)}
    sizes = [
        (
            f"{name}: {one['n']:,} × {one['columns']}, {one['classes']} classes, "
            f"{one['sets']}, {one['set_size']:.1f} candidates"
            + f", {one['lacking']:.1%} without the true one"
            * (one["lacking"] > 0)
        )
        for name in TABLES
        if (one := first.get(name))
    ]
    seeds = len({record["seed"] for record in records})
    note = f"*{'; '.join(sizes)}. Mean (and standard deviation) over at most {seeds} splits.*"
    return block([results_table(found), note], measured_on(records))


def which_table() -> str:
    """Our default beside what people use instead: means over the raw tables, and the best of each."""
    found, rows, tables = _raw_means()
    lines = table_head(
        *("", "tables", "accuracy", "balanced accuracy", "labels", "best labels", "CPU seconds")
    )
    with_votes = [name for name in tables if (name, "crowdlab") in found]
    compared = {title: (row, tables) for row, (title, _) in rows.items()}
    compared["**ltpll** (default), where there are votes"] = "ltpll", with_votes
    for title, (row, names) in compared.items():
        own = [name for name in names if (name, row) in found]
        means = [
            statistics.mean(found[name, row][figure] for name in own)
            for figure in ("accuracy", "balanced_accuracy", "recovery", "cpu_seconds")
        ]
        best = sum(
            found[name, row]["recovery"]
            == max(found[name, other]["recovery"] for other in rows if (name, other) in found)
            for name in own
        )
        cells = [*(f"{100 * mean:.1f}" for mean in means[:3]), f"{best} of {len(own)}"]
        lines.append(table_row(title, len(own), *cells, f"{means[3]:.1f}"))
    return "\n".join(lines)


def losses_table() -> str:
    """Raw tables on which a rival recovers more labels, or predicts better, than our default."""
    found, rows, tables = _raw_means()
    lines = table_head("table", "figure", "best of the others", "ltpll", "other", texts=3)
    for name in tables:
        for figure, title in FIGURES_OF_RAW_TABLES.items():
            others = {row: found[name, row][figure] for row in rows if (name, row) in found}
            ours = others.pop("ltpll")
            best = max(
                (row for row in others if not row.startswith("ltpll")), key=others.__getitem__
            )
            if others[best] - ours > LOST:
                cells = f"{100 * ours:.1f}", f"{100 * others[best]:.1f}"
                lines.append(table_row(name, title, rows[best][0], *cells))
    return "\n".join(lines)


LOST = 0.01  # by which a rival is ahead
FIGURES_OF_RAW_TABLES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "recovery": "labels recovered",
}


def _raw_means() -> tuple[dict[tuple[str, str], dict[str, float]], dict[str, Any], list[str]]:
    """The mean of every figure by table and rival, all rivals with their names, and all tables."""
    sys.path.append(str(ROOT))  # benchmarks are no package that is installed
    from benchmarks.raw_tables import FIGURES, ROWS, TABLES, read_records

    found = read_records()
    means = {
        key: {figure: statistics.mean(one[figure] for one in some) for figure in FIGURES}
        for key, some in found.items()
    }
    rows = {row: how for row, how in ROWS.items() if any(other == row for _, other in found)}
    return means, rows, [name for name in TABLES if any(table == name for table, _ in found)]


def headline_table() -> str:
    """The default beside plain training and RECORDS on the real tables."""
    found = tabular_records()
    tables = sorted({table for table, _ in found})
    lines = table_head("accuracy / balanced accuracy / recovered labels (%)", *tables)
    for row in ("corr+none", "corr+mean-target", "corr+records", "corr+auto", "committee"):
        cells = [
            " / ".join(
                f"{100 * statistics.mean(found[t, row][name]):.1f}"
                for name in ("accuracy", "balanced_accuracy", "recovery")
            )
            for t in tables
        ]
        lines.append(f"| {TABULAR_ROWS[row]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def fit_table() -> str:
    """`fit` compared with a DataLoader of single rows, from `benchmarks/fit.py`."""
    lines = []
    for found in bench_records("fit"):
        made = found["environment"]
        lines += [
            f"**{made['hardware']}** ({made['threads']} threads, torch {made['torch']}, commit "
            f"{made['commit']}): {found['n']:,} × "
            f"{found['features']} features, {found['classes']} classes, {found['set_size']} "
            "candidates on average, "
            f"batches of {found['batch']}:",
            "",
            "| | method | seconds per epoch, median | memory relative to the features |",
            "|---|---|---:|---:|",
        ]
        for row in found["rows"]:
            memory = f"{row['memory_over_features']:.2f}" if "memory_over_features" in row else "–"
            lines.append(
                f"| {RELABELLED.get(row['how'], row['how'])} | {row['method']} | "
                f"{statistics.median(row['seconds']):.2f} | {memory} |"
            )
        lines.append("")
    return "\n".join(lines).rstrip()


BLOCKS = {
    "tabular": tabular_table,
    "raw-tables": raw_tables_table,
    "fit": fit_table,
    "which": which_table,
    "losses": losses_table,
    "headline": headline_table,
    "committee": committee_table,
    "stopping": stopping_table,
    "set-information": set_information_table,
}
