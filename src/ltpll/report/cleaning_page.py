"""The page of a run on a table: how far its labels can be trusted, its examples, classes and annotators, in one offline file."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ltpll.cleaning.results import (
    CalibrationInterval,
    CleanedTable,
    Numbers,
    annotator_columns,
    beats_guess,
    calibration_intervals,
    class_columns,
    confusion_pairs,
    known_truth,
    lack_truth,
    not_judged,
    said_of_missing_labels,
    true_confusion_pairs,
    true_shares,
    verdicts,
)
from ltpll.cleaning.review import reasons, review_rows
from ltpll.cleaning.stored_tables import read_cleaned
from ltpll.formatting import are, counted
from ltpll.report import templates

MOST_EXAMPLES = 4000  # on one page: about a megabyte of text
CONFUSED_CLASSES = 20  # rows and columns of a confusion table
REVIEWED_FIRST = 10  # rows of the review queue
NAMED_CLASSES = 5  # that the model cannot judge; the table of classes has all of them
WIDTH, HEIGHT, LEFT, BOTTOM = 560, 220, 44, 24  # of a plot and the margins for its axes


@dataclass(frozen=True)
class Example:
    """What the page shows of an example; labels are class numbers."""

    id: str
    candidates: list[int]
    label: int
    runner_up: int
    confidence: float
    margin: float
    suspicion: (
        float | None
    )  # None if the set was not judged by a classifier that was not trained on it
    suggestion: int | None  # the likelier label of a flagged set; None if it is not flagged
    true: int | None
    votes: (
        list[tuple[int, int]] | None
    )  # label and number of annotators, the most frequent first; None if sets are not from annotators
    picture: bytes | None


@dataclass(frozen=True)
class Calibration:
    """How confidences compare with accuracies on some rows."""

    of: str  # which rows
    figures: Mapping[str, float | None]  # from `ltpll.evaluation.metrics.calibration_figures`
    intervals: Sequence[CalibrationInterval]


@dataclass(frozen=True)
class Truth:
    """How cleaned labels compare with true labels, on the rows whose true label is known."""

    n_rows: int
    confusions: Sequence[tuple[int, int, int]]  # true label, cleaned label, number of rows
    calibrations: Sequence[Calibration]


@dataclass(frozen=True)
class PageContents:
    """Everything on the page; columns are lists of equal length by name."""

    title: str
    verdicts: Sequence[str]  # how far labels can be trusted
    beats_guess: bool | None  # None if that could not be checked
    findings: Sequence[str]  # sentences about flagged sets
    not_judged: Sequence[
        tuple[str, int, int]
    ]  # class, examples, how many are recovered out of fold
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
    truth: Truth | None
    judged_by_own: bool  # whether rows were judged by a classifier that was trained on them
    review: Sequence[tuple[Example, str]] = ()  # the rows to review first, and why


# ---- from a run folder to the contents of its page -------------------------------------------------------------------


def page_contents(
    folder: Path, title: str | None = None, false_discoveries: float | None = None
) -> PageContents:
    """Read the folder of a finished run on a table and collect what its page shows; by default, the title names the table."""
    return contents_of(read_cleaned(folder, false_discoveries), title)


def contents_of(run: CleanedTable, title: str | None = None) -> PageContents:
    """Collect what the page of a finished run on a table shows."""
    rows, first = _rows_shown(run), review_rows(run)[:REVIEWED_FIRST]
    votes = _votes(run, np.union1d(rows, first))
    return PageContents(
        title=title or f"Labels of {Path(run.record['source']['table']).name}",
        verdicts=verdicts(run),
        beats_guess=beats_guess(run),
        findings=_findings(run),
        not_judged=sorted(not_judged(run), key=lambda one: -one[1]),
        facts=_facts(run),
        class_names=[str(name) for name in run.classes],
        classes={name: list(values) for name, values in class_columns(run).items()},
        confusions=_triples(*confusion_pairs(run)),
        annotators=None
        if run.votes is None
        else {name: list(values) for name, values in annotator_columns(run).items()},
        examples=[_example(run, int(i), votes) for i in rows],
        n_examples=len(run.ids),
        curves=run.record["curves"],
        config={
            "config": run.record["config"],
            "source": run.record["source"],
            "environment": run.record["environment"],
        },
        prior=run.record.get("prior"),
        choice=run.record.get("choice"),
        true_shares=true_shares(run),
        truth=_truth(run),
        judged_by_own=bool((run.labels.judged_by == "own").any()),
        review=[
            (_example(run, int(i), votes), why)
            for i, why in zip(first, _reasons(run, first), strict=True)
        ],
    )


def _reasons(run: CleanedTable, rows: Numbers) -> list[Any]:
    """Why rows are asked about, as markup: apart from the names of classes, the words are ours."""
    return [templates.markup(why) for why in reasons(run, rows, templates.bdi)]


def _rows_shown(run: CleanedTable) -> Numbers:
    """All rows in the table's order; if there are too many, flagged and other suspicious ones, and the most uncertain ones."""
    n = len(run.ids)
    if n <= MOST_EXAMPLES:
        return np.arange(n)
    suspicious = np.lexsort((-run.labels.suspicion, ~run.labels.issue))[: MOST_EXAMPLES // 2]
    uncertain = np.argsort(run.labels.margin, kind="stable")[: MOST_EXAMPLES // 2]
    return np.unique(np.concatenate([suspicious, uncertain]))


def _votes(run: CleanedTable, rows: Numbers) -> dict[int, list[tuple[int, int]]]:
    """For each of these rows, how many annotators chose each label, the most frequent first."""
    found: dict[int, list[tuple[int, int]]] = {row: [] for row in rows.tolist()}
    if run.votes is not None:
        shown = np.isin(run.votes.rows, rows)
        pairs, counts = np.unique(
            np.stack([run.votes.rows[shown], run.votes.labels[shown]]), axis=1, return_counts=True
        )
        for k in np.argsort(-counts, kind="stable").tolist():
            found[int(pairs[0, k])].append((int(pairs[1, k]), int(counts[k])))
    return found


def _example(run: CleanedTable, i: int, votes: Mapping[int, list[tuple[int, int]]]) -> Example:
    cleaned = run.labels
    return Example(
        id=str(run.ids[i]),
        candidates=run.candidates[run.offsets[i] : run.offsets[i + 1]].tolist(),
        label=int(cleaned.label[i]),
        runner_up=int(cleaned.runner_up[i]),
        confidence=float(cleaned.confidence[i]),
        margin=float(cleaned.margin[i]),
        suspicion=None if cleaned.judged_by[i] == "own" else float(cleaned.suspicion[i]),
        suggestion=int(cleaned.outside[i]) if cleaned.issue[i] else None,
        true=None if run.true[i] is None else int(run.true[i]),
        votes=None if run.votes is None else votes[i],
        picture=run.pictures.get(i),
    )


def _triples(pairs: Numbers, counts: Numbers) -> list[tuple[int, int, int]]:
    return [(a, b, n) for (a, b), n in zip(pairs.tolist(), counts.tolist(), strict=True)]


def _findings(run: CleanedTable) -> list[str]:
    """What the judgement says about the sets, and whether it is right where true labels are known."""
    judgement, issue = run.record.get("judgement"), run.labels.issue
    if judgement is None:
        return []
    flagged, rows = int(issue.sum()), int((run.labels.judged_by != "own").sum())
    if flagged:
        wrong = 1 - float(run.labels.suspicion[issue].mean())
        found = [
            f"{counted(flagged, 'set')} ({flagged / rows:.1%} of {rows:,}) {are(flagged)} flagged because the true label seems to be "
            f"missing; {wrong:.0%} of these flags are expected to be wrong."
        ]
    else:
        found = [
            f"None of {counted(rows, 'set')} is flagged: no set is suspicious enough to say that it lacks the true label."
        ]
    found.append(
        f"An estimated {judgement['missing']:.1%} of these sets lack the true label; flags name only those that stand out."
    )
    said = said_of_missing_labels(run)
    if said:
        found.append(said)
    known, lacking = known_truth(run)[0], lack_truth(run)
    if len(known):
        n_lacking, caught, checked = (
            int(lacking.sum()),
            int(lacking[issue[known]].sum()),
            int(issue[known].sum()),
        )
        lack = (
            "none of these sets lacks"
            if n_lacking == 0
            else f"{n_lacking:,} of these sets {'lacks' if n_lacking == 1 else 'lack'}"
        )
        among = f", among them {caught:,} of the {checked:,} flagged ones" if checked else ""
        found.append(
            f"True labels are known for {counted(len(known), 'row')}: {lack} the true label{among}."
        )
    return found


def _truth(run: CleanedTable) -> Truth | None:
    rows, _ = known_truth(run)
    if not len(rows):
        return None
    words = {"all": "all rows", "ambiguous": "ambiguous rows"}
    figures = (run.record.get("judgement") or {}).get("calibration") or {}
    return Truth(
        n_rows=len(rows),
        confusions=_triples(*true_confusion_pairs(run)),
        calibrations=[
            Calibration(words[name], figures[name], intervals)
            for name, intervals in calibration_intervals(run).items()
        ],
    )


def _facts(run: CleanedTable) -> list[tuple[str, str]]:
    record, cleaned = run.record, run.labels
    rows, last, config = record["rows"], record["last"], record["config"]
    facts = [
        (
            "examples",
            f"{rows['all']:,}"
            + (f", {rows['trained']:,} for training" if rows["held_out"] else ""),
        ),
        ("classes", f"{len(run.classes):,}"),
        ("candidates per set", f"{run.sizes.mean():.2f}"),
        ("ambiguous sets", f"{int((run.sizes > 1).sum()):,}"),
        ("mean confidence", f"{cleaned.confidence.mean():.1%}"),
        (
            "method",
            " + ".join(
                [
                    config["method"],
                    *config["extras"],
                    *([] if config["rebalancer"] == "none" else [config["rebalancer"]]),
                ]
            ),
        ),
    ]
    test = last.get("test", {})
    if "accuracy" in test:
        for goal, figures in test.get("by_goal", {"": test}).items():
            words = "held-out accuracy" + (f" with the goal {goal}" if goal else "")
            facts.append(
                (words, f"{figures['accuracy']:.1%}, balanced {figures['balanced_accuracy']:.1%}")
            )
    elif test:
        facts.append(("held-out predictions inside their sets", f"{test['covering_rate']:.1%}"))
    known, true = known_truth(run)
    if len(known):
        facts.append(
            (
                "labels that are right",
                f"{(cleaned.label[known] == true).mean():.1%} of {len(known):,} with a known true label",
            )
        )
    if run.reviewed is not None:
        facts.append(("reviewed", f"{int(run.reviewed.sum()):,}"))
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
        review=[_review_card(contents, one, why) for one, why in contents.review],
        lines=_class_lines(contents),
        frequencies=_frequencies(contents),
        confusion=_confusion(contents),
        true_confusion=None
        if contents.truth is None
        else _true_confusion(contents, contents.truth),
        reliability=[
            _reliability(one) for one in (contents.truth.calibrations if contents.truth else [])
        ],
        unknown=(
            contents.not_judged[:NAMED_CLASSES],
            max(0, len(contents.not_judged) - NAMED_CLASSES),
        ),
        annotators=_annotator_lines(contents.annotators),
        plots=_plots(contents.curves),
        data=_data(contents),
        config=templates.json_markup(contents.config),
    )


def _data(contents: PageContents) -> dict[str, Any]:
    """What the script shows and searches; it inserts all text as text, never as markup."""
    return {
        "classes": [templates.without_bidi_controls(name) for name in contents.class_names],
        "examples": [
            [
                templates.without_bidi_controls(one.id),
                one.candidates,
                one.label,
                one.runner_up,
                _short(one.confidence),
                _short(one.margin),
                None if one.suspicion is None else _short(one.suspicion),
                one.suggestion,
                one.true,
                one.votes,
                i,
            ]
            for i, one in enumerate(contents.examples)
        ],
        "pictures": {
            i: _as_url(one.picture)
            for i, one in enumerate(contents.examples)
            if one.picture is not None
        },
    }


def _review_card(contents: PageContents, one: Example, why: str) -> dict[str, Any]:
    """What the page shows of a row to review."""
    names = contents.class_names
    return {
        "id": one.id,
        "why": why[:1].upper() + why[1:],
        "candidates": [(names[c], c == one.label) for c in one.candidates],
        "outside": None if one.label in one.candidates else names[one.label],
        "suggestion": None if one.suggestion in (None, one.label) else names[one.suggestion],
        "confidence": f"{one.confidence:.0%}",
        "picture": None if one.picture is None else _as_url(one.picture),
    }


def _as_url(picture: bytes) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(picture).decode()


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
            "bars": [
                (name, f"{values[c]:.1%}", f"{100 * values[c] / longest:.2f}")
                for name, values in shares.items()
            ],
            "distractor": _percent(columns["distractor_rate"][c]),
            "confidence": _percent(columns["mean_confidence"][c]),
            "recovered": _recovered(columns, c),
            "unjudged": columns["judged_examples"][c] > 0 and not columns["judged"][c],
            "truth": [
                _percent(columns[name][c]) for name in ("precision", "recall") if name in columns
            ],
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
    columns = [
        estimate,
        lower,
        upper,
        contents.classes["estimated_prior"],
        *([contents.true_shares] if contents.true_shares else []),
    ]
    # Anything below half an example is drawn at the left edge.
    axis = _LogAxis.of(
        [max(share, 0.5 / contents.n_examples) for column in columns for share in column]
    )
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
        powers = [
            10.0**power
            for power in range(
                math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1
            )
        ]
        steps = (
            (1, 2, 5)
            if self.high < 100 * self.low
            else (1, 3)
            if self.high < 1000 * self.low
            else (1,)
        )
        return [
            tick
            for power in powers
            for step in steps
            if self.low * (self.high / self.low) ** 0.03 <= (tick := step * power) <= self.high
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
        shares = [
            None if other == label else counts.get((label, other), 0) / max(totals[label], 1)
            for other in frequent
        ]
        cells = [None if share is None else (f"{share:.0%}", round(share, 3)) for share in shares]
        rows.append((contents.class_names[label], cells))
    return {
        "names": [contents.class_names[c] for c in frequent],
        "rows": rows,
        "left_out": len(totals) - len(frequent),
    }


def _true_confusion(contents: PageContents, truth: Truth) -> dict[str, Any]:
    """How often the most frequent true classes get each label; what the table has no column for is counted together."""
    n = len(contents.class_names)
    totals = [0] * n
    for true, _, rows in truth.confusions:
        totals[true] += rows
    frequent = sorted((c for c in range(n) if totals[c]), key=lambda c: -totals[c])[
        :CONFUSED_CLASSES
    ]
    counts = {(true, label): rows for true, label, rows in truth.confusions}
    lines = []
    for true in frequent:
        cells = [counts.get((true, label), 0) for label in frequent]
        shares = [
            (f"{count:,}", round(count / totals[true], 3), label == true)
            for count, label in zip(cells, frequent, strict=True)
        ]
        lines.append(
            (
                contents.class_names[true],
                shares,
                f"{totals[true] - sum(cells):,}",
                f"{totals[true]:,}",
            )
        )
    return {
        "names": [contents.class_names[c] for c in frequent],
        "rows": lines,
        "left_out": sum(1 for total in totals if total) - len(frequent),
        "others": any(line[2] != "0" for line in lines),
    }


def _recovered(columns: Mapping[str, Sequence[Any]], c: int) -> str:
    recovered, examples = columns["recovered_out_of_fold"][c], columns["judged_examples"][c]
    return "–" if recovered is None or not examples else f"{recovered:,} of {examples:,}"


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
        found.append(
            _plot(
                "Evaluation during training",
                curves["measured"],
                {name: curves[name] for name in shares},
                shares=True,
            )
        )
    return found


def _plot(
    title: str, x: Sequence[float], series: Mapping[str, Sequence[float]], *, shares: bool
) -> dict[str, Any]:
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
        "marks": [
            (
                8 + (HEIGHT - BOTTOM - 8) * (1 - share),
                f"{share:.0%}" if shares else f"{share * top:.2g}",
            )
            for share in (0, 0.5, 1)
        ],
        "last": last,
        "size": (WIDTH, HEIGHT, LEFT, BOTTOM),
    }


# ---- calibration ------------------------------------------------------------------------------------------------------

SIDE, EDGE, FOOT = (
    240,
    42,
    34,
)  # of the square that accuracies are drawn in, and the margins for its axes


def _reliability(calibration: Calibration) -> dict[str, Any]:
    """The bars of a reliability diagram in the coordinates of its SVG, the same numbers as text, and the figures."""
    figures, ranking = calibration.figures, calibration.figures.get("ranking")
    bars = [
        {
            "x": f"{EDGE + SIDE * k / 10 + 1:.1f}",
            "y": f"{8 + SIDE * (1 - one.accuracy):.1f}",
            "height": f"{SIDE * one.accuracy:.1f}",
            "confidence": f"{8 + SIDE * (1 - one.confidence):.1f}",
            "middle": f"{EDGE + SIDE * (k + 0.5) / 10:.1f}",
            "rows": _compact(one.rows),
            "texts": (
                f"{k * 10} to {k * 10 + 10}%",
                f"{one.rows:,}",
                f"{one.confidence:.1%}",
                f"{one.accuracy:.1%}",
            ),
        }
        for k, one in enumerate(calibration.intervals)
        if one.rows
    ]
    return {
        "of": calibration.of,
        "rows": f"{figures['rows']:,}",
        "figures": [
            ("expected calibration error", f"{figures['calibration_error']:.1%}"),
            ("ranking (AUC)", "not defined" if ranking is None else f"{ranking:.3f}"),
            ("accuracy", f"{figures['accuracy']:.1%}"),
            ("mean confidence", f"{figures['mean_confidence']:.1%}"),
        ],
        "bars": bars,
        "marks": [
            (tenths, EDGE + SIDE * tenths / 10, 8 + SIDE * (1 - tenths / 10))
            for tenths in (0, 5, 10)
        ],
        "size": (EDGE + SIDE + 20, SIDE + 8 + FOOT, EDGE, SIDE),
    }


def _compact(n: int) -> str:
    """A count that fits below a bar: 950, 12k, 3M."""
    return str(n) if n < 1000 else f"{n / 1000:.0f}k" if n < 999_500 else f"{n / 1_000_000:.0f}M"
