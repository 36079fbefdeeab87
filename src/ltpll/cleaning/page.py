"""What the page of a run on own data says, from the files in its folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ltpll.cleaning.results import Cleaned, annotator_columns, class_columns, confusion_pairs, read_cleaned
from ltpll.report.cleaning_page import Contents, Example

MOST_EXAMPLES = 4000  # on one page: about a megabyte of text


def page_of(folder: Path, title: str | None = None) -> Contents:
    run = read_cleaned(folder)
    pairs, counts = confusion_pairs(run)
    return Contents(
        title=title or f"Labels of {Path(run.record['source']['table']).name}",
        facts=_facts(run),
        class_names=[str(name) for name in run.classes],
        classes={name: list(values) for name, values in class_columns(run).items()},
        confusions=[(int(a), int(b), int(n)) for (a, b), n in zip(pairs, counts, strict=True)],
        annotators=None if run.votes is None else {name: list(values) for name, values in annotator_columns(run).items()},
        examples=[_example(run, int(i)) for i in _shown(run)],
        n_examples=len(run.ids),
        curves=run.record["curves"],
        config={"config": run.record["config"], "source": run.record["source"], "environment": run.record["environment"]},
        judged_by_own=bool((run.cleaning.judged_by == "own").any()),
    )


def _shown(run: Cleaned) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """In the table's order, all examples or, of many, the most suspicious and the most uncertain half and half."""
    n = len(run.ids)
    if n <= MOST_EXAMPLES:
        return np.arange(n)
    worst = np.argsort(-run.cleaning.suspicion, kind="stable")[: MOST_EXAMPLES // 2]
    least = np.argsort(run.cleaning.margin, kind="stable")[: MOST_EXAMPLES // 2]
    return np.unique(np.concatenate([worst, least]))


def _example(run: Cleaned, i: int) -> Example:
    cleaning = run.cleaning
    return Example(
        id=str(run.ids[i]),
        candidates=run.candidates[run.offsets[i] : run.offsets[i + 1]].tolist(),
        label=int(cleaning.label[i]),
        confidence=float(cleaning.confidence[i]),
        margin=float(cleaning.margin[i]),
        suspicion=float(cleaning.suspicion[i]),
        outside=int(cleaning.outside[i]),
        true=None if run.true[i] is None else int(run.true[i]),
        picture=run.pictures.get(i),
    )


def _facts(run: Cleaned) -> list[tuple[str, str]]:
    record, cleaning = run.record, run.cleaning
    rows, last, config = record["rows"], record["last"], record["config"]
    issues = int(cleaning.issue.sum())
    facts = [
        ("examples", f"{rows['all']:,}" + (f", {rows['trained']:,} trained on" if rows["held_out"] else "")),
        ("classes", f"{len(run.classes):,}"),
        ("candidates a set", f"{run.sizes.mean():.2f}"),
        ("ambiguous sets", f"{int((run.sizes > 1).sum()):,}"),
        ("mean confidence", f"{cleaning.confidence.mean():.1%}"),
        ("sets that may lack the true label", f"{issues:,} ({issues / len(run.ids):.1%})"),
        ("method", " + ".join([config["method"], *config["extras"], *([] if config["rebalancer"] == "none" else [config["rebalancer"]])])),
    ]
    test = last.get("test", {})
    if "accuracy" in test:
        facts.append(("held-out accuracy", f"{test['accuracy']:.1%}, balanced {test['balanced_accuracy']:.1%}"))
    elif test:
        facts.append(("held-out predictions inside their sets", f"{test['covering_rate']:.1%}"))
    if "target_recovery" in last:
        facts.append(("true labels believed", f"{last['target_recovery']:.1%}"))
    if record["skipped"]:
        facts.append(("pictures skipped", f"{len(record['skipped']):,}"))
    return facts
