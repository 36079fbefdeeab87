"""The blocks of docs/beyond.md on tables, features and priors."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from docs_blocks.common import (
    block,
    grouped,
    measured_on,
    over_folds,
    record_of,
    records_in,
    signed,
)
from ltpll.runs.run import Record
from ltpll_research.summary import Figure

# How the rebalancer auto says so, in records of any version.
FIXED_SHARES = ("Class shares are fixed", "Class shares are kept", "Class shares are held")


def origins_table() -> str:
    """Rebalancers on real features with sets of many origins, from `benchmarks/origins.py`."""
    records = records_in("origins")
    groups = grouped(records, "data", "origin")
    names = ("mean-target", "records", "average", "set-evidence", "auto")
    lines = [
        f"| features, sets | n | regime | {' | '.join(names)} | auto held shares |",
        "|---|---:|---|" + "---:|" * len(names) + "---:|",
    ]
    for (data, origin), group in groups.items():
        cells = []
        for name in names:
            rows = [record["figures"][name] for record in group]
            means = [
                100 * statistics.mean(row[figure] for row in rows)
                for figure in ("accuracy", "balanced_accuracy", "recovery")
            ]
            cells.append(" / ".join(f"{mean:.1f}" for mean in means))
        regimes = sorted({record["regime"] for record in group})
        held = sum(record["choice"].startswith(FIXED_SHARES) for record in group)
        lines.append(
            f"| {data}, {origin} | {len(group)} | {', '.join(regimes)} | {' | '.join(cells)} | "
            f"{held} of {len(group)} |"
        )
    note = (
        "*Accuracy / balanced accuracy / recovered labels in %, means over n draws of sets "
        "and of held-out rows.*"
    )
    return block(
        lines, note, evidence_sentence(records), score_sentence(records), measured_on(records)
    )


def evidence_sentence(records: list[Record]) -> str:
    """What set evidence changes where a test rejects that wrong labels join independently, compared
    with plain training.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record["regime"] == "unclear":
            groups.setdefault((record["data"], record["origin"]), []).append(record)
    changes = []
    for figure in ("accuracy", "balanced_accuracy", "recovery"):
        gains = [
            100
            * statistics.mean(
                record["figures"]["set-evidence"][figure] - record["figures"]["mean-target"][figure]
                for record in group
            )
            for group in groups.values()
        ]
        changes.append(
            f"{signed(statistics.mean(gains))} ({signed(min(gains))} to {signed(max(gains))})"
        )
    return (
        f"In the {len(groups)} rows with an unclear origin, `set-evidence` changes plain "
        f"training (mean-target) by {changes[0]} points of "
        f"accuracy, {changes[1]} of balanced accuracy and {changes[2]} of recovered labels: "
        "the mean of the rows, and the range."
    )


def columns_table() -> str:
    """Every column of Table 1 on features of a pretrained network, from `benchmarks/columns.py`."""
    names = ("mean-target", "records", "set-evidence", "auto")
    records = [one for one in records_in("columns") if one["rebalancer"] in names]
    groups: dict[tuple[str, bool, float, float], list[Record]] = {}
    for record in records:
        setting = (
            record["data"],
            record.get("superclass", False),
            record.get("imbalance", 0.0),
            record.get("ambiguity", 0.0),
        )
        groups.setdefault(setting, []).append(record)
    lines = [
        f"| setting | n | none | {' | '.join(names)} | regime that auto found |",
        "|---|---:|" + "---:|" * (len(names) + 1) + "---|",
    ]
    for (data, similar, imbalance, ambiguity), group in sorted(
        groups.items(), key=lambda item: item[0]
    ):
        by = {name: [record for record in group if record["rebalancer"] == name] for name in names}
        cells = [mean_and_deviation(by["mean-target"], "uncorrected")]
        for name in names:
            recovered = 100 * statistics.mean(record["recovery"] for record in by[name])
            cells.append(f"{mean_and_deviation(by[name], 'balanced_accuracy')}, {recovered:.1f}")
        row = (
            data
            if not imbalance
            else f"{data}{'-nu' if similar else ''}, ρ={imbalance:g}, q={ambiguity:g}"
        )
        chosen = sorted({regime_of(record["choice"]) for record in by["auto"]})
        lines.append(f"| {row} | {len(by['auto'])} | {' | '.join(cells)} | {', '.join(chosen)} |")
    note = (
        "*Balanced accuracy, mean ± standard deviation, and recovered labels, in %. none: "
        "the training of mean-target, predicted with z.*"
    )
    behind = []  # how far auto is below the best of a column, if it is, with both figures
    for group in groups.values():
        means = {
            name: Figure.of(
                record["balanced_accuracy"] for record in group if record["rebalancer"] == name
            )
            for name in names
        }
        best = max(means.values(), key=lambda figure: figure.mean)
        if best.mean > means["auto"].mean:
            texts = [f"{figure.percent()}" for figure in (means["auto"], best)]
            behind.append((100 * (best.mean - means["auto"].mean), texts))
    worst = ", ".join(
        f"{points:.1f} ({own} against {other})"
        for points, (own, other) in sorted(behind, key=lambda one: one[0])
    )
    said = (
        f"`auto` is the best, or equal to it, in {len(groups) - len(behind)} of {len(groups)} columns. "
        f"In the others it is below the best by, in points: {worst}."
    )
    return block(lines, note, measured_on(records)) + f"\n\n{said}"


