"""The blocks of docs/trust.md, docs/review.md, docs/crowds.md, docs/own-data.md and
docs/missing-labels.md."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from docs_blocks.common import (
    bench_records,
    block,
    grouped,
    measured_on,
    over_folds,
    percent,
    records_in,
    table_head,
    table_row,
)
from ltpll.runs.run import Record
from ltpll_research.summary import Figure

REVIEW_ROWS = {
    ("none", 0.0): "no answers",
    ("random", 0.0): "random rows",
    ("rare", 0.0): "queue, rare classes first",
    ("least confident", 0.0): "least confident rows",
    ("queue", 0.0): "**queue**",
}


def review_table() -> str:
    """What answers for 5 % of the rows achieve, by how the rows were chosen, from
    `benchmarks/review.py`.
    """
    records = records_in("review")
    by_table: dict[str, list[Record]] = {}
    for record in records:
        by_table.setdefault(record["table"], []).append(record)

    def cell(table: str, key: tuple[str, float], figure: str) -> str:
        rows = [
            (r, row)
            for r in by_table[table]
            for row in r["rows"]
            if (row["queue"], row["trust"]) == key
        ]
        return over_folds(
            [row[figure] / r["answers"] if figure == "wrong" else row[figure] for r, row in rows]
        )

    lines = []
    for figure, title in (
        ("accuracy", "Accuracy (%)"),
        ("balanced_accuracy", "Balanced accuracy (%)"),
        ("recovery", "Recovered labels (%)"),
        ("wrong", "Answered labels that were wrong (%)"),
    ):
        keys = [
            key for key in REVIEW_ROWS if figure != "wrong" or (key[0] != "none" and key[1] == 0)
        ]
        lines += table_head(title, *by_table)
        lines += [
            f"| {REVIEW_ROWS[key]} | {' | '.join(cell(table, key, figure) for table in by_table)} |"
            for key in keys
        ]
        lines.append("")
    sizes = [
        f"{table}: {mine[0]['answers']} of about {mine[0]['n']:,} rows"
        for table, mine in by_table.items()
    ]
    note = (
        f"*Answers: {'; '.join(sizes)}. Mean and standard deviation over "
        f"{min(map(len, by_table.values()))} draws.*"
    )
    return block([*lines, note], measured_on(records))


def cleaning_groups(found: Record) -> dict[tuple[str, float], list[Record]]:
    """The rows of `benchmarks/cleaning.py` by problem and share of missing labels."""
    groups: dict[tuple[str, float], list[Record]] = {}
    for row in found["rows"]:
        groups.setdefault((row["problem"], row["missing"]), []).append(row)
    return groups


def ratio(rows: Sequence[Record], numerator: str, denominator: str) -> str:
    """A share in percent, over the rows of all seeds together."""
    total = sum(row[denominator] for row in rows)
    return f"{100 * sum(row[numerator] for row in rows) / total:.1f}" if total else "–"


def cleaning_table() -> str:
    """How well candidate sets without the true label are found, from `benchmarks/cleaning.py`."""
    lines = []
    for found in bench_records("cleaning"):
        made, seeds = found["environment"], len({row["seed"] for row in found["rows"]})
        names = ["lack it", "estimated", "flagged", "precision", "recall", "suggestion right"]
        names += [
            "flagged by mistake, largest / rarest third of the classes",
            "before: flagged, precision",
            "before: by mistake, largest / rarest",
        ]
        lines += ["| in % | " + " | ".join(names) + " |"]
        lines += ["|---" + "|---:" * len(names) + "|"]
        for (problem, _), mine in cleaning_groups(found).items():
            cells = [
                ratio(mine, "lack", "rows"),
                f"{100 * statistics.mean(row['estimated'] for row in mine):.1f}",
                ratio(mine, "flagged", "rows"),
                ratio(mine, "flagged_right", "flagged"),
                ratio(mine, "flagged_right", "lack"),
                ratio(mine, "suggested_right", "flagged_right"),
                (
                    f"{ratio(mine, 'largest_flagged', 'largest_fine')} / "
                    f"{ratio(mine, 'rarest_flagged', 'rarest_fine')}"
                ),
                (
                    f"{ratio(mine, 'contradicted', 'rows')}, "
                    f"{ratio(mine, 'contradicted_right', 'contradicted')}"
                ),
                (
                    f"{ratio(mine, 'largest_contradicted', 'largest_fine')} / "
                    f"{ratio(mine, 'rarest_contradicted', 'rarest_fine')}"
                ),
            ]
            lines.append(f"| {problem} | {' | '.join(cells)} |")
        lines += [
            "",
            (
                f"*{seeds} seeds together; {made['hardware']}, torch {made['torch']}, commit "
                f"{made['commit']}.*"
            ),
        ]
    return "\n".join(lines)


def confidence_table() -> str:
    """How well confidences tell right labels from wrong ones, from `benchmarks/cleaning.py`."""
    lines = []
    for found in bench_records("cleaning"):
        lines += [
            (
                "| in % | labels right | trained on the rows: mean confidence, error, ranking | "
                "`confidence`: mean, error, ranking |"
            )
        ]
        lines += ["|---|---:|---:|---:|"]
        for (problem, missing), mine in cleaning_groups(found).items():
            cells = [f"{100 * statistics.mean(row['targets']['accuracy'] for row in mine):.1f}"]
            for name in ("targets", "calibrated"):
                figures = [
                    statistics.mean(row[name][key] for row in mine)
                    for key in ("mean_confidence", "calibration_error")
                ]
                known = [row[name]["ranking"] for row in mine if row[name]["ranking"] is not None]
                ranking = f"{statistics.mean(known):.2f}" if known else "–"
                cells.append(f"{100 * figures[0]:.1f}, {100 * figures[1]:.1f}, {ranking}")
            lines.append(f"| {problem}, {100 * missing:g} % lack it | {' | '.join(cells)} |")
        words = (
            "Error: expected calibration error. Ranking: area under the ROC curve of "
            "confidence against being right."
        )
        lines += ["", f"*Means over the seeds. {words}*"]
    return "\n".join(lines)


CROWD_COLUMNS = {
    "majority alone": "majority vote",
    "dawid-skene alone": "Dawid–Skene",
    "reliability alone": "our reliabilities",
    "classifier, none": "`none`",
    "classifier, counts": "`counts`",
    "classifier, reliability": "`reliability` (default)",
}


def crowds_table() -> str:
    """Labels recovered from the votes of simulated annotators, from `benchmarks/crowds.py`."""
    records = records_in("crowds")
    groups = grouped(records, "data", "crowd")
    columns = [*CROWD_COLUMNS.values(), "some annotator right"]
    lines = table_head("Right labels where annotators disagree (%)", "rows", *columns)
    for (data, crowd), group in groups.items():
        rows = statistics.mean(record["n"] * record["ambiguous"] for record in group)
        cells = [
            over_folds([record["figures"][name]["ambiguous"] for record in group])
            for name in CROWD_COLUMNS
        ]
        bound = statistics.mean(record["covered"]["ambiguous"] for record in group)
        lines.append(f"| {data}, {crowd} | {rows:.0f} | {' | '.join(cells)} | {100 * bound:.1f} |")
    for figure, title in (
        ("all", "all rows, mean"),
        ("balanced", "all rows, mean over the classes"),
    ):
        means = [
            statistics.mean(record["figures"][name][figure] for record in records)
            for name in CROWD_COLUMNS
        ]
        bound = (
            f"{100 * statistics.mean(record['covered']['all'] for record in records):.1f}"
            if figure == "all"
            else ""
        )
        lines.append(
            f"| {title} | | {' | '.join(f'{100 * mean:.1f}' for mean in means)} | {bound} |"
        )
    seeds = len({record["seed"] for record in records})
    return block(lines, f"*Mean and standard deviation over {seeds} seeds.*", measured_on(records))


SCORE_COLUMNS = {
    "scores alone": "highest score",
    "none": "`none`",
    "power 1": "scores",
    "power 1/2": "square root",
    "power 1/4": "fourth root (default)",
}


def scores_table() -> str:
    """Labels recovered from sets that weak models made, with powers of their scores as weights,
    from `benchmarks/scores.py`.
    """
    records = records_in("scores")
    groups = grouped(records, "data", "model")
    columns = [*SCORE_COLUMNS.values(), "set holds the label"]
    lines = table_head("Right labels (%)", "rows", *columns)
    for (data, model), group in groups.items():
        cells = [
            over_folds([record["figures"][name]["all"] for record in group])
            for name in SCORE_COLUMNS
        ]
        rows, bound = (
            statistics.mean(record[name] for record in group) for name in ("n", "covered")
        )
        lines.append(f"| {data}, {model} | {rows:.0f} | {' | '.join(cells)} | {100 * bound:.1f} |")
    for figure, title in (("all", "mean"), ("balanced", "mean over the classes")):
        means = [
            statistics.mean(record["figures"][name][figure] for record in records)
            for name in SCORE_COLUMNS
        ]
        lines.append(f"| {title} | | {' | '.join(f'{100 * mean:.1f}' for mean in means)} | |")
    seeds = len({record["seed"] for record in records})
    return block(lines, f"*Mean and standard deviation over {seeds} seeds.*", measured_on(records))


def missing_table() -> str:
    """Trainings on sets some of which lack the true label, from `benchmarks/missing.py`."""
    records = records_in("missing")
    groups: dict[tuple[str, float], dict[str, list[Record]]] = {}
    for record in sorted(records, key=lambda one: (one["data"], one["removed"], one["seed"])):
        groups.setdefault((record["data"], record["removed"]), {}).setdefault(
            record["how"], []
        ).append(record)

    def figure(found: Sequence[Record], name: str) -> str:
        return (
            percent(Figure.of(one[name] for one in found))
            if all(one[name] is not None for one in found)
            else "–"
        )

    names = ("accuracy", "balanced_accuracy", "recovery")
    lines = [
        "| sets (all figures in %) | n | lack it | estimated | accuracy: `never` | `auto` | "
        "balanced: `never` | `auto` "
        "| labels recovered: `never` | `auto` | … of sets that lack it: `auto` |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (data, removed), ways in groups.items():
        never, auto = ways["never"], ways["auto"]
        what = data if data == "digits-top-k" else f"{data}, {removed:.0%} removed"
        cells = [str(len(auto)), figure(auto, "lacking"), figure(auto, "estimated_share")]
        cells += [figure(way, name) for name in names for way in (never, auto)]
        lines.append(f"| {what} | {' | '.join(cells)} | {figure(auto, 'recovery_of_lacking')} |")
    made = records[0]["environment"]
    commits = " / ".join(sorted({one["environment"]["commit"] for one in records}))
    note = (
        f"*Mean and standard deviation over n draws. {made['hardware']}, one thread per "
        f"training, torch {made['torch']}, commit {commits}.*"
    )
    return block(lines, note)


def again_table() -> str:
    """Trainings with answers, anew and from the earlier run, from `benchmarks/again.py`."""
    records = records_in("again")
    lines = table_head(
        "table, answers",
        "n",
        "CPU seconds: first → from the run",
        "share of the first",
        "labels: anew",
        "from the run",
        "accuracy: anew",
        "from the run",
        "balanced accuracy: anew",
        "from the run",
        texts=1,
    )
    for (name,), rows in sorted(grouped(records, "table").items()):
        for n in (30, 100):
            first, again = (
                statistics.mean(row[which]["cpu_seconds"] for row in rows)
                for which in ("first", f"again, {n}")
            )
            cells = [
                percent(Figure.of(row[f"{how}, {n}"][figure] for row in rows))
                for figure in ("labels", "accuracy", "balanced_accuracy")
                for how in ("anew", "again")
            ]
            cost = f"{first:.0f} → {again:.0f}", f"{again / first:.0%}"
            lines.append(table_row(f"{name}, {n}", len(rows), *cost, *cells))
    return block(lines, measured_on(records))


def balanced_table() -> str:
    """Confidences for the goal "balanced", from `benchmarks/audits.py balanced`."""
    records = records_in("balanced")
    lines = table_head(
        "confidence − right, one temperature → its own",
        "n",
        "classes equally frequent",
        "rows as they are",
        "calibration error, classes equally frequent",
        "balanced accuracy",
        texts=1,
    )

    def both(rows: Sequence[Record], of: str, figure: str) -> str:
        ways = ([row[f"{way}, {of}"][figure] for row in rows] for way in ("before", "after"))
        return " → ".join(percent(Figure.of(values)).split(" ±")[0] for values in ways)

    for (name,), rows in sorted(grouped(records, "table").items()):
        figures = [("even", "gap"), ("rows", "gap"), ("even", "calibration_error")]
        cells = [both(rows, *one) for one in [*figures, ("even", "right")]]
        lines.append(table_row(name, len(rows), *cells))
    return block(lines, measured_on(records))


def audits_table() -> str:
    """What simulated answers say and change, from `benchmarks/audits.py`."""
    records = records_in("audits")
    audits = [{**record, **audit} for record in records for audit in record["audits"]]

    def mean(rows: Sequence[Record], name: str, size: bool = False) -> str:
        values = [row[name] for row in rows if row[name] is not None]
        return percent(Figure.of([abs(v) for v in values] if size else values)).split(" ±")[0]

    def of_flags(rows: Sequence[Record]) -> str:
        flagged, right, reachable, lacking = (
            sum(row[name] for row in rows)
            for name in ("flagged", "flagged_right", "reachable", "lacking")
        )
        return f"{right / flagged:.0%}, {right / reachable:.0%}, {right / lacking:.0%}"

    lines = table_head(
        "answers, wrong ones",
        "intervals that hold the truth: all rows",
        "rare classes",
        "if nothing is asked twice",
        "width of the interval",
        "confidence − right, before → after: all rows",
        "rare classes",
        "flags: precision, found of what the ranking allows, and of all",
        texts=1,
    )
    for (n, wrong), rows in sorted(grouped(audits, "answers", "wrong").items()):
        gaps = [
            f"{mean(rows, f'{name}_before', True)} → {mean(rows, name, True)}"
            for name in ("gap", "rare_gap")
        ]
        cells = [mean(rows, name) for name in ("covered", "covered_rare", "covered_once", "width")]
        lines.append(table_row(f"{n}, {wrong:.0%}", *cells, *gaps, of_flags(rows)))
    lines += ["", *table_head("wrong labels found", "by 30 answers", "by 100 answers")]
    ways = dict.fromkeys(way for one in records for way in one["wrong_labels_found"]["30"])
    for way in ways:
        found = [
            f"{statistics.mean(one['wrong_labels_found'][n][way] for one in records):.1f}"
            for n in ("30", "100")
        ]
        lines.append(table_row({"queue": "lowest confidence"}.get(way, way), *found))
    flags = [one["without_answers"] for one in records]
    before = sum(one["flagged"] for one in flags), sum(one["flagged_right"] for one in flags)
    lacking = sum(one["lacking"] for one in records)
    seeds = len({one["seed"] for one in records})
    note = (
        f"*Means over {len(records)} fits ({len(grouped(records, 'table'))} tables, the truth "
        f"removed from 0, 2 and 10 % of the sets, up to {seeds} seeds) and "
        f"{audits[0]['draws']} audits of each. Gaps are means over the audits of a fit, "
        "without their sign. Without answers, "
        f"{before[0]} sets were flagged, {before[1]} of them rightly, of {lacking} that lack the "
        "truth.*"
    )
    return block(lines, note, measured_on(records))


BLOCKS = {
    "again": again_table,
    "balanced": balanced_table,
    "audits": audits_table,
    "cleaning": cleaning_table,
    "confidence": confidence_table,
    "crowds": crowds_table,
    "scores": scores_table,
    "missing": missing_table,
    "review": review_table,
}
