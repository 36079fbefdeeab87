"""The page of a run on a table: its classes, confusions, annotators and noteworthy examples with their pictures, in one offline file."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ltpll.cleaning.results import CleanedTable, Numbers, annotator_columns, class_columns, confusion_pairs, true_shares
from ltpll.cleaning.stored_tables import read_cleaned
from ltpll.report import templates

MOST_EXAMPLES = 4000  # on one page: about a megabyte of text
CONFUSED_CLASSES = 20  # rows and columns of the confusion table
WIDTH, HEIGHT, LEFT, BOTTOM = 560, 220, 44, 24  # of a plot and the margins for its axes


@dataclass(frozen=True)
class Example:
    """What the page shows of an example; labels are class numbers."""

    id: str
    candidates: list[int]
    label: int
    confidence: float
    margin: float
    suspicion: float
    outside: int  # −1 if every class is a candidate
    true: int | None
    picture: bytes | None


@dataclass(frozen=True)
class PageContents:
    """Everything on the page; columns are lists of equal length by name."""

    title: str
    facts: Sequence[tuple[str, str]]
    class_names: Sequence[str]
    classes: Mapping[str, Sequence[Any]]
    confusions: Sequence[tuple[int, int, int]]  # chosen label, other candidate, number of sets
    annotators: Mapping[str, Sequence[Any]] | None
    examples: Sequence[Example]
    n_examples: int
    curves: Mapping[str, Sequence[float]]
    config: Mapping[str, Any]
    prior: Mapping[str, Any] | None  # the record of a `PriorEstimate`
    choice: str | None  # what the rebalancer chose and why
    true_shares: Sequence[float] | None
    judged_by_own: bool  # whether rows were judged by a classifier that was trained on them


# ---- from a run folder to the contents of its page -------------------------------------------------------------------


def page_contents(folder: Path, title: str | None = None, false_discoveries: float | None = None) -> PageContents:
    """Read the folder of a finished run on a table and collect what its page shows; by default, the title names the table."""
    run = read_cleaned(folder, false_discoveries)
    pairs, counts = confusion_pairs(run)
    return PageContents(
        title=title or f"Labels of {Path(run.record['source']['table']).name}",
        facts=_facts(run),
        class_names=[str(name) for name in run.classes],
        classes={name: list(values) for name, values in class_columns(run).items()},
        confusions=[(int(a), int(b), int(n)) for (a, b), n in zip(pairs, counts, strict=True)],
        annotators=None if run.votes is None else {name: list(values) for name, values in annotator_columns(run).items()},
        examples=[_example(run, int(i)) for i in _rows_shown(run)],
        n_examples=len(run.ids),
        curves=run.record["curves"],
        config={"config": run.record["config"], "source": run.record["source"], "environment": run.record["environment"]},
        prior=run.record.get("prior"),
        choice=run.record.get("choice"),
        true_shares=true_shares(run),
        judged_by_own=bool((run.labels.judged_by == "own").any()),
    )


def _rows_shown(run: CleanedTable) -> Numbers:
    """All rows in the table's order; if there are too many, the most suspicious and the most uncertain ones."""
    n = len(run.ids)
    if n <= MOST_EXAMPLES:
        return np.arange(n)
    suspicious = np.argsort(-run.labels.suspicion, kind="stable")[: MOST_EXAMPLES // 2]
    uncertain = np.argsort(run.labels.margin, kind="stable")[: MOST_EXAMPLES // 2]
    return np.unique(np.concatenate([suspicious, uncertain]))


def _example(run: CleanedTable, i: int) -> Example:
    cleaned = run.labels
    return Example(
        id=str(run.ids[i]),
        candidates=run.candidates[run.offsets[i] : run.offsets[i + 1]].tolist(),
        label=int(cleaned.label[i]),
        confidence=float(cleaned.confidence[i]),
        margin=float(cleaned.margin[i]),
        suspicion=float(cleaned.suspicion[i]),
        outside=int(cleaned.outside[i]),
        true=None if run.true[i] is None else int(run.true[i]),
        picture=run.pictures.get(i),
    )


def _facts(run: CleanedTable) -> list[tuple[str, str]]:
    record, cleaned = run.record, run.labels
    rows, last, config = record["rows"], record["last"], record["config"]
    issues = int(cleaned.issue.sum())
    facts = [
        ("examples", f"{rows['all']:,}" + (f", {rows['trained']:,} for training" if rows["held_out"] else "")),
        ("classes", f"{len(run.classes):,}"),
        ("candidates per set", f"{run.sizes.mean():.2f}"),
        ("ambiguous sets", f"{int((run.sizes > 1).sum()):,}"),
        ("mean confidence", f"{cleaned.confidence.mean():.1%}"),
        ("sets that may lack the true label", f"{issues:,} ({issues / len(run.ids):.1%})"),
        ("method", " + ".join([config["method"], *config["extras"], *([] if config["rebalancer"] == "none" else [config["rebalancer"]])])),
    ]
    test = last.get("test", {})
    if "accuracy" in test:
        for goal, figures in test.get("by_goal", {"": test}).items():
            words = "held-out accuracy" + (f" with the goal {goal}" if goal else "")
            facts.append((words, f"{figures['accuracy']:.1%}, balanced {figures['balanced_accuracy']:.1%}"))
    elif test:
        facts.append(("held-out predictions inside their sets", f"{test['covering_rate']:.1%}"))
    if "target_recovery" in last:
        facts.append(("true labels recovered", f"{last['target_recovery']:.1%}"))
    if record["skipped"]:
        facts.append(("pictures skipped", f"{len(record['skipped']):,}"))
    return facts


# ---- from the contents to HTML ---------------------------------------------------------------------------------------


def write_cleaning_page(path: Path, contents: PageContents) -> None:
    templates.write(path, render_cleaning_page(contents))


def render_cleaning_page(contents: PageContents) -> str:
    return templates.render(
        "cleaning.html",
        title=contents.title,
        styles=[templates.read_asset("page.css"), templates.read_asset("cleaning.css")],
        scripts=[templates.read_asset("cleaning.js")],
        contents=contents,
        lines=_class_lines(contents),
        frequencies=_frequencies(contents),
        confusion=_confusion(contents),
        annotators=_annotator_lines(contents.annotators),
        plots=_plots(contents.curves),
        data=_data(contents),
        config=json.dumps(contents.config, indent=1, ensure_ascii=False),
    )


def _data(contents: PageContents) -> dict[str, Any]:
    """What the script shows and searches; it inserts all text as text, never as markup."""
    return {
        "classes": list(contents.class_names),
        "examples": [
            [one.id, one.candidates, one.label, _short(one.confidence), _short(one.margin), _short(one.suspicion), one.outside, one.true, i]
            for i, one in enumerate(contents.examples)
        ],
        "pictures": {
            i: "data:image/jpeg;base64," + base64.b64encode(one.picture).decode()
            for i, one in enumerate(contents.examples)
            if one.picture is not None
        },
    }


def _short(value: float) -> float:
    return round(float(value), 4)


# ---- tables -----------------------------------------------------------------------------------------------------------


def _class_lines(contents: PageContents) -> list[dict[str, Any]]:
    """The shares of each class, as text and as the length of a bar; the most frequent label first."""
    columns, n = contents.classes, contents.n_examples
    order = sorted(range(len(columns["class"])), key=lambda c: -columns["label_of"][c])
    shares = {
        "candidate": [count / n for count in columns["candidate_in"]],
        "label": [count / n for count in columns["label_of"]],
        "prior": list(columns["estimated_prior"]),
    }
    longest = max((max(values) for values in shares.values()), default=1) or 1
    return [
        {
            "name": columns["class"][c],
            "bars": [(name, f"{values[c]:.1%}", f"{100 * values[c] / longest:.2f}") for name, values in shares.items()],
            "distractor": _percent(columns["distractor_rate"][c]),
            "confidence": _percent(columns["mean_confidence"][c]),
            "suggested": f"{columns['suggested_for'][c]:,}",
            "instead": columns["most_often_instead"][c],
            "times": f"{columns['times_instead'][c]:,}",
        }
        for c in order
    ]


def _frequencies(contents: PageContents) -> dict[str, Any] | None:
    """The estimated prior with its bounds, the model's own estimate and the true share of each class, and where the picture shows them."""
    if contents.prior is None:
        return None
    estimate, lower, upper = (contents.prior[name] for name in ("estimate", "lower", "upper"))
    columns = [estimate, lower, upper, contents.classes["estimated_prior"], *([contents.true_shares] if contents.true_shares else [])]
    # Anything below half an example is drawn at the left edge.
    axis = _LogAxis.of([max(share, 0.5 / contents.n_examples) for column in columns for share in column])
    return {
        "ticks": [(axis.at(tick), f"{100 * tick:g}%") for tick in axis.ticks()],
        "rows": [
            {
                "name": contents.class_names[c],
                "texts": [
                    f"{_share(estimate[c])} ({_share(lower[c])} to {_share(upper[c])})",
                    *(_share(column[c]) for column in columns[3:]),
                ],
                "at": [axis.at(column[c]) for column in columns],
            }
            for c in sorted(range(len(estimate)), key=lambda c: -estimate[c])
        ],
    }


@dataclass(frozen=True)
class _LogAxis:
    """A logarithmic axis for shares of classes."""

    low: float
    high: float

    @classmethod
    def of(cls, shares: Sequence[float]) -> _LogAxis:
        low, high = min(shares), max(shares)
        margin = 1.1 * (high / low) ** 0.04  # room for the words of the outermost marks
        return cls(low / margin, high * margin)

    def at(self, share: float) -> str:
        """The position of a share on the axis, in percent of its length."""
        along = math.log(max(share, self.low) / self.low) / math.log(self.high / self.low)
        return f"{100 * along:.2f}%"

    def ticks(self) -> list[float]:
        """Shares to mark: powers of ten and, if they are few, their doubles and fivefolds."""
        powers = [10.0**power for power in range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)]
        steps = (1, 2, 5) if self.high < 100 * self.low else (1, 3) if self.high < 1000 * self.low else (1,)
        return [
            tick for power in powers for step in steps if self.low * (self.high / self.low) ** 0.03 <= (tick := step * power) <= self.high
        ]


def _share(share: float) -> str:
    """A share as text; small ones with two digits."""
    return f"{share:.1%}" if share >= 0.01 or share == 0 else f"{float(f'{100 * share:.2g}'):g}%"


def _percent(value: float) -> str:
    return "–" if value != value else f"{value:.1%}"  # NaN


def _confusion(contents: PageContents) -> dict[str, Any] | None:
    """For the most frequent labels, the share of their sets that hold each of the other classes."""
    totals = list(contents.classes["label_of"])
    frequent = sorted(range(len(totals)), key=lambda c: -totals[c])[:CONFUSED_CLASSES]
    counts = {(label, other): n for label, other, n in contents.confusions}
    if not counts:
        return None
    rows = []
    for label in frequent:
        shares = [None if other == label else counts.get((label, other), 0) / max(totals[label], 1) for other in frequent]
        cells = [None if share is None else (f"{share:.0%}", round(share, 3)) for share in shares]
        rows.append((contents.class_names[label], cells))
    return {"names": [contents.class_names[c] for c in frequent], "rows": rows, "left_out": len(totals) - len(frequent)}


def _annotator_lines(columns: Mapping[str, Sequence[Any]] | None) -> list[tuple[str, ...]] | None:
    if columns is None:
        return None
    order = sorted(range(len(columns["annotator"])), key=lambda a: columns["agreement"][a])
    return [
        (
            str(columns["annotator"][a]),
            f"{columns['examples'][a]:,}",
            f"{columns['labels'][a]:,}",
            _percent(columns["agreement"][a]),
            _percent(columns["shared_with_others"][a]),
        )
        for a in order
    ]


# ---- curves -----------------------------------------------------------------------------------------------------------

WORDS = {
    "loss": "loss",
    "covering_rate": "held-out predictions inside their sets",
    "accuracy": "held-out accuracy",
    "balanced_accuracy": "held-out balanced accuracy",
    "target_recovery": "true labels recovered in training rows",
}


def _plots(curves: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """One plot of the loss, and one of everything that is a share."""
    shares = [name for name in WORDS if name != "loss" and name in curves]
    found = [_plot("Loss", curves["epoch"], {"loss": curves["loss"]}, shares=False)]
    if shares:
        found.append(_plot("Evaluation during training", curves["measured"], {name: curves[name] for name in shares}, shares=True))
    return found


def _plot(title: str, x: Sequence[float], series: Mapping[str, Sequence[float]], *, shares: bool) -> dict[str, Any]:
    """The points of each line in the coordinates of the SVG, and the marks of its axes."""
    top = 1.0 if shares else max(max(values) for values in series.values()) or 1.0
    last = max(x) or 1

    def at(epoch: float, value: float) -> str:
        return f"{LEFT + (WIDTH - LEFT - 8) * epoch / last:.1f},{8 + (HEIGHT - BOTTOM - 8) * (1 - value / top):.1f}"

    return {
        "title": title,
        "lines": [
            {
                "name": WORDS[name],
                "points": " ".join(at(e, v) for e, v in zip(x, values, strict=True)),
                "last": f"{values[-1]:.1%}" if shares else f"{values[-1]:.3g}",
            }
            for name, values in series.items()
        ],
        "marks": [(8 + (HEIGHT - BOTTOM - 8) * (1 - share), f"{share:.0%}" if shares else f"{share * top:.2g}") for share in (0, 0.5, 1)],
        "last": last,
        "size": (WIDTH, HEIGHT, LEFT, BOTTOM),
    }