def regime_of(choice: str) -> str:
    """What "auto" says about the origin of sets, in a word or two."""
    if "unclear" in choice or "held-out rows" in choice:
        return "unclear"
    if "join independently" in choice:
        return "independent, held" + (
            " between bounds" if "between bounds" in choice else " exactly"
        )
    return "single labels, left alone" if "single label" in choice else "co-occurrence"


def mean_and_deviation(records: list[Record], figure: str) -> str:
    return over_folds([record[figure] for record in records])


def score_sentence(
    records: Sequence[Record],
    draws: str = "draws",
    score: str = "Its score",
    better: str = "did better on other rows (mean of accuracy and balanced accuracy)",
) -> str:
    """How often the held-out score preferred the way that predicts held-out rows better."""
    pairs = []
    for record in records:
        if record["scores"] is not None:
            # Both ways as `auto` trains them; sets whose labels join independently are never
            # undecided.
            rows = [record["figures"][name] for name in ("average", "set-evidence")]
            true = [(row["accuracy"] + row["balanced_accuracy"]) / 2 for row in rows]
            pairs.append(
                (record["scores"]["average"] - record["scores"]["plain"], true[0] - true[1])
            )
    clear = [(score, true) for score, true in pairs if abs(true) >= 0.02]

    def right(chosen: list[tuple[float, float]]) -> int:
        return sum((score > 0) == (true > 0) for score, true in chosen)

    return (
        f"In {len(pairs)} {draws} the sets left `auto` undecided. {score} preferred the way that "
        f"{better} in {right(pairs)} of them, and in {right(clear)} of the {len(clear)} in which "
        "both differed by at least 2 points."
    )


FAMILIES = {  # how the sets of results/priors/origins.json arose, by the first words of a setting
    "uniform": "wrong labels join independently",
    "rates by label": "each wrong label joins at a rate of its own",
    "superclass": "similar classes join more often",
    "crowd": "union of annotators",
    "neighbours": "neighbours of ordered classes",
    "top": "top k of a model",
    "grouped, exchangeable": "objects of a picture",
    "grouped, multiplicities": "objects of a picture, some classes with more",
}


def family(setting: str) -> str:
    first = (
        setting.partition(",")[0].split(" ")[0]
        if setting.startswith("top")
        else setting.partition(",")[0]
    )
    return FAMILIES[
        f"grouped, {'exchangeable' if 'exchangeable' in setting else 'multiplicities'}"
        if first == "grouped"
        else first
    ]


def priors_table() -> str:
    """What `estimate_prior` finds in sets of many origins, from `tools/measure_priors.py`."""
    found: Record = record_of("priors/origins.json")
    groups: dict[str, list[Record]] = {}
    for row in found["synthetic"]:
        if row["order"] == "as drawn":
            groups.setdefault(f"simulated: {family(row['setting'])}", []).append(row)
    for row in found["real"]:
        if row["order"] == "as drawn":
            groups.setdefault(row["setting"], []).append(row)

    def spread(group: Sequence[Record], name: str, *, whole: bool = False) -> str:
        values = [row[name] for row in group]
        texts = [
            f"{100 * value:.0f}" if whole else f"{value:.2f}"
            for value in (min(values), max(values))
        ]
        return texts[0] if texts[0] == texts[1] else "–".join(texts)

    lines = [
        "| sets | decided | L1, EM | L1, average | L1, chosen | within bounds (%) |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name, group in groups.items():
        regimes: Counter[str] = Counter()
        for row in group:
            regimes.update(row["regimes"])
        decided = ", ".join(
            regime if len(regimes) == 1 else f"{regime} {n}" for regime, n in regimes.most_common()
        )
        cells = [spread(group, figure) for figure in ("em", "average", "estimate")] + [
            spread(group, "within_bounds", whole=True)
        ]
        lines.append(f"| {name} | {decided} | {' | '.join(cells)} |")
    made = found["environment"]
    return block(
        lines,
        f"*Simulated sets: the range over settings, each a mean of {found['seeds']} draws; "
        "the regimes count draws. Other sets: n = 1, "
        "rows in the order of the file. L1: the summed distance to the true shares. "
        f"{made['hardware']}, commit {made['commit']}.*",
    )


BLOCKS = {
    "beyond-tables": origins_table,
    "beyond-columns": columns_table,
    "beyond-priors": priors_table,
}
