"""The page of a run on a table, in one offline file: trust, examples, classes, annotators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.cleaning.results import (
    CleanedTable,
    Columns,
    Numbers,
    annotator_columns,
    beats_guess,
    class_columns,
    findings,
    known_truth,
    summary,
    suspicion_ranks,
    verdicts,
)
from ltpll.formatting import counted
from ltpll.report import templates

MOST_EXAMPLES = 4000  # on one page: about a megabyte of text
CONFUSED_CLASSES = 20  # rows and columns of the confusion matrix


def write_cleaning_page(path: Path, run: CleanedTable, title: str | None = None) -> None:
    """Write the page of a finished run; by default, the title names the table."""
    templates.write(path, render_cleaning_page(run, title))


def render_cleaning_page(run: CleanedTable, title: str | None = None) -> str:
    """The page of a finished run as HTML."""
    record, examples = run.record, _examples(run)
    data = {"classes": [str(name) for name in run.classes], "examples": examples}
    data |= {"n": len(run.ids), "calibrated": run.audit is not None}
    annotators = [] if run.votes is None else _as_rows(annotator_columns(run))
    committee = record.get("committee") or {}
    return templates.render(
        "cleaning.html",
        title=title or f"Labels of {Path(record['source']['table']).name}",
        styles=[templates.read_asset("page.css"), templates.read_asset("cleaning.css")],
        scripts=[templates.read_asset("cleaning.js")],
        verdicts=verdicts(run),
        beats_guess=beats_guess(run),
        judged_by_own=bool((run.labels.judged_by == "own").any()),
        findings=[summary(run)[0], *findings(run)],
        facts=_facts(run),
        # The script inserts all text as text, never as markup.
        data=json.loads(templates.without_bidi_controls(json.dumps(data, ensure_ascii=False))),
        n_shown=len(examples),
        n_examples=len(run.ids),
        lines=_class_lines(run),
        prior=record.get("prior"),
        choice=None if committee else record.get("choice"),
        n_true=len(known_truth(run)[0]),
        confusion=_confusion_matrix(run),
        calibration=run.judgement.get("calibration") or {},
        annotators=sorted(annotators, key=lambda one: one["agreement"]),
        committee=sorted(committee.items(), key=lambda one: -one[1]),
        config=templates.json_markup(
            {name: record[name] for name in ("config", "source", "environment")}
        ),
    )


def _facts(run: CleanedTable) -> list[tuple[str, str]]:
    """Figures below the title."""
    record, (known, true) = run.record, known_truth(run)
    rows, test, config = record["rows"], record["last"].get("test", {}), record["config"]
    training = f", {rows['trained']:,} for training" if rows["held_out"] else ""
    if "committee" in record:
        counting = sum(weight > 0 for weight in record["committee"].values())
        method = f"committee of {counted(counting, 'member')}"
    else:
        rebalancer = [] if config["rebalancer"] == "none" else [config["rebalancer"]]
        method = " + ".join([config["method"], *config["extras"], *rebalancer])
    facts = {
        "examples": f"{rows['all']:,}{training}",
        "classes": f"{len(run.classes):,}",
        "candidates per set": f"{run.sizes.mean():.2f}",
        "method": method,
    }
    if "accuracy" in test:
        for goal, found in test.get("by_goal", {"": test}).items():
            name = "held-out accuracy" + (f" with the goal {goal}" if goal else "")
            balanced = f"balanced {found['balanced_accuracy']:.1%}"
            facts[name] = f"{found['accuracy']:.1%}, {balanced}"
    elif test:
        facts["held-out predictions inside their sets"] = f"{test['covering_rate']:.1%}"
    if len(known):
        right = f"{(run.labels.label[known] == true).mean():.1%} of {len(known):,}"
        facts["labels that are right"] = f"{right} with a known true label"
    if run.reviewed is not None:
        facts["reviewed"] = f"{int(run.reviewed.sum()):,}"
    if record["skipped"]:
        facts["pictures skipped"] = f"{len(record['skipped']):,}"
    return list(facts.items())


# ---- examples ----------------------------------------------------------------------------------


def _examples(run: CleanedTable) -> list[dict[str, Any]]:
    """What the script shows of each example; labels are class numbers."""
    cleaned, rows, ranks = run.labels, _rows_shown(run), suspicion_ranks(run)
    votes = _votes_by_row(run, rows)
    found = []
    for i in rows.tolist():
        shown = [(name, one[i]) for name, one in run.shown.items() if one[i] is not None]
        one = {
            "id": str(run.ids[i]),
            "candidates": run.candidates[run.offsets[i] : run.offsets[i + 1]].tolist(),
            "label": int(cleaned.label[i]),
            "runner_up": int(cleaned.runner_up[i]),
            "confidence": round(float(cleaned.confidence[i]), 4),
            "margin": round(float(cleaned.margin[i]), 4),
            "suspicion": round(float(cleaned.suspicion[i]), 4),
            "judged": cleaned.judged_by[i] != "own",
            "suggestion": int(cleaned.outside[i]) if cleaned.issue[i] else None,
            "true": run.true[i],
            "votes": votes.get(i, []),
            "picture": templates.jpeg_url(run.pictures[i]) if i in run.pictures else None,
            "shown": shown,
            "rank": int(ranks[i]),
        }
        found.append(one)
    return found


def _rows_shown(run: CleanedTable) -> Numbers:
    """All rows in the table's order or, if they are too many, the suspicious and uncertain ones."""
    n = len(run.ids)
    if n <= MOST_EXAMPLES:
        return np.arange(n)
    suspicious = np.lexsort((-run.labels.suspicion, ~run.labels.issue))[: MOST_EXAMPLES // 2]
    uncertain = np.argsort(run.labels.margin, kind="stable")[: MOST_EXAMPLES // 2]
    return np.union1d(suspicious, uncertain)


def _votes_by_row(run: CleanedTable, rows: Numbers) -> dict[int, list[tuple[int, int]]]:
    """For each of these rows, how many annotators chose each label, the most frequent first."""
    found: dict[int, list[tuple[int, int]]] = {}
    if run.votes is not None:
        shown = np.isin(run.votes.rows, rows)
        pairs, counts = np.unique(
            np.stack([run.votes.rows[shown], run.votes.labels[shown]]), axis=1, return_counts=True
        )
        for k in np.argsort(-counts, kind="stable").tolist():
            found.setdefault(int(pairs[0, k]), []).append((int(pairs[1, k]), int(counts[k])))
    return found


# ---- tables ------------------------------------------------------------------------------------


def _as_rows(columns: Columns) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _class_lines(run: CleanedTable) -> list[dict[str, Any]]:
    """The lines of the table of classes, the most frequent label first."""
    columns, n, prior = class_columns(run), len(run.ids), run.record.get("prior")
    bars = {
        "candidate": columns["candidate_in"] / n,
        "label": columns["label_of"] / n,
        "prior": columns["estimated_prior"],
    }
    longest = max(share.max() for share in bars.values()) or 1
    columns["bars"] = [
        [(name, share[c], 100 * share[c] / longest) for name, share in bars.items()]
        for c in range(len(run.classes))
    ]
    if prior is not None:
        bounds = (map(_share_text, prior[name]) for name in ("estimate", "lower", "upper"))
        columns["from_sets"] = [f"{a} ({b} to {c})" for a, b, c in zip(*bounds, strict=True)]
    true = run.true[run.labels.judged_by != "held out"]
    if len(true) and not any(label is None for label in true):
        shares = np.bincount(true.astype(np.int64), minlength=len(run.classes)) / len(true)
        columns["true_share"] = [_share_text(share) for share in shares.tolist()]
    return sorted(_as_rows(columns), key=lambda one: -one["label_of"])


def _share_text(share: float) -> str:
    """A share as text; small ones with two digits."""
    return f"{share:.1%}" if share >= 0.01 or share == 0 else f"{float(f'{100 * share:.2g}'):g}%"


def _confusion_matrix(run: CleanedTable) -> dict[str, Any] | None:
    """How many rows of the most frequent true classes have which label, if any are known."""
    rows, true = known_truth(run)
    if not len(rows):
        return None
    totals = np.bincount(true, minlength=len(run.classes))
    frequent = np.argsort(-totals, kind="stable")[: min(CONFUSED_CLASSES, (totals > 0).sum())]
    place = np.full(len(totals), len(frequent))
    place[frequent] = np.arange(len(frequent))
    counts: npt.NDArray[np.int64] = np.zeros((len(frequent) + 1,) * 2, dtype=np.int64)
    np.add.at(counts, (place[true], place[run.labels.label[rows]]), 1)
    names = run.classes[frequent].tolist()
    return {
        "names": names,
        "rows": list(zip(names, counts[:-1].tolist(), totals[frequent].tolist(), strict=True)),
        "left_out": int((totals > 0).sum()) - len(frequent),
    }
